"""Batches of messages as writes of a table, and the messages of a batch that no row can be made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from laketx.table import Table
from metaservice.client import is_partial
from protos.laketx.v1 import catalog_pb2
from worker.arrow.write.change_streams import ChangeColumns, ChangeCounts, ChangeWrite, plan_changes
from worker.arrow.write.partial_images import check_alike
from worker.arrow.write.writes import plan_append
from worker.base.errors import InputError
from worker.connection.table_view import TableView
from worker.files.arrow_types import arrow_schema
from worker.formats.debezium import OP, ORDER, check_columns, columns_of, read_debezium
from worker.formats.decoded_messages import described_columns
from worker.formats.json_messages import Fields, Message, fields_of, rows_of_fields, with_defaults
from worker.formats.rejects import REFUSALS

UPSERT: Final = "c"
DELETE: Final = "d"


class Content(NamedTuple):
    """The key and the value of a message, as they came."""

    key: bytes | None
    value: bytes | None


class Parsed(Protocol):
    """What the key and the value say. JSON is read when rows are made of it."""

    @property
    def key(self) -> Message: ...

    @property
    def value(self) -> Message: ...


Unreadable: TypeAlias = "list[tuple[int, InputError]]"  # by the place in the batch


@dataclass(frozen=True)
class MessageFormat:
    """How messages become rows.

    `op` and `sequence` name columns of JSON messages, or a field of `source` of Debezium's.
    """

    name: str  # "json", "avro", "protobuf" or "debezium"
    op: str | None = None
    sequence: str | None = None
    soft_delete: str | None = None
    merge_schema: bool = False

    def check(self, meta: catalog_pb2.Table) -> None:
        """Raise InputError if messages can't go to this table so."""
        if not meta.primary_key and (self.name == "debezium" or self.op or self.sequence or self.soft_delete):
            raise InputError("KEY_MISSING", f"{meta.name} has no primary key: changes are applied by key")

    def plan(self, table: TableView, messages: Sequence[Parsed]) -> ChangeWrite:
        """Return the write of these messages. Raises InputError for a message that no row can be made of."""
        meta = table.meta
        if self.name == "debezium":
            values = [message.value for message in messages]
            keeps_deleted = self.soft_delete is not None
            changes = read_debezium(values, meta, self.sequence, keeps_deleted=keeps_deleted)
            check_columns(values, meta, keeps_deleted=keeps_deleted)
            columns = ChangeColumns(OP, self.sequence or ORDER, soft_delete=self.soft_delete)
            return plan_changes(table, changes.rows, columns, replaces_all=changes.follow_truncate)
        if not meta.primary_key:
            rows = _rows(messages, meta)
            return ChangeWrite(plan_append(table, rows), ChangeCounts(upserted=len(rows)))
        rows = _rows(messages, meta) if self.op else _keyed_rows(messages, meta, self.sequence)
        if self.sequence is None:
            rows = rows.append_column(ORDER, pa.array(range(len(rows)), pa.int64()))
        columns = ChangeColumns(self.op or OP, self.sequence or ORDER, soft_delete=self.soft_delete)
        return plan_changes(table, rows, columns)

    def list_parts(self, meta: catalog_pb2.Table, messages: Sequence[Parsed]) -> list[slice]:
        """Return the parts that are committed one by one: the partial updates of a commit set the same columns."""
        if not is_partial(meta):
            return [slice(0, len(messages))]
        begins, columns = [0], None
        for at, message in enumerate(messages):
            names = self._columns_of(at, message)
            if names is None:
                continue
            if columns is not None and names != columns:
                begins.append(at)
            columns = names
        return [slice(begin, end) for begin, end in pairwise([*begins, len(messages)])]

    def _columns_of(self, number: int, message: Parsed) -> frozenset[str] | None:
        """The names that a message gives values for; None where it has no value, or one that can't be read."""
        try:
            if self.name == "debezium":
                return columns_of(message.value, number, keeps_deleted=self.soft_delete is not None)
            fields = fields_of(message.value, number)
        except REFUSALS:
            return None
        return None if fields is None else frozenset(map(str.lower, fields))

    def add_columns(self, table: Table, messages: Sequence[Parsed]) -> None:
        """Add the columns that the messages have and the table lacks, if that is wished."""
        if not self.merge_schema:
            return
        values = [message.value for message in messages]
        if self.name == "debezium":
            columns = read_debezium(values, table.meta, self.sequence).new_columns
        else:
            columns = described_columns(values, table.meta)
        table.add_missing_columns(columns)

    def list_unreadable(self, table: Table, messages: Sequence[Parsed], begin: int = 0) -> Unreadable:
        """Return the messages that can't be planned, by halves; what is refused only together is not among them."""
        try:
            self.add_columns(table, messages)
            self.plan(table.refresh().view if self.merge_schema else table.view, messages)
        except REFUSALS as error:
            if len(messages) == 1:
                return [(begin, _as_input_error(error))]
            middle = len(messages) // 2
            first = self.list_unreadable(table, messages[:middle], begin)
            return first + self.list_unreadable(table, messages[middle:], begin + middle)
        return []


def _as_input_error(error: Exception) -> InputError:
    if isinstance(error, InputError):
        return error
    return InputError(getattr(error, "reason", "MESSAGE_INVALID"), getattr(error, "said", str(error)))


def _rows(messages: Sequence[Parsed], meta: catalog_pb2.Table) -> pa.Table:
    fields = [fields_of(message.value, number) for number, message in enumerate(messages, 1)]
    if None in fields:
        raise InputError("MESSAGE_INVALID", f"message {fields.index(None) + 1} has no value")
    rows = [row for row in fields if row is not None]
    check_alike(meta, rows)
    return _typed(with_defaults(rows, meta), meta)


def _typed(rows: Sequence[Fields], meta: catalog_pb2.Table) -> pa.Table:
    if not rows:
        return arrow_schema(meta).empty_table()
    return rows_of_fields(rows, range(1, len(rows) + 1), meta)


def _keyed_rows(messages: Sequence[Parsed], meta: catalog_pb2.Table, sequence: str | None) -> pa.Table:
    """Each message is the row of its key; without a value it deletes the row."""
    fields = [fields_of(message.value, number) for number, message in enumerate(messages, 1)]
    upserts = [row for row in fields if row is not None]
    check_alike(meta, upserts)
    filled = iter(with_defaults(upserts, meta))
    rows = [
        _key_of(message, number, meta, sequence) if row is None else next(filled)
        for number, (message, row) in enumerate(zip(messages, fields, strict=True), 1)
    ]
    ops = [DELETE if row is None else UPSERT for row in fields]
    return _typed(rows, meta).append_column(OP, pa.array(ops, pa.string()))


def _key_of(message: Parsed, number: int, meta: catalog_pb2.Table, sequence: str | None) -> Fields:
    """What a delete needs of a message's key: other columns would be set to NULL in the rows beside it."""
    fields = fields_of(message.key, number)
    if fields is None:
        raise InputError("MESSAGE_INVALID", f"message {number} has neither a value nor a key")
    lacking: Any = {name.lower() for name in meta.primary_key} - {name.lower() for name in fields}
    if lacking:
        raise InputError("MESSAGE_INVALID", f"the key of message {number} lacks {', '.join(sorted(lacking))}")
    needed = {name.lower() for name in (*meta.primary_key, *meta.partition_columns, sequence or "")}
    return {name: value for name, value in fields.items() if name.lower() in needed}
