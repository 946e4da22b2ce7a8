"""When table services run: cron-like entries, and time windows. Always UTC.

    compaction.schedule    30 3 * * * major; */15 6-18 * * 1-5 minor
    compaction.windows     22:00-06:00; sat-sun 00:00-24:00

A window that ends before it begins passes midnight and belongs to the day on which it begins. An entry that was missed
fires once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
WORK: Final = ("minor", "major", "cluster")
ENTRIES_MAX: Final = 20
DAYS_AHEAD_MAX: Final = 8 * 366  # the 29th of February comes round within it
DAY_MINUTES: Final = 24 * 60
MINUTE_US: Final = 60_000_000
_BOUNDS: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_STEP: Final = re.compile(r"(?:\*|(\d{1,2})(?:-(\d{1,2}))?)(?:/(\d{1,2}))?\Z")
_WINDOW: Final = re.compile(r"(?:([a-z]{3})(?:-([a-z]{3}))? +)?(\d\d):(\d\d)-(\d\d):(\d\d)\Z")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ScheduleEntry:
    """What is due at which times; `weekdays` counts from Sunday. None: any day."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    month_days: frozenset[int] | None
    months: frozenset[int]
    weekdays: frozenset[int] | None
    work: str

    def next_us(self, after_us: int) -> int | None:
        """Return the schedule's first time after a time; None if there is none."""
        start = _at(after_us) + timedelta(minutes=1)
        start = start.replace(second=0, microsecond=0)
        day = start.replace(hour=0, minute=0)
        for _ in range(DAYS_AHEAD_MAX):
            if self._is_on(day):
                for hour in self.hours:
                    for minute in self.minutes:
                        time = day.replace(hour=hour, minute=minute)
                        if time >= start:
                            return (time - _EPOCH) // timedelta(microseconds=1)
            day += timedelta(days=1)
        return None

    def _is_on(self, day: datetime) -> bool:
        if day.month not in self.months:
            return False
        by_month = self.month_days is None or day.day in self.month_days
        by_week = self.weekdays is None or day.isoweekday() % 7 in self.weekdays
        either = self.month_days is not None and self.weekdays is not None  # as cron has it
        return by_month or by_week if either else by_month and by_week


@dataclass(frozen=True, slots=True)
class Window:
    """Minutes of the day, on days counted from Monday."""

    days: frozenset[int]
    start: int
    end: int

    def holds(self, weekday: int, minute: int) -> bool:
        if self.start < self.end:
            return weekday in self.days and self.start <= minute < self.end
        if minute >= self.start:
            return weekday in self.days
        return minute < self.end and (weekday - 1) % 7 in self.days


def parse_schedule(text: str) -> tuple[ScheduleEntry, ...]:
    """Raises ValueError if the text is invalid."""
    return tuple(_entry(part.split()) for part in _parts(text))


def parse_cron(text: str) -> ScheduleEntry:
    """The entry of five time fields alone. Raises ValueError if the text is invalid."""
    return _entry([*text.split(), WORK[0]])


def parse_windows(text: str) -> tuple[Window, ...]:
    """Raises ValueError if the text is invalid. Without a window it is always open."""
    return tuple(_window(part) for part in _parts(text))


def is_open(windows: tuple[Window, ...], now_us: int) -> bool:
    now = _at(now_us)
    minute = now.hour * 60 + now.minute
    return not windows or any(window.holds(now.weekday(), minute) for window in windows)


def is_schedule(text: str) -> bool:
    return _parses(parse_schedule, text)


def is_windows(text: str) -> bool:
    return _parses(parse_windows, text)


def _parses(parse: object, text: str) -> bool:
    try:
        parse(text)  # type: ignore[operator]
    except ValueError:
        return False
    return True


def _parts(text: str) -> list[str]:
    parts = [part.strip() for part in text.split(";")] if text.strip() else []
    if len(parts) > ENTRIES_MAX:
        raise ValueError("too many entries")
    return parts


def _entry(words: list[str]) -> ScheduleEntry:
    if len(words) != len(_BOUNDS) + 1 or words[-1] not in WORK:
        raise ValueError("an entry needs five time fields and an operation")
    minutes, hours, month_days, months, weekdays = (
        _numbers(word, low, high) for word, (low, high) in zip(words, _BOUNDS, strict=False)
    )
    entry = ScheduleEntry(
        tuple(sorted(minutes)),
        tuple(sorted(hours)),
        None if words[2] == "*" else month_days,
        months,
        None if words[4] == "*" else frozenset(day % 7 for day in weekdays),
        words[-1],
    )
    if entry.next_us(0) is None:
        raise ValueError("it never fires")
    return entry


def _numbers(word: str, low: int, high: int) -> frozenset[int]:
    numbers: set[int] = set()
    for part in word.split(","):
        match = _STEP.match(part)
        if match is None:
            raise ValueError(f"`{part}` is no number, range or step")
        first, last, step = match.groups()
        start = low if first is None else int(first)
        end = high if first is None or (step and not last) else int(last or first)
        if not low <= start <= end <= high or step == "0" or (step and not int(step)):
            raise ValueError(f"`{part}` lies outside {low} to {high}")
        numbers.update(range(start, end + 1, int(step or 1)))
    return frozenset(numbers)


def _window(text: str) -> Window:
    match = _WINDOW.match(text)
    if match is None:
        raise ValueError("a window has the form HH:MM-HH:MM, optionally after a day or days")
    first, last, *clock = match.groups()
    start, end = int(clock[0]) * 60 + int(clock[1]), int(clock[2]) * 60 + int(clock[3])
    if max(int(clock[1]), int(clock[3])) > 59 or start >= DAY_MINUTES or end > DAY_MINUTES or start == end:
        raise ValueError("not a time of the day")
    if first is None:
        return Window(frozenset(range(7)), start, end)
    if first not in DAYS or (last or first) not in DAYS:
        raise ValueError("not a day of the week")
    begin, count = DAYS.index(first), (DAYS.index(last or first) - DAYS.index(first)) % 7 + 1
    return Window(frozenset((begin + step) % 7 for step in range(count)), start, end)


def _at(time_us: int) -> datetime:
    """The time; times outside the calendar count as its ends."""
    bounded = min(max(time_us, 0), 250_000_000_000_000_000)
    return _EPOCH + timedelta(microseconds=bounded)
