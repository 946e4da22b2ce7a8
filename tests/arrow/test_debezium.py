"""Debezium's messages: what they mean with and without their schema, and which are refused."""

from __future__ import annotations

import json
import random
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from laketx import InputError, Lake, Table, connect
from laketx.commands.message_batches import Content, MessageFormat
from worker.commit.transaction import run_writes

Row = dict[str, Any]
DECIMAL = "org.apache.kafka.connect.data.Decimal"
TYPES = "id bigint, day date, at timestamp_ntz, seen timestamp, price decimal(20,3), data binary, note string"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("debezium")) as made:
        yield made


def made(lake: Lake, name: str, columns: str = "id bigint, name string", **options: Any) -> Table:
    return lake.create_table(f"dbz.{name}", columns, primary_key=["id"], **options)


def envelope(op: str, after: Row | None = None, before: Row | None = None, **source: Any) -> Row:
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1}


def wrapped(payload: Row | None, fields: list[Row]) -> Row:
    parts = [{"type": "struct", "field": side, "fields": fields} for side in ("before", "after")]
    return {"schema": {"type": "struct", "fields": parts}, "payload": payload}


def rows_of(table: Table) -> list[Row]:
    return sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize("engine", ["whole", "partial"])
def test_messages_that_leave_no_row(lake: Lake, engine: str) -> None:
    properties = {"merge.engine": engine} if engine == "partial" else {}
    table = made(lake, f"no_row_{engine}", "id bigint, name string, lsn bigint", properties=properties)
    table.upsert([{"id": 1, "name": "a", "lsn": 1}])
    for messages in ([], [None], [envelope("m")]):
        assert table.apply_debezium(messages, sequence="lsn").upserted == 0
        assert table.count() == 1
    table.apply_debezium([envelope("t", lsn=2)], sequence="lsn")
    assert not table.count()


def test_partial_updates_have_the_columns_of_their_messages(lake: Lake) -> None:
    columns = "id bigint, a int, b int, gone boolean, lsn bigint"
    table = made(lake, "columns", columns, properties={"merge.engine": "partial"})
    table.upsert([{"id": at, "a": at, "b": at, "gone": False, "lsn": 1} for at in range(4)])
    upsert, delete = envelope("u", {"id": 1, "b": 9}, lsn=2), envelope("d", before={"id": 2, "a": 2, "b": 2}, lsn=2)
    table.apply_debezium([delete, upsert], sequence="lsn")
    assert rows_of(table)[1] == {"id": 1, "a": 1, "b": 9, "gone": False, "lsn": 2}
    assert table.count() == 3
    marks = [envelope("d", before={"id": 3}, lsn=2), upsert]
    with pytest.raises(InputError, match="COLUMNS_DIFFER"):
        table.apply_debezium(marks, sequence="lsn", soft_delete="gone")
    ingest = MessageFormat("debezium", sequence="lsn", soft_delete="gone")
    messages = [Content(None, None), *(Content(None, json.dumps(one).encode()) for one in marks)]
    parts = ingest.list_parts(table.meta, messages)
    assert parts == [slice(0, 2), slice(2, 3)]
    for part in parts:
        write = ingest.plan(table.refresh().view, messages[part]).write
        run_writes(lake, partial(list, [write]), on_conflict="fail")
    assert rows_of(table)[2] == {"id": 3, "a": 3, "b": 3, "gone": True, "lsn": 2}


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 20))])
def test_a_stream_in_any_batches_gives_the_rows_of_the_source(lake: Lake, seed: int) -> None:
    chance = random.Random(seed)
    table = made(lake, f"stream_{seed}", "id bigint, name string, lsn bigint" if seed % 2 else "id bigint, name string")
    source: dict[int, str] = {}
    messages: list[Any] = []
    for lsn in range(150):
        key, name = chance.randint(0, 8), chance.choice("abc")
        if chance.random() < 0.02:
            messages.append(envelope("t", lsn=lsn))
            source.clear()
        elif key in source and chance.random() < 0.3:
            messages += [envelope("d", before={"id": key, "name": None}, lsn=lsn), None]
            del source[key]
        else:
            messages.append(envelope("u" if key in source else "c", {"id": key, "name": name}, lsn=lsn))
            source[key] = name
    begin, version = 0, 0
    while begin < len(messages):
        size = chance.randint(1, 40)
        batch = [None if one is None else json.dumps(one).encode() for one in messages[begin : begin + size]]
        for _ in range(chance.randint(1, 2)):  # repeated, as after a crash
            table.apply_debezium(batch, sequence="lsn" if seed % 2 else None, app_id="cdc", app_version=version)
        begin, version = begin + size, version + 1
    assert {row["id"]: row["name"] for row in rows_of(table)} == source


