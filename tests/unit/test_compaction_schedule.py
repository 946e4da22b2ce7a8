"""Cron-like entries and windows, by example; states of tasks that depend on nothing but time."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaservice.core import limits
from metaservice.core.compaction.plans import Gain
from metaservice.core.compaction.policy import Options
from metaservice.core.compaction.tasks import Task, TaskState, failed, given_back, next_task
from metaservice.core.table.model import Operation
from metaservice.core.table.schedule import is_open, is_schedule, is_windows, parse_schedule, parse_windows

NOTHING: frozenset[str] = frozenset()


def us(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("entry", "after", "expected"),
    [
        ("30 3 * * * major", "2026-11-21T03:29:59", "2026-11-21T03:30:00"),
        ("30 3 * * * major", "2026-11-21T03:30:00", "2026-11-22T03:30:00"),
        ("*/15 6-18 * * 1-5 minor", "2026-11-20T18:45:00", "2026-11-23T06:00:00"),
        ("0 0 29 2 * cluster", "2026-11-21T00:00:00", "2028-02-29T00:00:00"),
        ("0 0 1 * 1 minor", "2026-11-21T00:00:00", "2026-11-23T00:00:00"),
        ("5,10 0 * * 7 minor", "2026-11-21T00:00:00", "2026-11-22T00:05:00"),
        ("10/20 4 * * * minor", "2026-11-21T04:10:00", "2026-11-21T04:30:00"),
    ],
)
def test_an_entry_fires_next(entry: str, after: str, expected: str) -> None:
    (parsed,) = parse_schedule(entry)
    assert parsed.next_us(us(after)) == us(expected)


@pytest.mark.parametrize(
    "text",
    [
        "0 3 * * major",
        "60 3 * * * major",
        "0 3 * * * compact",
        "0 0 31 2 * major",
        "*/0 * * * * minor",
        "x * * * * minor",
    ],
)
def test_what_is_no_schedule_is_refused(text: str) -> None:
    assert not is_schedule(text)


@pytest.mark.parametrize(
    ("windows", "at", "expected"),
    [
        ("", "2026-11-21T12:00:00", True),
        ("22:00-06:00", "2026-11-21T23:00:00", True),
        ("22:00-06:00", "2026-11-21T05:59:00", True),
        ("22:00-06:00", "2026-11-21T06:00:00", False),
        ("fri 22:00-06:00", "2026-11-21T05:00:00", True),
        ("sat 22:00-06:00", "2026-11-21T05:00:00", False),
        ("sat-sun 00:00-24:00", "2026-11-22T12:00:00", True),
        ("sat-sun 00:00-24:00; 03:00-04:00", "2026-11-23T03:30:00", True),
        ("sat-sun 00:00-24:00", "2026-11-23T00:00:00", False),
    ],
)
def test_a_window_is_open(windows: str, at: str, expected: bool) -> None:
    assert is_open(parse_windows(windows), us(at)) is expected


@pytest.mark.parametrize("text", ["25:00-26:00", "06:00-06:00", "funday 01:00-02:00", "1:00-2:00", "06:00", ";"])
def test_what_is_no_window_is_refused(text: str) -> None:
    assert not is_windows(text)


@given(st.text(max_size=40), st.integers(-(2**62), 2**62))
def test_any_text_and_any_time_is_answered(text: str, now_us: int) -> None:
    for check in (is_schedule, is_windows):
        assert check(text) in (True, False)
    (entry,) = parse_schedule("0 3 * * * major")
    found = entry.next_us(now_us)
    assert found is None or found % 60_000_000 == 0
    is_open(parse_windows("22:00-06:00"), now_us)


def task(name: str = "a", **facts: object) -> Task:
    made = Task(name, "t", Operation.MINOR_COMPACT, (), "why", Gain(1, 0, 1), Options(1), 0, 0, 0)
    return replace(made, **facts)  # type: ignore[arg-type]


def test_back_off_doubles_and_an_alarm_is_raised() -> None:
    one, waits, states = task(), [], []
    for _ in range(14):
        one = failed(one, "x" * 5_000, 1_000_000, 10_000)
        waits.append((one.not_before_us - 1_000_000) // 1_000)
        states.append(one.state)
    assert waits[:3] == [10_000, 20_000, 40_000]
    assert waits[-1] == limits.TASK_BACKOFF_MS_MAX
    assert states.index(TaskState.FAILED) == limits.TASK_ATTEMPTS_ALARM - 1
    assert given_back(one).state is TaskState.FAILED
    assert len(one.error) == limits.TASK_ERROR_CHARS_MAX
    assert one.is_due(one.not_before_us)
    assert not one.is_due(one.not_before_us - 1)
    assert one.is_due(0 - limits.TASK_BACKOFF_MS_MAX * 3_000)  # the wall clock went back


def test_the_next_task_is_the_one_worth_most() -> None:
    small, large = task("b"), task("c", gain=Gain(9, 0, 1))
    urgent, closed = task("d", priority=1), task("e", priority=9, table_id="shut")
    every = [small, large, urgent, closed]

    def chosen(tasks: list[Task], shut: frozenset[str] = NOTHING, full: frozenset[str] = NOTHING) -> str:
        found = next_task(tasks, 0, frozenset(), NOTHING, shut, full)
        return found.task_id if found is not None else ""

    assert chosen(every) == "e"
    assert chosen(every, shut=frozenset({"shut"})) == "d"
    assert chosen([small, large]) == "c"
    assert chosen([small, task("a")]) == "a"
    assert chosen(every, full=frozenset({"t", "shut"})) == ""
