"""The changes after a version: commit by commit from the log, or as the difference of two snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from metaservice.core import limits
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.table.model import CommitSummary
from metaservice.core.table.predicates import Predicate
from metaservice.service.decider.views import TableView
from metaservice.store import entry_keys, keys
from metaservice.store.port import StoreCursor, prefix_end
from metaservice.store.records.plans import StoredEntry, decode_added, decode_added_chunk, decode_stored
from metaservice.store.records.tables import decode_commit


@dataclass(frozen=True, slots=True)
class Increment:
    """The changes of one logical commit or, without a commit, the difference of two snapshots."""

    commit: CommitSummary | None
    added: list[StoredEntry]
    removed: list[StoredEntry]


def log(cursor: StoreCursor, table: TableView, after: int, to: int, on_partitions: Predicate) -> Iterator[Increment]:
    """The logical commits in (after, to], in order."""
    matches = _Matches(table, on_partitions)
    version = after
    while (version := _next_logical(cursor, table.raw_id, version + 1)) <= to:
        raw = _commit_record(cursor, table.raw_id, version)
        added = [entry for entry in added_by(cursor, table.raw_id, version, raw) if matches(entry.partition)]
        removed = [entry for entry in _removed(cursor, table.raw_id, version) if matches(entry.partition)]
        yield Increment(decode_commit(raw), added, removed)


def difference(cursor: StoreCursor, table: TableView, after: int, to: int, on_partitions: Predicate) -> Increment:
    """The entries that only the snapshot at `to` has, and those that only the snapshot at `after` has."""
    matches = _Matches(table, on_partitions)
    added: dict[tuple[str, int, str, int], StoredEntry] = {}
    removed: dict[tuple[str, int, str, int], StoredEntry] = {}
    for version in range(after + 1, to + 1):
        raw = _commit_record(cursor, table.raw_id, version)
        _move(_removed(cursor, table.raw_id, version), matches, added, removed)
        _move(added_by(cursor, table.raw_id, version, raw), matches, removed, added)
        if len(added) + len(removed) > limits.DIFFERENCE_ENTRIES_MAX:
            raise MetaError(ErrorKind.INVALID, "DIFFERENCE_TOO_LARGE", most=limits.DIFFERENCE_ENTRIES_MAX)
    return Increment(None, list(added.values()), list(removed.values()))


class _Matches:
    """Whether a condition holds for a partition, evaluated once each."""

    def __init__(self, table: TableView, on_partitions: Predicate) -> None:
        self._partitioning = table.meta.partitioning
        self._predicate = on_partitions
        self._by_partition: dict[str, bool] = {}

    def __call__(self, partition: str) -> bool:
        matches = self._by_partition.get(partition)
        if matches is None:
            matches = self._by_partition[partition] = self._partitioning.matches(self._predicate, partition)
        return matches


def _move(
    entries: Iterable[StoredEntry],
    matches: _Matches,
    source: dict[tuple[str, int, str, int], StoredEntry],
    target: dict[tuple[str, int, str, int], StoredEntry],
) -> None:
    """Adds an entry to the target, unless the same entry was moved the other way before."""
    for entry in entries:
        identity = (entry.partition, entry.bucket, entry.path, entry.data_version)
        if matches(entry.partition) and source.pop(identity, None) is None:
            target[identity] = entry


def logical_before(cursor: StoreCursor, raw_id: bytes, head: int, count: int) -> int:
    at, left = head, count
    while (step := _idle_at_or_before(cursor, raw_id, at)) is not None:
        idle, logical = step
        if left < at - idle:
            break
        left -= at - idle
        at = logical
    if left > at:
        raise MetaError(
            ErrorKind.GONE,
            "VERSION_RETIRED",
            "the table has fewer logical commits: ask for fewer",
            oldest=0,
            commits_ago=count,
        )
    return at - left


def _idle_at_or_before(cursor: StoreCursor, raw_id: bytes, version: int) -> tuple[int, int] | None:
    """A commit without a time version, and the last earlier commit with one."""
    for key, raw in cursor.scan_back(keys.idle_key(raw_id, 0), keys.idle_key(raw_id, version + 1)):
        return keys.decode_version(key[17:]), keys.decode_version(raw)
    return None


def _next_logical(cursor: StoreCursor, raw_id: bytes, version: int) -> int:
    for key, _ in cursor.scan(keys.idle_key(raw_id, version), prefix_end(keys.idle_key(raw_id, 0)[:17])):
        if keys.decode_version(key[17:]) != version:
            break
        version += 1
    return version


def _commit_record(cursor: StoreCursor, raw_id: bytes, version: int) -> bytes:
    raw = cursor.get(keys.commit_key(raw_id, version))
    if raw is None:
        raise MetaError(ErrorKind.CORRUPT, "RECORD_MISSING", version=version)
    return raw


def added_by(cursor: StoreCursor, raw_id: bytes, version: int, raw: bytes) -> Iterator[StoredEntry]:
    inline, chunks = decode_added(raw)
    yield from inline
    for chunk in range(chunks):
        chunk_bytes = cursor.get(keys.chunk_key(raw_id, version, chunk))
        if chunk_bytes is None:
            raise MetaError(ErrorKind.CORRUPT, "RECORD_MISSING", version=version, chunk=chunk)
        yield from decode_added_chunk(chunk_bytes, version)


def _removed(cursor: StoreCursor, raw_id: bytes, version: int) -> Iterator[StoredEntry]:
    for _, raw in cursor.scan(entry_keys.past_from(raw_id, version), entry_keys.past_from(raw_id, version + 1)):
        yield decode_stored(raw)
