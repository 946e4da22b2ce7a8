"""Schedules of periodic tasks, and what becomes of their runs: pure functions of times."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaservice.core.errors import MetaError
from metaservice.core.periodic_tasks import (
    ATTEMPTS_MAX,
    BACKOFF_US,
    FAILURES_MAX,
    SECOND_US,
    HasData,
    RunOutcome,
    ScheduledStatement,
    parse_run_schedule,
)
from metaservice.core.table.model import Operation
from metaservice.store.records.periodic_tasks import (
    decode_periodic_run,
    decode_periodic_task,
    encode_periodic_run,
    encode_periodic_task,
)

MINUTE_US = 60 * SECOND_US
TASK = ScheduledStatement("shop.a", "0" * 32, "INSERT …", Operation.INSERT, "t", ("s",), "every minute", anchor_us=0)


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND_US


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("every 5 minutes", "every 5 minutes"),
        ("5 MINUTES", "every 5 minutes"),
        ("'60 seconds'", "every 1 minute"),
        ("EVERY HOUR", "every 1 hour"),
        ("10 second", "every 10 seconds"),
        ("cron 30 3 * * *", "cron 30 3 * * *"),
        ("USING CRON */15 6-18 * * 1-5 UTC", "cron */15 6-18 * * 1-5"),
    ],
)
def test_the_words_of_schedules(text: str, stored: str) -> None:
    assert parse_run_schedule(text).text == stored
    assert parse_run_schedule(stored).text == stored


@pytest.mark.parametrize(
    "text",
    ["", "every", "9 seconds", "every 0 minutes", "on commit", "5 parsecs", "cron * * *", "cron 61 * * * *",
     "cron 0 0 30 2 *", "using cron 0 9 * * * Europe/Paris"],
)  # fmt: skip
def test_other_words_are_no_schedule(text: str) -> None:
    with pytest.raises(MetaError, match="RUN_SCHEDULE_INVALID"):
        parse_run_schedule(text)


@pytest.mark.parametrize(
    ("schedule", "anchor", "after", "following"),
    [
        ("every 5 minutes", "2026-11-01T10:02:00", "2026-11-01T10:02:00", "2026-11-01T10:07:00"),
        ("every 5 minutes", "2026-11-01T10:02:00", "2026-11-01T10:07:00", "2026-11-01T10:12:00"),
        ("every 5 minutes", "2026-11-01T10:02:00", "2026-11-01T10:11:59", "2026-11-01T10:12:00"),
        ("cron 30 3 * * *", "2026-11-01T10:02:00", "2026-11-01T10:02:00", "2026-11-02T03:30:00"),
        ("cron 0 9 * * 1", "2026-11-01T10:02:00", "2026-11-02T09:00:00", "2026-11-09T09:00:00"),
    ],
)
def test_the_next_time_of_a_schedule(schedule: str, anchor: str, after: str, following: str) -> None:
    assert parse_run_schedule(schedule).next_us(at(anchor), at(after)) == at(following)


@given(
    st.sampled_from(["every 7 minutes", "every 1 hour", "cron */20 6-8 * * *", "cron 0 0 1 * *"]),
    st.integers(0, 10**6),
    st.integers(0, 50_000),
    st.integers(0, 200_000),
)
def test_the_newest_time_is_the_last_of_all_times(schedule: str, anchor_s: int, after_s: int, gone_s: int) -> None:
    found = parse_run_schedule(schedule)
    anchor_us, after_us = anchor_s * SECOND_US, (anchor_s + after_s) * SECOND_US
    now_us = after_us + gone_s * SECOND_US
    times, time_us = [], found.next_us(anchor_us, after_us)
    while time_us <= now_us:
        times.append(time_us)
        time_us = found.next_us(anchor_us, time_us)
    assert found.newest_us(anchor_us, after_us, now_us) == (times[-1] if times else None)


def test_missed_instants_are_one_run() -> None:
    assert TASK.due_us(MINUTE_US - 1) is None
    assert TASK.due_us(7 * MINUTE_US + 5) == 7 * MINUTE_US
    done = TASK.begun(7 * MINUTE_US, 7 * MINUTE_US + 5, "w", {}).done(8 * MINUTE_US - 1, 3, 4)
    assert (done.due_us(8 * MINUTE_US - 1), done.due_us(8 * MINUTE_US), done.next_us) == (None, *[8 * MINUTE_US] * 2)
    suspended = done.suspended()
    assert suspended.due_us(20 * MINUTE_US) is None
    assert suspended.next_us == 0
    assert suspended.resumed().due_us(20 * MINUTE_US + 1) == 20 * MINUTE_US


def test_a_run_that_failed_keeps_its_due_time() -> None:
    task, now_us = TASK.begun(MINUTE_US, MINUTE_US, "w", {"s": 4}), MINUTE_US
    for attempt in range(1, ATTEMPTS_MAX):
        task = task.failed(now_us, "no")
        assert (task.run_us, task.attempts, task.last) == (MINUTE_US, attempt, None)
        assert task.not_before_us == now_us + (BACKOFF_US << (attempt - 1))
        assert task.due_us(task.not_before_us - 1) is None
        now_us = task.not_before_us + 5 * MINUTE_US
        assert task.due_us(now_us) == MINUTE_US
        task = task.begun(MINUTE_US, now_us, "v", {"s": 9})
        assert task.noted == (("s", 4),), "what came after the first attempt began may not be in its rows"
    ended = task.failed(now_us, "no")
    assert ended.last is not None
    assert (ended.last.outcome, ended.last.attempts, ended.last.due_us) == (RunOutcome.FAILED, ATTEMPTS_MAX, MINUTE_US)
    assert ended.due_us(now_us) == now_us // MINUTE_US * MINUTE_US
    assert ended.seen == ()


def test_a_task_that_always_fails_suspends_itself() -> None:
    task = TASK
    for number in range(1, FAILURES_MAX + 1):
        task = replace(task.begun(number * MINUTE_US, 0, "w", {}), attempts=ATTEMPTS_MAX).failed(0, "no")
        assert task.is_suspended == (number == FAILURES_MAX)
    assert (task.resumed().failures, task.error) == (0, "no")


@pytest.mark.parametrize(
    ("conditions", "needs_all", "data", "cursors", "holds"),
    [
        ((), False, {}, {}, True),
        ((HasData("a"),), False, {"a": 3}, {}, False),
        ((HasData("a"),), False, {"a": 4}, {}, True),
        ((HasData("new"),), False, {"new": 0}, {}, False),
        ((HasData("new"),), False, {"new": 1}, {}, True),
        ((HasData("gone"),), False, {}, {}, False),
        ((HasData("a"), HasData("b")), False, {"a": 3, "b": 6}, {}, True),
        ((HasData("a"), HasData("b")), True, {"a": 3, "b": 6}, {}, False),
        ((HasData("a"), HasData("b")), True, {"a": 4, "b": 6}, {}, True),
        ((HasData("a", "c"),), False, {"a": 9}, {HasData("a", "c"): 9}, False),
        ((HasData("a", "c"),), False, {"a": 9}, {HasData("a", "c"): 8}, True),
        ((HasData("a", "c"),), False, {"a": 9}, {}, False),
        ((HasData("a", "c"), HasData("a")), True, {"a": 9}, {}, False),
    ],
)
def test_conditions(
    conditions: tuple[HasData, ...], needs_all: bool, data: dict[str, int], cursors: dict[HasData, int], holds: bool
) -> None:
    task = replace(TASK, conditions=conditions, needs_all=needs_all, seen=(("a", 3), ("b", 5)))
    assert task.holds(data, cursors) == holds
    assert replace(task, is_requested=True).holds(data, cursors)


def test_skipped_runs_are_counted() -> None:
    task = TASK.skipped(MINUTE_US, MINUTE_US + 1).skipped(2 * MINUTE_US, 2 * MINUTE_US + 1)
    assert task.last is not None
    assert (task.last.due_us, task.last.skips, task.due_us(2 * MINUTE_US + 1)) == (2 * MINUTE_US, 2, None)
    done = task.begun(3 * MINUTE_US, 3 * MINUTE_US, "w", {}).done(3 * MINUTE_US, 0, 0)
    again = done.skipped(4 * MINUTE_US, 4 * MINUTE_US)
    assert again.last is not None
    assert again.last.skips == 1


def test_a_run_that_was_asked_for_comes_after_all_others() -> None:
    ended = TASK.begun(9 * MINUTE_US, 0, "w", {}).done(0, 0, 0)
    requested = ended.suspended().requested(5)  # the clock went back
    assert requested.due_us(5) == 9 * MINUTE_US + 1
    assert requested.is_suspended
    waiting = TASK.begun(MINUTE_US, MINUTE_US, "w", {}).failed(MINUTE_US, "no").requested(MINUTE_US + 1)
    assert waiting.due_us(MINUTE_US + 1) == MINUTE_US, "the run that waits is tried now"


def test_a_replaced_task_keeps_its_id_and_no_due_time_comes_twice() -> None:
    waiting = TASK.begun(7 * MINUTE_US, 7 * MINUTE_US, "w", {})
    replaced = replace(TASK, statement="other").replacing(waiting, 5 * MINUTE_US)
    assert (replaced.task_id, replaced.revision, replaced.run_us) == (TASK.task_id, 2, 0)
    assert replaced.due_us(8 * MINUTE_US) == 8 * MINUTE_US
    assert replaced.due_us(8 * MINUTE_US - 1) is None


def test_records_keep_everything() -> None:
    task = replace(TASK, conditions=(HasData("a", "c"), HasData("b")), source_ids=("s", "r"), digest=b"d", comment="é")
    for each in (
        task,
        task.begun(5, 6, "w", {"a": 3}),
        task.skipped(7, 8),
        task.requested(9, "r1").requested(9, "r2").begun(9, 9, "w", {}).failed(9, "x"),
        task.requested(9, "r1").begun(9, 9, "w", {}).done(9, 1, 2),
    ):
        assert decode_periodic_task(encode_periodic_task(each)) == each
        if each.last is not None:
            assert decode_periodic_run(encode_periodic_run(each.last)) == each.last
