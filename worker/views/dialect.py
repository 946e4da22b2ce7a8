"""DuckDB's SQL as sqlglot parses and writes it for views."""

from __future__ import annotations

from typing import Final

from sqlglot.dialects.duckdb import DuckDB


class DuckDBAsWritten(DuckDB):
    """Indexes stay as they are written.

    sqlglot counts all of them from 0 and writes them from 1, but only where it believes that a list is indexed; what it
    believes changes between parsing and writing: `list[k]` came out as `list[k + 1]`, and `map[1]` as `map[0]`.
    """

    INDEX_OFFSET = 0


DIALECT: Final = DuckDBAsWritten
