"""A table's columns as an object that prints well and needs no Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

import pyarrow as pa

from protos.laketx.v1 import catalog_pb2
from worker.arrow.scan.version_rows import columns_schema
from worker.base.lazy_modules import LazyModule
from worker.base.schema import column_line

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from worker.spark import column_types
else:
    column_types = LazyModule("worker.spark.column_types")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `type` and `default` are texts of Spark SQL."""

    name: str
    type: str
    nullable: bool
    comment: str
    default: str


class Schema(Sequence[Column]):
    """The columns of a table, in order. It prints as SQL, and `create_table` accepts it.

        print(orders.schema)
        lake.create_table("shop.copy", orders.schema, primary_key=["id"])

    Columns are found by position, and by name in any case.
    """

    def __init__(self, meta: catalog_pb2.Table) -> None:
        self._meta = meta
        self._columns = tuple(
            Column(column.name, column.type, column.nullable, column.comment, column.default_sql)
            for column in meta.columns
        )

    def __repr__(self) -> str:
        return "\n".join(map(column_line, self._meta.columns))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self._columns == other._columns

    def __hash__(self) -> int:
        return hash(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __iter__(self) -> Iterator[Column]:
        return iter(self._columns)

    @overload
    def __getitem__(self, at: int | str) -> Column: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Column]: ...

    def __getitem__(self, at: int | str | slice) -> Column | Sequence[Column]:
        """Return a column by position, or by name in any case. Raises KeyError for an unknown name."""
        if not isinstance(at, str):
            return self._columns[at]
        for column in self._columns:
            if column.name.lower() == at.lower():
                return column
        raise KeyError(at)

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self._columns]

    def to_arrow(self) -> pa.Schema:
        """Returns the schema of reads with Arrow."""
        return columns_schema(self._meta)

    def to_spark(self) -> StructType:
        """Returns the schema of reads with Spark, with comments and defaults."""
        return column_types.with_comments(self._meta)

    def wire_columns(self, keys: Sequence[str]) -> list[catalog_pb2.Column]:
        """Return the columns for a new table with this schema."""
        lower = {name.lower() for name in keys}
        return [
            catalog_pb2.Column(
                name=column.name,
                type=column.type,
                nullable=column.nullable and column.name.lower() not in lower,
                comment=column.comment,
                default_sql=column.default,
            )
            for column in self._columns
        ]
