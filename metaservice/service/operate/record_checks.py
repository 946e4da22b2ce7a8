"""Checks of single records: inlined rows, tags and cursors, external files, and the row ids of files.

Two indexes have external files: each entry is in them, and each of their keys has its entry.

imports         live external entries by what tells files from each other: a file is live once
foreign uses    external entries, live or past, that lie in the folder of a table: the purge keeps their files
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from metaservice.core.retention.marks import Cursor as Mark
from metaservice.core.retention.marks import Tag
from metaservice.core.table.inlined import Inlined
from metaservice.core.table.model import Entry
from metaservice.service.operate.replay import Indexed, list_indexed
from metaservice.store import entry_keys, keys
from metaservice.store.external_files import import_of, names_of
from metaservice.store.port import StoreCursor, prefix_end
from metaservice.store.records.retention import decode_cursor, decode_tag
from metaservice.store.records.tables import decode_live

Decode = Callable[[bytes, bytes], Tag | Mark]
FAMILIES: tuple[tuple[bytes, str, Decode], ...] = (
    (keys.TAGS, "tag", decode_tag),
    (keys.CURSORS, "cursor", decode_cursor),
)
Problem = Callable[..., None]
Count = Callable[[], bool]


def check_inlined(
    cursor: StoreCursor, raw_id: bytes, own_from: int, problem: Callable[..., None], count: Callable[[], bool]
) -> Iterator[None]:
    """Check inlined rows. Tables that never had any aren't read again. A fork counts what it added after its base."""
    counted = cursor.get(keys.inlined_count_key(raw_id))
    prefix = keys.inlined_prefix(raw_id)
    if counted is None and next(iter(cursor.scan(prefix, prefix_end(prefix))), None) is None:
        return
    name = keys.uuid_text(raw_id)
    rows = size_bytes = 0
    for indexed in list_indexed(cursor, raw_id):
        if isinstance(indexed, Indexed) and indexed.entry.inlined:
            if cursor.get(keys.inlined_key(raw_id, indexed.entry.path)) is None:
                problem(
                    "INLINED_ROWS_MISSING",
                    table=name,
                    path=indexed.entry.path,
                    added=indexed.added,
                    removed=indexed.removed,
                )
            if not indexed.removed and (indexed.added > own_from or not own_from):
                rows += indexed.entry.rows
                size_bytes += indexed.entry.size_bytes
        if count():
            yield
    stored = Inlined() if counted is None else Inlined(*keys.decode_counts(counted))
    if (stored.rows, stored.size_bytes) != (rows, size_bytes):
        problem(
            "INLINED_COUNT_WRONG", table=name, rows=rows, bytes=size_bytes, counted=f"{stored.rows}/{stored.size_bytes}"
        )


def check_marks(cursor: StoreCursor, problem: Callable[..., None], count: Callable[[], bool]) -> Iterator[None]:
    """Calls `problem` for each finding; a step ends where `count` says so."""
    for family, kind, decode in FAMILIES:
        for key, raw in cursor.scan(family, prefix_end(family)):
            _check(cursor, problem, kind, key, raw, decode)
            if count():
                yield


def _check(
    cursor: StoreCursor, problem: Callable[..., None], kind: str, key: bytes, raw: bytes, decode: Decode
) -> None:
    raw_id = keys.table_of_mark(key)
    table = keys.uuid_text(raw_id)
    try:
        mark = decode(key, raw)
    except Exception as error:  # noqa: BLE001 - bytes can be wrong in any way
        problem("RECORD_UNREADABLE", table=table, record=kind, error=error)
        return
    commits = keys.commits_prefix(raw_id)
    last = next(iter(cursor.scan_back(commits, prefix_end(commits))), None)
    if last is None:
        if cursor.get(keys.drop_begun_key(raw_id)) is None:  # else its records go, one after the other
            problem("MARK_WITHOUT_TABLE", table=table, kind=kind, name=mark.name)
        return
    _, head = keys.split_versioned(last[0])
    if mark.version > head:
        problem("MARK_BEYOND_THE_HEAD", table=table, kind=kind, name=mark.name, version=mark.version, head=head)
    elif isinstance(mark, Tag) and cursor.get(keys.commit_key(raw_id, mark.version)) is None:
        problem("TAGGED_VERSION_MISSING", table=table, name=mark.name, version=mark.version)


def check_entry(cursor: StoreCursor, raw_id: bytes, indexed: Indexed, problem: Problem) -> None:
    """Checks that both indexes have an external entry."""
    entry = indexed.entry
    facts = {"table": keys.uuid_text(raw_id), "path": entry.path, "added": indexed.added}
    if not indexed.removed and cursor.get(import_of(raw_id, entry)) is None:
        problem("IMPORT_MISSING", **facts)
    for key in names_of(raw_id, entry, indexed.added):
        if cursor.get(key) is None:
            problem("FOREIGN_USE_MISSING", **facts, of=keys.uuid_text(key[1:17]))


