"""A backup that fails leaves nothing; two at a time are one too many."""

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from metaservice.core.errors import MetaError
from metaservice.core.table.meta import Profile, TableMeta
from metaservice.core.table.model import Principal
from metaservice.core.table.partitions import Partitioning
from metaservice.service.commit.transactions import Transactions
from metaservice.service.decider.decider import Answer, Decider
from metaservice.service.decider.state import State
from metaservice.service.operate.backup import SCRATCH, BackupPlace, Backups, _Moment
from metaservice.service.operate.restoring import list_differences
from metaservice.service.table.catalog import Catalog
from metaservice.store.engines.memory import MemoryStore

TIMEOUT_S = 30.0
TABLE_ID = "01890000-0000-7000-8000-000000000001"


class Clock:
    def now_us(self) -> int:
        return 1

    def mono_ms(self) -> int:
        return 1


class SlowStore(MemoryStore):
    """Waits inside of a checkpoint, then makes it or fails."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = threading.Event()
        self.go_on = threading.Event()
        self.failure: OSError | None = None

    def checkpoint(self, path: Path) -> Callable[[], None]:
        self.inside.set()
        assert self.go_on.wait(TIMEOUT_S)
        finish = super().checkpoint(path)
        if self.failure is not None:
            raise self.failure
        return finish


def fail(error: BaseException) -> None:
    raise error


@pytest.fixture
def store() -> SlowStore:
    return SlowStore()


@pytest.fixture
def backups(store: SlowStore, tmp_path: Path) -> Iterator[Backups]:
    (tmp_path / "data").mkdir()
    decider = Decider(lambda: State(store), lambda: None, fail)
    decider.start()
    yield Backups(decider, Clock(), BackupPlace(tmp_path / "data", tmp_path / "root", "1", 0))
    decider.stop()


def test_a_backup_that_fails_leaves_nothing(backups: Backups, store: SlowStore, tmp_path: Path) -> None:
    store.failure = OSError("no room")
    store.go_on.set()
    with pytest.raises(MetaError) as caught:
        backups.backup("b", "", validate_only=False)
    assert caught.value.reason == "BACKUP_FAILED"
    assert list((tmp_path / "root").iterdir()) == []
    assert list((tmp_path / "data").iterdir()) == []
    store.failure = None
    assert backups.backup("b", "", validate_only=False).path == str(tmp_path / "root" / "b")


def test_what_a_dead_service_left_in_the_data_folder_is_in_no_later_backup(
    backups: Backups, store: SlowStore, tmp_path: Path
) -> None:
    (tmp_path / "data" / SCRATCH).mkdir()
    (tmp_path / "data" / SCRATCH / "old").write_text("x")
    store.go_on.set()
    made = Path(backups.backup("b", "", validate_only=False).path)
    assert sorted(path.name for path in made.iterdir()) == ["entries", "laketx-backup.json"]


def test_a_backup_holds_what_its_own_group_decided_before_it(tmp_path: Path) -> None:
    """The heads that it names and the store that it copies are of the same moment."""
    store = MemoryStore()
    decider = Decider(lambda: State(store), lambda: None, fail)
    backups = Backups(decider, Clock(), BackupPlace(tmp_path, tmp_path / "root", "1", 0))
    catalog = Catalog(decider, Transactions(decider, Clock(), 1, 1, 0), Clock())
    meta = TableMeta(TABLE_ID, "t", Partitioning(()), (), 0, Profile.MAXCOMPUTE, 1, {}, frozenset(), "", (), 0)
    answers: list[Answer] = []

    def sink(given: Sequence[Answer]) -> None:
        answers.extend(given)

    decider.submit([(sink, 1, lambda: catalog.create(meta, Principal())), (sink, 2, lambda: backups._stand_still(1))])
    decider.start()
    decider.stop()
    taken = answers[1][1]
    assert isinstance(taken, tuple)
    moment = taken[0]
    assert isinstance(moment, _Moment)
    assert [head.table_id for head in moment.heads] == [TABLE_ID]
    assert list(list_differences(State(MemoryStore.open_checkpoint(tmp_path / SCRATCH)), moment.heads)) == []


def test_one_backup_at_a_time(backups: Backups, store: SlowStore) -> None:
    first = threading.Thread(target=lambda: backups.backup("one", "", validate_only=False))
    first.start()
    assert store.inside.wait(TIMEOUT_S)
    with pytest.raises(MetaError) as caught:
        backups.backup("two", "", validate_only=False)
    assert caught.value.reason == "BACKUP_RUNNING"
    store.go_on.set()
    first.join(TIMEOUT_S)
    assert backups.backup("two", "", validate_only=False).tables == 0


def test_a_backup_needs_room(store: SlowStore, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    decider = Decider(lambda: State(store), lambda: None, fail)
    greedy = Backups(decider, Clock(), BackupPlace(tmp_path / "data", tmp_path / "a" / "b", "1", 2**60))
    with pytest.raises(MetaError) as caught:
        greedy.backup("b", "", validate_only=True)
    assert caught.value.reason == "BACKUP_NO_ROOM"
    assert not (tmp_path / "a").exists()
