"""Who has how much of what the state holds in memory: open transactions, pins, staged files and their bytes.

Changed on the decider's thread, looked at by any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from metaservice.core import quotas
from metaservice.core.model import Entry
from metaservice.core.quotas import Quota

ENTRY_BYTES: Final = 512  # of one staged entry, beside its path and payload, which are held twice once they are stored
COUNTED: Final = (quotas.TRANSACTIONS, quotas.PINS, quotas.STAGED_FILES, quotas.STAGED_BYTES)


class Usage:
    """Sums, of all and of each principal that has anything."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = dict.fromkeys(COUNTED, 0)
        self.shares: dict[str, dict[str, int]] = {name: {} for name in COUNTED}

    def add(self, quota: str, principal: str, amount: int) -> None:
        self.totals[quota] += amount
        shares = self.shares[quota]
        left = shares.get(principal, 0) + amount
        if left:
            shares[principal] = left
        else:
            shares.pop(principal, None)

    def use(self, quota: str) -> tuple[int, dict[str, int]]:
        """What all have, and what each has."""
        return self.totals[quota], self.shares[quota].copy()

    def check(self, limits: Mapping[str, Quota], quota: str, principal: str, amount: int = 1) -> None:
        """Refuse what would go beyond the quota."""
        limit = limits[quota]
        if self.totals[quota] + amount > limit.most:
            raise quotas.refusal(quota, limit.most)
        if self.shares[quota].get(principal, 0) + amount > limit.each:
            raise quotas.refusal(quota, limit.each, principal)


def staged_bytes(entries: Sequence[Entry]) -> int:
    """About what they take in memory."""
    return sum(ENTRY_BYTES + 2 * (len(entry.path) + len(entry.payload)) for entry in entries)
