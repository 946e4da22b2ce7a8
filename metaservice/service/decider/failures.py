"""Failures of the store as refusals of a read."""

from __future__ import annotations

from metaservice.core.errors import ErrorKind, MetaError
from metaservice.store.port import StoreFailed, StoreUnusable


def as_refusal(error: Exception) -> Exception:
    """A store's failure as a refusal; any other error unchanged."""
    if isinstance(error, StoreFailed):
        return MetaError(ErrorKind.UNAVAILABLE, "STORE_FAILED", "the store is being reopened: ask again")
    if isinstance(error, StoreUnusable):
        facts: dict[str, object] = dict(error.facts)
        return MetaError(ErrorKind.CORRUPT, error.reason, "", **facts)
    return error
