"""The jobs of a load: one for each file, which waits, and one for each table with its nested ones, which commits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

from dlt.common.destination.client import HasFollowupJobs, RunnableLoadJob
from dlt.destinations.job_impl import ReferenceFollowupJobRequest


class CommitsFiles(Protocol):
    """A client that commits files."""

    def commit_files(self, load_id: str, table_name: str, files: Sequence[str]) -> None:
        """Commit the files of a table and of the tables nested in it, once."""


class FileJob(RunnableLoadJob, HasFollowupJobs):
    """Accepts a file, which the job of its table chain commits when the chain's other files are there, too."""

    def run(self) -> None:
        """Do nothing."""


class ChainJob(RunnableLoadJob):
    """Commits the files of a table and of the tables nested in it."""

    def run(self) -> None:
        """Commit them, all or nothing."""
        files = ReferenceFollowupJobRequest.resolve_references(self._file_path)
        client = cast(CommitsFiles, self._job_client)
        client.commit_files(self._load_id, self.load_table_name, [file for file in files if file])
