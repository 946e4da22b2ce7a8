"""What a check asks of the two indexes of external files: each entry is in them, and each of their keys has its entry.

imports         live external entries by what tells files from each other: a file is live once
foreign uses    external entries, live or past, that lie in the folder of a table: the purge keeps their files
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from metaservice.service.operate.replay import Indexed
from metaservice.store import keys
from metaservice.store.external_files import import_of, names_of
from metaservice.store.port import StoreCursor, prefix_end
from metaservice.store.records.tables import decode_live

Problem = Callable[..., None]
Count = Callable[[], bool]


def check_entry(cursor: StoreCursor, raw_id: bytes, one: Indexed, problem: Problem) -> None:
    """Checks that both indexes have an external entry."""
    entry = one.entry
    told = {"table": keys.uuid_text(raw_id), "path": entry.path, "added": one.added}
    if not one.removed and cursor.get(import_of(raw_id, entry)) is None:
        problem("IMPORT_MISSING", **told)
    for key in names_of(raw_id, entry, one.added):
        if cursor.get(key) is None:
            problem("FOREIGN_USE_MISSING", **told, of=keys.uuid_text(key[1:17]))


def check_imports(cursor: StoreCursor, raw_id: bytes, problem: Problem, count: Count) -> Iterator[None]:
    """Checks that each import of a table belongs to a live external entry."""
    prefix = keys.import_prefix(raw_id)
    for key, _ in cursor.scan(prefix, prefix_end(prefix)):
        if not _is_import(cursor, raw_id, key):
            problem("IMPORT_WITHOUT_ENTRY", table=keys.uuid_text(raw_id), key=key[17:].hex())
        if count():
            yield


def check_foreign_uses(cursor: StoreCursor, problem: Problem, count: Count) -> Iterator[None]:
    """Checks that each file indexed as a foreign use has that entry; of all tables."""
    prefix = keys.named_prefix(b"")
    for key, _ in cursor.scan(prefix, prefix_end(prefix)):
        try:
            path, holder, place, added = keys.split_named(key)
            has_entry = cursor.get(keys.drop_begun_key(holder)) is not None or _is_held(cursor, holder, place, added)
        except (ValueError, struct.error) as error:
            problem("RECORD_UNREADABLE", record="foreign use", key=key.hex(), error=error)
            continue
        if not has_entry:
            told = {"table": keys.uuid_text(holder), "of": keys.uuid_text(key[1:17]), "added": added}
            problem("FOREIGN_USE_WITHOUT_ENTRY", **told, path=path.decode(errors="replace"))
        if count():
            yield


def _is_import(cursor: StoreCursor, raw_id: bytes, key: bytes) -> bool:
    raw = cursor.get(keys.live_of_import(key))
    if raw is None:
        return False
    try:
        live, _ = decode_live(raw)
    except Exception:  # noqa: BLE001 - that it can't be read is told by the check of the index
        return True
    return live.entry.external and import_of(raw_id, live.entry) == key


def _is_held(cursor: StoreCursor, holder: bytes, place: bytes, added: int) -> bool:
    """Whether it is live since that version, or was live once."""
    live_key = keys.live_prefix(holder) + place
    raw = cursor.get(live_key)
    if raw is not None:
        try:
            live, _ = decode_live(raw)
        except Exception:  # noqa: BLE001 - that it can't be read is told by the check of the index
            return True
        if live.added == added:
            return live.entry.external
    partition = keys.partition_of(live_key)
    commits = keys.commits_prefix(holder)
    last = next(iter(cursor.scan_back(commits, prefix_end(commits))), None)
    head = keys.split_versioned(last[0])[1] if last is not None else added
    length = len(partition.encode())
    for start, end in keys.span_ranges(holder, partition, added, head):
        for key, _ in cursor.scan(start, end):
            _, since, tail = keys.decode_span(key, length)
            if (since, tail) == (added, place[length + 1 :]):
                return True
    return False
