"""The store on object storage: SlateDB. What was synced is in the bucket, whatever becomes of this machine.

One process writes, the one that opened the store last: an opening fences whoever had it before, whose next `sync`
raises StoreFenced. What that one had synced is there, what it had not is gone. Reads and writes of a fenced process may
pass in memory; only a sync proves something.

A process opens a store once. To close it and open it again after a failure could fence a successor.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from slatedb import uniffi as slatedb

from metaservice.store.engines.copying import MIRROR, copy_by_mirror
from metaservice.store.engines.slate_binding import run
from metaservice.store.engines.slate_requests import SlateRequests
from metaservice.store.formats import (
    COPYING_KEY,
    FIRST,
    FORMAT_KEY,
    LOG_ELSEWHERE,
    encode_format,
    refuse_other_formats,
)
from metaservice.store.lease.log_record import AS_RECORDED, OPENING_S, find_log
from metaservice.store.object_location import CACHE_BYTES, LogPlace, ObjectPlace
from metaservice.store.port import (
    STORE_DAMAGED,
    STORE_FOREIGN,
    STORE_OPTIONS_OTHER,
    STORE_UNREACHABLE,
    Batch,
    Store,
    StoreFailed,
    StoreFenced,
    StoreGone,
    StoreUnusable,
)

T = TypeVar("T")


class SlateStore(Store):
    """Opens the store, or creates it, and fences every process that has it open; raises StoreUnusable."""

    reads_at_once = 32  # each may wait for the bucket
    log_files_max = 512  # each sync makes one; an opening reads about as many

    def __init__(
        self,
        place: ObjectPlace,
        *,
        bytes_max: int | None = None,
        log: LogPlace = AS_RECORDED,
        log_id: str = "",
        cache: slatedb.DbCache | None = None,
        bucket: slatedb.ObjectStore | None = None,
    ) -> None:
        """`log`, `log_id`: where a new store gets its log, and the id of its record; `cache`: for what was read.

        `bucket`: another one than the place names, such as one in memory.
        """
        log_bucket: slatedb.ObjectStore | None = None
        if bucket is None:
            bucket = open_bucket(place)
            log_bucket = _open_log(place, log, log_id)
        self._place = place
        self._bytes_max = bytes_max
        self._failure: str | None = None
        self._fenced = False
        self._closed = False
        self._is_synced = True
        self._log_bytes = self._log_files = 0
        self._shortens_s = 0.0
        self._sizes = _Sizes(place, bucket)
        self.requests = SlateRequests()
        cache = cache if cache is not None else new_cache(CACHE_BYTES)
        self._db = _open(place, bucket, log_bucket, self.requests, cache)

    def get(self, key: bytes) -> bytes | None:
        value: bytes | None = self.ask(lambda: self._db.get(key))
        return value

    def cursor(self) -> SlateCursor:
        return SlateCursor(self, self.ask(self._db.snapshot))

    def write(self, batch: Batch) -> None:
        self.refuse_if_failed()
        if not batch.ops:
            return
        try:
            native = slatedb.WriteBatch()
            for key, value in batch.ops:
                if value is None:
                    native.delete(key)
                else:
                    native.put(key, value)
        except Exception as error:
            raise self._fail(error) from error
        self._is_synced = False
        self.ask(lambda: self._db.write(native))
        size = sum(len(key) + len(value or b"") for key, value in batch.ops)
        self._log_bytes = self._log_bytes + size if self._log_bytes < _TABLE_BYTES else size

    def sync(self) -> None:
        self.ask(lambda: self._db.flush_with_options(_LOG))
        self._is_synced = True
        self._log_files += 1
        if self._log_files >= self.log_files_max and time.monotonic() >= self._shortens_s:
            self._shortens_s = time.monotonic() + _SHORTEN_S
            with contextlib.suppress(RuntimeError):  # the system gives no thread: later it may
                threading.Thread(target=self._shorten_log, name="shorten log", daemon=True).start()

    def checkpoint(self, path: Path) -> Callable[[], None]:
        """The copy is a folder of RocksDB's: it can be opened without the bucket.

        It is made from a mirror beside it that stays, and gets what is different: so most files of the next copy are
        those of this one, to the byte.
        """
        self.refuse_if_failed()
        if path.exists():
            raise FileExistsError(path)
        cursor = self.cursor()

        def write() -> None:
            try:
                copy_by_mirror(cursor, path.with_name(MIRROR), path)
            except (StoreFailed, StoreUnusable) as error:
                raise OSError(f"no checkpoint was made: {error}") from error

        return write

    def write_out(self) -> None:
        try:
            self.ask(lambda: self._db.flush_with_options(_TABLES))
        except (StoreFailed, StoreUnusable) as error:
            raise OSError(f"memory was not written out: {error}") from error

    def _shorten_log(self) -> None:
        self._log_files, self._shortens_s = 0, float("inf")
        with contextlib.suppress(OSError, StoreGone):  # the writer is told by its next call
            self.write_out()
        self._shortens_s = time.monotonic() + _SHORTEN_S

    def size_bytes(self) -> int:
        return self._sizes.tables_bytes() + self._log_bytes

    def log_bytes(self) -> int:
        """About; tables are written when it is full, which the binding doesn't tell."""
        return self._log_bytes

    def free_bytes(self) -> int:
        return sys.maxsize if self._bytes_max is None else self._bytes_max - self.size_bytes()

    def close(self) -> None:
        if self._closed:
            return
        try:
            if not self._is_synced and self._failure is None and not self._fenced:
                self.sync()
        finally:
            self._closed = True
            self._failure = self._failure or "the store is closed"
            with contextlib.suppress(slatedb.Error):  # fenced, say: nothing of it is needed any more
                run(self._db.shutdown())

    def ask(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self.refuse_if_failed()
        try:
            return run(call())
        except slatedb.Error.Data as error:
            raise StoreUnusable(STORE_DAMAGED, path=str(self._place), found=str(error)) from error
        except slatedb.Error as error:
            raise self._fail(error) from error

    def refuse_if_failed(self) -> None:
        if self._fenced:
            raise self._fence()
        if self._failure is not None:
            raise StoreFailed(self._failure)

    def _fail(self, error: Exception) -> StoreFailed | StoreFenced:
        if isinstance(error, slatedb.Error.Closed) and error.reason is slatedb.CloseReason.FENCED and not self._closed:
            self._fenced = True
            return self._fence()
        self._failure = self._failure or str(error)
        return StoreFailed(self._failure)

    def _fence(self) -> StoreFenced:
        return StoreFenced(f"another process has opened the store {self._place}: this one ends")


class ReadableStore(Protocol):
    """A store that a cursor belongs to."""

    def ask(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T: ...

    def refuse_if_failed(self) -> None: ...


class SlateCursor:
    """A snapshot; each scan of it has an iterator of its own."""

    __slots__ = ("_snapshot", "_store")

    def __init__(self, store: ReadableStore, snapshot: slatedb.DbSnapshot | slatedb.DbReader) -> None:
        self._store = store
        self._snapshot = snapshot

    def get(self, key: bytes) -> bytes | None:
        value: bytes | None = self._store.ask(lambda: self._snapshot.get(key))
        return value

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._walk(start, end, _UP)

    def scan_back(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._walk(start, end, _DOWN)

    def _walk(self, start: bytes, end: bytes, options: slatedb.ScanOptions) -> Iterator[tuple[bytes, bytes]]:
        if start >= end:
            self._store.refuse_if_failed()
            return
        span = slatedb.KeyRange(start=start, start_inclusive=True, end=end, end_inclusive=False)
        entries = self._store.ask(lambda: self._snapshot.scan_with_options(span, options))
        count = _ENTRIES_FIRST
        while True:
            batch = self._store.ask(lambda count=count: entries.next_batch(count))  # type: ignore[misc]
            yield from batch
            if len(batch) < count:
                return
            count = min(2 * count, _ENTRIES_MAX)


class _Sizes:
    """The bytes of tables, as a manifest of a minute ago says."""

    def __init__(self, place: ObjectPlace, bucket: slatedb.ObjectStore) -> None:
        self._place = place
        self._bucket = bucket
        self._read_s = float("-inf")
        self._bytes = 0
        self._lock = threading.Lock()

    def tables_bytes(self) -> int:
        with self._lock:
            if time.monotonic() - self._read_s >= _SIZES_S:
                self._read_s = time.monotonic()
                with contextlib.suppress(slatedb.Error):  # the bucket doesn't answer: the size of before does
                    self._bytes = self._read()
            return self._bytes

    def _read(self) -> int:
        admin = slatedb.AdminBuilder(self._place.path, self._bucket).build()
        manifest = run(admin.read_manifest(None))
        if manifest is None:
            return 0
        return sum(each.estimated_size_bytes for each in (*manifest.l0, *manifest.compacted))


_LOG: Final = slatedb.FlushOptions(flush_type=slatedb.FlushType.WAL)
_TABLES: Final = slatedb.FlushOptions(flush_type=slatedb.FlushType.MEM_TABLE)
_ENTRIES_FIRST: Final = 4
_ENTRIES_MAX: Final = 1024
_SIZES_S: Final = 60.0
_CACHE_SHARDS: Final = 4  # an entry is at most as large as one of them
CACHE_ID: Final = 1  # of this database in a cache
_TABLE_BYTES: Final = 16 << 20  # an opening reads as much of the log
_SHORTEN_S: Final = 2.0  # between two tables at least, or there are more than are compacted
_OLD: Final = {"interval": "600s", "min_age": "300s", "dry_run": False}  # what nobody needs, and has not for a while
COLLECTS: Final[dict[str, Any]] = {  # the whole of what SlateDB's collector of garbage goes by
    "manifest_options": _OLD,
    "wal_options": _OLD,
    "wal_fence_options": {**_OLD, "dry_run": True},  # they stay: one refuses a PUT of a process that was fenced, which
    "compacted_options": _OLD,  # may arrive however late; without it that write would be acknowledged, and lost
    "compactions_options": _OLD,
    "detach_options": {"interval": "600s"},
    "metric_level": None,
    "boundary_files_enabled": True,
    "object_store_max_retries": None,
}
_SETTINGS: Final = {
    "flush_interval": None,  # the log is written when it is synced
    "l0_sst_size_bytes": _TABLE_BYTES,
    "l0_max_ssts": 16,  # of the newest tables; with more than these the log grows
    "l0_max_ssts_per_key": 16,
    "max_unflushed_bytes": 8 * _TABLE_BYTES,  # more waits until tables are written
    "garbage_collector_options": COLLECTS,
}


def _options(order: slatedb.IterationOrder) -> slatedb.ScanOptions:
    return slatedb.ScanOptions(
        durability_filter=slatedb.DurabilityLevel.MEMORY,
        dirty=False,
        read_ahead_bytes=256 << 10,
        cache_blocks=True,
        max_fetch_tasks=2,
        order=order,
    )


_UP: Final = _options(slatedb.IterationOrder.ASCENDING)
_DOWN: Final = _options(slatedb.IterationOrder.DESCENDING)


def open_bucket(place: ObjectPlace) -> slatedb.ObjectStore:
    """Where the server is and who we are comes from AWS's own variables."""
    if place.folder is not None:
        place.folder.mkdir(parents=True, exist_ok=True)
        local = slatedb.ObjectStoreBuilder(slatedb.ObjectStoreType.LOCAL)
        local.with_config("local_path", str(place.folder))
        return local.build()
    return _open_s3(place, place.bucket)


def _open_log(place: ObjectPlace, requested: LogPlace, new_id: str) -> slatedb.ObjectStore | None:
    """The bucket of the log as it is recorded; None: it is in the store's own."""
    if place.folder is not None:
        return None
    log = find_log(place, requested, new_id=new_id, patience_s=OPENING_S)
    return _open_s3(place, log.bucket, log.endpoint) if log is not None else None


def _open_s3(place: ObjectPlace, name: str, endpoint: str = "") -> slatedb.ObjectStore:
    builder = slatedb.ObjectStoreBuilder.from_env(slatedb.ObjectStoreType.S3)
    builder.with_config("bucket", name)
    if endpoint:
        builder.with_config("endpoint", endpoint)
    builder.with_config("allow_http", "true")  # where the endpoint says http://, that is meant
    try:
        return builder.build()
    except slatedb.Error as error:
        raise _unusable(place, error) from error


def own_settings(place: ObjectPlace, given: Mapping[str, Any] = _SETTINGS) -> slatedb.Settings:
    """Return our settings of SlateDB. Refuse if it would run with others: a release may add or reinterpret some."""
    settings = slatedb.Settings.default()
    try:
        for name, value in given.items():
            settings.set(name, json.dumps(value))
    except slatedb.Error as error:
        raise StoreUnusable(STORE_OPTIONS_OTHER, path=str(place), found=str(error)) from error
    runs = json.loads(settings.to_json_string())
    for name, value in _SETTINGS.items():
        if runs.get(name) != value:
            difference = f"{name} = {json.dumps(runs.get(name))}"
            raise StoreUnusable(STORE_OPTIONS_OTHER, path=str(place), found=difference)
    return settings


def _open(
    place: ObjectPlace,
    bucket: slatedb.ObjectStore,
    log_bucket: slatedb.ObjectStore | None,
    requests: SlateRequests,
    cache: slatedb.DbCache,
) -> slatedb.Db:
    try:
        builder = slatedb.DbBuilder(place.path, bucket)
        if log_bucket is not None:
            builder.with_wal_object_store(log_bucket)
        builder.with_settings(own_settings(place))
        builder.with_metrics_recorder(requests.recorder)
        builder.with_db_cache(cache, CACHE_ID)
        db = run(builder.build())
    except slatedb.Error as error:
        raise _unusable(place, error) from error
    try:
        _check_format(place, db, LOG_ELSEWHERE if log_bucket is not None else FIRST)
    except slatedb.Error as error:
        raise _unusable(place, error) from error
    except StoreUnusable:
        with contextlib.suppress(slatedb.Error):
            run(db.shutdown())
        raise
    return db


def new_cache(size: int) -> slatedb.DbCache:
    """One half for rows; one for indexes and filters of tables, of which a look-up needs a whole one."""
    rows, indexes = (
        slatedb.DbCache.new_foyer_cache(slatedb.FoyerCacheOptions(max_capacity=size // 2, shards=_CACHE_SHARDS))
        for _ in range(2)
    )
    return slatedb.DbCache.new_split_cache(rows, indexes)


def _check_format(place: ObjectPlace, db: slatedb.Db, first: int) -> None:
    """A new store gets the format `first`, in a table: releases that look for the log in the store's bucket find it."""
    stored: bytes | None = run(db.get(FORMAT_KEY))
    if stored is None:
        span = slatedb.KeyRange(start=None, start_inclusive=False, end=None, end_inclusive=False)
        if run(run(db.scan(span)).next()) is not None:
            raise StoreUnusable(STORE_FOREIGN, path=str(place), found="a database without a format number")
        run(db.put(FORMAT_KEY, encode_format(first)))
        run(db.flush_with_options(_LOG if first == FIRST else _TABLES))
        return
    refuse_other_formats(stored, str(place))
    if run(db.get(COPYING_KEY)) is not None:
        raise StoreUnusable(STORE_DAMAGED, path=str(place), found="a copy that was not finished: copy to another place")


def _unusable(place: ObjectPlace, error: slatedb.Error) -> StoreUnusable:
    reason = STORE_DAMAGED if isinstance(error, slatedb.Error.Data) else STORE_UNREACHABLE
    return StoreUnusable(reason, path=str(place), found=str(error))
