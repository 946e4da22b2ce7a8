"""Columns, rows and awkward kinds of LabTable that several suites read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from protos.laketx.v1 import common_pb2
from tests.spark.reading import Identity, LabTable, Row

ROWS = 10
COLUMNS = {"id": "bigint", "amount": "double", "status": "string"}
WIDE = {
    "id": "bigint",
    "a": "int",
    "b": "int",
    "c": "string",
    "price": "decimal(10,2)",
    "part": "float",
    "day": "date",
}


def row(number: int, amount: float = 1.0, status: str = "new") -> dict[str, object]:
    return {"id": number, "amount": amount, "status": status}


class Alike(LabTable):
    """Files of as many rows are of one size: nothing in them is packed."""

    inlined_each = 0

    def _file(self, *args: Any, **named: Any) -> common_pb2.DataFile:
        file = super()._file(*args, **named)
        path = Path(self.folder) / file.path
        pq.write_table(pq.ParquetFile(path).read(), path, compression="none", use_dictionary=False)
        file.bytes = path.stat().st_size
        return file


class WrongSizes(Alike):
    """Its writer counts the bytes of files wrong."""

    def _file(self, *args: Any, **named: Any) -> common_pb2.DataFile:
        file = super()._file(*args, **named)
        file.bytes += 1
        return file


class SetsInFiles(LabTable):
    """Its delete sets are files."""

    def _delete_sets(self, txn_id: str, identities: Sequence[Identity]) -> list[common_pb2.DeleteSet]:
        sets = super()._delete_sets(txn_id, identities)
        for one in sets:
            path = Path(self.folder) / one.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(one.bitmap)
            one.bytes, one.bitmap = len(one.bitmap), b""
            one.row_id_min, one.row_id_max = min(identities)[0], max(identities)[0]
        return sets


def rows(first: int, amount: float = 1.0) -> list[Row]:
    return [{"id": first + at, "amount": amount} for at in range(ROWS)]


def fill(table: LabTable, files: int, name: str = "f.parquet") -> None:
    """Files of one size, another row of each hidden."""
    keyed = bool(table.meta.primary_key)
    for number in range(files):
        first = number * (ROWS - 1 if keyed else ROWS)  # of keys the last of a file comes again in the next
        table.insert(rows(first, float(number)), name=name)
    if not keyed:
        table.delete(table.find(*(number * ROWS + number % ROWS for number in range(files))))
    assert len({one.file.bytes for one in live_files(table)}) == 1, "their sizes differ"


def live_files(table: LabTable) -> list[common_pb2.LiveEntry]:
    return [one for one in table.lake.client.list_files(table.table_id) if one.HasField("file")]
