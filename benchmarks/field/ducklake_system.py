"""DuckLake by DuckDB's Python client, with rows that go in and come out as Arrow.

Set as its documents and maintainers say: SQLite with a write-ahead log and a time to wait for its lock, more retries
than the default of 10 for writers that meet. Up to 10 rows of a commit go to the catalog, by default. Deletion
vectors are experimental, and off by default. It has no keys: MERGE INTO upserts.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa

from benchmarks.field.system import PART, SCHEMAS, Kind, Mode, Place
from benchmarks.peers.port import Refused
from tests.iceberg.readers import extension_of

EXTENSIONS = {"DuckDB file": (), "SQLite": ("sqlite_scanner",), "PostgreSQL": ("postgres_scanner",)}
SETTINGS = (
    "SET TimeZone = 'UTC'",
    "SET ducklake_max_retry_count = 100",
    "SET enable_progress_bar = false",
)
TYPES = {
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.timestamp("us", "UTC"): "TIMESTAMPTZ",
}


def open_system(place: Place) -> DuckLake:
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    for name in ("ducklake", *EXTENSIONS[place.system.removeprefix("DuckLake in ").removeprefix("a ")]):
        connection.execute(f"LOAD '{extension_of(name)}'")
    for setting in SETTINGS:
        connection.execute(setting)
    catalog, options = _catalog(place)
    connection.execute(f"ATTACH 'ducklake:{catalog}' AS lake (DATA_PATH '{place.folder}/files'{options})")
    return DuckLake(connection, "threads" if place.system.endswith("DuckDB file") else "processes")


def _catalog(place: Place) -> tuple[str, str]:
    """Return the address of the catalog, and options of ATTACH."""
    if place.system.endswith("SQLite"):
        return f"sqlite:{place.folder}/catalog.sqlite", ", META_JOURNAL_MODE 'WAL', META_BUSY_TIMEOUT 5000"
    if place.system.endswith("PostgreSQL"):
        return f"postgres:{place.postgres}", ""
    return f"{place.folder}/catalog.ducklake", ""


class DuckLake:
    def __init__(self, connection: duckdb.DuckDBPyConnection, writers: Mode) -> None:
        self._connection = connection
        self.writers = writers

    def create(self, table: str, kind: Kind) -> None:
        columns = ", ".join(f"{field.name} {TYPES[field.type]}" for field in SCHEMAS[kind])
        self._connection.execute("CALL lake.set_option('parquet_compression', 'zstd')")
        self._connection.execute(f"CREATE TABLE lake.{table} ({columns})")
        if kind == "parts":
            self._connection.execute(f"ALTER TABLE lake.{table} SET PARTITIONED BY ({PART})")

    def append(self, table: str, rows: pa.Table) -> None:
        self._change(f"INSERT INTO lake.{table} SELECT * FROM source", rows)

    def upsert(self, table: str, rows: pa.Table) -> None:
        matches = f"MERGE INTO lake.{table} USING source USING (id)"
        self._change(f"{matches} WHEN MATCHED THEN UPDATE WHEN NOT MATCHED THEN INSERT", rows)

    def delete(self, table: str, low: float, high: float) -> None:
        self._change(f"DELETE FROM lake.{table} WHERE amount >= {low} AND amount < {high}")

    def increment(self, table: str, row_id: int) -> None:
        self._change(f"UPDATE lake.{table} SET v = v + 1 WHERE id = {row_id}")

    def head(self, table: str) -> int:  # noqa: ARG002 - versions are the lake's
        (version,) = self._connection.execute("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')").fetchall()[0]
        assert isinstance(version, int)
        return version

    def read(
        self, table: str, columns: Sequence[str] | None = None, version: int | None = None, row_id: int | None = None
    ) -> pa.Table:
        query = f"SELECT {', '.join(columns or ['*'])} FROM lake.{table}"
        if version is not None:
            query += f" AT (VERSION => {version})"
        if row_id is not None:
            query += f" WHERE id = {row_id}"
        return self._connection.execute(query).to_arrow_table()

    def count_files(self, table: str) -> int:
        return len(self._connection.execute(f"FROM ducklake_list_files('lake', '{table}')").fetchall())

    def beside(self) -> DuckLake:
        return DuckLake(self._connection.cursor(), self.writers)

    def _change(self, statement: str, source: pa.Table | None = None) -> None:
        if source is not None:
            self._connection.register("source", source)
        try:
            self._connection.execute(statement)
        except duckdb.Error as error:
            raise Refused(type(error).__name__) from error
