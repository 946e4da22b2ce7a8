"""The partitions in which a MERGE finds rows: those of its source, where it joins on partition columns.

    on=["day", "id"], and the source has rows of two days   ->  … AND target.day IN (…), once the source is computed

A row of the table that lies elsewhere can't match, whatever others do to it: it isn't read. Where it matters that no
source row matches (`when_not_matched_by_source…`) everything is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as t

from protos.laketx.v1 import catalog_pb2
from worker.base.schema import quoted
from worker.base.values import INTEGERS
from worker.spark.column_types import literal_of, type_text

PARTITIONS_MAX: Final = 100  # of a source; with more of them it is not looked which they are
EXACT: Final = frozenset({"string", "date", "boolean", *INTEGERS})


def shared_partitions(meta: catalog_pb2.Table, on: Sequence[str], source: DataFrame) -> list[tuple[str, str]]:
    """Partition columns that the MERGE joins on, each with the source's name for it, if the types are the same."""
    there = {field.name.lower(): field for field in source.schema.fields}
    asked = {name.strip().lower() for name in on}
    return [
        (name, there[name.lower()].name)
        for name in meta.partition_columns
        if name.lower() in asked and _of_same_types(meta, [name], source)
    ]


def _of_same_types(meta: catalog_pb2.Table, names: Iterable[str], source: DataFrame) -> bool:
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
    meta: catalog_pb2.Table, shared: Sequence[tuple[str, str]], source: DataFrame, side: str
) -> Column | None:
    """The condition on rows of the table, under the name of that side, without which none matches; None: there is none.

    The source is already computed.
    """
    types = {column.name: column.type for column in meta.columns}
    columns = [sf.col(quoted(theirs)).alias(f"c{at}") for at, (_, theirs) in enumerate(shared)]
    wanted = source.select(*columns)
    if not meta.primary_key:
        wanted = wanted.dropna()  # NULL matches nothing; in a table with a key it matches NULL
    found = wanted.distinct().limit(PARTITIONS_MAX + 1).collect()
    if len(found) > PARTITIONS_MAX:
        return None
    if not found:
        return sf.lit(False)
    places = [
        _among(f"{side}.{quoted(name)}", {row[at] for row in found}, types[name]) for at, (name, _) in enumerate(shared)
    ]
    shown = places[0]
    for one in places[1:]:
        shown = shown & one
    return shown


def _among(name: str, values: set[Any], type_name: str) -> Column:
    filled = sf.col(name).isin([literal_of(value, type_name) for value in sorted(values - {None})])
    return filled | sf.col(name).isNull() if None in values else filled
