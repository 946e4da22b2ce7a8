"""The records of an outcome: the end of a transaction and, if it won, its commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from metaservice.core.commit.rebase import Author
from metaservice.core.commit.transaction import TableOutcome, Txn, TxnEvent, Written, end
from metaservice.core.table.model import Advice, Change, Conflict, Footprint, Live, Operation, TableCommit
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.snapshots import TableState, rows_of
from metaservice.service.decider.state import State
from metaservice.service.decider.txn_book import keep_content
from metaservice.store import entry_keys, keys
from metaservice.store.external_files import end_import, put_import
from metaservice.store.port import Batch
from metaservice.store.records.branches import Fork, encode_declared
from metaservice.store.records.commits import EncodedCommit, encode_commit, with_time
from metaservice.store.records.tables import encode_live


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """A commit of a merge as records, but for its time. `index`: those of the table's index; None: not made yet."""

    encoded: EncodedCommit
    index: Batch | None = None


class Outcomes:
    """Puts decisions into the state and its batch. Runs on the decider's thread."""

    def __init__(self, decider: Decider, clocks: Clocks) -> None:
        self._decider = decider
        self._clocks = clocks

    def lose(self, txn: Txn, conflict: Conflict, changes: Sequence[Change]) -> None:
        end(txn, TxnEvent.LOSE, self._clocks.now_us())
        txn.conflict = conflict
        txn.adoptable = conflict.advice is Advice.RESUBMIT
        written = [entry for change in changes for entry in change.adds]
        txn.lost = Written(len(written), rows_of(written), sum(entry.size_bytes for entry in written))
        if txn.adoptable:
            for change in changes:
                txn_table = txn.tables[change.table_id]
                self._decider.state.txns.stage(
                    txn, txn_table, [entry for entry in change.adds if entry.path not in txn_table.staged]
                )
        self._decider.state.txns.put(txn)

    def win(self, txn: Txn, commits: Sequence[TableCommit]) -> None:
        for commit in commits:
            if not commit.already_applied:
                self.write(txn, commit)
        self.end_won(txn, commits)

    def end_won(self, txn: Txn, commits: Sequence[TableCommit]) -> None:
        outcomes = []
        for commit in commits:
            change = commit.change
            applied = commit.already_applied
            rebased_over, passed = commit.rebased_over, commit.passed
            outcome = TableOutcome(change.table_id, commit.version, change.logical, rebased_over, applied, passed)
            outcomes.append(outcome)
            if not applied:
                txn.commit_time_us = commit.time_us
        txn.commit_time_us = txn.commit_time_us or max(commit.time_us for commit in commits)
        txn.outcomes = tuple(outcomes)
        end(txn, TxnEvent.WIN, txn.commit_time_us)
        state = self._decider.state
        state.txns.drop_staged(txn, {outcome.table_id for outcome in outcomes if not outcome.already_applied})
        state.txns.put(txn)

    def write(self, txn: Txn, commit: TableCommit, prepared: PreparedCommit | None = None) -> None:
        """The next entry of a table's log, its first one too; the table as the next decision sees it."""
        self.advance(commit)
        self.write_commit(txn, commit, prepared)

    def write_commit(self, txn: Txn, commit: TableCommit, prepared: PreparedCommit | None = None) -> None:
        """`prepared`: what was made of the commit earlier, before its time was known."""
        state = self._decider.state
        table, batch = state.tables[commit.change.table_id], state.batch
        raw = table.raw_id
        if prepared is None:
            record, added, chunks = encode_commit(commit, txn)
        else:
            record, added, chunks = prepared.encoded
            record = with_time(record, commit.time_us)
        for number, chunk in enumerate(chunks):
            batch.put(keys.chunk_key(raw, commit.version, number), chunk)
        batch.put(keys.commit_key(raw, commit.version), record)
        batch.put(keys.time_key(raw, commit.time_us), keys.encode_version(commit.version))
        if not commit.change.logical:
            table.idle = table.idle.after(commit.version)
            batch.put(keys.idle_key(raw, commit.version), keys.encode_version(table.idle.logical))
        if prepared is None or prepared.index is None:
            put_entries(batch, table, commit, added)
        else:
            batch.ops += prepared.index.ops
        inlined = table.inlined.after(commit.added, _own(table, commit.removed), commit.time_us)
        if inlined is not table.inlined:
            state.count_inlined(table, inlined)
        for app_id, version in commit.change.app_versions:
            batch.put(keys.app_key(raw, app_id), keys.encode_version(version))
        if commit.change.operation is Operation.RESTORE:
            state.mark_restored(table, commit.added)
        if table.fork is not None:
            self._note_for_base(table, table.fork, commit)

    def _note_for_base(self, table: TableState, fork: Fork, commit: TableCommit) -> None:
        """What a commit to a fork says of its base: what a merge needs, and files that it restored from there."""
        if fork.branch and commit.change.logical:
            declared = keys.declared_key(table.raw_id, commit.version)
            self._decider.state.batch.put(declared, encode_declared(commit.change))
        if commit.change.operation is Operation.RESTORE:
            self._hold_base(table, fork, commit)

    def _hold_base(self, table: TableState, fork: Fork, commit: TableCommit) -> None:
        """Keeps the files that a fork restores from before it began: they are the base's."""
        restored = commit.change.restore_version
        if restored > fork.version:
            return
        for live in commit.added:
            entry = live.entry
            mask = entry_keys.mask_of_live(entry_keys.live_key(table.raw_id, entry.partition, entry.bucket, entry.path))
            self._decider.state.batch.put(mask, b"")
        if restored < fork.version and restored not in fork.holds:
            self._decider.state.put_fork(replace(fork, holds=(*fork.holds, restored)))

    def advance(self, commit: TableCommit) -> None:
        """The table as the next decision sees it."""
        state = self._decider.state
        table = state.tables[commit.change.table_id]
        if commit.meta is not None:
            state.rename(table, commit.meta.name)
            state.put_meta(table, commit.meta, commit.version)
        if commit.footprint.metadata_changed or commit.footprint.features_changed:
            table.last_metadata_version = commit.version
        table.head, table.last_time_us = commit.version, commit.time_us
        state.remember(table, commit.footprint)
        table.blocks.add(commit.footprint, commit.change.key_sets, table.meta)
        state.changed.add(commit.change.table_id)


