"""Which views read which tables: the edges between tables, and the way up and down from one of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from protos.laketx.v1 import catalog_pb2
from worker.views.definition import QUERY, SOURCES

READS, READ_BY = "reads", "read by"
DROPPED: Final = "(dropped)"


@dataclass(frozen=True, slots=True)
class ViewRead:
    """A view and a table that it reads, which can be a view, too; `columns` are those of the table that the query uses.

    In the lineage of a table, `direction` says whether the table reads it or is read by it, and `steps` how far away.
    """

    view: str
    source: str
    columns: Sequence[str]
    direction: str = ""
    steps: int = 0


def view_reads(tables: Iterable[catalog_pb2.Table]) -> list[ViewRead]:
    """Return what the views among tables read, under the names of today."""
    by_id = {table.table_id: table for table in tables}
    reads = []
    for view in by_id.values():
        sources = json.loads(view.properties.get(SOURCES, "") or "{}") if view.properties.get(QUERY) else {}
        for written, source in sources.items():
            table = by_id.get(source["id"])
            names = {column.column_id: column.name for column in table.columns} if table is not None else {}
            columns = [names.get(column_id, f"{name} {DROPPED}") for name, column_id in source["columns"].items()]
            reads.append(ViewRead(view.name, f"{written} {DROPPED}" if table is None else table.name, sorted(columns)))
    return sorted(reads, key=lambda read: (read.view, read.source))


def lineage_of(reads: Iterable[ViewRead], name: str) -> list[ViewRead]:
    """Return what a table reads and what reads it, directly and by way of views, the nearest first."""
    edges = list(reads)
    return [
        *_walked(edges, name, READS, lambda read: (read.view, read.source)),
        *_walked(edges, name, READ_BY, lambda read: (read.source, read.view)),
    ]


def _walked(
    edges: Sequence[ViewRead], name: str, direction: str, ends_of: Callable[[ViewRead], tuple[str, str]]
) -> list[ViewRead]:
    """The edges from a table in a direction, each once, by how many steps away they end."""
    walked: list[ViewRead] = []
    seen, names, steps = {name}, {name}, 0
    while names:
        steps += 1
        nearest = [read for read in edges if ends_of(read)[0] in names]
        walked += [replace(read, direction=direction, steps=steps) for read in nearest]
        names = {ends_of(read)[1] for read in nearest} - seen
        seen |= names
    return walked
