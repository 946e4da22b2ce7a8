"""Columns that Iceberg's clients ask for: of a new table, and those that a schema adds."""

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
    """The columns of a new table; it gives them ids of its own."""
    if schema.get("identifier-field-ids"):
        raise InputError(
            "ICEBERG_WRITE",
            "a table with identifier fields can't be made here: make a primary-key table with LakeTX, whose rows "
            "Iceberg's readers see",
        )
    found = []
    for one in schema["fields"]:
        check_name(one["name"])
        field = _field(one)
        kind = type_text(field.kind)
        found.append(
            catalog_pb2.Column(name=field.name, type=kind, nullable=field.nullable, comment=one.get("doc") or "")
        )
    return found


def added_columns(now: Json, wanted: Json) -> list[common_pb2.SchemaChange]:
    """The columns and fields of structs that the wanted schema has more, by ascending ids."""
    found = [*_added(now["fields"], wanted["fields"], "")]
    return [change for _, change in sorted(found, key=lambda one: one[0])] + _comments(now, wanted)


def _comments(now: Json, wanted: Json) -> list[common_pb2.SchemaChange]:
    """The comments of columns that the wanted schema has otherwise; fields within columns have none here."""
    known = {one["id"]: one for one in now["fields"]}
    found = []
    for one in wanted["fields"]:
        there = known.get(one["id"])
        if there is None:
            continue
        if (there.get("doc") or "") != (one.get("doc") or ""):
            found.append(comment_column(quoted(there["name"]), one.get("doc") or ""))
        before = dict(_docs(there["type"]))
        if any(number in before and before[number] != doc for number, doc in _docs(one["type"])):
            raise InputError(
                "ICEBERG_WRITE", f"the comments of fields within {one['name']} can't be changed, but that of a column"
            )
    return found


def _docs(kind: Any) -> Iterator[tuple[int, str]]:
    """The comments of the fields within a type, by their ids."""
    if isinstance(kind, Mapping):
        for one in kind.get("fields", ()):
            yield one["id"], one.get("doc") or ""
            yield from _docs(one["type"])
        for part in ("element", "key", "value"):
            yield from _docs(kind.get(part))


def check_same(now: Json, wanted: Json) -> None:
    """Refuses a schema that is not what its added columns lead to."""
    keys = [one.get("identifier-field-ids") or [] for one in (now, wanted)]
    if keys[0] != keys[1] or _bare(now["fields"]) != _bare(wanted["fields"]):
        raise InputError(
            "ICEBERG_WRITE",
            "this change of the schema can't be made by Iceberg's clients: they can add optional columns, whose ids "
            "follow the last one; make other changes with LakeTX (ALTER TABLE)",
        )


def _added(now: Sequence[Json], wanted: Sequence[Json], path: str) -> Iterator[tuple[int, common_pb2.SchemaChange]]:
    known = {one["id"]: one for one in now}
    before = ""
    for at, one in enumerate(wanted):
        name = path + quoted(one["name"])
        there = known.get(one["id"])
        if there is None:
            if one.get("required"):
                raise InputError("ICEBERG_WRITE", f"{name} can't be added as a required column: add it as optional")
            check_name(one["name"])
            is_last = at >= len(now)
            place: dict[str, Any] = {} if is_last else {"after": before, "first": not before}
            comment = "" if path else one.get("doc") or ""
            yield one["id"], add_column(name, type_text(_type(one["type"])), comment=comment, **place)
        elif isinstance(there["type"], Mapping) and isinstance(one["type"], Mapping):
            yield from _added_in(there["type"], one["type"], f"{name}.")
        before = one["name"]


def _added_in(now: Json, wanted: Json, path: str) -> Iterator[tuple[int, common_pb2.SchemaChange]]:
    if now.get("type") != wanted.get("type"):
        return
    match wanted["type"]:
        case "struct":
            yield from _added(now["fields"], wanted["fields"], path)
        case "list" if isinstance(wanted["element"], Mapping) and isinstance(now["element"], Mapping):
            yield from _added_in(now["element"], wanted["element"], f"{path}element.")
        case "map" if isinstance(wanted["value"], Mapping) and isinstance(now["value"], Mapping):
            yield from _added_in(now["value"], wanted["value"], f"{path}value.")


def _bare(kind: Any) -> Any:
    """Fields without what clients write in several ways, or change: comments, blanks, whether parts can be NULL."""
    if isinstance(kind, str):
        return kind.replace(" ", "")
    if isinstance(kind, Mapping):
        left = ("doc", "element-required", "value-required", "schema-id", "identifier-field-ids")
        return {name: _bare(part) for name, part in kind.items() if name not in left and part is not None}
    return [_bare(one) for one in kind] if isinstance(kind, Sequence) else kind


def _field(one: Json) -> Field:
    if one.get("initial-default") is not None or one.get("write-default") is not None:
        raise InputError("ICEBERG_WRITE", f"{one['name']} has a default: set it with LakeTX (ALTER TABLE)")
    return Field(one["name"], _type(one["type"]), not one.get("required"), comment=one.get("doc") or "")


def _type(kind: Any) -> Type:
    match kind:
        case str() if kind in WORDS:
            return Atomic(WORDS[kind])
        case str() if digits := DECIMAL.match(kind):
            return Decimal(int(digits[1]), int(digits[2]))
        case {"type": "struct", "fields": fields}:
            return Struct(tuple(_field(one) for one in fields))
        case {"type": "list", "element": element}:
            return Array(_type(element))
        case {"type": "map", "key": key, "value": value}:
            return Map(_type(key), _type(value))
        case _:
            raise InputError("TYPE_NOT_SUPPORTED", f"{kind} can't be a column's type: cast it to one that tables have")
