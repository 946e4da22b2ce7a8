"""A start loads the same tables whether one thread looks them up or several."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaservice.client import uuid7
from metaservice.core.table.meta import Profile, TableMeta
from metaservice.core.table.model import Principal
from metaservice.core.table.partitions import Partitioning
from metaservice.service.commit.transactions import Transactions
from metaservice.service.decider import loading
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.loading import PASSED_MAX, load_table, load_tables, newest_of_each
from metaservice.service.decider.state import State
from metaservice.service.table.catalog import Catalog
from metaservice.store import keys
from metaservice.store.engines.memory import MemoryCursor, MemoryStore
from metaservice.store.port import Batch

TABLES = 10
PATIENCE_S = 20.0


class Clock:
    def now_us(self) -> int:
        return 1_000_000

    def mono_ms(self) -> int:
        return 1


class CountingStore(MemoryStore):
    """Notes the threads that read it. One that is expected to be not the only one waits for another."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: set[int] = set()
        self.waits = False
        self._met = threading.Event()

    def cursor(self) -> MemoryCursor:
        self.readers.add(threading.get_ident())
        if len(self.readers) > 1:
            self._met.set()
        if self.waits:
            self._met.wait(PATIENCE_S)
        return super().cursor()


def fail(error: BaseException) -> None:
    raise error


@pytest.fixture
def store() -> CountingStore:
    """With tables of several versions and owners of row ids."""
    store = CountingStore()
    decider = Decider(lambda: State(store), lambda: None, fail)
    catalog = Catalog(decider, Transactions(decider, Clock(), 1, 1, 0), Clock())
    decider.start()
    for number in range(TABLES):
        meta = TableMeta(
            uuid7(), f"t{number}", Partitioning(()), (), 0, Profile.MAXCOMPUTE, 1, {}, frozenset(), "", (), 0
        )
        decider.call(lambda meta=meta: catalog.create(meta, Principal()))  # type: ignore[misc]
    decider.stop()
    return store


@pytest.mark.parametrize("at_once", [2, 3, TABLES, 4 * TABLES])
def test_several_threads_find_what_one_finds(
    store: CountingStore, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "PART_MIN", 1)
    cursor = store.cursor()
    alone = {raw.meta.table_id: raw for raw in State(store).tables.values()}
    raw_ids = [table.raw_id for table in alone.values()]
    store.reads_at_once = at_once
    store.readers.clear()
    store._met.clear()
    store.waits = True
    found = load_tables(store, raw_ids[::-1])
    assert [table.raw_id for table in found] == raw_ids[::-1]
    assert len(store.readers) > 1
    for table in found:
        looked_up = load_table(cursor, table.raw_id)
        assert table.view() == looked_up.view() == alone[table.meta.table_id].view()
        assert table.next_row_id == looked_up.next_row_id


def test_a_store_without_tables_is_loaded(store: CountingStore) -> None:
    store.reads_at_once = 4
    assert load_tables(store, []) == []


@given(
    counts=st.dictionaries(st.integers(0, 255), st.integers(1, 4 * PASSED_MAX), min_size=1, max_size=12),
    between=st.tuples(st.integers(0, 255), st.integers(0, 255)),
)
def test_a_pass_finds_the_newest_record_of_each_table(counts: Mapping[int, int], between: tuple[int, int]) -> None:
    """However many records a table has; only those of the tables asked for, each once."""
    store, batch = MemoryStore(), Batch()
    tables = {number: bytes([number]) * 16 for number in counts}
    for number, count in counts.items():
        for version in range(count):
            batch.put(keys.idle_key(tables[number], version), keys.encode_version(version))
    batch.put(keys.EPOCH, b"")  # neighbours of the family
    batch.put(b"K" + b"\xff" * 16, b"")
    store.write(batch)
    first, last = min(between), max(between)
    found = list(newest_of_each(store, keys.IDLE, bytes([first]) * 16, bytes([last]) * 16))
    assert [prefix for prefix, _ in found] == [
        keys.IDLE + tables[number] for number in sorted(counts, reverse=True) if first <= number <= last
    ]
    for prefix, (key, raw) in found:
        newest = counts[prefix[1]] - 1
        assert (key, raw) == (keys.idle_key(prefix[1:], newest), keys.encode_version(newest))


def test_the_first_kept_commit_is_looked_up_when_it_is_asked_for(store: CountingStore) -> None:
    before = State(store)
    table = next(iter(before.tables.values()))
    assert table.trimmed == before.trimmed(table) == 0
    batch = Batch()
    batch.put(keys.oldest_key(table.raw_id), keys.encode_version(7))
    batch.put(keys.commit_key(table.raw_id, 5), b"")
    batch.delete(keys.commit_key(table.raw_id, 0))
    batch.delete(keys.commit_key(table.raw_id, 1))
    store.write(batch)
    state = State(store)
    found = state.get_table(table.meta.table_id)
    assert (found.oldest, found.trimmed) == (7, None)
    assert state.trimmed(found) == 5
    assert found.trimmed == 5
