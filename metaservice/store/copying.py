"""Copies all of a store to another one that is new."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from metaservice.store.data_folder import sync_folder
from metaservice.store.formats import COPYING_KEY, FORMAT_KEY
from metaservice.store.port import Batch, Store, StoreCursor
from metaservice.store.rocks import RocksStore

FIRST_KEY: Final = b"\x01"
AFTER_ALL: Final = b"\xff" * 64
_BATCH_BYTES: Final = 4 << 20


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
    copied = sum(_write_all(cursor.scan(FIRST_KEY, AFTER_ALL), target))
    done = Batch()
    form = cursor.get(FORMAT_KEY)
    if form is not None:
        done.put(FORMAT_KEY, form)
    done.delete(COPYING_KEY)
    target.write(done)
    target.sync()
    return copied


def _write_all(entries: Iterator[tuple[bytes, bytes]], target: Store) -> Iterator[int]:
    """Yields how many were written."""
    batch, size = Batch(), 0
    for key, value in entries:
        batch.put(key, value)
        size += len(key) + len(value)
        if size >= _BATCH_BYTES:
            target.write(batch)
            target.sync()
            yield len(batch)
            batch.clear()
            size = 0
    target.write(batch)
    yield len(batch)
