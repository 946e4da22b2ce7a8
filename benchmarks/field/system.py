"""What a system gives to the process that measures it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol, cast

import pyarrow as pa

from benchmarks.arrow_data import ARROW

Kind = Literal["rows", "keyed", "commits", "counters", "parts"]
Mode = Literal["processes", "threads"]

LAKETX: Final = "LakeTX"
MODULES: Final[Mapping[str, str]] = {
    LAKETX: "benchmarks.field.laketx_system",
    "DuckLake in a DuckDB file": "benchmarks.field.ducklake_system",
    "DuckLake in SQLite": "benchmarks.field.ducklake_system",
    "DuckLake in PostgreSQL": "benchmarks.field.ducklake_system",
    "deltalake": "benchmarks.field.deltalake_system",
    "pyiceberg": "benchmarks.field.pyiceberg_system",
}
POSTGRES: Final = "DuckLake in PostgreSQL"
PART: Final = "part"
SCHEMAS: Final[Mapping[Kind, pa.Schema]] = {
    "rows": ARROW,
    "keyed": ARROW,
    "commits": ARROW,
    "counters": pa.schema([("id", pa.int64()), ("v", pa.int64())]),
    "parts": ARROW.append(pa.field(PART, pa.int64())),
}


@dataclass(frozen=True)
class Place:
    """Where a system keeps its tables."""

    system: str
    folder: Path
    postgres: str = ""  # the connection string of an empty database, for the system that needs it


class System(Protocol):
    """A client of a system. Tables are named by a word; `id` identifies a row in all of them."""

    writers: Mode  # several at once are processes, or threads of one

    def create(self, table: str, kind: Kind) -> None:
        """Make an empty table with the columns of SCHEMAS, partitioned by PART if it has that."""

    def append(self, table: str, rows: pa.Table) -> None: ...

    def upsert(self, table: str, rows: pa.Table) -> None:
        """Replace the rows with the same ids, insert the others; the table is of the kind "keyed"."""

    def delete(self, table: str, low: float, high: float) -> None:
        """Delete the rows whose amount is at least `low` and below `high`."""

    def increment(self, table: str, row_id: int) -> None:
        """Add 1 to `v` of a row. Raises Refused, and then hasn't."""

    def head(self, table: str) -> int:
        """Return the newest version."""

    def read(
        self, table: str, columns: Sequence[str] | None = None, version: int | None = None, row_id: int | None = None
    ) -> pa.Table:
        """Read the newest version, or an older one; all columns or some; all rows or one."""

    def count_files(self, table: str) -> int:
        """List the data files of the newest version."""

    def beside(self) -> System:
        """A client for one more thread, if writers are threads."""


class Module(Protocol):
    """A module of a system."""

    def open_system(self, place: Place) -> System: ...


def open_system(place: Place) -> System:
    """Import that system alone: every writer process pays for it."""
    return cast("Module", importlib.import_module(MODULES[place.system])).open_system(place)
