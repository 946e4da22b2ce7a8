"""Writes without Spark: rows in Arrow are appended, upserted, deleted, or replace others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, Final, TypeAlias

import pyarrow as pa

from metaservice.client import is_partial, key_spans_partitions
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.arrow.expressions.conditions import columns_in, parsed
from worker.arrow.scan.plans import entries_of
from worker.arrow.scan.version_rows import FileToRead, VersionRows
from worker.arrow.write import key_lookups, partial_images
from worker.arrow.write.inlined_files import are_few, takes_at_most
from worker.arrow.write.input_rows import fitted
from worker.arrow.write.staged_rows import (
    check_keys,
    tombstone_columns,
    tombstones,
    with_op,
    write_keyed,
    write_rows,
)
from worker.base.errors import InputError
from worker.base.schema import ROW_ID, UPSERT
from worker.base.values import partition_key, python_value
from worker.commit.scopes import Partitions, scope_of
from worker.commit.stages import Stage, Staged
from worker.commit.writes import Write
from worker.connection.table_view import TableView, write_rules
from worker.files.arrow_types import arrow_schema
from worker.files.delete_sets import delete_sets

FILE_BYTES: Final = 256 << 20  # in memory; a file is a part of it

Given: TypeAlias = Any  # a Table of Arrow, or batches


def plan_append(table: TableView, rows: Given) -> Write:
    meta = table.meta
    if meta.primary_key:
        raise InputError("KEY_PRESENT", f"{meta.name} has a primary key: use upsert")
    parts = _Parts(rows, meta)
    return Write(
        table,
        common_pb2.OPERATION_INSERT,
        lambda stage: _append(stage, parts),
        is_one_call=isinstance(rows, pa.Table) and are_few(meta, rows),
        has_all_columns=isinstance(rows, pa.Table) and rows.num_columns == len(meta.columns),
    )


def plan_upsert(table: TableView, rows: pa.Table, given: Sequence[Collection[str]] = ()) -> Write:
    """`given` are the columns of each row, or of all; default those that the rows have."""
    meta = table.meta
    if not meta.primary_key:
        raise InputError("KEY_MISSING", f"{meta.name} has no primary key: use append")
    whole = with_op(fitted(rows, meta), UPSERT)
    check_keys(whole, meta)
    delta = partial_images.setting(whole, meta, given or [rows.column_names]) if is_partial(meta) else whole
    spans = key_spans_partitions(meta)

    def stage(stage: Stage) -> Staged:
        whole = key_lookups.with_rows_left_behind(table, stage, delta) if spans else delta
        return write_keyed(stage, whole, is_base=False)

    return Write(
        table,
        common_pb2.OPERATION_INSERT,
        stage,
        looks_keys_up=spans,
        is_one_call=not (spans or write_rules(meta).wants_keys)
        and are_few(meta, delta),  # one call can't say which keys it writes
        has_all_columns=rows.num_columns == len(meta.columns),
    )


def plan_overwrite(table: TableView, rows: Given, where: Partitions) -> Write:
    meta = table.meta
    scope = scope_of(table, where, by_spark=False)
    named = {partition_key(partition) for partition in scope.named.partitions}
    spans = key_spans_partitions(meta)
    parts = _Parts(rows, meta, scope.named.partitions[0] if isinstance(where, Mapping) else None)

    def stage(stage: Stage) -> Staged:
        if meta.primary_key:
            whole = pa.concat_tables([arrow_schema(meta).empty_table(), *parts])
            check_keys(whole, meta)
            if spans and not scope.all:
                key_lookups.refuse_keys_elsewhere(table, stage, whole, named)
            staged = write_keyed(stage, whole, is_base=True)
        else:
            staged = _append(stage, parts)
        for file in staged.files:
            if named and partition_key(file.partition) not in named:
                raise InputError("ROW_OUTSIDE_PARTITION", "rows belong to partitions that are not named")
        return staged

    return Write(table, common_pb2.OPERATION_OVERWRITE, stage, scope=scope, looks_keys_up=spans)


def plan_delete(table: TableView, where: str) -> Write:
    return _delete(table, parsed(where, table.meta), None)


def plan_delete_keys(table: TableView, keys: pa.Table) -> Write:
    """Plan to delete the rows with these keys, which are rows of the key columns."""
    meta = table.meta
    if not meta.primary_key:
        raise InputError("KEY_MISSING", f"{meta.name} has no primary key: delete by a condition")
    key_rows = key_lookups.fitted_keys(keys, meta)
    return _delete(table, key_lookups.named_keys(key_rows, meta), key_rows)


# -- deletes -----------------------------------------------------------------------------------------------------------


def _delete(table: TableView, condition: common_pb2.Predicate, keys: pa.Table | None) -> Write:
    used = partial_images.columns_used(table.meta, columns_in(condition))
    read = common_pb2.Read(predicate=condition, changes_all=True, columns=used)

    def stage(stage: Stage) -> Staged:
        then = table.at(stage.read_version)
        if then.meta.primary_key:
            return _tombstones(stage, then, condition, keys)
        return _delete_sets(stage, then, condition)

    spans = key_spans_partitions(table.meta)
    return Write(table, common_pb2.OPERATION_DELETE, stage, reads=[read], looks_keys_up=spans)


def _tombstones(stage: Stage, then: TableView, condition: common_pb2.Predicate, keys: pa.Table | None) -> Staged:
    reader = VersionRows(then, stage.read_version)
    kept = tombstone_columns(then.meta)
    names = [name for name in reader.schema.names if name in kept]
    if keys is None:
        rows = pa.concat_tables([reader.empty(names), *reader.tables(names, condition, float("inf"))])
    else:
        rows = key_lookups.rows_with(reader, then.meta, keys, names)
    return write_keyed(stage, tombstones(then.meta, rows), is_base=False)


def _delete_sets(stage: Stage, then: TableView, condition: common_pb2.Predicate) -> Staged:
    hidden: list[tuple[common_pb2.DataFile, list[int]]] = []
    reader = VersionRows(then, stage.read_version)
    entries = entries_of(then, stage.read_version, condition)
    files = {then.path(entry.file.path): entry.file for entry in entries if entry.HasField("file")}

    def chosen(file: FileToRead) -> Iterator[tuple[str, list[int]]]:
        for rows in reader.visible(file, [ROW_ID], condition, float("inf")):
            yield file.file.path, rows.column(ROW_ID).to_pylist()

    for path, ids in reader.visit(entries, chosen, condition):
        if ids:
            hidden.append((files[path], ids))
    return Staged(delete_sets=delete_sets(stage.table_folder, stage.txn_id, hidden))


# -- files -------------------------------------------------------------------------------------------------------------


class _Parts:
    """Rows in the table's shape, part by part; a table's are checked at once, and a stream's as they come."""

    def __init__(self, rows: Given, meta: catalog_pb2.Table, fixed: common_pb2.Partition | None = None) -> None:
        self._meta = meta
        self._fixed = fixed
        self._rows = self._fitted(rows) if isinstance(rows, pa.Table) else rows

    def _fitted(self, rows: pa.Table) -> pa.Table:
        completed = rows if self._fixed is None else _with_fixed_partition(rows, self._meta, self._fixed)
        return fitted(completed, self._meta)

    def __iter__(self) -> Iterator[pa.Table]:
        if isinstance(self._rows, pa.Table):
            if takes_at_most(self._rows, FILE_BYTES):
                yield from [self._rows] if len(self._rows) else []
                return
            count = max(1, len(self._rows) * FILE_BYTES // self._rows.nbytes)
            yield from (self._rows.slice(begin, count) for begin in range(0, len(self._rows), count))
            return
        waiting: list[pa.RecordBatch] = []
        size = 0
        for batch in self._rows:
            waiting.append(batch)
            size += batch.nbytes
            if size >= FILE_BYTES:
                yield self._fitted(pa.Table.from_batches(waiting))
                waiting, size = [], 0
        if waiting:
            yield self._fitted(pa.Table.from_batches(waiting))


def _append(stage: Stage, parts: _Parts) -> Staged:
    """Write a file for each partition of each part."""
    files: list[common_pb2.DataFile] = []
    name = stage.next_name()
    for at, part in enumerate(parts):
        files += write_rows(stage, part, f"{name}/{at}", may_inline=at == 0)  # a small part is the last one
    return Staged(files=files)


def _with_fixed_partition(rows: pa.Table, meta: catalog_pb2.Table, named: common_pb2.Partition) -> pa.Table:
    """Add the values of a single named partition to rows that lack its columns."""
    given = {name.lower() for name in rows.column_names}
    kinds = {field.name: field.type for field in arrow_schema(meta)}
    missing = [partition_value for partition_value in named.values if partition_value.column.lower() not in given]

    def added(table: pa.Table, partition_value: common_pb2.PartitionValue) -> pa.Table:
        value = pa.repeat(pa.scalar(python_value(partition_value.value), kinds[partition_value.column]), len(table))
        return table.append_column(partition_value.column, value)

    return reduce(added, missing, rows)
