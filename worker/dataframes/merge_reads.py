"""Which part of its table a MERGE reads: what its ON condition says of the target, and the partitions of the source.

    target.day >= '2026-11-01' AND target.id = source.id    ->  day >= "2026-11-01"
    on=["day", "id"], and the source has rows of two days   ->  day = … or day = …, known when the source was computed

A row of the table that lies elsewhere can't match, whatever others do to it. Where it matters that no source row
matches (`when_not_matched_by_source…`) everything is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as t

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.base.condition_forms import all_of
from worker.base.schema import quoted
from worker.base.values import INTEGERS, wire_value
from worker.spark.column_types import literal_of, type_text
from worker.spark.conditions import to_wire

PARTITIONS_MAX: Final = 100  # of a source; with more of them it is not looked which they are
EXACT: Final = frozenset({"string", "date", "boolean", *INTEGERS})
_TARGET: Final = re.compile(
    r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`)|(?<![\w.`])target\s*\.\s*""", re.IGNORECASE | re.DOTALL
)


def read_of(predicates: Sequence[common_pb2.Predicate]) -> common_pb2.Read:
    """One read under all of these conditions."""
    known = [one for one in predicates if one.WhichOneof("kind") != "literal" or not one.literal]
    return common_pb2.Read(predicate=all_of(known))


def of_condition(condition: str, meta: catalog_pb2.Table, spark: SparkSession) -> common_pb2.Predicate:
    """The part of an ON condition that concerns a row of the target alone."""
    return to_wire(_TARGET.sub(lambda match: match[1] or "", condition), meta, spark)


def shared_partitions(meta: catalog_pb2.Table, on: Sequence[str], source: DataFrame) -> list[tuple[str, str]]:
    """Partition columns that the MERGE joins on, each with the source's name for it, if the types are the same."""
    there = {field.name.lower(): field for field in source.schema.fields}
    asked = {name.strip().lower() for name in on}
    return [
        (name, there[name.lower()].name)
        for name in meta.partition_columns
        if name.lower() in asked and of_same_types(meta, [name], source)
    ]


def of_same_types(meta: catalog_pb2.Table, names: Iterable[str], source: DataFrame) -> bool:
    """Whether the source has these columns with the table's types, and equal values are identical."""
    types = {column.name.lower(): column.type for column in meta.columns}
    there = {field.name.lower(): field.dataType for field in source.schema.fields}
    return all(
        name.lower() in there
        and types[name.lower()] in EXACT
        and isinstance(there[name.lower()], t.AtomicType)
        and type_text(there[name.lower()]) == types[name.lower()]
        for name in names
    )


def partitions_of(
    meta: catalog_pb2.Table, shared: Sequence[tuple[str, str]], source: DataFrame
) -> tuple[common_pb2.Predicate, Column | None]:
    """The partitions where the source's rows can match, for the service and for Spark.

    The source is already computed.
    """
    types = {column.name: column.type for column in meta.columns}
    columns = [sf.col(quoted(theirs)).alias(f"c{at}") for at, (_, theirs) in enumerate(shared)]
    wanted = source.select(*columns)
    if not meta.primary_key:
        wanted = wanted.dropna()  # NULL matches nothing; in a table with a key it matches NULL
    found = wanted.distinct().limit(PARTITIONS_MAX + 1).collect()
    if len(found) > PARTITIONS_MAX:
        return common_pb2.Predicate(literal=True), None
    if not found:
        return common_pb2.Predicate(literal=False), sf.lit(False)
    names = [name for name, _ in shared]
    places = [
        all_of([_equal(name, wire_value(value, types[name])) for name, value in zip(names, row, strict=True)])
        for row in found
    ]
    rows = [_among(name, {row[at] for row in found}, types[name]) for at, name in enumerate(names)]
    shown = rows[0]
    for one in rows[1:]:
        shown = shown & one
    anywhere = common_pb2.Predicate(any_of=common_pb2.PredicateList(operands=places))
    return places[0] if len(places) == 1 else anywhere, shown


def _among(name: str, values: set[Any], type_name: str) -> Column:
    filled = sf.col(quoted(name)).isin([literal_of(value, type_name) for value in sorted(values - {None})])
    return filled | sf.col(quoted(name)).isNull() if None in values else filled


def _equal(column: str, value: common_pb2.Value) -> common_pb2.Predicate:
    if value.WhichOneof("kind") == "null":
        return common_pb2.Predicate(is_null=common_pb2.IsNull(column=column))
    compare = common_pb2.Compare(column=column, comparison=common_pb2.COMPARISON_EQUAL, value=value)
    return common_pb2.Predicate(compare=compare)
