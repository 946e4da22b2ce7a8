"""Quotas: how much of the service all may have together, and one principal alone.

A refusal says whose quota is used up: with the fact `principal` it is that principal's, without it everybody's.
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
REQUESTS: Final = "requests"


@dataclass(frozen=True, slots=True)
class Quota:
    """The most of all principals together, and of each."""

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
    REQUESTS: Quota(100_000, 50_000),
}
SAYS: Final[Mapping[str, str]] = {
    SESSIONS: "session streams at a time",
    WATCHERS: "watches at a time",
    PLANS: "plans and listings of files that are being sent at a time",
    REGISTRATIONS: "registrations of files that are being received at a time",
    CHECKS: "checks of the store, watches of health and reflections at a time",
    TRANSACTIONS: "open transactions",
    STAGED_FILES: "files staged by open transactions",
    STAGED_BYTES: "bytes of memory for what open transactions have staged",
    PINS: "pins",
    REQUESTS: "requests a second",
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
    REQUESTS: "TOO_MANY_REQUESTS",
}
assert DEFAULTS.keys() == SAYS.keys() == REASONS.keys()


def flag(quota: str) -> str:
    """The setting of a quota, without its ending."""
    return "--" + quota.replace("_", "-")


def refusal(quota: str, most: int, principal: str | None = None) -> MetaError:
    """Without a principal it is everybody's quota that is used up."""
    if principal is None:
        text = f"the service takes {most} {SAYS[quota]}: wait, or raise {flag(quota)}-max"
        return MetaError(ErrorKind.EXHAUSTED, REASONS[quota], text, quota=quota, most=most)
    text = f"a principal may have {most} {SAYS[quota]}: wait, or raise {flag(quota)}-each"
    return MetaError(ErrorKind.EXHAUSTED, REASONS[quota], text, quota=quota, most=most, principal=principal)
