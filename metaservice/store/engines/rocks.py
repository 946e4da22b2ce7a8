"""The store on disk: RocksDB through rocksdict, in raw mode, with one column family.

Undocumented behaviour of rocksdict that this file relies on or works around:

- An iterator sees the database as of its creation, through any number of seeks; iterating over a `snapshot()` does not.
- An iterator that reaches damage ends as if it had reached the last key: only `status()` shows it.
- A live iterator keeps the folder locked after `close()`.
- `write(sync=True)` holds the GIL while the disk works; `flush_wal(True)` and `flush()` release it.
- `close()` while another thread is inside a call raises RuntimeError ("Already borrowed") and closes nothing.
- Options alone hold for a folder that is new. One that exists gets its old options, without cache and filters, unless
  they are named for its column family too.
- Opening and closing the file LOCK in this process releases the lock (POSIX); copying the folder does that.
"""

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from weakref import WeakSet

from rocksdict import Checkpoint, Rdict, RdictIter, WriteBatch

from metaservice.core.errors import ErrorKind, MetaError
from metaservice.store.engines.data_folder import (
    file_system_free_bytes,
    refuse_a_backup,
    refuse_half_a_store,
    refuse_without_room,
    sync_folder,
)
from metaservice.store.engines.log_mark import LogMark, refuse_a_lost_log, refuse_lost_writes
from metaservice.store.engines.rocks_options import rocks_options
from metaservice.store.formats import COPYING_KEY, FIRST, FORMAT_KEY, encode_format, refuse_other_formats
from metaservice.store.port import (
    STORE_DAMAGED,
    STORE_FOREIGN,
    STORE_LOCKED,
    STORE_NO_ROOM,
    STORE_UNREACHABLE,
    Batch,
    Store,
    StoreFailed,
    StoreGone,
    StoreUnusable,
)


class RocksStore(Store):
    """Opens the folder, or creates it unless it must exist; raises StoreUnusable, StoreGone."""

    def __init__(self, path: Path, *, bytes_max: int | None = None, must_exist: bool = False) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._failure: str | None = None
        self._closed = False
        self._cursors: WeakSet[RocksCursor] = WeakSet()
        self._cursors_lock = threading.Lock()
        if must_exist and not (path / "CURRENT").exists():
            raise StoreGone(f"the data folder {path} was removed while the service ran")
        self._db = _open(path)
        try:
            self._mark = LogMark(path, self._db.latest_sequence_number())
        except BaseException:
            _close(self._db)
            raise

    def get(self, key: bytes) -> bytes | None:
        self.refuse_if_failed()
        try:
            value: bytes | None = self._db.get(key)
        except Exception as error:
            raise self.read_error(error) from error
        return value

    def cursor(self) -> "RocksCursor":
        with self._cursors_lock:  # close() must not miss one
            self.refuse_if_failed()
            try:
                cursor = RocksCursor(self, self._db.iter())
            except Exception as error:
                raise self.read_error(error) from error
            self._cursors.add(cursor)
            return cursor

    def write(self, batch: Batch) -> None:
        self.refuse_if_failed()
        try:
            native = WriteBatch(raw_mode=True)
            for key, value in batch.ops:
                if value is None:
                    native.delete(key)
                else:
                    native.put(key, value)
            self._db.write(native)
        except Exception as error:
            raise self._fail(error) from error

    def sync(self) -> None:
        self.refuse_if_failed()
        try:
            self._db.flush_wal(True)
            self._mark.note(self._db.latest_sequence_number())
        except StoreGone:
            raise
        except Exception as error:
            raise self._fail(error) from error

    def checkpoint(self, path: Path) -> Callable[[], None]:
        self.refuse_if_failed()
        if path.exists():
            raise FileExistsError(path)
        try:
            self._db.flush()  # making a checkpoint does it too, but with the GIL held
            Checkpoint(self._db).create_checkpoint(str(path))
        except Exception as error:
            shutil.rmtree(path, ignore_errors=True)
            raise OSError(f"no checkpoint was made: {error}") from error
        sync_folder(path.parent)
        return lambda: None  # hard links are made in no time

    def write_out(self) -> None:
        self.refuse_if_failed()
        try:
            self._db.flush()
        except Exception as error:
            raise OSError(f"memory was not written out: {error}") from error

    def size_bytes(self) -> int:
        return self._bytes_of("")

    def log_bytes(self) -> int:
        return self._bytes_of(".log")

    def _bytes_of(self, suffix: str) -> int:
        """Of the folder's files. That the system lets nobody look is a refusal of the call, and no failure."""
        size = 0
        try:
            with os.scandir(self._path) as files:
                for file in files:
                    if file.name.endswith(suffix):
                        with contextlib.suppress(FileNotFoundError):  # flushes and compactions delete files meanwhile
                            size += file.stat().st_size
        except OSError as error:
            raise MetaError(ErrorKind.UNAVAILABLE, "FOLDER_UNREADABLE", path=self._path, error=error) from error
        return size

    def free_bytes(self) -> int:
        free = file_system_free_bytes(self._path)
        return free if self._bytes_max is None else min(free, self._bytes_max - self.size_bytes())

    def close(self) -> None:
        if self._closed:
            return
        try:
            if self._failure is None:
                self.sync()
                with contextlib.suppress(Exception):  # no room, say: the log has everything
                    self._db.flush()
                    self._mark.note_closed(self._db.latest_sequence_number())
        finally:
            self._let_go()

    def refuse_if_gone(self) -> None:
        """Raises StoreGone if the folder is no longer the one that was opened."""
        self._mark.refuse_if_gone()

    def refuse_if_failed(self) -> None:
        if self._failure is not None:
            raise StoreFailed(self._failure)

    def read_error(self, error: Exception) -> StoreFailed | StoreUnusable:
        """Damage stays where it is, and the rest can be read; after any other error nothing is certain."""
        if "Corruption:" in str(error):
            return StoreUnusable(STORE_DAMAGED, path=str(self._path), found=str(error))
        return self._fail(error)

    def _fail(self, error: Exception) -> StoreFailed:
        self._failure = self._failure or str(error)
        return StoreFailed(self._failure)

    def _let_go(self) -> None:
        with self._cursors_lock:
            self._failure = self._failure or "the store is closed"
            cursors = list(self._cursors)
        for cursor in cursors:
            cursor.let_go()
        _close(self._db)
        self._mark.close()
        self._closed = True


