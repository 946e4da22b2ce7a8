"""The purge over real files: what is needed stays, what is dead goes, whenever it is cut off."""

import json
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from metaservice.cli import command_line
from metaservice.client import BlockedError, GoneError, InvalidError, MetaServiceError
from protos.laketx.v1 import read_pb2
from tests.integration.terminal import LAKETX, Ended
from tests.integration.warehouse import GRACE_MS, HOUR_MS, INSERT, OVERWRITE, Warehouse, warehouse
from worker.services.purge import PAGE_FILES, Purge

Run = Callable[..., Ended]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Warehouse]:
    with warehouse(tmp_path) as found:
        yield found


@pytest.fixture
def here(lake: Warehouse, capfd: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str) -> Ended:
        capfd.readouterr()
        environment = {"LAKETX_SERVER": lake.client_address, "LAKETX_WAREHOUSE": str(lake.folder)}
        code = command_line.run(words, environment)
        said = capfd.readouterr()
        return Ended(code, said.out, said.err)

    return run


class Killed(BaseException):
    """The process ends here."""


class History:
    """Random writers, readers and purges; everything is kept in a warehouse of real files."""

    def __init__(self, lake: Warehouse, outside: Path, seed: int) -> None:
        self.lake = lake
        self.rng = random.Random(seed)
        self.outside = outside
        self.snapshots: dict[int, set[str]] = {0: set()}
        self.external: list[str] = []
        self.open: list[tuple[object, list[str]]] = []
        self.lost: list[tuple[str, list[str]]] = []
        self.pins: dict[str, int] = {}
        self.names = 0

    def step(self) -> None:
        moves = [self.insert, self.insert, self.overwrite, self.overwrite, self.restore, self.begin, self.finish]
        moves += [self.lose, self.resubmit, self.abort, self.import_file, self.tag, self.untag, self.pin, self.unpin]
        moves += [self.cursor, self.advance, self.purge, self.purge, self.killed_purge, self.wait, self.wait]
        self.rng.choice(moves)()
        self.check()

    def name(self) -> str:
        self.names += 1
        return f"f{self.names}"

    def remember(self) -> None:
        head = self.lake.head
        self.snapshots[head] = self.lake.list_files(head)

    def insert(self) -> None:
        self.lake.write(INSERT, self.name(), self.name())
        self.remember()

    def overwrite(self) -> None:
        self.lake.write(OVERWRITE, self.name())
        self.remember()

    def restore(self) -> None:
        version = self.rng.randint(self.lake.oldest, self.lake.head)
        self.lake.restore(version)
        self.remember()
        assert self.snapshots[self.lake.head] == self.lake.list_files(version)

    def begin(self) -> None:
        txn = self.lake.begin(INSERT)
        self.open.append((txn, self.lake.register(txn, self.name())))

    def finish(self) -> None:
        if not self.open:
            return
        txn, paths = self.open.pop(self.rng.randrange(len(self.open)))
        try:
            txn.commit([self.lake.change()])  # type: ignore[attr-defined]
        except MetaServiceError:
            raise
        except Exception:  # noqa: BLE001 - a conflict
            self.lost.append((txn.txn_id, paths))  # type: ignore[attr-defined]
            return
        self.remember()

    def lose(self) -> None:
        self.lost.append(self.lake.lose())
        self.remember()

    def resubmit(self) -> None:
        if not self.lost:
            return
        txn_id, paths = self.lost.pop(self.rng.randrange(len(self.lost)))
        try:
            self.lake.resubmit(txn_id)
        except BlockedError:  # too late: their purge has begun
            return
        self.remember()
        assert set(paths) <= self.snapshots[self.lake.head]

    def abort(self) -> None:
        self.lake.abort()

    def import_file(self) -> None:
        """One in the folder of a transaction that ended is refused; let in earlier, it is kept while it is named."""
        inside = self.lake.folder / self.lake.table_id / self.lake.abort()[0].partition("/")[0]
        file = f"{self.name()}.parquet"
        if self.rng.random() < 0.5:
            with pytest.raises(InvalidError, match="PATH_IN_LAKE"):
                self.lake.register_external(inside / file)
            self.external.append(self.lake.plant_external(inside / file))
        else:
            self.external.append(self.lake.register_external(self.outside / file))
        self.remember()

    def tag(self) -> None:
        version = self.rng.randint(self.lake.oldest, self.lake.head)
        self.lake.client.create_tag(self.lake.table_id, self.rng.choice("ab"), version=version, move=True)

    def untag(self) -> None:
        self.lake.client.drop_tag(self.lake.table_id, self.rng.choice("ab"))

    def pin(self) -> None:
        wanted = read_pb2.TableVersion(table_id=self.lake.table_id)
        self.lake.client.pin([wanted], lease_ms=HOUR_MS)

    def unpin(self) -> None:
        for pin in self.lake.client.list_pins():
            self.lake.client.unpin(pin.pin_id)

    def cursor(self) -> None:
        version = self.rng.randint(self.lake.oldest, self.lake.head)
        self.lake.client.create_cursor(self.lake.table_id, "etl", version=version, keep_ms=HOUR_MS // 4)

    def advance(self) -> None:
        for cursor in self.lake.client.list_cursors(self.lake.table_id):
            self.lake.client.advance_cursor(self.lake.table_id, cursor.name, cursor.version, self.lake.head)

    def wait(self) -> None:
        self.lake.pass_time(self.rng.choice((1, HOUR_MS // 3, GRACE_MS)))

    def purge(self) -> None:
        report = self.lake.purge()
        assert report.failures == []

    def killed_purge(self) -> None:
        """After some files of a page were deleted, and before that is confirmed."""
        left = self.rng.randint(0, 3)

        def say(_what: str, _path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed

        try:
            self.lake.purge(say=say)
        except Killed:
            return

    def check(self) -> None:
        tags = {tag.version for tag in self.lake.client.list_tags(self.lake.table_id)}
        pinned = {pin.version for pin in self.lake.client.list_pins()}
        for version in {*range(self.lake.oldest, self.lake.head + 1), *tags, *pinned}:
            found = self.lake.list_files(version)
            assert found == self.snapshots[version]
            damaged = [path for path in found if not self.lake.is_whole(path)]
            assert damaged == [], f"version {version} needs them"
        outside = [path for path in self.external if path.startswith(str(self.outside))]
        assert all(self.lake.is_whole(path) for path in outside), "external files are never touched"
        assert all(self.lake.is_whole(path) for _, paths in self.open for path in paths)

    def end(self) -> None:
        """Nothing is held any more: what is left are the files of the head and those from outside."""
        for txn, _ in self.open:
            txn.abort()  # type: ignore[attr-defined]
        for name in "ab":
            self.lake.client.drop_tag(self.lake.table_id, name)
        self.unpin()
        self.lake.client.drop_cursor(self.lake.table_id, "etl")
        for _ in range(3):
            self.lake.pass_time(GRACE_MS, looks=20)
            self.purge()
        self.open.clear()
        self.check()
        assert self.lake.oldest == self.lake.head
        root = str(self.lake.folder / self.lake.table_id) + "/"
        needed = {path.removeprefix(root) for path in self.lake.list_files(self.lake.head)}
        let_in = {path.removeprefix(root) for path in self.external}  # once swept past, they are fsck's to find
        assert self.lake.stored() - let_in == {path for path in needed if not path.startswith("/")} - let_in


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 3))])
def test_nothing_that_is_needed_is_ever_deleted(lake: Warehouse, tmp_path: Path, seed: int) -> None:
    history = History(lake, tmp_path / "outside", seed)
    for _ in range(50):
        history.step()
    history.end()
    assert len(history.snapshots) > 10


def test_a_dry_run_tells_what_a_run_deletes(lake: Warehouse) -> None:
    dead = lake.write(OVERWRITE, "a", "b")
    left = lake.abort()
    lake.write(OVERWRITE, "c")
    lake.pass_time(GRACE_MS, looks=20)
    told: list[tuple[str, str]] = []
    before = lake.stored()
    report = lake.purge(dry_run=True, say=lambda what, path: told.append((what, path)))
    assert lake.stored() == before
    wanted = [("purge", path) for path in dead] + [("sweep", path) for path in left]
    assert sorted(told) == sorted((what, f"{lake.table_id}/{path}") for what, path in wanted)
    done = lake.purge()
    assert (done.files, done.swept) == (report.files, report.swept) == (2, 2)
    assert before - lake.stored() == {*dead, *left}


def test_a_file_that_is_gone_already_is_confirmed(lake: Warehouse) -> None:
    (dead,) = lake.write(OVERWRITE, "a")
    lake.write(OVERWRITE, "b")
    lake.pass_time()
    lake.whole(dead).unlink()
    report = lake.purge()
    assert (report.files, report.missing, report.failed) == (1, 1, 0)
    assert list(lake.client.list_purgeable_tables()) == []


def test_what_cannot_be_deleted_stays_on_the_list(lake: Warehouse) -> None:
    first, second = lake.write(OVERWRITE, "a", "b")
    lake.write(OVERWRITE, "c")
    lake.pass_time()
    lake.whole(first).unlink()
    lake.whole(first).mkdir()  # no file: deleting it fails
    report = lake.purge()
    assert (report.files, report.failed) == (1, 1)
    assert list(lake.client.list_purgeable(lake.table_id)) == [first]
    assert second not in lake.stored()


def test_the_folder_of_a_dropped_table_goes(lake: Warehouse) -> None:
    lake.write(INSERT, "a", "b")
    lake.abort()
    lake.client.drop_table(lake.table_id)
    lake.purge()
    assert len(lake.stored()) == 4, "it may come back"
    lake.pass_time(GRACE_MS, looks=20)
    report = lake.purge()
    assert (report.files, report.folders) == (2, 1)
    assert not (lake.folder / lake.table_id).exists()


def test_a_zombie_that_writes_after_its_end_is_swept_later(lake: Warehouse) -> None:
    paths = lake.abort()
    lake.purge()
    assert set(paths) <= lake.stored(), "its grace is not over"
    late = lake.write_file(f"{paths[0].partition('/')[0]}/1/late.parquet").path
    lake.pass_time(GRACE_MS, looks=20)
    lake.purge()
    assert not {*paths, late} & lake.stored()


def test_a_sweep_is_confirmed_up_to_what_is_settled(lake: Warehouse) -> None:
    """What lies behind an open transaction is looked at again."""
    lake.abort()
    lake.pass_time(GRACE_MS, looks=20)
    waiting = lake.begin(INSERT)
    time.sleep(0.002)  # ids of one millisecond have no order
    young = lake.begin(INSERT)
    young.abort()
    lake.purge()
    assert [page.folders for page in lake.client.list_sweepable()] == [[]]
    with pytest.raises(InvalidError, match="TRANSACTION_ID_IN_FUTURE"):
        lake.client.confirm_swept(young.txn_id[:2] + "f" + young.txn_id[3:])
    lake.pass_time(GRACE_MS, looks=20)
    for _ in range(2):
        lake.purge()
        listed = [folder.txn_id for page in lake.client.list_sweepable() for folder in page.folders]
        assert listed == [young.txn_id]
    waiting.abort()
    lake.pass_time(GRACE_MS, looks=20)
    lake.purge()
    assert [page.folders for page in lake.client.list_sweepable(page_size=1)] == [[]]


def test_the_purge_halts_while_clocks_disagree(lake: Warehouse) -> None:
    lake.write(OVERWRITE, "a")
    lake.write(OVERWRITE, "b")
    lake.pass_time()
    lake.clock.us += 10 * HOUR_MS * 1_000
    lake.pass_time()
    for refused in (lake.purge, lambda: list(lake.client.list_sweepable())):
        with pytest.raises(BlockedError) as caught:
            refused()
        assert caught.value.reason == "CLOCKS_DISAGREE"
    lake.clock.us -= 10 * HOUR_MS * 1_000
    lake.pass_time()
    assert lake.purge().files == 1


def test_what_may_yet_be_needed_is_no_stray(lake: Warehouse) -> None:
    """By path: open, lost and not given up, lost and handed on, not begun yet, external in the folder, unknown."""
    live = lake.write(INSERT, "live")
    dead = lake.write(INSERT, "dead")
    waiting_id, waiting = lake.lose()
    handed_id, handed = lake.lose()
    txn = lake.begin(INSERT, adopt_from=handed_id)
    mine = lake.register(txn, "mine")
    unborn = f"{lake.begin(INSERT).txn_id[:-4]}0000/0/soon.parquet"
    paths = [*live, *dead, *waiting, *handed, *mine, unborn, "somewhere/else.parquet"]
    lake.pass_time()
    told = lake.client.check_paths(lake.table_id, paths)
    assert set(told.needed) == {*waiting, *handed, *mine, unborn, *live, *dead} - set(told.purgeable)
    assert set(told.purgeable) <= {*live, *dead}
    lake.pass_time(GRACE_MS, looks=20)
    told = lake.client.check_paths(lake.table_id, paths)
    assert {*handed, *mine, unborn} <= set(told.needed)
    assert set(waiting) <= set(told.purgeable)
    with pytest.raises(BlockedError, match="PURGE_HAS_BEGUN"):
        lake.resubmit(waiting_id)


def test_a_version_that_a_restore_brought_back_is_kept(lake: Warehouse) -> None:
    (first,) = lake.write(OVERWRITE, "a")
    lake.write(OVERWRITE, "b")
    lake.restore(1)
    lake.pass_time()
    lake.purge()
    assert lake.is_whole(first)
    lake.write(OVERWRITE, "c")
    lake.pass_time()
    with pytest.raises(GoneError):
        lake.list_files(1)
    lake.purge()
    assert first not in lake.stored()


def test_a_killed_run_is_taken_up_by_the_next(lake: Warehouse) -> None:
    count = PAGE_FILES + 200
    txn = lake.begin(INSERT)
    template = lake.write_file(f"{txn.txn_id}/0/0.parquet")
    raw = lake.whole(template.path).read_bytes()
    files = []
    for number in range(count):
        file = type(template)()
        file.CopyFrom(template)
        file.path = f"{txn.txn_id}/0/{number}.parquet"
        lake.whole(file.path).write_bytes(raw)
        files.append(file)
    txn.register(lake.table_id, files)
    txn.commit([lake.change()])
    lake.write(OVERWRITE, "b")
    lake.pass_time(looks=60)
    words = ["--server", lake.client_address, "purge", "run", "--warehouse", str(lake.folder), "--yes"]
    running = subprocess.Popen([*LAKETX, *words])
    while len(lake.stored()) > count - 100 and running.poll() is None:
        pass
    running.send_signal(signal.SIGKILL)
    running.wait()
    lake.purge()
    assert list(lake.client.list_purgeable_tables()) == []
    assert lake.stored() == lake.list_files(lake.head)
    assert not (lake.folder / lake.table_id / txn.txn_id).exists()


def test_the_command(lake: Warehouse, here: Run) -> None:
    (dead,) = lake.write(OVERWRITE, "a")
    lake.write(OVERWRITE, "b")
    lake.pass_time()
    looked = here("purge", "run", "days", "--dry-run")
    assert looked.code == 0
    assert looked.lines()[0] == f"purge {lake.table_id}/{dead}"
    assert here("purge", "run").code == 2, "nobody is there to be asked"
    done = here("-o", "json", "purge", "run", "--yes")
    assert json.loads(done.out) == {
        "files": 1,
        "missing": 0,
        "swept": 0,
        "folders": 0,
        "staged": 0,
        "kept": 0,
        "failed": 0,
        "failures": [],
        "dry_run": False,
    }
    assert dead not in lake.stored()


def test_the_command_says_who_keeps_what(lake: Warehouse, here: Run) -> None:
    lake.write(OVERWRITE, "a")
    lake.client.create_tag(lake.table_id, "eoy")
    pin = lake.client.pin([read_pb2.TableVersion(table_id=lake.table_id)])
    lake.write(OVERWRITE, "b")
    lake.client.create_cursor(lake.table_id, "newest")
    told = here("purge", "run", "days", "--yes").err
    version = lake.head - 1
    assert f"the tag eoy keeps version {version} of days" in told
    assert f"keeps version {version} of days" in told.replace("the tag eoy keeps", "")
    assert "newest" not in told, "a cursor at the newest version keeps nothing old"
    lake.client.unpin(pin.pin_id)
    assert here("-q", "purge", "run", "days", "--yes").err == ""


def test_a_path_that_leaves_its_folder_is_refused(lake: Warehouse) -> None:
    run = Purge(lake.client, str(lake.folder))
    assert not any(run._is_inside(path) for path in ("/etc/passwd", "a/../../b", "s3://bucket/x"))
    assert run.report.failed == 3
