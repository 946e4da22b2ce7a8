"""UPDATE and DELETE: the rows that they hide and write. MERGE, in `merges`, does the same with its rows.

An append table hides rows by their ids (one delete set per partition) and writes new images that keep the ids of the
rows they replace. A primary-key table writes upserts and tombstones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as t

from metaservice.shared.column_types import quoted as quoted_if_odd
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.arrow.write.merge_clauses import Settings
from worker.arrow.write.row_level import changes_all
from worker.base.errors import InputError
from worker.base.schema import FILE, OP, ROW_ID, TOMBSTONE, exact_names, quoted
from worker.commit import casts
from worker.commit.rows_read import declares_all
from worker.commit.stages import Stage, Staged
from worker.commit.transaction import Write
from worker.connection.table_view import TableView
from worker.dataframes import scan
from worker.dataframes.blind_writes import fitted, upserts
from worker.dataframes.frame_writes import unknown_fields
from worker.dataframes.partition_moves import check_landing, same
from worker.dataframes.plan_reads import plan_reads, plan_reads_elsewhere
from worker.dataframes.small_writes import few_of
from worker.dataframes.staging import write_append, write_keyed
from worker.files.bucket_hash import xxhash64
from worker.files.delete_sets import delete_sets
from worker.spark.column_types import table_schema
from worker.spark.conditions import to_wire
from worker.spark.field_paths import by_column, column_of

Condition = str | Column
Files = Mapping[str, common_pb2.DataFile]  # by path


# -- DELETE and UPDATE -------------------------------------------------------------------------------------------------


def plan_delete(table: TableView, where: Condition) -> Write:
    read = condition_read(table, where)

    def stage(stage: Stage) -> Staged:
        rows, files = target_of(table, stage, where)
        staged = hide(stage, rows, files)
        staged.looked_at += read_beside(table, [where], rows)
        return staged

    elsewhere = beside_elsewhere(table, [where], where, {})
    return Write(table, common_pb2.OPERATION_DELETE, stage, reads=[read], elsewhere=elsewhere)


def plan_update(table: TableView, settings: Settings, where: Condition | None) -> Write:
    meta = table.meta
    read = condition_read(table, where)
    values = checked_settings(meta, settings)
    read.changes_all = read.changes_all and changes_all(*expressions_of(settings))
    fitting(meta, table.empty(), values)

    def stage(stage: Stage) -> Staged:
        rows, files = target_of(table, stage, where)
        beside = read_beside(table, [where, *expressions_of(settings)], rows, rows.withColumns(dict(values)))
        staged = staged_update(stage, rows, files)
        staged.looked_at += beside
        return staged

    def staged_update(stage: Stage, rows: DataFrame, files: Files) -> Staged:
        if meta.primary_key and not moves(meta, values):  # no row is hidden but by its image: none is looked at twice
            return write_keyed(
                stage, upserts(fitting(meta, rows, values)), may_repeat=False, few=few_of(files.values())
            )
        before = rows.localCheckpoint()
        after = fitting(meta, before, values)
        if not meta.primary_key:
            return replace_rows(stage, before, after, files)
        after = after.localCheckpoint()  # looked at several times: a value like rand() is one
        looked_at = check_landing(table, stage, before, after)
        staged = replace_rows(stage, before, after, files)
        staged.looked_at += looked_at
        return staged

    elsewhere = beside_elsewhere(table, [where, *expressions_of(settings)], where, values)
    return Write(table, common_pb2.OPERATION_UPDATE, stage, reads=[read], elsewhere=elsewhere)


def read_beside(
    table: TableView, expressions: Sequence[str | Column | None], *rows: DataFrame
) -> list[common_pb2.Read]:
    """What subqueries in these expressions, which made the rows, read of the table."""
    return [] if changes_all(*expressions) else list(plan_reads(table, *rows).reads)


def beside_elsewhere(
    table: TableView,
    expressions: Sequence[str | Column | None],
    where: Condition | None,
    values: Mapping[str, Column],
) -> list[Write]:
    """What subqueries in the condition and the values read of other tables, where that is to be declared."""
    if changes_all(*expressions) or not declares_all(table, by_spark=True):
        return []
    rows = scan.read(table)
    found = rows if where is None else rows.where(where)
    return plan_reads_elsewhere(table, found.withColumns(dict(values)) if values else found)


def condition_read(table: TableView, where: Condition | None) -> common_pb2.Read:
    """The read to declare to the service: all rows if the condition is a Column.

    A condition that the columns don't fit is refused.
    """
    if where is None:
        return common_pb2.Read(predicate=common_pb2.Predicate(literal=True), changes_all=True)
    try:
        _ = table.empty().where(where).schema
    except AnalysisException as error:
        raise InputError("CONDITION_INVALID", f"{where!r}: {error.getMessage()}") from error
    if isinstance(where, Column):
        predicate = common_pb2.Predicate(literal=True)
    else:
        predicate = to_wire(where, table.meta, table.spark)
    return common_pb2.Read(predicate=predicate, changes_all=changes_all(where))


def checked_settings(
    meta: catalog_pb2.Table, settings: Settings, row: Callable[[str], Column] | None = None
) -> dict[str, Column]:
    """The settings by the table's column names, with values as Columns.

    `row` returns a column of the old row, for struct fields.
    """
    if not settings:
        raise InputError("SETTINGS_EMPTY", "no column is set")
    values = {name: one_value(as_column(value)) for name, value in settings.items()}
    found = by_column(meta, values, row or column_of())
    for name in found:
        if name in meta.primary_key:
            raise InputError("KEY_SET", f"{name} is a key column: delete the row and insert another")
    return found


def one_value(value: Column) -> Column:
    """The settings; a generator is refused in a value: explode would turn one row into two."""
    return sf.coalesce(value)


def as_column(value: Any) -> Column:
    """A text is SQL; anything that is not a Column is the value itself."""
    if isinstance(value, Column):
        return value
    if isinstance(value, str):
        return sf.expr(value)
    if isinstance(value, datetime) and value.tzinfo is None:  # Spark would take it as one of this machine's zone
        return sf.expr(f"timestamp_ntz'{value.isoformat(sep=' ', timespec='microseconds')}'")
    try:
        return sf.lit(value.isoformat()).cast("date") if type(value) is date else sf.lit(value)  # years below 1000
    except Exception as error:  # of many kinds, Java's among them
        raise InputError("VALUE_INVALID", f"{value!r} is neither SQL, a Column nor a value that Spark knows") from error


def expressions_of(settings: Settings) -> list[str | Column]:
    """The expressions that may read other rows: SQL and Columns, not plain values."""
    return [value for value in settings.values() if isinstance(value, (str, Column))]


def moves(meta: catalog_pb2.Table, names: Collection[str]) -> bool:
    """Whether rows may leave their partition if these columns are set."""
    given = {name.lower() for name in names}
    return any(name.lower() in given for name in meta.partition_columns)


def fitting(meta: catalog_pb2.Table, rows: DataFrame, values: Mapping[str, Column]) -> DataFrame:
    """The new images of these rows, in the table's shape; the `_row_id` of a row with an id is the old one."""
    with refused_values(meta):
        return shaped(meta, rows.withColumns(dict(values)).drop(FILE), values)


