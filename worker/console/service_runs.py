"""What table services read and wrote, from the commits that they made, and what the scans since then saved by it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from metaservice.cli.values import to_second, word
from metaservice.client import MetaClient
from protos.laketx.v1 import catalog_pb2, common_pb2, maintenance_pb2, read_pb2
from worker.console.charts import Bar, paired_bars
from worker.console.visits import GONE

RUNS_MAX: Final = 30
TASKS_MAX: Final = 15  # of which each costs two calls
VERSIONS_MAX: Final = 10_000  # that are looked at in one table
OPERATIONS: Final = (
    common_pb2.OPERATION_MINOR_COMPACT,
    common_pb2.OPERATION_MAJOR_COMPACT,
    common_pb2.OPERATION_CLUSTER,
)


@dataclass(frozen=True, slots=True)
class ServiceRun:
    """A commit of a table service."""

    table_id: str
    table_name: str
    commit: read_pb2.Version
    counted_from_us: int  # since when the service counts scans; 0: it counts none

    @property
    def text(self) -> str:
        what, commit = word(common_pb2.Operation.Name, self.commit.operation), self.commit
        files = f"{commit.files_removed:,} files in, {commit.files_added:,} out"
        return f"{what} of {self.table_name}, {to_second(commit.commit_time_us)} UTC: {files}"

    @property
    def saved(self) -> Saved:
        """What a scan of everything reads less by this run, until later commits replace its files."""
        commit = self.commit
        return Saved(
            commit.files_removed - commit.files_added,
            commit.bytes_removed - commit.bytes_added,
            commit.rows_removed - commit.rows_added,
        )

    @property
    def saved_since(self) -> Saved:
        """What the scans of everything that read its version or a later one have saved."""
        return self.saved.times(self.commit.whole_scans_since)


@dataclass(frozen=True, slots=True)
class Saved:
    """Input minus output; below 0: a scan reads more, as after a clustering that wrote smaller files."""

    files: int
    size: int
    rows: int

    @staticmethod
    def all(parts: Iterable[Saved]) -> Saved:
        files = size = rows = 0
        for part in parts:
            files, size, rows = files + part.files, size + part.size, rows + part.rows
        return Saved(files, size, rows)

    def times(self, scans: int) -> Saved:
        return Saved(scans * self.files, scans * self.size, scans * self.rows)


@dataclass(frozen=True, slots=True)
class ServiceRuns:
    """Runs, the newest first, with the bars of their files and the sums."""

    runs: Sequence[ServiceRun]
    bars: Sequence[Bar]
    top: int
    files_in: int
    files_out: int
    bytes_in: int
    bytes_out: int
    saved: Saved
    saved_since: Saved
    counted_from_us: int


def runs_of_table(client: MetaClient, table: catalog_pb2.Table) -> ServiceRuns:
    """Those among the newest commits of a table, whoever started them."""
    services = read_pb2.VersionFilter(operations=OPERATIONS)
    services.from_version = max(table.head_version - VERSIONS_MAX, 0)
    return summed(list(islice(_runs(client, table.table_id, table.name, services, RUNS_MAX), RUNS_MAX)))


def runs_of_tasks(client: MetaClient, tasks: Sequence[maintenance_pb2.MaintenanceTask]) -> ServiceRuns:
    """Those of the newest tasks that committed."""
    return summed(list(islice(_committed(client, tasks), TASKS_MAX)))


def _committed(client: MetaClient, tasks: Sequence[maintenance_pb2.MaintenanceTask]) -> Iterator[ServiceRun]:
    for task in tasks:
        if task.state != maintenance_pb2.TASK_STATE_DONE or not task.txn_id:
            continue
        try:
            commits = client.get_transaction(task.txn_id).committed.tables
            version = next((each.version for each in commits if each.table_id == task.table_id), None)
            if version is None:
                continue
            alone = read_pb2.VersionFilter(from_version=version, to_version=version)
            run = next(_runs(client, task.table_id, task.table_name or task.table_id, alone, 1), None)
        except GONE:
            continue
        if run is not None:
            yield run


def _runs(
    client: MetaClient, table_id: str, table_name: str, matching: read_pb2.VersionFilter, page_size: int
) -> Iterator[ServiceRun]:
    for page in client.versions_with_scans(table_id, matching=matching, page_size=page_size):
        for commit in page.versions:
            yield ServiceRun(table_id, table_name, commit, page.scans_counted_from_us)


def summed(runs: Sequence[ServiceRun]) -> ServiceRuns:
    commits = [run.commit for run in runs]
    columns = [(run.text, run.commit.files_removed, run.commit.files_added) for run in reversed(runs)]
    bars, top = paired_bars(columns, ("input", "output"))
    return ServiceRuns(
        runs=runs,
        bars=bars,
        top=top,
        files_in=sum(commit.files_removed for commit in commits),
        files_out=sum(commit.files_added for commit in commits),
        bytes_in=sum(commit.bytes_removed for commit in commits),
        bytes_out=sum(commit.bytes_added for commit in commits),
        saved=Saved.all(run.saved for run in runs),
        saved_since=Saved.all(run.saved_since for run in runs),
        counted_from_us=max((run.counted_from_us for run in runs), default=0),
    )
