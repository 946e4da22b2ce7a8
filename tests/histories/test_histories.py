"""Concurrent clients, a service that is killed: what they were told is what each profile promises.

The long tests play the same across take-overs. Of these the quick run has the appends alone:
tests/integration/test_high_availability.py.
"""

import random
import signal
from pathlib import Path

import pytest

from tests.histories.checker import violations
from tests.histories.recorder import PROFILES, World, record, record_on
from tests.integration.high_availability import LEADS_NO_MORE, Pair, pair


def test_what_concurrent_clients_were_told_holds(tmp_path: Path) -> None:
    check(record(tmp_path, seed=1, transactions=40, kills=1))


@pytest.mark.long
def test_what_concurrent_clients_were_told_holds_across_take_overs(tmp_path: Path) -> None:
    """A leader that is killed, and one that stands still until another leads."""
    with pair(tmp_path) as both:
        breaks = [lambda: kill(both), lambda: stand_still(both)]
        check(record_on(both.address, breaks, seed=2, transactions=40))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 14))
def test_what_concurrent_clients_were_told_holds_across_many_take_overs(tmp_path: Path, seed: int) -> None:
    with pair(tmp_path) as both:
        ways = random.Random(seed).choices((kill, stand_still), k=8)
        check(record_on(both.address, [lambda way=way: way(both) for way in ways], seed=seed, transactions=120))  # type: ignore[misc]


def check(world: World) -> None:
    assert [one for history in world.histories.values() for one in violations(history)] == []
    assert min(world.ended[what] for what in ("committed", "lost", "appended")) > 0
    assert [len(world.histories[profile].txns) > 20 for profile in PROFILES] == [True] * 4


def kill(both: Pair) -> None:
    leader = both.leader()
    leader.send(signal.SIGKILL)
    leader.wait()
    leader.start()


def stand_still(both: Pair) -> None:
    leader = both.leader()
    leader.send(signal.SIGSTOP)
    assert both.leader() is both.other(leader)
    leader.send(signal.SIGCONT)
    assert leader.wait() == LEADS_NO_MORE
    leader.start()
