"""Core's answers as wire messages, and refusals as google.rpc.Status."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2

from metaservice.core import limits
from metaservice.core.commit.transaction import Txn, TxnState, Written
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.table.meta import Profile, TableMeta
from metaservice.core.table.model import CommitSummary, Conflict, Live, PassedCommit, Principal, Rule, TableCommit
from metaservice.rpc.convert.wire_schema import column_messages
from metaservice.service.decider.views import TableView
from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2, transaction_pb2

DOMAIN: Final = "laketx"
FACT_CHARS_MAX: Final = 512
FACT_CHARS_MIN: Final = 64
CODES: Final = {
    ErrorKind.INVALID: code_pb2.INVALID_ARGUMENT,
    ErrorKind.NOT_FOUND: code_pb2.NOT_FOUND,
    ErrorKind.ALREADY_EXISTS: code_pb2.ALREADY_EXISTS,
    ErrorKind.BLOCKED: code_pb2.FAILED_PRECONDITION,
    ErrorKind.GONE: code_pb2.OUT_OF_RANGE,
    ErrorKind.STALE: code_pb2.ABORTED,
    ErrorKind.EXHAUSTED: code_pb2.RESOURCE_EXHAUSTED,
    ErrorKind.DENIED: code_pb2.PERMISSION_DENIED,
    ErrorKind.UNAVAILABLE: code_pb2.UNAVAILABLE,
    ErrorKind.CORRUPT: code_pb2.DATA_LOSS,
}
UNKNOWN_CALLER: Final = {"IDENTITY_MISSING", "TOKEN_INVALID", "TOKEN_EXPIRED"}
RULE_SAYS: Final = {
    Rule.OUTCOME_TABLE: "{mine} after {winner} in the same partition conflicts (outcome table)",
    Rule.LINEAGE: "a file that the compaction read is gone",
    Rule.PROTOCOL_CHANGED: "the winner changed the table's features",
    Rule.METADATA_CHANGED: "the winner changed the schema or settings that writers rely on",
    Rule.CONCURRENT_TRANSACTION: "the winner wrote an application id that was looked up",
    Rule.CONCURRENT_APPEND: "the winner added files that should have been read",
    Rule.CONCURRENT_DELETE_READ: "the winner removed a file that was read",
    Rule.CONCURRENT_DELETE_DELETE: "the winner removed a file that this transaction removes too",
    Rule.CONCURRENT_ROW_CHANGE: "the winner changed a row that this transaction changes too",
    Rule.CONCURRENT_KEY: "the winner wrote a key, or to a bucket of keys, that this transaction writes too; "
    "the table's key is unique across partitions",
}


def status(error: MetaError) -> status_pb2.Status:
    """A status, with facts up to gRPC's limit."""
    chars = FACT_CHARS_MAX
    while (message := _status(error, chars)).ByteSize() > limits.STATUS_BYTES_MAX and chars > FACT_CHARS_MIN:
        chars //= 2
    return message


def _status(error: MetaError, chars: int) -> status_pb2.Status:
    details = any_pb2.Any()
    facts = {name: value[:chars] for name, value in error.facts.items()}
    details.Pack(
        error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata={**facts, "kind": error.kind.name})
    )
    message = f"{error.reason}: {error.message[:FACT_CHARS_MAX]}"
    code = code_pb2.UNAUTHENTICATED if error.reason in UNKNOWN_CALLER else CODES[error.kind]
    return status_pb2.Status(code=code, message=message, details=[details])


def principal(sender: Principal) -> common_pb2.Principal:
    return common_pb2.Principal(name=sender.name, client=sender.client)


