"""Forks: tables that begin with what another table, their base, held at a version.

A fork has records of its own only for what was committed to it. Every other record up to its base version is read from
the base: its commits, times, metadata, schemas, and the entries that were live then. A fork has a mask for each of
these entries that it takes out. So making a fork copies nothing.

The base may be a fork, too. `ForkedRecords` reads a store so; whoever writes or deletes records uses the store itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeVar

from metaservice.core.table.model import Entry
from metaservice.store import entry_keys, keys
from metaservice.store.port import Readable, StoreCursor, prefix_end
from metaservice.store.records.branches import EndedRecord, Fork, decode_ended_forks, decode_fork
from metaservice.store.records.plans import StoredEntry, decode_stored
from metaservice.store.records.tables import decode_live, encode_live

Value = TypeVar("Value")
Record = tuple[bytes, bytes]  # a key and its value

PREFIX_BYTES: Final = 17  # of a table's records: the family and the table's id
NUMBER_BYTES: Final = 8
INHERITED: Final = keys.INHERITED_FAMILIES


def list_forks(cursor: StoreCursor) -> dict[bytes, Fork]:
    """The forks of a store, by table."""
    records = cursor.scan(keys.FORKS, prefix_end(keys.FORKS))
    forks = {key[1:]: decode_fork(key[1:], raw) for key, raw in records}
    forks.update((ended.raw_id, decode_fork(ended.raw_id, ended.record)) for _, _, ended in list_ended(cursor))
    return forks


def list_ended(cursor: StoreCursor) -> Iterator[tuple[bytes, int, EndedRecord]]:
    """The forks that ended, but whose records are still those of before: with the key that says so, and when it was."""
    for key, raw in cursor.scan(keys.ENDED_FORKS, prefix_end(keys.ENDED_FORKS)):
        time_us, ended = decode_ended_forks(raw)
        for each in ended:
            if cursor.get(keys.dropped_key(each.raw_id)) is None:
                yield key, time_us, each


class ForkedRecords:
    """The records of a store, and for each fork those of its base."""

    def __init__(self, store: Readable, forks: Mapping[bytes, Fork]) -> None:
        self._store = store
        self._forks = forks

    def get(self, key: bytes) -> bytes | None:
        if key[1:PREFIX_BYTES] not in self._forks or key[:1] not in INHERITED:
            return self._store.get(key)
        return self.cursor().get(key)

    def cursor(self) -> StoreCursor:
        own = self._store.cursor()
        return ForkedCursor(own, self._forks) if self._forks else own


class ForkedCursor:
    """The same as of a moment."""

    def __init__(self, own: StoreCursor, forks: Mapping[bytes, Fork]) -> None:
        self._own = own
        self._forks = forks
        self._since: dict[Fork, list[Record]] = {}
        self._apart: dict[Fork, bool] = {}

    def get(self, key: bytes) -> bytes | None:
        fork = self._fork(key)
        family = key[:1]
        if fork is None or family not in INHERITED:
            return self._own.get(key)
        own = self._own.get(key)
        if own is not None:
            return own
        if family == keys.LIVE:
            return None if self._is_masked(key) else self._inherited_entry(fork, _moved(key, fork.base))
        if family == keys.OLDEST:
            of_base = self.get(_moved(key, fork.base))
            return None if of_base is None else min(of_base, keys.encode_version(fork.version))
        if family in (keys.INLINED, keys.APPS):
            return self.get(_moved(key, fork.base))
        has = _has(fork, family, key) and not (family in keys.OF_THE_LOG and self._is_apart(fork))
        return self.get(_moved(key, fork.base)) if has else None

    def scan(self, start: bytes, end: bytes) -> Iterator[Record]:
        fork = self._forked(start, end)
        if fork is None:
            return self._own.scan(start, end)
        return _overlaid(self._own.scan(start, end), self._inherited(fork, start, end))

    def scan_entries(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, StoredEntry]]:
        """A scan of live entries that parses each of them once."""
        own = ((key, decode_stored(raw)) for key, raw in self._own.scan(start, end))
        fork = self._forked(start, end)
        return own if fork is None else _overlaid(own, self._inherited_parsed(fork, start, end))

    def entries_until(self, version: int, start: bytes, end: bytes) -> Iterator[StoredEntry]:
        """The entries of such a scan that came with a version or before it."""
        if self._forked(start, end) is None:
            yield from live_entries(self._own, start, end, version)
            return
        for _, entry in self.scan_entries(start, end):
            if entry.added <= version:
                yield entry

    def scan_back(self, start: bytes, end: bytes) -> Iterator[Record]:
        fork = self._forked(start, end)
        if fork is None:
            return self._own.scan_back(start, end)
        if start[:1] in (keys.LIVE, keys.SPANS, keys.IMPORTS):
            return reversed(list(self.scan(start, end)))
        if start[:1] in keys.OF_THE_LOG and self._is_apart(fork):
            return self._own.scan_back(start, end)
        low, high = self._of_base(fork, start, end)
        older = ((_moved(key, fork.raw_id), raw) for key, raw in self.scan_back(low, high))
        both = merge(self._own.scan_back(start, end), older, key=itemgetter(0), reverse=True)
        return _first_of_each(both)

    def _fork(self, key: bytes) -> Fork | None:
        fork = self._forks.get(key[1:PREFIX_BYTES])
        return None if fork is None or fork.is_gone else fork

    def _forked(self, start: bytes, end: bytes) -> Fork | None:
        """The fork whose records a range is within, if there is one."""
        fork = self._fork(start)
        if fork is None or start[:1] not in keys.INHERITED_RANGES or end > prefix_end(start[:PREFIX_BYTES]):
            return None
        return fork

    def _inherited(self, fork: Fork, start: bytes, end: bytes) -> Iterator[Record]:
        family = start[:1]
        if family == keys.LIVE:
            yield from self._inherited_entries(fork, start, end)
            return
        if family == keys.IMPORTS:
            for key, raw in self.scan(_moved(start, fork.base), _end_of_base(fork, start, end)):
                if self.get(entry_keys.live_of_import(own := _moved(key, fork.raw_id))) is not None:
                    yield own, raw
            return
        if family in keys.OF_THE_LOG and self._is_apart(fork):
            return
        for key, raw in self.scan(*self._of_base(fork, start, end)):
            if _has(fork, family, key):
                yield _moved(key, fork.raw_id), raw

    def _of_base(self, fork: Fork, start: bytes, end: bytes) -> tuple[bytes, bytes]:
        """The range of the base's records, which ends where the fork began."""
        family, high = start[:1], _end_of_base(fork, start, end)
        if family == keys.SPANS:
            return _moved(start, fork.base), high
        last = {keys.TIMES: fork.time_us, keys.SCHEMAS: fork.schema_version}.get(family, fork.version)
        return _moved(start, fork.base), min(high, family + fork.base + keys.encode_version(last + 1))

    def _is_apart(self, fork: Fork) -> bool:
        """Whether the fork keeps no version as old as its base any more, and has lost the commits behind it."""
        if fork not in self._apart:
            oldest = self._own.get(keys.oldest_key(fork.raw_id))
            is_past = oldest is not None and keys.decode_version(oldest) > fork.version
            first = keys.commit_key(fork.raw_id, fork.version + 1)
            self._apart[fork] = is_past and self._own.get(first) is None
        return self._apart[fork]

    # -- the entries that were live at the base version

    def _is_masked(self, key: bytes) -> bool:
        return self._own.get(entry_keys.mask_of_live(key)) is not None

    def _inherited_entries(self, fork: Fork, start: bytes, end: bytes) -> Iterator[Record]:
        records = self.scan(_moved(start, fork.base), _end_of_base(fork, start, end))
        if self._has_moved(fork):
            records = (record for record in records if decode_stored(record[1]).added <= fork.version)
            records = _overlaid(self._taken_out_since(fork, start, end), records)
        return self._unmasked(fork, start, end, records)

    def _inherited_parsed(self, fork: Fork, start: bytes, end: bytes) -> Iterator[tuple[bytes, StoredEntry]]:
        records = self._parsed_until(fork.version, _moved(start, fork.base), _end_of_base(fork, start, end))
        if self._has_moved(fork):
            taken_out = ((key, decode_stored(raw)) for key, raw in self._taken_out_since(fork, start, end))
            records = _overlaid(taken_out, records)
        return self._unmasked(fork, start, end, records)

    def _parsed_until(self, version: int, start: bytes, end: bytes) -> Iterator[tuple[bytes, StoredEntry]]:
        """The entries of a range that came with a version or before it."""
        if self._forked(start, end) is None:
            for key, raw in self._own.scan(start, end):
                entry = decode_stored(raw)
                if entry.added <= version:
                    yield key, entry
        else:
            yield from (record for record in self.scan_entries(start, end) if record[1].added <= version)

    def _unmasked(
        self, fork: Fork, start: bytes, end: bytes, records: Iterator[tuple[bytes, Value]]
    ) -> Iterator[tuple[bytes, Value]]:
        """The base's records that the fork has not taken out, as its own."""
        masks = self._own.scan(entry_keys.mask_of_live(start), entry_keys.mask_of_live(end))
        masked = next(masks, None)
        head = start[:1] + fork.raw_id
        for key, value in records:
            own = head + key[PREFIX_BYTES:]
            if masked is not None:
                while masked is not None and masked[0][1:] < own[1:]:
                    masked = next(masks, None)
                if masked is not None and masked[0][1:] == own[1:]:
                    continue
            yield own, value

    def _has_moved(self, fork: Fork) -> bool:
        """Whether the base's newest commit is another one than the fork's base version."""
        commits = keys.commits_prefix(fork.base)
        newest = next(iter(self.scan_back(commits, prefix_end(commits))), None)
        return newest is None or newest[0] != keys.commit_key(fork.base, fork.version)

    def _taken_out_since(self, fork: Fork, start: bytes, end: bytes) -> Iterator[Record]:
        """What the base has taken out of a range since the fork began, as it was while it was live, in order."""
        return iter(self._taken_out(fork, _moved(start, fork.base), _end_of_base(fork, start, end)))

    def _taken_out(self, fork: Fork, low: bytes, high: bytes) -> Sequence[Record]:
        past = entry_keys.past_from(fork.base, fork.version + 1), prefix_end(entry_keys.past_prefix(fork.base))
        last = next(iter(self.scan_back(*past)), None)
        if last is None:
            return ()
        place = low[: low.find(b"\x00", PREFIX_BYTES) + 1]  # the partition, if the range is within one
        if place and (high.startswith(place) or high == place[:-1] + b"\x01"):
            partition = entry_keys.partition_of(low)
            records = sorted(self._spanning(fork, partition, entry_keys.removed_of_past(last[0])))
        else:
            if fork not in self._since:
                lives = (decode_live(raw)[0] for _, raw in self.scan(*past))
                self._since[fork] = sorted(
                    (_live_key(fork.base, live.entry), encode_live(live))
                    for live in lives
                    if live.added <= fork.version
                )
            records = self._since[fork]
        return records[bisect_left(records, (low,)) : bisect_left(records, (high,))]

    def _spanning(self, fork: Fork, partition: str, removed_max: int) -> Iterator[Record]:
        """The same of one partition, records by the spans that held the base version."""
        length = len(partition.encode())
        for start, end in entry_keys.span_ranges(fork.base, partition, fork.version, removed_max):
            for key, _ in self.scan(start, end):
                removed, added, tail = entry_keys.decode_span(key, length)
                if added <= fork.version:
                    raw = self.get(entry_keys.past_of_span(fork.base, partition, removed, tail))
                    if raw is not None:
                        live_key = entry_keys.live_prefix(fork.base) + partition.encode() + b"\x00" + tail
                        yield live_key, encode_live(decode_live(raw)[0])

    def _inherited_entry(self, fork: Fork, key: bytes) -> bytes | None:
        """One entry of the base as it was at the base version."""
        raw = self.get(key)
        if raw is not None and decode_stored(raw).added <= fork.version:
            return raw
        return next((raw for _, raw in self._taken_out(fork, key, key + b"\x00")), None)