class RocksCursor:
    """One iterator, repositioned for every few entries, so that scans can't disturb each other and close() can end
    them.
    """

    __slots__ = ("__weakref__", "_busy", "_iterator", "_store")

    def __init__(self, store: RocksStore, iterator: RdictIter) -> None:
        self._store = store
        self._iterator: RdictIter | None = iterator
        self._busy = False

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        count = _ENTRIES_FIRST
        while True:
            entries = self._read(start, end, count)
            yield from entries
            if len(entries) < count:
                return
            start = entries[-1][0] + b"\x00"
            count = min(2 * count, _ENTRIES_MAX)

    def scan_back(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        count = _ENTRIES_FIRST
        while True:
            entries = self._read_back(start, end, count)
            yield from entries
            if len(entries) < count:
                return
            end = entries[-1][0]
            count = min(2 * count, _ENTRIES_MAX)

    def get(self, key: bytes) -> bytes | None:
        entries = self._read(key, key + b"\x00", 1)
        return entries[0][1] if entries else None

    def let_go(self) -> None:
        """Ends the iterator, from any thread. The store has failed by then, so no other read begins."""
        _wait_while(lambda: self._busy, "a read has not ended")
        self._iterator = None

    def _read(self, start: bytes, end: bytes, count: int) -> list[tuple[bytes, bytes]]:
        return self._collect(lambda iterator: _ascend(iterator, start, end, count))

    def _read_back(self, start: bytes, end: bytes, count: int) -> list[tuple[bytes, bytes]]:
        return self._collect(lambda iterator: _descend(iterator, start, end, count))

    def _collect(self, collect: Callable[[RdictIter], list[tuple[bytes, bytes]]]) -> list[tuple[bytes, bytes]]:
        self._busy = True  # before the check: close() makes the store fail first and looks whether we are busy then
        try:
            self._store.refuse_if_failed()
            assert self._iterator is not None
            return collect(self._iterator)
        except StoreFailed:
            raise
        except Exception as error:
            raise self._store.read_error(error) from error
        finally:
            self._busy = False


# Three native calls an entry are most of a scan's cost; a chunk doubles, so that a look at the first entry stays cheap
# and a long scan seldom seeks.
_ENTRIES_FIRST = 4
_ENTRIES_MAX = 128

_CLOSE_SECONDS_MAX = 30.0


def _ascend(iterator: RdictIter, start: bytes, end: bytes, count: int) -> list[tuple[bytes, bytes]]:
    entries: list[tuple[bytes, bytes]] = []
    read_key, read_value, step = iterator.key, iterator.value, iterator.next
    iterator.seek(start)
    while len(entries) < count:
        key = read_key()
        if key is None:
            iterator.status()
            break
        if key >= end:
            break
        entries.append((key, read_value()))
        step()
    return entries


def _descend(iterator: RdictIter, start: bytes, end: bytes, count: int) -> list[tuple[bytes, bytes]]:
    entries: list[tuple[bytes, bytes]] = []
    read_key, read_value, step = iterator.key, iterator.value, iterator.prev
    iterator.seek_for_prev(end)
    if read_key() == end:
        step()
    while len(entries) < count:
        key = read_key()
        if key is None:
            iterator.status()
            break
        if key < start:
            break
        entries.append((key, read_value()))
        step()
    return entries


def _open(path: Path) -> Rdict:
    try:
        path.mkdir(parents=True, exist_ok=True)
        refuse_a_backup(path)
        refuse_half_a_store(path)
        refuse_a_lost_log(path)
        refuse_without_room(path)
        options = rocks_options()
        db = Rdict(str(path), options, column_families={"default": options})
    except StoreUnusable:
        raise
    except Exception as error:
        raise _unusable(path, error) from error
    try:
        refuse_lost_writes(path, db.latest_sequence_number())
        _check_format(path, db)
    except StoreUnusable:
        _close(db)
        raise
    except Exception as error:
        _close(db)
        raise _unusable(path, error) from error
    return db


def _check_format(path: Path, db: Rdict) -> None:
    stored: bytes | None = db.get(FORMAT_KEY)
    if stored is None:
        # No write has ever been made: fresh, or its maker died before the first one.
        if db.latest_sequence_number() != 0:
            raise StoreUnusable(STORE_FOREIGN, path=str(path), found="a database without a format number")
        first = WriteBatch(raw_mode=True)
        first.put(FORMAT_KEY, encode_format(FIRST))
        db.write(first)
        db.flush_wal(True)
        sync_folder(path.parent)
        return
    refuse_other_formats(stored, str(path))
    if db.get(COPYING_KEY) is not None:
        raise StoreUnusable(STORE_DAMAGED, path=str(path), found="a copy that was not finished: remove it, copy again")


def _unusable(path: Path, error: Exception) -> StoreUnusable:
    text = str(error)
    return StoreUnusable(
        next((reason for sign, reason in _SIGNS if sign in text), STORE_UNREACHABLE), path=str(path), found=text
    )


# What RocksDB says -> what it means; the first that fits.
_SIGNS = (
    ("lock hold by current process", STORE_LOCKED),
    ("While lock file", STORE_LOCKED),
    ("No space left on device", STORE_NO_ROOM),
    ("does not match existing comparator", STORE_FOREIGN),
    ("Corruption:", STORE_DAMAGED),
    ("No such file or directory", STORE_DAMAGED),  # the folder is there, so a part of the database is not
)


def _close(db: Rdict) -> None:
    """Writes memory out if possible; if not, nothing is lost, because the log has it."""

    def is_open() -> bool:
        try:
            db.close()
        except RuntimeError:  # another thread is inside a call
            return True
        except Exception:  # noqa: BLE001 - rocksdict raises nothing narrower
            return False
        return False

    _wait_while(is_open, "a call has not ended")


def _wait_while(condition: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + _CLOSE_SECONDS_MAX
    while condition():
        if time.monotonic() > deadline:
            raise StoreFailed(f"the store can't be closed: {complaint}")
        time.sleep(0.001)
