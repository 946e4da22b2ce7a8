"""Messages of Avro as documents: one record each, whose schema a registry has. Foreign bytes, as those of `avro`.

    read, meaning = message_reader(schema, [])
    read(message, at)   # the record's fields in the form of JSON's documents: times as texts, bytes as base64

No type contains itself, and every value but null in a union takes a byte: so no message has more values than bytes.
"""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa

from worker.formats.avro_readers import READS, AvroError, Read, fixed_of, list_block, mapped_of, read_null, union_of
from worker.formats.avro_values import DEPTH_MAX, NODES_MAX
from worker.formats.json_lines import Number, Pairs
from worker.formats.meanings import (
    ANY_SCALE,
    DIGITS_MAX,
    TICKS_US,
    ZONED,
    Meaning,
    day,
    decimal_type,
    moment,
    number_or_text,
    scaled,
)
from worker.formats.meanings import DATES as CONNECT_DATES

FOREIGN: Final = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError, AttributeError, struct.error)
PLAIN: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
UTC_TIME: Final = pa.timestamp("us", "UTC")
LOCAL_TIME: Final = pa.timestamp("us")
WHOLE: Final = ("int", "long")
CONNECT_TIMES: Final = {name: (*ticks, LOCAL_TIME) for name, ticks in TICKS_US.items()}
TIMES: Final[Mapping[str, tuple[int, int, pa.DataType]]] = {  # what a tick has of microseconds, and the type
    "timestamp-millis": (1_000, 1, UTC_TIME),
    "timestamp-micros": (1, 1, UTC_TIME),
    "timestamp-nanos": (1, 1_000, UTC_TIME),
    **CONNECT_TIMES,
}
LOCAL_TIMES: Final[Mapping[str, tuple[int, int]]] = {
    "local-timestamp-millis": (1_000, 1),
    "local-timestamp-micros": (1, 1),
    "local-timestamp-nanos": (1, 1_000),
}
DATES: Final = ("date", *CONNECT_DATES)


@dataclass(frozen=True)
class Part:
    """How values of a type are read."""

    read: Read
    meaning: Meaning
    is_empty: bool = False  # they take no bytes


def message_reader(schema: str, references: Sequence[str]) -> tuple[Read, Meaning]:
    """How records of the schema are read; types that it names are in the others. Raises AvroError."""
    try:
        compiler = _Compiler()
        for text in references:
            compiler.part(json.loads(text), "", 0)
        document = json.loads(schema)
        part = compiler.part(document, "", 0)
    except AvroError:
        raise
    except FOREIGN as error:
        raise AvroError(f"it is no schema of Avro: {error}") from error
    if not isinstance(document, dict) or document.get("type") != "record":
        raise AvroError("it describes no record")
    return part.read, part.meaning


def read_message(read: Read, raw: bytes, at: int) -> dict[str, Any]:
    """The fields of the record that begins there and ends with the bytes. Raises AvroError."""
    try:
        fields, end = read(raw, at)
    except AvroError:
        raise
    except FOREIGN as error:
        raise AvroError(f"its bytes are no record of its schema: {error}") from error
    if end != len(raw):
        raise AvroError("it has other bytes after its record")
    return dict(fields)


