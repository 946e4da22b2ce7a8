"""A write-ahead log that is gone is refused, and so is a folder that was taken away; what a crash leaves opens."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from metaservice.store import port
from metaservice.store.backups import folders
from metaservice.store.engines import log_mark
from metaservice.store.engines.rocks import RocksStore
from metaservice.store.port import Batch, StoreGone, StoreUnusable

SYNCED, UNSYNCED = 50, 3


def put(store: RocksStore, number: int, value: bytes = b"v" * 300) -> None:
    batch = Batch()
    batch.put(b"k%06d" % number, value)
    store.write(batch)


def crashed(store: RocksStore, folder: Path) -> Path:
    """What kill -9 would leave of an open store: a copy during which no background job of RocksDB changed a file."""
    while True:
        try:
            before = sizes(store._path)
            shutil.copytree(store._path, folder, ignore=shutil.ignore_patterns("LOCK"))
            if sizes(store._path) == before:
                return folder
        except (shutil.Error, FileNotFoundError):
            pass  # a log was written out and deleted in mid-copy
        shutil.rmtree(folder, ignore_errors=True)


def sizes(folder: Path) -> dict[str, int]:
    """Of RocksDB's files but its text log, which tells and decides nothing."""
    return {path.name: path.stat().st_size for path in folder.iterdir() if path.name != "LOG"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksStore]:
    opened = RocksStore(tmp_path / "data")
    yield opened
    shutil.rmtree(tmp_path / "copy", ignore_errors=True)


@pytest.fixture
def found(store: RocksStore, tmp_path: Path) -> Path:
    """Of a store that was killed with 50 writes synced and three that were not."""
    for number in range(SYNCED):
        put(store, number)
        store.sync()
    for number in range(SYNCED, SYNCED + UNSYNCED):
        put(store, number)
    folder = crashed(store, tmp_path / "copy")
    store.close()
    return folder


def log_of(folder: Path) -> Path:
    return max(folder.glob("*.log"))


def numbers(folder: Path) -> list[int]:
    store = RocksStore(folder)
    try:
        return [int(key[1:]) for key, _ in store.cursor().scan(b"k", b"l")]
    finally:
        store.close()


def check_refused(folder: Path) -> None:
    before = sorted(path.name for path in folder.iterdir() if path.name != "LOCK")
    for _ in range(2):
        with pytest.raises(StoreUnusable) as refused:
            RocksStore(folder)
        assert refused.value.reason == port.STORE_DAMAGED
        assert sorted(path.name for path in folder.iterdir() if path.name != "LOCK") == before, "it stays as it was"


def test_what_a_kill_leaves_opens(found: Path) -> None:
    assert numbers(found) == list(range(SYNCED + UNSYNCED))
    assert numbers(found) == list(range(SYNCED + UNSYNCED))


@pytest.mark.parametrize("lost_bytes", [1, 200, 500, 900])
def test_a_torn_tail_of_what_was_not_synced_opens(found: Path, lost_bytes: int) -> None:
    os.truncate(log_of(found), log_of(found).stat().st_size - lost_bytes)
    opened = numbers(found)
    assert SYNCED <= len(opened) < SYNCED + UNSYNCED
    assert opened == list(range(len(opened)))


def test_a_log_that_was_deleted_is_refused(found: Path) -> None:
    log_of(found).unlink()
    check_refused(found)


@pytest.mark.parametrize("left", [0.0, 0.3, 0.9])
def test_a_log_that_was_emptied_or_cut_into_what_was_synced_is_refused(found: Path, left: float) -> None:
    os.truncate(log_of(found), int(log_of(found).stat().st_size * left))
    check_refused(found)


def test_a_log_that_was_put_back_opens(found: Path) -> None:
    log = log_of(found)
    log.rename(found.parent / "log")
    check_refused(found)
    (found.parent / "log").rename(log)
    assert numbers(found) == list(range(SYNCED + UNSYNCED))


def fill_logs(store: RocksStore, folder: Path) -> list[Path]:
    """Write until there are several logs; as a crash leaves them."""
    number = 0
    while len(list(store._path.glob("*.log"))) < 2:
        put(store, number, os.urandom(1 << 20))
        number += 1
    put(store, number, b"last")
    store.sync()
    return sorted(crashed(store, folder).glob("*.log"))


