"""Wire <-> core. All external input is checked here and refused with a reason and the facts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from hashlib import blake2b
from types import MappingProxyType
from typing import Any
from uuid import UUID

from google.protobuf.message import Message

from metaservice.core import limits
from metaservice.core.errors import invalid
from metaservice.core.table.meta import Profile, TableMeta
from metaservice.core.table.model import Operation, Principal, Read
from metaservice.core.table.partitions import Partitioning, check_integer, wire_kind
from metaservice.core.table.predicates import (
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
from metaservice.core.table.profiles import feature_known
from metaservice.core.table.properties import PROPERTY_CHARS, check_property
from metaservice.core.table.types import folded
from metaservice.shared.column_types import INTEGERS
from protos.laketx.v1 import common_pb2

NAME = re.compile(r"[A-Za-z0-9_]{1,128}\Z")
MARK_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")
PLAIN_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*\Z")
TABLE_NAME = re.compile(r"[A-Za-z0-9_]{1,128}(\.[A-Za-z0-9_]{1,128})?(@[A-Za-z0-9][A-Za-z0-9_-]{0,63})?\Z")
UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")
CANONICAL_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
COMPARISON = {1: "=", 2: "<>", 3: "<", 4: "<=", 5: ">", 6: ">="}
OPERATIONS = {int(operation): operation for operation in Operation if operation is not Operation.CREATE}
TRANSACTION_STATES = range(1, 6)


def digest(message: Message) -> bytes:
    return blake2b(message.SerializeToString(deterministic=True), digest_size=16).digest()


def txn_id(text: str) -> str:
    if not UUID7.match(text):
        raise invalid("TRANSACTION_ID_INVALID", "the id is not a UUIDv7 in lower case", txn_id=text[:64])
    return text


def table_id(text: str) -> str:
    if CANONICAL_UUID.match(text):
        return text
    try:
        return str(UUID(text))
    except ValueError:
        raise invalid("TABLE_ID_INVALID", table_id=text[:64]) from None


def request_id(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        raise invalid("REQUEST_ID_INVALID", "the id is not a UUID", request_id=text[:64]) from None


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


def properties(message: Mapping[str, str], chars: Mapping[str, int] = MappingProxyType({})) -> dict[str, str]:
    if not message:
        return {}
    if len(message) > limits.PROPERTIES_MAX:
        raise invalid("TOO_MANY_PROPERTIES", count=len(message), most=limits.PROPERTIES_MAX)
    return {
        text(name, "property name", 256): text(value, "property value", chars.get(name, limits.TEXT_CHARS_MAX))
        for name, value in message.items()
    }


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
    for part in message.values:
        name = part.column if part.column in types else _in_any_case(part.column, types)
        if name is None:
            raise invalid("PARTITION_COLUMN_UNKNOWN", column=part.column[:128])
        if name in values:
            raise invalid("PARTITION_COLUMN_TWICE", column=name)
        value = sql_value(part.value, types[name], name)
        if isinstance(value, int) and not isinstance(value, bool):
            check_integer(value, types[name], name)
        values[name] = value
    if len(values) != len(types):
        raise invalid("PARTITION_INCOMPLETE", missing=min(types.keys() - values.keys()))
    encoded = partitioning.encode(values)
    if len(encoded) > limits.PARTITION_BYTES_MAX:  # plain ASCII
        raise invalid("PARTITION_TOO_LONG", bytes=len(encoded), most=limits.PARTITION_BYTES_MAX)
    return encoded


def _in_any_case(name: str, names: Iterable[str]) -> str | None:
    return next((candidate for candidate in names if folded(candidate) == folded(name)), None)


class _Predicates:
    """Converts a predicate tree to core's, within limits."""

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
        column = name if name in self._types else _in_any_case(name[:128], self._types)
        if column is None:
            raise invalid("COLUMN_UNKNOWN", column=name[:128])
        return column

    def _value(self, column: str, message: common_pb2.Value) -> SqlValue:
        return sql_value(message, self._types[column], column)


def predicate(message: common_pb2.Predicate, meta: TableMeta) -> Predicate:
    return _Predicates({column.name: column.type for column in meta.columns}).convert(message)


