"""Seeded histories hold, thirty in the quick run and three hundred in all; a history is the same each time."""

import pytest

from metaservice.core import limits
from tests.simulation.history import run_history
from tests.simulation.slate_memory import SlateMemory

CHUNK = 30


@pytest.mark.parametrize("first", [0, *(pytest.param(one, marks=pytest.mark.long) for one in range(CHUNK, 300, CHUNK))])
def test_every_promise_holds_in_seeded_histories(first: int) -> None:
    for seed in range(first, first + CHUNK):
        counts = run_history(seed)
        assert counts["commits"] > 2, seed


QUICK, MANY, BRANCHES = 15, 100, 2


@pytest.mark.parametrize(
    ("first", "count"),
    [(0, QUICK), *(pytest.param(first, MANY, marks=pytest.mark.long) for first in range(QUICK, 5_000, MANY))],
)
def test_every_promise_holds_on_branches_and_through_merges(first: int, count: int) -> None:
    merges = sum(run_history(seed, branches=BRANCHES)["merges"] for seed in range(first, first + count))
    assert merges > count


@pytest.mark.parametrize(
    ("first", "count"), [(0, 6), *(pytest.param(first, 100, marks=pytest.mark.long) for first in range(6, 500, 100))]
)
def test_every_promise_holds_while_merges_change_their_tables(
    monkeypatch: pytest.MonkeyPatch, first: int, count: int
) -> None:
    """One commit or fork in each group, with others' commits between."""
    monkeypatch.setattr(limits, "MERGE_WRITTEN", 1)
    merges = sum(run_history(seed, branches=BRANCHES)["merges"] for seed in range(first, first + count))
    assert merges > count // 2


def test_a_seed_gives_the_same_history_each_time() -> None:
    assert run_history(7, branches=BRANCHES) == run_history(7, branches=BRANCHES)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 60))])
def test_a_store_on_object_storage_gives_the_same_history(seed: int) -> None:
    assert run_history(seed, make_store=SlateMemory) == run_history(seed)
