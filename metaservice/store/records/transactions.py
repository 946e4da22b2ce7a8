"""Transaction, conflict <-> bytes."""

from __future__ import annotations

from collections.abc import Iterable

from metaservice.core.commit.transaction import NameOutcome, TableOutcome, Txn, TxnState, TxnTable, Written
from metaservice.core.table.model import Advice, Conflict, Footprint, Operation, PassedCommit, Principal, Rule
from protos.laketx.storage.v1 import records_pb2 as pb


def encode_txn(txn: Txn) -> bytes:
    """A transaction's record; that of a committed one-call append omits what its outcome contains."""
    record = pb.TransactionRecord()
    record.txn_id, record.state = txn.txn_id, txn.state
    record.principal, record.client = txn.principal.name, txn.principal.client
    record.begin_digest, record.files = txn.begin_digest, txn.files
    if txn.message:
        record.message = txn.message
    if txn.properties:
        record.properties.update(txn.properties)
    won = txn.state is TxnState.COMMITTED
    if won:
        record.commit_time_us = txn.commit_time_us
        for outcome in txn.outcomes:
            given = record.outcomes.add()
            given.table_id, given.version, given.logical = outcome.table_id, outcome.version, outcome.logical
            if outcome.rebased_over:
                given.rebased_over = outcome.rebased_over
            if outcome.already_applied:
                given.already_applied = True
            for passed in outcome.passed:
                given.passed.add(
                    version=passed.version,
                    txn_id=passed.txn_id,
                    columns=passed.columns,
                    own_columns=passed.own_columns,
                )
        for named in txn.names:
            record.names.add(kind=named.kind, name=named.name, change=named.change)
    if won and txn.one_call:
        record.one_call = True
        return record.SerializeToString()
    record.begin_us, record.end_us, record.commit_digest = txn.begin_us, txn.end_us, txn.commit_digest
    record.adopt_from = txn.adopt_from
    for table in txn.tables.values():
        begun = record.tables.add()
        begun.table_id, begun.operation = table.table_id, table.operation
        begun.read_version, begun.schema_version = table.read_version, table.schema_version
        begun.adopted = table.adopted
    if not won and txn.state is not TxnState.OPEN:
        _encode_lost(record, txn)
    return record.SerializeToString()


def _passed_from(records: Iterable[pb.PassedCommitRecord]) -> tuple[PassedCommit, ...]:
    return tuple(
        PassedCommit(record.version, record.txn_id, tuple(record.columns), tuple(record.own_columns))
        for record in records
    )


def _encode_lost(record: pb.TransactionRecord, txn: Txn) -> None:
    record.abort_reason = txn.abort_reason
    record.adopted_by = txn.adopted_by
    record.adoptable = txn.adoptable
    if txn.conflict is not None:
        record.conflict.CopyFrom(_conflict_record(txn.conflict))
    if txn.lost is not None:
        record.lost.files, record.lost.rows, record.lost.bytes = txn.lost.files, txn.lost.rows, txn.lost.size_bytes
        record.lost.SetInParent()


def _conflict_record(conflict: Conflict) -> pb.ConflictRecord:
    winner = conflict.winner
    return pb.ConflictRecord(
        table_id=conflict.table_id,
        rule=int(conflict.rule),
        winner_txn_id=winner.txn_id,
        winner_operation=int(winner.operation),
        winner_version=winner.version,
        winner_time_us=winner.time_us,
        winner_principal=winner.principal.name,
        winner_client=winner.principal.client,
        operation=int(conflict.operation),
        read_version=conflict.read_version,
        advice=int(conflict.advice),
        partition=conflict.partition,
        path=conflict.path,
        rows=conflict.rows,
        columns=conflict.columns,
    )


def _conflict_from(record: pb.ConflictRecord) -> Conflict:
    return Conflict(
        table_id=record.table_id,
        rule=Rule(record.rule),
        winner=Footprint(
            record.winner_version,
            record.winner_time_us,
            record.winner_txn_id,
            Operation(record.winner_operation),
            Principal(record.winner_principal, record.winner_client),
        ),
        operation=Operation(record.operation),
        read_version=record.read_version,
        advice=Advice(record.advice),
        partition=record.partition,
        path=record.path,
        rows=tuple(record.rows),
        columns=tuple(record.columns),
    )


def _written_from(record: pb.WrittenRecord) -> Written:
    return Written(record.files, record.rows, record.bytes)


def decode_txn(raw: bytes) -> Txn:
    record = pb.TransactionRecord.FromString(raw)
    if record.one_call:
        record.begin_us = record.end_us = record.commit_time_us
        for o in record.outcomes:
            read = o.version if o.already_applied else o.version - 1
            record.tables.add(table_id=o.table_id, operation=Operation.INSERT, read_version=read)
    return Txn(
        txn_id=record.txn_id,
        tables={
            t.table_id: TxnTable(
                t.table_id, Operation(t.operation), t.read_version, t.schema_version, adopted=t.adopted
            )
            for t in record.tables
        },
        principal=Principal(record.principal, record.client),
        message=record.message,
        properties=dict(record.properties),
        begin_us=record.begin_us,
        begin_digest=record.begin_digest,
        adopt_from=record.adopt_from,
        state=TxnState(record.state),
        end_us=record.end_us,
        commit_digest=record.commit_digest,
        commit_time_us=record.commit_time_us,
        outcomes=tuple(
            TableOutcome(o.table_id, o.version, o.logical, o.rebased_over, o.already_applied, _passed_from(o.passed))
            for o in record.outcomes
        ),
        conflict=_conflict_from(record.conflict) if record.HasField("conflict") else None,
        abort_reason=record.abort_reason,
        adopted_by=record.adopted_by,
        adoptable=record.adoptable,
        files=record.files,
        staged_files=record.one_call,
        lost=_written_from(record.lost) if record.HasField("lost") else None,
        names=tuple(NameOutcome(name.kind, name.name, name.change) for name in record.names),
    )
