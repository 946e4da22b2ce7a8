"""Tables as a start finds them in the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final, Protocol, TypeVar

from metaservice.core.table.inlined import Inlined
from metaservice.core.table.meta import TableMeta
from metaservice.core.table.model import Idle
from metaservice.service.decider.snapshots import TableState
from metaservice.store import keys
from metaservice.store.port import StoreCursor, prefix_end
from metaservice.store.records.tables import decode_table

V = TypeVar("V")
StoredRecord = tuple[bytes, bytes]  # a key and its value

ONE_EACH: Final = (keys.ROW_IDS, keys.OLDEST, keys.INLINED_COUNTS)  # a table has one record of these at most
NEWEST_EACH: Final = (keys.TABLES, keys.TIMES, keys.IDLE)  # only the newest of a table counts
PASSED_MIN, PASSED_MAX = 8, 64
PART_MIN: Final = 256  # tables: passes over fewer cost more than they save


class DecodedTables:
    """Metadata of tables by their records: a record that was decoded before needs not be decoded again."""

    def __init__(self) -> None:
        self._by_record: Mapping[bytes, TableMeta] = {}

    def __call__(self, raw: bytes) -> TableMeta:
        return self._by_record.get(raw) or decode_table(raw)

    def keep(self, raws: Iterable[bytes]) -> None:
        """These, and no others."""
        self._by_record = {raw: self(raw) for raw in raws}


@dataclass(frozen=True, slots=True)
class ReadTables:
    """Records of tables, by family and table: of some families the newest with its key, of others the only one."""

    newest: Mapping[bytes, StoredRecord]
    only: Mapping[bytes, bytes]

    def metadata(self) -> Iterator[bytes]:
        return (raw for prefix, (_, raw) in self.newest.items() if prefix.startswith(keys.TABLES))


class Readable(Protocol):
    """A store, to those who only read."""

    @property
    def reads_at_once(self) -> int: ...

    def cursor(self) -> StoreCursor: ...


def load_tables(
    store: Readable, raw_ids: Sequence[bytes], decode: Callable[[bytes], TableMeta] = decode_table
) -> list[TableState]:
    """Load the tables in this order. Nothing is written meanwhile."""
    records = read_tables(store, raw_ids)
    return [_load(raw_id, records.newest.get, records.only.get, decode) for raw_id in raw_ids]


def read_tables(store: Readable, raw_ids: Sequence[bytes]) -> ReadTables:
    """Records of a family lie side by side, so they are read in passes: one over each part of the tables, by several
    threads where a read waits for more than this machine.
    """
    ordered = sorted(raw_ids)
    size = max(-(-len(ordered) // store.reads_at_once), PART_MIN)
    parts = [ordered[begin : begin + size] for begin in range(0, len(ordered), size)]
    newest = [partial(newest_of_each, store, family, part[0], part[-1]) for family in NEWEST_EACH for part in parts]
    single = [partial(_all_of, store, family) for family in ONE_EACH]
    only = _at_once(single, store.reads_at_once)
    return ReadTables(_at_once(newest, store.reads_at_once), only)


def load_table(cursor: StoreCursor, raw_id: bytes) -> TableState:
    """A table, live or dropped."""
    newest = lambda prefix: next(iter(cursor.scan_back(prefix, prefix_end(prefix))), None)  # noqa: E731 - no other name
    return _load(raw_id, newest, cursor.get, decode_table)


def newest_of_each(store: Readable, family: bytes, first: bytes, last: bytes) -> Iterator[tuple[bytes, StoredRecord]]:
    """The newest record of each table, by its prefix.

    A table's older records are passed while they are few; beyond some, the next table is looked up.
    """
    cursor = store.cursor()
    start, end, passed_max, is_done = family + first, prefix_end(family + last), PASSED_MAX, False
    while not is_done:
        prefix, passed, is_done = b"", 0, True
        for key, raw in cursor.scan_back(start, end):
            if not key.startswith(prefix) or not prefix:
                passed_max = min(2 * passed_max, PASSED_MAX) if prefix else passed_max
                prefix, passed = key[:17], 0
                yield prefix, (key, raw)
            elif passed < passed_max:
                passed += 1
            else:
                end, passed_max, is_done = prefix, max(passed_max // 4, PASSED_MIN), False
                break


def first_commit(cursor: StoreCursor, raw_id: bytes) -> int:
    """The first version whose commit is kept."""
    commits = keys.commits_prefix(raw_id)
    key, _ = next(iter(cursor.scan(commits, prefix_end(commits))))
    return keys.decode_version(key[-8:])


def _load(
    raw_id: bytes,
    newest: Callable[[bytes], StoredRecord | None],
    get: Callable[[bytes], bytes | None],
    decode: Callable[[bytes], TableMeta],
) -> TableState:
    """`newest` finds the last record of the table with a prefix, `get` records of which a table has one at most."""
    metadata, timed, idle = (newest(family + raw_id) for family in NEWEST_EACH)
    assert metadata is not None
    assert timed is not None
    head, time_us = keys.decode_version(timed[1]), keys.decode_version(timed[0][-8:])
    raw_row = get(keys.row_id_key(raw_id))
    table = TableState(raw_id, decode(metadata[1]), head, time_us)
    table.next_row_id = keys.decode_version(raw_row) if raw_row is not None else 1
    table.last_metadata_version = head
    raw_oldest = get(keys.oldest_key(raw_id))
    if raw_oldest is not None:
        table.oldest, table.trimmed = keys.decode_version(raw_oldest), None
    if idle is not None and keys.decode_version(idle[0][-8:]) == head:
        table.idle = Idle(head, keys.decode_version(idle[1]))
    raw_inlined = get(keys.inlined_count_key(raw_id))
    if raw_inlined is not None:
        table.inlined = Inlined(*keys.decode_counts(raw_inlined))
    return table


def _all_of(store: Readable, family: bytes) -> Iterator[StoredRecord]:
    return store.cursor().scan(family, prefix_end(family))


def _at_once(passes: Sequence[Callable[[], Iterator[tuple[bytes, V]]]], threads: int) -> Mapping[bytes, V]:
    """What the passes find."""
    if threads == 1:
        return dict(chain.from_iterable(each() for each in passes))
    with ThreadPoolExecutor(threads, thread_name_prefix="load") as pool:
        return dict(chain.from_iterable(pool.map(lambda each: list(each()), passes)))
