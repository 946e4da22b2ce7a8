"""Backups that the service makes by itself, and verifies by restoring them in a process of its own.

A thread of its own; the decider only fixes a moment. A failure is tried again, first soon and then more
seldom, without end: the age of the newest backup is a metric with an alarm. What is due depends on the newest backup in
the repository, so a service that is started again, or that takes over, goes on where the one before was.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from metaservice.core.errors import MetaError
from metaservice.metrics import (
    BACKUP_AGE_SECONDS,
    BACKUP_BYTES,
    BACKUP_DAMAGED,
    BACKUP_EVERY_SECONDS,
    BACKUP_FAILURES,
    BACKUP_SECONDS,
    BACKUP_UPLOADED_BYTES,
    BACKUP_VERIFY_AGE_SECONDS,
    BACKUP_VERIFY_EVERY_SECONDS,
    BACKUP_VERIFY_FAILURES,
    Metric,
    Reading,
)
from metaservice.service.decider.clocks import Clocks
from metaservice.service.operate.backup import Backups
from metaservice.shared.log import BACKUP_PRUNED, BACKUP_SCHEDULE_FAILED, BACKUP_VERIFIED, BACKUP_VERIFY_FAILED
from metaservice.store.backups.repository import Verification, open_repository, plan_prune

LOOK_S: Final = 1.0
RETRY_FIRST_MS: Final = 5_000
RETRY_MOST_MS: Final = 600_000


@dataclass(frozen=True, slots=True)
class BackupRhythm:
    """When backups are made, of what, and how many are kept; 0 of a period: never."""

    repository: str
    every_ms: int
    keep: int  # 0: all
    verify_every_ms: int


@dataclass(slots=True)
class BackupHealth:
    """What is known of the service's own repository."""

    repository: str = ""
    backup_id: str = ""
    begin_time_us: int = 0
    bytes: int = 0
    failures: int = 0  # since the last success
    error: str = ""
    verified_backup_id: str = ""
    verify_time_us: int = 0
    verify_problem: str = ""
    transfer_bytes: int = 0
    transferred_bytes: int = 0


def retry_ms(failures: int, every_ms: int) -> int:
    """How long to wait after so many failures in a row."""
    return min(RETRY_FIRST_MS << min(failures - 1, 20), RETRY_MOST_MS, max(every_ms, RETRY_FIRST_MS))