def put_entries(batch: Batch, table: TableState, commit: TableCommit, added: Sequence[bytes]) -> None:
    """What a commit takes out of the index of its table, and what it adds to it: `added`, as records."""
    raw = table.raw_id
    for live in commit.removed:
        _take_out(batch, table, live, commit.version)
    for live, raw_entry in zip(commit.added, added, strict=True):
        entry = live.entry
        batch.put(entry_keys.live_key(raw, entry.partition, entry.bucket, entry.path), raw_entry)
        if entry.external:
            put_import(batch, raw, live)
        if entry.content:
            keep_content(batch, raw, entry)


def _take_out(batch: Batch, table: TableState, live: Live, version: int) -> None:
    raw, entry = table.raw_id, live.entry
    live_key = entry_keys.live_key(raw, entry.partition, entry.bucket, entry.path)
    batch.delete(live_key)
    past = entry_keys.past_key(raw, version, entry.partition, entry.bucket, entry.path)
    batch.put(past, encode_live(live, version))
    batch.put(entry_keys.span_key(raw, live.added, version, entry.partition, entry.bucket, entry.path), b"")
    if table.fork is not None and live.added <= table.fork.version:
        batch.put(entry_keys.mask_of_live(live_key), b"")
    if entry.external:
        end_import(batch, raw, live)


def _own(table: TableState, removed: list[Live]) -> list[Live]:
    """Without what a fork has of its base: it counts what it has itself."""
    fork = table.fork
    return removed if fork is None else [live for live in removed if live.added > fork.version]


def nothing_new(table: TableState, change: Change, author: Author) -> TableCommit:
    """A commit that repeats an application version that the table has."""
    head, time_us = table.head, table.last_time_us
    footprint = Footprint(head, time_us, author.txn_id, change.operation, author.principal)
    return TableCommit(head, time_us, change, 0, footprint, [], [], already_applied=True)


def is_applied(state: State, table: TableState, change: Change) -> bool:
    """Whether applications wrote all versions that a change declares, or later ones."""
    state.flush()
    for app_id, version in change.app_versions:
        raw = state.app_version(table.meta.table_id, app_id)
        if raw is None or keys.decode_version(raw) < version:
            return False
    return True