def is_of_base(cursor: StoreCursor, raw_id: bytes, place: tuple[str, int], path: str) -> bool:
    """Whether a file that a fork has a record of is its base's: the fork took it out, or restored it."""
    return cursor.get(entry_keys.mask_of_live(entry_keys.live_key(raw_id, *place, path))) is not None


def _has(fork: Fork, family: bytes, key: bytes) -> bool:
    """Whether a record with such a key is one that a fork has of its base."""
    if family == keys.SPANS:
        return entry_keys.removed_of_span(key) <= fork.version
    last = {keys.TIMES: fork.time_us, keys.SCHEMAS: fork.schema_version}.get(family, fork.version)
    return keys.decode_version(key[PREFIX_BYTES : PREFIX_BYTES + NUMBER_BYTES]) <= last


def _live_key(table: bytes, entry: Entry) -> bytes:
    return entry_keys.live_key(table, entry.partition, entry.bucket, entry.path)


def _moved(key: bytes, table: bytes) -> bytes:
    """The key of the same record of another table."""
    return key[:1] + table + key[PREFIX_BYTES:]


def _end_of_base(fork: Fork, start: bytes, end: bytes) -> bytes:
    prefix = start[:PREFIX_BYTES]
    return _moved(end, fork.base) if end.startswith(prefix) else prefix_end(start[:1] + fork.base)


