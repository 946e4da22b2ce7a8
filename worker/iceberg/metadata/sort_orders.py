"""The orders of rows in files, as Iceberg's sort orders. Z-orders have no form there."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

from metaservice.shared.column_types import Atomic, Decimal, read_type
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.iceberg.metadata.values import FLOATS

UNSORTED: Final[dict[str, Any]] = {"order-id": 0, "fields": []}
SORT: Final = re.compile(r"sort\((.*)\)")
NAME: Final = re.compile(r"`((?:[^`]|``)+)`|([^,`]+)")


@dataclass(frozen=True, slots=True)
class SortOrder:
    """By columns in sequence, ascending, NULL first, as Spark sorts."""

    columns: tuple[int, ...]  # their ids

    @property
    def order_id(self) -> int:
        """The same in every version of a table."""
        return zlib.crc32(repr(self.columns).encode()) >> 1 or 1

    def shown(self) -> dict[str, Any]:
        fields = [
            {"transform": "identity", "source-id": one, "direction": "asc", "null-order": "nulls-first"}
            for one in self.columns
        ]
        return {"order-id": self.order_id, "fields": fields}


class SortOrders:
    """The orders of a table's files."""

    def __init__(self, schemas: Iterable[catalog_pb2.SchemaVersion] = ()) -> None:
        listed = sorted(schemas, key=lambda one: one.schema_version)
        self._columns = {one.schema_version: one.columns for one in listed}
        if listed:
            self._columns.setdefault(0, listed[0].columns)  # as files say of the first
        self._known: dict[tuple[int, str], SortOrder | None] = {}

    def of(self, file: common_pb2.DataFile) -> SortOrder | None:
        if not file.row_order:
            return None
        key = file.schema_version, file.row_order
        if key not in self._known:
            self._known[key] = self._read(*key)
        return self._known[key]

    def _read(self, schema_version: int, text: str) -> SortOrder | None:
        """Its names are those of the columns that the file was written with."""
        found = SORT.fullmatch(text)
        if found is None:
            return None
        columns = {one.name: one for one in self._columns.get(schema_version, ())}
        names = [(odd.replace("``", "`") or plain.strip()) for odd, plain in NAME.findall(found[1])]
        ids = [columns[name].column_id for name in takewhile(lambda one: _sorts(columns.get(one)), names)]
        return SortOrder(tuple(ids)) if ids else None


def _sorts(column: catalog_pb2.Column | None) -> bool:
    """Whether Iceberg sorts its values as Spark does: to Spark, 0.0 and -0.0 are the same."""
    if column is None:
        return False
    kind = read_type(column.type)
    return isinstance(kind, Decimal) or (isinstance(kind, Atomic) and kind.name not in FLOATS)


def sort_orders(orders: Iterable[SortOrder], columns: Iterable[catalog_pb2.Column]) -> list[dict[str, Any]]:
    """The orders of a table's metadata: those of files, as far as the table has the columns."""
    known = {one.column_id for one in columns}
    listed = sorted({one for one in orders if known.issuperset(one.columns)}, key=lambda one: one.columns)
    return [UNSORTED, *(one.shown() for one in listed)]
