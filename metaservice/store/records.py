"""Record <-> bytes. Core's nouns on one side, the storage messages on the other."""

from __future__ import annotations

from collections.abc import Iterable

from metaservice.core.model import (
    Advice,
    CommitSummary,
    Conflict,
    Entry,
    FileKind,
    Footprint,
    GroupDone,
    Live,
    Operation,
    Principal,
    Profile,
    Removed,
    Rule,
    TableCommit,
    TableMeta,
)
from metaservice.core.partitions import Partitioning
from metaservice.core.transaction import TableOutcome, Txn, TxnState, TxnTable
from protos.laketx.storage.v1 import records_pb2 as pb


def entry_record(entry: Entry, data_version: int = 0, added: int = 0, removed: int = 0) -> pb.EntryRecord:
    return pb.EntryRecord(
        payload=entry.payload,
        is_delete_set=entry.is_delete_set,
        path=entry.path,
        partition=entry.partition,
        bucket=entry.bucket,
        kind=int(entry.kind),
        rows=entry.rows,
        bytes=entry.size_bytes,
        first_row_id=entry.first_row_id,
        row_id_min=entry.row_id_min,
        row_id_max=entry.row_id_max,
        data_change=entry.data_change,
        data_version=data_version,
        added=added,
        removed=removed,
        touches=entry.touches,
        carries_row_ids=entry.carries_row_ids,
        external=entry.external,
    )


def entry_from(record: pb.EntryRecord) -> Entry:
    return Entry(
        record.path,
        record.partition,
        record.bucket,
        FileKind(record.kind),
        record.rows,
        record.bytes,
        record.payload,
        record.data_change,
        record.is_delete_set,
        record.carries_row_ids,
        record.external,
        record.first_row_id,
        record.row_id_min,
        record.row_id_max,
        tuple(record.touches),
    )


def encode_live(live: Live, removed: int = 0) -> bytes:
    return entry_record(live.entry, live.data_version, live.added, removed).SerializeToString()


def decode_live(raw: bytes) -> tuple[Live, int]:
    """The entry and the version that took it out, 0 where none did."""
    record = pb.EntryRecord.FromString(raw)
    return Live(entry_from(record), record.data_version, record.added), record.removed


def encode_chunk(entries: Iterable[Entry]) -> bytes:
    return pb.ChunkRecord(entries=[entry_record(entry) for entry in entries]).SerializeToString()


def decode_chunk(raw: bytes) -> list[Entry]:
    return [entry_from(record) for record in pb.ChunkRecord.FromString(raw).entries]


def _ref(removed: Removed) -> pb.RefRecord:
    return pb.RefRecord(
        partition=removed.partition,
        bucket=removed.bucket,
        path=removed.path,
        data_change=removed.data_change,
        is_delete_set=removed.is_delete_set,
        data_version=removed.data_version,
        rows=removed.rows,
        bytes=removed.size_bytes,
        added=removed.added,
    )


def _removed(ref: pb.RefRecord) -> Removed:
    return Removed(
        ref.path,
        ref.partition,
        ref.bucket,
        ref.added,
        ref.data_version,
        ref.rows,
        ref.bytes,
        ref.is_delete_set,
        ref.data_change,
    )


def encode_commit(commit: TableCommit, txn: Txn, chunks: int = 0) -> bytes:
    """The log's record; with `chunks` the added entries are kept apart."""
    footprint = commit.footprint
    files = [live.entry for live in commit.added if not live.entry.is_delete_set]
    gone = [removed for removed in footprint.removed if not removed.is_delete_set]
    inline = [] if chunks else commit.added
    return pb.CommitRecord(
        version=commit.version,
        time_us=commit.time_us,
        logical=commit.change.logical,
        operation=int(footprint.operation),
        txn_id=footprint.txn_id,
        principal=footprint.principal.name,
        client=footprint.principal.client,
        message=txn.message,
        properties=txn.properties,
        read_version=commit.change.read_version,
        rebased_over=commit.rebased_over,
        added=[entry_record(live.entry, live.data_version, live.added) for live in inline],
        added_chunks=chunks,
        removed=[_ref(removed) for removed in footprint.removed],
        touched=[_ref(touched) for touched in footprint.touched],
        groups=[
            pb.GroupRecord(partition=g.partition, bucket=g.bucket, outputs=g.outputs, removed=g.removed)
            for g in footprint.groups
        ],
        blind=footprint.blind,
        metadata_changed=footprint.metadata_changed,
        altered=footprint.altered,
        features_changed=footprint.features_changed,
        features_removed=footprint.features_removed,
        app_ids=footprint.app_ids,
        partitions=sorted(footprint.partitions),
        files_added=len(files),
        files_removed=len(gone),
        rows_added=sum(entry.rows for entry in files),
        rows_removed=sum(removed.rows for removed in gone),
        sets_added=len(commit.added) - len(files),
        sets_removed=len(footprint.removed) - len(gone),
        bytes_added=sum(entry.size_bytes for entry in files),
        bytes_removed=sum(removed.size_bytes for removed in gone),
    ).SerializeToString()


