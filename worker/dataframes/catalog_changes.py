"""UPDATE, DELETE and MERGE of a table, as statements of Spark's catalog. This module checks them first.

    delete("id = 7")                      DELETE FROM … WHERE id = 7
    update({"v": "v + 1"}, "id = 7")      UPDATE … SET v = v + 1 WHERE id = 7
    merge(df, on="id")…                   df.mergeInto(…)

A Column has no text that is SQL: conditions and values that are Columns go into a MERGE with one source row, which
finds the same rows. Not every such statement has a place for options, so the table's name brings them with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from metaservice.shared.column_types import quoted as quoted_if_odd
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.arrow.write.merge_clauses import (
    SOURCE,
    TARGET,
    Clause,
    Settings,
    are_upserts,
    field_missing,
    key_missing,
    key_set,
    no_common_column,
    nothing_set,
    on_columns,
    on_condition,
)
from worker.base.errors import InputError
from worker.base.schema import quoted
from worker.connection.table_view import TableView
from worker.dataframes.catalog_writes import DELETE, MERGE, UPDATE, VERSION, CatalogWrite, Run
from worker.dataframes.frame_writes import unknown_fields
from worker.dataframes.merge_reads import partitions_of, shared_partitions
from worker.dataframes.plan_reads import plan_reads, plan_reads_elsewhere
from worker.spark.column_types import check_type, table_schema
from worker.spark.conditions import to_wire
from worker.spark.field_paths import by_column, column_of, no_row, split_path
from worker.spark.session import is_classic

ONE_ROW: Final = "_laketx_one"

Condition = str | Column
Values = Mapping[str, Column]  # by columns of the table


@dataclass(frozen=True)
class Merge:
    """A MERGE with its clauses."""

    source: DataFrame
    on: str | Sequence[str]
    clauses: Sequence[Clause] = ()


# -- DELETE and UPDATE -------------------------------------------------------------------------------------------------


def plan_delete(table: TableView, where: Condition) -> CatalogWrite:
    check_condition(table, where)
    if isinstance(where, str):
        return _statement(table, DELETE, lambda name: f"DELETE FROM {name} WHERE {_in_brackets(where)}")  # noqa: S608
    return _of_one_row(table, DELETE, where, lambda matched: matched.delete())


def plan_update(table: TableView, settings: Settings, where: Condition | None) -> CatalogWrite:
    empty = table.empty()  # starts Spark, without which there are no Columns
    values = checked_settings(table.meta, settings)
    check_condition(table, where)
    check_values(table.meta, empty, values)
    if isinstance(where, Column) or any(isinstance(value, Column) for value in settings.values()):
        named = {quoted(name): value for name, value in values.items()}
        return _of_one_row(table, UPDATE, where, lambda matched: matched.update(named))
    parameters: dict[str, Column] = {}
    paths = [_path(table.meta, name) for name in settings]
    texts = [_text(value, parameters) for value in settings.values()]
    listed = ", ".join(f"{path} = {text}" for path, text in zip(paths, texts, strict=True))
    chosen = "" if where is None else f" WHERE {_in_brackets(str(where))}"
    return _statement(table, UPDATE, lambda name: f"UPDATE {name} SET {listed}{chosen}", parameters)  # noqa: S608


def _statement(
    table: TableView, operation: str, text: Callable[[str], str], parameters: Mapping[str, Column] | None = None
) -> CatalogWrite:
    spark: SparkSession = table.spark

    def run(target: str, options: Mapping[str, str]) -> None:
        spark.sql(text(_aliased(target, options)), dict(parameters or {}) or None)

    return CatalogWrite(table, operation, run)


def _of_one_row(table: TableView, operation: str, where: Condition | None, act: Callable[[Any], Any]) -> CatalogWrite:
    """Return a statement for Columns: a MERGE with one source row that matches by the condition alone."""
    source = table.spark.range(1).toDF(ONE_ROW).alias(SOURCE)
    on = sf.lit(True) if where is None else where if isinstance(where, Column) else sf.expr(where)

    def run(target: str, options: Mapping[str, str]) -> None:
        act(source.mergeInto(_named(target, options), on).whenMatched()).merge()

    return CatalogWrite(table, operation, run)


def _named(target: str, options: Mapping[str, str]) -> str:
    """The table, as the catalog finds it with the options of a write. Its rows are those of `target`."""
    return f"{target}.`{urlencode(options)}`.{TARGET}"


def _aliased(target: str, options: Mapping[str, str]) -> str:
    """Return the same for SQL: without an alias Spark's parser takes `WHERE (true)` as the alias."""
    return f"{_named(target, options)} AS {TARGET}"