def conflict(lost: Conflict) -> common_pb2.Conflict:
    winner = lost.winner
    says = RULE_SAYS[lost.rule].format(mine=lost.operation.name, winner=winner.operation.name)
    who = f" by {winner.principal.name}" if winner.principal.name else ""
    where = f" in partition {lost.partition}" if lost.partition else ""
    return common_pb2.Conflict(
        table_id=lost.table_id,
        rule=int(lost.rule),  # type: ignore[arg-type]
        winner_txn_id=winner.txn_id,
        winner_operation=int(winner.operation),  # type: ignore[arg-type]
        winner_version=winner.version,
        winner_commit_time_us=winner.time_us,
        winner_principal=principal(winner.principal),
        partition=lost.partition,
        path=lost.path,
        rows=lost.rows,
        columns=lost.columns,
        operation=int(lost.operation),  # type: ignore[arg-type]
        read_version=lost.read_version,
        advice=int(lost.advice),  # type: ignore[arg-type]
        message=f"lost to {winner.operation.name} at version {winner.version}{who}{where}: {says}",
    )


def committed(txn: Txn) -> common_pb2.Committed:
    answer = common_pb2.Committed()
    fill_committed(answer, txn)
    return answer


def fill_committed(answer: common_pb2.Committed, txn: Txn) -> None:
    """Fills the message in place: a message that is passed to another one is copied."""
    answer.commit_time_us = time_us = txn.commit_time_us
    for outcome in txn.outcomes:
        table = answer.tables.add()
        table.table_id, table.version = outcome.table_id, outcome.version
        if outcome.already_applied:
            table.already_applied = True
        elif outcome.logical:
            table.time_version_us = time_us
        if outcome.rebased_over:
            table.rebased_over = outcome.rebased_over
        if outcome.passed:
            table.passed.extend(_passed(outcome.passed))


def _passed(commits: Iterable[PassedCommit]) -> list[common_pb2.PassedCommit]:
    return [
        common_pb2.PassedCommit(
            version=passed.version,
            txn_id=passed.txn_id,
            columns=passed.columns,
            own_columns=passed.own_columns,
        )
        for passed in commits
    ]


def would_commit(commits: list[TableCommit]) -> common_pb2.Committed:
    return common_pb2.Committed(
        commit_time_us=max(commit.time_us for commit in commits),
        tables=[
            common_pb2.TableCommit(
                table_id=commit.change.table_id,
                version=commit.version,
                time_version_us=commit.time_us if commit.change.logical and not commit.already_applied else None,
                rebased_over=commit.rebased_over,
                already_applied=commit.already_applied,
                passed=_passed(commit.passed),
            )
            for commit in commits
        ],
    )


def begun(txn: Txn, lease_ms: int, doomed: Conflict | None = None) -> transaction_pb2.BeginTransactionResponse:
    return transaction_pb2.BeginTransactionResponse(
        tables=[
            transaction_pb2.BegunTable(
                table_id=table.table_id,
                read_version=table.read_version,
                schema_version=table.schema_version,
                staging_folder=txn.txn_id,
                adopted_files=table.adopted,
            )
            for table in txn.tables.values()
        ],
        lease_ms=lease_ms,
        doomed=conflict(doomed) if doomed is not None else None,
    )


Outcome = transaction_pb2.CommitTransactionResponse | transaction_pb2.AppendResponse | transaction_pb2.BatchItem


def fill_outcome(answer: Outcome, txn: Txn) -> None:
    """The outcome of a decided transaction."""
    if txn.conflict is not None:
        answer.conflict.CopyFrom(conflict(txn.conflict))
    else:
        fill_committed(answer.committed, txn)


def commit_answer(txn: Txn) -> transaction_pb2.CommitTransactionResponse:
    answer = transaction_pb2.CommitTransactionResponse()
    fill_outcome(answer, txn)
    return answer


def append_answer(txn: Txn) -> transaction_pb2.AppendResponse:
    answer = transaction_pb2.AppendResponse()
    fill_outcome(answer, txn)
    return answer


def batch_answer(results: Iterable[Txn | MetaError]) -> transaction_pb2.CommitBatchResponse:
    answer = transaction_pb2.CommitBatchResponse()
    for result in results:
        if isinstance(result, MetaError):
            answer.items.add(error=status(result))
        else:
            fill_outcome(answer.items.add(), result)
    return answer


