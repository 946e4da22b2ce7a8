"""How long jobs gather before a group, where a sync takes long.

Writers whose commits wait for a slow sync, such as a PUT to a bucket, fall into two halves: while one is synced the
other gathers, and each waits for two syncs. So after a slow sync the decider waits a little for those whom it has just
answered: most of them ask again within milliseconds.

    32 writers, a sync of 40 ms: 16 were answered, 16 wait
    without gathering             16 a sync: 400 commits a second, each waits for 80 ms
    for 5 ms                      32 a sync: 700 commits a second, each waits for 45 ms

A writer that is alone waits for nobody, and neither does a store whose sync is fast.
"""

from __future__ import annotations

from typing import Final

SLOW_S: Final = 0.005
SHARE: Final = 0.25  # of the sync, at most


class GroupCommitDelay:
    """For the decider's thread."""

    def __init__(self) -> None:
        self._expected = 0
        self._until_s = 0.0

    def group_ended(self, answered: int, waiting: int, sync_s: float, now_s: float) -> None:
        """After a sync: how many jobs it answered, and how many came meanwhile."""
        self._expected = answered + waiting
        self._until_s = now_s + SHARE * sync_s if sync_s >= SLOW_S else 0.0

    def left_s(self, jobs: int, now_s: float) -> float:
        """How long these jobs may wait for others; 0: the group begins."""
        return max(self._until_s - now_s, 0.0) if 0 < jobs < self._expected else 0.0
