"""Debezium's messages as changes of a table: the row that each leaves or deletes, its operation, its sequence.

    {"before": null, "after": {"id": 1, "name": "Ana"}, "source": {"lsn": 24023128, …}, "op": "c", "ts_ms": …}

Messages may have the wrapper {"schema": …, "payload": …}, whose schema says what numbers and bytes mean. Tombstones,
and messages that are no change of a row, are left out.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from metaservice.client import is_partial
from protos.laketx.v1 import catalog_pb2
from worker.arrow.write.partial_images import check_alike
from worker.arrow.write.staged_rows import identity_columns
from worker.base.errors import InputError
from worker.files.arrow_types import arrow_schema
from worker.formats.decoded_messages import Decoded
from worker.formats.json_lines import Number
from worker.formats.json_messages import Fields, Message, fields_of, object_of, rows_of_fields
from worker.formats.meanings import Meaning, connect_meaning

OP: Final = "_laketx_change_op"
ORDER: Final = "_laketx_change_order"
DELETE: Final = "d"
ROW_CHANGES: Final = ("c", "r", "u", DELETE)
TRUNCATE: Final = "t"
NO_CHANGES: Final = ("m",)  # logical messages
UNAVAILABLE: Final = "__debezium_unavailable_value"
UNAVAILABLE_BYTES: Final = b64encode(UNAVAILABLE.encode()).decode()


@dataclass(frozen=True)
class DebeziumChanges:
    """Changes as rows, with the columns OP and ORDER, or the sequence's. `follow_truncate`: all earlier rows go."""

    rows: pa.Table
    follow_truncate: bool
    new_columns: pa.Schema  # what the rows have and the table lacks


@dataclass
class _Change:
    number: int
    op: str
    row: Fields
    order: Any
    types: Mapping[str, Meaning] = field(default_factory=dict)  # by column, as the message's schema says


