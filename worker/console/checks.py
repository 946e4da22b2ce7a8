"""What the console looks at to say whether a lake is well. Each check names the command that helps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from metaservice.cli.values import duration_text, size_text
from protos.laketx.v1 import admin_pb2

AN_HOUR_MS: Final = 3_600_000
OPEN_MS_MAX: Final = 6 * AN_HOUR_MS
PIN_MS_MAX: Final = 24 * AN_HOUR_MS
CURSOR_MS_MAX: Final = 72 * AN_HOUR_MS
LEASE_MS_MAX: Final = 4_000
AHEAD_MS_MAX: Final = 60_000
QUOTA_SHARE_MAX: Final = 0.9
LOST_SHARE_MAX: Final = 0.5
TASKS: Final = "tasks-that-wait-or-fail"
LOST_COUNT_MIN: Final = 10  # so few transactions say nothing


@dataclass(frozen=True, slots=True)
class Check:
    """A check: what was found, and what to do if that is bad. `runbook` is the anchor of a section of the runbooks."""

    name: str
    is_good: bool
    finding: str
    command: str
    runbook: str


@dataclass(frozen=True, slots=True)
class Work:
    """What is under way, beside the service's own figures; None: the caller may not see it."""

    failed_tasks: int
    oldest_pin_ms: int
    oldest_cursor_ms: int
    ended: int  # transactions that ended lately
    lost: int  # those of them that lost a race


def check_all(status: admin_pb2.GetStatusResponse, work: Work, now_us: int) -> list[Check]:
    return [*_service(status), *_clock_and_purge(status), *_backups(status.backup), *_work(status, work, now_us)]


def score(checks: Sequence[Check]) -> int:
    """Checks passed of all checks, in percent, rounded down: 100 means all."""
    return 100 * sum(check.is_good for check in checks) // len(checks)


def _service(status: admin_pb2.GetStatusResponse) -> Iterator[Check]:
    yield Check(
        "Takes work",
        not status.read_only_reason,
        status.read_only_reason or "commits are taken",
        "make room on the service's disk",
        "laketxreadonly",
    )
    if status.role:
        is_led = bool(status.leader) and status.lease_age_ms <= LEASE_MS_MAX
        renewed = f"{status.leader or 'nobody'} leads, lease renewed {duration_text(status.lease_age_ms)} ago"
        yield Check("Has a leader", is_led, renewed, "laketx status", "laketxnoleader")
        alive = [standby.address for standby in status.standbys if standby.alive]
        text = ", ".join(alive) or "nobody goes on when the leader ends"
        yield Check("Has a standby", bool(alive), text, "laketx serve", "laketxnostandby")
    room = f"{size_text(status.free_bytes)} free, {size_text(status.reserve_bytes)} kept back"
    is_roomy = status.free_bytes > 2 * status.reserve_bytes
    yield Check("Has room", is_roomy, room, "laketx pins list", "laketxroomendssoon")
    near = [quota for quota in status.quotas if quota.used > QUOTA_SHARE_MAX * quota.limit]
    used = ", ".join(f"{quota.quota} {quota.used} of {quota.limit}" for quota in near) or "below nine tenths"
    yield Check("Quotas have room", not near, used, "laketx status", "laketxquotanearlyused")


def _clock_and_purge(status: admin_pb2.GetStatusResponse) -> Iterator[Check]:
    clock, purge, ahead = status.clock_hold_reason, status.purge_hold_reason, status.commit_times_ahead_ms
    yield Check("Trusts the clock", not clock, clock or "no jump", "laketx clock confirm", "laketxclocksdisagree")
    times = f"{duration_text(ahead)} ahead of the clock" if ahead else "as the clock"
    yield Check(
        "Commit times are right", ahead <= AHEAD_MS_MAX, times, "check the machine's clock", "laketxcommittimesahead"
    )
    yield Check("Purge may run", not purge, purge or "nothing holds it", "laketx purge release", "laketxpurgeheld")


def _backups(backup: admin_pb2.BackupStatus) -> Iterator[Check]:
    """A service without a repository is backed up by other means, or not: that is no check."""
    if not backup.repository:
        return
    failure = f"{backup.failures} failures since the newest: {backup.error}" if backup.failures else "no failure"
    yield Check("Backups are made", not backup.failures, failure, "laketx backup make", "laketxbackuplate")
    damage = backup.verify_problem
    yield Check(
        "Backups can be restored",
        not damage,
        damage or "no damage known",
        "laketx backup make --full",
        "laketxbackupdamaged",
    )


def _work(status: admin_pb2.GetStatusResponse, work: Work, now_us: int) -> Iterator[Check]:
    begin_us = status.oldest_open_begin_time_us
    open_ms = max(now_us - begin_us, 0) // 1_000 if begin_us else 0
    yield Check(
        "No transaction is open for long",
        open_ms <= OPEN_MS_MAX,
        f"the oldest is open for {duration_text(open_ms)}" if begin_us else "none is open",
        "laketx txn list --state open",
        "laketxtransactionopenforlong",
    )
    pin = f"the oldest for {duration_text(work.oldest_pin_ms)}" if work.oldest_pin_ms else "none is held"
    yield Check(
        "No pin is held for long",
        work.oldest_pin_ms <= PIN_MS_MAX,
        pin,
        "laketx pins list",
        "laketxpinheldforlong",
    )
    cursor = f"the longest for {duration_text(work.oldest_cursor_ms)}" if work.oldest_cursor_ms else "there is none"
    yield Check(
        "No cursor is forgotten",
        work.oldest_cursor_ms <= CURSOR_MS_MAX,
        f"unused: {cursor}",
        "laketx cursor list",
        "laketxcursorforgotten",
    )
    share = work.lost / work.ended if work.ended else 0.0
    yield Check(
        "Few races are lost",
        work.ended < LOST_COUNT_MIN or share <= LOST_SHARE_MAX,
        f"{work.lost} of the last {work.ended} transactions",
        "laketx txn list --state conflict",
        "laketxraceslost",
    )
    has_worker = not status.HasField("workers") or status.workers > 0 or not status.tasks_queued
    yield Check(
        "Tasks have a worker",
        has_worker,
        f"waiting tasks: {status.tasks_queued}; workers: {status.workers}",
        "laketx worker",
        TASKS,
    )
    yield Check(
        "Tasks succeed",
        not work.failed_tasks,
        f"failing again and again: {work.failed_tasks}",
        "laketx compaction list --state failed",
        TASKS,
    )
