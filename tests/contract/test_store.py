"""What every store promises, asked of each of them in the same words."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaservice.store import port
from metaservice.store.engines.memory import MemoryStore
from metaservice.store.engines.rocks import RocksStore
from metaservice.store.engines.slate import SlateStore, new_cache
from metaservice.store.engines.slate_reader import SlateReader
from metaservice.store.formats import COPYING_KEY, FORMAT_KEY
from metaservice.store.object_location import ObjectPlace
from metaservice.store.port import (
    FORMAT_TOO_NEW,
    STORE_DAMAGED,
    STORE_FOREIGN,
    Batch,
    Store,
    StoreCursor,
    StoreFailed,
    StoreFenced,
    StoreUnusable,
    prefix_end,
)

Ops = list[tuple[bytes, bytes | None]]

ROOT = Path(__file__).parents[2]
CACHED, CACHED_BYTES = 768, 64 << 10
PATIENCE_S = 60.0
FIRST, LAST = b"\x01", b"\xff" * 9  # around every key that a user of a store may choose


class Place(Protocol):
    """Where one store is kept: what is opened there is what was closed there."""

    def open(self) -> Store: ...
    def open_checkpoint(self, path: Path) -> Store: ...


class MemoryPlace:
    def __init__(self, path: Path) -> None:
        self._store = MemoryStore()

    def open(self) -> Store:
        self._store = self._store.crash()
        return self._store

    def open_checkpoint(self, path: Path) -> Store:
        return MemoryStore.open_checkpoint(path)


class RocksPlace:
    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self) -> Store:
        return RocksStore(self._path)

    def open_checkpoint(self, path: Path) -> Store:
        return RocksStore(path)


class SlatePlace:
    """On a folder that stands in for a bucket; checkpoints are folders of RocksDB's."""

    def __init__(self, path: Path) -> None:
        self._place = ObjectPlace.in_folder(path)

    def open(self) -> Store:
        return SlateStore(self._place)

    def open_checkpoint(self, path: Path) -> Store:
        return RocksStore(path)


PLACES: list[Callable[[Path], Place]] = [MemoryPlace, RocksPlace, SlatePlace]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    kind: Callable[[Path], Place] = request.param
    return kind(tmp_path / "store")


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    store = place.open()
    yield store
    store.close()


def batch(*ops: tuple[bytes, bytes | None]) -> Batch:
    made = Batch()
    for key, value in ops:
        if value is None:
            made.delete(key)
        else:
            made.put(key, value)
    return made


def everything(store: Store) -> list[tuple[bytes, bytes]]:
    return list(store.cursor().scan(FIRST, LAST))


def test_a_written_value_is_read_at_once(store: Store) -> None:
    store.write(batch((b"a", b"1")))
    assert store.get(b"a") == b"1"
    assert store.get(b"b") is None


def test_the_last_word_on_a_key_counts(store: Store) -> None:
    store.write(batch((b"a", b"1"), (b"a", None), (b"b", b"1"), (b"b", b"2"), (b"c", None), (b"c", b"3")))
    assert everything(store) == [(b"b", b"2"), (b"c", b"3")]


def test_an_empty_value_is_a_value(store: Store) -> None:
    store.write(batch((b"a", b"")))
    assert store.get(b"a") == b""
    assert store.cursor().get(b"a") == b""
    assert everything(store) == [(b"a", b"")]


def test_keys_are_ordered_as_unsigned_bytes(store: Store) -> None:
    keys = [b"\x01", b"\x01\x00", b"\x01\x00\xff", b"\x01\x01", b"a", b"a\x00", b"\x7f", b"\x80", b"\xff", b"\xff\xff"]
    store.write(batch(*[(key, key) for key in reversed(keys)]))
    assert [key for key, _ in everything(store)] == sorted(keys)
    assert [key for key, _ in store.cursor().scan_back(FIRST, LAST)] == sorted(keys, reverse=True)


def test_an_empty_batch_changes_nothing(store: Store) -> None:
    store.write(Batch())
    store.sync()
    assert everything(store) == []


