"""Several servers on one bucket: whatever breaks, nothing that was answered is lost, twice or stale."""

import pytest

from tests.simulation.take_overs import run_take_overs

CHUNK = 3


@pytest.mark.parametrize("first", [0, *(pytest.param(one, marks=pytest.mark.long) for one in range(CHUNK, 30, CHUNK))])
def test_every_promise_holds_across_take_overs(first: int) -> None:
    for seed in range(first, first + CHUNK):
        counts = run_take_overs(seed)
        assert counts["commits"] > 2, seed
        assert counts["openings"] > 1, seed


@pytest.mark.long
@pytest.mark.parametrize("first", range(1_000, 1_600, 30))
def test_every_promise_holds_across_many_take_overs(first: int) -> None:
    for seed in range(first, first + 30):
        assert run_take_overs(seed)["commits"] > 2, seed


@pytest.mark.long
def test_a_seed_gives_the_same_take_overs_each_time() -> None:
    assert run_take_overs(7) == run_take_overs(7)