def test_a_log_that_was_closed_and_one_that_followed_it_are_missed(store: RocksStore, tmp_path: Path) -> None:
    logs = fill_logs(store, tmp_path / "copy")
    store.close()
    if len(logs) > 1:  # else it was written out meanwhile
        closed = logs[0].read_bytes()
        logs[0].unlink()
        with pytest.raises(StoreUnusable) as refused:
            RocksStore(tmp_path / "copy")
        assert refused.value.reason == port.STORE_DAMAGED
        logs[0].write_bytes(closed)
    logs[-1].unlink()
    with pytest.raises(StoreUnusable) as refused:
        RocksStore(tmp_path / "copy")
    assert refused.value.reason == port.STORE_DAMAGED


def test_a_log_that_is_deleted_while_the_folder_is_listed_is_not_missed(
    store: RocksStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocksDB begins the next one and deletes this one, between the listing and the look at it."""
    put(store, 1)
    listed = log_mark._newest_log
    looks = iter([1_000_000, -1])  # of which no file is there
    monkeypatch.setattr(log_mark, "_newest_log", lambda folder: next(looks, None) or listed(folder))
    store._mark._inode = 0
    store.sync()
    put(store, 2)
    store.sync()
    monkeypatch.undo()
    mark = log_mark.read_mark(store._path)
    assert mark is not None
    assert mark.log == int(log_of(store._path).stem)


def test_after_a_clean_close_no_log_is_needed(store: RocksStore) -> None:
    put(store, 1)
    store.close()
    log_of(store._path).unlink()
    assert numbers(store._path) == [1]


def test_writes_that_are_missing_without_a_trace_in_the_log_are_refused(store: RocksStore) -> None:
    """As where the log that was being written had just been begun."""
    put(store, 1)
    store.close()
    mark = log_mark.read_mark(store._path)
    assert mark is not None
    body = log_mark._FORMAT.pack(log_mark._MAGIC, mark.identity, mark.sequence + 5, 0, 0)
    (store._path / log_mark.NAME).write_bytes(body + log_mark._check(body))
    with pytest.raises(StoreUnusable, match="acknowledged writes are lost"):
        RocksStore(store._path)


@pytest.mark.parametrize("text", [b"", b"no mark", b"x" * 40])
def test_a_mark_that_is_missing_or_no_mark_proves_nothing(found: Path, text: bytes) -> None:
    (found / log_mark.NAME).write_bytes(text)
    assert len(numbers(found)) == SYNCED + UNSYNCED


def test_the_mark_of_another_database_proves_nothing(found: Path, tmp_path: Path) -> None:
    other = RocksStore(tmp_path / "other")
    for number in range(3 * SYNCED):
        put(other, number)
    other.close()
    shutil.copy(tmp_path / "other" / log_mark.NAME, found / log_mark.NAME)
    assert len(numbers(found)) == SYNCED + UNSYNCED


def test_a_folder_that_is_removed_acknowledges_nothing_more(store: RocksStore) -> None:
    put(store, 1)
    store.sync()
    shutil.rmtree(store._path)
    put(store, 2)
    with pytest.raises(StoreGone):
        store.sync()
    with pytest.raises(StoreGone):
        store.refuse_if_gone()
    with pytest.raises(StoreGone):
        RocksStore(store._path, must_exist=True)
    assert not store._path.exists()


def test_a_folder_that_is_replaced_acknowledges_nothing_more(store: RocksStore, tmp_path: Path) -> None:
    put(store, 1)
    store.sync()
    store._path.rename(tmp_path / "moved")
    shutil.copytree(tmp_path / "moved", store._path)
    put(store, 2)
    with pytest.raises(StoreGone):
        store.sync()


def test_a_backup_is_not_opened_as_a_store(store: RocksStore, tmp_path: Path) -> None:
    store.checkpoint(tmp_path / "backup")()
    (tmp_path / "backup" / folders.MANIFEST).write_text("{}")
    before = sorted(path.name for path in (tmp_path / "backup").iterdir())
    with pytest.raises(StoreUnusable, match="laketx restore --backup") as refused:
        RocksStore(tmp_path / "backup")
    assert refused.value.reason == port.STORE_IS_BACKUP
    assert sorted(path.name for path in (tmp_path / "backup").iterdir()) == before
    store.close()