def test_a_batch_may_be_used_again(store: Store) -> None:
    again = batch((b"a", b"1"))
    store.write(again)
    again.clear()
    assert len(again) == 0
    again.put(b"b", b"2")
    assert len(again) == 1
    store.write(again)
    assert everything(store) == [(b"a", b"1"), (b"b", b"2")]


@pytest.mark.parametrize(
    ("start", "end", "keys"),
    [
        (b"b", b"d", [b"b", b"c"]),
        (b"b", b"d\x00", [b"b", b"c", b"d"]),
        (b"b\x00", b"d", [b"c"]),
        (b"b", b"b", []),
        (b"d", b"b", []),
        (b"aa", b"ab", []),
        (b"e", b"f", []),
        (FIRST, LAST, [b"a", b"b", b"c", b"d"]),
    ],
)
def test_the_start_is_in_a_scan_and_the_end_is_not(store: Store, start: bytes, end: bytes, keys: list[bytes]) -> None:
    store.write(batch(*[(key, b"") for key in (b"a", b"b", b"c", b"d")]))
    cursor = store.cursor()
    assert [key for key, _ in cursor.scan(start, end)] == keys
    assert [key for key, _ in cursor.scan_back(start, end)] == keys[::-1]


@pytest.mark.parametrize("entries", [0, 1, 3, 4, 5, 11, 12, 13, 1000])
def test_scans_of_every_length_are_whole(store: Store, entries: int) -> None:
    keys = [b"k%04d" % number for number in range(entries)]
    store.write(batch(*[(key, key) for key in keys], (b"j", b""), (b"l", b"")))
    cursor = store.cursor()
    assert [key for key, _ in cursor.scan(b"k", b"l")] == keys
    assert [key for key, _ in cursor.scan_back(b"k", b"l")] == keys[::-1]


def test_scans_leave_out_no_neighbour(store: Store) -> None:
    keys = [b"k" + b"\x00" * number for number in range(300)]
    store.write(batch(*[(key, key) for key in keys]))
    cursor = store.cursor()
    assert [key for key, _ in cursor.scan(b"k", b"l")] == keys
    assert [key for key, _ in cursor.scan_back(b"k", b"l")] == keys[::-1]


def test_a_cursor_sees_nothing_later(store: Store) -> None:
    store.write(batch((b"changed", b"1"), (b"deleted", b"1"), (b"kept", b"1")))
    before = everything(store)
    cursor = store.cursor()
    store.write(batch((b"added", b"2"), (b"changed", b"2"), (b"deleted", None)))

    assert list(cursor.scan(FIRST, LAST)) == before
    assert list(cursor.scan_back(FIRST, LAST)) == before[::-1]
    assert cursor.get(b"added") is None
    assert cursor.get(b"changed") == b"1"
    assert cursor.get(b"deleted") == b"1"
    assert everything(store) == [(b"added", b"2"), (b"changed", b"2"), (b"kept", b"1")]


def test_a_scan_under_way_sees_nothing_later(store: Store) -> None:
    keys = [b"%04d" % number for number in range(1000)]
    store.write(batch(*[(key, b"1") for key in keys]))
    up, down = store.cursor().scan(FIRST, LAST), store.cursor().scan_back(FIRST, LAST)
    seen_up, seen_down = list(islice(up, 3)), list(islice(down, 3))
    for key in keys:
        store.write(batch((key, None), (key + b"x", b"2")))
    assert [*seen_up, *up] == [(key, b"1") for key in keys]
    assert [*seen_down, *down] == [(key, b"1") for key in reversed(keys)]


def test_scans_of_one_cursor_may_be_nested_and_left_unfinished(store: Store) -> None:
    keys = [b"%03d" % number for number in range(50)]
    store.write(batch(*[(key, key) for key in keys]))
    cursor = store.cursor()
    next(cursor.scan(FIRST, LAST))
    seen: list[bytes] = []
    for outer, _ in cursor.scan(FIRST, LAST):
        assert [key for key, _ in cursor.scan_back(FIRST, outer)] == keys[: len(seen)][::-1]
        assert cursor.get(b"025") == b"025"
        seen.append(outer)
    assert seen == keys


