"""`table.compact` and `table.detach`: compactions that a user starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from protos.laketx.v1 import catalog_pb2
from worker.base.errors import InputError
from worker.commit.scopes import partitions_named
from worker.commit.writes import Commit
from worker.connection.table_view import TableView
from worker.services.compaction.compaction import Options, run, staged
from worker.services.compaction.groups import OPERATIONS, planned_groups
from worker.services.compaction.orders import Order, check_order


def compact(
    table: TableView,
    operation: str,
    partition: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
    *,
    sort_by: Sequence[str],
    zorder_by: Sequence[str],
    message: str,
) -> Commit | None:
    meta = table.meta
    if operation not in OPERATIONS:
        raise InputError("OPERATION_INVALID", f"{operation!r} is not one of {', '.join(OPERATIONS)}")
    order = _order(operation, _as_written(meta, sort_by), _as_written(meta, zorder_by))
    if order is not None:
        check_order(meta, order)
    named = [partition] if isinstance(partition, Mapping) else list(partition or [])
    partitions = partitions_named(table, named, by_spark=table.lake.uses_spark)
    if partition is not None and not partitions:
        return None
    options = Options(order=order, message=message)
    return run(table, OPERATIONS[operation], partitions=partitions, options=options)


def _as_written(meta: catalog_pb2.Table, names: Sequence[str]) -> Sequence[str]:
    written = {column.name.lower(): column.name for column in meta.columns}
    return names if isinstance(names, str) else [written.get(name.lower(), name) for name in names]


def detach(table: TableView, message: str) -> Commit | None:
    """Rewrites the files that a clone has of the table that it was made of; None if it has none.

    A plan has no more groups than fit into its answers: what is left is planned next.
    """
    operation, options, last = OPERATIONS["major"], Options(message=message), None
    while True:
        version, groups = planned_groups(table, operation, (), options.to_wire(), detach=True)
        if not groups:
            return last
        with staged(table, operation, groups, read_version=version, options=options) as compaction:
            last = compaction.commit()


def _order(operation: str, sort_by: Sequence[str], zorder_by: Sequence[str]) -> Order | None:
    if isinstance(sort_by, str) or isinstance(zorder_by, str):
        raise InputError("COLUMNS_INVALID", "sort_by and zorder_by are lists of column names")
    if not sort_by and not zorder_by:
        if operation == "cluster":
            raise InputError("ORDER_MISSING", "clustering needs an order: give sort_by or zorder_by")
        return None
    if operation != "cluster" or (sort_by and zorder_by):
        raise InputError("ORDER_INVALID", 'give one of sort_by and zorder_by, with "cluster" only')
    return Order("sort", tuple(sort_by)) if sort_by else Order("zorder", tuple(zorder_by))
