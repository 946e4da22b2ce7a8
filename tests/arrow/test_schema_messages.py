"""Messages of Avro and Protobuf by their schemas: values as other libraries read them, and bytes that mean harm."""

from __future__ import annotations

import io
import json
import random
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pytest
from google.protobuf import message_factory

from tests.arrow.registries import Registry
from worker.base.errors import InputError
from worker.formats.avro_messages import message_reader, read_message
from worker.formats.avro_readers import AvroError
from worker.formats.proto_files import ProtoError
from worker.formats.proto_messages import ProtoReader
from worker.formats.schema_registry import RegistryAwayError, SchemaRegistry, secret_from

REALS = (0.5, -0.0, 1e30, float("inf"), float("-inf"), float("nan"))
VALUES: dict[str, tuple[Any, ...]] = {
    "boolean": (True, False),
    "int": (0, -1, 63, -65, (1 << 31) - 1, -(1 << 31)),
    "long": (0, 64, -(1 << 31) - 1, (1 << 63) - 1, -(1 << 63)),
    "float": REALS,
    "double": (*REALS, 0.1),
    "bytes": (b"", b"\xff\0", b"x" * 200),
    "string": ("", "ä€", "x" * 300),
}
PLAIN = tuple(VALUES)
LOGICAL = (
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
    {"type": "string", "logicalType": "uuid"},
)
LOOP: dict[str, Any] = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}


def record(*types: Any, name: str = "R") -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": f"f{at}", "type": kind} for at, kind in enumerate(types)],
    }


def any_type(chance: random.Random, depth: int, names: Iterator[int]) -> Any:
    match chance.choice(("plain", "logical", "null", *(("array", "map", "record", "enum", "fixed") if depth else ()))):
        case "plain":
            return chance.choice(PLAIN)
        case "logical":
            return chance.choice(LOGICAL)
        case "null":
            return ["null", chance.choice((*PLAIN, *LOGICAL))]
        case "array":
            return {"type": "array", "items": any_type(chance, depth - 1, names)}
        case "map":
            return {"type": "map", "values": any_type(chance, depth - 1, names)}
        case "enum":
            return {"type": "enum", "name": f"N{next(names)}", "symbols": ["A", "B"]}
        case "fixed":
            return {"type": "fixed", "name": f"N{next(names)}", "size": chance.randint(1, 9)}
        case _:
            parts = [any_type(chance, depth - 1, names) for _ in range(chance.randint(1, 3))]
            return record(*parts, name=f"N{next(names)}")


def any_logical(kind: str, chance: random.Random) -> Any:
    match kind:
        case "date":
            return date.fromordinal(chance.randint(1, 3_000_000))
        case "timestamp-millis":
            return datetime.fromtimestamp(chance.randint(-(10**12), 10**13) / 1_000, UTC)
        case "decimal":
            return Decimal(chance.randint(-(10**11), 10**11)).scaleb(-3)
        case "uuid":
            return UUID(int=chance.getrandbits(128))
        case _:
            zone = None if kind.startswith("local") else UTC
            return datetime(2026, 11, 1, 10, 0, 0, chance.randint(0, 999_999), tzinfo=zone)


def any_value(kind: Any, chance: random.Random) -> Any:
    if isinstance(kind, list):
        return chance.choice((None, any_value(kind[1], chance)))
    if isinstance(kind, str):
        return chance.choice(VALUES[kind])
    if "logicalType" in kind:
        return any_logical(kind["logicalType"], chance)
    match kind["type"]:
        case "fixed":
            return chance.randbytes(kind["size"])
        case "enum":
            return chance.choice("AB")
        case "array":
            return [any_value(kind["items"], chance) for _ in range(chance.randint(0, 3))]
        case "map":
            return {f"k{at}": any_value(kind["values"], chance) for at in range(chance.randint(0, 3))}
        case _:
            return {one["name"]: any_value(one["type"], chance) for one in kind["fields"]}


def document(value: Any) -> Any:
    """What fastavro reads, in the form of JSON's documents."""
    match value:
        case bool() | None | int():
            return value
        case datetime():
            return value.replace(tzinfo=None).isoformat() + "Z" * (value.tzinfo is not None)
        case date():
            return value.isoformat()
        case bytes():
            return b64encode(value).decode()
        case float():
            return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(repr(value), repr(value))
        case Decimal():
            return f"{value:f}"
        case list():
            return [document(one) for one in value]
        case dict():
            return [(name, document(one)) for name, one in value.items()]
        case _:
            return str(value)


