"""Tags and cursors: a tag keeps a version, a cursor keeps everything after its position.

    tag "2026-11"  at 7    version 7 stays complete, whatever happens to its neighbours
    cursor "etl"   at 7    7 and everything after it: the reader asks for (7, head] next

A tag stays until it is dropped. A cursor keeps what it needs for a while after its last use. Unused for longer, it
keeps nothing but remembers its position: if that is still kept its reader continues, and otherwise gets an error.
"""

from __future__ import annotations

from dataclasses import dataclass

from metaservice.core.table.model import Principal


@dataclass(frozen=True, slots=True)
class Tag:
    """A named version."""

    table_id: str
    name: str
    version: int
    comment: str
    principal: Principal
    create_us: int


@dataclass(frozen=True, slots=True)
class Cursor:
    """A reader's position: it has read everything up to `version` of the history `epoch`."""

    table_id: str
    name: str
    version: int
    keep_ms: int
    principal: Principal
    create_us: int
    used_us: int
    request_id: str = ""
    epoch: str = ""
    inherited: int = -1  # where a branch found a cursor of its parent; -1: it was made where it is
    holds: str = ""  # then the table of the parent with the versions that it needs

    def left_ms(self, now_us: int) -> int:
        """How long it will keep, if unused; 0: it keeps nothing."""
        return max(self.keep_ms - (now_us - self.used_us) // 1000, 0)


@dataclass(frozen=True, slots=True)
class CursorMove:
    """A cursor's move from an expected position."""

    table_id: str
    name: str
    expected: int
    version: int
    request_id: str = ""
