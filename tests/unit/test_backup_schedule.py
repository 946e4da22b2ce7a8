"""When scheduled backups are made, tried again, verified and deleted, with a clock that the test moves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from metaservice.metrics import BACKUP_AGE_SECONDS, BACKUP_DAMAGED, BACKUP_FAILURES, BACKUP_VERIFY_FAILURES
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.state import State
from metaservice.service.operate.backup import BackupPlace, Backups
from metaservice.service.operate.backup_schedule import (
    RETRY_FIRST_MS,
    RETRY_MOST_MS,
    BackupRhythm,
    BackupSchedule,
    retry_ms,
)
from metaservice.shared.log import BACKUP_PRUNED, BACKUP_SCHEDULE_FAILED, BACKUP_VERIFIED, BACKUP_VERIFY_FAILED
from metaservice.store.backups.repository import Verification
from metaservice.store.engines.memory import MemoryStore

MINUTE_MS = 60_000
EVERY_MS = 60 * MINUTE_MS
START_US = 1_800_000_000_000_000


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_us(self) -> int:
        return START_US + self.ms * 1000

    def mono_ms(self) -> int:
        return self.ms


class Rig:
    """A service whose store is empty, and whose verifications find what the test says."""

    def __init__(self, folder: Path) -> None:
        (folder / "data").mkdir(parents=True)
        self.repository = folder / "repository"
        self.repository.mkdir()
        self.clock = Clock()
        self.decider = Decider(lambda: State(MemoryStore()), lambda: None, _fail)
        self.decider.start()
        self.events: list[str] = []
        self.problem = ""
        self.verified: list[str] = []
        self.unreachable = False
        name = f"file://{self.repository}"
        self.backups = Backups(self.decider, self.clock, BackupPlace(folder / "data", folder / "root", "1", 0, name))
        self.rhythm = BackupRhythm(name, EVERY_MS, keep=2, verify_every_ms=3 * EVERY_MS)
        self.start()

    def start(self) -> None:
        """As after a take-over: another process with the same settings."""
        self.schedule = BackupSchedule(self.backups, self.clock, self.rhythm, self._verify, self._report)

    def _verify(self, _: str, backup_id: str) -> Verification:
        if self.unreachable:
            raise OSError("the storage does not answer")
        self.verified.append(backup_id)
        return Verification(backup_id, self.clock.now_us(), self.problem)

    def _report(self, name: str, **_: object) -> None:
        self.events.append(name)

    def pass_time(self, ms: int) -> None:
        self.clock.ms += ms
        self.schedule.round()

    def ids(self) -> list[str]:
        return sorted(path.stem for path in (self.repository / "backups").glob("*.json"))

    def read(self, metric: object) -> object:
        return self.schedule.readings()[metric]()  # type: ignore[index]


def _fail(error: BaseException) -> None:
    raise error


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.decider.stop()


def test_a_backup_is_made_at_once_and_then_in_the_interval(rig: Rig) -> None:
    rig.pass_time(0)
    assert len(rig.ids()) == 1
    assert rig.verified == rig.ids(), "what was never verified is due"
    rig.pass_time(EVERY_MS - 1)
    assert len(rig.ids()) == 1
    assert rig.read(BACKUP_AGE_SECONDS) == pytest.approx(3600, abs=1)
    rig.pass_time(1)
    assert len(rig.ids()) == 2
    assert rig.read(BACKUP_AGE_SECONDS) == 0
    assert len(rig.verified) == 1


def test_old_backups_are_deleted(rig: Rig) -> None:
    for _ in range(5):
        rig.pass_time(EVERY_MS)
    assert len(rig.ids()) == 2
    assert rig.schedule.health.backup_id == rig.ids()[-1]
    assert rig.events.count(BACKUP_PRUNED) == 3


def test_the_mark_of_work_that_died_fails_no_backup_and_delays_deletions(rig: Rig) -> None:
    mark = rig.repository / "running" / "backup-dead"
    mark.parent.mkdir()
    for number in range(1, 4):
        mark.touch()
        rig.pass_time(EVERY_MS)
        assert len(rig.ids()) == number
        assert rig.read(BACKUP_FAILURES) == 0
    mark.unlink()
    rig.pass_time(EVERY_MS)
    assert len(rig.ids()) == 2
    assert rig.events.count(BACKUP_PRUNED) == 1


def test_another_process_goes_on_where_the_one_before_was(rig: Rig) -> None:
    rig.pass_time(0)
    (rig.repository / "verified.json").write_text(
        json.dumps({"backup_id": rig.ids()[0], "time_us": rig.clock.now_us(), "problem": ""})
    )
    rig.start()
    rig.pass_time(EVERY_MS - 1)
    assert len(rig.ids()) == 1
    assert len(rig.verified) == 1
    assert rig.schedule.health.backup_id == rig.ids()[0]
    rig.pass_time(1)
    assert len(rig.ids()) == 2


def test_a_failure_is_tried_again_ever_more_seldom_and_without_end(rig: Rig) -> None:
    rig.repository.rmdir()
    attempts = []
    for _ in range(4 * 720):
        before = rig.read(BACKUP_FAILURES)
        rig.pass_time(RETRY_FIRST_MS)
        if rig.read(BACKUP_FAILURES) != before:
            attempts.append(rig.clock.ms)
    waits = [later - earlier for earlier, later in pairwise(attempts)]
    assert waits[:3] == [RETRY_FIRST_MS, 2 * RETRY_FIRST_MS, 4 * RETRY_FIRST_MS]
    assert waits[-5:] == [RETRY_MOST_MS] * 5
    assert set(rig.events) == {BACKUP_SCHEDULE_FAILED}
    assert rig.schedule.health.failures == len(attempts)
    assert "does not exist" in rig.schedule.health.error
    assert rig.read(BACKUP_AGE_SECONDS) == 4 * 3600, "since the start, if there is none"
    rig.repository.mkdir()
    rig.pass_time(RETRY_MOST_MS)
    assert (len(rig.ids()), rig.schedule.health.failures, rig.schedule.health.error) == (1, 0, "")


def test_damage_is_an_alarm_and_the_next_backup_uploads_everything(rig: Rig) -> None:
    rig.pass_time(0)
    rig.problem = "BACKUP_DAMAGED"
    for _ in range(4):  # the interval of verifications ends with the third
        rig.pass_time(EVERY_MS)
    assert rig.read(BACKUP_DAMAGED) == 1
    assert rig.read(BACKUP_VERIFY_FAILURES) == 2, "the newer backup, too"
    assert rig.events.count(BACKUP_VERIFY_FAILED) == 2
    kept = rig.ids()
    digest = next((rig.repository / "files").iterdir())
    digest.write_bytes(b"x" * digest.stat().st_size)
    rig.problem = ""
    rig.pass_time(EVERY_MS)
    assert digest.read_bytes() != b"x" * digest.stat().st_size, "it trusts nothing that is there"
    assert set(kept) <= set(rig.ids()), "and deletes nothing"
    assert rig.read(BACKUP_DAMAGED) == 0
    assert rig.events[-1] == BACKUP_VERIFIED
    rig.pass_time(EVERY_MS)
    assert len(rig.ids()) == 2


def test_a_verification_that_can_not_be_made_says_nothing_about_the_backup(rig: Rig) -> None:
    rig.unreachable = True
    rig.pass_time(0)
    rig.pass_time(1000)
    assert rig.read(BACKUP_VERIFY_FAILURES) == 1, "it waits before it tries again"
    assert rig.read(BACKUP_DAMAGED) == 0
    rig.unreachable = False
    rig.pass_time(RETRY_MOST_MS)
    assert len(rig.verified) == 1


def test_a_clock_that_was_ahead_delays_no_backup(rig: Rig) -> None:
    rig.pass_time(1000 * EVERY_MS)
    rig.clock.ms -= 990 * EVERY_MS
    rig.schedule._wait_until_ms = 0
    rig.pass_time(1000)
    assert len(rig.ids()) == 2


@pytest.mark.parametrize(
    ("failures", "every_ms", "expected"),
    [(1, EVERY_MS, 5_000), (2, EVERY_MS, 10_000), (8, EVERY_MS, 600_000), (99, EVERY_MS, 600_000), (9, 1000, 5_000)],
)
def test_how_long_a_failure_waits(failures: int, every_ms: int, expected: int) -> None:
    assert retry_ms(failures, every_ms) == expected