@pytest.mark.parametrize("seed", range(12))
def test_records_of_avro_are_those_that_fastavro_reads(seed: int) -> None:
    chance = random.Random(seed)
    names = iter(range(100))
    schema = record(*(any_type(chance, 3, names) for _ in range(3)))
    read, meaning = message_reader(json.dumps(schema), [])
    assert list(meaning.fields) == ["f0", "f1", "f2"]
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    for _ in range(5):
        given = any_value(schema, chance)
        bytes_of = io.BytesIO()
        fastavro.schemaless_writer(bytes_of, parsed, given)
        raw = bytes_of.getvalue()
        expected = document(fastavro.schemaless_reader(io.BytesIO(raw), parsed, None))
        assert list(read_message(read, b"\0" + raw, 1).items()) == expected
        for _ in range(40):  # damaged: another record, or an error of ours
            at, byte = chance.randrange(len(raw)), chance.randrange(256)
            damaged = chance.choice((raw[:at], raw[:at] + bytes([byte]) + raw[at + 1 :]))
            try:
                read_message(read, damaged, 0)
            except AvroError:
                continue


def nested(depth: int) -> Any:
    found: Any = "int"
    for _ in range(depth):
        found = {"type": "array", "items": found}
    return found


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (LOOP, "inside itself"),
        (record(nested(40)), "deeper than 32"),
        (record(*["int"] * 30_000), "more than 20000"),
        (record({"type": "array", "items": "null"}), "take no bytes"),
        (record({"type": "map", "values": {"type": "fixed", "name": "F", "size": 0}}), "take no bytes"),
        (record("null"), "take no bytes"),
        (record(record(name="E")), "take no bytes"),
        (record("text"), "doesn't define"),
        (record([]), "a union that is empty"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}] * 2}, "twice"),
        ({"type": "record", "name": "R"}, "no schema of Avro"),
        ([LOOP], "inside itself"),
        ("string", "no record"),
    ],
)
def test_schemas_of_avro_that_are_refused(schema: Any, said: str) -> None:
    with pytest.raises(AvroError, match=said):
        message_reader(json.dumps(schema), [])


def test_a_list_has_no_more_items_than_bytes() -> None:
    read, _ = message_reader(json.dumps(record({"type": "array", "items": "int"})), [])
    with pytest.raises(AvroError, match="more items than bytes"):
        read_message(read, b"\xfe\xff\xff\xff\x0f\x02", 0)
    with pytest.raises(AvroError, match="other bytes"):
        read_message(read, b"\0\0", 0)


# -- Protobuf ----------------------------------------------------------------------------------------------------------

