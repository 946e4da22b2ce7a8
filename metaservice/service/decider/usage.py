"""Who has how much of what the state holds in memory: open transactions, pins, staged files and their bytes.

Changed on the decider's thread, looked at by any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from metaservice.core import quotas
from metaservice.core.quotas import Quota
from metaservice.core.table.model import Entry

ENTRY_BYTES: Final = 512  # of one staged entry, beside its path and payload, which are held twice once they are stored
COUNTED: Final = (quotas.TRANSACTIONS, quotas.PINS, quotas.STAGED_FILES, quotas.STAGED_BYTES)


class Share:
    """What somebody has; its fields are named as the quotas are."""

    __slots__ = ("pins", "staged_bytes", "staged_files", "transactions")

    def __init__(self) -> None:
        self.transactions = self.pins = self.staged_files = self.staged_bytes = 0


class Usage:
    """What all have, and each principal that has anything. Every commit comes by: calls are few."""

    def __init__(self) -> None:
        self.all = Share()
        self.each: dict[str, Share] = {}

    def begin(self, principal: str) -> None:
        """A transaction is open."""
        share = self.each.get(principal) or self._new(principal)
        share.transactions += 1
        self.all.transactions += 1

    def stage(self, principal: str, files: int, size: int) -> None:
        """What an open transaction has staged; negative where it is forgotten."""
        share, everybody = self.each.get(principal) or self._new(principal), self.all
        share.staged_files += files
        share.staged_bytes += size
        if files < 0 and not (share.transactions or share.pins or share.staged_files):
            del self.each[principal]  # it ended in the call that began it
        everybody.staged_files += files
        everybody.staged_bytes += size

    def end(self, principal: str) -> None:
        """A transaction is no longer open, and what it had staged is forgotten."""
        share = self.each.get(principal) or self._new(principal)
        share.transactions -= 1
        self.all.transactions -= 1
        if not (share.transactions or share.pins or share.staged_files):
            del self.each[principal]

    def pin(self, principal: str, count: int = 1) -> None:
        """Negative where they are released."""
        share = self.each.get(principal) or self._new(principal)
        share.pins += count
        self.all.pins += count
        if not (share.transactions or share.pins or share.staged_files):
            del self.each[principal]

    def use(self, quota: str) -> tuple[int, dict[str, int]]:
        """What all have, and what each has. Any thread."""
        shares = {name: getattr(share, quota) for name, share in self.each.copy().items()}
        return getattr(self.all, quota), {name: has for name, has in shares.items() if has}

    def check(self, limits: Mapping[str, Quota], quota: str, principal: str, amount: int = 1) -> None:
        """Refuse what would go beyond the quota."""
        limit = limits[quota]
        if getattr(self.all, quota) + amount > limit.most:
            raise quotas.refusal(quota, limit.most)
        share = self.each.get(principal)
        if (share is not None and getattr(share, quota) + amount > limit.each) or amount > limit.each:
            raise quotas.refusal(quota, limit.each, principal)

    def _new(self, principal: str) -> Share:
        share = self.each[principal] = Share()
        return share


def staged_bytes(entries: Sequence[Entry]) -> int:
    """About what they take in memory."""
    size = 0
    for entry in entries:
        size += ENTRY_BYTES + 2 * (len(entry.path) + len(entry.payload))
    return size
