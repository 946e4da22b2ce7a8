"""The use of each quota, read where it is counted when an operator asks, so that calls pay nothing for it.

It shows only the principal that uses most of a quota: there may be thousands, and clients choose the names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from metaservice.core.quotas import DEFAULTS, Quota

Count = Callable[[], tuple[int, Mapping[str, int]]]  # of all together, and by principal


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
    """All quotas, in the order in which they are defined."""

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
