"""What a peer's module gives to the child process that measures it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

RECORDS_A_FILE = 100
FILE_BYTES = 2_000


class Refused(Exception):  # noqa: N818  (an outcome, not a fault: the caller submits again)
    """The peer gave a commit up; `reason` is the name of its error."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Writer(Protocol):
    """One writer's handle on the table."""

    attempts: int | None  # tries inside the calls; None where the peer doesn't say

    def commit(self, file_name: str) -> None:
        """Register the file, or raise Refused: it isn't in the table, and the next call starts from the newest one."""


class Peer(Protocol):
    """A module."""

    durability: str  # what an acknowledged commit survives, for the note beside the figure

    def version(self) -> str: ...

    def create(self, folder: Path) -> None:
        """An empty unpartitioned table of one column."""

    def open_writer(self, folder: Path) -> Writer: ...

    def read_back(self, folder: Path) -> tuple[int, list[str]]:
        """Read afresh: the number of commits since `create`, and the names of the live files."""