def test_readers_see_all_of_a_batch_or_nothing(store: Store) -> None:
    keys = [b"k%03d" % number for number in range(100)]
    store.write(batch(*[(key, b"0") for key in keys]))
    done, torn = threading.Event(), []

    def read() -> None:
        while not done.is_set():
            values = {value for _, value in store.cursor().scan(b"k", b"l")}
            if len(values) != 1:
                torn.append(values)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(200):
        store.write(batch(*[(key, b"%d" % number) for key in keys]))
    done.set()
    for reader in readers:
        reader.join()
    assert not torn


def test_closing_keeps_everything(place: Place) -> None:
    store = place.open()
    store.write(batch((b"synced", b"1")))
    store.sync()
    store.write(batch((b"written", b"2")))
    store.close()
    found = place.open()
    assert everything(found) == [(b"synced", b"1"), (b"written", b"2")]
    found.close()


def test_closing_twice_is_fine(store: Store) -> None:
    store.close()
    store.close()
    with pytest.raises(StoreFailed):
        store.get(b"a")


def calls_to(store: Store, cursor: StoreCursor, path: Path) -> list[Callable[[], object]]:
    return [
        lambda: store.get(b"a"),
        lambda: store.write(batch((b"a", b"2"))),
        lambda: store.write(Batch()),
        store.sync,
        store.cursor,
        lambda: store.checkpoint(path),
        lambda: cursor.get(b"a"),
        lambda: list(cursor.scan(FIRST, LAST)),
        lambda: list(cursor.scan_back(FIRST, LAST)),
    ]


def test_a_closed_store_refuses_everything(store: Store, tmp_path: Path) -> None:
    store.write(batch((b"a", b"1")))
    cursor = store.cursor()
    store.close()
    for call in calls_to(store, cursor, tmp_path / "copy"):
        with pytest.raises(StoreFailed, match="closed"):
            call()


def test_a_cursor_that_lives_does_not_keep_the_store_open(place: Place) -> None:
    store = place.open()
    store.write(batch(*[(b"%04d" % number, b"") for number in range(1000)]))
    cursor = store.cursor()
    scan = cursor.scan(FIRST, LAST)
    next(scan)
    store.close()
    found = place.open()
    with pytest.raises(StoreFailed):
        list(scan)
    found.close()


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads take turns in the middle of everything."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("hasty_threads")
def test_a_store_closes_while_others_read(place: Place) -> None:
    for _ in range(10):
        store = place.open()
        store.write(batch(*[(b"%04d" % number, b"x" * 100) for number in range(1000)]))
        ends = close_under_readers(store)
        place.open().close()
        assert ends() == [StoreFailed] * 4


def close_under_readers(store: Store) -> Callable[[], list[type[BaseException]]]:
    """Close it; the result waits for the readers and tells how each of them ended."""
    reading = threading.Barrier(5)
    ends: list[type[BaseException]] = []

    def read() -> None:
        reading.wait()
        try:
            while True:
                assert len(everything(store)) == 1000
                assert store.get(b"0500") is not None
        except (StoreFailed, AssertionError) as end:
            ends.append(type(end))

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    reading.wait()
    store.close()

    def wait() -> list[type[BaseException]]:
        for reader in readers:
            reader.join()
        return ends

    return wait


def test_a_checkpoint_is_a_store_of_its_own(store: Store, place: Place, tmp_path: Path) -> None:
    store.write(batch((b"a", b"1"), (b"b", b""), (b"\xff\x00\n ", b"\x00\n ")))
    expected = everything(store)
    finish = store.checkpoint(tmp_path / "copy")
    store.write(batch((b"a", None), (b"c", b"3")))
    finish()

    copy = place.open_checkpoint(tmp_path / "copy")
    assert everything(copy) == expected
    copy.write(batch((b"d", b"4")))
    copy.sync()
    assert store.get(b"d") is None
    copy.close()


def test_a_checkpoint_does_not_overwrite(store: Store, tmp_path: Path) -> None:
    with pytest.raises(FileExistsError):
        store.checkpoint(tmp_path)()
    store.write(batch((b"a", b"1")))
    assert store.get(b"a") == b"1"


