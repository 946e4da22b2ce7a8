"""A start loads the same tables whether one thread looks them up or several."""

from __future__ import annotations

import threading

import pytest

from metaservice.client import uuid7
from metaservice.core.table.meta import Profile, TableMeta
from metaservice.core.table.model import Principal
from metaservice.core.table.partitions import Partitioning
from metaservice.service.commit.transactions import Transactions
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.loading import load_table, load_tables
from metaservice.service.decider.state import State
from metaservice.service.table.catalog import Catalog
from metaservice.store.memory import MemoryCursor, MemoryStore

TABLES = 10


class Clock:
    def now_us(self) -> int:
        return 1_000_000

    def mono_ms(self) -> int:
        return 1


class CountingStore(MemoryStore):
    """Notes the threads that read it."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: set[int] = set()

    def cursor(self) -> MemoryCursor:
        self.readers.add(threading.get_ident())
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
def test_several_threads_find_what_one_finds(store: CountingStore, at_once: int) -> None:
    cursor = store.cursor()
    alone = {raw.meta.table_id: raw for raw in State(store).tables.values()}
    raw_ids = [table.raw_id for table in alone.values()]
    store.reads_at_once = at_once
    store.readers.clear()
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