def check_imports(cursor: StoreCursor, raw_id: bytes, problem: Problem, count: Count) -> Iterator[None]:
    """Checks that each import of a table belongs to a live external entry."""
    prefix = entry_keys.import_prefix(raw_id)
    for key, _ in cursor.scan(prefix, prefix_end(prefix)):
        if not _is_import(cursor, raw_id, key):
            problem("IMPORT_WITHOUT_ENTRY", table=keys.uuid_text(raw_id), key=key[17:].hex())
        if count():
            yield


def check_foreign_uses(cursor: StoreCursor, problem: Problem, count: Count) -> Iterator[None]:
    """Check that each file indexed as a foreign use has its entry, in all tables."""
    prefix = entry_keys.named_prefix(b"")
    for key, _ in cursor.scan(prefix, prefix_end(prefix)):
        try:
            path, holder, place, added = entry_keys.split_named(key)
            has_entry = cursor.get(keys.drop_begun_key(holder)) is not None or _is_held(cursor, holder, place, added)
        except (ValueError, struct.error) as error:
            problem("RECORD_UNREADABLE", record="foreign use", key=key.hex(), error=error)
            continue
        if not has_entry:
            facts = {"table": keys.uuid_text(holder), "of": keys.uuid_text(key[1:17]), "added": added}
            problem("FOREIGN_USE_WITHOUT_ENTRY", **facts, path=path.decode(errors="replace"))
        if count():
            yield


def _is_import(cursor: StoreCursor, raw_id: bytes, key: bytes) -> bool:
    raw = cursor.get(entry_keys.live_of_import(key))
    if raw is None:
        return False
    try:
        live, _ = decode_live(raw)
    except Exception:  # noqa: BLE001 - that it can't be read is told by the check of the index
        return True
    return live.entry.external and import_of(raw_id, live.entry) == key


def _is_held(cursor: StoreCursor, holder: bytes, place: bytes, added: int) -> bool:
    """Whether it is live since that version, or was live once."""
    live_key = entry_keys.live_prefix(holder) + place
    raw = cursor.get(live_key)
    if raw is not None:
        try:
            live, _ = decode_live(raw)
        except Exception:  # noqa: BLE001 - that it can't be read is told by the check of the index
            return True
        if live.added == added:
            return live.entry.external
    partition = entry_keys.partition_of(live_key)
    commits = keys.commits_prefix(holder)
    last = next(iter(cursor.scan_back(commits, prefix_end(commits))), None)
    head = keys.split_versioned(last[0])[1] if last is not None else added
    length = len(partition.encode())
    for start, end in entry_keys.span_ranges(holder, partition, added, head):
        for key, _ in cursor.scan(start, end):
            _, since, tail = entry_keys.decode_span(key, length)
            if (since, tail) == (added, place[length + 1 :]):
                return True
    return False


class Beside:
    """Pairs in order of their first number, walked in parallel with another sequence in the same order."""

    def __init__(self, pairs: Iterable[tuple[int, int]]) -> None:
        self._pairs = iter(pairs)
        self._next = next(self._pairs, None)

    def skip_to(self, number: int) -> int:
        """Skips the pairs below a number; returns how many there were."""
        skipped = 0
        while self._next is not None and self._next[0] < number:
            self._next = next(self._pairs, None)
            skipped += 1
        return skipped

    def take(self, number: int) -> list[int]:
        """Returns the second numbers of the pairs with this first number."""
        numbers = []
        while self._next is not None and self._next[0] == number:
            numbers.append(self._next[1])
            self._next = next(self._pairs, None)
        return numbers


class Ranges:
    """The ranges of row ids of live files, sixteen bytes each, and the highest id of all."""

    def __init__(self) -> None:
        self._first = array("q")
        self._rows = array("q")
        self.highest = 0

    def add(self, entry: Entry, *, live: bool) -> None:
        self.highest = max(self.highest, last_row_id(entry))
        if live and entry.rows:
            self._first.append(entry.first_row_id)
            self._rows.append(entry.rows)

    def overlaps(self) -> Iterator[tuple[int, int]]:
        """Yields the first ids of neighbours that share ids."""
        order = sorted(range(len(self._first)), key=self._first.__getitem__)
        for at, other in pairwise(order):
            if self._first[at] + self._rows[at] > self._first[other]:
                yield self._first[at], self._first[other]


def last_row_id(entry: Entry) -> int:
    return entry.first_row_id + entry.rows - 1 if entry.first_row_id and not entry.is_delete_set else 0
