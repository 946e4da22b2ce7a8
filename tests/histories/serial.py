"""Who depends on whom, and cycles that a profile promises not to have. Pure.

    ww   mine wrote a row, theirs was the next to write it          mine came before theirs
    wr   mine wrote a row, theirs found what it wrote               mine came before theirs
    rw   mine searched, theirs wrote a row since that matches       mine came before theirs: it hadn't seen it

A cycle means that no serial order explains what everybody read: a lost update is one of ww and rw on one row, write
skew one of two rw, a phantom an rw by a row that wasn't there.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from tests.histories.history import OVERWRITE, History, Image, Part, Replayed, Row, Written


@dataclass(frozen=True, slots=True)
class Edge:
    """`before` came before `after`, by what happened to a row."""

    before: str
    after: str
    kind: str
    table: str
    row: Row

    def __str__(self) -> str:
        return f"{self.before} -{self.kind} {self.table} {'/'.join(self.row)}-> {self.after}"


def check_serial(history: History, tables: Mapping[str, Replayed]) -> Iterator[str]:
    """What the profile promises of orders."""
    edges = [edge for table, replayed in tables.items() for edge in edges_of(history, table, replayed)]
    if history.profile == "maxcompute":
        yield from lost_updates(history, edges)
        return
    counted = [edge for edge in edges if counts(history, edge)]
    for cycle in cycles(counted):
        yield f"no serial order under {history.profile}: " + ", ".join(map(str, cycle))


def counts(history: History, edge: Edge) -> bool:
    """Readers have no place in the order of writers; delta_write_serializable lets a blind append be overlooked."""
    if not (history.txns[edge.before].changes_rows and history.txns[edge.after].changes_rows):
        return False
    may_overlook = history.profile == "delta_write_serializable" and edge.table not in history.keyed
    return not (may_overlook and edge.kind == "rw" and history.txns[edge.after].is_blind_append)


def lost_updates(history: History, edges: list[Edge]) -> Iterator[str]:
    """Of maxcompute: nobody writes a row that another one wrote since it was read, but an overwrite, which may."""
    next_writes = {(edge.before, edge.after, edge.table, edge.row): edge for edge in edges if edge.kind == "ww"}
    for edge in edges:
        back = next_writes.get((edge.after, edge.before, edge.table, edge.row))
        may = history.txns[edge.before].parts[edge.table].kind == OVERWRITE
        if edge.kind == "rw" and back is not None and not may:
            yield f"lost update: {edge}, {back}"


def edges_of(history: History, table: str, replayed: Replayed) -> Iterator[Edge]:
    by_row: dict[Row, list[Written]] = {}
    for write in replayed.writes:
        by_row.setdefault(write.row, []).append(write)
    for row, writes in by_row.items():
        for first, then in pairwise(writes):
            if first.txn_id != then.txn_id:
                yield Edge(first.txn_id, then.txn_id, "ww", table, row)
    committed = {logged.txn_id for logged in history.logs[table]}
    for txn in history.txns.values():
        part = txn.parts.get(table)
        if part is not None and txn.txn_id in committed:
            yield from read_edges(txn.txn_id, part, by_row)


def read_edges(reader: str, part: Part, by_row: Mapping[Row, list[Written]]) -> Iterator[Edge]:
    """Of each row that a search concerns: the last writer before, the first one after; ww joins the rest."""
    if not part.searches:
        return
    for row, writes in by_row.items():
        found = [one for one in writes if one.txn_id != reader and found_by(part, row, one.before, one.after)]
        seen = [write for write in found if write.version <= part.read_version]
        since = [write for write in found if write.version > part.read_version]
        if seen:
            yield Edge(seen[-1].txn_id, reader, "wr", part.table, row)
        if since:
            yield Edge(reader, since[0].txn_id, "rw", part.table, row)


def found_by(part: Part, row: Row, *images: Image | None) -> bool:
    return any(search.matches(row, image) for search in part.searches for image in images)


# -- cycles ------------------------------------------------------------------------------------------------------------


def cycles(edges: list[Edge]) -> Iterator[list[Edge]]:
    """A short one for each knot of transactions that depend on each other."""
    ahead: dict[str, dict[str, Edge]] = {}
    for edge in edges:
        ahead.setdefault(edge.before, {}).setdefault(edge.after, edge)
        ahead.setdefault(edge.after, {})
    for knot in knots(ahead):
        inside = {one: {to: edge for to, edge in ahead[one].items() if to in knot} for one in knot}
        yield min((shortest(inside, start) for start in sorted(knot)[:20]), key=len)


def knots(ahead: Mapping[str, Mapping[str, Edge]]) -> Iterator[frozenset[str]]:
    """Sets of more than one in which everybody is before everybody."""
    behind: dict[str, list[str]] = {one: [] for one in ahead}
    for one, to in ahead.items():
        for other in to:
            behind[other].append(one)
    taken: set[str] = set()
    for start in reversed(in_order_of_end(ahead)):
        knot, waiting = set[str](), [start]
        while waiting:
            one = waiting.pop()
            if one not in taken:
                taken.add(one)
                knot.add(one)
                waiting += behind[one]
        if len(knot) > 1:
            yield frozenset(knot)


def in_order_of_end(ahead: Mapping[str, Mapping[str, Edge]]) -> list[str]:
    """Depth first: whoever is left last stands last."""
    ended: list[str] = []
    seen: set[str] = set()
    for start in ahead:
        path = [(start, iter(ahead[start]))] if start not in seen else []
        seen.add(start)
        while path:
            one, rest = path[-1]
            other = next((each for each in rest if each not in seen), None)
            if other is None:
                ended.append(one)
                path.pop()
            else:
                seen.add(other)
                path.append((other, iter(ahead[other])))
    return ended


def shortest(ahead: Mapping[str, Mapping[str, Edge]], start: str) -> list[Edge]:
    """From a transaction back to itself."""
    came: dict[str, Edge] = {}
    waiting = deque([start])
    while waiting:
        for other, edge in ahead[waiting.popleft()].items():
            if other not in came:
                came[other] = edge
                waiting.append(other)
            if other == start:
                path = [came[start]]
                while path[0].before != start:
                    path.insert(0, came[path[0].before])
                return path
    raise LookupError(f"{start} is in no cycle")
