"""Values in the bytes of an Avro record: wanted ones are read, all others skipped.

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
    """What a wanted field may be. Each may be in a union with null, if the field is optional."""

    WHOLE = "a whole number"
    TEXT = "a text"
    BYTES = "bytes"
    VALUES = "a record of plain values"
    PAIRS = "a list of pairs, which are read as a mapping"


@dataclass(frozen=True, slots=True)
class Field:
    """A wanted field; a required one has to be there, and not null."""

    kind: Kind
    is_required: bool = False


Fields = Mapping[str, "Field | Fields"]  # by their names; of records in records, too


def record_reader(schema: Any, fields: Fields) -> Read:
    """A function that reads one record of the schema."""
    return _Compiler().record(schema, fields, 0)


TYPES: Final[Mapping[Kind, frozenset[str]]] = {
    Kind.WHOLE: frozenset({"int", "long"}),
    Kind.TEXT: frozenset({"string"}),
    Kind.BYTES: frozenset({"bytes", "fixed"}),
}


class _Compiler:
    """Makes the functions for one schema. Named types are known by their definitions; none contains itself."""

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
        for one in self._fields(node):
            wanted = fields.get(one["name"])
            if wanted is None:
                if skip := self.skip(one["type"], depth + 1):
                    steps.append(("", None, skip, False))
            elif isinstance(wanted, Field):
                steps.append((one["name"], self.value(one, wanted.kind, depth + 1), None, wanted.is_required))
            else:
                steps.append((one["name"], self.record(one["type"], wanted, depth + 1), None, True))
        self._leave(name)
        _check_required(fields, {one[0] for one in steps})
        return record_of(empty, steps)

    def value(self, field: Mapping[str, Any], kind: Kind, depth: int) -> Read:
        """A wanted value, which may be null."""
        branches, is_union = _branches(field["type"])
        self._count(len(branches), depth)
        found: list[Read | None] = []
        for one in branches:
            if one == "null":
                found.append(read_null)
                continue
            node, name = self._enter(one, depth)
            found.append(self._of_kind(node, kind, depth))
            self._leave(name)
        if not is_union and found[0] is not None:
            return found[0]
        if all(one is None or one is read_null for one in found):
            raise AvroError(f"its field {field['name']} is not {kind.value}")
        return union_of(found, str(field["name"]))

    def _of_kind(self, node: Mapping[str, Any], kind: Kind, depth: int) -> Read | None:
        """None: of another kind, which no value may be."""
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
        for one in self._fields(node):
            branches, is_union = _branches(one["type"])
            self._count(len(branches), depth)
            found = [read_null if each == "null" else self._plain(each, depth + 1) for each in branches]
            read = union_of(found, str(one["name"])) if is_union else found[0]
            steps.append((one["name"], read, None, False))
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
        for one in self._fields(item):
            read = READS.get(_word(self._node(one["type"])))
            if read is None or one["name"] not in ("key", "value"):
                raise AvroError(f"it has a list of {one['name']} for pairs of columns and values")
            steps.append((one["name"], read, None, True))
        self._leave(name)
        if sorted(one[0] for one in steps) != ["key", "value"]:
            raise AvroError("it has a list for pairs of columns and values")
        return pairs_of(record_of({}, steps))

    # -- what nobody wants

    def skip(self, schema: Any, depth: int) -> Skip | None:
        """None: it takes no bytes."""
        branches, is_union = _branches(schema)
        self._count(len(branches), depth)
        if is_union:
            return skip_union([None if one == "null" else self.skip(one, depth + 1) for one in branches])
        if schema == "null":
            return None
        node, name = self._enter(schema, depth)
        found = self._skip(node, depth)
        self._leave(name)
        return found

    def _skip(self, node: Mapping[str, Any], depth: int) -> Skip | None:
        match _word(node):
            case "null":
                return None
            case "record":
                parts = [self.skip(one["type"], depth + 1) for one in self._fields(node)]
                return skip_all([one for one in parts if one is not None])
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
        found: Sequence[Mapping[str, Any]] = node["fields"]
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise AvroError("its schema has a record without a list of fields")
        return found

    def _node(self, schema: Any) -> Mapping[str, Any]:
        if isinstance(schema, str):
            known = self._named.get(schema)
            return {"type": schema} if known is None else known
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
    if not schema or any(isinstance(one, list) for one in schema):
        raise AvroError("its schema has a union that is empty, or in a union")
    return schema, True


def _check_required(fields: Fields, found: set[str]) -> None:
    for name, one in fields.items():
        if name not in found and (not isinstance(one, Field) or one.is_required):
            raise AvroError(f"it has no field {name}")
