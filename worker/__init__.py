"""The Spark side: `connect` opens a lake, whose tables are read, written and changed with DataFrames."""

from worker.errors import ConflictError, InputError
from worker.lake import Lake, connect
from worker.table import HistoryEntry, Table
from worker.transaction import Commit

__all__ = ["Commit", "ConflictError", "HistoryEntry", "InputError", "Lake", "Table", "connect"]
