"""Judging on the decider's thread, in turns: a long judgement continues in the next group.

Results stay valid, because the log never changes; only the commits in between are added. An unfinished commit raises
`Again`. The check whether a transaction is doomed never waits: it judges as far as its turn allows, and continues at
the next check.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from metaservice.core import limits
from metaservice.core.commit import transaction_facts
from metaservice.core.commit.change_checks import check
from metaservice.core.commit.file_tests import file_tests_of
from metaservice.core.commit.judge import Judging
from metaservice.core.commit.judged_change import JudgedChange
from metaservice.core.commit.matching import PartitionReads, Paused, Work, condition_of, too_costly
from metaservice.core.commit.rebase import lineage_lost
from metaservice.core.commit.transaction import Look, Txn, TxnTable
from metaservice.core.commit.winner_blocks import meet_block
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.table.key_scope import KeyProgress, check_ended, is_checked_by, key_scope
from metaservice.core.table.meta import Profile, TableMeta
from metaservice.core.table.model import Change, Conflict, Footprint, Operation, Read
from metaservice.core.table.properties import TABLE
from metaservice.service.commit.requests import CommitProgress
from metaservice.service.decider.decider import ContinueNextGroup
from metaservice.service.decider.forking import meta_at
from metaservice.service.decider.snapshots import TableState
from metaservice.service.decider.state import State

_COST_OF_A_RECORD = 200  # of reading a winner from the store, in comparisons
_WINNERS_LOOKED_AT = 100


def judge_commit(state: State, table: TableState, change: Change, progress: CommitProgress) -> Conflict | None:
    """The first conflict of a commit's change. Raises Again if judging takes more than this turn allows."""
    if change.table_id not in progress.judged:
        check(change, table.meta, state.snapshots(table))
        progress.judged[change.table_id] = None
    if table.head == change.read_version:
        return None
    judging = progress.judged[change.table_id]
    if judging is None:
        judging = progress.judged[change.table_id] = Judging(JudgedChange(change, table.meta, state.snapshots(table)))
    conflict = _meet(state, table, judging, limits.JUDGE_TURN)
    if conflict is None and (judging.met < table.head or judging.puts_off):
        raise ContinueNextGroup
    return conflict


def refuse_changed(state: State, table: TableState, since: int | None) -> None:
    """Refuses a commit that depends on the rows of a version, if a later one changed rows; None depends on none.

    Commits without a time version (compactions, changes of metadata) are passed over at once.
    """
    if since is None:
        return
    if since > table.head:
        raise invalid("READ_VERSION_IN_FUTURE", read=since, head=table.head)
    idle = table.idle
    newest = idle.logical if idle.version == table.head else table.head
    last = max(since, newest - _WINNERS_LOOKED_AT, state.trimmed(table) - 1) if newest > since else newest
    for version in range(newest, last, -1):
        if state.winner(table, version).changes_rows:
            raise _rows_changed(table, since, version)
    if last > since:
        raise _rows_changed(table, since, last)


def refuse_older_keys(state: State, table: TableState, version: int) -> None:
    """Refuses a RESTORE to a version that may have a key twice, of a table whose writers keep it unique."""
    if not table.meta.key_spans_partitions:
        return
    state.flush()
    then = meta_at(state, table, version)
    if key_scope(then.primary_key, then.partitioning.names, then.properties) != TABLE:
        raise invalid(
            "KEY_SPANS_PARTITIONS",
            "the key was not yet unique across partitions at that version: restore a later one, or write the rows anew",
            operation=Operation.RESTORE.name,
            restore=version,
        )


def refuse_older_check(state: State, table: TableState, seen: KeyProgress) -> None:
    """Refuses what was seen at a version at which this check of the keys didn't run."""
    first = 0 if table.fork is None else table.fork.version
    if not first <= seen.version <= table.head:
        raise check_ended(seen)
    state.flush()
    if not is_checked_by(meta_at(state, table, seen.version).properties, seen.check):
        raise check_ended(seen)


def _rows_changed(table: TableState, since: int, version: int) -> MetaError:
    facts = {"table_id": table.meta.table_id, "since": since, "version": version}
    return MetaError(ErrorKind.STALE, "ROWS_CHANGED", **facts)


