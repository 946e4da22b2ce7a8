"""Messages of Protobuf as documents of JSON: times as texts, bytes as base64. Protobuf's library reads their bytes.

What follows is bounded: no type contains itself, and a message has up to VALUES_MAX values, those that are not set
among them.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any, Final

import pyarrow as pa
from google.protobuf import descriptor, descriptor_pool, message, message_factory

from worker.formats.json_lines import Number, Pairs
from worker.formats.meanings import Meaning, moment, number_or_text, scaled
from worker.formats.proto_files import ProtoError, compile_proto

Field = descriptor.FieldDescriptor
DEPTH_MAX: Final = 32
NODES_MAX: Final = 20_000
VALUES_MAX: Final = 1_000_000
PLACES_MAX: Final = 32  # of a type in types
TYPES_KEPT: Final = 1_000  # of one file
SCALARS: Final[Mapping[int, pa.DataType]] = {
    Field.CPPTYPE_INT32: pa.int32(),
    Field.CPPTYPE_INT64: pa.int64(),
    Field.CPPTYPE_UINT32: pa.int64(),
    Field.CPPTYPE_UINT64: pa.decimal128(20, 0),
    Field.CPPTYPE_DOUBLE: pa.float64(),
    Field.CPPTYPE_FLOAT: pa.float32(),
    Field.CPPTYPE_BOOL: pa.bool_(),
    Field.CPPTYPE_ENUM: pa.string(),
    Field.CPPTYPE_STRING: pa.string(),
}
REALS: Final = (Field.CPPTYPE_DOUBLE, Field.CPPTYPE_FLOAT)
WRAPPERS: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)

Document = Callable[[Any, "_Budget"], Any]


class _Budget:
    """How many values a message may still have."""

    def __init__(self) -> None:
        self._left = VALUES_MAX

    def take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise ProtoError(f"it has more than {VALUES_MAX} values")


class ProtoReader:
    """Reads messages of the types of one file."""

    def __init__(self, text: str, references: Sequence[tuple[str, str]]) -> None:
        """Raises ProtoError."""
        files = compile_proto(text, references).file
        pool = descriptor_pool.DescriptorPool()
        try:
            for file in files:
                pool.AddSerializedFile(file.SerializeToString())
            self._file = pool.FindFileByName(files[-1].name)
        except (TypeError, KeyError, IndexError) as error:
            raise ProtoError(f"it is no file of Protobuf: {error}") from error
        self._readers: dict[tuple[int, ...], tuple[Any, Document, Meaning]] = {}

    def read(self, raw: bytes, at: int) -> tuple[dict[str, Any], Meaning]:
        """The fields of the message whose type's place begins there. Raises ProtoError."""
        places, at = _places(raw, at)
        reader = self._readers.get(places)
        if reader is None:
            kind = self._type_at(places)
            reader = (message_factory.GetMessageClass(kind), *_Types().message(kind, 0))
            if len(self._readers) < TYPES_KEPT:
                self._readers[places] = reader
        made, document, meaning = reader
        try:
            return dict(document(made.FromString(raw[at:]), _Budget())), meaning
        except (message.DecodeError, ValueError, OverflowError) as error:
            if isinstance(error, ProtoError):
                raise
            raise ProtoError(f"its bytes are no message of its type: {error}") from error

    def _type_at(self, places: tuple[int, ...]) -> Any:
        kinds = list(self._file.message_types_by_name.values())
        kind_at = None
        for place in places:
            if place >= len(kinds):
                raise ProtoError("it names a type that its file lacks")
            kind_at = kinds[place]
            kinds = [inner for inner in kind_at.nested_types if not inner.GetOptions().map_entry]
        return kind_at


