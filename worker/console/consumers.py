"""Consumers: cursors, streams and views that read increments, and how far each is behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from protos.laketx.v1 import catalog_pb2, read_pb2
from worker.console.visits import LIVE_SERVICE, Shown, TableNames, Visit, commit_time_us, taken

CURSORS_MAX: Final = 1_000
SHOWN: Final = 200
TIMED_MAX: Final = 100  # of those that are behind: each costs a call
STREAM, VIEW = "stream-", "view-"  # how the names of their cursors begin


@dataclass(frozen=True, slots=True)
class Consumer:
    """A cursor with its lag. `behind_us` is the age of the oldest commit that it has not read; None: not known."""

    cursor: read_pb2.Cursor
    table: catalog_pb2.Table
    kind: str
    name: str  # of a view its own, otherwise the cursor's
    behind: int
    behind_us: int | None


def kind_of(cursor: read_pb2.Cursor) -> str:
    if cursor.name.startswith(STREAM):
        return "stream"
    return "view" if cursor.name.startswith(VIEW) else "cursor"


def show(visit: Visit) -> Shown:
    client, names = visit.client, TableNames(visit.client)
    cursors, has_more = taken(client.list_cursors(), CURSORS_MAX)
    pairs = [(cursor, table) for cursor in cursors if (table := names.table(cursor.table_id)) is not None]
    pairs.sort(key=lambda pair: (pair[0].version - pair[1].head_version, pair[1].name, pair[0].name))
    consumers = []
    for at, (cursor, table) in enumerate(pairs[:SHOWN]):
        behind = max(table.head_version - cursor.version, 0)
        behind_us: int | None = None if behind else 0
        if behind and at < TIMED_MAX:
            oldest_us = commit_time_us(client, table.table_id, cursor.version + 1)
            behind_us = max(visit.now_us - oldest_us, 0) if oldest_us else None
        kind = kind_of(cursor)
        name = names[cursor.name.removeprefix(VIEW)] if kind == "view" else ""
        consumers.append(Consumer(cursor, table, kind, name or cursor.name, behind, behind_us))
    facts = {
        "consumers": consumers,
        "has_more": has_more or len(pairs) > SHOWN,
        "is_behind": sum(each.behind > 0 for each in consumers),
        "longest_us": max((each.behind_us or 0 for each in consumers), default=0),
        "most": max((each.behind for each in consumers), default=0),
    }
    return Shown("consumers.html", facts, live=LIVE_SERVICE)
