"""Work of two trees in turns: its order, where the median of its ratios lies, and what is said of it."""

from __future__ import annotations

import pytest

from benchmarks.turns import median_interval, paired, verdict


def test_every_second_pair_goes_the_other_way_round() -> None:
    assert paired(("base", "ours"), 3) == ["base", "ours", "ours", "base", "base", "ours"]


@pytest.mark.parametrize(
    ("count", "interval"),
    [(1, (1, 1)), (5, (1, 5)), (6, (1, 6)), (9, (2, 8)), (20, (6, 15)), (40, (14, 27)), (100, (40, 61))],
)
def test_the_median_lies_between_the_ranks_of_the_sign_test(count: int, interval: tuple[int, int]) -> None:
    assert median_interval([float(rank) for rank in range(count, 0, -1)]) == interval


@pytest.mark.parametrize(
    ("ratios", "answer"), [((0.9, 1.04), "yes"), ((1.06, 1.3), "no"), ((1.0, 1.2), "open"), ((0.99, 1.05), "yes")]
)
def test_only_a_whole_interval_answers(ratios: tuple[float, float], answer: str) -> None:
    low, high = ratios
    assert verdict([low, *[(low + high) / 2] * 4, high], 1.05) == answer
