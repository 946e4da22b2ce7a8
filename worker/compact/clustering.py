"""Rows in a better order: sorted by columns, or along a Z-order curve. Read, ordered and written by Spark.

A row's position on the curve is computed from its columns' ranks: the number of some thousand samples below the value.
So a column of any type and distribution has the same weight as the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, Literal

import numpy as np
import polars as pl
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as t
from pyspark.sql.pandas import functions as pandas_functions

from metaservice.shared.column_types import quoted as quoted_if_odd
from protos.laketx.v1 import catalog_pb2, common_pb2, maintenance_pb2
from worker.base.errors import InputError
from worker.base.schema import FILE, PART, ROW_ID, quoted
from worker.base.table_view import TableView
from worker.base.values import partition_key, python_value
from worker.compact.digests import Digest
from worker.compact.groups import Group, GroupOutcome, is_delta
from worker.read.frames import frame_of
from worker.write.row_changes import shaped
from worker.write.stages import Stage
from worker.write.staging import bucket_of, partition_text, write_ordered

SAMPLES: Final = 4_096
BITS_A_COLUMN: Final = 10
COLUMNS_MAX: Final = 6
PLACE: Final = "_laketx_place"
HASH_KIND: Final = "spark"
ORDERS: Final[Mapping[Literal["sort", "zorder"], maintenance_pb2.RowOrder.ValueType]] = {
    "sort": maintenance_pb2.ROW_ORDER_SORT,
    "zorder": maintenance_pb2.ROW_ORDER_ZORDER,
}


@dataclass(frozen=True)
class Order:
    """By the columns in sequence ("sort"), or by all of them equally ("zorder")."""

    kind: Literal["sort", "zorder"]
    columns: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind}({','.join(map(quoted_if_odd, self.columns))})"


def check_order(meta: catalog_pb2.Table, order: Order) -> None:
    types = {column.name: column.type for column in meta.columns}
    if not order.columns or len(set(order.columns)) != len(order.columns):
        raise InputError("ORDER_INVALID", "an order needs columns, each once")
    if order.kind == "zorder" and len(order.columns) > COLUMNS_MAX:
        raise InputError("ORDER_INVALID", f"a Z-order takes {COLUMNS_MAX} columns at most")
    for name in order.columns:
        if name not in types:
            raise InputError("COLUMN_UNKNOWN", f"{meta.name} has no column {name}")
        if types[name].startswith(("array", "map", "struct")):
            raise InputError("ORDER_INVALID", f"{name} has no order: it is a {types[name].partition('<')[0]}")


def check_inputs(groups: Sequence[Group]) -> None:
    if any(is_delta(entry) for group in groups for entry in group.inputs):
        raise InputError("CLUSTER_DELTAS", "only base files are clustered: run a major compaction first")


def cluster(
    table: TableView, stage: Stage, groups: Sequence[Group], order: Order, file_bytes_target: int, *, verify: bool
) -> list[GroupOutcome]:
    """The rows that the groups show, in files in this order."""
    meta = table.meta
    check_order(meta, order)
    check_inputs(groups)
    rows = shaped(meta, shown(table, [entry for group in groups for entry in [*group.inputs, *group.delete_sets]]))
    files_wanted = sum(-(-group.bytes // file_bytes_target) for group in groups)
    count = sum(entry.file.rows for group in groups for entry in group.inputs)
    written = write_ordered(stage, ordered(meta, rows, order, max(1, files_wanted), count), _kind(meta)).files
    outcomes = {_place(group.partition, group.bucket): GroupOutcome(kind=HASH_KIND) for group in groups}
    for file in written:
        file.row_order = str(order)
        outcomes[_place(file.partition, file.bucket)].files.append(file)
    if verify:
        again = shown(table, [common_pb2.LiveEntry(file=file) for file in written])
        _take_digests(meta, groups, outcomes, rows, again)
    return list(outcomes.values())


def shown(table: TableView, entries: Sequence[common_pb2.LiveEntry]) -> DataFrame:
    """The rows as a reader sees them, with row ids in append tables."""
    return frame_of(table, entries, with_origin=True).drop(FILE)


def ordered(meta: catalog_pb2.Table, rows: DataFrame, order: Order, files_wanted: int, count: int) -> DataFrame:
    """Ranges of the order, one per Spark partition; `count` is about the number of rows."""
    by = [sf.col(quoted(name)) for name in order.columns]
    if order.kind == "zorder" and len(by) > 1:
        rows = rows.withColumn(PLACE, curve_place(rows, order.columns, count))
        by = [sf.col(PLACE)]
    part = part_of(meta)
    if part is not None:
        rows = rows.withColumn(PART, part)
        by = [sf.col(PART), *by]
    return rows.repartitionByRange(files_wanted, *by).sortWithinPartitions(*by).drop(PLACE)


def part_of(meta: catalog_pb2.Table) -> Column | None:
    """The text for a row's bucket and partition in its folder name."""
    parts = [sf.expr(f"cast({bucket_of(meta)} as string)")] if meta.primary_key else []
    if meta.partition_columns:
        parts.append(partition_text(meta))
    return sf.coalesce(sf.concat_ws("-", *parts), sf.lit("")) if parts else None


