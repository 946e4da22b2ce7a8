"""UPDATE without Spark, and what it shares with MERGE: the table's rows in Arrow, their new images, and their stage.

An append table hides the old rows by their ids and gets images that keep these ids. A primary-key table gets upserts,
and tombstones for rows that were deleted or left their partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from metaservice.client import is_partial, key_scope, key_spans_partitions
from metaservice.shared.column_types import read_type
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.arrow.expressions.conditions import columns_in, parsed
from worker.arrow.expressions.evaluation import Expression, cast
from worker.arrow.expressions.parser import Columns, parse_value
from worker.arrow.scan.plans import entries_of
from worker.arrow.scan.version_rows import FileToRead, VersionRows
from worker.arrow.write import key_lookups, partial_images
from worker.arrow.write.input_rows import Target, check_not_null, column_as
from worker.arrow.write.merge_clauses import field_missing, key_set, nothing_set
from worker.arrow.write.python_rows import of_dicts
from worker.arrow.write.staged_rows import check_keys, frame_of, tombstones, with_op, write_keyed, write_rows
from worker.base.condition_forms import equality
from worker.base.errors import InputError, NotPlainError
from worker.base.schema import FILE, ROW_ID, UPSERT, exact_names
from worker.base.values import wire_value
from worker.commit.stages import Stage, Staged
from worker.commit.writes import Write
from worker.connection.table_view import TableView, write_rules
from worker.files.arrow_types import arrow_schema, column_field, in_shape
from worker.files.delete_sets import delete_sets

PARTITIONS_MAX: Final = common_pb2.LIMIT_PARTITIONS_NAMED  # to which rows move; if more, all are read
TRUE: Final = common_pb2.Predicate(literal=True)
EVERYTHING: Final = common_pb2.Read(predicate=TRUE)

Values = Mapping[str, Callable[[pa.Table], pa.ChunkedArray]]  # by column, in its type


def plan_update(table: TableView, settings: Mapping[str, Any], where: str | None) -> Write:
    """Plan an update. Raises NotPlainError if it needs Spark."""
    meta = table.meta
    condition = None if where is None else _parsed(where, meta)
    values = checked_values(meta, settings, columns_of(meta))
    sets_columns = is_partial(meta) and values.keys().isdisjoint(
        meta.partition_columns
    )  # a row that moves has a whole image
    used = partial_images.columns_used(meta, columns_read(meta, settings, condition)) if sets_columns else []
    read = common_pb2.Read(predicate=condition or TRUE, changes_all=True, columns=used)

    def stage(stage: Stage) -> Staged:
        then = table.at(stage.read_version)
        target = target_rows(then, stage.read_version, condition)
        images = images_of(meta, target.rows, values, target.rows)
        if sets_columns:
            delta = partial_images.updating(with_op(images, UPSERT), meta, values.keys())
            return write_keyed(stage, delta, is_base=False)
        return replaced(then, stage, target, Changes(target.rows, np.arange(len(images)), images))

    spans = key_spans_partitions(meta)
    return Write(table, common_pb2.OPERATION_UPDATE, stage, reads=[read], looks_keys_up=spans)


def _parsed(where: str, meta: catalog_pb2.Table) -> common_pb2.Predicate:
    try:
        return parsed(where, meta)
    except InputError as error:
        raise NotPlainError(error.reason, str(error).partition(": ")[2]) from error


# -- values ------------------------------------------------------------------------------------------------------------


def columns_of(meta: catalog_pb2.Table) -> Columns:
    """Return the table's columns by the names that expressions use."""
    return {(column.name.lower(),): (column.name, column_field(column).type) for column in meta.columns}


def checked_values(meta: catalog_pb2.Table, settings: Mapping[str, Any], columns: Columns) -> Values:
    """Return the new values by column: a text is an expression, anything else is the value itself."""
    if not settings:
        raise nothing_set()
    values: dict[str, Callable[[pa.Table], pa.ChunkedArray]] = {}
    for given, value in settings.items():
        column = named_column(meta, given)
        if column.name in values:
            raise InputError("COLUMN_TWICE", f"{given} is set twice")
        if column.name in meta.primary_key:
            raise key_set(column.name)
        values[column.name] = value_of(meta, column, value, columns)
    return values


