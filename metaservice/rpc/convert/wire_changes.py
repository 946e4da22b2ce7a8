"""Requests of transactions, and the changes in them: wire -> core, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from metaservice.core import limits
from metaservice.core.errors import invalid
from metaservice.core.retention.marks import CursorMove
from metaservice.core.table.foreign_properties import check_removable, translated
from metaservice.core.table.meta import Alteration, TableMeta
from metaservice.core.table.model import Change, Operation, Ref, Scope
from metaservice.core.table.partitions import Partitioning
from metaservice.rpc.convert import wire, wire_entries, wire_rows
from metaservice.rpc.convert.wire_schema import schema_changes
from metaservice.service.commit.requests import Append, Begin, Counts, Intent
from protos.laketx.v1 import common_pb2, transaction_pb2

APP_ID_CHARS_MAX: Final = common_pb2.LIMIT_APP_ID_CHARS
NO_REPLACEMENTS: Mapping[str, TableMeta] = {}


def begin(message: transaction_pb2.BeginTransactionRequest, metas: Mapping[str, TableMeta]) -> Begin:
    identity = wire.txn_id(message.txn_id)
    if not 1 <= len(message.tables) <= limits.TABLES_PER_TRANSACTION_MAX:
        raise invalid("TABLES_INVALID", count=len(message.tables))
    intents = []
    for table in message.tables:
        meta = metas[table.table_id]
        intents.append(
            Intent(
                meta.table_id,
                wire.operation(table.operation),
                wire.version(table.schema_version, "schema_version"),
                wire.version(table.read_version, "read_version") if table.HasField("read_version") else None,
                wire.reads(table.reads, meta),
                table.definition,
            )
        )
    if len(intents) > 1 and len({intent.table_id for intent in intents}) != len(intents):
        raise invalid("TABLE_TWICE", "a transaction holds one change per table")
    return Begin(
        identity,
        tuple(intents),
        wire.principal(message.principal),
        wire.text(message.commit_message, "commit_message"),
        wire.digest(message),
        wire.txn_id(message.adopt_from) if message.adopt_from else "",
        wire.properties(message.properties),
        frozenset(message.client_features),
    )


def app_versions(messages: Iterable[common_pb2.AppVersion]) -> tuple[tuple[str, int], ...]:
    versions: dict[str, int] = {}
    for message in messages:
        if message.app_id in versions:
            raise invalid("APP_ID_INVALID", app_id=message.app_id[:64])
        versions[app_id(message.app_id)] = wire.count(message.version, "app version")
    return tuple(versions.items())


def app_id(text: str) -> str:
    if not 0 < len(text) <= APP_ID_CHARS_MAX:
        raise invalid("APP_ID_INVALID", app_id=text[:64])
    return text


def append(message: transaction_pb2.AppendRequest, meta: TableMeta) -> Append:
    identity = wire.txn_id(message.txn_id)
    parsed = Append(
        identity,
        meta.table_id,
        wire.version(message.schema_version, "schema_version"),
        wire.principal(message.principal),
        wire.text(message.commit_message, "commit_message"),
        wire.digest(message),
        wire_entries.entries(message.files, (), meta, identity, Operation.INSERT),
    )
    if message.app_versions:
        parsed.app_versions = app_versions(message.app_versions)
    if message.properties:
        parsed.properties = wire.properties(message.properties)
    if message.client_features:
        parsed.features = frozenset(message.client_features)
    if message.HasField("unchanged_since"):
        parsed.unchanged_since = wire.version(message.unchanged_since, "unchanged_since")
    return parsed


def changes(
    messages: Iterable[common_pb2.Change],
    metas: Mapping[str, TableMeta],
    operations: Mapping[str, Operation],
    txn: str,
    replacements: Mapping[str, TableMeta] = NO_REPLACEMENTS,
) -> tuple[tuple[Change, ...], Counts]:
    """Parse changes. `replacements` are the metadata of tables that the commit redefines."""
    parsed, counts = [], []
    for message in messages:
        meta = metas[message.table_id]
        after = replacements.get(meta.table_id)
        parsed.append(change(message, after or meta, txn, operations.get(meta.table_id, Operation.CUSTOM)))
        if after is not None:
            if parsed[-1].alteration is not None:
                raise invalid("ALTERATION_MISMATCH", "the change has an alteration and a replacement: send one of them")
            parsed[-1].alteration = Alteration(replacement=after)
        counts.append(
            (
                message.registered_files if message.HasField("registered_files") else None,
                message.registered_rows if message.HasField("registered_rows") else None,
            )
        )
    if len(parsed) > 1 and len({parsed_change.table_id for parsed_change in parsed}) != len(parsed):
        raise invalid("TABLE_TWICE", "a transaction holds one change per table")
    return tuple(parsed), tuple(counts)


def cursor_moves(messages: Sequence[transaction_pb2.CursorMove]) -> tuple[CursorMove, ...]:
    if len(messages) > limits.CURSORS_PER_COMMIT_MAX:
        raise invalid("TOO_MANY_CURSORS", count=len(messages), most=limits.CURSORS_PER_COMMIT_MAX)
    return tuple(
        CursorMove(
            wire.table_id(message.table_id),
            wire.mark_name(message.name),
            wire.version(message.expected_version),
            wire.version(message.version),
        )
        for message in messages
    )


def change(message: common_pb2.Change, meta: TableMeta, txn: str, doing: Operation) -> Change:
    partitioning = meta.partitioning
    scope = _scope(message.scope, partitioning) if message.HasField("scope") else None
    parsed = Change(meta.table_id, doing, 0, adds=[], scope=scope, changes_data=message.changes_data)
    if message.files or message.delete_sets:
        parsed.adds = wire_entries.entries(message.files, message.delete_sets, meta, txn, doing)
    if message.reads:
        parsed.reads = wire.reads(message.reads, meta)
    if message.app_ids_read:
        parsed.app_ids_read = tuple(wire.text(identity, "app_id", 256) for identity in message.app_ids_read)
    if message.app_versions:
        parsed.app_versions = app_versions(message.app_versions)
    if message.restore_version:
        parsed.restore_version = wire.version(message.restore_version, "restore_version")
    if message.HasField("alteration"):
        parsed.alteration = alteration(message.alteration)
    if message.HasField("unchanged_since"):
        parsed.unchanged_since = wire.version(message.unchanged_since, "unchanged_since")
    if message.removes:
        parsed.removes = tuple(
            Ref(
                wire_rows.named_path(removed.path),
                wire.partition(removed.partition, partitioning),
                wire.bucket(removed.bucket, meta),
                removed.data_change if removed.HasField("data_change") else True,
            )
            for removed in message.removes
        )
    if message.groups:
        parsed.groups = tuple(
            wire_rows.group(group, wire.partition(group.partition, partitioning), wire.bucket(group.bucket, meta))
            for group in message.groups
        )
    parsed.key_sets = wire_rows.key_sets(
        [
            (wire.partition(key_set.partition, partitioning), wire.bucket(key_set.bucket, meta), key_set)
            for key_set in message.key_sets
        ]
    )
    return parsed


def _scope(message: common_pb2.Scope, partitioning: Partitioning) -> Scope:
    match message.WhichOneof("kind"):
        case "all":
            return Scope(None)
        case "written":
            return Scope(frozenset(), written=True)
        case "named":
            return Scope(frozenset(wire.partition(partition, partitioning) for partition in message.named.partitions))
        case _:
            raise invalid("SCOPE_MISSING")


def alteration(message: common_pb2.Alteration) -> Alteration:
    foreign = translated(message.set_properties)
    set_properties = wire.table_properties(foreign.properties)
    check_removable(message.remove_properties)
    if set(set_properties) & set(message.remove_properties):
        raise invalid("ALTERATION_INVALID", "a property is both set and removed: choose one")
    if set(message.add_features) & set(message.remove_features):
        raise invalid("ALTERATION_INVALID", "a feature is both turned on and off: choose one")
    parsed = Alteration(
        set_properties=set_properties,
        remove_properties=tuple(wire.properties(dict.fromkeys(message.remove_properties, ""))),
        profile=wire.one_profile(message.profile if message.HasField("profile") else "", foreign.profile),
        comment=wire.text(message.comment, "comment") if message.HasField("comment") else None,
        add_features=wire.features([*message.add_features, *foreign.features]),
        remove_features=wire.features(message.remove_features),
        schema_changes=schema_changes(message.schema_changes),
        name=wire.table_name(message.name) if message.HasField("name") else None,
    )
    if not (parsed.changes_features or parsed.changes_metadata or message.set_properties):
        raise invalid("ALTERATION_EMPTY")
    return parsed
