"""Times without a zone: of the session where there is one, refused where there is none."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from worker.base.errors import InputError
from worker.base.values import moment_of, wire_value

BERLIN = ZoneInfo("Europe/Berlin")
FIRST, AGAIN = datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
CLOCK = datetime.fromisoformat("2026-10-25 02:30:00")


def instant(value: object, zone: ZoneInfo | None = BERLIN) -> datetime:
    return moment_of(wire_value(value, "timestamp", zone).timestamp_us)


def test_a_time_without_a_zone_is_one_of_the_session() -> None:
    assert instant("2026-11-22 10:00:00", ZoneInfo("America/New_York")) == datetime(2026, 11, 22, 15, tzinfo=UTC)
    assert instant(datetime.fromisoformat("2026-07-01")) == datetime(2026, 6, 30, 22, tzinfo=UTC)


def test_of_the_hour_that_comes_twice_the_first_is_meant_unless_it_is_said() -> None:
    assert [instant(CLOCK), instant(str(CLOCK)), instant(CLOCK.replace(fold=1))] == [FIRST, FIRST, AGAIN]
    assert [instant(f"{CLOCK}+0{hours}:00") for hours in (2, 1)] == [FIRST, AGAIN]
    assert [instant(moment.astimezone(BERLIN)) for moment in (FIRST, AGAIN)] == [FIRST, AGAIN]


def test_without_a_session_a_time_says_its_zone() -> None:
    assert instant("2026-10-25T00:30:00Z", None) == FIRST
    with pytest.raises(InputError, match="it has no time zone"):
        instant(CLOCK, None)


def test_a_timestamp_without_a_zone_is_what_its_clock_shows() -> None:
    for zone in (None, BERLIN):
        assert moment_of(wire_value(CLOCK, "timestamp_ntz", zone).timestamp_us) == CLOCK.replace(tzinfo=UTC)
    with pytest.raises(InputError, match="it takes no time zone"):
        wire_value(FIRST, "timestamp_ntz", BERLIN)
