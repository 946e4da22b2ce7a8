"""Requests a second: a bucket for each principal and one for all, looked at before a call takes anything.

A bucket holds what two seconds allow. A frame of many calls may overdraw it; what follows then waits.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import Final

from metaservice.core import quotas
from metaservice.core.quotas import Quota

BURST_S: Final = 2.0
PRINCIPALS_MAX: Final = 10_000  # whose buckets are known; one that was forgotten is full again


class _Bucket:
    __slots__ = ("at_s", "left")

    def __init__(self, at_s: float, left: float) -> None:
        self.at_s = at_s
        self.left = left

    def fill(self, now_s: float, rate: int) -> float:
        self.left = min(rate * BURST_S, self.left + (now_s - self.at_s) * rate)
        self.at_s = now_s
        return self.left


class Rates:
    """Any thread."""

    def __init__(self, quota: Quota) -> None:
        self._quota = quota
        self._mutex = threading.Lock()
        self._all = _Bucket(time.monotonic(), quota.most * BURST_S)
        self._each: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, principal: str, count: int = 1) -> None:
        """Refuse where a bucket is empty."""
        quota, now_s = self._quota, time.monotonic()
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
            bucket.left -= count
            self._all.left -= count
