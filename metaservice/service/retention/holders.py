"""The holders of versions below the horizon, and the owners of staged files."""

from __future__ import annotations

from collections.abc import Mapping

from metaservice.core.commit.transaction import Txn, TxnState
from metaservice.core.table.model import Operation
from metaservice.service.decider.state import State
from metaservice.store import keys
from metaservice.store.records.branches import Fork

Held = Mapping[str, list[int]]


def who_holds(state: State) -> Held:
    """Return the versions in use, ascending, by table."""
    by_table: dict[str, set[int]] = {}
    for txn in state.open.values():
        for table in txn.tables.values():
            by_table.setdefault(table.table_id, set()).add(table.read_version)
    for pin in state.pins.pins.values():
        for table_id, version in pin.versions:
            by_table.setdefault(table_id, set()).add(version)
    for tag in state.marks.tags.values():
        by_table.setdefault(tag.table_id, set()).add(tag.version)
    forks = [state.forks[raw_id] for raw_id in state.forks.living]
    for fork in forks:
        if not fork.is_detached:
            by_table.setdefault(keys.uuid_text(fork.base), set()).update((fork.version, *fork.holds))
    for table_id, version in state.tasks.held():
        by_table.setdefault(table_id, set()).add(version)
    for fork in forks:
        _pass_on(state, by_table, fork)
    return {table_id: sorted(versions) for table_id, versions in by_table.items()}


def _pass_on(state: State, by_table: dict[str, set[int]], fork: Fork) -> None:
    """Hold a fork's versions in its base up to where the fork began; after a merge, the rest in what it committed."""
    held = by_table.get(keys.uuid_text(fork.raw_id), ())
    of_base = {version for version in held if version <= fork.version}
    first, last = fork.successor_versions
    merged = range(first, last + 1) if fork.successor and len(of_base) < len(held) else ()
    for raw_id, versions in ((fork.base, of_base), (fork.successor, merged)):
        if versions:
            by_table.setdefault(keys.uuid_text(raw_id), set()).update(versions)
            above = state.forks.get(raw_id)
            if above is not None:
                _pass_on(state, by_table, above)


def tables_restoring(state: State) -> frozenset[str]:
    """Tables of which an open transaction restores a version."""
    tables = [table for txn in state.open.values() for table in txn.tables.values()]
    return frozenset(t.table_id for t in tables if t.operation is Operation.RESTORE)


def given_up_us(state: State, txn: Txn, now_us: int) -> int | None:
    """Since when no transaction owns its files; None if another transaction owns them.

    An adopter owns them while it is open; an adopter that ended without a commit leaves them to the purge.
    """
    if not txn.adopted_by:
        return txn.end_us
    adopter = state.find_txn(txn.adopted_by)
    if adopter is None or adopter.state in (TxnState.COMMITTED, TxnState.CONFLICT):
        return None
    return now_us + 1 if adopter.state is TxnState.OPEN else adopter.end_us
