"""The store on real disks: locked, damaged, cut off, too new, full."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from metaservice.store import port
from metaservice.store.engines.rocks import RocksStore
from metaservice.store.formats import FORMAT_KEY, NEWEST
from metaservice.store.port import Batch, Store, StoreFailed, StoreGone, StoreUnusable

ROOT = Path(__file__).parents[2]
MIB = 1 << 20


def put(store: Store, number: int, value: bytes = b"v" * 300) -> None:
    batch = Batch()
    batch.put(b"k%06d" % number, value)
    store.write(batch)


def numbers(store: Store) -> list[int]:
    return [int(key[1:]) for key, _ in store.cursor().scan(b"k", b"l")]


def refusal(path: Path) -> StoreUnusable:
    with pytest.raises(StoreUnusable) as refused:
        RocksStore(path)
    return refused.value


CHILD = """
import os, resource, signal, sys
from pathlib import Path
from metaservice.store.port import Batch, StoreFailed, StoreGone
from metaservice.store.engines.rocks import RocksStore

path = Path(sys.argv[1])

def put(store, number, value=b"v" * 300):
    batch = Batch()
    batch.put(b"k%06d" % number, value)
    store.write(batch)
"""

WRITE_SYNC_DIE = """
store = RocksStore(path)
for number in range(1000):
    put(store, number)
store.sync()
os.kill(os.getpid(), signal.SIGKILL)
"""

WRITE_SYNC_WRITE_DIE = """
store = RocksStore(path)
for number in range(999):
    put(store, number)
store.sync()
put(store, 999)
os.kill(os.getpid(), signal.SIGKILL)
"""

OPEN_AND_WAIT = """
store = RocksStore(path)
put(store, 1)
store.sync()
print("open", flush=True)
sys.stdin.read()
"""

FAIL_AT_THE_LIMIT = f"""
store = RocksStore(path)
resource.setrlimit(resource.RLIMIT_FSIZE, ({MIB}, {MIB}))
synced = 0
try:
    for number in range(100_000):
        put(store, number)
        store.sync()
        synced = number
except StoreFailed:
    pass
for call in (store.sync, lambda: put(store, 0), lambda: store.get(b"k000000"), store.cursor):
    try:
        call()
        sys.exit(3)
    except StoreFailed:
        pass
store.close()
print(synced)
"""


def child(script: str, path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD + script, str(path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


# --------------------------------------------------------------------------------------------------------- who opens it


def test_a_store_that_is_opened_again_has_its_cache_filters_and_index(tmp_path: Path) -> None:
    for _ in range(2):
        store = RocksStore(tmp_path)
        put(store, 1)
        told = max(tmp_path.glob("OPTIONS-*")).read_text()
        assert store._db.property_int_value("rocksdb.block-cache-capacity") == 64 * MIB
        assert {"filter_policy=bloomfilter", "index_type=kTwoLevelIndexSearch", "partition_filters=true"} <= set(
            told.split()
        )
        store.close()


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    with child(OPEN_AND_WAIT, tmp_path) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "open\n"
        assert refusal(tmp_path).reason == port.STORE_LOCKED
        first.kill()
    store = RocksStore(tmp_path)
    assert numbers(store) == [1]
    store.close()


def test_a_second_store_in_this_process_is_refused(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    assert refusal(tmp_path).reason == port.STORE_LOCKED
    put(store, 1)
    store.close()
    RocksStore(tmp_path).close()


def with_format(path: Path, value: bytes | None) -> None:
    store = RocksStore(path)
    batch = Batch()
    if value is None:
        batch.delete(FORMAT_KEY)
    else:
        batch.put(FORMAT_KEY, value)
    store.write(batch)
    store.close()


def test_a_later_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    with_format(tmp_path, b"\x00\x00\x01\x00")
    for _ in range(2):
        refused = refusal(tmp_path)
        assert refused.reason == port.FORMAT_TOO_NEW
        assert (refused.facts["found"], refused.facts["supported"]) == (256, NEWEST)


def test_a_format_that_is_no_number_is_damage(tmp_path: Path) -> None:
    with_format(tmp_path, b"1")
    assert refusal(tmp_path).reason == port.STORE_DAMAGED


def test_someone_elses_database_is_refused(tmp_path: Path) -> None:
    with Rdict(str(tmp_path), Options(raw_mode=True)) as foreign:
        foreign[b"theirs"] = b"1"
    assert refusal(tmp_path).reason == port.STORE_FOREIGN
    with Rdict(str(tmp_path), Options(raw_mode=True)) as foreign:
        assert list(foreign.items()) == [(b"theirs", b"1")]


def test_a_store_whose_maker_died_before_the_first_write_is_fresh(tmp_path: Path) -> None:
    Rdict(str(tmp_path), Options(raw_mode=True)).close()
    store = RocksStore(tmp_path)
    put(store, 1)
    store.close()
    found = RocksStore(tmp_path)
    assert found.size_bytes() > 0
    found.close()


def test_a_file_in_the_folders_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert refusal(tmp_path / "file").reason == port.STORE_UNREACHABLE
    assert refusal(tmp_path / "file" / "below").reason == port.STORE_UNREACHABLE


# --------------------------------------------------------------------------------------------------------------- damage


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The log of a process that wrote 1000 entries, synced them and was killed."""
    with child(WRITE_SYNC_DIE, tmp_path) as writer:
        assert writer.wait() == -signal.SIGKILL
    return max(tmp_path.glob("*.log"))