def columns_read(
    meta: catalog_pb2.Table, settings: Mapping[str, Any], condition: common_pb2.Predicate | None
) -> frozenset[str]:
    """Return the table's columns in a condition and in the expressions of new values."""
    columns = columns_of(meta)
    names = frozenset() if condition is None else frozenset(columns_in(condition))
    return names.union(*(parse_value(value, columns).columns for value in settings.values() if isinstance(value, str)))


def named_column(meta: catalog_pb2.Table, given: str) -> catalog_pb2.Column:
    columns = {column.name.lower(): column for column in meta.columns}
    name = given.strip()
    column = columns.get(name.lower()) or columns.get(name.strip("`").lower())
    if column is None and ("." in name or "`" in name):
        raise NotPlainError("COLUMN_UNKNOWN", f"{meta.name} has no column {given}; fields of structs are set by Spark")
    if column is None:
        raise InputError("COLUMN_UNKNOWN", f"{meta.name} has no column {given}")
    return column


def value_of(
    meta: catalog_pb2.Table, column: catalog_pb2.Column, value: Any, columns: Columns
) -> Callable[[pa.Table], pa.ChunkedArray]:
    """Return a function for the value of an expression, or for a Python value, in the column's type."""
    if isinstance(value, str):
        return stored(meta, column, parse_value(value, columns), is_whole=True)
    if type(value).__module__.startswith("pyspark."):
        raise NotPlainError("VALUE_INVALID", f"the value of {column.name} is a Column of Spark")
    [constant] = of_dicts([{column.name: value}], meta).columns
    kind = column_field(column).type
    if pa.types.is_struct(kind) and isinstance(value, Mapping):
        lacking = {field.name.lower() for field in kind} - {str(name).lower() for name in value}
        if lacking:
            raise field_missing(column.name, f"{column.name}.{min(lacking)}")
    check_not_null(constant, read_type(column.type), column.nullable, column.name, meta.name)
    return lambda rows: constant.take(pa.array(np.zeros(len(rows), np.int64)))


def stored(
    meta: catalog_pb2.Table, column: catalog_pb2.Column, value: Expression, *, is_whole: bool
) -> Callable[[pa.Table], pa.ChunkedArray]:
    """Cast the expression to the column's type; no value may change. With `is_whole`, structs need every field."""
    kind = column_field(column).type
    target = Target(kind, column.name, meta.name, is_exact=column.name in exact_names(meta))
    if pa.types.is_floating(kind) and _is_literal_number(value):
        value = cast(value, kind)  # the nearest number
    column_as(pa.chunked_array([], value.kind), target)  # the types fit
    if is_whole:
        for path in _lacking(value.kind, kind, column.name):
            raise field_missing(column.name, path)

    def compute(rows: pa.Table) -> pa.ChunkedArray:
        values = column_as(value.over(rows), target)
        check_not_null(values, read_type(column.type), column.nullable, column.name, meta.name)
        return values

    return compute


def _is_literal_number(value: Expression) -> bool:
    return value.literal is not None and (pa.types.is_integer(value.kind) or pa.types.is_decimal(value.kind))


def _lacking(given: pa.DataType, kind: pa.DataType, path: str) -> Iterator[str]:
    """Yield the fields of structs that a value doesn't have."""
    if pa.types.is_struct(given) and pa.types.is_struct(kind):
        fields = {field.name.lower(): field for field in given}
        for field in kind:
            if field.name.lower() not in fields:
                yield f"{path}.{field.name}"
            else:
                yield from _lacking(fields[field.name.lower()].type, field.type, f"{path}.{field.name}")
    elif pa.types.is_list(given) and pa.types.is_list(kind):
        yield from _lacking(given.value_type, kind.value_type, f"{path}.element")
    elif pa.types.is_map(given) and pa.types.is_map(kind):
        yield from _lacking(given.item_type, kind.item_type, f"{path}.value")


def images_of(meta: catalog_pb2.Table, rows: pa.Table, values: Values, old: pa.Table) -> pa.Table:
    """Return the new images of old rows, in the shape of the table's files."""
    columns = {
        column.name: values[column.name](rows) if column.name in values else old.column(column.name)
        for column in meta.columns
    }
    names = {column.column_id: column.name for column in meta.columns}
    return in_shape(pa.table(columns), arrow_schema(meta), names)


# -- rows of the table -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TargetRows:
    """Rows of the table with all columns; in an append table with their ids, and the numbers of their files."""

    rows: pa.Table
    files: Sequence[common_pb2.DataFile] = ()


