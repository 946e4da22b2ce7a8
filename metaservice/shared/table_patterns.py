"""Patterns of tables: a table's name, or NAMESPACE.* for all tables of a namespace; in any case."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

ALL: Final = ".*"


def is_among(name: str, patterns: Iterable[str]) -> bool:
    """Whether a table is one of the patterns' tables."""
    folded = name.lower()
    return any(_matches(folded, pattern.lower()) for pattern in patterns)


def _matches(name: str, pattern: str) -> bool:
    if pattern.endswith(ALL):
        return name.startswith(pattern[:-1]) and "." not in name[len(pattern) - 1 :]
    return name == pattern