def _in_brackets(text: str) -> str:
    """Return an expression in brackets: a comment at its end doesn't reach the rest of the statement."""
    return f"({text}\n)"


def _path(meta: catalog_pb2.Table, name: str) -> str:
    """Return a column, or a field of a struct, as SQL."""
    name = name.strip()
    if name.lower() in {column.name.lower() for column in meta.columns}:
        return quoted(name)
    return ".".join(map(quoted, split_path(name)))


def _text(value: Any, parameters: dict[str, Column]) -> str:
    """Return a value as SQL. Add a parameter for one that has no SQL text."""
    if isinstance(value, str):
        return _in_brackets(value)
    if isinstance(value, datetime) and value.tzinfo is None:
        return _zoneless(value)
    if type(value) is date:
        return f"date'{value.isoformat()}'"
    name = f"laketx_{len(parameters)}"
    parameters[name] = as_column(value)
    return f":{name}"


# -- what is wrong with them -------------------------------------------------------------------------------------------


def check_condition(table: TableView, where: Condition | None) -> None:
    """Refuse a condition that doesn't fit the columns."""
    if where is None:
        return
    try:
        _ = table.empty().where(where).schema
    except AnalysisException as error:
        raise InputError("CONDITION_INVALID", f"{where!r}: {error.getMessage()}") from error


def condition_read(table: TableView, where: str | None) -> common_pb2.Read:
    """Return the read of the rows with a condition, as it is declared to the service."""
    if where is None:
        return common_pb2.Read(predicate=common_pb2.Predicate(literal=True))
    check_condition(table, where)
    return common_pb2.Read(predicate=to_wire(where, table.meta, table.spark))


def checked_settings(
    meta: catalog_pb2.Table, settings: Settings, row: Callable[[str], Column] | None = None
) -> dict[str, Column]:
    """Return the settings by the table's column names, with values as Columns.

    `row` returns a column of the old row, for struct fields.
    """
    if not settings:
        raise nothing_set()
    with _refused_values(meta):
        values = {name: as_column(value) for name, value in settings.items()}
    by_name = by_column(meta, values, row or column_of())
    for name in by_name:
        if name in meta.primary_key:
            raise key_set(name)
    return by_name


def as_column(value: Any) -> Column:
    """Return a value as a Column. A text is SQL; other values stand for themselves."""
    if isinstance(value, Column):
        return value
    if isinstance(value, str):
        return sf.expr(value)
    if isinstance(value, datetime) and value.tzinfo is None:  # Spark would take it as one of this machine's zone
        return sf.expr(_zoneless(value))
    try:
        return sf.lit(value.isoformat()).cast("date") if type(value) is date else sf.lit(value)  # years below 1000
    except Exception as error:  # of many kinds, Java's among them
        raise InputError("VALUE_INVALID", f"{value!r} is neither SQL, a Column nor a value that Spark knows") from error


def _zoneless(value: datetime) -> str:
    return f"timestamp_ntz'{value.isoformat(sep=' ', timespec='microseconds')}'"


def check_values(meta: catalog_pb2.Table, rows: DataFrame, values: Values, *, may_lack: bool = False) -> None:
    """Refuse values that can't be computed from such rows, or whose type or fields don't fit the column.

    The catalog checks casts. `may_lack`: missing fields of structs become NULL.
    """
    schema = table_schema(meta, nullable=True)
    with _refused_values(meta):
        computed = rows.select(
            *[sf.coalesce(value).alias(name) for name, value in values.items()]
        ).schema  # no generator
    for field in computed.fields:
        check_type(field.dataType)
        path, column_type = quoted_if_odd(field.name), schema[field.name].dataType
        for below in unknown_fields(field.dataType, column_type, path):
            raise InputError("COLUMN_UNKNOWN", f"there is no field {below}; merge_schema=True adds it")
        for below in () if may_lack else unknown_fields(column_type, field.dataType, path):
            raise field_missing(field.name, below)


@contextmanager
def _refused_values(meta: catalog_pb2.Table) -> Iterator[None]:
    """Turn Spark's errors about values into ours."""
    try:
        yield
    except AnalysisException as error:
        raise InputError("VALUE_INVALID", f"a value doesn't fit {meta.name}: {error.getMessage()}") from error


# -- MERGE -------------------------------------------------------------------------------------------------------------


