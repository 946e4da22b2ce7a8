"""The partitions in which a MERGE finds rows: those of its source, if it joins on partition columns.

    on=["day", "id"], and the source has rows of two days   ->  … AND target.day IN (…), once the source is computed

A row in another partition can't match, whatever others do to it: it isn't read. If it matters that no
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
    """Return the partition columns that the MERGE joins on with the same type, each with its name in the source."""
    source_fields = {field.name.lower(): field for field in source.schema.fields}
    joined = {name.strip().lower() for name in on}
    return [
        (name, source_fields[name.lower()].name)
        for name in meta.partition_columns
        if name.lower() in joined and _of_same_types(meta, [name], source)
    ]


def _of_same_types(meta: catalog_pb2.Table, names: Iterable[str], source: DataFrame) -> bool:
    """Return whether the source has these columns with the table's types, and equal values are identical."""
    types = {column.name.lower(): column.type for column in meta.columns}
    source_types = {field.name.lower(): field.dataType for field in source.schema.fields}
    return all(
        name.lower() in source_types
        and types[name.lower()] in EXACT
        and isinstance(source_types[name.lower()], t.AtomicType)
        and type_text(source_types[name.lower()]) == types[name.lower()]
        for name in names
    )


def partitions_of(
    meta: catalog_pb2.Table, shared: Sequence[tuple[str, str]], source: DataFrame, side: str
) -> Column | None:
    """Return a condition that every matching row of the table meets, with its alias; None if there is none.

    The source is already computed.
    """
    types = {column.name: column.type for column in meta.columns}
    columns = [sf.col(quoted(theirs)).alias(f"c{at}") for at, (_, theirs) in enumerate(shared)]
    partitions = source.select(*columns)
    if not meta.primary_key:
        partitions = partitions.dropna()  # NULL matches nothing; in a table with a key it matches NULL
    partition_rows = partitions.distinct().limit(PARTITIONS_MAX + 1).collect()
    if len(partition_rows) > PARTITIONS_MAX:
        return None
    if not partition_rows:
        return sf.lit(False)
    places = [
        _among(f"{side}.{quoted(name)}", {row[at] for row in partition_rows}, types[name])
        for at, (name, _) in enumerate(shared)
    ]
    shown = places[0]
    for place in places[1:]:
        shown = shown & place
    return shown


def _among(name: str, values: set[Any], type_name: str) -> Column:
    filled = sf.col(name).isin([literal_of(value, type_name) for value in sorted(values - {None})])
    return filled | sf.col(name).isNull() if None in values else filled
