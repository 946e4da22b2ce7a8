"""Other people's readers of Iceberg metadata: rows as a pyarrow.Table."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import duckdb
import pytest

EXTENSIONS: Final = ("httpfs", "avro", "iceberg")


def read_pyiceberg(metadata: str, **scan: Any) -> Any:
    static = pytest.importorskip("pyiceberg.table", reason="pyiceberg is not installed").StaticTable
    return static.from_metadata(metadata).scan(**scan).to_arrow()


def read_duckdb(metadata: str) -> Any:
    with duckdb_of_iceberg() as connection:
        return connection.execute(f"SELECT * FROM iceberg_scan('{metadata}')").to_arrow_table()


def duckdb_of_iceberg() -> duckdb.DuckDBPyConnection:
    """Open a DuckDB that reads Iceberg. Each of its extensions is a package, for one version of DuckDB."""
    found = {name: extension_of(name) for name in EXTENSIONS}
    if missing := [name for name, path in found.items() if path is None]:
        pytest.skip(f"DuckDB {duckdb.__version__} has no extension {missing[0]} here")
    # To check the signatures of 84 MB takes 0.4 s of a processor at each start.
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false", "allow_unsigned_extensions": "true"})
    for path in found.values():
        connection.execute(f"LOAD '{path}'")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def extension_of(name: str) -> Path | None:
    package = find_spec(f"duckdb_extension_{name}")
    if package is None or not package.submodule_search_locations:
        return None
    place = Path(package.submodule_search_locations[0]) / "extensions" / f"v{duckdb.__version__}"
    path = place / f"{name}.duckdb_extension"
    return path if path.is_file() else None
