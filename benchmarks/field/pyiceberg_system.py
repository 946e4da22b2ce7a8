"""pyiceberg with its SQL catalog on SQLite, as its documents begin; rows in and out as Arrow.

It writes files again for a delete and an upsert: it makes no delete files. It has no update: a counter is read, and
overwritten in the version that was read.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.table import Table
from sqlalchemy.exc import OperationalError

from benchmarks.field.system import PART, SCHEMAS, Kind, Mode, Place
from benchmarks.peers.port import Refused

NAMESPACE = "bench"
REFUSALS = (CommitFailedException, ValidationException, OperationalError)

logging.getLogger("pyiceberg").setLevel(logging.ERROR)  # it warns of every retry
warnings.filterwarnings("ignore", message="Delete operation did not match any records")


def open_system(place: Place) -> PyIceberg:
    return PyIceberg(place.folder)


class PyIceberg:
    writers: Mode = "processes"

    def __init__(self, folder: Path) -> None:
        self._catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/files")
        self._tables: dict[str, Table] = {}

    def create(self, table: str, kind: Kind) -> None:
        self._catalog.create_namespace_if_not_exists(NAMESPACE)
        made = self._catalog.create_table(f"{NAMESPACE}.{table}", schema=SCHEMAS[kind])
        if kind == "parts":
            with made.update_spec() as spec:
                spec.add_identity(PART)

    def append(self, table: str, rows: pa.Table) -> None:
        try:
            self._table(table).append(rows)
        except REFUSALS as error:
            self._tables.pop(table)
            raise Refused(type(error).__name__) from error

    def upsert(self, table: str, rows: pa.Table) -> None:
        self._table(table).upsert(rows, join_cols=["id"])

    def delete(self, table: str, low: float, high: float) -> None:
        self._table(table).delete(f"amount >= {low} and amount < {high}")

    def increment(self, table: str, row_id: int) -> None:
        target = self._table(table).refresh()
        condition = f"id = {row_id}"
        row = target.scan(row_filter=condition).to_arrow()
        row = row.set_column(1, "v", pc.add(row.column("v"), 1))
        try:
            target.overwrite(row, overwrite_filter=condition)
        except REFUSALS as error:
            raise Refused(type(error).__name__) from error

    def head(self, table: str) -> int:
        snapshot = self._table(table).refresh().current_snapshot()
        assert snapshot is not None
        return snapshot.snapshot_id

    def read(
        self, table: str, columns: Sequence[str] | None = None, version: int | None = None, row_id: int | None = None
    ) -> pa.Table:
        scan = self._table(table).refresh().scan(selected_fields=tuple(columns or ["*"]), snapshot_id=version)
        return (scan if row_id is None else scan.filter(f"id = {row_id}")).to_arrow()

    def count_files(self, table: str) -> int:
        return len(list(self._table(table).refresh().scan().plan_files()))

    def beside(self) -> PyIceberg:
        return self

    def _table(self, name: str) -> Table:
        if name not in self._tables:
            self._tables[name] = self._catalog.load_table(f"{NAMESPACE}.{name}")
        return self._tables[name]
