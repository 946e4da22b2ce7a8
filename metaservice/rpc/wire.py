"""Wire <-> core. Everything from outside is checked here and refused with a reason and the facts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from hashlib import blake2b
from uuid import UUID

from google.protobuf.message import Message
from pyroaring import BitMap64

from metaservice.core import limits
from metaservice.core.errors import invalid
from metaservice.core.external import canonical_file
from metaservice.core.marks import CursorMove
from metaservice.core.model import (
    COMPACTIONS,
    Alteration,
    Change,
    Entry,
    FileKind,
    Operation,
    Principal,
    Profile,
    Read,
    Ref,
    Scope,
    TableMeta,
)
from metaservice.core.partitions import Partitioning, check_integer, wire_kind
from metaservice.core.predicates import (
    TRUE,
    AllOf,
    AnyOf,
    Compare,
    InList,
    IsNull,
    Literal,
    Not,
    Predicate,
    SqlValue,
    StartsWith,
    partition_part,
)
from metaservice.core.profiles import feature_known
from metaservice.core.properties import check_property
from metaservice.core.types import folded
from metaservice.rpc import wire_rows
from metaservice.rpc.wire_schema import schema_changes
from metaservice.service.requests import Append, Begin, Counts, Intent
from protos.laketx.v1 import common_pb2, transaction_pb2

NAME = re.compile(r"[A-Za-z0-9_]{1,128}\Z")
MARK_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")
PLAIN_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*\Z")
TABLE_NAME = re.compile(r"[A-Za-z0-9_]{1,128}(\.[A-Za-z0-9_]{1,128})?\Z")
UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")
CANONICAL_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
COMPARISON = {1: "=", 2: "<>", 3: "<", 4: "<=", 5: ">", 6: ">="}
OPERATIONS = {int(one): one for one in Operation if one is not Operation.CREATE}
TRANSACTION_STATES = range(1, 6)
NO_FEATURES: frozenset[str] = frozenset()


def digest(message: Message) -> bytes:
    return blake2b(message.SerializeToString(deterministic=True), digest_size=16).digest()


def txn_id(text: str) -> str:
    if not UUID7.match(text):
        raise invalid("TRANSACTION_ID_INVALID", "a UUIDv7 in lower case", txn_id=text[:64])
    return text


def table_id(text: str) -> str:
    if CANONICAL_UUID.match(text):
        return text
    try:
        return str(UUID(text))
    except ValueError:
        raise invalid("TABLE_ID_INVALID", table_id=text[:64]) from None


def text(value: str, what: str, most: int = limits.TEXT_CHARS_MAX) -> str:
    if len(value) > most:
        raise invalid("TEXT_TOO_LONG", what=what, chars=len(value), most=most)
    return value


def count(value: int, what: str, most: int = limits.COUNT_MAX) -> int:
    if not 0 <= value <= most:
        raise invalid("COUNT_OUT_OF_RANGE", what=what, value=value)
    return value


def version(value: int, what: str = "version") -> int:
    if value < 0:
        raise invalid("VERSION_INVALID", what=what, value=value)
    return value


def principal(message: common_pb2.Principal) -> Principal:
    return _principal(message.name, message.client)


@lru_cache(maxsize=1024)  # the same few on every call
def _principal(name: str, client: str) -> Principal:
    return Principal(text(name, "principal.name", 256), text(client, "principal.client", 256))


def properties(message: Mapping[str, str]) -> dict[str, str]:
    if not message:
        return {}
    if len(message) > limits.PROPERTIES_MAX:
        raise invalid("TOO_MANY_PROPERTIES", count=len(message), most=limits.PROPERTIES_MAX)
    return {text(name, "property name", 256): text(value, "property value") for name, value in message.items()}


# -- values, partitions, predicates ------------------------------------------------------------------------------


def sql_value(message: common_pb2.Value, type_name: str, column: str) -> SqlValue:  # noqa: C901 - one case a kind
    kind = message.WhichOneof("kind")
    if kind is None:
        raise invalid("VALUE_MISSING", column=column)
    if kind == "null":
        return None
    if kind != wire_kind(type_name):
        raise invalid("VALUE_TYPE_MISMATCH", column=column, type=type_name, given=kind)
    if kind == "integer":
        return message.integer
    if kind == "text":
        return text(message.text, column)
    if kind == "real":
        if math.isnan(message.real):
            raise invalid("VALUE_NAN", column=column)
        return message.real
    if kind == "decimal":
        try:
            number = Decimal(text(message.decimal, column, 80))
        except InvalidOperation:
            raise invalid("VALUE_INVALID", column=column, value=message.decimal[:80]) from None
        if not number.is_finite() or abs(number.adjusted()) > 76:
            raise invalid("VALUE_INVALID", column=column, value=message.decimal[:80])
        return number
    if kind == "boolean":
        return message.boolean
    if kind == "date":
        return message.date
    if kind == "timestamp_us":
        return message.timestamp_us
    return bytes(message.binary)


def partition(message: common_pb2.Partition, partitioning: Partitioning) -> str:
    if not partitioning.columns and not message.values:
        return ""
    types = dict(partitioning.columns)
    values: dict[str, SqlValue] = {}
    for one in message.values:
        name = one.column if one.column in types else _in_any_case(one.column, types)
        if name is None:
            raise invalid("PARTITION_COLUMN_UNKNOWN", column=one.column[:128])
        if name in values:
            raise invalid("PARTITION_COLUMN_TWICE", column=name)
        value = sql_value(one.value, types[name], name)
        if isinstance(value, int) and not isinstance(value, bool):
            check_integer(value, types[name], name)
        values[name] = value
    if len(values) != len(types):
        raise invalid("PARTITION_INCOMPLETE", missing=min(types.keys() - values.keys()))
    found = partitioning.encode(values)
    if len(found) > limits.PARTITION_BYTES_MAX:  # plain ASCII
        raise invalid("PARTITION_TOO_LONG", bytes=len(found), most=limits.PARTITION_BYTES_MAX)
    return found


def _in_any_case(name: str, known: Iterable[str]) -> str | None:
    return next((one for one in known if folded(one) == folded(name)), None)


class _Predicates:
    """Turns a predicate tree into core's, within bounds."""

    def __init__(self, types: Mapping[str, str]) -> None:
        self._types = types
        self._nodes = 0

    def convert(self, message: common_pb2.Predicate, depth: int = 0) -> Predicate:  # noqa: C901 - one case a kind
        self._nodes += 1
        if self._nodes > limits.PREDICATE_NODES_MAX or depth > limits.PREDICATE_DEPTH_MAX:
            raise invalid("PREDICATE_TOO_LARGE", nodes=limits.PREDICATE_NODES_MAX, depth=limits.PREDICATE_DEPTH_MAX)
        kind = message.WhichOneof("kind")
        match kind:
            case "literal":
                return Literal(message.literal)
            case "compare":
                operator = COMPARISON.get(message.compare.comparison)
                if operator is None:
                    raise invalid("COMPARISON_INVALID", comparison=message.compare.comparison)
                column = self._column(message.compare.column)
                return Compare(column, operator, self._value(column, message.compare.value))
            case "in_list":
                column = self._column(message.in_list.column)
                if not message.in_list.values:
                    raise invalid("IN_LIST_EMPTY", column=column)
                self._nodes += len(message.in_list.values)
                return InList(column, tuple(self._value(column, value) for value in message.in_list.values))
            case "is_null":
                return IsNull(self._column(message.is_null.column))
            case "starts_with":
                column = self._column(message.starts_with.column)
                if wire_kind(self._types[column]) != "text":
                    raise invalid("VALUE_TYPE_MISMATCH", column=column, type=self._types[column], given="text")
                return StartsWith(column, message.starts_with.prefix)
            case "all_of" | "any_of":
                operands = (message.all_of if kind == "all_of" else message.any_of).operands
                if not operands:
                    raise invalid("PREDICATE_EMPTY", connective=kind)
                converted = tuple(self.convert(operand, depth + 1) for operand in operands)
                return AllOf(converted) if kind == "all_of" else AnyOf(converted)
            case "negation":
                return Not(self.convert(message.negation, depth + 1))
            case _:
                raise invalid("PREDICATE_EMPTY")

    def _column(self, name: str) -> str:
        found = name if name in self._types else _in_any_case(name[:128], self._types)
        if found is None:
            raise invalid("COLUMN_UNKNOWN", column=name[:128])
        return found

    def _value(self, column: str, message: common_pb2.Value) -> SqlValue:
        return sql_value(message, self._types[column], column)


