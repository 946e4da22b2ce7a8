"""What the rows of a write read of its table: declared with it, and the version from which commits count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from protos.laketx.v1 import common_pb2, read_pb2
from worker.base.errors import InputError
from worker.commit.noted_reads import NotedRead, Notes
from worker.commit.stages import Stage, Staged
from worker.commit.writes import Write
from worker.connection.table_view import TableView, write_rules

EVERYTHING: Final = common_pb2.Read(predicate=common_pb2.Predicate(literal=True))
CONDITIONS_MAX: Final = 32  # more are a read of the whole table


SETTING: Final = "spark.laketx.isolation.reads"
PROPERTY: Final = "isolation.reads"
ALL: Final = "all"
OF_TABLE: Final = "table"


@dataclass(frozen=True)
class RowsRead:
    """Reads to declare, and the oldest version at which one of them was made."""

    reads: tuple[common_pb2.Read, ...] = ()
    version: int | None = None


def declares_all(table: TableView, *, by_spark: bool) -> bool:
    """Return whether writes of the table declare their reads of others. The setting of Spark's session counts first."""
    isolation = table.spark.conf.get(SETTING, None) if by_spark else None
    isolation = isolation or table.meta.properties.get(PROPERTY, OF_TABLE)
    if isolation not in (ALL, OF_TABLE):
        raise InputError("ISOLATION_INVALID", f"isolation.reads is table or all, not {isolation!r}")
    return isolation == ALL


def reader(table: TableView, read: RowsRead) -> list[Write]:
    """How a table that is only read joins a transaction; not at all where its profile doesn't check that."""
    if not read.reads or not write_rules(table.meta).counts_reads:
        return []
    return [Write(table, common_pb2.OPERATION_UPDATE, rows_read=read.reads, rows_version=read.version)]


def reads_of(table: TableView, notes: Notes) -> RowsRead:
    """Return the noted reads of the table."""
    noted = [read for read in notes.all() if read.source.table.table_id == table.table_id]
    return _declared(table, noted)


def reads_elsewhere(table: TableView, notes: Notes) -> list[Write]:
    """Return the noted reads of other tables of the lake, as writes that only read."""
    others: dict[str, list[NotedRead]] = {}
    for read in _noted_elsewhere(table, notes):
        others.setdefault(read.source.table.table_id, []).append(read)
    views = [(noted[0].source.table.refreshed(), noted) for noted in others.values()]
    return [write for view, noted in views for write in reader(view, _declared(view, noted))]


def _noted_elsewhere(table: TableView, notes: Notes) -> list[NotedRead]:
    return [
        read
        for read in notes.all()
        if read.source.table.table_id != table.table_id and read.source.table.lake.warehouse == table.lake.warehouse
    ]


def _declared(table: TableView, noted: Sequence[NotedRead]) -> RowsRead:
    if not noted:
        return RowsRead()
    oldest = without_data(table, min(read.source.version for read in noted))
    is_same = all(read.source.table.meta.schema_version == table.meta.schema_version for read in noted)
    if not is_same or len(noted) > CONDITIONS_MAX:  # the conditions may name columns that have other names now
        return RowsRead((EVERYTHING,), oldest)
    return RowsRead(tuple(common_pb2.Read(predicate=read.predicate) for read in noted), oldest)


def with_reads(write: Write, notes: Notes) -> Write:
    """Add to the write the reads that its rows made before it, and those that they make while it is staged."""
    begun = reads_of(write.table, notes)
    are_all = declares_all(write.table, by_spark=False)
    others = reads_elsewhere(write.table, notes) if are_all else []
    before = _noted_elsewhere(write.table, notes)
    work = write.stage
    assert work is not None

    def stage(stage: Stage) -> Staged:
        staged = work(stage)
        now = reads_of(write.table, notes)
        late = [read for read in now.reads if read not in begun.reads]
        if late and now.version is not None and now.version < stage.read_version:
            raise _too_late(write.meta.name, now.version, stage)
        more = [read for read in _noted_elsewhere(write.table, notes) if read not in before]
        if are_all and more:
            raise _too_late(more[0].source.table.name, more[0].source.version, stage)
        staged.looked_at += late
        return staged

    versions = [read for read in (write.rows_version, begun.version) if read is not None]
    return replace(
        write,
        stage=stage,
        rows_read=(*write.rows_read, *begun.reads),
        rows_version=min(versions, default=None),
        elsewhere=(*write.elsewhere, *others),
    )


def each_table_once(writes: Sequence[Write]) -> list[Write]:
    """The writes of a transaction, and what their rows read of other tables: on a table's own write, if it has one."""
    by_table = {write.meta.table_id: write for write in writes}
    for other in [other for write in writes for other in write.elsewhere]:
        table_id = other.meta.table_id
        own = by_table.get(table_id)
        by_table[table_id] = other if own is None else _with_reads_of(own, other)
    return list(by_table.values())


def _with_reads_of(write: Write, other: Write) -> Write:
    versions = [version for version in (write.rows_version, other.rows_version) if version is not None]
    return replace(write, rows_read=(*write.rows_read, *other.rows_read), rows_version=min(versions, default=None))


def _too_late(name: str, version: int, stage: Stage) -> InputError:
    return InputError(
        "READ_TOO_LATE",
        f"the rows turned out to be read from {name} at version {version} after the write had begun, at version "
        f"{stage.read_version} of its table: give rows whose first batch reads the table, or read and write in "
        "lake.transaction()",
    )


def without_data(table: TableView, version: int) -> int:
    """Return the newest version with the same rows, if only columns and the layout of files changed since."""
    head = table.meta.head_version
    if version >= head:
        return version
    matching = read_pb2.VersionFilter(from_version=version + 1, to_version=head, logical_only=True)
    is_changed = any(True for _ in table.client.list_versions(table.table_id, matching=matching, page_size=1))
    return version if is_changed else head