def target_rows(
    then: TableView,
    version: int,
    condition: common_pb2.Predicate | None,
    near: common_pb2.Predicate | None = None,
    among: Callable[[Iterator[pa.Table]], Iterator[pa.Table]] = iter,
) -> TargetRows:
    """Read visible rows for which the condition is true and that `among` keeps; `near` prunes files and row groups.

    `near`, by default the condition, must be true for all these rows.
    """
    meta = then.meta
    names = [column.name for column in meta.columns]
    is_literal = condition is not None and condition.WhichOneof("kind") == "literal"
    where = None if is_literal else condition
    near = near or where
    reader = VersionRows(then, version)
    is_none = condition is not None and is_literal and not condition.literal
    if meta.primary_key:
        parts = iter(()) if is_none else reader.tables(names, where, float("inf"), near)
        return TargetRows(pa.concat_tables([reader.empty(names), *among(parts)]))
    entries = [] if is_none else entries_of(then, version, near)
    files = [entry.file for entry in entries if entry.HasField("file")]
    numbers = {then.path(file.path): at for at, file in enumerate(files)}

    def chosen(file: FileToRead) -> Iterator[pa.Table]:
        for rows in reader.visible(file, [*names, ROW_ID], where, float("inf"), near):
            number = pa.array(np.full(len(rows), numbers[file.file.path], np.int64))
            yield rows.select([*names, ROW_ID]).append_column(FILE, number)

    schema = arrow_schema(meta, with_row_id=True).append(pa.field(FILE, pa.int64()))
    return TargetRows(pa.concat_tables([schema.empty_table(), *among(reader.visit(entries, chosen, near))]), files)


# -- what is staged ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Changes:
    """The old rows that disappear, the images of some of them with their places among these, and the new rows.

    `sets` are the columns that the images set; None if the images are whole.
    """

    before: pa.Table
    places: np.ndarray[Any, np.dtype[np.int64]]
    images: pa.Table
    new: pa.Table | None = None
    sets: frozenset[str] | None = None


def replaced(
    then: TableView, stage: Stage, target: TargetRows, changes: Changes, if_twice: str = "give it once"
) -> Staged:
    """Stage the changes; `if_twice` is the solution if two rows got the same key."""
    if stage.meta.primary_key:
        return _replaced_by_key(then, stage, changes, if_twice)
    staged = Staged(delete_sets=delete_sets(stage.table_folder, stage.txn_id, list(_hidden(target, changes.before))))
    new = () if changes.new is None else (changes.new,)
    if len(changes.images):
        ids = changes.before.column(ROW_ID).combine_chunks().take(pa.array(changes.places))
        moved = _moved(stage.meta, changes)
        kept = pa.array(ids.to_numpy(zero_copy_only=False), pa.int64(), mask=moved)  # another partition: a new id
        with_ids = [changes.images.append_column(ROW_ID, kept)]
        with_ids += [rows.append_column(ROW_ID, pa.nulls(len(rows), pa.int64())) for rows in new]
        staged.files += write_rows(stage, pa.concat_tables(with_ids), stage.next_name(), may_inline=False)
    elif new and len(new[0]):
        staged.files += write_rows(stage, new[0], stage.next_name(), may_inline=True)
    return staged


def _hidden(target: TargetRows, rows: pa.Table) -> Iterator[tuple[common_pb2.DataFile, list[int]]]:
    numbers, ids = rows.column(FILE).to_numpy(), rows.column(ROW_ID).to_numpy()
    order = np.argsort(numbers, kind="stable")
    file_numbers, begins = np.unique(numbers[order], return_index=True)
    for number, file_ids in zip(file_numbers.tolist(), np.split(ids[order], begins[1:]), strict=False):
        yield target.files[number], file_ids.tolist()


