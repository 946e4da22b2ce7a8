"""Messages of JSON as rows of a table: each is one object, whose fields are columns."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa

from metaservice.client import is_partial
from protos.laketx.v1 import catalog_pb2
from worker.arrow.write.input_rows import default_of
from worker.base.errors import InputError
from worker.files.arrow_types import arrow_schema
from worker.formats.decoded_messages import Decoded, Undecodable
from worker.formats.json_lines import Number, Pairs, decode, from_documents
from worker.formats.rejects import UnfitError, shown

Message: TypeAlias = bytes | str | Mapping[str, Any] | Decoded | Undecodable | None
Fields: TypeAlias = dict[str, Any]


def fields_of(message: Message, number: int) -> Fields | None:
    """The fields of an object, as they were written; None for a message without content. `number` counts from 1."""
    if message is None or message in (b"", ""):
        return None
    if isinstance(message, Decoded):
        return message.fields
    if isinstance(message, Undecodable):
        raise message.error
    try:
        text = message if isinstance(message, (bytes, str)) else json.dumps(message)
        document = decode(text.decode("utf-8") if isinstance(text, bytes) else text)
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError("MESSAGE_INVALID", f"message {number} is no JSON: {error}") from error
    return object_of(document, f"message {number}")


def object_of(document: Any, what: str) -> Fields:
    """The fields of an object."""
    if not isinstance(document, Pairs):
        raise InputError("MESSAGE_INVALID", f"{what} is no JSON object: {shown(json.dumps(document))}")
    fields = dict(document)
    if len(fields) < len(document):
        raise InputError("MESSAGE_INVALID", f"{what} has a field twice")
    return fields


def with_defaults(rows: Sequence[Fields], meta: catalog_pb2.Table) -> Sequence[Fields]:
    """The objects with the defaults of the columns that they lack: other rows of the same batch may have them."""
    defaults = {} if is_partial(meta) else _defaults(meta)
    if not defaults:
        return rows
    filled = []
    for row in rows:
        names = {name.lower() for name in row}
        filled.append({**row, **{name: value for name, value in defaults.items() if name.lower() not in names}})
    return filled


def _defaults(meta: catalog_pb2.Table) -> Fields:
    """As documents of JSON have them. What Spark has to compute is left out."""
    defaults: Fields = {}
    for column, field in zip(meta.columns, arrow_schema(meta), strict=True):
        if not column.default_sql:
            continue
        with suppress(InputError):
            value = default_of(column, field.type).as_py()
            if isinstance(value, (float, Decimal)):
                value = Number(value)
            elif isinstance(value, bytes):
                value = b64encode(value).decode()
            elif isinstance(value, date):  # or a time
                value = value.isoformat()
            defaults[field.name] = value
    return defaults


def rows_of_fields(rows: Sequence[Fields], numbers: Sequence[int], meta: catalog_pb2.Table) -> pa.Table:
    """The objects as rows: columns of the table in its types, others as numbers, texts or truths."""
    schema = arrow_schema(meta)
    kinds = {field.name.lower(): field.type for field in schema}
    names = dict.fromkeys(name for row in rows for name in row)
    own = {field.name.lower(): field.name for field in schema}
    if any(own.get(name.lower(), name) != name for name in names):
        rows = [_by_own_names(row, own, number) for row, number in zip(rows, numbers, strict=True)]
        names = dict.fromkeys(name for row in rows for name in row)
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        kind = kinds.get(name.lower())
        columns[name] = _other(values, name) if kind is None else _typed(values, kind, name, numbers)
    return pa.table(columns)


def _by_own_names(row: Fields, own: Mapping[str, str], number: int) -> Fields:
    """Messages of one batch may write a column in several ways."""
    renamed = {own.get(name.lower(), name): value for name, value in row.items()}
    if len(renamed) < len(row):
        raise InputError("MESSAGE_INVALID", f"message {number} has a field twice")
    return renamed


def _typed(values: Sequence[Any], kind: pa.DataType, name: str, numbers: Sequence[int]) -> Any:
    try:
        return from_documents(values, kind, name)
    except UnfitError:
        for value, number in zip(values, numbers, strict=True):
            try:
                from_documents([value], kind, name)
            except UnfitError as error:
                text = f"{error.column or name} of message {number}: {error.message}"
                raise InputError(error.reason, text) from error
        raise


def _other(values: Sequence[Any], name: str) -> Any:
    try:
        return pa.array([float(value) if isinstance(value, Number) else value for value in values])
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InputError("MESSAGE_INVALID", f"the values of {name} are no column: {error}") from error
