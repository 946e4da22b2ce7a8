"""A table's partition columns, which Iceberg calls identity partitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from metaservice.shared.column_types import Type, read_type
from protos.laketx.v1 import catalog_pb2

FIRST_PARTITION_ID: Final = 1000


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """A column by whose values the table is partitioned."""

    field_id: int
    column_id: int
    name: str
    kind: Type


def partition_columns(meta: catalog_pb2.Table, columns: Iterable[catalog_pb2.Column]) -> list[PartitionColumn]:
    """Return the partition columns by their names in the schema of the view."""
    named = {column.name: column for column in columns}
    return [
        PartitionColumn(FIRST_PARTITION_ID + at, named[name].column_id, name, read_type(named[name].type))
        for at, name in enumerate(meta.partition_columns)
    ]


def partition_spec(partitions: Iterable[PartitionColumn]) -> list[dict[str, Any]]:
    """Return the fields of the partition spec."""
    return [
        {
            "source-id": partition.column_id,
            "field-id": partition.field_id,
            "name": partition.name,
            "transform": "identity",
        }
        for partition in partitions
    ]