def test_a_truncate_leaves_what_came_after_it(lake: Lake) -> None:
    table = made(lake, "truncated")
    table.apply_debezium([envelope("c", {"id": key, "name": "a"}) for key in (1, 2)])
    rest = [envelope("c", {"id": 3, "name": "b"}), envelope("d", before={"id": 2}), envelope("m")]
    applied = table.apply_debezium([envelope("u", {"id": 1, "name": "b"}), envelope("t"), *rest])
    assert (applied.upserted, applied.absent) == (1, 1)
    assert rows_of(table) == [{"id": 3, "name": "b"}]
    table.apply_debezium([envelope("t")])
    assert rows_of(table) == []


def test_the_schema_says_what_numbers_and_bytes_mean(lake: Lake) -> None:
    fields: list[Row] = [
        {"field": "id", "type": "int64"},
        {"field": "day", "type": "int32", "name": "io.debezium.time.Date"},
        {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        {"field": "seen", "type": "string", "name": "io.debezium.time.ZonedTimestamp"},
        {
            "field": "price",
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "3", "connect.decimal.precision": "20"},
        },
        {"field": "data", "type": "bytes"},
        {"field": "note", "type": "string"},
    ]
    row = {
        "id": 1,
        "day": -1,
        "at": 1_795_000_000_123_456,
        "seen": "2026-11-18T14:13:20.5Z",
        "price": b64encode((-12_345).to_bytes(3, "big", signed=True)).decode(),
        "data": b64encode(b"\x00\xff").decode(),
        "note": None,
    }
    expected = {
        "id": 1,
        "day": date(1969, 12, 31),
        "at": datetime.fromisoformat("2026-11-18T11:06:40.123456"),
        "seen": datetime(2026, 11, 18, 14, 13, 20, 500_000, tzinfo=UTC),
        "price": Decimal("-12.345"),
        "data": b"\x00\xff",
        "note": None,
    }
    known, new = made(lake, "typed", TYPES), made(lake, "added", "id bigint")
    messages = [wrapped(envelope("c", row), fields), wrapped(None, fields)]
    known.apply_debezium(messages)
    new.apply_debezium(messages, merge_schema=True)
    assert rows_of(known) == [expected]
    assert rows_of(new) == [expected]
    assert {one.name: one.type for one in new.meta.columns} == {one.name: one.type for one in known.meta.columns}


@pytest.mark.parametrize(
    ("kind", "value", "scale", "expected"),
    [
        ("io.debezium.time.Timestamp", 1_500, None, datetime.fromisoformat("1970-01-01T00:00:01.5")),
        ("io.debezium.time.NanoTimestamp", -1_000, None, datetime.fromisoformat("1969-12-31T23:59:59.999999")),
        ("org.apache.kafka.connect.data.Decimal", 7, 3, Decimal("0.007")),
        ("org.apache.kafka.connect.data.Decimal", 10**37 + 1, 0, Decimal(10**37 + 1)),
        ("io.debezium.data.VariableScaleDecimal", 12, -2, Decimal(1200)),
    ],
)
def test_values_by_the_name_of_their_type(lake: Lake, kind: str, value: int, scale: int | None, expected: Any) -> None:
    name = f"value_{kind.rpartition('.')[2]}_{abs(value) % 1_000}"
    wanted = "timestamp_ntz" if scale is None else "decimal(38,3)" if scale == 3 else "decimal(38,0)"
    given: Any = value
    if scale is not None:
        given = b64encode(value.to_bytes(16, "big", signed=True)).decode()
    if kind.endswith("VariableScaleDecimal"):
        given = {"scale": scale, "value": given}
    field = {"field": "v", "type": "int64", "name": kind, "parameters": {"scale": str(scale)}}
    table = made(lake, name, f"id bigint, v {wanted}")
    table.apply_debezium([wrapped(envelope("c", {"id": 1, "v": given}), [field])])
    assert rows_of(table) == [{"id": 1, "v": expected}]


