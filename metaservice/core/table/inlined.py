"""Live rows that the store keeps itself, until a compaction writes them to files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from metaservice.core import limits
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.table.model import Entry, Live


@dataclass(frozen=True, slots=True)
class Inlined:
    """How many rows and bytes a table has inlined, and since when it has any."""

    rows: int = 0
    size_bytes: int = 0
    since_us: int = 0

    def after(self, added: Iterable[Live], removed: Iterable[Live], time_us: int) -> Inlined:
        """The counts after a commit."""
        rows, size_bytes = self.rows, self.size_bytes
        for live in added:
            if live.entry.inlined:
                rows += live.entry.rows
                size_bytes += live.entry.size_bytes
        for live in removed:
            if live.entry.inlined:
                rows -= live.entry.rows
                size_bytes -= live.entry.size_bytes
        if (rows, size_bytes) == (self.rows, self.size_bytes):
            return self
        return Inlined(rows, size_bytes, self.since_us or time_us) if size_bytes else Inlined()


def check_inlined(entries: Iterable[Entry], table: str, inlined: Inlined, all_bytes: int, most_bytes: int) -> None:
    """Refuses more inlined rows while too many of the table, or of all tables, wait for a compaction."""
    rows = size_bytes = 0
    for entry in entries:
        if entry.inlined:
            rows += entry.rows
            size_bytes += entry.size_bytes
    if not size_bytes:
        return
    advice = "compact it (minor), or write files: set write.inline.rows to 0"
    if inlined.rows + rows > limits.INLINED_TABLE_ROWS_MAX:
        raise _refusal(f"{table} has {inlined.rows} inlined rows: {advice}", limits.INLINED_TABLE_ROWS_MAX, table)
    if inlined.size_bytes + size_bytes > limits.INLINED_TABLE_BYTES_MAX:
        text = f"{table} has {inlined.size_bytes} bytes of inlined rows: {advice}"
        raise _refusal(text, limits.INLINED_TABLE_BYTES_MAX, table)
    if all_bytes + size_bytes > most_bytes:
        text = f"all tables together have {all_bytes} bytes of inlined rows: compact them (minor), or write files"
        raise _refusal(text, most_bytes)


def _refusal(text: str, most: int, table: str | None = None) -> MetaError:
    if table is None:
        return MetaError(ErrorKind.EXHAUSTED, "TOO_MANY_INLINED_ROWS", text, most=most)
    return MetaError(ErrorKind.EXHAUSTED, "TOO_MANY_INLINED_ROWS", text, most=most, table=table)
