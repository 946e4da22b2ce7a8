"""Columns in requests of Iceberg's clients: those of a new table, and those that a schema adds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from metaservice.client import add_column, comment_column
from metaservice.shared.column_types import Array, Atomic, Decimal, Field, Map, Struct, Type, quoted, type_text
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.base.errors import InputError
from worker.base.schema import check_name
from worker.iceberg.metadata.schemas import PRIMITIVES

WORDS: Final = {kind: word for word, kind in PRIMITIVES.items() if word not in ("tinyint", "smallint")}
DECIMAL: Final = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)\Z")
Json = Mapping[str, Any]


def columns_of(schema: Json) -> list[catalog_pb2.Column]:
    """Return the columns of a new table, which assigns their ids."""
    if schema.get("identifier-field-ids"):
        raise InputError(
            "ICEBERG_WRITE",
            "a table with identifier fields can't be made here: make a primary-key table with LakeTX, whose rows "
            "Iceberg's readers see",
        )
    columns = []
    for definition in schema["fields"]:
        check_name(definition["name"])
        field = _field(definition)
        kind = type_text(field.kind)
        columns.append(
            catalog_pb2.Column(name=field.name, type=kind, nullable=field.nullable, comment=definition.get("doc") or "")
        )
    return columns


def added_columns(now: Json, requested: Json) -> list[common_pb2.SchemaChange]:
    """Return the changes that add the requested columns and struct fields, by ascending ids, and set comments."""
    changes = [*_added(now["fields"], requested["fields"], "")]
    return [change for _, change in sorted(changes, key=lambda numbered: numbered[0])] + _comments(now, requested)


def _comments(now: Json, requested: Json) -> list[common_pb2.SchemaChange]:
    """Return the changes of columns' comments. Fields within columns have no comments in a table."""
    current = {field["id"]: field for field in now["fields"]}
    changes = []
    for field in requested["fields"]:
        existing = current.get(field["id"])
        if existing is None:
            continue
        if (existing.get("doc") or "") != (field.get("doc") or ""):
            changes.append(comment_column(quoted(existing["name"]), field.get("doc") or ""))
        before = dict(_docs(existing["type"]))
        if any(number in before and before[number] != doc for number, doc in _docs(field["type"])):
            raise InputError(
                "ICEBERG_WRITE", f"the comments of fields within {field['name']} can't be changed, but that of a column"
            )
    return changes


def _docs(kind: Any) -> Iterator[tuple[int, str]]:
    """Yield the comments of the fields within a type, by their ids."""
    if isinstance(kind, Mapping):
        for field in kind.get("fields", ()):
            yield field["id"], field.get("doc") or ""
            yield from _docs(field["type"])
        for part in ("element", "key", "value"):
            yield from _docs(kind.get(part))


def check_same(now: Json, requested: Json) -> None:
    """Refuse a schema that differs from the current one in more than added columns."""
    keys = [schema.get("identifier-field-ids") or [] for schema in (now, requested)]
    if keys[0] != keys[1] or _bare(now["fields"]) != _bare(requested["fields"]):
        raise InputError(
            "ICEBERG_WRITE",
            "this change of the schema can't be made by Iceberg's clients: they can add optional columns, whose ids "
            "follow the last one; make other changes with LakeTX (ALTER TABLE)",
        )


def _added(now: Sequence[Json], requested: Sequence[Json], path: str) -> Iterator[tuple[int, common_pb2.SchemaChange]]:
    current = {field["id"]: field for field in now}
    before = ""
    for at, field in enumerate(requested):
        name = path + quoted(field["name"])
        existing = current.get(field["id"])
        if existing is None:
            if field.get("required"):
                raise InputError("ICEBERG_WRITE", f"{name} can't be added as a required column: add it as optional")
            check_name(field["name"])
            is_last = at >= len(now)
            place: dict[str, Any] = {} if is_last else {"after": before, "first": not before}
            comment = "" if path else field.get("doc") or ""
            yield field["id"], add_column(name, type_text(_type(field["type"])), comment=comment, **place)
        elif isinstance(existing["type"], Mapping) and isinstance(field["type"], Mapping):
            yield from _added_in(existing["type"], field["type"], f"{name}.")
        before = field["name"]


def _added_in(now: Json, requested: Json, path: str) -> Iterator[tuple[int, common_pb2.SchemaChange]]:
    if now.get("type") != requested.get("type"):
        return
    match requested["type"]:
        case "struct":
            yield from _added(now["fields"], requested["fields"], path)
        case "list" if isinstance(requested["element"], Mapping) and isinstance(now["element"], Mapping):
            yield from _added_in(now["element"], requested["element"], f"{path}element.")
        case "map" if isinstance(requested["value"], Mapping) and isinstance(now["value"], Mapping):
            yield from _added_in(now["value"], requested["value"], f"{path}value.")


def _bare(kind: Any) -> Any:
    """Return a schema without what clients write differently: comments, blanks, whether nested parts can be NULL."""
    if isinstance(kind, str):
        return kind.replace(" ", "")
    if isinstance(kind, Mapping):
        left = ("doc", "element-required", "value-required", "schema-id", "identifier-field-ids")
        return {name: _bare(part) for name, part in kind.items() if name not in left and part is not None}
    return [_bare(member) for member in kind] if isinstance(kind, Sequence) else kind


def _field(field: Json) -> Field:
    if field.get("initial-default") is not None or field.get("write-default") is not None:
        raise InputError("ICEBERG_WRITE", f"{field['name']} has a default: set it with LakeTX (ALTER TABLE)")
    return Field(field["name"], _type(field["type"]), not field.get("required"), comment=field.get("doc") or "")


def _type(kind: Any) -> Type:
    match kind:
        case str() if kind in WORDS:
            return Atomic(WORDS[kind])
        case str() if digits := DECIMAL.match(kind):
            return Decimal(int(digits[1]), int(digits[2]))
        case {"type": "struct", "fields": fields}:
            return Struct(tuple(_field(field) for field in fields))
        case {"type": "list", "element": element}:
            return Array(_type(element))
        case {"type": "map", "key": key, "value": value}:
            return Map(_type(key), _type(value))
        case _:
            raise InputError("TYPE_NOT_SUPPORTED", f"{kind} can't be a column's type: cast it to one that tables have")
