"""deltalake: `create_write_transaction` with one AddAction, the call that commits files which others wrote.

It is the cheapest there is: `create_table_with_add_actions` refuses to append. Two things serve it better than its
defaults, and are done: a checkpoint every 10 commits, since a commit costs more with every log entry after the last
checkpoint; and a handle opened anew for each commit, since one that lives on never forgets entries and slows down with
each. Together they give 16 writers about twice what the defaults do, and one writer more than that. Retries are
its default, 15.
"""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, Schema  # type: ignore[import-not-found, unused-ignore]
from deltalake.exceptions import DeltaError  # type: ignore[import-not-found, unused-ignore]
from deltalake.transaction import AddAction  # type: ignore[import-not-found, unused-ignore]

from benchmarks.peers.port import FILE_BYTES, RECORDS_A_FILE, Refused

durability = "not durable: on a local file system it never syncs its log"  # by its system calls: link, but no fsync

SCHEMA = Schema.from_arrow(pa.schema([("id", pa.int64())]))
STATISTICS = json.dumps(
    {
        "numRecords": RECORDS_A_FILE,
        "minValues": {"id": 1},
        "maxValues": {"id": RECORDS_A_FILE},
        "nullCount": {"id": 0},
    }
)


def version() -> str:
    return importlib.metadata.version("deltalake")


def create(folder: Path) -> None:
    DeltaTable.create(str(folder), SCHEMA, configuration={"delta.checkpointInterval": "10"})


def open_writer(folder: Path) -> DeltaWriter:
    return DeltaWriter(folder)


def read_back(folder: Path) -> tuple[int, list[str]]:
    table = DeltaTable(str(folder))
    names = pa.table(table.get_add_actions(flatten=True)).column("path").to_pylist()
    history = [entry["version"] for entry in table.history()]
    assert sorted(history) == list(range(table.version() + 1)), "the log has gaps"
    return len(history) - 1, names


class DeltaWriter:
    def __init__(self, folder: Path) -> None:
        self.attempts: int | None = None
        self._uri = str(folder)

    def commit(self, file_name: str) -> None:
        add = AddAction(file_name, FILE_BYTES, {}, 0, data_change=True, stats=STATISTICS)
        try:
            DeltaTable(self._uri).create_write_transaction([add], "append", SCHEMA)
        except DeltaError as error:
            raise Refused(type(error).__name__) from error