def _overlaid(
    over: Iterator[tuple[bytes, Value]], below: Iterator[tuple[bytes, Value]]
) -> Iterator[tuple[bytes, Value]]:
    """Both in the order of their keys; of a key that both have, the first. Quick while there is nothing to lay over."""
    top = next(over, None)
    if top is None:
        yield from below
        return
    next_key = top[0]
    for record in below:
        if record[0] < next_key:
            yield record
            continue
        while top is not None and top[0] < record[0]:
            yield top
            top = next(over, None)
        if top is None:
            yield record
            yield from below
            return
        next_key = top[0]
        if next_key != record[0]:
            yield record
    while top is not None:
        yield top
        top = next(over, None)


def _first_of_each(records: Iterable[Record]) -> Iterator[Record]:
    """The first record of each key: the fork's own comes before that of its base."""
    for _, same in groupby(records, key=itemgetter(0)):
        yield next(same)


def live_entries(cursor: StoreCursor, start: bytes, end: bytes, version: int) -> Iterator[StoredEntry]:
    """The live entries of a range, those that came with a version or before it."""
    if isinstance(cursor, ForkedCursor):
        yield from cursor.entries_until(version, start, end)
        return
    for _, raw in cursor.scan(start, end):
        entry = decode_stored(raw)
        if entry.added <= version:
            yield entry