def predicate(message: common_pb2.Predicate, meta: TableMeta) -> Predicate:
    return _Predicates({column.name: column.type for column in meta.columns}).convert(message)


def reads(messages: Sequence[common_pb2.Read], meta: TableMeta) -> tuple[Read, ...]:
    if len(messages) > limits.READS_MAX:
        raise invalid("TOO_MANY_READS", count=len(messages), most=limits.READS_MAX)
    names = meta.partitioning.names
    found = []
    for message in messages:
        if message.partitions:
            if message.HasField("predicate"):
                raise invalid("READ_INVALID", "a predicate or partitions, not both")
            named = frozenset(partition(one, meta.partitioning) for one in message.partitions)
            found.append(Read(TRUE, named, not message.reads_no_files, None, message.changes_all))
        else:
            whole = predicate(message.predicate, meta) if message.HasField("predicate") else TRUE
            part = partition_part(whole, names)
            found.append(Read(part, None, not message.reads_no_files, whole, message.changes_all))
    return tuple(found)


# -- entries -----------------------------------------------------------------------------------------------------


def check_path(path: str, txn: str) -> None:
    if not path or len(path) > limits.PATH_CHARS_MAX or "\x00" in path:
        raise invalid("PATH_INVALID", path=path[:128])
    parts = path.split("/")
    if len(parts) < 2 or parts[0] != txn or any(part in ("", ".", "..") for part in parts) or "\\" in path:
        raise invalid("PATH_OUTSIDE_TRANSACTION", "staged files lie in the transaction's own folder", path=path[:128])


