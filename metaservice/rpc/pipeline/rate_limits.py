"""Requests per second: a bucket for each principal and one for all, checked before a call takes anything.

A bucket holds the requests of two seconds. A frame of many calls can overdraw it; following calls then wait.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from metaservice.core import quotas
from metaservice.core.quotas import Quota

BURST_S: Final = 2.0
PRINCIPALS_MAX: Final = 10_000  # whose buckets are known; one that was forgotten is full again


class _Bucket:
    """The requests left, and those taken in the current second and in the one before."""

    __slots__ = ("at_s", "before", "left", "second", "taken")

    def __init__(self, at_s: float, left: float) -> None:
        self.at_s = at_s
        self.left = left
        self.second = int(at_s)
        self.taken = self.before = 0

    def fill(self, now_s: float, rate: int) -> float:
        self.left = min(rate * BURST_S, self.left + (now_s - self.at_s) * rate)
        self.at_s = now_s
        return self.left

    def take(self, now_s: float, count: int) -> None:
        self.left -= count
        second = int(now_s)
        if second != self.second:
            self.before = self.taken if second == self.second + 1 else 0
            self.second, self.taken = second, 0
        self.taken += count

    def taken_in_last_second(self, now_s: float) -> int:
        """The requests of the last whole second."""
        ago = int(now_s) - self.second
        return (self.before, self.taken)[ago] if ago <= 1 else 0


class Rates:
    """The buckets. Any thread."""

    def __init__(self, quota: Quota, now_s: Callable[[], float] = time.monotonic) -> None:
        self._quota = quota
        self._now_s = now_s
        self._mutex = threading.Lock()
        self._all = _Bucket(now_s(), quota.most * BURST_S)
        self._each: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, principal: str, count: int = 1) -> None:
        """Takes requests; refuses if a bucket is empty."""
        quota, now_s = self._quota, self._now_s()
        with self._mutex:
            bucket = self._each.get(principal)
            if bucket is None:
                bucket = self._each[principal] = _Bucket(now_s, quota.each * BURST_S)
                if len(self._each) > PRINCIPALS_MAX:
                    self._each.popitem(last=False)
            if bucket.fill(now_s, quota.each) <= 0:
                raise quotas.refusal(quotas.REQUESTS, quota.each, principal)
            if self._all.fill(now_s, quota.most) <= 0:
                raise quotas.refusal(quotas.REQUESTS, quota.most)
            bucket.take(now_s, count)
            self._all.take(now_s, count)

    def use(self) -> tuple[int, dict[str, int]]:
        """The requests of the last whole second, by all and by each principal."""
        with self._mutex:
            now_s, each = self._now_s(), list(self._each.items())
        shares = {principal: bucket.taken_in_last_second(now_s) for principal, bucket in each}
        return self._all.taken_in_last_second(now_s), {principal: taken for principal, taken in shares.items() if taken}
