"""A store in memory that can lose power: what was synced is kept apart from what was only written.

    store.write(a); store.sync(); store.write(b); store.write(c)
    store.crash()                    a store that holds a
    store.crash(survivors=1)         a store that holds a and b: the disk had got that far by itself

Cheap to make, to write and to crash: simulations do it thousands of times. A cursor reads the store's own structures;
they are copied only when a write comes while a cursor is alive.
"""

import sys
import threading
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Self
from weakref import WeakSet

from metaservice.store.port import Batch, Store, StoreFailed


class MemoryStore(Store):
    """Failures are injected by setting the number of calls that succeed before one fails."""

    def __init__(self, entries: Mapping[bytes, bytes] | None = None, *, bytes_max: int | None = None) -> None:
        self.fail_writes_after: int | None = None
        self.fail_syncs_after: int | None = None
        self.bytes_max = bytes_max
        self._entries = dict(entries or {})
        self._keys = sorted(self._entries)
        self._size_bytes = sum(len(key) + len(value) for key, value in self._entries.items())
        self._synced = self._entries.copy()
        self._unsynced: list[list[tuple[bytes, bytes | None]]] = []
        self._cursors: WeakSet[MemoryCursor] = WeakSet()
        self._failure: str | None = None
        self._lock = threading.Lock()

    def get(self, key: bytes) -> bytes | None:
        with self._lock:  # so that no reader sees half a batch
            self.refuse_if_failed()
            return self._entries.get(key)

    def cursor(self) -> "MemoryCursor":
        with self._lock:
            self.refuse_if_failed()
            cursor = MemoryCursor(self, self._keys, self._entries)
            self._cursors.add(cursor)
            return cursor

    def write(self, batch: Batch) -> None:
        with self._lock:
            self.refuse_if_failed()
            # A write that fails may still be found after a crash, hence before the failure.
            self._unsynced.append(batch.ops.copy())
            self.fail_writes_after = self._count_down(self.fail_writes_after, "write")
            self._leave_cursors_behind()
            self._apply(batch.ops)

    def sync(self) -> None:
        with self._lock:
            self.refuse_if_failed()
            self.fail_syncs_after = self._count_down(self.fail_syncs_after, "sync")
            for ops in self._unsynced:
                _apply(self._synced, ops)
            self._unsynced.clear()

    def crash(self, survivors: int = 0) -> "MemoryStore":
        """Return the store after a power cut: everything synced, and the first survivors of the batches since.

        This store doesn't change, so that one moment can be tried with every number of survivors.
        """
        assert 0 <= survivors <= len(self._unsynced)
        entries = self._synced.copy()
        for ops in self._unsynced[:survivors]:
            _apply(entries, ops)
        return MemoryStore(entries, bytes_max=self.bytes_max)

    @property
    def unsynced_batches(self) -> int:
        return len(self._unsynced)

    def checkpoint(self, path: Path) -> Callable[[], None]:
        with self._lock:
            self.refuse_if_failed()
            path.mkdir()
            lines = [f"{key.hex()} {self._entries[key].hex()}\n" for key in self._keys]
            (path / _CHECKPOINT).write_text("".join(lines), encoding="ascii")
        return lambda: None

    @classmethod
    def open_checkpoint(cls, path: Path) -> Self:
        lines = (path / _CHECKPOINT).read_text(encoding="ascii").splitlines()
        pairs = (line.split(" ") for line in lines)
        return cls({bytes.fromhex(key): bytes.fromhex(value) for key, value in pairs})

    def write_out(self) -> None:
        self.refuse_if_failed()

    def size_bytes(self) -> int:
        return self._size_bytes

    def log_bytes(self) -> int:
        return 0

    def free_bytes(self) -> int:
        return sys.maxsize if self.bytes_max is None else self.bytes_max - self._size_bytes

    def close(self) -> None:
        if self._failure is None:
            self.sync()
            self._failure = "the store is closed"

    def refuse_if_failed(self) -> None:
        if self._failure is not None:
            raise StoreFailed(self._failure)

    def _count_down(self, left: int | None, call: str) -> int | None:
        if left == 0:
            self._failure = f"the {call} was told to fail"
            raise StoreFailed(self._failure)
        return None if left is None else left - 1

    def _leave_cursors_behind(self) -> None:
        if self._cursors:
            self._keys = self._keys.copy()
            self._entries = self._entries.copy()
            self._cursors = WeakSet()

    def _apply(self, ops: list[tuple[bytes, bytes | None]]) -> None:
        entries, keys = self._entries, self._keys
        for key, value in ops:
            before = entries.get(key)
            if value is not None:
                if before is None:
                    insort(keys, key)
                    self._size_bytes += len(key)
                entries[key] = value
                self._size_bytes += len(value) - len(before or b"")
            elif before is not None:
                del keys[bisect_left(keys, key)]
                del entries[key]
                self._size_bytes -= len(key) + len(before)


class MemoryCursor:
    """Holds structures that don't change while it lives; a suspended scan keeps its cursor alive."""

    __slots__ = ("__weakref__", "_entries", "_keys", "_store")

    def __init__(self, store: MemoryStore, keys: list[bytes], entries: dict[bytes, bytes]) -> None:
        self._store = store
        self._keys = keys
        self._entries = entries

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._walk(range(bisect_left(self._keys, start), bisect_left(self._keys, end)))

    def scan_back(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._walk(range(bisect_left(self._keys, end) - 1, bisect_left(self._keys, start) - 1, -1))

    def get(self, key: bytes) -> bytes | None:
        self._store.refuse_if_failed()
        return self._entries.get(key)

    def _walk(self, places: range) -> Iterator[tuple[bytes, bytes]]:
        for place in places:
            self._store.refuse_if_failed()
            key = self._keys[place]
            yield key, self._entries[key]


_CHECKPOINT = "entries"


def _apply(entries: dict[bytes, bytes], ops: list[tuple[bytes, bytes | None]]) -> None:
    for key, value in ops:
        if value is None:
            entries.pop(key, None)
        else:
            entries[key] = value
