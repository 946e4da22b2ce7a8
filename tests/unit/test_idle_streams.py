"""When streams are ended, and how."""

from typing import Any

import pytest

from metaservice.core import quotas
from metaservice.rpc.pipeline.open_streams import DEADLINE, END_S, IDLE, LOOK_S, StreamLimits, Streams
from metaservice.rpc.pipeline.thread_pools import Lane

HOUR_S = 3_600.0


class Call:
    """As gRPC gives it to a handler."""

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Rig:
    def __init__(self, idle_s: float = 10.0, deadline_s: float = HOUR_S) -> None:
        self.ends: list[tuple[str, str]] = []
        self.streams = Streams(StreamLimits(idle_s, deadline_s), lambda lane, why: self.ends.append((lane, why)))
        self.call: Any = Call()

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / LOOK_S)):
            self.streams.look(LOOK_S)


def test_time_in_which_the_service_stood_still_makes_no_stream_idle() -> None:
    rig = Rig(deadline_s=60.0)
    stream = rig.streams.open(rig.call, Lane(quotas.PLANS, 1))
    rig.streams.look(HOUR_S)
    rig.run(5)
    assert (rig.call.cancelled, rig.ends) == (False, [])
    stream.touch()
    rig.run(9)
    assert rig.ends == []
    rig.run(2)
    assert (rig.call.cancelled, rig.ends) == (True, [(quotas.PLANS, IDLE)])


def test_a_stream_ends_at_its_deadline_whatever_comes() -> None:
    rig = Rig(deadline_s=20.0)
    stream = rig.streams.open(rig.call, Lane(quotas.PLANS, 1))
    for _ in range(21):
        rig.run(1)
        stream.touch()
    assert rig.ends == [(quotas.PLANS, DEADLINE)]


@pytest.mark.parametrize("lane", [quotas.SESSIONS, quotas.WATCHERS])
def test_a_stream_that_does_not_wait_yet_is_told_to_end_and_not_cut_off(lane: str) -> None:
    """It looks at `over` before it waits; only where it doesn't end by itself it is cancelled."""
    rig = Rig()
    stream = rig.streams.open(rig.call, Lane(lane, 1))
    rig.run(11)
    assert (stream.over, rig.call.cancelled) == (IDLE, False)
    rung: list[bool] = []
    stream.ring = lambda: rung.append(True)
    rig.run(1)
    assert (bool(rung), rig.call.cancelled) == (True, False)
    rig.run(END_S)
    assert (rig.call.cancelled, rig.ends) == (True, [(lane, IDLE)])


def test_a_watch_whose_request_does_not_come_is_cut_off_at_once() -> None:
    """It waits inside of gRPC, where it hears nothing."""
    rig = Rig()

    def requests() -> Any:
        rig.run(11)
        assert rig.call.cancelled
        yield b"late"

    assert rig.streams.first(requests(), rig.call, Lane(quotas.WATCHERS, 1)) == b"late"


def test_what_waits_for_events_is_woken_when_the_service_stops() -> None:
    """A session would see it up to a second later, and a stop would wait for it."""
    rig = Rig()
    rung: list[int] = []
    rig.streams.open(rig.call, Lane(quotas.SESSIONS, 1)).ring = lambda: rung.append(1)
    rig.streams.open(Call(), Lane(quotas.PLANS, 1))  # type: ignore[arg-type]
    rig.streams.ring()
    assert rung == [1]
