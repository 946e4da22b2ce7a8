"""Fields of structs by their paths, `address.zip`: finding missing ones in rows, setting them in rows.

A column's own name takes precedence over a path: if a column is called `a.b`, `a.b` means that column.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql import types as t

from metaservice.shared.column_types import quoted as quoted_if_odd
from protos.laketx.v1 import catalog_pb2
from worker.base.errors import InputError
from worker.base.schema import path_below, quoted
from worker.spark.column_types import parse_type

_STEP: Final = re.compile(r"`((?:[^`]|``)+)`|([^.`\s]+)")

Settings = Mapping[str, Column]


def split_path(path: str) -> list[str]:
    return [match[2] or match[1].replace("``", "`") for match in _STEP.finditer(path)]


# -- found missing in rows ---------------------------------------------------------------------------------------------


def missing_fields(given: t.DataType, present: t.DataType, path: str = "") -> Iterator[tuple[str, t.DataType]]:
    """Yield columns and struct fields, at any depth, that the rows have and the table lacks, by path."""
    match given, present:
        case t.StructType(), t.StructType():
            by_name = {field.name.lower(): field for field in present.fields}
            for field in given.fields:
                counterpart = by_name.get(field.name.lower())
                below = path_below(path, field.name if counterpart is None else counterpart.name)
                if counterpart is None:
                    yield below, field.dataType
                else:
                    yield from missing_fields(field.dataType, counterpart.dataType, below)
        case t.ArrayType(), t.ArrayType():
            yield from missing_fields(given.elementType, present.elementType, path_below(path, "element"))
        case t.MapType(), t.MapType():
            yield from missing_fields(given.valueType, present.valueType, path_below(path, "value"))
        case _:
            return


# -- set in rows -------------------------------------------------------------------------------------------------------


def by_column(meta: catalog_pb2.Table, settings: Settings, row: Callable[[str], Column]) -> dict[str, Column]:
    """Return the settings by column; a struct with set fields is rebuilt from the row's other fields.

    `row` returns a column of the old row. A struct that was NULL becomes one of the set fields.
    """
    columns = {column.name.lower(): column for column in meta.columns}
    by_name: dict[str, Column] = {}
    nested: dict[str, dict[tuple[str, ...], Column]] = {}
    for given, value in settings.items():
        parts = [given.strip()] if given.strip().lower() in columns else split_path(given)
        column = columns.get(parts[0].lower()) if parts else None
        if column is None:
            raise InputError("COLUMN_UNKNOWN", f"{meta.name} has no column {given}")
        below = tuple(part.lower() for part in parts[1:])
        fields = nested.setdefault(column.name, {})
        if column.name in by_name or any(_meet(below, other) for other in fields):
            raise InputError("COLUMN_TWICE", f"{given} is set twice")
        if below:
            fields[below] = value
        else:
            by_name[column.name] = value
    for name, fields in nested.items():
        if fields:
            kind = parse_type(columns[name.lower()].type)
            by_name[name] = _rebuilt(row(name), kind, fields, quoted_if_odd(name))
    return by_name


def _meet(path: tuple[str, ...], other: tuple[str, ...]) -> bool:
    shorter = min(len(path), len(other))
    return path[:shorter] == other[:shorter]


def _rebuilt(value: Column, kind: t.DataType, fields: Mapping[tuple[str, ...], Column], path: str) -> Column:
    if not isinstance(kind, t.StructType):
        raise InputError("COLUMN_UNKNOWN", f"{path} is no struct: only fields of structs are set by their path")
    names_present = {field.name.lower() for field in kind.fields}
    for names in fields:
        if names[0] not in names_present:
            raise InputError("COLUMN_UNKNOWN", f"there is no field {path}.{quoted_if_odd(names[0])}")
    parts = []
    for field in kind.fields:
        changes = {names[1:]: new for names, new in fields.items() if names[0] == field.name.lower()}
        old = value.getField(field.name)
        if () in changes:
            part = changes[()]
        elif changes:
            part = _rebuilt(old, field.dataType, changes, path_below(path, field.name))
        else:
            part = old
        parts.append(part.alias(field.name))
    return sf.struct(*parts)


def column_of(side: str = "") -> Callable[[str], Column]:
    """A column of the old row, or of the given side of a join."""
    return lambda name: sf.expr(f"{side}.{quoted(name)}" if side else quoted(name))


def no_row(meta: catalog_pb2.Table) -> Callable[[str], Column]:
    """NULL in every column: the old row of a new row."""
    types = {column.name: column.type for column in meta.columns}
    return lambda name: sf.lit(None).cast(parse_type(types[name]))
