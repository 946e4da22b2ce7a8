"""Which outcome docs/semantics.md promises for two statements, written a second time: nothing of the product is called.

The earlier statement ran whole while the later one waited: the later one had begun before it, and commits after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Final

from tests.races.statements import BASE, Effect, Kind, Row, Rows, Statement

PROFILES: Final = ("maxcompute", "delta_serializable", "delta_write_serializable", "row_level")
SERIAL: Final = PROFILES[1:]

_FOLLOWS: Final[Mapping[Kind, frozenset[Kind]]] = {
    Kind.OVERWRITE: frozenset(Kind),
    Kind.INSERT: frozenset({Kind.MINOR, Kind.MAJOR}),
    Kind.CHANGE: frozenset({Kind.MINOR, Kind.MAJOR}),
    Kind.MINOR: frozenset({Kind.INSERT, Kind.CHANGE}),
    Kind.MAJOR: frozenset({Kind.MINOR}),
}
COMPACTIONS: Final = (Kind.MINOR, Kind.MAJOR)


class Expected(Enum):
    """What becomes of the later statement."""

    COMMITS = "commits"
    CONFLICTS = "conflicts"
    EITHER = "either"  # the docs leave the choice; the rows decide


@dataclass(frozen=True)
class Meeting:
    """Two statements on a table of one profile and kind."""

    profile: str
    keyed: bool
    later: Statement
    earlier: Statement
    is_one_call: bool = False  # the later one begins and commits in one call, at the head

    @cached_property
    def won(self) -> Effect:
        return self.earlier.meaning(tuple(sorted(BASE)))

    @cached_property
    def own(self) -> Effect:
        """What the later statement does by the rows that it saw."""
        return self.later.meaning(tuple(sorted(BASE)))

    @cached_property
    def after_earlier(self) -> Rows:
        return self.won.apply(BASE, keyed=self.keyed)

    @cached_property
    def promised(self) -> set[Rows]:
        """The rows of the table if both commit."""
        after_both = self.later.meaning(self.after_earlier).apply(self.after_earlier, keyed=self.keyed)
        if self.profile not in SERIAL:
            return {after_both, self.own.apply(self.after_earlier, keyed=self.keyed)}
        before = self.own.apply(BASE, keyed=self.keyed)
        return {after_both, self.earlier.meaning(before).apply(before, keyed=self.keyed)}

    @cached_property
    def expected(self) -> Expected:
        if self.won.is_nothing:
            return Expected.COMMITS
        if self.earlier.defines:
            return Expected.EITHER  # a new definition counts as a change of metadata, unless it says the same
        if self.later.is_blind and self.is_one_call:
            return Expected.COMMITS
        if self.profile == "maxcompute":
            return self._by_table
        return self._by_rows if self.profile == "row_level" else self._by_predicates

    # -- by the outcome table

    @property
    def _by_table(self) -> Expected:
        later, kind = self.later, self.later.kind
        if kind is Kind.INSERT and later.reads:
            kind = Kind.CHANGE
        if self.earlier.kind in _FOLLOWS[kind]:
            return Expected.COMMITS
        won = _partitions(self.won, self.keyed)
        if won & (later.reads | _partitions(self.own, self.keyed)):
            return Expected.CONFLICTS
        return Expected.EITHER if won & later.may_read else Expected.COMMITS

    # -- by predicates, on partitions

    @property
    def _by_predicates(self) -> Expected:
        later, earlier = self.later, self.earlier
        written = _partitions(self.own, self.keyed)
        won = _partitions(self.won, self.keyed)
        if later.is_blind:
            return Expected.COMMITS if not self.keyed or not written & won else Expected.EITHER
        if not won & (later.reads | later.may_read | written | self.own.scope):
            return Expected.COMMITS
        if self.own.is_nothing or {later.kind, earlier.kind} & set(COMPACTIONS) or self._is_restore:
            return Expected.EITHER
        reads = later.reads | self.own.scope
        is_ignored = self.profile == "delta_write_serializable" and earlier.is_blind
        if won & reads and not is_ignored:
            return Expected.CONFLICTS
        if _removes(self.won, self.keyed) & (reads | _removes(self.own, self.keyed)):
            return Expected.CONFLICTS
        return Expected.EITHER if self.keyed or won & later.may_read else Expected.COMMITS

    @property
    def _is_restore(self) -> bool:
        return "RESTORE" in (self.later.name, self.earlier.name)

    # -- by rows

    @property
    def _by_rows(self) -> Expected:
        later, earlier = self.later, self.earlier
        if later.kind is Kind.OVERWRITE:
            return self._overwrites_by_rows
        if earlier.kind in COMPACTIONS and later.kind not in COMPACTIONS:
            return Expected.COMMITS
        if later.kind in COMPACTIONS and earlier.kind in (Kind.INSERT, Kind.CHANGE):
            return Expected.COMMITS
        if self.own.is_nothing or {later.kind, earlier.kind} & set(COMPACTIONS):
            return Expected.EITHER
        if self._is_same_row:
            return Expected.CONFLICTS
        if later.is_blind and not self.keyed:
            return Expected.COMMITS
        if later.is_plain and later.name in ("UPDATE", "DELETE") and earlier.kind is not Kind.OVERWRITE:
            found = any(row[:2] == (later.target.id, later.target.day) for row in self.won.added)
            return Expected.CONFLICTS if found and not earlier.is_blind else Expected.COMMITS
        return Expected.EITHER

    @property
    def _overwrites_by_rows(self) -> Expected:
        if not self.later.reads:
            return Expected.COMMITS
        if self.earlier.kind in COMPACTIONS:
            return Expected.EITHER
        won = _partitions(self.won, self.keyed)
        if won & (self.own.scope | self.later.reads):
            return Expected.CONFLICTS
        return Expected.EITHER if won & self.later.may_read else Expected.COMMITS

    @property
    def _is_same_row(self) -> bool:
        if not self.keyed:
            return bool(_hidden(self.won) & _hidden(self.own))
        return bool(_keys(self.won) & _keys(self.own))


def _partitions(effect: Effect, keyed: bool) -> frozenset[str]:
    """Those in which it added or removed something."""
    there = {row[1] for row in BASE} & effect.scope
    return frozenset(row[1] for row in (*effect.removed, *effect.added)) | there | effect.rewritten


def _removes(effect: Effect, keyed: bool) -> frozenset[str]:
    """Those whose files it removed, or hid rows of."""
    there = {row[1] for row in BASE}
    upserted = {row[1] for row in effect.added} if keyed else set()
    return frozenset(row[1] for row in effect.removed) | (there & (effect.scope | upserted)) | effect.rewritten


def _hidden(effect: Effect) -> set[Row]:
    return {*effect.removed, *(row for row in BASE if row[1] in effect.scope)}


def _keys(effect: Effect) -> set[tuple[int, str]]:
    return {row[:2] for row in (*_hidden(effect), *effect.added)}