def external_file(message: common_pb2.DataFile) -> tuple[str, common_pb2.DataFile]:
    """Its path in one spelling, and the message that says it; the request stays as it was sent."""
    if len(message.path) > limits.PATH_CHARS_MAX:
        raise invalid("PATH_INVALID", "too long", most=limits.PATH_CHARS_MAX)
    path = canonical_file(message.path)
    if path != message.path:
        message = common_pb2.DataFile.FromString(message.SerializeToString())
        message.path = path
    return path, message


KEYED_KINDS = {int(kind): kind for kind in (FileKind.BASE, FileKind.DELTA)}
APPEND_KINDS = {int(FileKind.APPEND): FileKind.APPEND}


def data_files(messages: Iterable[common_pb2.DataFile], meta: TableMeta, txn: str, operation: Operation) -> list[Entry]:
    """There may be very many: what they have in common is worked out once."""
    folder, newest, partitioning = f"{txn}/", meta.schema_version, meta.partitioning
    mark, is_partitioned = schema_mark(newest), bool(partitioning.columns)
    kinds, buckets = (KEYED_KINDS, meta.buckets) if meta.keyed else (APPEND_KINDS, 1)
    changes_data, says_itself = operation not in COMPACTIONS, operation is Operation.CUSTOM
    found: list[Entry] = []
    for sent in messages:
        message, path, external = sent, sent.path, sent.external
        plain = path.startswith(folder) and PLAIN_NAME.match(path, len(folder)) and len(path) <= limits.PATH_CHARS_MAX
        if external:
            path, message = external_file(sent)
        elif not plain:
            check_path(path, txn)
        if message.HasField("first_row_id"):
            raise invalid("ROW_ID_SET", "first_row_id is the server's", path=path)
        bucket_number, schema_version = message.bucket, message.schema_version
        if bucket_number and not 0 < bucket_number < buckets:
            raise invalid("BUCKET_OUT_OF_RANGE", path=path, bucket=bucket_number, buckets=buckets)
        kind = kinds.get(message.kind)
        if kind is None:
            raise invalid("FILE_KIND_INVALID", path=path, kind=message.kind)
        if message.tombstones and not (kind is FileKind.DELTA and 0 < message.tombstones <= message.rows):
            raise invalid("TOMBSTONES_INVALID", "a delta file's, at most its rows", path=path, count=message.tombstones)
        if not 0 <= schema_version <= newest:
            raise invalid("SCHEMA_VERSION_INVALID", path=path, asked=schema_version, newest=newest)
        is_placed = is_partitioned or message.HasField("partition")
        entry = Entry(
            path,
            partition(message.partition, partitioning) if is_placed else "",
            bucket_number,
            kind,
            count(message.rows, "rows", limits.FILE_COUNT_MAX),
            count(message.bytes, "bytes", limits.FILE_COUNT_MAX),
            message.SerializeToString() if schema_version else message.SerializeToString() + mark,
            message.data_change if says_itself and message.HasField("data_change") else changes_data,
            False,
            False,
            external,
        )
        if len(entry.payload) > limits.ENTRY_PLAIN_BYTES_MAX:
            wire_rows.check_size(entry)
        if message.carries_row_ids:
            _carry_row_ids(entry, message)
        found.append(entry)
    return found


