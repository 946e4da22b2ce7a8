"""What a standby reads before it leads: it changes nothing in the bucket, and no answer of the store opened later."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from metaservice.client import uuid7
from metaservice.core.table.meta import Profile, TableMeta
from metaservice.core.table.model import Principal
from metaservice.core.table.partitions import Partitioning
from metaservice.server.ha.prefetch import Prefetch
from metaservice.service.commit.transactions import Transactions
from metaservice.service.decider import loading
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.state import State
from metaservice.service.table.catalog import Catalog
from metaservice.store.engines.slate import SlateStore
from metaservice.store.object_location import CACHE_BYTES, LogPlace, ObjectPlace
from metaservice.store.port import StoreFailed

TABLES = 20
PATIENCE_S = 20.0


class Clock:
    def now_us(self) -> int:
        return 1_000_000

    def mono_ms(self) -> int:
        return 1


def fail(error: BaseException) -> None:
    raise error


class Leader:
    """A service over a store in a bucket."""

    def __init__(self, place: ObjectPlace) -> None:
        self.store = SlateStore(place)
        self._decider = Decider(lambda: State(self.store), lambda: None, fail)
        self._catalog = Catalog(self._decider, Transactions(self._decider, Clock(), 1, 1, 0), Clock())
        self._decider.start()

    def create(self, name: str) -> str:
        meta = TableMeta(uuid7(), name, Partitioning(()), (), 0, Profile.MAXCOMPUTE, 1, {}, frozenset(), "", (), 0)
        self._decider.call(lambda: self._catalog.create(meta, Principal()))
        return meta.table_id

    def comment(self, table_id: str, comment: str) -> None:
        def change() -> None:
            table = self._decider.state.get_table(table_id)
            self._decider.state.put_meta(table, replace(table.meta, comment=comment), table.head)

        self._decider.call(change)

    def end(self) -> None:
        self._decider.stop()
        self.store.close()


@contextmanager
def led(place: ObjectPlace) -> Iterator[Leader]:
    leader = Leader(place)
    try:
        yield leader
    finally:
        leader.end()


@pytest.fixture
def place(tmp_path: Path) -> ObjectPlace:
    return ObjectPlace.in_folder(tmp_path / "store")


def objects(place: ObjectPlace) -> Mapping[str, int]:
    """What is in the bucket, and when it was written."""
    assert place.folder is not None
    return {str(path): path.stat().st_mtime_ns for path in place.folder.rglob("*") if path.is_file()}


def tables_of(state: State) -> Mapping[str, object]:
    return {name: state.tables[table_id].view() for name, table_id in state.names.items()}


def test_a_take_over_reads_what_changed_since_it_was_read_ahead(place: ObjectPlace) -> None:
    ahead = Prefetch(place, CACHE_BYTES)
    with led(place) as leader:
        ids = [leader.create(f"t{number}") for number in range(TABLES)]
        leader.store.write_out()
        ahead.read()
        leader.comment(ids[3], "in the log alone")
        leader.create("later")
        leader.store.write_out()
        leader.comment(ids[4], "in a newer table")
    store = ahead.open_store(place, LogPlace(), None)
    try:
        found = tables_of(State(store, decode=ahead.decoded))
        assert found == tables_of(State(store))
        assert len(found) == TABLES + 1
        assert {view.meta.comment for view in State(store, decode=ahead.decoded).views._tables.values()} == {
            "",
            "in the log alone",
            "in a newer table",
        }
    finally:
        store.close()


def test_what_was_read_ahead_is_asked_for_and_decoded_once(place: ObjectPlace) -> None:
    ahead = Prefetch(place, CACHE_BYTES)
    with led(place) as leader:
        for number in range(TABLES):
            leader.create(f"t{number}")
        leader.store.write_out()
    ahead.read()
    store = ahead.open_store(place, LogPlace(), None)
    assert isinstance(store, SlateStore)
    try:
        before = store.requests.counts()["get_range"]
        state = State(store, decode=ahead.decoded)
        again = State(store, decode=ahead.decoded)
        assert store.requests.counts()["get_range"] == before
        assert len(state.tables) == TABLES
        for table_id, table in state.tables.items():
            assert table.meta is again.tables[table_id].meta
    finally:
        store.close()


def test_reading_ahead_writes_nothing_and_fences_nobody(place: ObjectPlace) -> None:
    ahead = Prefetch(place, CACHE_BYTES)
    with led(place) as leader:
        leader.create("one")
        leader.store.write_out()
        before = objects(place)
        ahead.read()
        assert objects(place) == before
        leader.create("two")


def test_a_store_that_is_not_there_is_not_made(place: ObjectPlace) -> None:
    with pytest.raises(StoreFailed):
        Prefetch(place, CACHE_BYTES).read()
    assert objects(place) == {}


def test_a_thread_reads_until_this_process_leads(place: ObjectPlace) -> None:
    with led(place) as leader:
        leader.create("one")
        leader.store.write_out()
        ahead = Prefetch(place, CACHE_BYTES)
        with ahead.running():
            pass
    store = ahead.open_store(place, LogPlace(), None)
    try:
        assert list(tables_of(State(store, decode=ahead.decoded))) == ["one"]
    finally:
        store.close()


def test_a_record_that_can_not_be_read_ends_no_standby(place: ObjectPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of a later release, whose leader this process may stand by for."""
    asked = threading.Event()

    def refuse(raw: bytes) -> TableMeta:
        asked.set()
        raise ValueError("an unknown profile")

    monkeypatch.setattr(loading, "decode_table", refuse)
    ahead = Prefetch(place, CACHE_BYTES)
    with led(place) as leader:
        leader.store.write_out()
        leader.create("one")
        leader.store.write_out()
        with ahead.running():
            assert asked.wait(PATIENCE_S)
    assert not ahead.decoded._by_record
