"""The changes that make the columns of a table those of its source. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from metaservice.shared.column_types import Array, Atomic, Decimal, Field, Map, Struct, Type, quoted, type_text
from protos.laketx.v1 import common_pb2
from worker.base.errors import InputError
from worker.imports.facts import ColumnKey, Columns, SourceSchema, key_of

BETWEEN: Final = "between_names_{}"  # of a column whose new name another one still has


def columns_changes(before: Columns, after: Columns) -> list[common_pb2.SchemaChange]:
    """Return the changes in an order that works: drops, renames, types, additions, places."""
    old_columns = {key_of(column): column for column in before}
    new_columns = {key_of(column): column for column in after}
    changes = [_drop(quoted(column.name)) for key, column in old_columns.items() if key not in new_columns]
    now = {key: column.name for key, column in old_columns.items() if key in new_columns}
    changes += _renames(now, {key: column.name for key, column in new_columns.items() if key in old_columns})
    for key, column in new_columns.items():
        if key in old_columns:
            changes += _settings(old_columns[key], column)
    order = [new_columns[key].name for key in old_columns if key in new_columns]
    for key, column in new_columns.items():
        if key not in old_columns:
            changes.append(_add(quoted(column.name), column))
            order.append(column.name)
    return changes + list(_moves(order, [column.name for column in after]))


def is_same(before: Columns, after: Columns) -> bool:
    return not columns_changes(before, after)


def _renames(now: dict[ColumnKey, str], new_names: dict[ColumnKey, str]) -> Iterator[common_pb2.SchemaChange]:
    """Yield renames. A column whose new name is still taken gets a temporary name first."""
    later: list[ColumnKey] = []
    for key, name in new_names.items():
        if now[key] == name:
            continue
        if any(other != key and taken.lower() == name.lower() for other, taken in now.items()):
            between = BETWEEN.format(len(later))
            yield _rename(now[key], between)
            now[key] = between
            later.append(key)
        else:
            yield _rename(now[key], name)
            now[key] = name
    for key in later:
        yield _rename(now[key], new_names[key])


def _settings(before: Field, after: Field) -> Iterator[common_pb2.SchemaChange]:
    path = quoted(after.name)
    yield from _types(path, before.kind, after.kind)
    if after.nullable and not before.nullable:
        yield common_pb2.SchemaChange(relax=common_pb2.RelaxColumn(path=path))
    if after.comment != before.comment:
        yield common_pb2.SchemaChange(comment=common_pb2.CommentColumn(path=path, comment=after.comment))


def _types(path: str, before: Type, after: Type) -> Iterator[common_pb2.SchemaChange]:
    match before, after:
        case Struct(old), Struct(new):
            names = {field.name: field for field in new}
            old_fields = {field.name: field for field in old}
            for field in new:
                below = f"{path}.{quoted(field.name)}"
                if field.name not in old_fields:
                    yield _add(below, field)
                else:
                    yield from _types(below, old_fields[field.name].kind, field.kind)
            for field in old:
                if field.name not in names:
                    yield _drop(f"{path}.{quoted(field.name)}")
        case Array(), Array():
            yield from _types(f"{path}.element", before.element, after.element)
        case Map(), Map():
            yield from _types(f"{path}.key", before.key, after.key)
            yield from _types(f"{path}.value", before.value, after.value)
        case Atomic() | Decimal(), Atomic() | Decimal() if before != after:
            yield common_pb2.SchemaChange(widen=common_pb2.WidenColumn(path=path, type=type_text(after)))
        case _:  # the same, or a change that the service refuses
            if type(before) is not type(after):
                yield common_pb2.SchemaChange(widen=common_pb2.WidenColumn(path=path, type=type_text(after)))


def _moves(now: list[str], target: Sequence[str]) -> Iterator[common_pb2.SchemaChange]:
    for at, name in enumerate(target):
        if now[at] != name:
            now.remove(name)
            now.insert(at, name)
            place = common_pb2.ColumnPlace(after=quoted(target[at - 1]) if at else "")
            yield common_pb2.SchemaChange(move=common_pb2.MoveColumn(path=quoted(name), place=place))


def _add(path: str, column: Field) -> common_pb2.SchemaChange:
    return common_pb2.SchemaChange(
        add=common_pb2.AddColumn(path=path, type=type_text(column.kind), comment=column.comment)
    )


def _drop(path: str) -> common_pb2.SchemaChange:
    return common_pb2.SchemaChange(drop=common_pb2.DropColumn(path=path))


def _rename(before: str, after: str) -> common_pb2.SchemaChange:
    return common_pb2.SchemaChange(rename=common_pb2.RenameColumn(path=quoted(before), name=after))


# -- names through time ------------------------------------------------------------------------------------------------


def keep_their_names(schemas: Iterable[Columns]) -> bool:
    """Whether each column has one name in all schemas, and each name means one column.

    Fields of structs must: files of other tables are read by name.
    """
    names: dict[int, str] = {}
    ids: dict[str, int] = {}
    nested: dict[tuple[int, str], int] = {}
    named: dict[int, str] = {}
    keeps = True
    for columns in schemas:
        for column in columns:
            is_one = names.setdefault(column.field_id, column.name) == column.name
            keeps &= is_one and ids.setdefault(column.name.lower(), column.field_id) == column.field_id
            for parent, field in fields_below(column.kind, column.field_id):
                same_name = named.setdefault(field.field_id, field.name) == field.name
                if not same_name or nested.setdefault((parent, field.name.lower()), field.field_id) != field.field_id:
                    raise InputError(
                        "IMPORT_SCHEMA",
                        f"the field {field.name} of {column.name} was renamed, or has the name of a dropped one: "
                        "fields of structs in files of other tables are read by name; rewrite the table at its source",
                    )
    return keeps


def fields_below(kind: Type, parent: int) -> Iterator[tuple[int, Field]]:
    match kind:
        case Struct(fields):
            for field in fields:
                yield parent, field
                yield from fields_below(field.kind, field.field_id)
        case Array(element, element_id):
            yield from fields_below(element, element_id)
        case Map(key, value, key_id, value_id):
            yield from fields_below(key, key_id)
            yield from fields_below(value, value_id)
        case Atomic() | Decimal():
            return


def as_then(current: Columns, schemas: Sequence[SourceSchema]) -> list[SourceSchema]:
    """Return each schema with the columns that still exist: their old names and their current types."""
    current_by_id = {column.field_id: column for column in current}
    schemas_then = []
    for schema in schemas:
        columns = tuple(
            Field(
                column.name,
                current_by_id[column.field_id].kind,
                True,
                column.field_id,
                current_by_id[column.field_id].comment,
            )
            for column in schema.columns
            if column.field_id in current_by_id
        )
        if columns:
            schemas_then.append(SourceSchema(schema.schema_id, columns))
    schemas_then[-1] = SourceSchema(schemas_then[-1].schema_id, current)
    return schemas_then
