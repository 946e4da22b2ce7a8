"""What table services read and wrote: input against output, from the commits that they made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


@dataclass(frozen=True, slots=True)
class Saved:
    """Input minus output; below 0: a scan reads more, as after a clustering that wrote smaller files."""

    files: int
    size: int
    rows: int


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


def runs_of_table(client: MetaClient, table: catalog_pb2.Table) -> ServiceRuns:
    """Those among the newest commits of a table, whoever started them."""
    services = read_pb2.VersionFilter(operations=OPERATIONS)
    services.from_version = max(table.head_version - VERSIONS_MAX, 0)
    commits = islice(client.list_versions(table.table_id, wanted=services, page_size=RUNS_MAX), RUNS_MAX)
    return summed([ServiceRun(table.table_id, table.name, commit) for commit in commits])


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
            commit = next(client.list_versions(task.table_id, wanted=alone, page_size=1), None)
        except GONE:
            continue
        if commit is not None:
            yield ServiceRun(task.table_id, task.table_name or task.table_id, commit)


def summed(runs: Sequence[ServiceRun]) -> ServiceRuns:
    commits = [run.commit for run in runs]
    columns = [(run.text, run.commit.files_removed, run.commit.files_added) for run in reversed(runs)]
    bars, top = paired_bars(columns, ("input", "output"))
    return ServiceRuns(
        runs,
        bars,
        top,
        sum(commit.files_removed for commit in commits),
        sum(commit.files_added for commit in commits),
        sum(commit.bytes_removed for commit in commits),
        sum(commit.bytes_added for commit in commits),
        Saved(
            sum(run.saved.files for run in runs),
            sum(run.saved.size for run in runs),
            sum(run.saved.rows for run in runs),
        ),
    )
