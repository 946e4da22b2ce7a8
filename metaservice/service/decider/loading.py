"""Tables as a start finds them in the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from metaservice.core.table.inlined import Inlined
from metaservice.core.table.model import Idle
from metaservice.service.decider.snapshots import TableState
from metaservice.store import keys
from metaservice.store.port import Store, StoreCursor, prefix_end
from metaservice.store.records import decode_table

Get = Callable[[bytes], bytes | None]


def load_tables(store: Store, raw_ids: Sequence[bytes]) -> list[TableState]:
    """The tables in this order. Nothing is written meanwhile.

    Metadata, and what has one record a table at most, is read in one pass. The rest is looked up, by several threads
    where a look-up waits for more than this machine; neighbours by id, whose records lie side by side, by the same one.
    """
    cursor = store.cursor()
    known = {
        key: raw
        for prefix in (keys.ROW_IDS, keys.OLDEST, keys.INLINED_COUNTS)
        for key, raw in cursor.scan(prefix, prefix_end(prefix))
    }
    metadata = {key[1:-8]: raw for key, raw in cursor.scan(keys.TABLES, prefix_end(keys.TABLES))}  # the newest remains
    ordered = sorted(raw_ids)
    size = -(-len(ordered) // store.reads_at_once) or 1
    slices = [ordered[begin : begin + size] for begin in range(0, len(ordered), size)]

    def load(some: Sequence[bytes]) -> list[TableState]:
        own = store.cursor()
        return [_load(own, raw_id, metadata[raw_id], known.get) for raw_id in some]

    if len(slices) <= 1:
        loaded = list(map(load, slices))
    else:
        with ThreadPoolExecutor(len(slices), thread_name_prefix="load") as pool:
            loaded = list(pool.map(load, slices))
    found = {table.raw_id: table for tables in loaded for table in tables}
    return [found[raw_id] for raw_id in raw_ids]


def load_table(cursor: StoreCursor, raw_id: bytes) -> TableState:
    """A table, live or dropped."""
    prefix = keys.table_prefix(raw_id)
    _, raw = next(iter(cursor.scan_back(prefix, prefix_end(prefix))))
    return _load(cursor, raw_id, raw, cursor.get)


def _load(cursor: StoreCursor, raw_id: bytes, metadata: bytes, get: Get) -> TableState:
    """`get` finds the records of which a table has one at most."""
    times = keys.times_prefix(raw_id)
    key, raw_version = next(iter(cursor.scan_back(times, prefix_end(times))))
    head, time_us = keys.decode_version(raw_version), keys.decode_version(key[-8:])
    raw_row = get(keys.row_id_key(raw_id))
    table = TableState(raw_id, decode_table(metadata), head, time_us)
    table.next_row_id = keys.decode_version(raw_row) if raw_row is not None else 1
    table.last_metadata_version = head
    raw_oldest = get(keys.oldest_key(raw_id))
    if raw_oldest is not None:
        table.oldest = keys.decode_version(raw_oldest)
        commits = keys.commits_prefix(raw_id)
        first, _ = next(iter(cursor.scan(commits, prefix_end(commits))))
        table.trimmed = keys.decode_version(first[-8:])
    raw_idle = cursor.get(keys.idle_key(raw_id, head))
    if raw_idle is not None:
        table.idle = Idle(head, keys.decode_version(raw_idle))
    raw_inlined = get(keys.inlined_count_key(raw_id))
    if raw_inlined is not None:
        table.inlined = Inlined(*keys.decode_counts(raw_inlined))
    return table
