"""Columns and their changes: wire <-> core."""

from __future__ import annotations

from collections.abc import Sequence

from metaservice.core import limits
from metaservice.core.errors import invalid
from metaservice.core.table.schema import Column, Schema, make_schema
from metaservice.core.table.schema_changes import (
    Add,
    ColumnPlace,
    Comment,
    Default,
    Drop,
    Move,
    Relax,
    Rename,
    SchemaChange,
    Widen,
)
from protos.laketx.v1 import catalog_pb2, common_pb2

PATH_CHARS_MAX = limits.NAME_CHARS_MAX * limits.TYPE_DEPTH_MAX


def first_schema(table: catalog_pb2.Table) -> Schema:
    """The schema of a new table; the server assigns the ids."""
    if len(table.columns) > limits.COLUMNS_MAX:
        raise invalid("COLUMNS_INVALID", count=len(table.columns), most=limits.COLUMNS_MAX)
    columns = [
        Column(
            column.name,
            column.type,
            column.nullable,
            _comment(column.comment),
            default_sql=_default(column.default_sql),
        )
        for column in table.columns
    ]
    return make_schema(columns, tuple(table.partition_columns), tuple(table.primary_key))


def schema_changes(messages: Sequence[common_pb2.SchemaChange]) -> tuple[SchemaChange, ...]:
    if len(messages) > limits.SCHEMA_CHANGES_MAX:
        raise invalid("TOO_MANY_SCHEMA_CHANGES", count=len(messages), most=limits.SCHEMA_CHANGES_MAX)
    return tuple(_change(message) for message in messages)


def column_messages(columns: Sequence[Column]) -> list[catalog_pb2.Column]:
    return [
        catalog_pb2.Column(
            name=column.name,
            type=column.type,
            nullable=column.nullable,
            column_id=column.column_id,
            comment=column.comment,
            default_sql=column.default_sql,
            nested=[catalog_pb2.NestedField(path=path, field_id=number) for path, number in column.nested],
        )
        for column in columns
    ]


def _change(message: common_pb2.SchemaChange) -> SchemaChange:
    match message.WhichOneof("kind"):
        case "add":
            added = message.add
            place = _place(added.place) if added.HasField("place") else None
            return Add(_path(added.path), added.type, comment=_comment(added.comment), place=place)
        case "drop":
            return Drop(_path(message.drop.path))
        case "rename":
            return Rename(_path(message.rename.path), message.rename.name)
        case "move":
            if not message.move.HasField("place"):
                raise invalid(
                    "PLACE_INVALID",
                    "the new position is missing: say first, or after which column",
                    column=message.move.path[:128],
                )
            return Move(_path(message.move.path), _place(message.move.place))
        case "widen":
            return Widen(_path(message.widen.path), message.widen.type)
        case "relax":
            return Relax(_path(message.relax.path))
        case "comment":
            return Comment(_path(message.comment.path), _comment(message.comment.comment))
        case "default":
            return Default(_path(message.default.path), _default(message.default.default_sql))
        case _:
            raise invalid("SCHEMA_CHANGE_EMPTY")


def _place(message: common_pb2.ColumnPlace) -> ColumnPlace:
    return ColumnPlace(_path(message.after))


def _path(path: str) -> str:
    if len(path) > PATH_CHARS_MAX:
        raise invalid("NAME_INVALID", "not a path: join names with dots", name=path[:128])
    return path


def _comment(comment: str) -> str:
    return _text(comment, "column comment")


def _default(sql: str) -> str:
    return _text(sql, "column default")


def _text(text: str, what: str) -> str:
    if len(text) > limits.TEXT_CHARS_MAX:
        raise invalid("TEXT_TOO_LONG", what=what, chars=len(text), most=limits.TEXT_CHARS_MAX)
    return text