def transaction(txn: Txn) -> transaction_pb2.Transaction:
    return transaction_pb2.Transaction(
        txn_id=txn.txn_id,
        state=int(txn.state),  # type: ignore[arg-type]
        tables=[
            transaction_pb2.TableIntent(
                table_id=table.table_id,
                operation=int(table.operation),  # type: ignore[arg-type]
                schema_version=table.schema_version,
                read_version=table.read_version,
            )
            for table in txn.tables.values()
        ],
        principal=principal(txn.principal),
        commit_message=txn.message,
        begin_time_us=txn.begin_us,
        end_time_us=txn.end_us,
        committed=committed(txn) if txn.state is TxnState.COMMITTED else None,
        conflict=conflict(txn.conflict) if txn.conflict is not None else None,
        abort_reason=txn.abort_reason,
        adopted_by=txn.adopted_by,
        adopt_from=txn.adopt_from,
        registered_files=txn.files,
        lost=written(txn.lost) if txn.lost is not None else None,
    )


def written(lost: Written) -> transaction_pb2.WrittenFiles:
    return transaction_pb2.WrittenFiles(files=lost.files, rows=lost.rows, bytes=lost.size_bytes)


def table(view: TableView, meta: TableMeta | None = None, *, has_imports: bool = False) -> catalog_pb2.Table:
    """The table with its newest metadata, or with that of a version."""
    meta = meta or view.meta
    return catalog_pb2.Table(
        table_id=meta.table_id,
        name=meta.name,
        columns=column_messages(meta.columns),
        partition_columns=meta.partitioning.names,
        primary_key=meta.primary_key,
        buckets=meta.buckets,
        profile=meta.profile.value,
        properties=meta.properties,
        comment=meta.comment,
        features=sorted(meta.features),
        schema_version=meta.schema_version,
        head_version=view.head,
        head_commit_time_us=view.time_us,
        create_time_us=meta.create_time_us,
        has_imports=has_imports,
        rules=write_rules(meta),
        definition=meta.fingerprint,
        folder_id=view.folder_id,
        last_column_id=meta.last_column_id,
    )


def write_rules(meta: TableMeta) -> catalog_pb2.WriteRules:
    """What the table's profile asks of writers."""
    return catalog_pb2.WriteRules(
        counts_reads=meta.profile.counts_reads,
        counts_key_lookups=meta.profile.is_delta,
        wants_keys=meta.profile is Profile.ROW_LEVEL and meta.keyed,
        takes_custom=meta.profile.is_delta,
    )


def version(summary: CommitSummary) -> read_pb2.Version:
    footprint = summary.footprint
    return read_pb2.Version(
        version=footprint.version,
        commit_time_us=footprint.time_us,
        time_version_us=footprint.time_us if summary.has_time_version else None,
        operation=int(footprint.operation),  # type: ignore[arg-type]
        txn_id=footprint.txn_id,
        principal=principal(footprint.principal),
        commit_message=summary.message,
        read_version=summary.read_version,
        rebased_over=summary.rebased_over,
        files_added=summary.files_added,
        files_removed=summary.files_removed,
        rows_added=summary.rows_added,
        rows_removed=summary.rows_removed,
        delete_sets_added=summary.sets_added,
        delete_sets_removed=summary.sets_removed,
        bytes_added=summary.bytes_added,
        bytes_removed=summary.bytes_removed,
        properties=summary.properties,
        adopt_from=summary.adopt_from,
        metadata_changed=summary.metadata_changed,
    )


def live_entry(live: Live) -> common_pb2.LiveEntry:
    entry = live.entry
    message = common_pb2.LiveEntry(data_version=live.data_version, added_version=live.added)
    if entry.is_delete_set:
        message.delete_set.ParseFromString(entry.payload)
        return message
    message.file.ParseFromString(entry.payload)
    if entry.first_row_id:
        message.file.first_row_id = entry.first_row_id
    return message
