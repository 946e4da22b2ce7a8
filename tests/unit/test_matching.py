"""Which partitions reads touch: compiled and by name, beside plain three-valued logic; and what asking costs."""

import random
from dataclasses import replace

import pytest

from metaservice.core import limits
from metaservice.core.commit.judge import Judging, judge
from metaservice.core.commit.judged_change import JudgedChange
from metaservice.core.commit.matching import PartitionReads, Paused, Work, compiled, named_partitions
from metaservice.core.errors import MetaError
from metaservice.core.table.meta import Profile
from metaservice.core.table.model import Change, Conflict, Footprint, Operation, Read
from metaservice.core.table.partitions import Partitioning
from metaservice.core.table.predicates import (
    AllOf,
    AnyOf,
    Compare,
    InList,
    IsNull,
    Literal,
    Not,
    Predicate,
    StartsWith,
    truth,
)
from tests.unit.footprints import APPEND, KEYED, PLACES, Empty, footprint

TWO_COLUMNS = Partitioning((("a", "int"), ("b", "string")))
ROWS = [{"a": a, "b": b} for a in (None, 0, 1, 2) for b in (None, "", "x", "xy")]


def condition(rng: random.Random, depth: int = 0) -> Predicate:
    kind = rng.randrange(8 if depth < 3 else 5)
    number, word = rng.choice([None, 0, 1, 2]), rng.choice([None, "", "x", "xy"])
    match kind:
        case 0:
            return Compare("a", rng.choice(["=", "=", "<", ">=", "<>"]), number)
        case 1:
            return Compare("b", rng.choice(["=", "=", "<", ">"]), word)
        case 2:
            return InList("a", tuple(rng.choices([None, 0, 1, 2], k=2)))
        case 3:
            tests: list[Predicate] = [IsNull("a"), IsNull("b"), StartsWith("b", "x")]
            return rng.choice(tests)
        case 4:
            others: list[Predicate] = [Literal(True), Literal(False), InList("b", ("x", "xy"))]
            return rng.choice(others)
        case 5:
            return Not(condition(rng, depth + 1))
        case _:
            operands = tuple(condition(rng, depth + 1) for _ in range(rng.randrange(1, 4)))
            return AllOf(operands) if kind == 6 else AnyOf(operands)


def naming(rng: random.Random) -> Predicate:
    """Mostly one that names partitions."""
    fixed: list[Predicate] = [Compare("a", "=", rng.randrange(3)), InList("a", (0, 2)), IsNull("a")]
    cases = tuple(AllOf((rng.choice(fixed), condition(rng, 4))) for _ in range(rng.randrange(1, 4)))
    return cases[0] if len(cases) == 1 else AnyOf(cases)


def test_reads_touch_the_partitions_where_their_condition_is_true() -> None:
    rng = random.Random(5)
    named = 0
    for number in range(3_000):
        one = condition(rng) if number % 3 else naming(rng)
        answer, _ = compiled(one)
        assert [answer(row) for row in ROWS] == [truth(one, row) for row in ROWS], one
        reads = PartitionReads([Read(one)], TWO_COLUMNS, Work())
        expected = {TWO_COLUMNS.encode(row) for row in ROWS if truth(one, row) is True}
        assert {key for row in ROWS if reads.touches(key := TWO_COLUMNS.encode(row))} == expected, one
        names = named_partitions(one, TWO_COLUMNS)
        if names is not None:
            assert names == expected, one
            named += 1
    assert named > 50


def test_a_condition_that_names_its_partitions_costs_nothing_to_ask() -> None:
    days = Partitioning((("day", "int"),))
    many = AnyOf(tuple(Compare("day", "=", day) for day in range(5_000)))
    for one in (many, InList("day", tuple(range(5_000))), AllOf((Compare("day", "=", 7),))):
        reads = PartitionReads([Read(one)], days, Work(turn=0))
        assert reads.cost == 0
        assert reads.touches("day=7")
        assert not reads.touches("day=9999")


def test_a_costly_condition_is_refused_with_a_way_out() -> None:
    days = Partitioning((("day", "int"),))
    many = AnyOf(tuple(Compare("day", "<", -day) for day in range(5_000)))
    reads = PartitionReads([Read(many)], days, Work(most=1_000_000))
    with pytest.raises(MetaError, match="name the partitions") as caught:
        sum(reads.touches(f"day={day}") for day in range(1_000))
    assert caught.value.reason == "PREDICATE_TOO_COSTLY"
    assert set(caught.value.facts) == {"comparisons", "most"}


def test_a_column_that_was_renamed_may_match_anywhere() -> None:
    assert PartitionReads([Read(Compare("gone", "=", 1))], TWO_COLUMNS, Work()).touches("a=1/b=x")


def in_turns(mine: JudgedChange, winners: list[Footprint], rng: random.Random) -> tuple[Conflict | None, int]:
    """The answer, and how many turns it took."""
    judging, turns = Judging(mine), 0
    while True:
        mine.work.begin_turn(rng.choice([1, 5, 40]))
        turns += 1
        assert turns < 1_000
        try:
            for winner in winners:
                if winner.version > judging.met:
                    conflict = judging.meet(winner)
                    if conflict is not None:
                        return conflict, turns
            return judging.end(), turns
        except Paused:
            continue


def test_judging_in_turns_answers_as_judging_at_once() -> None:
    rng = random.Random(11)
    conflicts = most = 0
    for _ in range(3_000):
        meta = replace(rng.choice([APPEND, KEYED]), profile=rng.choice(list(Profile)))
        winners = [footprint(rng, version) for version in range(2, 2 + rng.randrange(12))]
        for one in winners:
            one.partitions = frozenset(rng.sample(PLACES, rng.randrange(3)))
        test = Compare("p", rng.choice(["<", ">", "=", "<>"]), rng.randrange(4))
        conditions: list[Predicate] = [test, Not(test)]
        reads = tuple(Read(rng.choice(conditions), None, rng.random() < 0.5) for _ in range(rng.randrange(3)))
        operation = rng.choice([Operation.INSERT, Operation.DELETE, Operation.UPDATE, Operation.MINOR_COMPACT])
        change = Change("t", operation, 1, reads)
        expected = judge(change, meta, winners, Empty())
        found, turns = in_turns(JudgedChange(change, meta, Empty()), winners, rng)
        assert found == expected
        conflicts += expected is not None
        most = max(most, turns)
    assert conflicts > 500
    assert most > 5
    assert limits.JUDGE_TURN_MIN > 0
