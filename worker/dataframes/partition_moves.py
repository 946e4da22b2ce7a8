"""Rows of a primary-key table that leave their partition: none may land on an existing key.

A key is unique within a partition of such a table (`key.scope` is `partition`). The check looks at the read version. A
later writer of that key conflicts with the move, because both write to the same partition and bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.base.errors import InputError
from worker.base.schema import quoted
from worker.base.values import wire_value
from worker.commit.stages import Stage
from worker.connection.table_view import TableView
from worker.connection.write_rules import write_rules
from worker.dataframes import scan

PARTITIONS_MAX: Final = common_pb2.LIMIT_PARTITIONS_NAMED  # where rows land; else all
EVERYTHING: Final = common_pb2.Read(predicate=common_pb2.Predicate(literal=True))


def check_landing(table: TableView, stage: Stage, before: DataFrame, after: DataFrame) -> list[common_pb2.Read]:
    """The additional reads of the check. `after` are the new images of `before`; no two rows may share a key.

    A key that a row of `before` leaves is free: two rows can swap their partitions.
    """
    meta = stage.meta
    names = [*meta.partition_columns, *meta.primary_key]
    here = after.selectExpr(*map(quoted, names))
    twice = here.groupBy(*map(quoted, names)).count().where("count > 1").selectExpr(*texts(names), "count").head(1)
    if twice:
        raise key_exists(meta, list(twice[0])[:-1], f"{twice[0]['count']} rows would have that key")
    gone = before.selectExpr(*map(quoted, names)).alias("old")
    moved = here.alias("new").join(gone, sf.expr(same("new", "old", names)), "left_anti").localCheckpoint()
    landing = partitions_of(meta, moved)
    if not landing:
        return []
    near = landing if len(landing) <= PARTITIONS_MAX else []
    then = table.at(stage.read_version)
    there = scan.rows_to_change(then, stage.read_version).selectExpr(*map(quoted, names)).alias("old")
    both = there.join(moved.alias("new"), sf.expr(same("new", "old", names)), "left_semi")
    taken = both.selectExpr(*texts(names)).head(1)
    if taken:
        raise key_exists(meta, list(taken[0]), "another row has that key")
    if not write_rules(meta).counts_key_lookups:
        return []
    return [common_pb2.Read(partitions=near) if near else EVERYTHING]


def texts(names: Sequence[str]) -> list[str]:
    """The columns as text, as the session shows them."""
    return [f"cast({quoted(name)} as string) as c{at}" for at, name in enumerate(names)]


def same(left: str, right: str, names: Sequence[str]) -> str:
    """Whether both sides agree in these columns."""
    return " and ".join(f"{left}.{quoted(name)} <=> {right}.{quoted(name)}" for name in names)


def partitions_of(meta: catalog_pb2.Table, rows: DataFrame) -> list[common_pb2.Partition]:
    """The partitions of the rows; one more than PARTITIONS_MAX stands for many."""
    types = {column.name: column.type for column in meta.columns}
    names = list(meta.partition_columns)
    values = [f"unix_micros({quoted(name)})" if types[name] == "timestamp" else quoted(name) for name in names]
    found = rows.selectExpr(*[f"{value} as c{at}" for at, value in enumerate(values)]).distinct()
    return [
        common_pb2.Partition(
            values=[
                common_pb2.PartitionValue(column=name, value=_value(one, types[name]))
                for name, one in zip(names, row, strict=True)
            ]
        )
        for row in found.limit(PARTITIONS_MAX + 1).collect()
    ]


def _value(value: Any, type_name: str) -> common_pb2.Value:
    if type_name == "timestamp" and value is not None:
        return common_pb2.Value(timestamp_us=value)
    return wire_value(value, type_name)


def key_exists(meta: catalog_pb2.Table, row: list[Any], why: str) -> InputError:
    names = [*meta.partition_columns, *meta.primary_key]
    shown = ", ".join(f"{name}={value}" for name, value in zip(names, row, strict=True))
    return InputError(
        "KEY_EXISTS", f"no row of {meta.name} can move to {shown}: {why}; delete that one first, or choose another key"
    )
