"""The columns of a fork and of its parent, of which both may have changed since the fork began."""

from __future__ import annotations

from dataclasses import replace

from metaservice.core.table.merged_columns import Ids, check_given_once, new_ids
from metaservice.core.table.meta import Alteration, TableMeta
from metaservice.core.table.model import Entry, Footprint, Operation
from metaservice.core.table.replayed_alterations import alteration_between, changes_columns_alone
from metaservice.core.table.rows import Payloads
from metaservice.service.decider.forking import meta_at
from metaservice.service.decider.snapshots import TableState
from metaservice.service.decider.state import State

REDEFINING = frozenset({Operation.ALTER, Operation.OVERWRITE})  # a REPLACE is judged by the rows that it takes away


class ReplayedColumns:
    """The ALTERs of a fork as those of its parent, and its files under the parent's schemas."""

    def __init__(self, state: State, fork: TableState, parent: TableState, base: int) -> None:
        self._state = state
        self._fork = fork
        self._parent = parent
        self._base = base
        self._before: TableMeta | None = None  # the fork's definition so far
        self._theirs: dict[int, str] = {}  # the ids that the parent gave since
        self._ours: dict[int, str] = {}
        self._schemas: dict[int, int] = {}  # of the fork's versions of the schema: which of the parent's stands for it

    def as_judged(self, winner: Footprint) -> Footprint:
        """A commit of the parent as the fork's are judged against it: a change of columns alone passes."""
        if not winner.altered:
            return winner
        after = meta_at(self._state, self._parent, winner.version)
        self._theirs.update(self._new_ids(after))
        if winner.operation not in REDEFINING or not winner.metadata_changed:
            return winner
        before = meta_at(self._state, self._parent, winner.version - 1)
        return replace(winner, metadata_changed=False) if changes_columns_alone(before, after) else winner

    def alteration(self, version: int, onto: TableMeta) -> Alteration:
        """What a commit of the fork changed of the definition, as a change of the parent's. Raises if it can't be."""
        before = self._before or meta_at(self._state, self._fork, self._base)
        after = self._before = meta_at(self._state, self._fork, version)
        self._ours.update(self._new_ids(after))
        check_given_once(self._ours, self._theirs)
        change = alteration_between(before, after, onto)
        if after.schema_version != before.schema_version:
            self._schemas[after.schema_version] = onto.altered(change).schema_version
        return change

    def place(self, entry: Entry, payloads: Payloads) -> bool:
        """Names the parent's schema under which a new file was written. False: its columns would be another's.

        External files have their columns by name: the fork's columns are not all that the parent's schema has.
        """
        if entry.is_delete_set or all(own == theirs for own, theirs in self._schemas.items()):
            return True
        version = payloads.schema_version(entry.payload)
        theirs = self._schemas.get(version, version)
        if theirs == version:
            return True
        entry.payload = payloads.under_schema(entry.payload, theirs)
        return not entry.external

    def _new_ids(self, meta: TableMeta) -> Ids:
        return new_ids(meta, meta_at(self._state, self._fork, self._base))
