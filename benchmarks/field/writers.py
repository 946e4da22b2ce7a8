"""Writers of one table for a while, all beginning at once, and the count of what they were told and what is there."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Final, Literal

import numpy as np
import pyarrow as pa

from benchmarks.arrow_data import rows
from benchmarks.field.system import Place, System, open_system
from benchmarks.peers.port import Refused
from benchmarks.together import run_together, wait_for_all

Work = Literal["commits", "counters"]
ROWS_A_COMMIT: Final = 10
ROWS_A_WRITER: Final = 1_000_000_000
COUNTERS: Final = 4  # rows that the writers meet at
TRIES: Final = 200  # of a commit that is refused again and again


@dataclass
class Tally:
    """What one writer was told."""

    acknowledged: int = 0
    within: int = 0  # acknowledged in the window
    refused: int = 0
    given_up: int = 0
    reasons: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Written:
    """What writers did together; `lost` and `doubled` are of the commits that were acknowledged."""

    per_s: float
    acknowledged: int
    lost: int
    doubled: int
    refused: int
    given_up: int
    reasons: dict[str, int]

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def write(
    place: Place, system: System, table: str, work: Work, writers: int, warm_up_s: float, window_s: float
) -> Written:
    """Have the writers commit until the window is over; the table is new."""
    system.create(table, work)
    if work == "counters":
        system.append(table, pa.table({"id": range(COUNTERS), "v": [0] * COUNTERS}))
    if system.writers == "threads":
        clients = [system.beside() for _ in range(writers)]
        run = partial(_write_until, clients, table, work, warm_up_s, window_s)
    else:
        run = partial(_write_until, place, table, work, warm_up_s, window_s)
    tallies = run_together(run, writers, system.writers)
    lost, doubled = (_check_commits if work == "commits" else _check_counters)(system, table, tallies)
    return Written(
        sum(tally.within for tally in tallies) / window_s,
        sum(tally.acknowledged for tally in tallies),
        lost,
        doubled,
        sum(tally.refused for tally in tallies),
        sum(tally.given_up for tally in tallies),
        dict(sum((tally.reasons for tally in tallies), Counter[str]())),
    )


def _write_until(
    clients: Place | list[System], table: str, work: Work, warm_up_s: float, window_s: float, writer: int
) -> Tally:
    system = open_system(clients) if isinstance(clients, Place) else clients[writer]
    commit = _appends(system, table, writer) if work == "commits" else _increments(system, table, writer)
    tally = Tally()
    tally.acknowledged += _commit(partial(commit, 0), float("inf"), tally)  # with what a process imports when it begins
    wait_for_all()
    window_start = time.monotonic() + warm_up_s
    window_end = window_start + window_s
    while time.monotonic() < window_end:
        if _commit(partial(commit, tally.acknowledged), window_end, tally):
            tally.acknowledged += 1
            tally.within += window_start <= time.monotonic() < window_end
        else:
            tally.given_up += 1
            break  # the number of its commit stays its own
    return tally


def _commit(commit: Callable[[], None], window_end: float, tally: Tally) -> bool:
    """Submit until it is acknowledged, or the window is over."""
    for _ in range(TRIES):
        try:
            commit()
        except Refused as refusal:
            tally.refused += 1
            tally.reasons[refusal.reason] += 1
            if time.monotonic() >= window_end:
                return False
        else:
            return True
    return False


def first_id(writer: int, number: int) -> int:
    """Of the rows of a writer's commit."""
    return writer * ROWS_A_WRITER + number * ROWS_A_COMMIT


def _appends(system: System, table: str, writer: int) -> Callable[[int], None]:
    """Each commit has rows of its own, so that one that is lost or doubled shows."""
    batch = pa.Table.from_batches([rows(np.arange(ROWS_A_COMMIT))])

    def append(number: int) -> None:
        begin = first_id(writer, number)
        system.append(table, batch.set_column(0, "id", pa.array(range(begin, begin + ROWS_A_COMMIT), pa.int64())))

    return append


def _increments(system: System, table: str, writer: int) -> Callable[[int], None]:
    return lambda number: system.increment(table, (writer + number) % COUNTERS)


def _check_commits(system: System, table: str, tallies: list[Tally]) -> tuple[int, int]:
    """Count commits that are not there whole, and those that are there more often than they were acknowledged."""
    ids, times = np.unique(system.read(table, ["id"]).column("id").to_numpy(), return_counts=True)
    there = Counter(dict(zip(ids.tolist(), times.tolist(), strict=True)))
    acknowledged = [
        first_id(writer, number) for writer, tally in enumerate(tallies) for number in range(tally.acknowledged)
    ]
    lost = sum(any(there[begin + at] == 0 for at in range(ROWS_A_COMMIT)) for begin in acknowledged)
    surplus = there - Counter({begin + at: 1 for begin in acknowledged for at in range(ROWS_A_COMMIT)})
    return lost, len({row_id // ROWS_A_COMMIT for row_id in surplus})


def _check_counters(system: System, table: str, tallies: list[Tally]) -> tuple[int, int]:
    read = system.read(table)
    assert sorted(read.column("id").to_pylist()) == list(range(COUNTERS))
    surplus = sum(read.column("v").to_pylist()) - sum(tally.acknowledged for tally in tallies)
    return max(0, -surplus), max(0, surplus)