def test_a_store_knows_its_size(store: Store) -> None:
    store.write(batch((b"a", bytes(range(256)) * 4000)))
    store.sync()
    assert 1_000_000 < store.size_bytes() < 3_000_000
    assert store.free_bytes() > 0


@pytest.mark.parametrize(
    ("prefix", "end"), [(b"a", b"b"), (b"a\x00", b"a\x01"), (b"a\xff", b"b"), (b"\x00\xff\xff", b"\x01")]
)
def test_the_end_of_a_prefix(prefix: bytes, end: bytes) -> None:
    assert prefix_end(prefix) == end


@pytest.mark.parametrize("prefix", [b"", b"\xff", b"\xff\xff"])
def test_some_prefixes_have_no_end(prefix: bytes) -> None:
    with pytest.raises(ValueError, match="nothing comes after"):
        prefix_end(prefix)


# ------------------------------------------------------------------------------------------------------------ histories

keys = st.binary(max_size=3).map(lambda tail: b"k" + tail) | st.sampled_from([b"k", b"k\x00", b"k\xff", b"k\xff\xff"])
ops = st.lists(st.tuples(keys, st.none() | st.binary(max_size=3)), max_size=12)
steps: st.SearchStrategy[tuple[str, Ops]] = st.one_of(
    st.tuples(st.just("write"), ops),
    st.tuples(st.just("sync"), st.just([])),
    st.tuples(st.just("cursor"), st.just([])),
    st.tuples(st.just("reopen"), st.just([])),
)


def apply(model: dict[bytes, bytes], changes: Ops) -> dict[bytes, bytes]:
    after = dict(model)
    for key, value in changes:
        if value is None:
            after.pop(key, None)
        else:
            after[key] = value
    return after


def assert_cursor_equals(cursor: StoreCursor, model: dict[bytes, bytes], start: bytes, end: bytes) -> None:
    expected = sorted((key, value) for key, value in model.items() if start <= key < end)
    assert list(cursor.scan(start, end)) == expected
    assert list(cursor.scan_back(start, end)) == expected[::-1]
    assert cursor.get(start) == model.get(start)