def _places(raw: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """The place of the type among those of the file, then among those in it, and so on."""
    count, at = _place(raw, at)
    if count > PLACES_MAX:
        raise ProtoError(f"its type is in more than {PLACES_MAX} others")
    places = []
    for _ in range(count):
        place, at = _place(raw, at)
        places.append(place)
    return tuple(places) or (0,), at


def _place(raw: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(raw) or shift > 28:
            raise ProtoError("the place of its type is cut off")
        byte = raw[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if number & 1:  # zigzag: it is negative
        raise ProtoError("the place of its type is negative")
    return number >> 1, at


class _Types:
    """Makes the functions for the types of one message."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._nodes = 0

    def message(self, kind: Any, depth: int) -> tuple[Document, Meaning]:
        name = kind.full_name
        if name in self._open:
            raise ProtoError(f"it has the type {name} inside itself")
        self._open.append(name)
        steps: list[tuple[str, Document]] = []
        meanings: dict[str, Meaning] = {}
        for field in kind.fields:
            self._nodes += 1
            if depth > DEPTH_MAX or self._nodes > NODES_MAX:
                raise ProtoError(f"it is deeper than {DEPTH_MAX} types, or has more than {NODES_MAX} of them")
            document, meanings[field.name] = self._field(field, depth)
            steps.append((field.name, document))
        self._open.remove(name)
        kinds = [(name, meaning.kind) for name, meaning in meanings.items() if meaning.kind is not None]
        struct = pa.struct(kinds) if kinds and len(kinds) == len(meanings) else None

        def read(sent: Any, budget: _Budget) -> Pairs:
            budget.take(len(steps))
            return Pairs([(name, step(sent, budget)) for name, step in steps])

        return read, Meaning("message", struct, fields=meanings)

    def _field(self, field: Any, depth: int) -> tuple[Document, Meaning]:
        name = field.name
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return self._map(field, depth)
        value, meaning = self._value(field, depth)
        if field.is_repeated:

            def read_all(sent: Any, budget: _Budget) -> Any:
                items = getattr(sent, name)
                budget.take(len(items))
                return [value(item, budget) for item in items]

            return read_all, Meaning("repeated", None if meaning.kind is None else pa.list_(meaning.kind))
        if field.has_presence:
            return lambda sent, budget: value(getattr(sent, name), budget) if sent.HasField(name) else None, meaning
        return lambda sent, budget: value(getattr(sent, name), budget), meaning

    def _map(self, field: Any, depth: int) -> tuple[Document, Meaning]:
        name, entry = field.name, field.message_type
        read_key, key_meaning = self._value(entry.fields_by_name["key"], depth)
        value, meaning = self._value(entry.fields_by_name["value"], depth)

        def read(sent: Any, budget: _Budget) -> Pairs:
            items = getattr(sent, name)
            budget.take(len(items))
            return Pairs([(_word(read_key(key, budget)), value(items[key], budget)) for key in items])

        kinds = (key_meaning.kind, meaning.kind)
        return read, Meaning("map", None if None in kinds else pa.map_(*kinds))

    def _value(self, field: Any, depth: int) -> tuple[Document, Meaning]:
        kind = field.message_type
        if kind is None:
            return _scalar(field)
        match kind.full_name:
            case "google.protobuf.Timestamp":
                return _time, Meaning("timestamp", pa.timestamp("us", "UTC"))
            case "google.type.Date":
                return _date, Meaning("date", pa.date32())
            case "confluent.type.Decimal":
                return (lambda value, _: scaled(value.value, value.scale)), Meaning("decimal", None)
            case wrapper if wrapper in WRAPPERS:
                document, meaning = _scalar(kind.fields_by_name["value"])
                return (lambda value, budget: document(value.value, budget)), meaning
            case _:
                return self.message(kind, depth + 1)


# -- values ------------------------------------------------------------------------------------------------------------


def _scalar(field: Any) -> tuple[Document, Meaning]:
    if field.type == Field.TYPE_BYTES:
        return (lambda value, _: b64encode(value).decode()), Meaning("bytes", pa.binary())
    kind = Meaning("value", SCALARS[field.cpp_type])
    if field.cpp_type == Field.CPPTYPE_ENUM:
        names = {number: word.name for number, word in field.enum_type.values_by_number.items()}
        return (lambda value, _: names.get(value, str(value))), kind
    if field.cpp_type in REALS:
        return _real, kind
    if field.cpp_type == Field.CPPTYPE_STRING:
        return _same, replace(kind, document=number_or_text)
    return _same, kind


def _same(value: Any, _: _Budget) -> Any:
    return value


def _real(value: float, _: _Budget) -> Any:
    text = repr(value)
    return Number(text) if text[-1].isdigit() else {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}[text]


def _time(value: Any, _: _Budget) -> str:
    return moment(value.seconds * 1_000_000_000 + value.nanos, 1, 1_000)


def _date(value: Any, _: _Budget) -> str:
    return date(value.year, value.month, value.day).isoformat()


def _word(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)