@pytest.mark.parametrize("lost_bytes", [1, 3, 200])
def test_a_torn_last_record_that_was_not_synced_is_left_out(tmp_path: Path, lost_bytes: int) -> None:
    with child(WRITE_SYNC_WRITE_DIE, tmp_path) as writer:
        assert writer.wait() == -signal.SIGKILL
    log = max(tmp_path.glob("*.log"))
    os.truncate(log, log.stat().st_size - lost_bytes)
    store = RocksStore(log.parent)
    assert numbers(store) == list(range(999))
    put(store, 999)
    store.close()
    store = RocksStore(log.parent)
    assert numbers(store) == list(range(1000))
    store.close()


@pytest.mark.parametrize("lost_bytes", [1, 3, 200, 1_000, None])
def test_a_log_that_lost_what_was_synced_is_refused(log: Path, lost_bytes: int | None) -> None:
    os.truncate(log, 0 if lost_bytes is None else log.stat().st_size - lost_bytes)
    for _ in range(2):
        assert refusal(log.parent).reason == port.STORE_DAMAGED


@pytest.mark.parametrize("tail", [bytes(10_000), b"\x5a" * 5])
def test_what_follows_the_last_record_is_no_record(log: Path, tail: bytes) -> None:
    with log.open("ab") as file:
        file.write(tail)
    store = RocksStore(log.parent)
    assert numbers(store) == list(range(1000))
    store.close()


