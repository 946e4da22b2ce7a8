"""What a table holds, read without Spark and without the worker: by the rules of the files alone."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from laketx import Table
from protos.laketx.v1 import common_pb2

Row = dict[str, Any]


def live(table: Table, version: int | None = None) -> list[common_pb2.LiveEntry]:
    return list(table.lake.client.list_files(table.table_id, version=version))


def file_rows(table: Table, file: common_pb2.DataFile) -> list[Row]:
    if file.inlined:
        (one,) = table.lake.client.read_inlined(table.table_id, [file.path])
        return list(pa.ipc.open_stream(one.content).read_all().to_pylist())
    path = file.path if file.external else f"{table.folder}/{file.path}"
    return list(pq.ParquetFile(path).read().to_pylist())


def stored_rows(table: Table, version: int | None = None) -> list[Row]:
    """Rows at a version, columns by the names that the files have."""
    entries = sorted(live(table, version), key=lambda entry: entry.data_version)
    return keyed_rows(table, entries) if table.meta.primary_key else append_rows(table, entries)


def keyed_rows(table: Table, entries: list[common_pb2.LiveEntry]) -> list[Row]:
    found: dict[tuple[Any, ...], Row] = {}
    for entry in entries:
        for row in file_rows(table, entry.file):
            is_tombstone = row.pop("_op", 0) == 1
            key = (str(entry.file.partition), *[row[name] for name in table.meta.primary_key])
            if is_tombstone:
                found.pop(key, None)
            else:
                found[key] = row
    return list(found.values())


def append_rows(table: Table, entries: list[common_pb2.LiveEntry]) -> list[Row]:
    sets = [
        (e.data_version, e.delete_set.partition, bitmap(table, e.delete_set))
        for e in entries
        if e.HasField("delete_set")
    ]
    found = []
    for entry in entries:
        if not entry.HasField("file"):
            continue
        file = entry.file
        hides = [ids for at, partition, ids in sets if at > entry.data_version and partition == file.partition]
        for position, row in enumerate(file_rows(table, file)):
            own = row.pop("_row_id", None)
            row_id = file.first_row_id + position if own is None else own
            if not any(row_id in ids for ids in hides):
                found.append(row)
    return found


def bitmap(table: Table, delete_set: common_pb2.DeleteSet) -> BitMap64:
    raw = delete_set.bitmap or Path(f"{table.folder}/{delete_set.path}").read_bytes()
    return BitMap64.deserialize(raw)


def row_ids(table: Table, key: str) -> dict[Any, int]:
    """Row ids of what is visible, by a column."""
    entries = sorted(live(table), key=lambda entry: entry.data_version)
    found = {}
    for entry in entries:
        if entry.HasField("file"):
            for position, row in enumerate(file_rows(table, entry.file)):
                own = row.get("_row_id")
                found[row[key]] = entry.file.first_row_id + position if own is None else own
    return found


def staged_folders(table: Table) -> set[str]:
    folder = Path(table.folder)
    return {one.name for one in folder.iterdir()} if folder.exists() else set()


def by(rows: list[Row], *names: str) -> list[Row]:
    return sorted(rows, key=lambda row: tuple(str(row[name]) for name in names))
