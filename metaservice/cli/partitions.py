"""Partitions as people type them: COLUMN=VALUE, several joined by a slash, as listings show them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from metaservice.cli.failures import usage_failure
from metaservice.client.conditions import ConditionError, parse_condition
from protos.laketx.v1 import catalog_pb2, common_pb2

UNQUOTED = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "boolean")


def read_partitions(table: catalog_pb2.Table, texts: Sequence[str]) -> list[common_pb2.Partition]:
    return [read_partition(table, text) for text in texts]


def read_partition(table: catalog_pb2.Table, text: str) -> common_pb2.Partition:
    """Read a partition, typed by the table's columns; NULL is a value."""
    names = list(table.partition_columns)
    if not names:
        raise usage_failure(f"{table.name} has no partitions")
    pattern = "/".join(f"(?i:`?{re.escape(name)}`?)=(.*)" for name in names)
    match = re.fullmatch(pattern, text, re.DOTALL)
    if match is None:
        example = "/".join(f"{name}=…" for name in names)
        raise usage_failure(f"`{text}` is not a partition of {table.name}", next_step=f"such as: {example}")
    values = zip(names, match.groups(), strict=True)
    return common_pb2.Partition(
        values=[common_pb2.PartitionValue(column=name, value=_value(table, name, value)) for name, value in values]
    )


def _value(table: catalog_pb2.Table, name: str, text: str) -> common_pb2.Value:
    if text.upper() == "NULL":
        return common_pb2.Value(null=common_pb2.NULL_VALUE_UNSPECIFIED)
    kind = next(column.type for column in table.columns if column.name == name).partition("(")[0]
    quoted = text if kind in UNQUOTED else "'" + text.replace("'", "''") + "'"
    literal = f"X{quoted}" if kind == "binary" else quoted
    try:
        return parse_condition(f"`{name.replace('`', '``')}` = {literal}", table.columns).compare.value
    except ConditionError as error:
        raise usage_failure(f"--partition: {name}: {error.message}") from error
