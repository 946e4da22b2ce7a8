"""Columns as an Iceberg schema. Column ids are Iceberg's field ids, so evolution needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from metaservice.shared.column_types import Array, Atomic, Decimal, Map, Struct, Type, quoted, read_type
from protos.laketx.v1 import catalog_pb2
from worker.base.errors import InputError
from worker.base.schema import FILE_IDS

PRIMITIVES: Final = {
    "boolean": "boolean",
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
PROMOTED: Final = frozenset({("int", "long"), ("float", "double")})
Columns = Sequence[catalog_pb2.Column]


def iceberg_schema(schema: catalog_pb2.SchemaVersion) -> dict[str, Any]:
    """Return the schema of a version; its id is the schema version."""
    fields = [
        _field(
            column.name, column.column_id, read_type(column.type), column.nullable, column.comment, ids_of(column), ""
        )
        for column in schema.columns
    ]
    return {"type": "struct", "schema-id": schema.schema_version, "fields": fields}


def ids_of(column: catalog_pb2.Column) -> dict[str, int]:
    """Return the ids of the fields inside a column, by path."""
    return {nested_field.path: nested_field.field_id for nested_field in column.nested}


def last_column_id(schemas: Iterable[catalog_pb2.SchemaVersion]) -> int:
    """Return the highest id that a column or field ever had."""
    return max(
        (
            number
            for schema in schemas
            for column in schema.columns
            for number in (column.column_id, *ids_of(column).values())
        ),
        default=0,
    )


@lru_cache(1 << 10)
def primitive(kind: Type) -> str:
    """Return the Iceberg type of a column without parts."""
    match kind:
        case Atomic(name):
            return PRIMITIVES[name]
        case Decimal(precision, scale):
            return f"decimal({precision}, {scale})"
        case _:
            raise ValueError(kind)


def _field(
    name: str, number: int, kind: Type, nullable: bool, comment: str, ids: Mapping[str, int], path: str
) -> dict[str, Any]:
    field = {"id": number, "name": name, "required": not nullable, "type": _type(kind, ids, path)}
    return field | ({"doc": comment} if comment else {})


def _type(kind: Type, ids: Mapping[str, int], path: str) -> Any:
    match kind:
        case Struct(fields):
            listed = [
                _field(
                    field.name, ids[path + quoted(field.name)], field.kind, field.nullable, field.comment, ids, below
                )
                for field in fields
                for below in [f"{path}{quoted(field.name)}."]
            ]
            return {"type": "struct", "fields": listed}
        case Array(element):
            return {
                "type": "list",
                "element-id": ids[f"{path}element"],
                "element-required": False,
                "element": _type(element, ids, f"{path}element."),
            }
        case Map(key, value):
            return {
                "type": "map",
                "key-id": ids[f"{path}key"],
                "key": _type(key, ids, f"{path}key."),
                "value-id": ids[f"{path}value"],
                "value-required": False,
                "value": _type(value, ids, f"{path}value."),
            }
        case _:
            return primitive(kind)


# -- what Iceberg can't say --------------------------------------------------------------------------------------------


def check_promotions(table: str, now: Columns, written: Iterable[Columns]) -> None:
    """Refuse a table with files of a column's older type that Iceberg's readers don't widen."""
    current_types = {number: kind for column in now for number, kind in _leaves(column)}
    for columns in written:
        for column in columns:
            for number, kind in _leaves(column):
                wider = current_types.get(number, kind)
                if not _promotes(kind, wider):
                    raise InputError(
                        "ICEBERG_TYPE",
                        f"{table}: files have {column.name} as {kind}, which Iceberg's readers don't widen to {wider}; "
                        'table.compact("cluster", sort_by=[…]) rewrites them, and newer versions can be shown',
                    )


def _leaves(column: catalog_pb2.Column) -> Iterator[tuple[int, str]]:
    """Yield the ids and types of a column's leaves."""
    ids = ids_of(column)

    def below(kind: Type, number: int, path: str) -> Iterator[tuple[int, str]]:
        match kind:
            case Struct(fields):
                for field in fields:
                    name = path + quoted(field.name)
                    yield from below(field.kind, ids[name], f"{name}.")
            case Array(element):
                yield from below(element, ids[f"{path}element"], f"{path}element.")
            case Map(key, value):
                yield from below(key, ids[f"{path}key"], f"{path}key.")
                yield from below(value, ids[f"{path}value"], f"{path}value.")
            case _:
                yield number, primitive(kind)

    yield from below(read_type(column.type), column.column_id, "")


def _promotes(before: str, after: str) -> bool:
    if before == after or (before, after) in PROMOTED:
        return True
    if before.startswith("decimal") and after.startswith("decimal"):
        return before.partition(",")[2] == after.partition(",")[2]  # the same scale: more digits fit
    return False


# -- files without field ids -------------------------------------------------------------------------------------------


def has_lists(columns: Columns) -> bool:
    """Return whether a column has arrays or maps, whose parts have no field ids in files written without the jar."""

    def inside(kind: Type) -> bool:
        match kind:
            case Array() | Map():
                return True
            case Struct(fields):
                return any(inside(field.kind) for field in fields)
            case _:
                return False

    return any(inside(read_type(column.type)) for column in columns)


def mapping_of(table: str, now: Columns, written: Iterable[Columns]) -> list[dict[str, Any]]:
    """Return Iceberg's name mapping: the names of columns in files without field ids, from the files' schemas."""
    called: dict[int, dict[str, None]] = {}
    owners: dict[tuple[int, str], int] = {}
    below: dict[int, dict[int, None]] = {}  # dropped ones, too: readers ask for every column of a file
    for columns in [now, *written]:
        for parent, number, name in _named(columns):
            if owners.setdefault((parent, name), number) != number:
                raise InputError(
                    "ICEBERG_NAMES",
                    f"{table}: {name} means another column in files whose columns Iceberg tells by name (imports, "
                    'older files, arrays, maps); table.compact("cluster", sort_by=[…]) rewrites them, '
                    "and newer versions can be shown",
                )
            called.setdefault(number, {})[name] = None
            below.setdefault(parent, {})[number] = None

    def mapped(number: int) -> dict[str, Any]:
        mapping: dict[str, Any] = {"field-id": number, "names": [*called[number]]}
        return mapping | ({"fields": [mapped(child) for child in below[number]]} if number in below else {})

    return [
        *(mapped(number) for number in below.get(0, ())),
        *({"field-id": number, "names": [name]} for name, number in FILE_IDS.items()),
    ]


def _named(columns: Columns) -> Iterator[tuple[int, int, str]]:
    """Yield all columns and fields: the id of the parent (0: the table), their own id, and their name."""
    for column in columns:
        ids = ids_of(column)
        yield 0, column.column_id, column.name
        yield from _named_below(read_type(column.type), column.column_id, ids, "")


def _named_below(kind: Type, parent: int, ids: Mapping[str, int], path: str) -> Iterator[tuple[int, int, str]]:
    match kind:
        case Struct(fields):
            parts = [(field.name, field.kind) for field in fields]
        case Array(element):
            parts = [("element", element)]
        case Map(key, value):
            parts = [("key", key), ("value", value)]
        case _:
            return
    for name, part in parts:
        below = path + quoted(name)
        yield parent, ids[below], name
        yield from _named_below(part, ids[below], ids, f"{below}.")