def _kind(meta: catalog_pb2.Table) -> common_pb2.FileKind.ValueType:
    return common_pb2.FILE_KIND_BASE if meta.primary_key else common_pb2.FILE_KIND_UNSPECIFIED


def _place(partition: common_pb2.Partition, bucket: int) -> tuple[Any, int]:
    return partition_key(partition), bucket


# -- the curve ---------------------------------------------------------------------------------------------------------


def curve_place(rows: DataFrame, columns: Sequence[str], count: int) -> Column:
    """The position of a row on a Z-order curve."""
    share = min(1.0, SAMPLES / max(count, 1))
    table = rows.select(*[quoted(name) for name in columns]).sample(fraction=share, seed=1).toArrow()
    bounds = [rank_bounds(pl.Series(table.column(name))) for name in columns]
    place: Callable[..., Column] = pandas_functions.arrow_udf(_places(bounds), t.LongType())  # type: ignore[call-overload]
    return place(*[sf.col(quoted(name)) for name in columns])


def rank_bounds(values: pl.Series) -> pl.Series:
    """The values that separate ranks of about equal size."""
    known = values.drop_nulls().sort()
    ranks = (1 << BITS_A_COLUMN) - 1
    if not len(known):
        return known
    at = np.linspace(0, len(known) - 1, ranks).astype(np.int64)
    return known.gather(at).unique(maintain_order=True)


def _places(bounds: Sequence[pl.Series]) -> Callable[..., Any]:
    def places(*columns: pa.Array) -> pa.Array:
        ranks = []
        for column, known in zip(columns, bounds, strict=True):
            values = pl.Series(pa.chunked_array([column])).cast(known.dtype)
            found = known.search_sorted(values, side="right").fill_null(0) if len(known) else values.is_null()
            ranks.append(np.where(values.is_null().to_numpy(), 0, found.cast(pl.Int64).to_numpy()))
        return pa.array(interleaved(ranks), pa.int64())

    return places


def interleaved(ranks: Sequence[np.ndarray[Any, np.dtype[np.int64]]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The bits of the ranks interleaved, the highest first."""
    found = np.zeros(len(ranks[0]), np.int64)
    for bit in range(BITS_A_COLUMN - 1, -1, -1):
        for rank in ranks:
            found = (found << 1) | ((rank >> bit) & 1)
    return found


# -- digests -----------------------------------------------------------------------------------------------------------


def _take_digests(
    meta: catalog_pb2.Table,
    groups: Sequence[Group],
    outcomes: dict[tuple[Any, int], GroupOutcome],
    before: DataFrame,
    after: DataFrame,
) -> None:
    """Takes the digests of each group with Spark's hash. The group's folder text identifies its rows."""
    words = _words_of(meta, groups, before)
    for rows, is_input in ((before, True), (after, False)):
        for word, digest in digests(meta, rows).items():
            outcome = outcomes[words[word]]
            if is_input:
                outcome.input += digest
            else:
                outcome.output += digest


def _words_of(meta: catalog_pb2.Table, groups: Sequence[Group], rows: DataFrame) -> dict[str, tuple[Any, int]]:
    if not meta.partition_columns:
        return {
            str(group.bucket) if meta.primary_key else "": _place(group.partition, group.bucket) for group in groups
        }
    spark = rows.sparkSession
    schema = t.StructType([rows.schema[name] for name in meta.partition_columns])
    listed = []
    for group in groups:
        values = {one.column: python_value(one.value) for one in group.partition.values}
        listed.append(tuple(values[name] for name in meta.partition_columns))
    found = spark.createDataFrame(listed, schema).select(partition_text(meta)).toArrow().column(0).to_pylist()
    return {
        f"{group.bucket}-{word}" if meta.primary_key else word: _place(group.partition, group.bucket)
        for group, word in zip(groups, found, strict=True)
    }


def digests(meta: catalog_pb2.Table, rows: DataFrame) -> dict[str, Digest]:
    """By group: the number of rows, and the sums of their hashes' halves, which no number of rows can overflow."""
    part = part_of(meta)
    hashed = rows.select((sf.lit("") if part is None else part).alias(PART), row_hash(meta, rows).alias("h"))
    halves = [sf.sum(sf.col("h").bitwiseAND(0xFFFFFFFF)), sf.sum(sf.shiftrightunsigned("h", 32))]
    found = hashed.groupBy(PART).agg(sf.count("*").alias("n"), halves[0].alias("low"), halves[1].alias("high"))
    return {row[PART]: Digest(row["n"], row["low"], row["high"]) for row in found.collect()}


def row_hash(meta: catalog_pb2.Table, rows: DataFrame) -> Column:
    """Spark leaves NULLs out of a hash, so the set of NULL columns is hashed too."""
    names = [column.name for column in sorted(meta.columns, key=lambda column: column.column_id)]
    names += [ROW_ID] if ROW_ID in rows.columns else []
    values = [_hashable(sf.col(quoted(name)), rows.schema[name].dataType) for name in names]
    nulls = [sf.when(sf.col(quoted(name)).isNull(), "1").otherwise("0") for name in names]
    return sf.xxhash64(reduce(sf.concat, nulls), *values)


def _hashable(column: Column, kind: t.DataType) -> Column:
    """Maps have no hash; as text, different maps differ."""
    return sf.to_json(column) if "map<" in kind.simpleString() else column
