"""Record <-> bytes. Core's nouns on one side, the storage messages on the other.

What every commit writes is set field by field, and only where it isn't the default: that costs two thirds of what the
same fields cost as arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from metaservice.core.commit.transaction import Txn
from metaservice.core.table.meta import Namespace, Profile, TableMeta, View
from metaservice.core.table.model import (
    CommitSummary,
    Entry,
    FileKind,
    Footprint,
    Group,
    Live,
    Operation,
    Principal,
    Removed,
    TableCommit,
    hides_beyond,
)
from metaservice.core.table.partitions import Partitioning
from metaservice.core.table.schema import Column
from metaservice.core.varint import varint
from protos.laketx.storage.v1 import records_pb2 as pb

_ADDED, _CHUNK_ENTRY = b"\x5a", b"\x0a"  # tags of CommitRecord.added and ChunkRecord.entries
_DATA_VERSION, _LIVE_ADDED, _LIVE_REMOVED = b"\x68", b"\x70", b"\x78"  # tags of EntryRecord


def encode_entry(entry: Entry) -> bytes:
    """An EntryRecord without versions, made once for all the places that keep it."""
    if entry.encoded:
        return entry.encoded
    record = pb.EntryRecord()
    record.payload, record.path = entry.payload, entry.path
    record.rows, record.bytes = entry.rows, entry.size_bytes
    record.row_id_min, record.row_id_max = entry.row_id_min, entry.row_id_max
    record.data_change = entry.data_change
    if entry.partition:
        record.partition = entry.partition
    if entry.kind:
        record.kind = entry.kind
    if entry.first_row_id:
        record.first_row_id = entry.first_row_id
    if entry.bucket:
        record.bucket = entry.bucket
    if entry.is_delete_set:
        record.is_delete_set = True
        record.touches.extend(entry.touches)
    if entry.carries_row_ids:
        record.carries_row_ids = True
    if entry.external:
        record.external = True
    if entry.inlined:
        record.inlined = True
    entry.encoded = record.SerializeToString()
    return entry.encoded


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
        record.inlined,
    )


def _versions(data_version: int, added: int) -> bytes:
    return _DATA_VERSION + varint(data_version) + _LIVE_ADDED + varint(added)


def encode_live(live: Live, removed: int = 0) -> bytes:
    """The entry's record with its versions: in this format the fields of a message may stand one after the other."""
    raw = encode_entry(live.entry) + _versions(live.data_version, live.added)
    return raw + _LIVE_REMOVED + varint(removed) if removed else raw


def encode_added(commit: TableCommit) -> list[bytes]:
    """`encode_live` of all that a commit adds."""
    version = commit.version
    new = _versions(version, version)
    return [
        encode_entry(live.entry) + (new if live.data_version == version else _versions(live.data_version, live.added))
        for live in commit.added
    ]


def decode_live(raw: bytes) -> tuple[Live, int]:
    """The entry and the version that took it out, 0 where none did."""
    record = pb.EntryRecord.FromString(raw)
    return live_from(record), record.removed


def live_from(record: pb.EntryRecord) -> Live:
    return Live(entry_from(record), record.data_version, record.added)


def join_chunk(entries: Iterable[bytes]) -> bytes:
    """A chunk of entries that are encoded already."""
    return _repeated(_CHUNK_ENTRY, entries)


def _repeated(tag: bytes, messages: Iterable[bytes]) -> bytes:
    """A repeated field of messages that are encoded already."""
    return b"".join(tag + varint(len(raw)) + raw for raw in messages)


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


