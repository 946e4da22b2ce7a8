"""Resubmitting: a new transaction takes over the staged files of a blind INSERT that lost, once, at its begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from metaservice.core import quotas
from metaservice.core.commit.transaction import Txn, TxnState
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.quotas import Quota
from metaservice.core.table.model import Entry, Footprint, Operation, Rule
from metaservice.service.decider.state import State
from metaservice.service.decider.usage import staged_bytes

METADATA_RULES = (Rule.METADATA_CHANGED, Rule.PROTOCOL_CHANGED)


def adopt(state: State, txn: Txn, old_id: str, limits: Mapping[str, Quota]) -> None:
    """Adopts files; refused if a conflicting ALTER came after the old transaction began: its files may not fit."""
    old = state.get_txn(old_id)
    race = old.conflict
    are_inserts = all(table.operation is Operation.INSERT for table in old.tables.values())
    if race is not None and race.rule in METADATA_RULES and are_inserts:
        raise _metadata_changed(race.table_id, race.winner)
    if old.state is not TxnState.CONFLICT or not old.adoptable:
        raise MetaError(ErrorKind.BLOCKED, "NOT_ADOPTABLE", txn_id=old_id)
    if old.adopted_by:
        raise MetaError(ErrorKind.BLOCKED, "ALREADY_ADOPTED", txn_id=old_id, by=old.adopted_by)
    if set(old.tables) != set(txn.tables) or any(t.operation is not Operation.INSERT for t in txn.tables.values()):
        raise invalid("ADOPTION_MISMATCH", "begin with the same tables, each with INSERT", txn_id=old_id)
    state.load_staged(old)
    try:
        _take_over(state, txn, old, limits)
    finally:
        state.txns.forget_staged(old)


def _take_over(state: State, txn: Txn, old: Txn, limits: Mapping[str, Quota]) -> None:
    if sum(len(table.staged) for table in old.tables.values()) != old.files:
        raise MetaError(ErrorKind.BLOCKED, "PURGE_HAS_BEGUN", txn_id=old.txn_id)
    for table_id, theirs in old.tables.items():
        for winner in state.alterations(state.get_table(table_id), theirs.read_version):
            if winner.metadata_changed or winner.features_changed:
                raise _metadata_changed(table_id, winner)
    check_staged(state, txn, [entry for table in old.tables.values() for entry in table.staged.values()], limits)
    state.txns.put(txn)
    for table_id, theirs in old.tables.items():
        adopter = txn.tables[table_id]
        adopter.adopted = len(theirs.staged)
        state.txns.stage(txn, adopter, list(theirs.staged.values()))
    old.adopted_by = txn.txn_id
    state.txns.put(old)


def check_staged(state: State, txn: Txn, entries: Sequence[Entry], limits: Mapping[str, Quota]) -> int:
    """Refuses entries beyond the limits of staged files; returns the memory that they take."""
    name, size = txn.principal.name, staged_bytes(entries)
    state.usage.check(limits, quotas.STAGED_FILES, name, len(entries))
    state.usage.check(limits, quotas.STAGED_BYTES, name, size)
    return size


def _metadata_changed(table_id: str, winner: Footprint) -> MetaError:
    return MetaError(ErrorKind.STALE, "METADATA_CHANGED", table_id=table_id, version=winner.version)
