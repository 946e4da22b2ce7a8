"""Tables of Parquet files that many jobs write at once: `lake = laketx.connect("./warehouse")`.

Everything that a program needs is here; `docs/python-api.md` lists it. A name is loaded when it is first asked for, so
the metadata client and the errors work where Spark isn't installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from laketx.branch import Branch, MergedTable, MergeRefusedError, TableDiff
    from laketx.change_streams import AppliedChanges
    from laketx.connection import connect
    from laketx.history import HistoryEntry
    from laketx.lake import Lake
    from laketx.materialized_view import MaterializedView
    from laketx.schema import Schema
    from laketx.table import Table
    from metaservice.client import (
        AlreadyExistsError,
        BlockedError,
        CommitOutcomeUnknownError,
        ConflictError,
        CorruptError,
        Credentials,
        DeniedError,
        ErrorKind,
        ExhaustedError,
        GoneError,
        InvalidError,
        LakeTXError,
        MetaClient,
        MetaServiceError,
        NotFoundError,
        StaleError,
        Transaction,
        UnauthenticatedError,
        UnavailableError,
        uuid7,
    )
    from worker.base.errors import InputError
    from worker.commit.writes import Commit

    __version__: str

__all__ = [
    "AlreadyExistsError",
    "AppliedChanges",
    "BlockedError",
    "Branch",
    "Commit",
    "CommitOutcomeUnknownError",
    "ConflictError",
    "CorruptError",
    "Credentials",
    "DeniedError",
    "ErrorKind",
    "ExhaustedError",
    "GoneError",
    "HistoryEntry",
    "InputError",
    "InvalidError",
    "Lake",
    "LakeTXError",
    "MaterializedView",
    "MergeRefusedError",
    "MergedTable",
    "MetaClient",
    "MetaServiceError",
    "NotFoundError",
    "Schema",
    "StaleError",
    "Table",
    "TableDiff",
    "Transaction",
    "UnauthenticatedError",
    "UnavailableError",
    "__version__",
    "connect",
    "uuid7",
]

_HOMES: Final = {
    "AppliedChanges": "laketx.change_streams",
    "Branch": "laketx.branch",
    "Commit": "worker.commit.writes",
    "HistoryEntry": "laketx.history",
    "InputError": "worker.base.errors",
    "Lake": "laketx.lake",
    "MergeRefusedError": "laketx.branch",
    "MaterializedView": "laketx.materialized_view",
    "MergedTable": "laketx.branch",
    "Schema": "laketx.schema",
    "Table": "laketx.table",
    "TableDiff": "laketx.branch",
    "connect": "laketx.connection",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("laketx")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_HOMES.get(name, "metaservice.client")), name)
    except ModuleNotFoundError as error:
        message = f"laketx.{name} needs {error.name}: pip install 'laketx[arrow]', or 'laketx[spark]' for Spark as well"
        raise ModuleNotFoundError(message, name=error.name) from error


def __dir__() -> list[str]:
    return __all__
