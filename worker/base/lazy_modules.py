"""Modules that need Spark or take long to load, named where they are used and loaded with the first use.

    if TYPE_CHECKING:
        from worker.dataframes import scan
    else:
        scan = LazyModule("worker.dataframes.scan")

Tables are read and written without Spark, and a program that does only this shouldn't load it, nor need it. Nor should
one that reads a few rows wait for pyarrow.compute, which takes longer to load than they take to read. The import for
types keeps the types and the import contracts true.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any, Final

from worker.base.errors import InputError

SPARK: Final = ("pyspark", "py4j")
WRITES: Final = "append, upsert, overwrite and delete write without it"
CHANGES: Final = f"{WRITES}, a delete by keys or by a plain condition; update and merge where expressions are plain"
INSTEAD: Final = {  # by module: what does the same, or nearly so, without Spark
    "worker.dataframes.scan": "to_arrow, to_pandas and to_polars read a version without it",
    "worker.dataframes.changes": "to_arrow(since=…, mode=…), of a cursor cursor.to_arrow(…), has the rows without it",
    "laketx.spark_rows": WRITES,
    "worker.dataframes.frame_writes": WRITES,
    "worker.dataframes.catalog_changes": CHANGES,
    "worker.dataframes.catalog_writes": CHANGES,
    "worker.dataframes.export": "`laketx export` and to_batches need none",
    "worker.connection.defaults": "a plain constant, such as 0 or 'new', is a default without it",
    "worker.spark.column_types": "columns are also words, such as 'id bigint', or a schema of Arrow",
    "worker.services.compaction.spark_executors": "without --spark compactions run in processes of this machine",
}
ELSE: Final = "docs/arrow.md has what works without it"


class LazyModule(ModuleType):
    """Stands for a module, and loads it when a name in it is asked for."""

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(import_module(self.__name__), name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in SPARK:
                raise
            instead = INSTEAD.get(self.__name__, ELSE)
            raise InputError("SPARK_MISSING", f"this needs Spark: pip install 'laketx[spark]'; {instead}") from error