def decode_commit(raw: bytes, chunks: Iterable[bytes] = ()) -> CommitSummary:
    record = pb.CommitRecord.FromString(raw)
    added = [(e.path, e.partition, e.bucket) for e in record.added if not e.is_delete_set]
    for chunk in chunks:
        added += [(e.path, e.partition, e.bucket) for e in decode_chunk(chunk) if not e.is_delete_set]
    footprint = Footprint(
        record.version,
        record.time_us,
        record.txn_id,
        Operation(record.operation),
        Principal(record.principal, record.client),
        frozenset(record.partitions),
        tuple(added),
        tuple(_removed(ref) for ref in record.removed),
        tuple(_removed(ref) for ref in record.touched),
        tuple(GroupDone(g.partition, g.bucket, tuple(g.outputs), tuple(g.removed)) for g in record.groups),
        record.blind,
        record.metadata_changed,
        record.features_changed,
        record.features_removed,
        record.altered,
        tuple(record.app_ids),
    )
    return _summary(record, footprint)


def decode_summary(raw: bytes) -> CommitSummary:
    """The commit as history shows it: without what only judging needs, which may be large."""
    record = pb.CommitRecord.FromString(raw)
    who = Principal(record.principal, record.client)
    return _summary(record, Footprint(record.version, record.time_us, record.txn_id, Operation(record.operation), who))


def _summary(record: pb.CommitRecord, footprint: Footprint) -> CommitSummary:
    return CommitSummary(
        footprint,
        record.logical,
        record.message,
        dict(record.properties),
        record.read_version,
        record.rebased_over,
        record.files_added,
        record.files_removed,
        record.rows_added,
        record.rows_removed,
        record.sets_added,
        record.sets_removed,
        record.bytes_added,
        record.bytes_removed,
    )


def added_chunks(raw: bytes) -> int:
    return pb.CommitRecord.FromString(raw).added_chunks


def encode_table(meta: TableMeta) -> bytes:
    return pb.TableRecord(
        table_id=meta.table_id,
        name=meta.name,
        columns=[pb.ColumnRecord(name=n, type=t, nullable=null, comment=c) for n, t, null, c in meta.columns],
        partition_columns=meta.partitioning.names,
        primary_key=meta.primary_key,
        buckets=meta.buckets,
        profile=meta.profile.value,
        properties=meta.properties,
        features=sorted(meta.features),
        comment=meta.comment,
        schema_version=meta.schema_version,
        create_time_us=meta.create_time_us,
        digest=meta.digest,
    ).SerializeToString()


def decode_table(raw: bytes) -> TableMeta:
    record = pb.TableRecord.FromString(raw)
    types = {column.name: column.type for column in record.columns}
    return TableMeta(
        record.table_id,
        record.name,
        Partitioning(tuple((name, types[name]) for name in record.partition_columns)),
        tuple(record.primary_key),
        record.buckets,
        Profile(record.profile),
        record.schema_version,
        dict(record.properties),
        frozenset(record.features),
        record.comment,
        tuple((c.name, c.type, c.nullable, c.comment) for c in record.columns),
        record.create_time_us,
        record.digest,
    )


def encode_txn(txn: Txn) -> bytes:
    record = pb.TransactionRecord(
        txn_id=txn.txn_id,
        state=int(txn.state),
        tables=[
            pb.TxnTableRecord(
                table_id=t.table_id,
                operation=int(t.operation),
                read_version=t.read_version,
                schema_version=t.schema_version,
                adopted=t.adopted,
            )
            for t in txn.tables.values()
        ],
        principal=txn.principal.name,
        client=txn.principal.client,
        message=txn.message,
        begin_us=txn.begin_us,
        end_us=txn.end_us,
        begin_digest=txn.begin_digest,
        commit_digest=txn.commit_digest,
        commit_time_us=txn.commit_time_us,
        outcomes=[
            pb.TxnOutcomeRecord(
                table_id=o.table_id,
                version=o.version,
                logical=o.logical,
                rebased_over=o.rebased_over,
                already_applied=o.already_applied,
            )
            for o in txn.outcomes
        ],
        abort_reason=txn.abort_reason,
        adopted_by=txn.adopted_by,
        adopt_from=txn.adopt_from,
        files=txn.files,
        properties=txn.properties,
        adoptable=txn.adoptable,
    )
    if txn.conflict is not None:
        record.conflict.CopyFrom(_conflict_record(txn.conflict))
    return record.SerializeToString()


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
    )


def _conflict_from(record: pb.ConflictRecord) -> Conflict:
    return Conflict(
        record.table_id,
        Rule(record.rule),
        Footprint(
            record.winner_version,
            record.winner_time_us,
            record.winner_txn_id,
            Operation(record.winner_operation),
            Principal(record.winner_principal, record.winner_client),
        ),
        Operation(record.operation),
        record.read_version,
        Advice(record.advice),
        record.partition,
        record.path,
    )


def decode_txn(raw: bytes) -> Txn:
    record = pb.TransactionRecord.FromString(raw)
    return Txn(
        record.txn_id,
        {
            t.table_id: TxnTable(
                t.table_id, Operation(t.operation), t.read_version, t.schema_version, adopted=t.adopted
            )
            for t in record.tables
        },
        Principal(record.principal, record.client),
        record.message,
        dict(record.properties),
        record.begin_us,
        record.begin_digest,
        record.adopt_from,
        TxnState(record.state),
        record.end_us,
        record.commit_digest,
        record.commit_time_us,
        tuple(
            TableOutcome(o.table_id, o.version, o.logical, o.rebased_over, o.already_applied) for o in record.outcomes
        ),
        _conflict_from(record.conflict) if record.HasField("conflict") else None,
        record.abort_reason,
        record.adopted_by,
        record.adoptable,
        record.files,
    )
