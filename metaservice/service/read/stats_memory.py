"""A cache of the statistics of recently planned partitions, with their version."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextlib import suppress
from threading import Lock
from typing import NamedTuple

from cachetools import LRUCache

from metaservice.core import limits
from metaservice.core.table.pruning import Row


class Seen(NamedTuple):
    """A stored entry and its statistics."""

    raw: bytes
    data_version: int
    is_delete_set: bool
    row: Row


Part = tuple[bytes, str, Hashable]  # table, partition, what was read of the statistics


class SeenPartition(NamedTuple):
    """The entries of a partition at a version, by bucket and path. Immutable: threads share it."""

    version: int
    entries: Mapping[tuple[int, str], Seen]


class StatsMemory:
    """The statistics of recently planned partitions. Threads share it."""

    def __init__(self, files_max: int = limits.PLAN_FILES_REMEMBERED_MAX) -> None:
        self._parts: LRUCache[Part, SeenPartition] = LRUCache(files_max, getsizeof=_files)
        self._lock = Lock()

    def recall(self, part: Part) -> SeenPartition | None:
        with self._lock:
            return self._parts.get(part)

    def keep(self, part: Part, snapshot: SeenPartition) -> None:
        """Stores the newest snapshot of a partition."""
        with self._lock, suppress(ValueError):  # larger than all the room
            before = self._parts.get(part)
            if before is None or before.version < snapshot.version:
                self._parts[part] = snapshot


def _files(snapshot: SeenPartition) -> int:
    return max(1, len(snapshot.entries))  # an empty one takes room too
