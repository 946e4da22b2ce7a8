"""Indexes that an opening adds to data of an earlier release. Done once, repeatable, and old keys stay as they are."""

from __future__ import annotations

from typing import Final

from metaservice.store import entry_keys, keys
from metaservice.store.port import Batch, Store
from metaservice.store.records.plans import decode_idle, decode_stored

PAST: Final = "past"
BATCH_MAX: Final = 5_000


def index_the_past(store: Store, batch: Batch) -> None:
    """Adds spans of removed entries (Q) and commits without a time version (J); `batch` gets the note of it."""
    cursor = store.cursor()
    done = keys.upkeep_key(PAST)
    if cursor.get(done) is not None:
        return
    added = Batch()
    for key, raw in cursor.scan(b"P", b"Q"):
        entry, table = decode_stored(raw), key[1:17]
        added.put(
            entry_keys.span_key(table, entry.added, entry.removed, entry.partition, entry.bucket, entry.path),
            b"",
        )
        _write_full(store, added)
    table, logical = b"", 0
    for key, raw in cursor.scan(b"L", b"M"):
        version = keys.decode_version(key[17:])
        if key[1:17] != table or not decode_idle(raw):
            table, logical = key[1:17], version
        else:
            added.put(keys.idle_key(table, version), keys.encode_version(logical))
        _write_full(store, added)
    if len(added):
        store.write(added)
    batch.put(done, b"")


def _write_full(store: Store, added: Batch) -> None:
    if len(added) >= BATCH_MAX:
        store.write(added)
        added.clear()