def shaped(meta: catalog_pb2.Table, rows: DataFrame, whole: Collection[str] = ()) -> DataFrame:
    """The shape, with `_row_id` if the rows have it. The structs of the `whole` columns must have every field."""
    schema = table_schema(meta, nullable=True)
    ids = [row_id_field()] if ROW_ID in rows.columns else []
    casts.check_types(rows.schema)
    for name in whole:
        for path in unknown_fields(schema[name].dataType, rows.schema[name].dataType, quoted_if_odd(name)):
            raise InputError(
                "COLUMN_MISSING", f"the value of {name} has no field {path}: name every field, or set single fields"
            )
    return fitted(rows, t.StructType([*schema.fields, *ids]), exact_names(meta))


@contextmanager
def refused_values(meta: catalog_pb2.Table) -> Iterator[None]:
    """The error for values that Spark refuses, if that was the cause."""
    try:
        yield
    except AnalysisException as error:
        raise InputError("VALUE_INVALID", f"a value doesn't fit {meta.name}: {error.getMessage()}") from error


def row_id_field() -> t.StructField:
    return t.StructField(ROW_ID, t.LongType())


# -- what is staged ----------------------------------------------------------------------------------------------------


def target_of(table: TableView, stage: Stage, where: Condition | None = None) -> tuple[DataFrame, Files]:
    """The rows that a change examines, and the files that may contain them; with their origin in an append table."""
    then = table.at(stage.read_version)
    entries = scan.plan(then, stage.read_version, where if isinstance(where, str) else None)
    rows = scan.rows_to_change(then, stage.read_version)
    files = {entry.file.path: entry.file for entry in entries if entry.HasField("file")}
    return rows if where is None else rows.filter(where), files