def _carry_row_ids(entry: Entry, message: common_pb2.DataFile) -> None:
    entry.carries_row_ids = True
    if message.HasField("row_id_min") and message.HasField("row_id_max"):
        low, high = count(message.row_id_min, "row_id_min"), count(message.row_id_max, "row_id_max")
        if low > high:
            raise invalid("ROW_ID_RANGE_INVALID", path=entry.path)
        entry.row_id_min, entry.row_id_max = low, high


@lru_cache(maxsize=1_024)
def schema_mark(schema_version: int) -> bytes:
    """What, behind a DataFile's bytes, sets its schema_version."""
    return common_pb2.DataFile(schema_version=schema_version).SerializeToString()


def delete_set(message: common_pb2.DeleteSet, meta: TableMeta, txn: str, operation: Operation) -> Entry:
    path = message.path
    check_path(path, txn)
    if meta.keyed:
        raise invalid("DELETE_SET_NOT_ALLOWED", "primary-key tables hide rows by key", path=path)
    if message.bitmap:
        try:
            bitmap = BitMap64.deserialize(message.bitmap)
            rows, low, high = len(bitmap), bitmap.min(), bitmap.max()
        except Exception as error:  # the library raises whatever it meets in foreign bytes
            raise invalid("DELETE_SET_UNREADABLE", path=path) from error
        if message.rows not in (0, rows):
            raise invalid("DELETE_SET_COUNT", path=path, declared=message.rows, found=rows)
    else:
        rows = count(message.rows, "rows", limits.FILE_COUNT_MAX)
        low, high = count(message.row_id_min, "row_id_min"), count(message.row_id_max, "row_id_max")
        wire_rows.check_ranges(message, low, high)
    if rows == 0 or low > high:
        raise invalid("DELETE_SET_EMPTY", path=path)
    count(high, "row_id_max")
    change = message.data_change if operation is Operation.CUSTOM and message.HasField("data_change") else True
    known = common_pb2.DeleteSet()
    known.CopyFrom(message)
    known.rows, known.row_id_min, known.row_id_max = rows, low, high
    found = Entry(
        path,
        partition(message.partition, meta.partitioning),
        0,
        FileKind.APPEND,
        rows,
        count(message.bytes, "bytes", limits.FILE_COUNT_MAX),
        known.SerializeToString(deterministic=True),
        change,
        is_delete_set=True,
        row_id_min=low,
        row_id_max=high,
        touches=tuple(map(wire_rows.named_path, message.touches)),
    )
    wire_rows.check_size(found)
    return found


