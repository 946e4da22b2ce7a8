"""Values in the bytes of an Avro record: requested ones are read, all others skipped.

The functions that do so are made once for each file, from its schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from worker.formats.avro_readers import (
    LOGICAL,
    READS,
    SKIPS,
    TEXT_BYTES_MAX,
    AvroError,
    Read,
    Record,
    Skip,
    decimal_of,
    fixed_of,
    mapped_of,
    pairs_of,
    read_null,
    record_of,
    skip_all,
    skip_bytes,
    skip_list,
    skip_sized,
    skip_union,
    union_of,
)

DEPTH_MAX: Final = 32
NODES_MAX: Final = 20_000  # of a schema, each as often as a record has it


class Kind(Enum):
    """The type of a requested field. An optional field may be a union with null."""

    WHOLE = "a whole number"
    TEXT = "a text"
    BYTES = "bytes"
    VALUES = "a record of plain values"
    PAIRS = "a list of pairs, which are read as a mapping"


@dataclass(frozen=True, slots=True)
class Field:
    """A requested field. A required one must be present, and not null."""

    kind: Kind
    is_required: bool = False


Fields = Mapping[str, "Field | Fields"]  # by their names; of records in records, too


def record_reader(schema: Any, fields: Fields) -> Read:
    """Return a function that reads one record of the schema."""
    return _Compiler().record(schema, fields, 0)


TYPES: Final[Mapping[Kind, frozenset[str]]] = {
    Kind.WHOLE: frozenset({"int", "long"}),
    Kind.TEXT: frozenset({"string"}),
    Kind.BYTES: frozenset({"bytes", "fixed"}),
}


class _Compiler:
    """Makes the functions for one schema. Named types are defined before they are used; none contains itself."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._open: list[str] = []
        self._nodes = 0

    # -- what is wanted

    def record(self, schema: Any, fields: Fields, depth: int) -> Read:
        node, name = self._enter(schema, depth)
        if node.get("type") != "record":
            raise AvroError(f"it has {_word(node)} for a record")
        steps: list[tuple[str, Read | None, Skip | None, bool]] = []
        empty: Record = dict.fromkeys(fields)
        for field in self._fields(node):
            requested = fields.get(field["name"])
            if requested is None:
                if skip := self.skip(field["type"], depth + 1):
                    steps.append(("", None, skip, False))
            elif isinstance(requested, Field):
                steps.append((field["name"], self.value(field, requested.kind, depth + 1), None, requested.is_required))
            else:
                steps.append((field["name"], self.record(field["type"], requested, depth + 1), None, True))
        self._leave(name)
        _check_required(fields, {step[0] for step in steps})
        return record_of(empty, steps)

    def value(self, field: Mapping[str, Any], kind: Kind, depth: int) -> Read:
        """Return a reader of a requested field, whose value may be null."""
        branches, is_union = _branches(field["type"])
        self._count(len(branches), depth)
        readers: list[Read | None] = []
        for branch in branches:
            if branch == "null":
                readers.append(read_null)
                continue
            node, name = self._enter(branch, depth)
            readers.append(self._of_kind(node, kind, depth))
            self._leave(name)
        if not is_union and readers[0] is not None:
            return readers[0]
        if all(reader is None or reader is read_null for reader in readers):
            raise AvroError(f"its field {field['name']} is not {kind.value}")
        return union_of(readers, str(field["name"]))

    def _of_kind(self, node: Mapping[str, Any], kind: Kind, depth: int) -> Read | None:
        """Return a reader of a type; None if the type is of another kind, which no value may have."""
        word = _word(node)
        if kind is Kind.VALUES:
            return self._values(node, depth) if word == "record" else None
        if kind is Kind.PAIRS:
            return self._pairs(node, depth) if word == "array" else None
        if word not in TYPES[kind]:
            return None
        return fixed_of(_size(node)) if word == "fixed" else READS[word]

    def _values(self, node: Mapping[str, Any], depth: int) -> Read:
        steps: list[tuple[str, Read | None, Skip | None, bool]] = []
        for field in self._fields(node):
            branches, is_union = _branches(field["type"])
            self._count(len(branches), depth)
            readers = [read_null if branch == "null" else self._plain(branch, depth + 1) for branch in branches]
            read = union_of(readers, str(field["name"])) if is_union else readers[0]
            steps.append((field["name"], read, None, False))
        return record_of({}, steps)

    def _plain(self, schema: Any, depth: int) -> Read:
        node, name = self._enter(schema, depth)
        self._leave(name)
        word = _word(node)
        read = fixed_of(_size(node)) if word == "fixed" else READS.get(word)
        if read is None:
            raise AvroError(f"a partition of it has a value of the type {word}")
        logical = node.get("logicalType")
        if logical == "decimal" and word in TYPES[Kind.BYTES]:
            return mapped_of(read, decimal_of(int(node.get("scale", 0))))
        change = LOGICAL.get(str(logical)) if word in TYPES[Kind.WHOLE] else None
        return read if change is None else mapped_of(read, change)

    def _pairs(self, node: Mapping[str, Any], depth: int) -> Read:
        item, name = self._enter(node["items"], depth + 1)
        steps: list[tuple[str, Read | None, Skip | None, bool]] = []
        for field in self._fields(item):
            read = READS.get(_word(self._node(field["type"])))
            if read is None or field["name"] not in ("key", "value"):
                raise AvroError(f"it has a list of {field['name']} for pairs of columns and values")
            steps.append((field["name"], read, None, True))
        self._leave(name)
        if sorted(step[0] for step in steps) != ["key", "value"]:
            raise AvroError("it has a list for pairs of columns and values")
        return pairs_of(record_of({}, steps))

    # -- what nobody wants

    def skip(self, schema: Any, depth: int) -> Skip | None:
        """Return what skips a value; None if the value takes no bytes."""
        branches, is_union = _branches(schema)
        self._count(len(branches), depth)
        if is_union:
            return skip_union([None if branch == "null" else self.skip(branch, depth + 1) for branch in branches])
        if schema == "null":
            return None
        node, name = self._enter(schema, depth)
        skipper = self._skip(node, depth)
        self._leave(name)
        return skipper

    def _skip(self, node: Mapping[str, Any], depth: int) -> Skip | None:
        match _word(node):
            case "null":
                return None
            case "record":
                parts = [self.skip(field["type"], depth + 1) for field in self._fields(node)]
                return skip_all([part for part in parts if part is not None])
            case "array":
                return skip_list(self.skip(node["items"], depth + 1))
            case "map":
                value = self.skip(node["values"], depth + 1)
                return skip_list(skip_all([skip_sized, *([] if value is None else [value])]))
            case "fixed":
                size = _size(node)
                return skip_bytes(size) if size else None
            case word if word in SKIPS:
                return SKIPS[word]
            case word:
                raise AvroError(f"its schema has the type {word}, which Avro doesn't have")

    # -- the schema

    def _fields(self, node: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        fields: Sequence[Mapping[str, Any]] = node["fields"]
        if not isinstance(fields, list) or not all(isinstance(field, dict) for field in fields):
            raise AvroError("its schema has a record without a list of fields")
        return fields

    def _node(self, schema: Any) -> Mapping[str, Any]:
        if isinstance(schema, str):
            definition = self._named.get(schema)
            return {"type": schema} if definition is None else definition
        if not isinstance(schema, dict):
            raise AvroError("its schema has something else for a type")
        inner = schema.get("type")
        return self._node(inner) if isinstance(inner, dict) else schema

    def _enter(self, schema: Any, depth: int) -> tuple[Mapping[str, Any], str]:
        """The definition of a type, and the name under which it is open while its parts are looked at."""
        self._count(1, depth)
        node = self._node(schema)
        name = str(node.get("name", ""))
        if name and name in self._open:
            raise AvroError(f"its schema has the type {name} inside itself")
        if name:
            space = node.get("namespace")
            self._named[name] = self._named[f"{space}.{name}"] = node
            self._open.append(name)
        return node, name

    def _leave(self, name: str) -> None:
        if name:
            self._open.remove(name)

    def _count(self, nodes: int, depth: int) -> None:
        self._nodes += nodes
        if depth > DEPTH_MAX or self._nodes > NODES_MAX:
            raise AvroError(f"its schema is deeper than {DEPTH_MAX} types, or has more than {NODES_MAX} of them")


def _word(node: Mapping[str, Any]) -> str:
    return str(node.get("type"))


def _size(node: Mapping[str, Any]) -> int:
    size = node.get("size")
    if not isinstance(size, int) or not 0 <= size <= TEXT_BYTES_MAX:
        raise AvroError(f"its schema has a fixed type of {size} bytes")
    return size


def _branches(schema: Any) -> tuple[Sequence[Any], bool]:
    if isinstance(schema, dict) and isinstance(schema.get("type"), list):
        return _branches(schema["type"])
    if not isinstance(schema, list):
        return [schema], False
    if not schema or any(isinstance(branch, list) for branch in schema):
        raise AvroError("its schema has a union that is empty, or in a union")
    return schema, True


def _check_required(fields: Fields, names: set[str]) -> None:
    for name, field in fields.items():
        if name not in names and (not isinstance(field, Field) or field.is_required):
            raise AvroError(f"it has no field {name}")
