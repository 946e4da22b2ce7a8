"""The Spark side: `connect` opens a lake, whose tables are read, written and changed with DataFrames.

Spark is loaded with the first name that is asked for: what works on files alone does without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from worker.api.lake import Lake, connect
    from worker.api.table import HistoryEntry, Table
    from worker.base.errors import ConflictError, InputError
    from worker.write.transaction import Commit

__all__ = ["Commit", "ConflictError", "HistoryEntry", "InputError", "Lake", "Table", "connect"]

_HOMES: Final = {
    "Commit": "worker.write.transaction",
    "ConflictError": "worker.base.errors",
    "HistoryEntry": "worker.api.table",
    "InputError": "worker.base.errors",
    "Lake": "worker.api.lake",
    "Table": "worker.api.table",
    "connect": "worker.api.lake",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