def entries(
    files: Sequence[common_pb2.DataFile],
    delete_sets: Sequence[common_pb2.DeleteSet],
    meta: TableMeta,
    txn: str,
    operation: Operation,
) -> list[Entry]:
    if len(files) + len(delete_sets) > limits.FILES_PER_MESSAGE_MAX:
        raise invalid("TOO_MANY_FILES_IN_MESSAGE", count=len(files), most=limits.FILES_PER_MESSAGE_MAX)
    found = data_files(files, meta, txn, operation)
    found += [delete_set(one, meta, txn, operation) for one in delete_sets]
    if len(found) > 1 and len({entry.path for entry in found}) != len(found):
        raise invalid("PATH_TWICE", "a path stands twice in one message")
    return found


# -- requests ----------------------------------------------------------------------------------------------------


def operation(number: int) -> Operation:
    found = OPERATIONS.get(number)
    if found is None:
        raise invalid("OPERATION_INVALID", operation=number)
    return found


def begin(message: transaction_pb2.BeginTransactionRequest, metas: Mapping[str, TableMeta]) -> Begin:
    identity = txn_id(message.txn_id)
    if not 1 <= len(message.tables) <= limits.TABLES_PER_TRANSACTION_MAX:
        raise invalid("TABLES_INVALID", "between one table and the limit", count=len(message.tables))
    intents = []
    for one in message.tables:
        meta = metas[one.table_id]
        intents.append(
            Intent(
                meta.table_id,
                operation(one.operation),
                version(one.schema_version, "schema_version"),
                version(one.read_version, "read_version") if one.HasField("read_version") else None,
                reads(one.reads, meta),
            )
        )
    if len(intents) > 1 and len({intent.table_id for intent in intents}) != len(intents):
        raise invalid("TABLE_TWICE", "a transaction holds one change for each table")
    return Begin(
        identity,
        tuple(intents),
        principal(message.principal),
        text(message.commit_message, "commit_message"),
        digest(message),
        txn_id(message.adopt_from) if message.adopt_from else "",
        properties(message.properties),
        frozenset(message.client_features),
    )


def app_versions(messages: Iterable[common_pb2.AppVersion]) -> tuple[tuple[str, int], ...]:
    found: dict[str, int] = {}
    for one in messages:
        if not one.app_id or len(one.app_id) > 256 or one.app_id in found:
            raise invalid("APP_ID_INVALID", "given, once, up to 256 characters", app_id=one.app_id[:64])
        found[one.app_id] = count(one.version, "app version")
    return tuple(found.items())


def append(message: transaction_pb2.AppendRequest, meta: TableMeta) -> Append:
    identity = txn_id(message.txn_id)
    found = Append(
        identity,
        meta.table_id,
        version(message.schema_version, "schema_version"),
        principal(message.principal),
        text(message.commit_message, "commit_message"),
        digest(message),
        entries(message.files, (), meta, identity, Operation.INSERT),
    )
    if message.app_versions:
        found.app_versions = app_versions(message.app_versions)
    if message.properties:
        found.properties = properties(message.properties)
    if message.client_features:
        found.features = frozenset(message.client_features)
    return found


def changes(
    messages: Iterable[common_pb2.Change], metas: Mapping[str, TableMeta], operations: Mapping[str, Operation], txn: str
) -> tuple[tuple[Change, ...], Counts]:
    found, counts = [], []
    for one in messages:
        meta = metas[one.table_id]
        found.append(change(one, meta, txn, operations.get(meta.table_id, Operation.CUSTOM)))
        counts.append(
            (
                one.registered_files if one.HasField("registered_files") else None,
                one.registered_rows if one.HasField("registered_rows") else None,
            )
        )
    if len(found) > 1 and len({one.table_id for one in found}) != len(found):
        raise invalid("TABLE_TWICE", "a transaction holds one change for each table")
    return tuple(found), tuple(counts)


def cursor_moves(messages: Sequence[transaction_pb2.CursorMove]) -> tuple[CursorMove, ...]:
    if len(messages) > limits.CURSORS_PER_COMMIT_MAX:
        raise invalid("TOO_MANY_CURSORS", count=len(messages), most=limits.CURSORS_PER_COMMIT_MAX)
    return tuple(
        CursorMove(table_id(one.table_id), mark_name(one.name), version(one.expected_version), version(one.version))
        for one in messages
    )