def prepare(reads: Sequence[Read], meta: TableMeta) -> None:
    """Any thread: prepares the conditions for judging, before the decider's turn."""
    for read in reads:
        condition_of(read, meta.partitioning)
        if meta.profile is Profile.ROW_LEVEL:
            file_tests_of(read, meta)


def check_cost(table: TableState, reads: Sequence[Read], read_version: int) -> None:
    """Refuses conditions that are already known to take too long."""
    if not reads:
        return
    cost = PartitionReads(reads, table.meta.partitioning, Work()).cost
    newest = range(max(read_version, table.head - _WINNERS_LOOKED_AT) + 1, table.head + 1)
    met = (table.footprints.get(version) for version in newest)
    partitions = max((len(footprint.partitions) for footprint in met if footprint is not None), default=1)
    if cost * max(1, partitions) > limits.JUDGE_COMPARISONS_MAX:
        raise too_costly(cost * max(1, partitions))


def _meet(state: State, table: TableState, judging: Judging, most: int) -> Conflict | None:
    """Judges as many winners as a turn allows; all commits of a group share its turn."""
    work = judging.judged.work
    turn = max(min(most, state.judging_left), limits.JUDGE_TURN_MIN)
    work.begin_turn(turn)

    def winner_of(version: int) -> Footprint:
        winner = table.footprints.get(version)
        if winner is None:
            work.begin_winner(_COST_OF_A_RECORD)
            winner = state.winner(table, version)
        return winner

    judging.winner_of = winner_of
    try:
        while judging.met < table.head:
            version = judging.met + 1
            block = table.blocks.covering(version) if version > judging.singly_until else None
            if block is None:
                conflict = judging.meet(winner_of(version))
            else:
                conflict = meet_block(judging, block)
                if judging.met < version:
                    judging.singly_until = block.last
            if conflict is not None:
                return conflict
        return judging.end()
    except Paused:
        return None
    finally:
        state.judging_left -= turn - work.left


def look(state: State, txn: Txn) -> Conflict | None:
    """A conflict that the declared and registered changes already have; None if none is known yet."""
    tables = [(state.get_table(txn_table.table_id), txn_table) for txn_table in txn.tables.values()]
    if all(txn_table.look == Look(table.head, _files(txn_table)) for table, txn_table in tables):
        return None
    changes = [_so_far(txn_table) for _, txn_table in tables]
    transaction_facts.tell(changes)
    for (table, txn_table), change in zip(tables, changes, strict=True):
        if txn_table.operation is Operation.ALTER:
            continue  # only its commit says whether it is one that conflicts
        conflict = _look_on(state, table, txn_table, change)
        if conflict is not None:
            return conflict
    return None


def _files(txn_table: TxnTable) -> int:
    return min(len(txn_table.staged), limits.LOOK_FILES_MAX)


def _so_far(txn_table: TxnTable) -> Change:
    adds = list(islice(txn_table.staged.values(), limits.LOOK_FILES_MAX))
    return Change(
        txn_table.table_id, txn_table.operation, txn_table.read_version, txn_table.reads, adds=adds, changes_data=False
    )


def _look_on(state: State, table: TableState, txn_table: TxnTable, change: Change) -> Conflict | None:
    """Continues where the last check ended; a winner that takes too long for a check is left to the commit."""
    begun = Look(txn_table.read_version, _files(txn_table))
    before = txn_table.look if txn_table.look is not None and txn_table.look.files == begun.files else begun
    judging = Judging(JudgedChange(change, table.meta, state.snapshots(table), Work(most=float("inf"))))
    judging.met = judging.settled = before.met
    conflict = _meet(state, table, judging, limits.JUDGE_LOOK)
    left_out = min(before.met + 1, table.head)
    txn_table.look = Look(max(judging.settled, left_out), before.files) if conflict is None else before
    return conflict


def look_at_compaction(state: State, judging: Judging) -> Conflict | None:
    """A conflict that a task already has; None if none is known yet."""
    change = judging.judged.change
    table = state.get_table(change.table_id)
    return _meet(state, table, judging, limits.JUDGE_LOOK) or lineage_lost(change, table.meta, judging.near)
