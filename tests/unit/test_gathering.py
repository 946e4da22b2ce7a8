"""How long jobs wait for others after a slow sync: a table of cases, and writers played against the rule."""

from __future__ import annotations

import heapq

import pytest

from metaservice.service.decider.group_commit_delay import SHARE, SLOW_S, GroupCommitDelay


@pytest.mark.parametrize(
    ("answered", "waiting", "sync_s", "jobs", "after_s", "left_s"),
    [
        (16, 16, 0.040, 16, 0.000, SHARE * 0.040),
        (16, 16, 0.040, 20, 0.002, SHARE * 0.040 - 0.002),
        (16, 16, 0.040, 32, 0.002, 0.0),  # all are there
        (16, 16, 0.040, 16, 0.040, 0.0),  # those who were answered do something else
        (16, 16, 0.040, 0, 0.000, 0.0),  # nobody waits
        (1, 0, 0.040, 1, 0.001, 0.0),  # a writer that is alone
        (16, 16, SLOW_S / 2, 16, 0.000, 0.0),  # a store on a disk
    ],
)
def test_how_long_a_group_waits(
    answered: int, waiting: int, sync_s: float, jobs: int, after_s: float, left_s: float
) -> None:
    gathering = GroupCommitDelay()
    gathering.group_ended(answered, waiting, sync_s, 100.0)
    assert gathering.left_s(jobs, 100.0 + after_s) == pytest.approx(left_s)


def test_the_first_group_waits_for_nobody() -> None:
    assert GroupCommitDelay().left_s(5, 100.0) == 0.0


@pytest.mark.parametrize(("writers", "least_per_s"), [(1, 24.0), (2, 46.0), (32, 720.0)])
def test_writers_share_each_sync(writers: int, least_per_s: float) -> None:
    """Each asks again a millisecond after its answer; a sync takes 40 ms. They begin in two halves."""
    assert commits_per_s(writers, sync_s=0.040, think_s=0.001) >= least_per_s


def commits_per_s(writers: int, sync_s: float, think_s: float) -> float:
    gathering = GroupCommitDelay()
    arrivals = [(0.0 if number % 2 else sync_s / 2) for number in range(writers)]
    heapq.heapify(arrivals)
    now_s, done, groups = 0.0, 0, 100
    for _ in range(groups):
        now_s = max(now_s, arrivals[0])
        jobs = take(arrivals, now_s)
        while left_s := gathering.left_s(jobs, now_s):
            now_s = min(arrivals[0], now_s + left_s) if arrivals else now_s + left_s
            jobs += take(arrivals, now_s)
        now_s += sync_s
        done += jobs
        gathering.group_ended(jobs, sum(each <= now_s for each in arrivals), sync_s, now_s)
        for _ in range(jobs):
            heapq.heappush(arrivals, now_s + think_s)
    return done / now_s


def take(arrivals: list[float], now_s: float) -> int:
    found = 0
    while arrivals and arrivals[0] <= now_s:
        heapq.heappop(arrivals)
        found += 1
    return found
