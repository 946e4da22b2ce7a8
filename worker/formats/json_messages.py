"""Messages of JSON as rows of a table: each is one object, whose fields are columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from protos.laketx.v1 import catalog_pb2
from worker.base.errors import InputError
from worker.files.arrow_types import arrow_schema
from worker.formats.decoded_messages import Decoded, Undecodable
from worker.formats.json_lines import Number, Pairs, decode, from_documents
from worker.formats.rejects import UnfitError, shown

Message: TypeAlias = bytes | str | Mapping[str, Any] | Decoded | Undecodable | None
Fields: TypeAlias = dict[str, Any]
Convert: TypeAlias = Callable[[Any, pa.DataType], Any]


def fields_of(message: Message, number: int) -> Fields | None:
    """The fields of an object, as they were written; None for a message without content. `number` counts from 1."""
    if message is None or message in (b"", ""):
        return None
    if isinstance(message, Decoded):
        return dict(message.fields)
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


def rows_of_fields(rows: Sequence[Fields], numbers: Sequence[int], meta: catalog_pb2.Table) -> pa.Table:
    """The objects as rows: columns of the table in its types, others as numbers, texts or truths."""
    kinds = {field.name.lower(): field.type for field in arrow_schema(meta)}
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        kind = kinds.get(name.lower())
        columns[name] = _other(values, name) if kind is None else _typed(values, kind, name, numbers)
    return pa.table(columns)


def _typed(values: Sequence[Any], kind: pa.DataType, name: str, numbers: Sequence[int]) -> Any:
    try:
        return from_documents(values, kind, name)
    except UnfitError:
        for value, number in zip(values, numbers, strict=True):
            try:
                from_documents([value], kind, name)
            except UnfitError as error:
                text = f"{error.column or name} of message {number}: {error.said}"
                raise InputError(error.reason, text) from error
        raise


def _other(values: Sequence[Any], name: str) -> Any:
    try:
        return pa.array([float(value) if isinstance(value, Number) else value for value in values])
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InputError("MESSAGE_INVALID", f"the values of {name} are no column: {error}") from error