def hide(stage: Stage, rows: DataFrame, files: Files) -> Staged:
    if stage.meta.primary_key:
        return write_keyed(stage, tombstones(stage.meta, rows), may_repeat=False, few=few_of(files.values()))
    return Staged(delete_sets=found_sets(stage, ids_of(rows), files))


def replace_rows(stage: Stage, before: DataFrame, after: DataFrame, files: Files) -> Staged:
    """Replaces rows: `after` has a row for each row of `before`, by row id or key."""
    meta = stage.meta
    if not meta.primary_key:
        staged = Staged(delete_sets=found_sets(stage, ids_of(before), files))
        staged.add(write_append(stage, with_new_ids(meta, before, after)))
        return staged
    return write_keyed(stage, delta(meta, before, after), few=few_of(files.values()))


def with_new_ids(meta: catalog_pb2.Table, before: DataFrame, after: DataFrame) -> DataFrame:
    """Gives a new id to a row that left its partition."""
    if not meta.partition_columns:
        return after
    old = before.selectExpr(ROW_ID, *map(quoted, meta.partition_columns)).alias("old")
    new = after.alias("new")
    kept = f"case when {same('old', 'new', meta.partition_columns)} then new.{ROW_ID} end as {ROW_ID}"
    columns = [f"new.{quoted(column.name)}" for column in meta.columns]
    return new.join(old, sf.expr(f"new.{ROW_ID} = old.{ROW_ID}"), "left").selectExpr(*columns, kept)


def tombstones(meta: catalog_pb2.Table, rows: DataFrame) -> DataFrame:
    """The keys of these rows; other columns are NULL, unless they are NOT NULL."""
    schema = table_schema(meta, nullable=True)
    kept = {*meta.primary_key, *meta.partition_columns, *[c.name for c in meta.columns if not c.nullable]}
    keys = rows.selectExpr(*[quoted(field.name) for field in schema.fields if field.name in kept])
    return fitted(keys, schema).selectExpr("*", f"{TOMBSTONE}Y as {OP}")


def delta(meta: catalog_pb2.Table, before: DataFrame, after: DataFrame) -> DataFrame:
    """Upserts, and tombstones for rows that were deleted or left their partition."""
    where = [*meta.partition_columns, *meta.primary_key]
    old, new = tombstones(meta, before).alias("old"), after.selectExpr(*map(quoted, where)).alias("new")
    gone = old.join(new, sf.expr(same("old", "new", where)), "left_anti")
    return upserts(after).unionByName(gone)


def ids_of(rows: DataFrame) -> pa.Table:
    """The ids of hidden rows. Only numbers travel to the driver: a row's id and the hash of its file."""
    return rows.selectExpr(f"xxhash64({FILE}) as {FILE}", ROW_ID).toArrow()


def found_sets(stage: Stage, found: pa.Table, files: Files) -> list[common_pb2.DeleteSet]:
    """The delete sets, one per partition."""
    order = np.argsort(found.column(FILE).to_numpy(), kind="stable")
    hashes, begins = np.unique(found.column(FILE).to_numpy()[order], return_index=True)
    by_file = np.split(found.column(ROW_ID).to_numpy()[order], begins[1:])
    by_hash = {xxhash64(path): file for path, file in files.items()} if len(hashes) else {}
    hidden = [(by_hash[one], ids.tolist()) for one, ids in zip(hashes.tolist(), by_file, strict=False)]
    return delete_sets(stage.table_folder, stage.txn_id, hidden)