class _Compiler:
    """Makes the functions for a schema and what it refers to. Named types are known by their full names."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[Mapping[str, Any], str]] = {}  # with the namespace around the definition
        self._open: list[str] = []
        self._nodes = 0

    def part(self, schema: Any, space: str, depth: int) -> Part:
        self._nodes += 1
        if depth > DEPTH_MAX or self._nodes > NODES_MAX:
            raise AvroError(f"it is deeper than {DEPTH_MAX} types, or has more than {NODES_MAX} of them")
        if isinstance(schema, list):
            return self._union(schema, space, depth)
        if isinstance(schema, str):
            return self._word(schema, space, depth)
        inner = schema["type"]
        match inner:
            case "record" | "enum" | "fixed" | "error":
                return self._define(schema, space, depth)
            case "array":
                return self._array(self._item(schema["items"], space, depth))
            case "map":
                return self._map(self._item(schema["values"], space, depth))
            case str() if inner in PLAIN:
                return _plain(inner, schema)
        return self.part(inner, space, depth + 1)

    def _word(self, word: str, space: str, depth: int) -> Part:
        if word in PLAIN:
            return _plain(word, {})
        if word == "null":
            return Part(read_null, Meaning("null", None), is_empty=True)
        for name in (word if "." in word or not space else f"{space}.{word}", word):
            if name in self._named:
                return self._define(*self._named[name], depth)
        raise AvroError(f"it has the type {word}, which it doesn't define")

    def _define(self, node: Mapping[str, Any], space: str, depth: int) -> Part:
        name = str(node["name"])
        if "." not in name:
            space = str(node.get("namespace") or space)
            name = f"{space}.{name}" if space else name
        space = name.rpartition(".")[0]
        if name in self._open:
            raise AvroError(f"it has the type {name} inside itself")
        self._named[name] = (node, space)
        self._open.append(name)
        match node["type"]:
            case "enum":
                part = _enum(node)
            case "fixed":
                part = _fixed(node)
            case _:
                part = self._record(node, space, depth)
        self._open.remove(name)
        return part

    def _record(self, node: Mapping[str, Any], space: str, depth: int) -> Part:
        steps: list[tuple[str, Read]] = []
        meanings: dict[str, Meaning] = {}
        for field in node["fields"]:
            name = str(field["name"])
            if name in meanings:
                raise AvroError(f"it has a record with the field {name} twice")
            part = self._item(field["type"], space, depth)
            steps.append((name, part.read))
            meanings[name] = part.meaning
        if node.get("connect.name") == ANY_SCALE:
            return _any_scale(steps)
        kinds = [(name, meaning.kind) for name, meaning in meanings.items() if meaning.kind is not None]
        kind = pa.struct(kinds) if kinds and len(kinds) == len(meanings) else None
        return Part(_record_of(steps), Meaning("record", kind, fields=meanings), is_empty=not steps)

    def _item(self, schema: Any, space: str, depth: int) -> Part:
        part = self.part(schema, space, depth + 1)
        if part.is_empty:
            raise AvroError("it has a field, or items, that take no bytes")
        return part

    def _array(self, item: Part) -> Part:
        kind = item.meaning.kind
        return Part(_list_of(item.read), Meaning("array", None if kind is None else pa.list_(kind)))

    def _map(self, item: Part) -> Part:
        kind = item.meaning.kind
        return Part(_map_of(item.read), Meaning("map", None if kind is None else pa.map_(pa.string(), kind)))

    def _union(self, branches: Sequence[Any], space: str, depth: int) -> Part:
        if not branches or any(isinstance(branch, list) for branch in branches):
            raise AvroError("it has a union that is empty, or in a union")
        parts = [self.part(branch, space, depth + 1) for branch in branches]
        values = [part.meaning for part in parts if part.read is not read_null]
        meaning = values[0] if values else parts[0].meaning
        if any(other.kind != meaning.kind for other in values):
            meaning = Meaning("union", None)
        return Part(union_of([part.read for part in parts], "a union"), meaning)


# -- types -------------------------------------------------------------------------------------------------------------


def _plain(word: str, node: Mapping[str, Any]) -> Part:
    read = READS[word]
    named = str(node.get("connect.name"))
    logical = named if named in (*CONNECT_TIMES, *DATES, ZONED) else str(node.get("logicalType"))
    if word in WHOLE and logical in TIMES:
        times, parts, kind = TIMES[logical]
        return Part(mapped_of(read, partial(moment, times=times, parts=parts)), Meaning(logical, kind))
    if word in WHOLE and logical in LOCAL_TIMES:
        times, parts = LOCAL_TIMES[logical]
        return Part(mapped_of(read, partial(_local, times=times, parts=parts)), Meaning(logical, LOCAL_TIME))
    if word in WHOLE and logical in DATES:
        return Part(mapped_of(read, day), Meaning(logical, pa.date32()))
    if word == "bytes":
        return _bytes(_sized_bytes, node)
    if word == "string":
        kind = UTC_TIME if logical == ZONED else PLAIN[word]
        return Part(_text, Meaning("string", kind, number_or_text))
    if word in ("float", "double"):
        return Part(mapped_of(read, _real), Meaning(word, PLAIN[word]))
    return Part(read, Meaning(word, PLAIN[word]))


def _bytes(read: Read, node: Mapping[str, Any]) -> Part:
    if node.get("logicalType") == "decimal":
        scale = int(node.get("scale", 0))
        kind = decimal_type(int(node.get("precision", DIGITS_MAX)), scale)
        return Part(mapped_of(read, partial(scaled, scale=scale)), Meaning("decimal", kind))
    return Part(mapped_of(read, _base64), Meaning("bytes", pa.binary()))


def _fixed(node: Mapping[str, Any]) -> Part:
    size = int(node["size"])
    if size < 0:
        raise AvroError(f"it has a fixed type of {size} bytes")
    return replace(_bytes(fixed_of(size), node), is_empty=not size)


def _enum(node: Mapping[str, Any]) -> Part:
    symbols = [str(symbol) for symbol in node["symbols"]]

    def symbol(number: int) -> str:
        if not 0 <= number < len(symbols):
            raise AvroError(f"a value of it is no symbol of {node['name']}")
        return symbols[number]

    return Part(mapped_of(READS["int"], symbol), Meaning("enum", pa.string()))


def _any_scale(steps: Sequence[tuple[str, Read]]) -> Part:
    """A number of Debezium with a scale of its own. Its bytes were made base64, its scale is a number."""
    if sorted(name for name, _ in steps) != ["scale", "value"]:
        raise AvroError("it has a decimal without scale and value")
    [scale] = [read for name, read in steps if name == "scale"]

    def read(raw: bytes, at: int) -> tuple[Number, int]:
        places, digits = 0, b""
        for name, _ in steps:
            if name == "scale":
                places, at = scale(raw, at)
            else:
                digits, at = _sized_bytes(raw, at)
        return scaled(digits, places), at

    return Part(read, Meaning("decimal", None))


# -- values ------------------------------------------------------------------------------------------------------------


def _base64(raw: bytes) -> str:
    return b64encode(raw).decode()


def _real(value: float) -> Any:
    return Number(repr(value)) if value - value == 0 else _not_finite(value)


def _not_finite(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _local(ticks: int, times: int, parts: int) -> str:
    return moment(ticks, times, parts)[:-1]


def _sized_bytes(raw: bytes, at: int) -> tuple[bytes, int]:
    size, at = READS["long"](raw, at)
    if not 0 <= size <= len(raw) - at:
        raise AvroError("a value of it is cut off")
    return raw[at : at + size], at + size


def _text(raw: bytes, at: int) -> tuple[str, int]:
    size = raw[at]
    if size < 0x80:
        at += 1
        size = (size >> 1) ^ -(size & 1)
    else:
        size, at = READS["long"](raw, at)
    end = at + size
    if not at <= end <= len(raw):
        raise AvroError("a value of it is cut off")
    return raw[at:end].decode(), end


def _record_of(steps: Sequence[tuple[str, Read]]) -> Read:
    def read(raw: bytes, at: int) -> tuple[Pairs, int]:
        fields = Pairs()
        for name, read_field in steps:
            value, at = read_field(raw, at)
            fields.append((name, value))
        return fields, at

    return read


def _list_of(item: Read) -> Read:
    def read(raw: bytes, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while True:
            count, at = list_block(raw, at)
            if not count:
                return items, at
            for _ in range(count):
                value, at = item(raw, at)
                items.append(value)

    return read


def _map_of(item: Read) -> Read:
    def read(raw: bytes, at: int) -> tuple[Pairs, int]:
        pairs = Pairs()
        while True:
            count, at = list_block(raw, at)
            if not count:
                return pairs, at
            for _ in range(count):
                key, at = _text(raw, at)
                value, at = item(raw, at)
                pairs.append((key, value))

    return read