def overwrite(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(b"damage!!")


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_damage_inside_the_log_is_refused(log: Path, part: float) -> None:
    overwrite(log, int(log.stat().st_size * part))
    for _ in range(2):
        assert refusal(log.parent).reason == port.STORE_DAMAGED


@pytest.fixture
def tables(tmp_path: Path) -> list[Path]:
    """The table files of a store that was closed in peace; its values can't be compressed."""
    store = RocksStore(tmp_path)
    for number in range(10_000):
        put(store, number, os.urandom(300))
    store.close()
    return sorted(tmp_path.glob("*.sst"), key=lambda table: table.stat().st_size)


def test_damage_inside_a_table_is_met_where_it_is(tables: list[Path]) -> None:
    overwrite(tables[-1], tables[-1].stat().st_size // 2)
    store = RocksStore(tables[-1].parent)
    reads: list[Callable[[], object]] = [
        lambda: list(store.cursor().scan(b"k", b"l")),
        lambda: list(store.cursor().scan_back(b"k", b"l")),
        lambda: [store.get(b"k%06d" % number) for number in range(10_000)],
        lambda: [store.cursor().get(b"k%06d" % number) for number in range(10_000)],
    ]
    for read in reads:
        with pytest.raises(StoreUnusable) as damaged:
            read()
        assert damaged.value.reason == port.STORE_DAMAGED
    assert store.get(b"k000000") is not None
    put(store, 1)
    store.sync()
    store.close()


@pytest.mark.parametrize("names", ["CURRENT", "CURRENT MANIFEST-* *.log", "MANIFEST-*", "*.sst"])
def test_a_missing_file_is_damage(tables: list[Path], names: str) -> None:
    for name in names.split():
        for file in tables[0].parent.glob(name):
            file.unlink()
    assert refusal(tables[0].parent).reason == port.STORE_DAMAGED


# ------------------------------------------------------------------------------------------------------------ power cut


@contextmanager
def mounted(place: Path, *options: str) -> Iterator[Path]:
    place.mkdir()
    mount = subprocess.run(["mount", *options, str(place)], check=False)
    if mount.returncode != 0:
        pytest.skip("mounting is not permitted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_what_was_synced_survives_a_power_cut(tmp_path: Path) -> None:
    """The image of a mounted disk holds what has reached the disk, and nothing that only the kernel has."""
    image, found = tmp_path / "image", tmp_path / "found"
    with image.open("wb") as file:
        file.truncate(64 * MIB)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    with mounted(tmp_path / "disk", "-o", "loop", str(image)) as disk:
        store = RocksStore(disk / "store")
        for number in range(1000):
            put(store, number)
            if number in (300, 700):
                store.sync()
                shutil.copy(image, f"{found}-{number}")
        store.close()
        shutil.copy(image, f"{found}-999")
    for synced in (300, 700, 999):
        with mounted(tmp_path / f"disk-{synced}", "-o", "loop", f"{found}-{synced}") as disk:
            store = RocksStore(disk / "store")
            assert numbers(store) == list(range(synced + 1))
            store.close()


# ------------------------------------------------------------------------------------------------------------ full disk


def write_until_failure(store: Store) -> tuple[int, int]:
    """The last number that was synced, and the one whose write or sync failed."""
    synced = -1
    for number in count():
        try:
            put(store, number, os.urandom(3000))
            if number % 10 == 0:
                store.sync()
                synced = number
        except StoreFailed as failed:
            assert "No space left on device" in str(failed)  # noqa: PT017 - the number is wanted too
            return synced, number
    raise AssertionError("counting never ends")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Where mounting isn't permitted, the limit on the size of files below stands in."""
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=48m", "none") as disk:
        yield disk


def test_a_full_disk(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(32 * MIB))  # more than half: what the store then has in logs, opening needs again
    store = RocksStore(small_disk / "store")
    cursor = store.cursor()
    synced, failed = write_until_failure(store)
    assert synced > 1000

    # Room that returns doesn't heal a store: nobody knows what the call that failed did.
    os.truncate(ballast, 28 * MIB)
    calls: list[Callable[[], object]] = [
        store.sync,
        lambda: put(store, 0),
        lambda: store.get(b"k000000"),
        lambda: cursor.get(b"k000000"),
    ]
    for call in calls:
        with pytest.raises(StoreFailed):
            call()
    store.close()

    # Refused attempts to open must not eat what is left.
    more = small_disk / "more"
    more.write_bytes(bytes(max(0, free_bytes(small_disk) - MIB)))
    free_before = free_bytes(small_disk)
    for _ in range(3):
        refused = refusal(small_disk / "store")
        assert refused.reason == port.STORE_NO_ROOM
        assert int(refused.facts["needed_bytes"]) > int(refused.facts["free_bytes"])
    assert free_bytes(small_disk) == free_before

    ballast.unlink()
    more.unlink()
    store = RocksStore(small_disk / "store")
    found = numbers(store)
    assert found == list(range(len(found)))
    assert synced < len(found) <= failed + 1
    put(store, len(found))
    store.sync()
    store.close()
    store = RocksStore(small_disk / "store")
    assert len(numbers(store)) == len(found) + 1
    store.close()


def test_no_room_for_a_new_store(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(bytes(47 * MIB))
    assert refusal(small_disk / "store").reason == port.STORE_NO_ROOM
    (small_disk / "ballast").unlink()
    RocksStore(small_disk / "store").close()


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    with child(FAIL_AT_THE_LIMIT, tmp_path) as writer:
        assert writer.stdout is not None
        synced = int(writer.stdout.read())
        assert writer.wait() == 0
    store = RocksStore(tmp_path)
    found = numbers(store)
    assert found == list(range(len(found)))
    assert 1000 < synced < len(found)
    put(store, len(found))
    store.close()


def free_bytes(path: Path) -> int:
    room = os.statvfs(path)
    return room.f_bavail * room.f_frsize


def test_a_quota_counts_what_the_store_takes(tmp_path: Path) -> None:
    store = RocksStore(tmp_path, bytes_max=MIB)
    before = store.free_bytes()
    assert 0 < before <= MIB
    put(store, 1, os.urandom(2 * MIB))
    assert -2 * MIB < store.free_bytes() < before - 2 * MIB + 1000
    store.close()


# ------------------------------------------------------------------------------------------------------- other threads


def test_a_checkpoint_while_another_thread_writes(tmp_path: Path) -> None:
    store = RocksStore(tmp_path / "store")
    done = threading.Event()

    def write() -> None:
        for number in count():
            batch = Batch()
            batch.put(b"a", b"%d" % number)
            batch.put(b"z", b"%d" % number)
            store.write(batch)
            store.sync()
            if done.is_set():
                return

    writer = threading.Thread(target=write)
    writer.start()
    for number in range(5):
        store.checkpoint(tmp_path / f"copy-{number}")()
    done.set()
    writer.join()
    for number in range(5):
        copy = RocksStore(tmp_path / f"copy-{number}")
        assert copy.get(b"a") == copy.get(b"z")
        copy.close()
    store.close()


def test_closing_waits_for_a_sync_under_way(tmp_path: Path) -> None:
    for attempt in range(5):
        store = RocksStore(tmp_path / f"store-{attempt}")
        started = threading.Event()
        written: list[int] = []

        def write(store: Store, started: threading.Event, written: list[int]) -> None:
            try:
                for number in count():
                    put(store, number)
                    store.sync()
                    written.append(number)
                    started.set()
            except (StoreFailed, StoreGone):  # the closing took the log from under it
                pass

        writer = threading.Thread(target=write, args=(store, started, written))
        writer.start()
        started.wait()
        store.close()
        writer.join()
        found = RocksStore(tmp_path / f"store-{attempt}")
        assert numbers(found)[: len(written)] == written
        found.close()