def plan_merge(table: TableView, merge: Merge) -> CatalogWrite:
    meta = table.meta
    source, target = merge.source.alias(SOURCE), table.empty().alias(TARGET)
    on = on_condition(meta, merge.on)
    both = _of_condition(lambda: target.join(source, sf.expr(on)))
    rows = {"matched": both, "not_matched": source, "by_source": target}
    values = []
    for clause in merge.clauses:
        if clause.condition is not None:
            _of_condition(partial(rows[clause.when].where, clause.condition))
        values.append(_values_of(meta, merge, clause))
        is_whole = clause.when == "not_matched" and clause.settings is None
        check_values(meta, rows[clause.when], values[-1], may_lack=is_whole)
    shared, read = _shared_partitions(meta, merge), plan_reads(table, merge.source)
    # Rows of the table that the source has are changed as they were when it read them.
    options = {} if read.version is None else {VERSION: str(read.version)}
    write = CatalogWrite(table, MERGE, _merging(meta, merge, on, shared, values), options)
    if is_classic(table.spark) and not shared:  # the catalog sees what the source reads
        return write
    return write.reading(read, plan_reads_elsewhere(table, merge.source))


def _shared_partitions(meta: catalog_pb2.Table, merge: Merge) -> list[tuple[str, str]]:
    """Partition columns by which the source says where rows may match; none where that matters to nobody."""
    names = {name.strip().lower() for name in on_columns(meta, merge.on)}
    is_by_key = bool(names) and names == {name.lower() for name in meta.primary_key}
    reads_all = any(clause.when == "by_source" for clause in merge.clauses)
    if reads_all or (is_by_key and are_upserts(merge.clauses)):  # an insert by key reads nothing
        return []
    return shared_partitions(meta, sorted(names), merge.source)


def _of_condition(rows: Callable[[], DataFrame]) -> DataFrame:
    try:
        matched = rows()
        _ = matched.schema
    except AnalysisException as error:
        raise InputError("CONDITION_INVALID", error.getMessage() or "the merge's condition") from error
    return matched


def _merging(
    meta: catalog_pb2.Table, merge: Merge, on: str, shared: Sequence[tuple[str, str]], values: Sequence[Values]
) -> Run:
    def run(target: str, options: Mapping[str, str]) -> None:
        source = merge.source.localCheckpoint() if shared else merge.source
        near = partitions_of(meta, shared, source, TARGET) if shared else None
        where = sf.expr(on) if near is None else sf.expr(on) & near
        writer: Any = source.alias(SOURCE).mergeInto(_named(target, options), where)
        for clause, its in zip(merge.clauses, values, strict=True):
            condition = None if clause.condition is None else sf.expr(clause.condition)
            begun = {
                "matched": writer.whenMatched,
                "not_matched": writer.whenNotMatched,
                "by_source": writer.whenNotMatchedBySource,
            }[clause.when](condition)
            named = {quoted(name): value for name, value in its.items()}
            if clause.action == "delete":
                writer = begun.delete()
            else:
                writer = begun.insert(named) if clause.action == "insert" else begun.update(named)
        writer.merge()

    return run


def _values_of(meta: catalog_pb2.Table, merge: Merge, clause: Clause) -> Values:
    """Return the values that a clause writes, by column of the table."""
    if clause.action == "delete":
        return {}
    if clause.settings is None:
        return _taken(meta, merge, clause)
    if clause.when != "not_matched":
        return checked_settings(meta, clause.settings, column_of(TARGET))
    keys = {name.lower(): name for name in meta.primary_key}
    given = {name.lower(): value for name, value in clause.settings.items()}
    others = {name: value for name, value in clause.settings.items() if name.lower() not in keys}
    settings = checked_settings(meta, others, no_row(meta)) if others else {}
    for key, name in keys.items():
        if key not in given:
            raise key_missing(name)
        with _refused_values(meta):
            settings[name] = as_column(given[key])
    return settings


def _taken(meta: catalog_pb2.Table, merge: Merge, clause: Clause) -> Values:
    """Return the source's values for the table's columns, for a clause without values."""
    source_names = {name.lower(): name for name in merge.source.columns}
    fixed = () if clause.when == "not_matched" else meta.primary_key
    names = [column.name for column in meta.columns if column.name.lower() in source_names and column.name not in fixed]
    if not names:
        raise no_common_column()
    return {name: sf.expr(f"{SOURCE}.{quoted(source_names[name.lower()])}") for name in names}
