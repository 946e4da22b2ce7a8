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
    """In the order in which they are possible: drops, renames, types, additions, places."""
    known = {key_of(one): one for one in before}
    wanted = {key_of(one): one for one in after}
    found = [_drop(quoted(one.name)) for key, one in known.items() if key not in wanted]
    now = {key: one.name for key, one in known.items() if key in wanted}
    found += _renames(now, {key: one.name for key, one in wanted.items() if key in known})
    for key, one in wanted.items():
        if key in known:
            found += _settings(known[key], one)
    order = [wanted[key].name for key in known if key in wanted]
    for key, one in wanted.items():
        if key not in known:
            found.append(_add(quoted(one.name), one))
            order.append(one.name)
    return found + list(_moves(order, [one.name for one in after]))


def is_same(before: Columns, after: Columns) -> bool:
    return not columns_changes(before, after)


def _renames(now: dict[ColumnKey, str], wanted: dict[ColumnKey, str]) -> Iterator[common_pb2.SchemaChange]:
    """A column whose new name is taken gets one in between."""
    later: list[ColumnKey] = []
    for key, name in wanted.items():
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
        yield _rename(now[key], wanted[key])


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
            names = {one.name: one for one in new}
            known = {one.name: one for one in old}
            for one in new:
                below = f"{path}.{quoted(one.name)}"
                if one.name not in known:
                    yield _add(below, one)
                else:
                    yield from _types(below, known[one.name].kind, one.kind)
            for one in old:
                if one.name not in names:
                    yield _drop(f"{path}.{quoted(one.name)}")
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


def _moves(now: list[str], wanted: Sequence[str]) -> Iterator[common_pb2.SchemaChange]:
    for at, name in enumerate(wanted):
        if now[at] != name:
            now.remove(name)
            now.insert(at, name)
            place = common_pb2.ColumnPlace(after=quoted(wanted[at - 1]) if at else "")
            yield common_pb2.SchemaChange(move=common_pb2.MoveColumn(path=quoted(name), place=place))


def _add(path: str, one: Field) -> common_pb2.SchemaChange:
    return common_pb2.SchemaChange(add=common_pb2.AddColumn(path=path, type=type_text(one.kind), comment=one.comment))


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
            for parent, one in fields_below(column.kind, column.field_id):
                same_name = named.setdefault(one.field_id, one.name) == one.name
                if not same_name or nested.setdefault((parent, one.name.lower()), one.field_id) != one.field_id:
                    raise InputError(
                        "IMPORT_SCHEMA",
                        f"the field {one.name} of {column.name} was renamed, or has the name of a dropped one: fields "
                        "of structs in files of other tables are read by name; rewrite the table at its source",
                    )
    return keeps


def fields_below(kind: Type, parent: int) -> Iterator[tuple[int, Field]]:
    match kind:
        case Struct(fields):
            for one in fields:
                yield parent, one
                yield from fields_below(one.kind, one.field_id)
        case Array(element, element_id):
            yield from fields_below(element, element_id)
        case Map(key, value, key_id, value_id):
            yield from fields_below(key, key_id)
            yield from fields_below(value, value_id)
        case Atomic() | Decimal():
            return


def as_then(current: Columns, schemas: Sequence[SourceSchema]) -> list[SourceSchema]:
    """Each schema with the columns that are there still, under the names that they had, with the types of now."""
    known = {one.field_id: one for one in current}
    found = []
    for schema in schemas:
        columns = tuple(
            Field(one.name, known[one.field_id].kind, True, one.field_id, known[one.field_id].comment)
            for one in schema.columns
            if one.field_id in known
        )
        if columns:
            found.append(SourceSchema(schema.schema_id, columns))
    found[-1] = SourceSchema(found[-1].schema_id, current)
    return found
