"""Copies all of a store: to another one that is new, or to a folder by way of a mirror that is kept."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from metaservice.store.engines.data_folder import sync_folder
from metaservice.store.engines.rocks import RocksStore
from metaservice.store.formats import COPYING_KEY, FORMAT_KEY
from metaservice.store.port import Batch, Store, StoreCursor, StoreUnusable

FIRST_KEY: Final = b"\x01"
AFTER_ALL: Final = b"\xff" * 64
MIRROR: Final = "backup.mirror"
_BATCH_BYTES: Final = 4 << 20
_SCANNED_AT_ONCE: Final = 50_000  # a store in a bucket deletes files that a scan began with, after some minutes


def copy_to_folder(cursor: StoreCursor, path: Path) -> int:
    """Makes a data folder of RocksDB's of what the cursor sees; returns the number of entries."""
    try:
        store = RocksStore(path)
        try:
            copied = copy_entries(cursor, store)
        finally:
            store.close()
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    sync_folder(path.parent)
    return copied


def copy_entries(cursor: StoreCursor, target: Store) -> int:
    """Copies what the cursor sees; returns the number of entries. Until it is done, the target can't be opened."""
    started = Batch()
    started.put(COPYING_KEY, b"")
    target.write(started)
    target.sync()
    copied = sum(_write_all(_scan_all(cursor), target))
    done = Batch()
    form, own = cursor.get(FORMAT_KEY), target.get(FORMAT_KEY)
    if form is not None:
        done.put(FORMAT_KEY, max(form, own or b""))  # a target whose log is in another bucket needs its format
    done.delete(COPYING_KEY)
    target.write(done)
    target.sync()
    return copied


def copy_by_mirror(cursor: StoreCursor, mirror: Path, path: Path) -> int:
    """Makes a data folder of what the cursor sees; returns the number of entries that differed from the mirror.

    The mirror is no more than a way to write less: whatever is wrong with it, another one is made.
    """
    try:
        return _copy_by_mirror(cursor, mirror, path)
    except StoreUnusable:
        shutil.rmtree(mirror, ignore_errors=True)
    return _copy_by_mirror(cursor, mirror, path)


def _copy_by_mirror(cursor: StoreCursor, mirror: Path, path: Path) -> int:
    if not mirror.exists():
        copy_to_folder(cursor, mirror)
    store = RocksStore(mirror)
    try:
        form = cursor.get(FORMAT_KEY)
        ops = diff_entries(_scan_all(cursor), _scan_all(store.cursor()))
        changed = sum(_write_all(ops, store))
        if form is not None and form != store.get(FORMAT_KEY):
            batch = Batch()
            batch.put(FORMAT_KEY, form)
            store.write(batch)
        store.sync()
        store.checkpoint(path)()
    finally:
        store.close()
    return changed


def diff_entries(
    expected: Iterator[tuple[bytes, bytes]], present: Iterator[tuple[bytes, bytes]]
) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the changes that turn the present entries into the expected ones; both are in the order of their keys."""
    entry = next(present, None)
    for key, value in expected:
        while entry is not None and entry[0] < key:
            yield entry[0], None
            entry = next(present, None)
        if entry is None or entry[0] > key:
            yield key, value
            continue
        if entry[1] != value:
            yield key, value
        entry = next(present, None)
    if entry is not None:
        yield entry[0], None
        yield from ((key, None) for key, _ in present)


def _scan_all(cursor: StoreCursor) -> Iterator[tuple[bytes, bytes]]:
    start = FIRST_KEY
    while True:
        count = 0
        for entry in islice(cursor.scan(start, AFTER_ALL), _SCANNED_AT_ONCE):
            yield entry
            start = entry[0] + b"\x00"
            count += 1
        if count < _SCANNED_AT_ONCE:
            return


def _write_all(entries: Iterable[tuple[bytes, bytes | None]], target: Store) -> Iterator[int]:
    """Yields how many were written."""
    batch, size = Batch(), 0
    for key, value in entries:
        batch.ops.append((key, value))
        size += len(key) + len(value or b"")
        if size >= _BATCH_BYTES:
            target.write(batch)
            target.sync()
            yield len(batch)
            batch.clear()
            size = 0
    target.write(batch)
    yield len(batch)
