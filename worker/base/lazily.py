"""Modules that need Spark or take long to load, named where they are used and loaded with the first use.

    if TYPE_CHECKING:
        from worker.read import scan
    else:
        scan = LazyModule("worker.read.scan")

Tables are read and written without Spark, and a program that does only this shouldn't load it, nor need it. Nor should
one that reads a few rows wait for pyarrow.compute, which takes longer to load than they take to read. The import for
types keeps the types and the import contracts true.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from worker.base.errors import InputError

SPARK = ("pyspark", "py4j")


class LazyModule(ModuleType):
    """Stands for a module, and loads it when a name in it is asked for."""

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(import_module(self.__name__), name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in SPARK:
                raise
            raise InputError("SPARK_MISSING", "this needs Spark: pip install 'laketx[spark]'") from error
