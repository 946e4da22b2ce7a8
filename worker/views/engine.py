"""DuckDB as the engine of views: runs the text of a plan over Arrow tables that it is given, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import pyarrow as pa

from worker.base.errors import InputError
from worker.base.lazy_modules import LazyModule
from worker.views.operators import quoted

if TYPE_CHECKING:
    import duckdb
else:
    duckdb = LazyModule("duckdb")

ARROW: Final = "arrow:"
SCHEMAS_KEPT: Final = 1_000
SETTINGS: Final = (
    "SET GLOBAL TimeZone = 'UTC'",
    "SET GLOBAL python_enable_replacements = false",
    "SET GLOBAL enable_external_access = false",
    "SET GLOBAL lock_configuration = true",
)


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """The process's database: it is made once, since that takes longer than a small query."""
    try:
        database = duckdb.connect(":memory:")
    except ModuleNotFoundError:
        raise InputError("DUCKDB_MISSING", "views need DuckDB: pip install 'laketx[views]'") from None
    for setting in SETTINGS:
        database.execute(setting)
    return database


class Engine:
    """A session of DuckDB in memory, in UTC, without access to files and the network.

    with Engine() as engine:
        engine.add("shop.orders@to", rows)
        engine.run('SELECT count(*) AS n FROM "shop.orders@to"')
    """

    def __init__(self) -> None:
        self._from = _database()
        self._session = self._from.cursor()
        self._added: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._session.close()

    def add(self, name: str, rows: pa.Table) -> None:
        """Make rows readable under a name.

        A comparison with a float of an Arrow table is computed by Arrow, for which NaN is not the greatest value and
        0.0 in a list is not -0.0. With signs that cancel each other DuckDB computes it, here as in any other place.
        """
        floats = [field.name for field in rows.schema if pa.types.is_floating(field.type)]
        if name in self._added:
            self.run(f"DROP VIEW IF EXISTS {quoted(name)}")
        self._added.add(name)
        if not floats:
            self._session.register(name, rows)
            return
        self._session.register(f"{ARROW}{name}", rows)
        columns = ", ".join(f"-(-{quoted(each)}) AS {quoted(each)}" for each in floats)
        self.run(
            f"CREATE OR REPLACE TEMP VIEW {quoted(name)} AS SELECT * REPLACE ({columns}) FROM {quoted(ARROW + name)}"
        )

    def run(self, text: str) -> pa.Table:
        """Return the rows of a query. Raises InputError with DuckDB's words if it fails."""
        try:
            return self._session.execute(text).to_arrow_table()
        except duckdb.Error as error:
            if isinstance(error, duckdb.InternalException | duckdb.FatalException) and _database() is self._from:
                _database.cache_clear()  # it runs nothing any more: the next session has a new one
            raise InputError("VIEW_QUERY_FAILED", str(error).strip()) from error

    def keep(self, name: str, text: str) -> dict[str, str]:
        """Keep the rows of a query under a name as long as the session; return the types of its columns."""
        self.run(f"CREATE TEMP TABLE {quoted(name)} AS {text}")
        return self.types_of(name)

    def types_of(self, name: str) -> dict[str, str]:
        """Return the types of the columns of a relation in DuckDB's words."""
        rows = self.run(f"DESCRIBE {quoted(name)}").to_pylist()
        return {row["column_name"]: row["column_type"] for row in rows}


@lru_cache(SCHEMAS_KEPT)
def types_in(schema: pa.Schema) -> Mapping[str, str]:
    """Return the types of columns in DuckDB's words."""
    with Engine() as engine:
        engine.add("described", schema.empty_table())
        return engine.types_of("described")


def matches(left: str, right: str, names: Iterable[str]) -> str:
    """Return the condition that two rows are the same; NULL is a value like others."""
    return " AND ".join(f"{left}.{quoted(name)} IS NOT DISTINCT FROM {right}.{quoted(name)}" for name in names)


def run_with(relations: Mapping[str, pa.Table], text: str) -> pa.Table:
    """Return the rows of a query over these tables."""
    with Engine() as engine:
        for name, rows in relations.items():
            engine.add(name, rows)
        return engine.run(text)