def encode_logged(
    commit: TableCommit, txn: Txn, added: Sequence[bytes] = (), chunks: int = 0, *, timed: bool = True
) -> bytes:
    """The log's record of a commit, with the time that it has.

    With `chunks` the added entries are kept apart, without it `added` has them encoded.
    """
    footprint = commit.footprint
    files = rows = size = 0
    for live in commit.added:
        entry = live.entry
        if not entry.is_delete_set:
            files += 1
            rows += entry.rows
            size += entry.size_bytes
    who = footprint.principal
    record = pb.CommitRecord()
    record.version = commit.version
    if timed:
        record.time_us = commit.time_us
    record.logical, record.blind = commit.change.logical, footprint.blind
    record.operation, record.txn_id = footprint.operation, footprint.txn_id
    record.principal, record.client = who.name, who.client
    record.read_version = commit.change.read_version
    record.files_added, record.rows_added, record.bytes_added = files, rows, size
    record.partitions.extend(sorted(footprint.partitions))
    if txn.message:
        record.message = txn.message
    if commit.rebased_over:
        record.rebased_over = commit.rebased_over
    if chunks:
        record.added_chunks = chunks
    if files != len(commit.added):
        record.sets_added = len(commit.added) - files
    if txn.properties:
        record.properties.update(txn.properties)
    if txn.adopt_from:
        record.adopt_from = txn.adopt_from
    if footprint.app_ids:
        record.app_ids.extend(footprint.app_ids)
    if footprint.removed or footprint.touched or footprint.groups or footprint.altered:
        _encode_rest(record, footprint)
    return record.SerializeToString() + _repeated(_ADDED, added)


def _encode_rest(record: pb.CommitRecord, footprint: Footprint) -> None:
    gone = [removed for removed in footprint.removed if not removed.is_delete_set]
    record.removed.extend(_ref(removed) for removed in footprint.removed)
    record.touched.extend(_ref(touched) for touched in footprint.touched)
    record.groups.extend(
        pb.GroupRecord(partition=g.partition, bucket=g.bucket, outputs=g.outputs, removed=g.inputs)
        for g in footprint.groups
    )
    record.metadata_changed = footprint.metadata_changed
    record.altered = footprint.altered
    record.features_changed = footprint.features_changed
    record.features_removed = footprint.features_removed
    record.files_removed = len(gone)
    record.rows_removed = sum(removed.rows for removed in gone)
    record.sets_removed = len(footprint.removed) - len(gone)
    record.bytes_removed = sum(removed.size_bytes for removed in gone)


def decode_commit(raw: bytes, chunks: Iterable[bytes] = ()) -> CommitSummary:
    record = pb.CommitRecord.FromString(raw)
    entries = [*record.added, *(entry for chunk in chunks for entry in pb.ChunkRecord.FromString(chunk).entries)]
    own_sets = [e for e in entries if e.is_delete_set and e.data_version == record.version]  # a RESTORE's are older
    touched = frozenset(ref.path for ref in record.touched)
    footprint = Footprint(
        version=record.version,
        time_us=record.time_us,
        txn_id=record.txn_id,
        operation=Operation(record.operation),
        principal=Principal(record.principal, record.client),
        partitions=frozenset(record.partitions),
        added=tuple((e.path, e.partition, e.bucket) for e in entries if not e.is_delete_set),
        removed=tuple(_removed(ref) for ref in record.removed),
        touched=tuple(_removed(ref) for ref in record.touched),
        groups=tuple(Group(g.partition, g.bucket, tuple(g.removed), tuple(g.outputs)) for g in record.groups),
        blind=record.blind,
        metadata_changed=record.metadata_changed,
        features_changed=record.features_changed,
        features_removed=record.features_removed,
        altered=record.altered,
        app_ids=tuple(record.app_ids),
        shared=record.shared,
        hid_anywhere=frozenset(e.partition for e in own_sets if hides_beyond(e.touches, touched)),
    )
    return _summary(record, footprint)


def decode_summary(raw: bytes) -> CommitSummary:
    """The commit as history shows it: without what only judging needs, which may be large."""
    record = pb.CommitRecord.FromString(raw)
    who = Principal(record.principal, record.client)
    return _summary(record, Footprint(record.version, record.time_us, record.txn_id, Operation(record.operation), who))


