"""Which partitions an OVERWRITE, TRUNCATE or RESTORE is about; the latter two, which need no rows and no Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from protos.laketx.v1 import common_pb2
from worker.base.errors import InputError
from worker.base.values import partition
from worker.commit.writes import Write
from worker.connection.table_view import TableView
from worker.connection.versions import zone_of

Partitions = Mapping[str, Any] | Sequence[Mapping[str, Any]] | Literal["all", "dynamic"]


def scope_of(table: TableView, where: Partitions, *, by_spark: bool = True) -> common_pb2.Scope:
    meta = table.meta
    if where == "all":
        return common_pb2.Scope(all=True)
    if where == "dynamic":
        if not meta.partition_columns:
            raise InputError("PARTITION_INVALID", f"{meta.name} has no partitions")
        return common_pb2.Scope(written=True)
    named = [where] if isinstance(where, Mapping) else list(where)
    if not named or not all(isinstance(values, Mapping) for values in named):
        raise InputError("PARTITION_INVALID", f"partition is a dict, a list of them, 'all' or 'dynamic', not {where!r}")
    return common_pb2.Scope(
        named=common_pb2.PartitionList(partitions=partitions_named(table, named, by_spark=by_spark))
    )


def scope_without_rows(table: TableView, where: Partitions, who: str) -> common_pb2.Scope:
    if where == "dynamic":
        raise InputError("PARTITION_INVALID", f"{who} writes nothing: name its partitions, or all")
    return scope_of(table, where)


def partitions_named(
    table: TableView, named: Iterable[Mapping[str, Any]], *, by_spark: bool = True
) -> list[common_pb2.Partition]:
    """Return the named partitions. A time without a zone is in the session's time zone, as in conditions.

    Without Spark it must have one.
    """
    partitions = set(table.meta.partition_columns)
    times = {
        column.name.lower() for column in table.meta.columns if column.type == "timestamp" and column.name in partitions
    }
    many = list(named)
    has_time = any(_is_zoneless(value) for values in many for name, value in values.items() if name.lower() in times)
    zone = zone_of(table.lake) if has_time and by_spark else None
    return [partition(table.meta, values, zone) for values in many]


def _is_zoneless(value: Any) -> bool:
    """Whether it is a time, or will be read as one, whose zone nobody has said."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            return False
    return isinstance(value, datetime) and value.tzinfo is None


def plan_truncate(table: TableView, where: Partitions) -> Write:
    scope = scope_without_rows(table, where, "a truncate")
    return Write(table, common_pb2.OPERATION_TRUNCATE, scope=scope)


def plan_restore(table: TableView, version: int, where: Partitions) -> Write:
    scope = scope_without_rows(table, where, "a restore")
    return Write(table, common_pb2.OPERATION_RESTORE, scope=scope, restore_version=version)
