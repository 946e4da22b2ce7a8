"""pyiceberg with a SQLite catalog: a fast append of one DataFile that is built by hand.

It is the cheapest there is: `Table.add_files` does the same after it has opened the file and searched the table for it.
Retries inside the call (4, with waits from 100 ms) are as the defaults have them; more of them with shorter waits made
it no faster, nor did merge appends or a handle opened anew for each commit. A commit costs more with every snapshot
that the table keeps, for its metadata lists them all and is copied again and again: a short window is kind to it.
"""

from __future__ import annotations

import importlib.metadata
import logging
import struct
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog  # type: ignore[import-not-found, unused-ignore]
from pyiceberg.exceptions import CommitFailedException  # type: ignore[import-not-found, unused-ignore]
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat  # type: ignore[import-not-found, unused-ignore]
from pyiceberg.schema import Schema  # type: ignore[import-not-found, unused-ignore]
from pyiceberg.typedef import Record  # type: ignore[import-not-found, unused-ignore]
from pyiceberg.types import LongType, NestedField  # type: ignore[import-not-found, unused-ignore]
from sqlalchemy.exc import OperationalError  # type: ignore[import-not-found, unused-ignore]

from benchmarks.peers.port import FILE_BYTES, RECORDS_A_FILE, Refused

durability = "partly durable: SQLite syncs the pointer, metadata files are never synced"  # by its system calls

TABLE = "bench.commits"
COLUMN = 1
STATISTICS = {
    "value_counts": {COLUMN: RECORDS_A_FILE},
    "null_value_counts": {COLUMN: 0},
    "lower_bounds": {COLUMN: struct.pack("<q", 1)},
    "upper_bounds": {COLUMN: struct.pack("<q", RECORDS_A_FILE)},
}

logging.getLogger("pyiceberg").setLevel(logging.ERROR)  # it warns of every retry


def version() -> str:
    return importlib.metadata.version("pyiceberg")


def create(folder: Path) -> None:
    catalog = _catalog(folder)
    catalog.create_namespace(TABLE.split(".")[0])
    catalog.create_table(TABLE, Schema(NestedField(COLUMN, "id", LongType())))


def open_writer(folder: Path) -> IcebergWriter:
    return IcebergWriter(folder)


def read_back(folder: Path) -> tuple[int, list[str]]:
    table = _catalog(folder).load_table(TABLE)
    snapshot = table.current_snapshot()
    manifests = snapshot.manifests(table.io) if snapshot else []
    entries = [entry for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io)]
    return len(table.metadata.snapshots), [entry.data_file.file_path.rpartition("/")[2] for entry in entries]


class IcebergWriter:
    def __init__(self, folder: Path) -> None:
        self.attempts: int | None = 0
        self._catalog = _catalog(folder)
        self._commit_table = self._catalog.commit_table
        self._catalog.commit_table = self._count_attempt  # type: ignore[method-assign]
        self._table = self._catalog.load_table(TABLE)

    def commit(self, file_name: str) -> None:
        data_file = _data_file(f"{self._table.location()}/data/{file_name}")
        try:
            with self._table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
                append.append_data_file(data_file)
        except (CommitFailedException, OperationalError) as error:
            self._table = self._catalog.load_table(TABLE)
            raise Refused(type(error).__name__) from error

    def _count_attempt(self, *args: Any, **kwargs: Any) -> Any:
        assert self.attempts is not None
        self.attempts += 1
        return self._commit_table(*args, **kwargs)


def _catalog(folder: Path) -> SqlCatalog:
    return SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")


def _data_file(path: str) -> DataFile:
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=RECORDS_A_FILE,
        file_size_in_bytes=FILE_BYTES,
        spec_id=0,
        **STATISTICS,  # type: ignore[arg-type]
    )