def _moved(meta: catalog_pb2.Table, changes: Changes) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return for each image whether it left the partition of its old row."""
    names = list(meta.partition_columns)
    moved = np.zeros(len(changes.images), bool)
    if names:
        old = frame_of(changes.before.select(names).take(pa.array(changes.places)))
        new = frame_of(changes.images.select(names))
        for name in names:
            moved |= ~old[name].eq_missing(new[name]).to_numpy()
    return moved


def _replaced_by_key(then: TableView, stage: Stage, changes: Changes, if_twice: str) -> Staged:
    meta = stage.meta
    spans = key_spans_partitions(meta)
    is_unique = key_scope(meta) == "table"  # then no row lands on the key of another one
    looked_at = check_landing(then, stage, changes) if not is_unique and _moved(meta, changes).any() else []
    after = changes.images if changes.new is None else pa.concat_tables([changes.images, changes.new])
    check_keys(after, meta, if_twice)
    names = places_of(meta)
    before = changes.before
    if spans and changes.new is not None and len(changes.new):
        before = key_lookups.with_rows_of(then, stage.read_version, before, changes.new)
    places = frame_of(before.select(names)).with_row_index("_laketx_at")
    left = places.join(frame_of(after.select(names)), on=names, how="anti", nulls_equal=True)["_laketx_at"]
    gone = before.take(pa.array(left.to_numpy()))
    delta = [with_op(after, UPSERT), tombstones(meta, gone)]
    if changes.sets is not None:
        images = partial_images.updating(with_op(changes.images, UPSERT), meta, changes.sets)
        delta = [images, with_op(after.slice(len(images)), UPSERT), tombstones(meta, gone)]  # the others are whole
    staged = write_keyed(stage, pa.concat_tables(delta, promote_options="default"), is_base=False)
    for file in staged.files:
        file.no_new_rows = 0 < len(file.set_columns) < len(meta.columns)  # a whole image or tombstone sets all
    staged.looked_at += looked_at
    return staged


def places_of(meta: catalog_pb2.Table) -> list[str]:
    """Return the columns that locate a row of a primary-key table: a key appears once in a partition."""
    return list(dict.fromkeys([*meta.partition_columns, *meta.primary_key]))


# -- rows that leave their partition -----------------------------------------------------------------------------------


def check_landing(then: TableView, stage: Stage, changes: Changes) -> list[common_pb2.Read]:
    """Check that no row moves onto the key of another row; return the reads of this check.

    A key that a row leaves is free: two rows can swap their partitions. The check looks at the read version. A later
    writer of that key conflicts with the move, because both write to the same partition and bucket.
    """
    meta = stage.meta
    names = places_of(meta)
    new_keys = frame_of(changes.images.select(names))
    twice = new_keys.filter(new_keys.is_duplicated())
    if len(twice):
        count = len(twice.join(twice.head(1), on=names, how="semi", nulls_equal=True))
        raise _key_exists(meta, twice, f"{count} rows would have that key")
    moved = new_keys.join(frame_of(changes.before.select(names)), on=names, how="anti", nulls_equal=True)
    if not len(moved):
        return []
    landing = moved.select(list(meta.partition_columns)).unique(maintain_order=True).to_arrow()
    near = _partitions(meta, landing) if len(landing) <= PARTITIONS_MAX else []
    reader = VersionRows(then, stage.read_version)
    condition = None if not near or _has_nan(landing) else any_partition(near)
    existing = frame_of(pa.concat_tables([reader.empty(names), *reader.tables(names, condition, float("inf"))]))
    taken = moved.join(existing, on=names, how="semi", nulls_equal=True)
    if len(taken):
        raise _key_exists(meta, taken, "another row has that key")
    if not write_rules(meta).counts_key_lookups:
        return []
    return [common_pb2.Read(partitions=near) if near else EVERYTHING]


def _partitions(meta: catalog_pb2.Table, rows: pa.Table) -> list[common_pb2.Partition]:
    types = {column.name: column.type for column in meta.columns}
    return [
        common_pb2.Partition(
            values=[
                common_pb2.PartitionValue(column=name, value=wire_value(value, types[name]))
                for name, value in row.items()
            ]
        )
        for row in rows.to_pylist()
    ]


def _has_nan(rows: pa.Table) -> bool:
    floats = [column for column in rows.columns if pa.types.is_floating(column.type)]
    return any(np.isnan(column.to_numpy()).any() for column in floats)


def any_partition(partitions: Sequence[common_pb2.Partition]) -> common_pb2.Predicate:
    """Return a condition that is true in these partitions."""
    places = [
        common_pb2.Predicate(
            all_of=common_pb2.PredicateList(
                operands=[equality(value.column, value.value) for value in partition.values]
            )
        )
        for partition in partitions
    ]
    return common_pb2.Predicate(any_of=common_pb2.PredicateList(operands=places))


def _key_exists(meta: catalog_pb2.Table, rows: pl.DataFrame, why: str) -> InputError:
    row = rows.to_dicts()[0]
    shown = ", ".join(f"{name}={row[name]}" for name in places_of(meta))
    return InputError(
        "KEY_EXISTS", f"no row of {meta.name} can move to {shown}: {why}; delete that one first, or choose another key"
    )
