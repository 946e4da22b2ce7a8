"""Wire <-> core. Everything from outside is checked here and refused with a reason and the facts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from hashlib import blake2b
from typing import Any
from uuid import UUID

from pyroaring import BitMap64

from metaservice.core import limits
from metaservice.core.errors import invalid
from metaservice.core.model import (
    Alteration,
    Change,
    Entry,
    FileKind,
    Group,
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
from metaservice.core.profiles import feature_known, property_known
from metaservice.service.requests import Append, Begin, Commit, Intent
from protos.laketx.v1 import catalog_pb2, common_pb2, transaction_pb2

NAME = re.compile(r"[A-Za-z0-9_]{1,128}\Z")
TABLE_NAME = re.compile(r"[A-Za-z0-9_]{1,128}(\.[A-Za-z0-9_]{1,128})?\Z")
TYPE = re.compile(r"[a-z_]+(\(\d+(,\s*\d+)?\))?\Z")
UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")
CANONICAL_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
COMPARISON = {1: "=", 2: "<>", 3: "<", 4: "<=", 5: ">", 6: ">="}
OPERATIONS = {int(one): one for one in Operation if one is not Operation.CREATE}
TRANSACTION_STATES = range(1, 6)


def digest(message: Any) -> bytes:
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
    return Principal(text(message.name, "principal.name", 256), text(message.client, "principal.client", 256))


def properties(message: Mapping[str, str]) -> dict[str, str]:
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
    types = dict(partitioning.columns)
    if not types and not message.values:
        return ""
    values: dict[str, SqlValue] = {}
    for one in message.values:
        if one.column not in types:
            raise invalid("PARTITION_COLUMN_UNKNOWN", column=one.column[:128])
        if one.column in values:
            raise invalid("PARTITION_COLUMN_TWICE", column=one.column)
        value = sql_value(one.value, types[one.column], one.column)
        if isinstance(value, int) and not isinstance(value, bool):
            check_integer(value, types[one.column], one.column)
        values[one.column] = value
    if len(values) != len(types):
        raise invalid("PARTITION_INCOMPLETE", missing=min(types.keys() - values.keys()))
    return partitioning.encode(values)


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
        if name not in self._types:
            raise invalid("COLUMN_UNKNOWN", column=name[:128])
        return name

    def _value(self, column: str, message: common_pb2.Value) -> SqlValue:
        return sql_value(message, self._types[column], column)


def predicate(message: common_pb2.Predicate, meta: TableMeta) -> Predicate:
    return _Predicates({name: kind for name, kind, _, _ in meta.columns}).convert(message)


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
            found.append(Read(TRUE, named, not message.reads_no_files))
        else:
            whole = predicate(message.predicate, meta) if message.HasField("predicate") else TRUE
            found.append(Read(partition_part(whole, names), None, not message.reads_no_files))
    return tuple(found)


# -- entries -----------------------------------------------------------------------------------------------------


def entry_path(path: str, txn: str, *, external: bool) -> str:
    if not path or len(path) > limits.PATH_CHARS_MAX or "\x00" in path:
        raise invalid("PATH_INVALID", path=path[:128])
    if external:
        return path
    parts = path.split("/")
    if len(parts) < 2 or parts[0] != txn or any(part in ("", ".", "..") for part in parts) or "\\" in path:
        raise invalid("PATH_OUTSIDE_TRANSACTION", "staged files lie in the transaction's own folder", path=path[:128])
    return path


def written_under(message: common_pb2.DataFile, meta: TableMeta) -> bytes:
    """The schema version of a file that names none, to be put behind its other fields."""
    if message.schema_version:
        return b""
    return common_pb2.DataFile(schema_version=meta.schema_version).SerializeToString()


def data_file(message: common_pb2.DataFile, meta: TableMeta, txn: str, operation: Operation) -> Entry:
    path = entry_path(message.path, txn, external=message.external)
    if message.HasField("first_row_id"):
        raise invalid("ROW_ID_SET", "first_row_id is the server's", path=path)
    buckets = meta.buckets if meta.keyed else 1
    if not 0 <= message.bucket < buckets:
        raise invalid("BUCKET_OUT_OF_RANGE", path=path, bucket=message.bucket, buckets=buckets)
    kinds = (1, 2) if meta.keyed else (0,)
    if message.kind not in kinds:
        raise invalid("FILE_KIND_INVALID", path=path, kind=message.kind)
    low, high = -1, -1
    if message.HasField("row_id_min") and message.HasField("row_id_max") and message.carries_row_ids:
        low, high = count(message.row_id_min, "row_id_min"), count(message.row_id_max, "row_id_max")
        if low > high:
            raise invalid("ROW_ID_RANGE_INVALID", path=path)
    change = message.data_change if operation is Operation.CUSTOM and message.HasField("data_change") else True
    return Entry(
        path,
        partition(message.partition, meta.partitioning),
        message.bucket,
        FileKind(message.kind),
        count(message.rows, "rows", limits.FILE_COUNT_MAX),
        count(message.bytes, "bytes", limits.FILE_COUNT_MAX),
        message.SerializeToString(deterministic=True) + written_under(message, meta),
        change and operation not in (Operation.MINOR_COMPACT, Operation.MAJOR_COMPACT, Operation.CLUSTER),
        carries_row_ids=message.carries_row_ids,
        external=message.external,
        row_id_min=low,
        row_id_max=high,
    )


def delete_set(message: common_pb2.DeleteSet, meta: TableMeta, txn: str, operation: Operation) -> Entry:
    path = entry_path(message.path, txn, external=False)
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
    if rows == 0 or low > high:
        raise invalid("DELETE_SET_EMPTY", path=path)
    count(high, "row_id_max")
    change = message.data_change if operation is Operation.CUSTOM and message.HasField("data_change") else True
    known = common_pb2.DeleteSet()
    known.CopyFrom(message)
    known.rows, known.row_id_min, known.row_id_max = rows, low, high
    return Entry(
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
        touches=tuple(message.touches),
    )


def entries(
    files: Sequence[common_pb2.DataFile],
    delete_sets: Sequence[common_pb2.DeleteSet],
    meta: TableMeta,
    txn: str,
    operation: Operation,
) -> list[Entry]:
    if len(files) + len(delete_sets) > limits.FILES_PER_MESSAGE_MAX:
        raise invalid("TOO_MANY_FILES_IN_MESSAGE", count=len(files), most=limits.FILES_PER_MESSAGE_MAX)
    found = [data_file(one, meta, txn, operation) for one in files]
    found += [delete_set(one, meta, txn, operation) for one in delete_sets]
    if len({entry.path for entry in found}) != len(found):
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
    if len({intent.table_id for intent in intents}) != len(intents):
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
    begun = Begin(
        identity,
        (Intent(meta.table_id, Operation.INSERT, version(message.schema_version, "schema_version")),),
        principal(message.principal),
        text(message.commit_message, "commit_message"),
        digest(message),
        "",
        properties(message.properties),
        frozenset(message.client_features),
    )
    files = entries(message.files, (), meta, identity, Operation.INSERT)
    return Append(begun, tuple(files), app_versions(message.app_versions))


def commit(
    message: transaction_pb2.CommitTransactionRequest,
    metas: Mapping[str, TableMeta],
    operations: Mapping[str, Operation],
) -> Commit:
    identity = txn_id(message.txn_id)
    changes, counts = [], []
    for one in message.changes:
        meta = metas[one.table_id]
        changes.append(change(one, meta, identity, operations.get(meta.table_id, Operation.CUSTOM)))
        counts.append(
            (
                one.registered_files if one.HasField("registered_files") else None,
                one.registered_rows if one.HasField("registered_rows") else None,
            )
        )
    if len({one.table_id for one in changes}) != len(changes):
        raise invalid("TABLE_TWICE", "a transaction holds one change for each table")
    return Commit(identity, tuple(changes), tuple(counts), digest(message))


def change(message: common_pb2.Change, meta: TableMeta, txn: str, doing: Operation) -> Change:
    partitioning = meta.partitioning
    scope: Scope | None = None
    kind = message.scope.WhichOneof("kind") if message.HasField("scope") else None
    if kind == "all":
        scope = Scope(None)
    elif kind == "written":
        scope = Scope(frozenset(), written=True)
    elif kind == "named":
        scope = Scope(frozenset(partition(one, partitioning) for one in message.scope.named.partitions))
    elif message.HasField("scope"):
        raise invalid("SCOPE_MISSING")
    return Change(
        meta.table_id,
        doing,
        0,
        reads(message.reads, meta),
        tuple(text(one, "app_id", 256) for one in message.app_ids_read),
        app_versions(message.app_versions),
        entries(message.files, message.delete_sets, meta, txn, doing),
        tuple(
            Ref(
                one.path,
                partition(one.partition, partitioning),
                bucket(one.bucket, meta),
                one.data_change if one.HasField("data_change") else True,
            )
            for one in message.removes
        ),
        scope,
        version(message.restore_version, "restore_version"),
        tuple(
            Group(
                partition(one.partition, partitioning),
                bucket(one.bucket, meta),
                tuple(one.inputs),
                tuple(one.outputs),
            )
            for one in message.groups
        ),
        alteration(message.alteration) if message.HasField("alteration") else None,
        message.changes_data,
    )


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
        tuple(table_properties(dict.fromkeys(message.remove_properties, ""))),
        profile(message.profile) if message.HasField("profile") else None,
        text(message.comment, "comment") if message.HasField("comment") else None,
        features(message.add_features),
        features(message.remove_features),
    )
    if not found.changes_features and not found.changes_metadata:
        raise invalid("ALTERATION_EMPTY")
    return found


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
    for name in message:
        if not property_known(name):
            raise invalid("PROPERTY_UNKNOWN", "put your own under user.", property=name[:128])
    return properties(message)


def new_table(message: catalog_pb2.CreateTableRequest) -> TableMeta:  # noqa: C901 - one case a kind
    table = message.table
    if not TABLE_NAME.match(table.name):
        raise invalid("NAME_INVALID", "letters, digits and _; at most one dot", name=table.name[:128])
    if not 1 <= len(table.columns) <= limits.COLUMNS_MAX:
        raise invalid("COLUMNS_INVALID", "at least one column", count=len(table.columns))
    types: dict[str, str] = {}
    nullable: dict[str, bool] = {}
    for column in table.columns:
        if not NAME.match(column.name):
            raise invalid("NAME_INVALID", "letters, digits and _", name=column.name[:128])
        if column.name in types:
            raise invalid("COLUMN_TWICE", column=column.name)
        if not TYPE.match(column.type) or (wire_kind(column.type) is None):
            raise invalid("TYPE_UNKNOWN", column=column.name, type=column.type[:64])
        types[column.name], nullable[column.name] = column.type, column.nullable
    for name in (*table.partition_columns, *table.primary_key):
        if name not in types:
            raise invalid("COLUMN_UNKNOWN", column=name[:128])
    for names, what in ((table.partition_columns, "partition"), (table.primary_key, "key")):
        if len(set(names)) != len(names):
            raise invalid("COLUMN_TWICE", "named twice", what=what)
    for name in table.primary_key:
        if nullable[name]:
            raise invalid("KEY_NULLABLE", "key columns are not nullable", column=name)
    if table.primary_key and not 1 <= table.buckets <= limits.BUCKETS_MAX:
        raise invalid("BUCKETS_INVALID", buckets=table.buckets, most=limits.BUCKETS_MAX)
    if not table.primary_key and table.buckets:
        raise invalid("BUCKETS_INVALID", "an append table has none", buckets=table.buckets)
    return TableMeta(
        table_id(message.request_id),
        table.name,
        Partitioning(tuple((name, types[name]) for name in table.partition_columns)),
        tuple(table.primary_key),
        table.buckets,
        profile(table.profile) if table.profile else Profile.MAXCOMPUTE,
        1,
        table_properties(table.properties),
        frozenset(features(table.features)),
        text(table.comment, "comment"),
        tuple((c.name, c.type, c.nullable, text(c.comment, "column comment")) for c in table.columns),
        0,
        digest(message).hex(),
    )