def mark_name(name: str) -> str:
    """Of a tag or a cursor."""
    if not MARK_NAME.match(name):
        raise invalid("NAME_INVALID", "letters, digits, `_`, `-` and `.`, not first `-` or `.`", name=name[:64])
    return name


def change(message: common_pb2.Change, meta: TableMeta, txn: str, doing: Operation) -> Change:
    partitioning = meta.partitioning
    scope = _scope(message.scope, partitioning) if message.HasField("scope") else None
    found = Change(meta.table_id, doing, 0, adds=[], scope=scope, changes_data=message.changes_data)
    if message.files or message.delete_sets:
        found.adds = entries(message.files, message.delete_sets, meta, txn, doing)
    if message.reads:
        found.reads = reads(message.reads, meta)
    if message.app_ids_read:
        found.app_ids_read = tuple(text(one, "app_id", 256) for one in message.app_ids_read)
    if message.app_versions:
        found.app_versions = app_versions(message.app_versions)
    if message.restore_version:
        found.restore_version = version(message.restore_version, "restore_version")
    if message.HasField("alteration"):
        found.alteration = alteration(message.alteration)
    if message.removes:
        found.removes = tuple(
            Ref(
                wire_rows.named_path(one.path),
                partition(one.partition, partitioning),
                bucket(one.bucket, meta),
                one.data_change if one.HasField("data_change") else True,
            )
            for one in message.removes
        )
    if message.groups:
        found.groups = tuple(
            wire_rows.group(one, partition(one.partition, partitioning), bucket(one.bucket, meta))
            for one in message.groups
        )
    found.key_sets = wire_rows.key_sets(
        [(partition(one.partition, partitioning), bucket(one.bucket, meta), one) for one in message.key_sets]
    )
    return found


def _scope(message: common_pb2.Scope, partitioning: Partitioning) -> Scope:
    match message.WhichOneof("kind"):
        case "all":
            return Scope(None)
        case "written":
            return Scope(frozenset(), written=True)
        case "named":
            return Scope(frozenset(partition(one, partitioning) for one in message.named.partitions))
        case _:
            raise invalid("SCOPE_MISSING")


def bucket(number: int, meta: TableMeta) -> int:
    buckets = meta.buckets if meta.keyed else 1
    if not 0 <= number < buckets:
        raise invalid("BUCKET_OUT_OF_RANGE", bucket=number, buckets=buckets)
    return number


def alteration(message: common_pb2.Alteration) -> Alteration:
    set_properties = table_properties(message.set_properties)
    if set(set_properties) & set(message.remove_properties):
        raise invalid("ALTERATION_INVALID", "a property is set and removed")
    if set(message.add_features) & set(message.remove_features):
        raise invalid("ALTERATION_INVALID", "a feature is turned on and off")
    found = Alteration(
        set_properties,
        tuple(properties(dict.fromkeys(message.remove_properties, ""))),
        profile(message.profile) if message.HasField("profile") else None,
        text(message.comment, "comment") if message.HasField("comment") else None,
        features(message.add_features),
        features(message.remove_features),
        schema_changes(message.schema_changes),
        name=table_name(message.name) if message.HasField("name") else None,
    )
    if not found.changes_features and not found.changes_metadata:
        raise invalid("ALTERATION_EMPTY")
    return found


def table_name(name: str) -> str:
    if not TABLE_NAME.match(name):
        raise invalid("NAME_INVALID", "letters, digits and _; at most one dot", name=name[:128])
    return name


def features(names: Iterable[str]) -> tuple[str, ...]:
    for name in names:
        if not feature_known(name) or not NAME.match(name):
            raise invalid("FEATURE_UNKNOWN", feature=name[:128])
    return tuple(names)


def profile(name: str) -> Profile:
    try:
        return Profile(name)
    except ValueError:
        raise invalid("PROFILE_UNKNOWN", profile=name[:64], known=", ".join(Profile)) from None


def table_properties(message: Mapping[str, str]) -> dict[str, str]:
    for name, value in message.items():
        check_property(name, value)
    return properties(message)
