"""Columns as users give them to `create_table` and `add_columns`: words, or a schema of Arrow."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import pyarrow as pa

from metaservice.shared.column_definitions import ColumnWordsError, TypeMissingError, read_columns, read_type_words
from metaservice.shared.column_types import quoted, type_text
from protos.laketx.v1 import catalog_pb2
from worker.base.errors import InputError
from worker.base.schema import check_name
from worker.files import arrow_types


def columns_of_words(text: str, keys: Collection[str]) -> list[catalog_pb2.Column]:
    """Return the columns of a new table from a text; key columns are NOT NULL in any case."""
    lower = {name.lower() for name in keys}
    with _input_errors():
        read = read_columns(text)
    columns = []
    for words in read:
        check_name(words.name)
        nullable = words.nullable and words.name.lower() not in lower
        column = catalog_pb2.Column(name=words.name, type=type_text(words.kind), nullable=nullable)
        column.comment, column.default_sql = words.comment, words.default_sql
        columns.append(column)
    return columns


def added_columns(columns: str | pa.Schema) -> list[catalog_pb2.Column]:
    """Return the columns to add, with paths as names: "note string, address.zip string"."""
    if isinstance(columns, pa.Schema):
        added = arrow_types.wire_columns(columns, ())
        for column in added:
            column.name = quoted(column.name)
        return added
    with _input_errors():
        read = read_columns(columns, with_paths=True)
    added = []
    for words in read:
        if len(words.path) == 1:
            check_name(words.name)
        column = catalog_pb2.Column(name=words.text, type=type_text(words.kind), nullable=words.nullable)
        column.comment, column.default_sql = words.comment, words.default_sql
        added.append(column)
    return added


def type_of_words(text: str) -> str:
    """Return a type in the service's spelling."""
    with _input_errors():
        return type_text(read_type_words(text))


@contextmanager
def _input_errors() -> Iterator[None]:
    try:
        yield
    except TypeMissingError as error:
        raise InputError("TYPE_NOT_SUPPORTED", str(error)) from error
    except ColumnWordsError as error:
        message = f'{error}: name columns with their types, such as "id bigint, v string"'
        raise InputError("COLUMNS_INVALID", message) from error