def test_new_columns_without_a_schema_have_the_types_of_their_values(lake: Lake) -> None:
    table = made(lake, "inferred")
    first = envelope("c", {"id": 1, "name": "a", "n": None, "tall": True, "empty": None})
    table.apply_debezium([first, envelope("c", {"id": 2, "name": "b", "n": 5, "x": 0.5, "t": "t"})], merge_schema=True)
    types = {column.name: column.type for column in table.meta.columns}
    assert types == {"id": "bigint", "name": "string", "n": "bigint", "tall": "boolean", "x": "double", "t": "string"}
    assert rows_of(table)[1] == {"id": 2, "name": "b", "n": 5, "tall": None, "x": 0.5, "t": "t"}


def test_a_value_that_was_not_sent_again_is_the_earlier_one(lake: Lake) -> None:
    table = made(lake, "toast")
    after = {"id": 1, "name": "__debezium_unavailable_value"}
    table.apply_debezium([envelope("u", after, {"id": 1, "name": "long"})])
    assert rows_of(table) == [{"id": 1, "name": "long"}]
    with pytest.raises(InputError, match="message 2 lacks name, which did not change: set REPLICA IDENTITY FULL"):
        table.apply_debezium([None, envelope("u", after)])
    assert rows_of(table) == [{"id": 1, "name": "long"}]


@pytest.mark.parametrize(
    ("message", "reason", "words"),
    [
        (b"{", "MESSAGE_INVALID", "message 2 is no JSON"),
        (b"\xff", "MESSAGE_INVALID", "message 2 is no JSON"),
        (b"[1]", "MESSAGE_INVALID", "message 2 is no JSON object"),
        (b'{"op": "c", "op": "d"}', "MESSAGE_INVALID", "message 2 has a field twice"),
        ({"id": 1}, "MESSAGE_INVALID", "message 2 is no envelope of Debezium"),
        (envelope("x", {"id": 1}), "OPERATION_UNKNOWN", "message 2 has the operation 'x'"),
        (envelope("c"), "MESSAGE_INVALID", "message 2 has the operation 'c', and no 'after'"),
        (envelope("d", {"id": 1}), "MESSAGE_INVALID", "message 2 has the operation 'd', and no 'before'"),
        ({"schema": 5, "payload": envelope("c", {"id": 1})}, "MESSAGE_INVALID", "message 2 is no envelope of Debezium"),
        (
            wrapped(envelope("c", {"id": 1}), [{"field": "id", "name": DECIMAL, "parameters": {"scale": "x"}}]),
            "MESSAGE_INVALID",
            "message 2 is no envelope of Debezium",
        ),
        (
            wrapped(envelope("c", {"id": "AA=="}), [{"field": "id", "name": DECIMAL, "parameters": {"scale": 2_000}}]),
            "VALUE_INVALID",
            "id of message 2",
        ),
        (envelope("c", {"id": "one"}), "VALUE_INVALID", "id of message 2"),
        (envelope("c", {"id": 1, "note": "new"}), "COLUMN_UNKNOWN", "has no column note"),
    ],
)
def test_what_is_refused(lake: Lake, message: Any, reason: str, words: str) -> None:
    lake.client.create_namespace("dbz", if_not_exists=True)
    table = lake.create_table("dbz.refused", "id bigint, name string", primary_key=["id"], if_not_exists=True)
    with pytest.raises(InputError, match=words) as error:
        table.apply_debezium([envelope("c", {"id": 7, "name": "a"}), message])
    assert error.value.reason == reason
    assert not rows_of(table)


def test_a_sequence_that_is_not_there_is_refused(lake: Lake) -> None:
    table = made(lake, "no_lsn")
    with pytest.raises(InputError, match=r"message 1 has no source\.lsn"):
        table.apply_debezium([envelope("c", {"id": 1})], sequence="lsn")
    assert not rows_of(table)


def test_late_messages_of_the_page_are_dropped(lake: Lake) -> None:
    table = made(lake, "late", "id int, first_name string, email string, loyalty string, lsn bigint")
    lines = (Path(__file__).parent / "customers.jsonl").read_text().splitlines()
    table.apply_debezium(lines, sequence="lsn")
    applied = table.apply_debezium(lines[:4], sequence="lsn")
    assert (applied.late, applied.upserted, applied.repeated) == (1, 2, 1)
    assert {row["id"]: row["email"] for row in rows_of(table)}[1001] == "sally@acme.com"
