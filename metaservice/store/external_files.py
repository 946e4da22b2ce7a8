"""External files in the store: those that are live, and those in the folder of a table of this service.

The second index contains files that an earlier release accepted; they can't be registered any more. It keeps the purge
from deleting files that another table reads.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from metaservice.core.errors import MetaError
from metaservice.core.table.external import identity_of, locate
from metaservice.core.table.model import Entry, Live
from metaservice.store import entry_keys, keys
from metaservice.store.port import Batch, Readable, Store, StoreCursor, prefix_end
from metaservice.store.records.plans import decode_stored
from metaservice.store.records.tables import decode_live

DIGEST_BYTES: Final = 16
IMPORTS: Final = "imports"
BATCH_MAX: Final = 5_000


def put_import(batch: Batch, table: bytes, live: Live) -> None:
    """Records that an external entry is live."""
    batch.put(import_of(table, live.entry), b"")
    _put_named(batch, table, live, live.entry.path)


def end_import(batch: Batch, table: bytes, live: Live) -> None:
    """Records that it was removed; kept versions may still name it."""
    batch.delete(import_of(table, live.entry))


def forget_import(batch: Batch, table: bytes, live: Live) -> None:
    """Removes it when no kept version names it since it was added."""
    for key in names_of(table, live.entry, live.added):
        batch.delete(key)


def import_of(table: bytes, entry: Entry) -> bytes:
    """Its key in the first index, while it is live."""
    return entry_keys.import_key(table, _digest(entry.path), entry.partition, entry.bucket, entry.path)


def names_of(table: bytes, entry: Entry, added: int) -> list[bytes]:
    """Its keys in the second index, as long as a kept version names it."""
    return _named(table, entry, added, entry.path)


def find_imports(store: Readable, table: bytes, path: str) -> list[Live]:
    """The live entries of a file, under any spelling."""
    prefix = entry_keys.import_prefix(table, _digest(path))
    raws = [store.get(entry_keys.live_of_import(key)) for key, _ in store.cursor().scan(prefix, prefix_end(prefix))]
    return [decode_live(raw)[0] for raw in raws if raw is not None]


def has_imports(cursor: StoreCursor, table: bytes) -> bool:
    """Whether a live entry of the table is external."""
    return _any(cursor, entry_keys.import_prefix(table))


def find_named(cursor: StoreCursor, table: bytes, paths: Iterable[str]) -> set[str]:
    """The files of a table's folder that an external entry of any table names, live or past."""
    if not _any(cursor, entry_keys.named_prefix(table)):
        return set()
    return {path for path in paths if _any(cursor, entry_keys.named_prefix(table, path))}


def index_imports(store: Store, batch: Batch) -> None:
    """Adds both indexes to data of an earlier release; `batch` gets the note that it is done."""
    done, cursor = keys.upkeep_key(IMPORTS), store.cursor()
    if cursor.get(done) is not None:
        return
    added = Batch()
    for family in (b"I", b"P"):
        for key, raw in cursor.scan(family, prefix_end(family)):
            if not decode_stored(raw).external:
                continue
            live, removed = decode_live(raw)
            if not removed:
                put_import(added, key[1:17], live)
            _put_named(added, key[1:17], live, live.entry.path)
            if live.entry.path.startswith("/"):  # perhaps by a link; what that keeps is kept for good
                _put_named(added, key[1:17], live, os.path.realpath(live.entry.path))
            if len(added) >= BATCH_MAX:
                store.write(added)
                added.clear()
    if len(added):
        store.write(added)
    batch.put(done, b"")


def _put_named(batch: Batch, table: bytes, live: Live, path: str) -> None:
    for key in _named(table, live.entry, live.added, path):
        batch.put(key, b"")


def _named(holder: bytes, entry: Entry, added: int, path: str) -> list[bytes]:
    """Return a key for each part of the path that may be a table's folder."""
    try:
        location = locate(path)
    except MetaError:
        return []
    own = entry_keys.live_key(holder, entry.partition, entry.bucket, entry.path)
    inside = {keys.uuid_bytes(table_id): location.inside(table_id) for table_id in location.table_ids}
    return [entry_keys.named_key(table, folder, holder, own, added) for table, folder in inside.items() if folder]


def _digest(path: str) -> bytes:
    return blake2b(identity_of(path).encode(), digest_size=DIGEST_BYTES).digest()


def _any(cursor: StoreCursor, prefix: bytes) -> bool:
    return next(iter(cursor.scan(prefix, prefix_end(prefix))), None) is not None
