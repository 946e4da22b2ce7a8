"""One pair: a statement waits at a boundary while another runs whole. What became of it, and whether that is right."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from laketx import Lake
from tests.races.doors import ADAPTIVE, Door, Policy, is_conflict, make_table
from tests.races.gate import WAIT_S, Boundary, Gate
from tests.races.outcomes import COMPACTIONS, PROFILES, Expected, Meeting
from tests.races.statements import BASE, TARGETS, Rows, Statement, statements

_numbers = itertools.count()


@dataclass(frozen=True)
class Pair:
    """Two statements that meet. The earlier one commits first."""

    door: str
    boundary: Boundary
    profile: str
    keyed: bool
    place: str  # how their targets lie to each other
    later: Statement
    earlier: Statement
    policy: Policy = "fail"
    adaptive: bool = True
    inlined: bool = True  # the rows that are there are in the service

    def __str__(self) -> str:
        kind = "keyed" if self.keyed else "append"
        return (
            f"{self.door}: {self.later.name} waits at {self.boundary.value} for {self.earlier.name}; {self.place}, "
            f"{self.profile}, {kind}, {self.policy}{'' if self.adaptive else ', not adaptive'}"
            f"{', inlined' if self.inlined else ''}"
        )


@dataclass(frozen=True)
class Result:
    """What became of a pair; no wrong sentence: all is as promised."""

    pair: Pair
    outcome: str
    wrong_outcome: str = ""
    wrong_rows: str = ""
    was_reached: bool = True

    @property
    def is_right(self) -> bool:
        return not self.wrong_outcome and not self.wrong_rows

    def __str__(self) -> str:
        return f"{self.pair}\n    {self.outcome}; {' '.join(filter(None, [self.wrong_outcome, self.wrong_rows]))}"


class Course:
    """A gate, the doors behind it, and those that lead past it."""

    def __init__(
        self,
        gate: Gate,
        lake: Lake,
        held: Sequence[Door],
        free: Sequence[Door],
        session: SparkSession | None = None,
    ) -> None:
        """`lake` makes and reads tables, past the gate; `session` is that of the statements that wait."""
        self._session = session
        self._gate = gate
        self._lake = lake
        self._held = {door.name: door for door in held}
        self._free = list(free)

    def pairs(self) -> Iterator[Pair]:
        """All of them; an earlier statement that changes nothing is left out."""
        for door in self._held.values():
            for profile, keyed, (place, targets) in itertools.product(PROFILES, (False, True), TARGETS.items()):
                later, earlier = (
                    [one for one in statements(target) if any(way.does(one, keyed=keyed) for way in ways)]
                    for target, ways in zip(targets, ([door], self._free), strict=True)
                )
                changing = [one for one in earlier if not one.meaning(BASE).is_nothing]
                for first, second, boundary in itertools.product(later, changing, door.boundaries):
                    yield Pair(door.name, boundary, profile, keyed, place, first, second)

    def play(self, pair: Pair) -> Result:
        if self._session is not None:
            self._session.conf.set(ADAPTIVE, str(pair.adaptive).lower())
        name = f"races.t{next(_numbers)}"
        make_table(self._lake, name, pair.profile, keyed=pair.keyed, inlined=pair.inlined)
        door = self._held[pair.door]
        door.know(name)
        failed: list[Exception] = []

        def work() -> None:
            try:
                door.run(pair.later, name, pair.policy)
            except Exception as error:  # noqa: BLE001 - it is looked at below
                failed.append(error)

        thread = threading.Thread(target=work, name=str(pair.later.name))
        hold = self._gate.hold(pair.boundary)
        thread.start()
        try:
            while thread.is_alive() and not hold.reached.wait(0.005):
                pass
            was_reached = hold.reached.is_set()
            free = next(door for door in self._free if door.does(pair.earlier, keyed=pair.keyed))
            if was_reached:
                free.run(pair.earlier, name, "fail")
        finally:
            self._gate.open()
            thread.join(WAIT_S)
        assert not thread.is_alive(), pair
        rows = _rows(self._lake, name)
        if not was_reached:
            return _judge_alone(pair, failed, rows)
        return _judge(pair, door, failed, rows)


def _rows(lake: Lake, name: str) -> Rows:
    return tuple(sorted((row["id"], row["day"], row["n"]) for row in lake.table(name).to_arrow().to_pylist()))


def _judge_alone(pair: Pair, failed: Sequence[Exception], rows: Rows) -> Result:
    """The boundary is none of this statement's: it ran alone."""
    alone = pair.later.meaning(tuple(sorted(BASE))).apply(BASE, keyed=pair.keyed)
    wrong = "" if rows == alone else f"alone it leaves {rows}, not {alone}"
    outcome = f"failed alone: {_short(failed[0])}" if failed else "alone"
    return Result(pair, outcome, outcome if failed else "", wrong, was_reached=False)


def _judge(pair: Pair, door: Door, failed: Sequence[Exception], rows: Rows) -> Result:
    says_keys = pair.keyed and pair.profile == "row_level"  # which one call can't
    meeting = Meeting(
        pair.profile,
        pair.keyed,
        pair.later,
        pair.earlier,
        is_one_call=door.is_one_call and pair.inlined and not says_keys,
    )
    if failed and not is_conflict(failed[0], pair.earlier):
        return Result(pair, "failed", f"it failed: {_short(failed[0])}")
    expected = _expected(pair, door, meeting)
    if failed:
        outcome, promised = Expected.CONFLICTS, {meeting.after_earlier}
    else:
        outcome, promised = Expected.COMMITS, meeting.promised
    wrong_outcome = "" if expected in (Expected.EITHER, outcome) else f"the docs say: {expected.value}."
    wrong_rows = "" if rows in promised else f"rows {rows} are none of {sorted(promised)}"
    return Result(pair, outcome.value, wrong_outcome, wrong_rows)


def _expected(pair: Pair, door: Door, meeting: Meeting) -> Expected:
    if not door.says_outcome:
        return Expected.EITHER
    fixes_its_version = pair.later.kind not in COMPACTIONS or pair.boundary in (Boundary.REGISTER, Boundary.COMMIT)
    if not fixes_its_version:
        return Expected.EITHER  # a compaction begins with the version that it compacts
    if pair.boundary is Boundary.ANALYSIS and door.looks_again:
        return Expected.EITHER
    if pair.policy == "rerun" and door.reruns(pair.later):
        return Expected.COMMITS
    return meeting.expected


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:300]}"


def sampled(pairs: Sequence[Pair], seed: int, count: int) -> list[Pair]:
    """A part of them, each with a policy and with adaptive execution on or off by chance."""
    chance = random.Random(seed)
    found = list(pairs) if count >= len(pairs) else chance.sample(list(pairs), count)
    return [_by_chance(pair, chance) for pair in found]


def _by_chance(pair: Pair, chance: random.Random) -> Pair:
    policy: Policy = "rerun" if chance.random() < 0.2 else "fail"
    adaptive, inlined = chance.random() < 0.7, chance.random() < 0.5
    return Pair(**{**vars(pair), "policy": policy, "adaptive": adaptive, "inlined": inlined})
