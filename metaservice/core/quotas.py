"""Quotas: how much of the service all principals together, and each of them, can use.

A refusal says which quota is used up: with the fact `principal` that principal's, without it the quota of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from metaservice.core import limits
from metaservice.core.errors import ErrorKind, MetaError

SESSIONS: Final = "sessions"
WATCHERS: Final = "watchers"
PLANS: Final = "plans"
REGISTRATIONS: Final = "registrations"
CHECKS: Final = "checks"
TRANSACTIONS: Final = "transactions"
STAGED_FILES: Final = "staged_files"
STAGED_BYTES: Final = "staged_bytes"
PINS: Final = "pins"
BRANCHES: Final = "branches"
REQUESTS: Final = "requests"


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits for all principals together and for each."""

    most: int
    each: int


DEFAULTS: Final[Mapping[str, Quota]] = {
    SESSIONS: Quota(40, 32),
    WATCHERS: Quota(256, 192),
    PLANS: Quota(48, 32),
    REGISTRATIONS: Quota(48, 32),
    CHECKS: Quota(16, 12),
    TRANSACTIONS: Quota(limits.OPEN_TRANSACTIONS_MAX, 8_000),
    STAGED_FILES: Quota(4_000_000, 3_000_000),
    STAGED_BYTES: Quota(4 << 30, 3 << 30),
    PINS: Quota(limits.PINS_MAX, 8_000),
    BRANCHES: Quota(limits.BRANCHES_MAX, 80_000),
    REQUESTS: Quota(100_000, 50_000),
}
SAYS: Final[Mapping[str, str]] = {
    SESSIONS: "session streams at a time",
    WATCHERS: "watches at a time",
    PLANS: "plans and file listings at a time",
    REGISTRATIONS: "file registrations at a time",
    CHECKS: "store checks, health watches and reflection calls at a time",
    TRANSACTIONS: "open transactions",
    STAGED_FILES: "files staged by open transactions",
    STAGED_BYTES: "bytes of memory for files staged by open transactions",
    PINS: "pins",
    BRANCHES: "branches",
    REQUESTS: "requests per second",
}
REASONS: Final[Mapping[str, str]] = {
    SESSIONS: "TOO_MANY_SESSIONS",
    WATCHERS: "TOO_MANY_WATCHERS",
    PLANS: "TOO_MANY_PLANS",
    REGISTRATIONS: "TOO_MANY_REGISTRATIONS",
    CHECKS: "TOO_MANY_CHECKS",
    TRANSACTIONS: "TOO_MANY_OPEN_TRANSACTIONS",
    STAGED_FILES: "TOO_MANY_STAGED_FILES",
    STAGED_BYTES: "TOO_MANY_STAGED_BYTES",
    PINS: "TOO_MANY_PINS",
    BRANCHES: "TOO_MANY_BRANCHES",
    REQUESTS: "TOO_MANY_REQUESTS",
}
assert DEFAULTS.keys() == SAYS.keys() == REASONS.keys()


def flag(quota: str) -> str:
    """The setting of a quota, without its suffix."""
    return "--" + quota.replace("_", "-")


def refusal(quota: str, most: int, principal: str | None = None) -> MetaError:
    """The refusal; without a principal the quota of all is used up. Branches last for days: nobody waits for one."""
    kind, step = (ErrorKind.BLOCKED, "drop some") if quota == BRANCHES else (ErrorKind.EXHAUSTED, "wait")
    if principal is None:
        text = f"the service allows {most} {SAYS[quota]}: {step}, or raise {flag(quota)}-max"
        return MetaError(kind, REASONS[quota], text, quota=quota, most=most)
    text = f"a principal can have {most} {SAYS[quota]}: {step}, or raise {flag(quota)}-each"
    return MetaError(kind, REASONS[quota], text, quota=quota, most=most, principal=principal)