ORDERS = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "confluent/type/decimal.proto";
import "common/place.proto";
message First { int64 id = 1; }
message Order {
  map<string, int32> before = 9;
  message Line { string item = 1; double price = 2; }
  int64 id = 1;
  optional string note = 2;
  google.protobuf.Timestamp at = 3;
  repeated Line lines = 4;
  bytes data = 5;
  Colour colour = 6;
  common.Place place = 7;
  google.protobuf.Int32Value many = 8;
  confluent.type.Decimal total = 10;
  enum Colour { RED = 0; BLUE = 1; }
}
"""
PLACE = 'syntax = "proto3"; package common; message Place { string city = 1; uint64 post = 2; }'


@pytest.fixture(scope="module")
def orders() -> ProtoReader:
    return ProtoReader(ORDERS, [("common/place.proto", PLACE)])


def test_a_message_of_protobuf_becomes_a_document(orders: ProtoReader) -> None:
    made: Any = message_factory.GetMessageClass(orders._type_at((1,)))(id=-7, data=b"\xff", before={"a": 1}, colour=1)
    made.at.FromJsonString("2026-11-01T10:00:00.25Z")
    made.lines.add(item="x", price=0.5)
    made.place.post = 2**63
    made.total.value, made.total.scale = (-12_345).to_bytes(3, "big", signed=True), 2
    fields, meaning = orders.read(b"\x02\x02" + made.SerializeToString(), 0)
    assert fields == {
        "before": [("a", 1)],
        "id": -7,
        "note": None,
        "at": "2026-11-01T10:00:00.250000Z",
        "lines": [[("item", "x"), ("price", "0.5")]],
        "data": "/w==",
        "colour": "BLUE",
        "place": [("city", ""), ("post", 2**63)],
        "many": None,
        "total": "-123.45",
    }
    kinds = {name: str(one.kind) for name, one in meaning.fields.items()}
    assert kinds["place"] == "struct<city: string, post: decimal128(20, 0)>"
    assert orders.read(b"\x00\x08\x05", 0)[0] == {"id": 5}  # the first type of the file, in short
    line = message_factory.GetMessageClass(orders._type_at((1, 0)))(item="y").SerializeToString()
    assert orders.read(b"\x04\x02\x00" + line, 0)[0] == {"item": "y", "price": "0.0"}
    chance = random.Random(1)
    raw = b"\x02\x02" + made.SerializeToString()
    for _ in range(300):
        at = chance.randrange(len(raw))
        try:
            orders.read(raw[:at] + bytes([chance.randrange(256)]) + raw[at + chance.randint(0, 2) :], 0)
        except ProtoError:
            continue


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "cut off"),
        (b"\x02\x04", "lacks"),
        (b"\x02\x01", "negative"),
        (b"\x7e" * 99, "more than 32"),
        (b"\0\xff", "no message"),
    ],
)
def test_messages_of_protobuf_that_are_refused(orders: ProtoReader, raw: bytes, said: str) -> None:
    with pytest.raises(ProtoError, match=said):
        orders.read(raw, 0)


def test_files_of_protobuf_that_are_refused() -> None:
    wide = "".join(f"int32 f{at} = {at + 1};" for at in range(1_200))
    texts = [
        ('syntax = "proto3"; message A { A next = 1; }', "inside itself"),
        (f'syntax = "proto3"; message A {{ repeated B b = 1; message B {{ {wide} }} }}', "more than 1000000 values"),
        ("message", "protoc refuses it"),
    ]
    for text, said in texts:
        with pytest.raises(ProtoError, match=said):
            ProtoReader(text, []).read(b"\0" + b"\x0a\x00" * 1_000, 0)
    for name in ("../up.proto", "/etc/up.proto", "a/../../up.proto"):
        with pytest.raises(ProtoError, match="no name of a file"):
            ProtoReader('syntax = "proto3";', [(name, "")])


# -- the registry ------------------------------------------------------------------------------------------------------


@pytest.fixture
def registry() -> Iterator[Registry]:
    found = Registry()
    yield found
    found.close()


def test_a_schema_comes_with_those_that_it_refers_to(registry: Registry) -> None:
    inner = registry.add(record("int", name="shop.Inner"))
    middle = registry.add(record("shop.Inner", name="shop.Middle"), references=[("shop.Inner", str(inner))])
    outer = registry.add(
        record("shop.Middle", "shop.Inner"), references=[("shop.Inner", str(inner)), ("shop.Middle", str(middle))]
    )
    found = SchemaRegistry(registry.url + "/", secret_from("user:word", None)).fetch(outer)
    assert [name for name, _ in found.references] == ["shop.Inner", "shop.Middle"]
    read, _ = message_reader(found.text, [text for _, text in found.references])
    assert read_message(read, b"\x02\x04", 0) == {"f0": [("f0", [("f0", 1)])], "f1": [("f0", 2)]}
    assert set(registry.authorizations) == {"Basic dXNlcjp3b3Jk"}


def test_answers_of_a_registry_that_are_no_schema(registry: Registry, tmp_path: Any) -> None:
    secret = tmp_path / "secret"
    secret.write_text("token\n")
    schemas = SchemaRegistry(registry.url, secret_from("", str(secret)))
    with pytest.raises(InputError, match="has no schema 9"):
        schemas.fetch(9)
    assert registry.authorizations == ["Bearer token"]
    registry.answers["/schemas/ids/9"] = {"schema": 5}
    with pytest.raises(InputError, match="has no schema"):
        schemas.fetch(9)
    registry.answers["/schemas/ids/9"] = {"schema": "x" * (5 << 20)}
    with pytest.raises(InputError, match="more than"):
        schemas.fetch(9)
    loop = registry.add('syntax = "proto3";', "PROTOBUF", [("a", "1"), ("b", "7")])
    with pytest.raises(InputError, match="the registry lacks b"):
        schemas.fetch(loop)
    for status, failure in ((302, RegistryAwayError), (503, RegistryAwayError), (401, InputError)):
        registry.status = status
        with pytest.raises(failure):
            schemas.fetch(9)
    registry.close()
    with pytest.raises(RegistryAwayError):
        schemas.fetch(9)
    with pytest.raises(InputError, match="no address"):
        SchemaRegistry("http://user:word@127.0.0.1", secret_from("", None))
