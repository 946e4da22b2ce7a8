"""The port to durable storage: an ordered map from bytes to bytes, written in batches, read as of a moment.

Writing and making durable are two steps, so that one `sync` can pay for many batches:

    store.write(batch)      # whole or not at all; readers in this process see it at once
    store.sync()            # whatever was written before survives kill -9 and power loss

One thread writes, syncs and closes; any thread reads. A key's first byte is never zero: those keys are the store's own.

    StoreUnusable    what is on disk can't be opened or read; the reason is a word that stays
    StoreFailed      a call failed half-way and its effect is unknown: answer nothing, close, open again
    StoreGone        what was opened is no longer there: answer nothing and end
    StoreFenced      another process has it: likewise
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

STORE_LOCKED = "STORE_LOCKED"  # another process, or another part of this one, has it open
STORE_DAMAGED = "STORE_DAMAGED"  # bytes are not what was written
STORE_OPTIONS_OTHER = "STORE_OPTIONS_OTHER"  # its library would run with options that are not ours
STORE_FOREIGN = "STORE_FOREIGN"  # a database of someone else's
STORE_NO_ROOM = "STORE_NO_ROOM"  # opening needs more room than the file system has
STORE_UNREACHABLE = "STORE_UNREACHABLE"  # permissions, a file in the folder's place, a broken disk
STORE_LOG_OTHER = "STORE_LOG_OTHER"  # the log is not in the bucket that was named
STORE_LOG_FOREIGN = "STORE_LOG_FOREIGN"  # what is in the log's bucket is not this store's
STORE_LOG_UNREACHABLE = "STORE_LOG_UNREACHABLE"
STORE_LOG_UNFENCED = "STORE_LOG_UNFENCED"  # two processes could write the log
STORE_IS_BACKUP = "STORE_IS_BACKUP"  # a backup: it is restored, never served
FORMAT_TOO_NEW = "FORMAT_TOO_NEW"  # written by a later release
MEANING = {
    STORE_LOCKED: "another process has this store open; end it, or name another folder",
    STORE_DAMAGED: "the store is damaged; put back what is missing, or restore a backup",
    STORE_OPTIONS_OTHER: "SlateDB would run with other options; install the release that LakeTX names",
    STORE_FOREIGN: "this is a database of another program; name another folder",
    STORE_NO_ROOM: "the disk has too little room to open the store",
    STORE_UNREACHABLE: "the store can't be opened",
    STORE_LOG_OTHER: "the store's log is elsewhere; leave out --store-log, or move the store with `laketx store copy`",
    STORE_LOG_FOREIGN: "no log of this store is there; name the server that has it (--store-log-endpoint), "
    "or restore a backup if the log is lost",
    STORE_LOG_UNREACHABLE: "the bucket of the store's log can't be used, and the newest commits are only there; "
    "check --store-log-endpoint and the keys",
    STORE_LOG_UNFENCED: "the server of the store's log ignores conditions of PUT, so two processes could write it; "
    "use another server",
    STORE_IS_BACKUP: "this is a backup or an unfinished one; `laketx restore` makes a data folder of it",
    FORMAT_TOO_NEW: "a later release wrote this store; start that release",
}


class Batch:
    """Puts and deletes, applied in order; the last one for a key counts."""

    __slots__ = ("ops",)

    def __init__(self) -> None:
        self.ops: list[tuple[bytes, bytes | None]] = []

    def put(self, key: bytes, value: bytes) -> None:
        self.ops.append((key, value))

    def delete(self, key: bytes) -> None:
        self.ops.append((key, None))

    def clear(self) -> None:
        self.ops.clear()

    def __len__(self) -> int:
        return len(self.ops)


class StoreCursor(Protocol):
    """The store as of the cursor's creation, for one thread.

    Scans may be nested, interleaved and left unfinished. What a cursor sees stays on disk while it lives: drop it soon.
    """

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The entries with start <= key < end, ascending."""

    def scan_back(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The entries with start <= key < end, descending."""

    def get(self, key: bytes) -> bytes | None: ...


class Readable(Protocol):
    """A store, to those who only read."""

    def get(self, key: bytes) -> bytes | None:
        """The latest value written, durable or not."""

    def cursor(self) -> StoreCursor: ...


class Store(Protocol):
    reads_at_once: int = 1  # by threads with a cursor each, where a start has many to do

    def get(self, key: bytes) -> bytes | None:
        """The latest value written, durable or not."""

    def cursor(self) -> StoreCursor: ...

    def write(self, batch: Batch) -> None:
        """Applies the whole batch or nothing; the caller can reuse the batch afterwards."""

    def sync(self) -> None:
        """Makes every earlier write durable before it returns."""

    def checkpoint(self, path: Path) -> Callable[[], None]:
        """Fixes a moment during the call; what it returns writes a copy as of then into a new folder.

        The copy can be opened as a store. What takes long is left to the returned call. Both raise OSError if the copy
        could not be made; any thread can make them while another writes.
        """

    def write_out(self) -> None:
        """Writes memory out, so that the next checkpoint or opening has less to do. Any thread can call it.

        Raises OSError if it fails.
        """

    def size_bytes(self) -> int: ...

    def log_bytes(self) -> int:
        """Bytes of the write-ahead log, which a start after a crash replays."""

    def free_bytes(self) -> int:
        """The free space: on the file system, or below a configured maximum, whichever is less; may be negative."""

    def close(self) -> None:
        """Makes every write durable and releases the folder; closing twice is no error."""


class StoreFailed(Exception):  # noqa: N818 - says what happened
    """A write, sync or read broke: every later call raises this too, until the store is opened again."""


class StoreGone(Exception):  # noqa: N818 - likewise
    """The folder was removed or replaced while it was open: what is written to it can't be found again."""


class StoreFenced(StoreGone):
    """Another process has opened the store, and is the one that writes to it by now."""


class StoreUnusable(Exception):  # noqa: N818 - likewise
    """The store can't be opened, or (STORE_DAMAGED alone) a part of it can't be read; the rest may still be."""

    def __init__(self, reason: str, **facts: str | int) -> None:
        listed = ", ".join(f"{name.replace('_', ' ')}: {fact}" for name, fact in facts.items())
        super().__init__(f"{reason}: {MEANING[reason]} ({listed})")
        self.reason = reason
        self.facts = facts


def prefix_end(prefix: bytes) -> bytes:
    """The first key after all keys that begin with the prefix."""
    stem = prefix.rstrip(b"\xff")
    if not stem:
        raise ValueError("nothing comes after every key with this prefix")
    return stem[:-1] + bytes([stem[-1] + 1])
