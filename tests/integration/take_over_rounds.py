"""Rounds in which the leader ends, stands still, or can't be reached, on several pairs of processes at a time."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from metaservice.client import MetaClient
from tests.integration.broken_network import Network, Way
from tests.integration.bucket import BUCKET, bucket, known_to
from tests.integration.high_availability import (
    LEADS_NO_MORE,
    Load,
    Pair,
    Process,
    check_history,
    create_table,
    list_committed,
    running,
)

KILL, STOP, PAUSE, STEP_DOWN = "kill", "stop", "pause", "step down"
CUT, UNREACHABLE, SLOW, BUSY, LOSSY = "cut off", "unreachable", "slow", "busy", "lossy"
MIX: Final = {KILL: 5, PAUSE: 4, CUT: 4, LOSSY: 2, BUSY: 1, SLOW: 1, UNREACHABLE: 1, STOP: 1, STEP_DOWN: 1}  # of twenty
BROKEN_S: Final = 2.5  # less than a lease is valid
SLOW_S: Final = 0.1  # each way


def play_round(both: Pair, load: Load, what: str) -> float:
    """How long no commit was answered. Both processes run afterwards."""
    for each in both.processes:
        each.revive()
    leader = both.leader()
    load.wait_for_more()
    begun_s = time.monotonic()
    if what in (SLOW, BUSY, LOSSY, UNREACHABLE):
        break_way(leader, what)
    else:
        end_leading(both, load, leader, what)
    load.wait_for_more()
    return load.longest_gap_s(begun_s)


def end_leading(both: Pair, load: Load, leader: Process, what: str) -> None:
    match what:
        case "kill":
            leader.send(signal.SIGKILL)
        case "stop":
            leader.send(signal.SIGTERM)
        case "pause":
            leader.send(signal.SIGSTOP)
        case "cut off":
            to_bucket(leader).is_cut = True
        case _:
            with MetaClient(both.address) as client:
                client.step_down()
    if what in (PAUSE, CUT):
        load.wait_for_more()
        assert both.leader() is both.other(leader)
        if what == PAUSE:
            leader.send(signal.SIGCONT)
        else:
            to_bucket(leader).mend()
    expected = {KILL: -signal.SIGKILL, STOP: 0}.get(what, LEADS_NO_MORE)
    assert leader.wait() == expected, leader.said()[-2000:]
    load.wait_for_more()
    leader.start()


def break_way(leader: Process, what: str) -> None:
    """For a while; whether the leader goes on to lead is open."""
    way = to_bucket(leader)
    match what:
        case "slow":
            way.delay_s = SLOW_S
        case "busy":
            way.is_busy = True
        case "lossy":
            way.loses = True
        case _:
            assert leader.to_clients is not None
            way = leader.to_clients
            way.is_cut = True
    time.sleep(BROKEN_S)
    way.mend()


def to_bucket(leader: Process) -> Way:
    assert leader.to_bucket is not None
    return leader.to_bucket


@dataclass(frozen=True, slots=True)
class Played:
    """A round, and for how long commits waited."""

    what: str
    waited_s: float


def play_rounds(both: Pair, rounds: Sequence[str], load: Load, writers: int) -> list[Played]:
    """Checks what was answered."""
    load.start(writers, readers=1)
    try:
        played = [Played(what, play_round(both, load, what)) for what in rounds]
    finally:
        load.stop()
    check_history(load, list_committed(both.leader().address, load.table_id))
    print(f"{len(load.appends)} appends, {len(load.unknown)} unknown, {len(load.readings)} readings; {played}")
    return played


def deal(seed: int, rounds: int) -> list[str]:
    """What happens in so many rounds, each thing once before any is there again; in an order of its own."""
    mix = [*MIX, *(what for what, count in MIX.items() for _ in range(count - 1))]
    dealt = (mix * (rounds // len(mix) + 1))[:rounds]
    random.Random(seed).shuffle(dealt)
    return dealt


def play_everywhere(folder: Path, dealt: Sequence[str], pairs: int, writers: int) -> list[Played]:
    """These rounds on pairs of processes that share a bucket, each pair a store."""
    with bucket(folder) as variables, ThreadPoolExecutor(pairs) as pool:
        network = Network()

        def play(number: int) -> list[Played]:
            mine = folder / f"pair-{number}"
            mine.mkdir()
            store = f"s3://{BUCKET}/{number}/meta"
            known = known_to(variables)
            two = [Process(mine, name, known, network, store) for name in ("one", "two")]
            with running(Pair(two, known)) as both:
                return play_rounds(both, dealt[number::pairs], Load(both.address, create_table(both)), writers)

        try:
            played = [one for each in pool.map(play, range(pairs)) for one in each]
        finally:
            network.close()
    assert Counter(one.what for one in played) == Counter(dealt)
    return played
