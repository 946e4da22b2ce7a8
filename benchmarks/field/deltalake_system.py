"""deltalake, which is delta-rs from Python: rows in and out as Arrow.

A table of small commits has a checkpoint every 10 commits, and each commit opens the table anew: see
`benchmarks/peers/delta.py`. Reads keep a handle, which learns what is new. Deletes and merges write files again: it
makes no deletion vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable, Schema, WriterProperties, write_deltalake
from deltalake.exceptions import DeltaError

from benchmarks.field.system import PART, SCHEMAS, Kind, Mode, Place
from benchmarks.peers.port import Refused

ZSTD = WriterProperties(compression="ZSTD", compression_level=3)


def open_system(place: Place) -> DeltaLake:
    return DeltaLake(place.folder)


class DeltaLake:
    writers: Mode = "processes"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._handles: dict[str, DeltaTable] = {}

    def create(self, table: str, kind: Kind) -> None:
        often = {"delta.checkpointInterval": "10"} if kind == "commits" else {}
        parts = [PART] if kind == "parts" else []
        schema = Schema.from_arrow(SCHEMAS[kind])
        DeltaTable.create(self._path(table), schema, partition_by=parts, configuration=often)

    def append(self, table: str, rows: pa.Table) -> None:
        try:
            write_deltalake(self._path(table), rows, mode="append", writer_properties=ZSTD)
        except DeltaError as error:
            raise Refused(type(error).__name__) from error

    def upsert(self, table: str, rows: pa.Table) -> None:
        merge = DeltaTable(self._path(table)).merge(
            rows, "target.id = source.id", source_alias="source", target_alias="target", writer_properties=ZSTD
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def delete(self, table: str, low: float, high: float) -> None:
        DeltaTable(self._path(table)).delete(f"amount >= {low} AND amount < {high}", writer_properties=ZSTD)

    def increment(self, table: str, row_id: int) -> None:
        try:
            DeltaTable(self._path(table)).update({"v": "v + 1"}, predicate=f"id = {row_id}", writer_properties=ZSTD)
        except DeltaError as error:
            raise Refused(type(error).__name__) from error

    def head(self, table: str) -> int:
        return DeltaTable(self._path(table)).version()

    def read(
        self, table: str, columns: Sequence[str] | None = None, version: int | None = None, row_id: int | None = None
    ) -> pa.Table:
        handle = self._newest(table) if version is None else DeltaTable(self._path(table), version=version)
        condition = None if row_id is None else ds.field("id") == row_id
        return handle.to_pyarrow_dataset().to_table(columns=list(columns) if columns else None, filter=condition)

    def count_files(self, table: str) -> int:
        return len(self._newest(table).file_uris())

    def beside(self) -> DeltaLake:
        return self

    def _newest(self, table: str) -> DeltaTable:
        if table not in self._handles:
            self._handles[table] = DeltaTable(self._path(table))
        self._handles[table].update_incremental()
        return self._handles[table]

    def _path(self, table: str) -> str:
        return str(self._folder / table)