def _summary(record: pb.CommitRecord, footprint: Footprint) -> CommitSummary:
    return CommitSummary(
        footprint=footprint,
        logical=record.logical,
        message=record.message,
        properties=dict(record.properties),
        read_version=record.read_version,
        rebased_over=record.rebased_over,
        files_added=record.files_added,
        files_removed=record.files_removed,
        rows_added=record.rows_added,
        rows_removed=record.rows_removed,
        sets_added=record.sets_added,
        sets_removed=record.sets_removed,
        bytes_added=record.bytes_added,
        bytes_removed=record.bytes_removed,
        adopt_from=record.adopt_from,
        metadata_changed=record.metadata_changed or record.features_changed,
    )


def added_chunks(raw: bytes) -> int:
    return pb.CommitRecord.FromString(raw).added_chunks


def added_of(raw: bytes, chunks: Iterable[bytes]) -> list[Live]:
    """The entries that a commit added, by its record and its chunks."""
    record = pb.CommitRecord.FromString(raw)
    entries = [*record.added, *(entry for chunk in chunks for entry in pb.ChunkRecord.FromString(chunk).entries)]
    version = record.version
    return [Live(entry_from(entry), entry.data_version or version, entry.added or version) for entry in entries]


def encode_table(meta: TableMeta) -> bytes:
    return pb.TableRecord(
        table_id=meta.table_id,
        name=meta.name,
        columns=[_column_record(column) for column in meta.columns],
        last_column_id=meta.last_column_id,
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
        table_id=record.table_id,
        name=record.name,
        partitioning=Partitioning(tuple((name, types[name]) for name in record.partition_columns)),
        primary_key=tuple(record.primary_key),
        buckets=record.buckets,
        profile=Profile(record.profile),
        schema_version=record.schema_version,
        properties=dict(record.properties),
        features=frozenset(record.features),
        comment=record.comment,
        columns=tuple(_column_from(column, at) for at, column in enumerate(record.columns, start=1)),
        create_time_us=record.create_time_us,
        digest=record.digest,
        last_column_id=record.last_column_id or len(record.columns),
    )


def _column_record(column: Column) -> pb.ColumnRecord:
    return pb.ColumnRecord(
        name=column.name,
        type=column.type,
        nullable=column.nullable,
        comment=column.comment,
        default_sql=column.default_sql,
        column_id=column.column_id,
        nested=[pb.NestedFieldRecord(path=path, field_id=number) for path, number in column.nested],
    )


def _column_from(record: pb.ColumnRecord, position: int) -> Column:
    nested = tuple((field.path, field.field_id) for field in record.nested)
    number = record.column_id or position
    return Column(record.name, record.type, record.nullable, record.comment, number, nested, record.default_sql)


def encode_namespace(namespace: Namespace) -> bytes:
    return pb.NamespaceRecord(
        name=namespace.name,
        properties=namespace.properties,
        create_time_us=namespace.create_time_us,
        digest=namespace.digest,
        since_us=namespace.since_us,
    ).SerializeToString()


def decode_namespace(raw: bytes) -> Namespace:
    record = pb.NamespaceRecord.FromString(raw)
    return Namespace(
        record.name, dict(record.properties), record.create_time_us, record.digest, since_us=record.since_us
    )


def encode_view(view: View) -> bytes:
    return pb.ViewRecord(
        name=view.name,
        view=view.payload,
        create_time_us=view.create_time_us,
        replace_time_us=view.replace_time_us,
        digest=view.digest,
        since_us=view.since_us,
    ).SerializeToString()


def decode_view(raw: bytes) -> View:
    record = pb.ViewRecord.FromString(raw)
    return View(
        record.name,
        record.view,
        record.create_time_us,
        record.replace_time_us,
        record.digest,
        since_us=record.since_us,
    )
