"""Three hundred histories hold; a history is the same each time."""

import pytest

from tests.simulation.history import run_history

CHUNK = 30


@pytest.mark.parametrize("first", range(0, 300, CHUNK))
def test_every_promise_holds_in_seeded_histories(first: int) -> None:
    for seed in range(first, first + CHUNK):
        counts = run_history(seed)
        assert counts["commits"] > 2, seed


def test_a_seed_gives_the_same_history_each_time() -> None:
    assert run_history(7) == run_history(7)
