"""What the rows of a write read of its table: declared with it, and the version from which commits count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from protos.laketx.v1 import common_pb2, read_pb2
from worker.base.errors import InputError
from worker.base.table_view import TableView
from worker.read.noted_reads import NotedRead, Notes
from worker.write.stages import Stage, Staged
from worker.write.transaction import Write

EVERYTHING: Final = common_pb2.Read(predicate=common_pb2.Predicate(literal=True))
CONDITIONS_MAX: Final = 32  # more are a read of the whole table


@dataclass(frozen=True)
class RowsRead:
    """Reads to declare, and the oldest version at which one of them was made."""

    reads: tuple[common_pb2.Read, ...] = ()
    version: int | None = None


def reads_of(table: TableView, notes: Notes) -> RowsRead:
    """What was noted of the table."""
    found = [one for one in notes.all() if one.source.table.table_id == table.table_id]
    return _declared(table, found)


def _declared(table: TableView, found: Sequence[NotedRead]) -> RowsRead:
    if not found:
        return RowsRead()
    oldest = without_data(table, min(one.source.version for one in found))
    is_same = all(one.source.table.meta.schema_version == table.meta.schema_version for one in found)
    if not is_same or len(found) > CONDITIONS_MAX:  # the conditions may name columns that have other names now
        return RowsRead((EVERYTHING,), oldest)
    return RowsRead(tuple(common_pb2.Read(predicate=one.predicate) for one in found), oldest)


def with_reads(write: Write, notes: Notes) -> Write:
    """The write with what its rows have read so far, and with what they read while it is staged."""
    begun = reads_of(write.table, notes)
    work = write.stage
    assert work is not None

    def stage(stage: Stage) -> Staged:
        staged = work(stage)
        found = reads_of(write.table, notes)
        late = [one for one in found.reads if one not in begun.reads]
        if late and found.version is not None and found.version < stage.read_version:
            raise InputError(
                "READ_TOO_LATE",
                f"the rows turned out to be read from {write.meta.name} at version {found.version} after the write had "
                f"begun at version {stage.read_version}: give rows whose first batch reads the table, "
                "or read and write it in lake.transaction()",
            )
        staged.looked_at += late
        return staged

    versions = [one for one in (write.rows_version, begun.version) if one is not None]
    read = (*write.rows_read, *begun.reads)
    return replace(write, stage=stage, rows_read=read, rows_version=min(versions, default=None))


def without_data(table: TableView, version: int) -> int:
    """The newest version with the same rows, if only columns changed and files were compacted since."""
    head = table.meta.head_version
    if version >= head:
        return version
    wanted = read_pb2.VersionFilter(from_version=version + 1, to_version=head, logical_only=True)
    is_changed = any(True for _ in table.client.list_versions(table.table_id, wanted=wanted, page_size=1))
    return version if is_changed else head
