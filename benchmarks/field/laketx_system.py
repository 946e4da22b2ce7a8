"""LakeTX by its Python API without Spark, on a folder whose service starts by itself.

Compactions are off, as the others have none that starts by itself. A table of small commits has the profile of blind
appends, and counters have `row_level`, by docs/row-level.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.field.system import PART, SCHEMAS, Kind, Mode, Place
from benchmarks.peers.port import Refused
from laketx import ConflictError, Table, connect

BUCKETS = 4
UNCOMPACTED = {"compaction.enabled": "false"}
AS_FILES = {"write.inline.rows": "0"}


def open_system(place: Place) -> LakeTX:
    return LakeTX(place.folder)


class LakeTX:
    writers: Mode = "processes"

    def __init__(self, folder: Path) -> None:
        self._lake = connect(folder / "lake")
        self._tables: dict[str, Table] = {}

    def create(self, table: str, kind: Kind) -> None:
        settings: dict[str, Any] = {"properties": UNCOMPACTED}
        match kind:
            case "rows":
                pass
            case "keyed":
                settings |= {"primary_key": ["id"], "buckets": BUCKETS}
            case "commits":
                settings |= {"profile": "delta_write_serializable"}
            case "counters":
                settings |= {"profile": "row_level"}
            case "parts":
                settings |= {"partition_by": [PART], "properties": UNCOMPACTED | AS_FILES}
        self._lake.create_table(table, SCHEMAS[kind], **settings)

    def append(self, table: str, rows: pa.Table) -> None:
        try:
            self._table(table).append(rows)
        except ConflictError as error:
            raise Refused(type(error).__name__) from error

    def upsert(self, table: str, rows: pa.Table) -> None:
        self._table(table).upsert(rows)

    def delete(self, table: str, low: float, high: float) -> None:
        self._table(table).delete(f"amount >= {low} AND amount < {high}")

    def increment(self, table: str, row_id: int) -> None:
        try:
            self._table(table).update({"v": "v + 1"}, where=f"id = {row_id}", on_conflict="fail")
        except ConflictError as error:
            raise Refused(type(error).__name__) from error

    def head(self, table: str) -> int:
        return self._table(table).refresh().meta.head_version

    def read(
        self, table: str, columns: Sequence[str] | None = None, version: int | None = None, row_id: int | None = None
    ) -> pa.Table:
        where = None if row_id is None else f"id = {row_id}"
        return self._table(table).to_arrow(columns=columns, version=version, where=where)

    def count_files(self, table: str) -> int:
        return sum(entry.HasField("file") for entry in self._lake.client.list_files(self._table(table).table_id))

    def beside(self) -> LakeTX:
        return self

    def _table(self, name: str) -> Table:
        if name not in self._tables:
            self._tables[name] = self._lake.table(name)
        return self._tables[name]
