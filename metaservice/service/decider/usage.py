"""The use of memory by principal: open transactions, pins, staged files and their bytes; the use of each quota.

The decider's thread changes it; any thread can read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from metaservice.core import quotas
from metaservice.core.quotas import DEFAULTS, Quota
from metaservice.core.table.model import Entry

ENTRY_BYTES: Final = 512  # of one staged entry, beside its path and payload, which are held twice once they are stored
COUNTED: Final = (quotas.TRANSACTIONS, quotas.PINS, quotas.BRANCHES, quotas.STAGED_FILES, quotas.STAGED_BYTES)
Count = Callable[[], tuple[int, Mapping[str, int]]]  # of all together, and by principal


class Share:
    """The use of one principal; its fields are named as the quotas are."""

    __slots__ = ("branches", "pins", "staged_bytes", "staged_files", "transactions")

    def __init__(self) -> None:
        self.transactions = self.pins = self.branches = self.staged_files = self.staged_bytes = 0


class Usage:
    """The use of all principals, and of each one. Every commit passes through here, so function calls are few."""

    def __init__(self) -> None:
        self.all = Share()
        self.each: dict[str, Share] = {}

    def begin(self, principal: str) -> None:
        """Counts an open transaction."""
        share = self.each.get(principal) or self._new(principal)
        share.transactions += 1
        self.all.transactions += 1

    def stage(self, principal: str, files: int, size: int) -> None:
        """Counts the staged entries of an open transaction; negative to remove them."""
        share, everybody = self.each.get(principal) or self._new(principal), self.all
        share.staged_files += files
        share.staged_bytes += size
        if files < 0 and not (share.transactions or share.pins or share.branches or share.staged_files):
            del self.each[principal]  # it ended in the call that began it
        everybody.staged_files += files
        everybody.staged_bytes += size

    def end(self, principal: str) -> None:
        """Removes a transaction that is no longer open, with its staged entries."""
        share = self.each.get(principal) or self._new(principal)
        share.transactions -= 1
        self.all.transactions -= 1
        if not (share.transactions or share.pins or share.branches or share.staged_files):
            del self.each[principal]

    def pin(self, principal: str, count: int = 1) -> None:
        """Counts pins; negative to remove them."""
        share = self.each.get(principal) or self._new(principal)
        share.pins += count
        self.all.pins += count
        if not (share.transactions or share.pins or share.branches or share.staged_files):
            del self.each[principal]

    def branch(self, principal: str, count: int = 1) -> None:
        """Counts branches; negative to remove them."""
        share = self.each.get(principal) or self._new(principal)
        share.branches += count
        self.all.branches += count
        if not (share.transactions or share.pins or share.branches or share.staged_files):
            del self.each[principal]

    def use(self, quota: str) -> tuple[int, dict[str, int]]:
        """The total, and the use of each principal. Any thread."""
        shares = {name: getattr(share, quota) for name, share in self.each.copy().items()}
        return getattr(self.all, quota), {name: has for name, has in shares.items() if has}

    def check(self, limits: Mapping[str, Quota], quota: str, principal: str, amount: int = 1) -> None:
        """Refuses a request that would exceed the quota."""
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
    """The approximate memory of staged entries."""
    size = 0
    for entry in entries:
        size += ENTRY_BYTES + 2 * (len(entry.path) + len(entry.payload)) + len(entry.content)
    return size


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """One quota; the wire's QuotaUse describes the fields."""

    quota: str
    used: int
    limit: int
    principal: str
    principal_used: int
    principal_limit: int


class QuotaUses:
    """All quotas, in the order in which they are defined, read when an operator asks: calls pay nothing for it.

    Of each it shows only the principal that uses most: there may be thousands, and clients choose the names.
    """

    def __init__(self) -> None:
        self._counted: dict[str, tuple[Quota, Count]] = {}

    def add(self, limits: Mapping[str, Quota], counts: Mapping[str, Count]) -> None:
        """Registers a counter; called before any request."""
        self._counted.update({name: (limits[name], count) for name, count in counts.items()})

    def list(self) -> list[QuotaUse]:
        return [_read(name, *self._counted[name]) for name in DEFAULTS if name in self._counted]


def _read(name: str, quota: Quota, count: Count) -> QuotaUse:
    used, shares = count()
    principal, most = max(shares.items(), key=lambda share: share[1], default=("", 0))
    return QuotaUse(name, used, quota.most, principal, most, quota.each)