class BackupSchedule:
    """Runs rounds until it is stopped."""

    def __init__(
        self,
        backups: Backups,
        clocks: Clocks,
        rhythm: BackupRhythm,
        verify: Callable[[str, str], Verification],
        report: Callable[..., None],
    ) -> None:
        """`verify` restores a backup of a repository somewhere, and looks at it; it takes its time."""
        self._backups = backups
        self._clocks = clocks
        self._rhythm = rhythm
        self._verify = verify
        self._report = report
        self._health = BackupHealth(repository=rhythm.repository)
        self._start_us = clocks.now_us()
        self._has_looked = False  # what the repository has
        self._wait_until_ms = 0
        self._verify_wait_until_ms = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="backups", daemon=True)
        self._failures = 0
        self._verify_failures = 0
        self._uploaded_bytes = 0
        self._took_s = 0.0

    @property
    def health(self) -> BackupHealth:
        transfer = self._backups.transfer
        self._health.transfer_bytes, self._health.transferred_bytes = transfer.total, transfer.done
        return self._health

    def readings(self) -> dict[Metric, Callable[[], Reading]]:
        rhythm, health = self._rhythm, self._health
        has_one = bool(rhythm.repository)
        return {
            BACKUP_AGE_SECONDS: lambda: self._age_s(health.begin_time_us) if has_one else 0,
            BACKUP_EVERY_SECONDS: lambda: rhythm.every_ms / 1000 if has_one else 0,
            BACKUP_SECONDS: lambda: self._took_s,
            BACKUP_BYTES: lambda: health.bytes,
            BACKUP_UPLOADED_BYTES: lambda: self._uploaded_bytes,
            BACKUP_FAILURES: lambda: self._failures,
            BACKUP_VERIFY_AGE_SECONDS: lambda: self._age_s(health.verify_time_us) if has_one else 0,
            BACKUP_VERIFY_EVERY_SECONDS: lambda: rhythm.verify_every_ms / 1000 if has_one else 0,
            BACKUP_VERIFY_FAILURES: lambda: self._verify_failures,
            BACKUP_DAMAGED: lambda: int(bool(health.verify_problem)),
        }

    def _age_s(self, time_us: int) -> float:
        """Of what there never was: since the start."""
        return max(0.0, (self._clocks.now_us() - (time_us or self._start_us)) / 1e6)

    def start(self) -> None:
        if self._rhythm.repository:
            self._thread.start()

    def stop(self) -> None:
        """Waits for no backup: one that is cut off leaves no half one behind."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(LOOK_S):
            self.round()

    def round(self) -> None:
        """Does what is due."""
        if self._clocks.mono_ms() >= self._wait_until_ms:
            if not self._has_looked:
                self._try(self._look)
            if self._has_looked and self._is_due():
                self._try(self._back_up)
        if self._has_looked and self._clocks.mono_ms() >= self._verify_wait_until_ms and self._is_verification_due():
            self._verify_newest()

    def _is_due(self) -> bool:
        return bool(self._rhythm.every_ms) and self._is_older(self._health.begin_time_us, self._rhythm.every_ms)

    def _is_verification_due(self) -> bool:
        every_ms, health = self._rhythm.verify_every_ms, self._health
        is_about_a_newer_one = bool(health.verify_problem) and health.backup_id != health.verified_backup_id
        is_due = is_about_a_newer_one or self._is_older(health.verify_time_us, every_ms)
        return bool(every_ms and health.backup_id) and is_due

    def _is_older(self, time_us: int, than_ms: int) -> bool:
        """A time in the future is one of a wrong clock, then or now: as good as none."""
        age_us = self._clocks.now_us() - time_us
        return age_us < 0 or age_us >= than_ms * 1000

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - no backup is worth the service; it is tried again
            self._failures += 1
            self._health.failures += 1
            self._health.error = str(error)
            wait_ms = retry_ms(self._health.failures, self._rhythm.every_ms)
            self._wait_until_ms = self._clocks.mono_ms() + wait_ms
            self._report(
                BACKUP_SCHEDULE_FAILED, repository=self._rhythm.repository, error=str(error), again_in_ms=wait_ms
            )

    def _look(self) -> None:
        repository = open_repository(self._rhythm.repository)
        ids, verified = repository.list_ids(), repository.find_verification()
        if ids:
            newest = repository.read(ids[-1])
            self._note_backup(newest.backup_id, newest.manifest.begin_us, newest.manifest.size_bytes)
        if verified is not None:
            self._note_verification(verified)
        self._has_looked = True

    def _back_up(self) -> None:
        begun_ms = self._clocks.mono_ms()
        damaged = bool(self._health.verify_problem)  # then nothing that is there is trusted, and nothing is deleted
        done = self._backups.backup(self._rhythm.repository, "", validate_only=False, full=damaged)
        self._took_s = (self._clocks.mono_ms() - begun_ms) / 1000
        self._uploaded_bytes += done.uploaded_bytes
        self._note_backup(done.backup_id, done.begin_us, done.size_bytes)
        if self._rhythm.keep and not damaged:
            self._prune()

    def _prune(self) -> None:
        """Leaves it to the next backup while other work in the repository is under way, or has died of late."""
        repository = open_repository(self._rhythm.repository)
        gone = plan_prune(repository.list_ids(), self._rhythm.keep)
        if gone:
            try:
                freed = repository.delete(self._health.backup_id, gone, dry_run=False)
            except MetaError as refused:
                if refused.reason != "BACKUP_RUNNING":
                    raise
                return
            self._report(BACKUP_PRUNED, backups=len(gone), files=freed.files, bytes=freed.size_bytes)

    def _verify_newest(self) -> None:
        try:
            verification = self._verify(self._rhythm.repository, self._health.backup_id)
        except OSError as error:  # it says nothing about the backup
            self._verify_failures += 1
            self._verify_wait_until_ms = self._clocks.mono_ms() + RETRY_MOST_MS
            self._report(BACKUP_VERIFY_FAILED, backup=self._health.backup_id, error=str(error))
            return
        if self._ended.is_set():
            return
        self._note_verification(verification)
        if not verification.problem:
            self._report(BACKUP_VERIFIED, backup=verification.backup_id)
            return
        self._verify_failures += 1
        self._report(BACKUP_VERIFY_FAILED, backup=verification.backup_id, error=verification.problem)

    def _note_backup(self, backup_id: str, begin_us: int, size_bytes: int) -> None:
        health = self._health
        health.backup_id, health.begin_time_us, health.bytes = backup_id, begin_us, size_bytes
        health.failures, health.error = 0, ""

    def _note_verification(self, verification: Verification) -> None:
        health = self._health
        health.verified_backup_id, health.verify_time_us = verification.backup_id, verification.time_us
        health.verify_problem = verification.problem