@pytest.mark.parametrize("kind", PLACES)
@settings(max_examples=60, deadline=None)
@given(history=st.lists(steps, max_size=20), bounds=st.tuples(keys, keys))
def test_a_store_is_a_sorted_dict_with_memory(
    kind: Callable[[Path], Place],
    history: list[tuple[str, Ops]],
    bounds: tuple[bytes, bytes],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    place = kind(tmp_path_factory.mktemp("history") / "store")
    store, model = place.open(), dict[bytes, bytes]()
    cursors: list[tuple[StoreCursor, dict[bytes, bytes]]] = []
    for step, changes in history:
        match step:
            case "write":
                store.write(batch(*changes))
                model = apply(model, changes)
            case "sync":
                store.sync()
            case "cursor":
                cursors.append((store.cursor(), model))
            case _:
                cursors.clear()
                store.close()
                store = place.open()
    for cursor, then in [*cursors, (store.cursor(), model)]:
        assert_cursor_equals(cursor, then, FIRST, LAST)
        assert_cursor_equals(cursor, then, *bounds)
    assert all(store.get(key) == model.get(key) for key in [*bounds, *model])
    if isinstance(store, MemoryStore):
        assert store.size_bytes() == sum(len(key) + len(value) for key, value in model.items())
    store.close()


# --------------------------------------------------------------------------------------------------- crash and failure

WRITE_SYNC_DIE = """
import os, signal, sys
from pathlib import Path
from metaservice.store.object_location import ObjectPlace
from metaservice.store.port import Batch
from metaservice.store.engines.rocks import RocksStore
from metaservice.store.engines.slate import SlateStore

path = Path(sys.argv[2])
store = RocksStore(path) if sys.argv[1] == "RocksPlace" else SlateStore(ObjectPlace.in_folder(path))
for number in range(500):
    batch = Batch()
    batch.put(b"k%04d" % number, b"v" * 300)
    batch.delete(b"k%04d" % (number - 100))
    store.write(batch)
store.sync()
batch = Batch()
batch.put(b"not synced", b"")
store.write(batch)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("kind", [RocksPlace, SlatePlace])
def test_what_was_synced_survives_a_kill(kind: type[RocksPlace | SlatePlace], tmp_path: Path) -> None:
    path = tmp_path / "store"
    child = subprocess.run([sys.executable, "-c", WRITE_SYNC_DIE, kind.__name__, str(path)], check=False, cwd=ROOT)
    assert child.returncode == -signal.SIGKILL
    store = kind(path).open()
    assert list(store.cursor().scan(b"k", b"l")) == [(b"k%04d" % number, b"v" * 300) for number in range(400, 500)]
    store.close()


def test_an_opening_fences_the_process_before(tmp_path: Path) -> None:
    place = SlatePlace(tmp_path / "store")
    before = place.open()
    before.write(batch((b"a", b"synced")))
    before.sync()
    before.write(batch((b"a", b"not synced"), (b"b", b"")))
    after = place.open()
    after.write(batch((b"c", b"")))
    after.sync()

    before.write(batch((b"d", b"")))  # in memory
    with pytest.raises(StoreFenced):
        before.sync()
    with pytest.raises(StoreFenced):
        before.get(b"a")
    before.close()
    assert everything(after) == [(b"a", b"synced"), (b"c", b"")]
    after.write(batch((b"a", None)))
    after.close()
    found = place.open()
    assert everything(found) == [(b"c", b"")]
    found.close()


@pytest.mark.parametrize(
    ("ops", "reason"),
    [
        (((FORMAT_KEY, None), (b"a", b"")), STORE_FOREIGN),
        (((FORMAT_KEY, b"\x00\x00\x00\xff"),), FORMAT_TOO_NEW),
        (((FORMAT_KEY, b"1"),), STORE_DAMAGED),
        (((COPYING_KEY, b""),), STORE_DAMAGED),
    ],
)
def test_a_store_in_a_bucket_that_is_none_of_ours_is_refused(
    tmp_path: Path, ops: tuple[tuple[bytes, bytes | None], ...], reason: str
) -> None:
    place = SlatePlace(tmp_path / "store")
    store = place.open()
    store.write(batch(*ops))
    store.close()
    with pytest.raises(StoreUnusable, match=reason):
        place.open()


@pytest.mark.parametrize("survivors", [0, 1, 2, 3])
def test_a_power_cut_keeps_what_was_synced_and_a_beginning_of_the_rest(survivors: int) -> None:
    store = MemoryStore()
    store.write(batch((b"a", b"0"), (b"b", b"0")))
    store.sync()
    later = [batch((b"a", b"1"), (b"c", b"1")), batch((b"b", None)), batch((b"c", b"3"))]
    expected = {b"a": b"0", b"b": b"0"}
    for number, one in enumerate(later):
        store.write(one)
        if number < survivors:
            expected = apply(expected, one.ops)
    assert store.unsynced_batches == 3
    found = store.crash(survivors)
    assert dict(everything(found)) == expected
    assert found.unsynced_batches == 0
    assert found.size_bytes() == sum(len(key) + len(value) for key, value in expected.items())


def failed_by_a_write(tmp_path: Path) -> tuple[Store, StoreCursor]:
    store = MemoryStore()
    store.write(batch((b"a", b"1")))
    cursor = store.cursor()
    store.fail_writes_after = 1
    store.write(batch((b"a", b"2")))
    with pytest.raises(StoreFailed):
        store.write(batch((b"a", b"3")))
    return store, cursor


def failed_by_a_sync(tmp_path: Path) -> tuple[Store, StoreCursor]:
    store = MemoryStore()
    store.write(batch((b"a", b"1")))
    cursor = store.cursor()
    store.fail_syncs_after = 1
    store.sync()
    with pytest.raises(StoreFailed):
        store.sync()
    return store, cursor


def failed_on_disk(tmp_path: Path) -> tuple[Store, StoreCursor]:
    """A batch that rocksdict can't take stands for any error from there; the full disk has a test of its own."""
    store = RocksStore(tmp_path / "store")
    store.write(batch((b"a", b"1")))
    cursor = store.cursor()
    with pytest.raises(StoreFailed):
        store.write(batch((b"a", "no bytes")))  # type: ignore[arg-type]
    return store, cursor


def failed_in_a_bucket(tmp_path: Path) -> tuple[Store, StoreCursor]:
    store = SlatePlace(tmp_path / "store").open()
    store.write(batch((b"a", b"1")))
    cursor = store.cursor()
    with pytest.raises(StoreFailed):
        store.write(batch((b"a", "no bytes")))  # type: ignore[arg-type]
    return store, cursor


@pytest.mark.parametrize("fail", [failed_by_a_write, failed_by_a_sync, failed_on_disk, failed_in_a_bucket])
def test_a_store_that_failed_refuses_everything(
    fail: Callable[[Path], tuple[Store, StoreCursor]], tmp_path: Path
) -> None:
    store, cursor = fail(tmp_path)
    for call in calls_to(store, cursor, tmp_path / "copy"):
        with pytest.raises(StoreFailed):
            call()
    store.close()
    store.close()


def test_a_write_that_failed_may_be_found_after_a_crash() -> None:
    store = MemoryStore()
    store.fail_writes_after = 0
    with pytest.raises(StoreFailed):
        store.write(batch((b"a", b"1")))
    assert everything(store.crash()) == []
    assert everything(store.crash(survivors=1)) == [(b"a", b"1")]


def test_a_sync_that_failed_promises_nothing() -> None:
    store = MemoryStore()
    store.write(batch((b"a", b"1")))
    store.fail_syncs_after = 0
    with pytest.raises(StoreFailed):
        store.sync()
    store.close()
    assert everything(store.crash()) == []
    assert everything(store.crash(survivors=1)) == [(b"a", b"1")]


@pytest.mark.parametrize(("cache_bytes", "asks_again"), [(8 << 20, True), (256 << 20, False)])
def test_a_cache_bounds_what_is_remembered_of_a_bucket(tmp_path: Path, cache_bytes: int, asks_again: bool) -> None:
    place = ObjectPlace.in_folder(tmp_path / "db")
    store = SlateStore(place)
    for number in range(CACHED):
        batch = Batch()
        batch.put(b"k%06d" % number, os.urandom(CACHED_BYTES))
        store.write(batch)
    store.sync()
    store.close()
    store = SlateStore(place, cache=new_cache(cache_bytes))
    read = []
    for _ in range(2):
        before = store.requests.counts()["get_range"]
        assert sum(1 for _ in store.cursor().scan(FIRST, LAST)) == CACHED
        read.append(store.requests.counts()["get_range"] - before)
    store.close()
    assert read[0] > 0
    assert (read[1] > 0) == asks_again


def in_tables(place: ObjectPlace) -> int:
    """How many entries don't need the log any more."""
    try:
        reader = SlateReader(place, new_cache(1 << 20))
    except StoreFailed:
        return 0
    found = sum(1 for _ in reader.cursor().scan(FIRST, LAST))
    reader.close()
    return found


def test_what_is_written_out_in_a_bucket_is_in_tables(tmp_path: Path) -> None:
    place = ObjectPlace.in_folder(tmp_path / "db")
    store = SlateStore(place)
    store.write(batch((b"a", b"1"), (b"b", b"2")))
    store.sync()
    assert in_tables(place) == 0
    store.write_out()
    assert in_tables(place) == 2
    store.write_out()
    store.close()


def test_the_log_in_a_bucket_is_written_out_after_so_many_syncs(tmp_path: Path) -> None:
    place = ObjectPlace.in_folder(tmp_path / "db")
    store = SlateStore(place)
    store.log_files_max = 10
    for number in range(10):
        assert in_tables(place) == 0
        store.write(batch((b"k%02d" % number, b"v")))
        store.sync()
    until_s = time.monotonic() + PATIENCE_S
    while in_tables(place) < 10:
        assert time.monotonic() < until_s, "nothing was written out"
        time.sleep(0.02)
    store.close()


def test_every_reason_of_a_store_that_can_not_be_used_has_a_sentence() -> None:
    reasons = {name for name, value in vars(port).items() if value == name}
    assert reasons == port.MEANING.keys()
