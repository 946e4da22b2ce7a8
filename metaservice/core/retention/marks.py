"""What is kept for a name: a tag is a version that stays, a cursor is a place after which everything stays.

    tag "2026-11"  at 7    version 7 stays whole, whatever its neighbours do
    cursor "etl"   at 7    7 and all that comes after it: the reader asks for (7, head] next

A tag stays until it is dropped. A cursor keeps what it needs for a while after its last use; unused for longer it keeps
nothing, but still knows its place: where that is still kept it goes on, and where not its reader is told so.
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
    """A reader's place: it has read all up to `version`, which is of the history `epoch`."""

    table_id: str
    name: str
    version: int
    keep_ms: int
    principal: Principal
    create_us: int
    used_us: int
    request_id: str = ""
    epoch: str = ""

    def left_ms(self, now_us: int) -> int:
        """How long it goes on keeping; 0: it keeps nothing."""
        return max(self.keep_ms - (now_us - self.used_us) // 1000, 0)


@dataclass(frozen=True, slots=True)
class CursorMove:
    """A cursor's step from where it is expected to stand."""

    table_id: str
    name: str
    expected: int
    version: int
    request_id: str = ""