def read_debezium(
    messages: Sequence[Message], meta: catalog_pb2.Table, sequence: str | None, *, keeps_deleted: bool = False
) -> DebeziumChanges:
    """Return the changes in these messages, in their order, or in that of a field of `source`.

    `keeps_deleted`: a deleted row stays, so all of its columns count.

    Raises InputError with the number of the message, which counts from 1.
    """
    changes: list[_Change] = []
    follow_truncate = False
    needed = None  # of the columns of a delete: one that only deletes have would be NULL in the upserts
    if is_partial(meta) and not keeps_deleted:
        needed = frozenset(map(str.lower, identity_columns(meta)))
    for number, message in enumerate(messages, 1):
        try:
            envelope, types = _envelope(message, number)
            if envelope is None or envelope.get("op") in NO_CHANGES:
                continue
            if envelope.get("op") == TRUNCATE:
                changes, follow_truncate = [], True
                continue
            changes.append(_change(envelope, types, number, sequence, needed))
        except (ValueError, TypeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError("MESSAGE_INVALID", f"message {number} is no envelope of Debezium: {error}") from error
    kinds = {column.name.lower(): column.type for column in arrow_schema(meta)}
    for change in changes:
        for name, value in change.row.items():
            change.row[name] = _plain(value, change.types.get(name), kinds.get(name.lower()), change.number, name)
    filled = {name for change in changes for name, value in change.row.items() if value is not None}
    filled |= _kinds(changes).keys()
    for change in changes:  # without new columns that have neither a type nor a value yet
        change.row = {name: value for name, value in change.row.items() if name in filled or name.lower() in kinds}
    rows = rows_of_fields([change.row for change in changes], [change.number for change in changes], meta)
    if not changes:
        no_rows = arrow_schema(meta).empty_table()
        rows = no_rows.select([name for name in no_rows.column_names if name.lower() != (sequence or ORDER).lower()])
    rows = rows.append_column(OP, pa.array([change.op for change in changes], pa.string()))
    try:
        orders = pa.array([change.order for change in changes], None if changes else pa.int64())
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise InputError("SEQUENCE_INVALID", f"source.{sequence} is no sequence: {error}") from error
    new = [(name, kind) for name, kind in _kinds(changes).items() if name.lower() not in kinds]
    return DebeziumChanges(rows.append_column(sequence or ORDER, orders), follow_truncate, pa.schema(new))


def columns_of(message: Message, number: int, *, keeps_deleted: bool) -> frozenset[str] | None:
    """The names of the columns that the message gives values for, in lower case; None if it leaves no row."""
    envelope, _ = _envelope(message, number)
    op = None if envelope is None else envelope.get("op")
    if envelope is None or op not in ROW_CHANGES or (op == DELETE and not keeps_deleted):
        return None
    side = _side(op)
    return frozenset(map(str.lower, object_of(envelope.get(side), f"{side!r} of message {number}")))


def check_columns(messages: Sequence[Message], meta: catalog_pb2.Table, *, keeps_deleted: bool) -> None:
    """Check that the messages set the same columns, if others keep their values."""
    columns = (columns_of(message, number, keeps_deleted=keeps_deleted) for number, message in enumerate(messages, 1))
    check_alike(meta, filter(None, columns))


def _side(op: str) -> str:
    return "before" if op == DELETE else "after"


def _envelope(message: Message, number: int) -> tuple[Fields | None, Mapping[str, Meaning]]:
    fields = fields_of(message, number)
    types: Mapping[str, Meaning] = {}
    if isinstance(message, Decoded):
        types = message.meanings["after"].fields if "after" in message.meanings else {}
    elif fields is not None and fields.keys() == {"schema", "payload"}:
        types = _types(fields["schema"])
        fields = None if fields["payload"] is None else object_of(fields["payload"], f"the payload of message {number}")
    if fields is not None and "op" not in fields:
        raise InputError("MESSAGE_INVALID", f"message {number} is no envelope of Debezium: it has no op")
    return fields, types


def _types(schema: Any) -> Mapping[str, Meaning]:
    """What the schema says of the columns of a row, by column."""
    for part in dict(schema or ()).get("fields") or ():
        fields = dict(part)
        if fields.get("field") == "after":
            columns = [dict(column) for column in fields.get("fields") or ()]
            return {str(column.get("field")): connect_meaning(column) for column in columns}
    return {}


def _change(
    envelope: Fields, types: Mapping[str, Meaning], number: int, sequence: str | None, needed: frozenset[str] | None
) -> _Change:
    op = envelope["op"]
    if op not in ROW_CHANGES:
        hint = f"message {number} has the operation {op!r}: Debezium's are {', '.join((*ROW_CHANGES, TRUNCATE))}"
        raise InputError("OPERATION_UNKNOWN", hint)
    side = _side(op)
    if envelope.get(side) is None:
        raise InputError("MESSAGE_INVALID", f"message {number} has the operation {op!r}, and no {side!r}")
    row = object_of(envelope[side], f"{side!r} of message {number}")
    if op != DELETE:
        row = _whole(row, envelope.get("before"), number)
    elif needed is not None:
        row = {name: value for name, value in row.items() if name.lower() in needed}
    order: Any = number
    if sequence is not None:
        order = dict(envelope.get("source") or ()).get(sequence)
        if order is None or isinstance(order, Number):
            raise InputError("SEQUENCE_INVALID", f"message {number} has no source.{sequence} that orders changes")
    return _Change(number, op, row, order, types)


def _whole(row: Fields, before: Any, number: int) -> Fields:
    """The row with what the database didn't send again, if the earlier row has it."""
    lacking = [name for name, value in row.items() if value in (UNAVAILABLE, UNAVAILABLE_BYTES)]
    old = dict(before or ()) if lacking else {}
    for name in lacking:
        if old.get(name) in (None, UNAVAILABLE, UNAVAILABLE_BYTES):
            hint = "set REPLICA IDENTITY FULL for the table in the database"
            raise InputError("VALUE_UNAVAILABLE", f"message {number} lacks {name}, which did not change: {hint}")
        row[name] = old[name]
    return row


# -- values ------------------------------------------------------------------------------------------------------------


def _plain(value: Any, meaning: Meaning | None, kind: pa.DataType | None, number: int, name: str) -> Any:
    """The value as documents of JSON have it: times as ISO texts, decimals as numbers."""
    if value is None or meaning is None:
        return value
    try:
        return meaning.document(value, kind)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise InputError("VALUE_INVALID", f"{name} of message {number} is no {meaning.word}: {error}") from error


# -- columns -----------------------------------------------------------------------------------------------------------


def _kinds(changes: Sequence[_Change]) -> dict[str, pa.DataType]:
    """The types of the columns, as the schemas say, or else the first value."""
    kinds: dict[str, pa.DataType] = {}
    for change in changes:
        for name, value in change.row.items():
            if name not in kinds and (kind := _kind(change.types.get(name), value)) is not None:
                kinds[name] = kind
    return kinds


def _kind(meaning: Meaning | None, value: Any) -> pa.DataType | None:
    return _kind_of_value(value) if meaning is None else meaning.kind


def _kind_of_value(value: Any) -> pa.DataType | None:
    kinds: Mapping[type, pa.DataType] = {bool: pa.bool_(), int: pa.int64(), Number: pa.float64(), str: pa.string()}
    return kinds.get(type(value))
