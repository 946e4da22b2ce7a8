"""What happened to a table's entries according to the log, and according to the index. Both must agree.

    log      commit 7 adds a and removes b       +7 a   -7 b
    index    a is live since 7                   +7 a
             b was live from 3 until 7           +3 b   -7 b     (commit 3 must have added b)

A history may be cut at its old end: the index is not asked about what happened before the oldest commit that is kept,
and neither side about entries that were taken out at or below the horizon, which the purge takes from the index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

from pyroaring import BitMap64

from metaservice.core import limits
from metaservice.core.table.model import Entry, Removed
from metaservice.store import entry_keys, keys
from metaservice.store.commit_log import LoggedCommit, decode_logged, entries_of
from metaservice.store.port import StoreCursor, prefix_end
from metaservice.store.records.tables import decode_live

GROUPS = 4_096
NOT_KNOWN = -1
CHUNKS_MAX = limits.FILES_PER_TRANSACTION_MAX  # whatever a damaged record says
Happening = tuple[str, bytes]


@dataclass(frozen=True, slots=True)
class Indexed:
    """An entry of the index; `removed` is 0 while it is live."""

    entry: Entry
    data_version: int
    added: int
    removed: int
    misplaced: bool


@dataclass(slots=True)
class Kept:
    """The commits that the log still has, and those that keep their entries in chunks, without data versions."""

    oldest: int = NOT_KNOWN
    head: int = NOT_KNOWN
    horizon: int = 0
    chunked: BitMap64 = field(default_factory=BitMap64)
    dead: set[int] = field(default_factory=set)  # digests of lives that ended at or below the horizon

    def bury(self, version: int, removed: Iterable[Removed]) -> None:
        """Removes the entries that a commit removed."""
        if version <= self.horizon:
            self.dead.update(_life(gone.path, gone.partition, gone.bucket, gone.added) for gone in removed)


class Sums:
    """Adds up digests by group, in any order: if all sums are zero, the same entries were added and subtracted."""

    def __init__(self) -> None:
        self._sums = [0] * GROUPS

    def add(self, happening: Happening, count: int) -> None:
        number = _number(happening)
        self._sums[number % GROUPS] += count * number

    def differing(self) -> set[int]:
        return {group for group, total in enumerate(self._sums) if total}


def group_of(happening: Happening) -> int:
    return _number(happening) % GROUPS


def list_commits(cursor: StoreCursor, raw_id: bytes) -> Iterator[tuple[int, LoggedCommit | ValueError]]:
    """The log in version order; an unreadable record is an error in its place."""
    prefix = keys.commits_prefix(raw_id)
    for key, raw in cursor.scan(prefix, prefix_end(prefix)):
        _, version = keys.split_versioned(key)
        try:
            yield version, decode_logged(raw)
        except ValueError as error:
            yield version, error


def happenings_in_log(cursor: StoreCursor, raw_id: bytes, kept: Kept) -> Iterator[Happening]:
    for version, commit in list_commits(cursor, raw_id):
        if isinstance(commit, ValueError):
            continue
        for entry, data_version in _entries(cursor, raw_id, commit, version):
            if not (kept.dead and _life(entry.path, entry.partition, entry.bucket, version) in kept.dead):
                yield _added(entry, version, data_version)
        for gone in commit.removed if version > kept.horizon else ():
            yield _removed(gone.path, gone.partition, gone.bucket, gone.added, version)


def list_indexed(cursor: StoreCursor, raw_id: bytes) -> Iterator[Indexed | ValueError]:
    """The index: live entries, then past ones."""
    prefix = entry_keys.live_prefix(raw_id)
    for key, raw in cursor.scan(prefix, prefix_end(prefix)):
        yield _indexed(raw_id, key, raw, live=True)
    prefix = entry_keys.past_prefix(raw_id)
    for key, raw in cursor.scan(prefix, prefix_end(prefix)):
        yield _indexed(raw_id, key, raw, live=False)


def happenings_in_index(indexed: Indexed, kept: Kept) -> Iterator[Happening]:
    entry = indexed.entry
    if indexed.removed and indexed.removed <= kept.horizon:
        return
    if indexed.added >= kept.oldest:
        yield _added(entry, indexed.added, NOT_KNOWN if indexed.added in kept.chunked else indexed.data_version)
    if indexed.removed and indexed.removed >= kept.oldest:
        yield _removed(entry.path, entry.partition, entry.bucket, indexed.added, indexed.removed)


def _indexed(raw_id: bytes, key: bytes, raw: bytes, *, live: bool) -> Indexed | ValueError:
    try:
        decoded, removed = decode_live(raw)
    except Exception as error:  # noqa: BLE001 - bytes can be wrong in any way
        return ValueError(f"no entry: {error}")
    entry = decoded.entry
    if live:
        right, wrong_end = entry_keys.live_key(raw_id, entry.partition, entry.bucket, entry.path), removed != 0
    else:
        right = entry_keys.past_key(raw_id, removed, entry.partition, entry.bucket, entry.path)
        wrong_end = removed <= decoded.added
    return Indexed(entry, decoded.data_version, max(decoded.added, 0), removed, key != right or wrong_end)


def _entries(cursor: StoreCursor, raw_id: bytes, commit: LoggedCommit, version: int) -> Iterator[tuple[Entry, int]]:
    """The entries that a commit added, with data versions if it has them."""
    try:
        for live in commit.list_added():
            yield live.entry, live.data_version
    except ValueError:
        return  # what follows is then in the index alone
    for chunk in range(min(commit.chunks, CHUNKS_MAX)):
        for entry in _chunk(cursor, raw_id, version, chunk):
            yield entry, NOT_KNOWN


def _chunk(cursor: StoreCursor, raw_id: bytes, version: int, chunk: int) -> Iterator[Entry]:
    raw = cursor.get(keys.chunk_key(raw_id, version, chunk))
    try:
        yield from entries_of(raw or b"")
    except ValueError:
        return  # its entries are then in the index alone


def _added(entry: Entry, version: int, data_version: int) -> Happening:
    kind = "delete set" if entry.is_delete_set else "file"
    of = "" if data_version == NOT_KNOWN else f" of data version {data_version}"
    where = f"{entry.path} partition {entry.partition} bucket {entry.bucket}"
    size = f"{entry.rows} rows, {entry.size_bytes} bytes, row ids from {entry.first_row_id}"
    return f"version {version} adds {kind} {where}{of}: {size}", entry.payload


def _removed(path: str, partition: str, bucket: int, added: int, version: int) -> Happening:
    return f"version {version} removes {path} partition {partition} bucket {bucket}, which version {added} added", b""


def _life(path: str, partition: str, bucket: int, added: int) -> int:
    return _number((f"{path} {partition} {bucket} {added}", b""))


def _number(happening: Happening) -> int:
    kind, payload = happening
    return int.from_bytes(blake2b(kind.encode() + payload, digest_size=8).digest(), "big")
