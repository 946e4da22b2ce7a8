"""The commits of a table, as its history lists them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from protos.laketx.v1 import common_pb2, read_pb2
from worker.base.errors import word
from worker.base.values import moment_of


@dataclass(frozen=True)
class HistoryEntry:
    """A commit of a table, as `table.history()` returns it."""

    version: int
    time: datetime
    operation: str
    user: str
    message: str
    txn_id: str
    rebased_over: int
    resubmitted: str  # the transaction whose files it committed again, after that one had lost a race
    files_added: int
    files_removed: int
    rows_added: int
    rows_removed: int
    is_logical: bool


def history_entry(version: read_pb2.Version) -> HistoryEntry:
    return HistoryEntry(
        version=version.version,
        time=moment_of(version.commit_time_us),
        operation=word(common_pb2.Operation.Name(version.operation), "OPERATION_"),
        user=version.principal.name,
        message=version.commit_message,
        txn_id=version.txn_id,
        rebased_over=version.rebased_over,
        resubmitted=version.adopt_from,
        files_added=version.files_added,
        files_removed=version.files_removed,
        rows_added=version.rows_added,
        rows_removed=version.rows_removed,
        is_logical=version.HasField("time_version_us"),
    )
