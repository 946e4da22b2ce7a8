"""Plans for readers of some keys, who know by a key index which files of an earlier version may have them.

Such a plan has no need of the partitions: what the reader names is looked up, and what came later is in the log.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Final

from cachetools import LRUCache

from metaservice.core import limits
from metaservice.service.read.increments import added_by
from metaservice.store import entry_keys, keys
from metaservice.store.port import StoreCursor
from metaservice.store.records.plans import StoredEntry, decode_stored

COMMITS_FOLLOWED_MAX: Final = 1_000
LOOKED_UP_MAX: Final = 2_000  # entries; the partitions of most tables are read as fast


@dataclass(frozen=True, slots=True)
class KeyFiles:
    """The files of a version of a history that may have some keys, by partition, bucket and path; the keys' buckets."""

    history: str
    version: int
    buckets: frozenset[int]
    files: tuple[tuple[str, int, str], ...]


class AddedMemory:
    """The keys of the entries that recent commits added, by bucket. Commits don't change; threads share it."""

    def __init__(self, entries_max: int = limits.PLAN_ADDED_REMEMBERED_MAX) -> None:
        self._added: LRUCache[tuple[bytes, int], tuple[tuple[int, bytes], ...]]
        self._added = LRUCache(entries_max, getsizeof=lambda added: 1 + len(added))
        self._lock = Lock()

    def added(self, cursor: StoreCursor, raw_id: bytes, version: int) -> tuple[tuple[int, bytes], ...] | None:
        """None if the commit is kept no longer."""
        with self._lock:
            remembered = self._added.get((raw_id, version))
        if remembered is not None:
            return remembered
        raw = cursor.get(keys.commit_key(raw_id, version))
        if raw is None:
            return None
        added = tuple(
            (entry.bucket, entry_keys.live_key(raw_id, entry.partition, entry.bucket, entry.path))
            for entry in added_by(cursor, raw_id, version, raw)
        )
        with self._lock, suppress(ValueError):  # larger than all the room
            self._added[raw_id, version] = added
        return added


def entries_with(
    cursor: StoreCursor, raw_id: bytes, version: int, key_files: KeyFiles, memory: AddedMemory
) -> list[StoredEntry] | None:
    """The live entries of a version that a reader names, or that came after what it knows; in the order of their keys.

    None if they are many, or the log doesn't have all commits since. The cursor must see no entry that was taken out
    after the version.
    """
    if not 0 <= version - key_files.version <= COMMITS_FOLLOWED_MAX:
        return None
    looked_up = {entry_keys.live_key(raw_id, *file) for file in key_files.files}
    for at in range(key_files.version + 1, version + 1):
        added = memory.added(cursor, raw_id, at)
        if added is None:
            return None
        looked_up.update(key for bucket, key in added if bucket in key_files.buckets)
        if len(looked_up) > LOOKED_UP_MAX:
            return None
    entries = (decode_stored(raw) for key in sorted(looked_up) if (raw := cursor.get(key)) is not None)
    return [entry for entry in entries if entry.added <= version]