def reads(messages: Sequence[common_pb2.Read], meta: TableMeta) -> tuple[Read, ...]:
    if len(messages) > limits.READS_MAX:
        raise invalid("TOO_MANY_READS", count=len(messages), most=limits.READS_MAX)
    names = meta.partitioning.names
    parsed = []
    for message in messages:
        if message.partitions:
            if message.HasField("predicate"):
                raise invalid("READ_INVALID", "give either a predicate or partitions")
            named = frozenset(partition(part, meta.partitioning) for part in message.partitions)
            parsed.append(Read(TRUE, named, not message.reads_no_files, None, message.changes_all, wire=message))
        else:
            whole = predicate(message.predicate, meta) if message.HasField("predicate") else TRUE
            part = partition_part(whole, names)
            columns, in_files = frozenset(message.columns), not message.reads_no_files
            parsed.append(Read(part, None, in_files, whole, message.changes_all, columns, wire=message))
    return tuple(parsed)


def kept_reads(messages: Sequence[bytes], before: TableMeta, onto: TableMeta) -> tuple[Read, ...]:
    """Reads that were kept as they came, under an earlier or another definition of the table, with today's names.

    A top-level part about a column that is gone, or has become something else, is TRUE.
    """
    kept = [common_pb2.Read.FromString(raw) for raw in messages]
    names = _names_onto(before, onto)
    if any(name != names.get(folded(name)) for name in (column.name for column in before.columns)):
        for message in kept:
            if message.HasField("predicate"):
                _rename_columns(message.predicate, names)
    return reads(kept, onto)


def _names_onto(before: TableMeta, onto: TableMeta) -> dict[str, str]:
    """The names of columns in `onto`, by those that they had before, in lower case."""
    now = {column.column_id: column for column in onto.columns}
    return {
        folded(column.name): now[column.column_id].name
        for column in before.columns
        if column.column_id in now and _reads_alike(column.type, now[column.column_id].type)
    }


def _reads_alike(before: str, onto: str) -> bool:
    """Whether a value that was compared with a column of the one type can be compared with one of the other."""
    return before == onto or (before in INTEGERS and onto in INTEGERS)


def _rename_columns(message: common_pb2.Predicate, names: Mapping[str, str]) -> None:
    if message.WhichOneof("kind") == "all_of":
        for operand in message.all_of.operands:
            _rename_columns(operand, names)
        return
    leaves = list(_leaves(message))
    if any(folded(leaf.column) not in names for leaf in leaves):
        message.literal = True
        return
    for leaf in leaves:
        leaf.column = names[folded(leaf.column)]


def _leaves(message: common_pb2.Predicate) -> Iterator[Any]:
    kind = message.WhichOneof("kind")
    if kind in ("all_of", "any_of"):
        for operand in getattr(message, kind).operands:
            yield from _leaves(operand)
    elif kind == "negation":
        yield from _leaves(message.negation)
    elif kind not in ("literal", None):
        yield getattr(message, kind)


# -- entries -----------------------------------------------------------------------------------------------------


# -- requests ----------------------------------------------------------------------------------------------------


def operation(number: int) -> Operation:
    parsed = OPERATIONS.get(number)
    if parsed is None:
        raise invalid("OPERATION_INVALID", operation=number)
    return parsed


def mark_name(name: str) -> str:
    """The name of a tag or a cursor."""
    if not MARK_NAME.match(name):
        raise invalid(
            "NAME_INVALID", "use letters, digits, `_`, `-` and `.`, not beginning with `-` or `.`", name=name[:64]
        )
    return name


def bucket(number: int, meta: TableMeta) -> int:
    buckets = meta.buckets if meta.keyed else 1
    if not 0 <= number < buckets:
        raise invalid("BUCKET_OUT_OF_RANGE", bucket=number, buckets=buckets)
    return number


def table_name(name: str) -> str:
    if not TABLE_NAME.match(name):
        raise invalid("NAME_INVALID", "use letters, digits and _, and at most one dot", name=name[:128])
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


def one_profile(name: str, meant: Profile | None) -> Profile | None:
    """Return the profile of a request, named as such or by a property of another system."""
    if not name:
        return meant
    named = profile(name)
    if meant not in (None, named):
        raise invalid("ALTERATION_INVALID", "two profiles are named: choose one", profile=name[:64], other=meant)
    return named


def table_properties(message: Mapping[str, str]) -> dict[str, str]:
    for name, value in message.items():
        check_property(name, value)
    return properties(message, PROPERTY_CHARS)
