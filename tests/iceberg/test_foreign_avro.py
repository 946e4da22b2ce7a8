"""Avro that others wrote is read as any reader of Avro would, and no file of it takes more than its limits."""

from __future__ import annotations

import io
import random
import struct
import zlib
from datetime import date
from decimal import Decimal
from typing import Any, Final

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaservice.shared.column_types import Atomic, Type
from metaservice.shared.column_types import Decimal as DecimalType
from tests.iceberg.foreign_avro import NULLS, RECURSIVE, avro, record
from worker.formats.avro import AvroLimits, read_avro
from worker.formats.avro_readers import AvroError
from worker.formats.avro_values import Field, Fields, Kind
from worker.iceberg.commits.manifests import ENTRY, LISTED
from worker.iceberg.metadata.avro_bytes import whole
from worker.iceberg.metadata.avro_files import entry_schema, list_schema
from worker.imports.iceberg_files import ENTRY as IMPORTED

LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
PARTITION: list[tuple[int, str, Type]] = [
    (1000, "day", Atomic("date")),
    (1001, "note", Atomic("string")),
    (1002, "price", DecimalType(10, 2)),
]
PAIRS = st.none() | st.dictionaries(st.integers(1, 9), st.binary(max_size=9), max_size=3)
COUNTED = st.none() | st.dictionaries(st.integers(1, 9), LONGS, max_size=3)
NUMBER: Final[Fields] = {"a": Field(Kind.WHOLE, is_required=True)}


def pairs(found: dict[int, Any] | None) -> list[dict[str, Any]] | None:
    return None if found is None else [{"key": key, "value": value} for key, value in found.items()]


FILES = st.fixed_dictionaries(
    {
        "content": st.integers(0, 2),
        "file_path": st.text(),
        "file_format": st.sampled_from(["PARQUET", "PUFFIN"]),
        "partition": st.fixed_dictionaries(
            {
                "day": st.none() | st.dates(),
                "note": st.none() | st.text(),
                "price": st.none() | st.integers(-(10**9), 10**9).map(lambda number: Decimal(number).scaleb(-2)),
            }
        ),
        "record_count": LONGS,
        "file_size_in_bytes": LONGS,
        "value_counts": COUNTED,
        "null_value_counts": COUNTED,
        "lower_bounds": PAIRS,
        "upper_bounds": PAIRS,
        "sort_order_id": st.none() | st.integers(0, 9),
        "referenced_data_file": st.none() | st.text(),
        "first_row_id": st.none() | LONGS,
        "content_offset": st.none() | LONGS,
        "content_size_in_bytes": st.none() | LONGS,
    }
)
ENTRIES = st.fixed_dictionaries(
    {
        "status": st.integers(0, 2),
        "snapshot_id": st.none() | LONGS,
        "sequence_number": st.none() | LONGS,
        "file_sequence_number": st.none() | LONGS,
        "data_file": FILES,
    }
)


def wanted_of(found: Any, fields: Fields) -> Any:
    """The fields of a whole record that a reader of some of them finds."""
    shown: dict[str, Any] = {}
    for name, one in fields.items():
        part = found.get(name)
        if not isinstance(one, Field):
            shown[name] = wanted_of(part, one)
        elif one.kind is Kind.PAIRS and part is not None:
            shown[name] = {pair["key"]: pair["value"] for pair in part}
        else:
            shown[name] = part
    return shown


@pytest.mark.parametrize("fields", [ENTRY, IMPORTED])
@settings(max_examples=40, deadline=None)
@given(entries=st.lists(ENTRIES, max_size=4), codec=st.sampled_from(["null", "deflate"]))
def test_entries_are_those_that_another_reader_finds(fields: Fields, entries: list[Any], codec: str) -> None:
    for one in entries:
        for name in ("value_counts", "null_value_counts", "lower_bounds", "upper_bounds"):
            if not isinstance(one["data_file"][name], list):
                one["data_file"][name] = pairs(one["data_file"][name])
    sink = io.BytesIO()
    fastavro.writer(sink, fastavro.parse_schema(entry_schema(PARTITION, 3)), entries, codec=codec)
    raw = sink.getvalue()
    theirs: list[Any] = list(fastavro.reader(io.BytesIO(raw)))
    assert read(raw, fields) == [wanted_of(one, fields) for one in theirs]


def read(raw: bytes, fields: Fields, limits: AvroLimits | None = None) -> list[Any]:
    return list(read_avro(io.BytesIO(raw), fields, limits or AvroLimits()))


def nested(depth: int) -> Any:
    found: Any = "long"
    for at in range(depth):
        found = {"type": "record", "name": f"r{at}", "fields": [{"name": "b", "type": found}]}
    return found


def doubled(times: int) -> Any:
    """A schema of a few types, of which a record has 2 ** times."""
    found: Any = record("null", name="t0")
    for at in range(1, times):
        found = record(found, f"t{at - 1}", name=f"t{at}")
    return found


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (avro(RECURSIVE, (1, b"\0" + b"\2" * 100_000 + b"\0")), "inside itself"),
        (avro(record(nested(40))), "deeper than"),
        (avro(b"[" * 100_000), "no Avro"),
        (avro(record(doubled(30))), "more than 20000"),
        (avro(NULLS, (1, b"\0" + whole(1 << 40) + b"\0")), "take no bytes"),
        (avro(record({"type": "array", "items": "long"}), (1, b"\0" + whole(1 << 40))), "more items than bytes"),
        (avro(record("string"), (1, b"\0" + whole(1 << 40) + b"abc")), "cut off"),
        (avro(record("bytes"), (1, b"\0" + whole(-(1 << 40)) + b"abc")), "cut off"),
        (avro(record({"type": "fixed", "name": "f", "size": 1 << 50})), "a fixed type of"),
        (avro(record(), (1 << 50, b"\0")), "says that it has"),
        (avro(record(), (-3, b"\0")), "says that it has"),
        (avro(record(), (1, b"\0\0")), "other bytes"),
        (avro(record(), (1, b"\xff" * 30 + b"\0")), "too long"),
        (avro(record(["null", "long"]), (1, b"\0\x08")), "no type of its union"),
        (avro(record(), (1, b"\0"), codec="xz"), "compressed by xz"),
        (avro({"type": "record", "name": "r", "fields": []}), "no field a"),
        (avro(record() | {"fields": [{"name": "a", "type": "string"}]}), "not a whole number"),
        (avro(record() | {"fields": [{"name": "a", "type": ["null", "long"]}]}, (1, b"\0")), "has no a"),
        (avro({"type": "record", "name": "r", "fields": 7}), "without a list of fields"),
        (avro(7), "something else"),
        (avro(record())[:-5], "header is cut off"),
        (avro(record(), (1, b"\0"))[:-5], "a block of it is cut off"),
        (b"Obj\1" + whole(1 << 60), "more than 1000 entries"),
        (b"Obj\1\2" + whole(1 << 60), "cut off"),
        (b"parquet", "no Avro file"),
        (b"", "no Avro file"),
    ],
)
def test_a_file_that_takes_more_than_its_bytes_is_refused(raw: bytes, said: str) -> None:
    with pytest.raises(AvroError, match=said):
        read(raw, NUMBER)


def test_a_small_file_does_not_unpack_to_a_large_one() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(80)) + packer.flush()
    assert len(bomb) < 100_000
    with pytest.raises(AvroError, match="unpacks to more than"):
        read(avro(record(), (1 << 20, bomb), codec="deflate"), NUMBER)
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = packer.compress(bytes(1 << 10)) + packer.flush()
    many = avro(record(), *[(1 << 10, block)] * 20, codec="deflate")
    assert len(read(many, NUMBER)) == 20 << 10
    with pytest.raises(AvroError, match="unpacks to more"):
        read(many, NUMBER, AvroLimits(unpacked_bytes=10 << 10))
    with pytest.raises(AvroError, match="has more than"):
        read(many, NUMBER, AvroLimits(file_bytes=0))


@pytest.mark.parametrize(("codec", "pack"), [("zstandard", "zstd"), ("snappy", "snappy")])
def test_blocks_of_other_compressions_are_read(codec: str, pack: str) -> None:
    numbers = b"".join(whole(at) for at in range(1_000))
    block: bytes = pa.Codec(pack).compress(numbers, asbytes=True)
    if codec == "snappy":
        block += struct.pack(">I", zlib.crc32(numbers))
    raw = avro(record(), (1_000, block), codec=codec)
    assert [one["a"] for one in read(raw, NUMBER)] == list(range(1_000))
    with pytest.raises(AvroError, match="unpacks to more than 1000 bytes"):
        read(raw, NUMBER, AvroLimits(unpacked_bytes=1_000))


def test_types_by_reference_are_read() -> None:
    pair = {"type": "record", "name": "p", "namespace": "n", "fields": [{"name": "x", "type": "long"}]}
    assert read(avro(record(pair, "p", "n.p"), (1, b"\2\4\6\x08")), NUMBER) == [{"a": 1}]


def test_changed_bytes_are_refused_and_never_more() -> None:
    """Every answer to a broken file is records or AvroError."""
    entry: dict[str, Any] = {
        "status": 1,
        "snapshot_id": 7,
        "data_file": {
            "content": 0,
            "file_path": "file:///a",
            "file_format": "PARQUET",
            "partition": {"day": date(2026, 11, 1), "note": "n", "price": Decimal("1.50")},
            "record_count": 1,
            "file_size_in_bytes": 1,
            "lower_bounds": [{"key": 1, "value": b"abc"}],
        },
    }
    listed = dict.fromkeys((one["name"] for one in list_schema(3)["fields"]), 1) | {
        "manifest_path": "file:///a",
        "partitions": [{"contains_null": False, "lower_bound": b"a"}],
    }
    random_bytes = random.Random(31)
    for schema, records, fields in (
        (entry_schema(PARTITION, 3), [entry] * 3, IMPORTED),
        (list_schema(3), [listed] * 3, LISTED),
    ):
        sink = io.BytesIO()
        fastavro.writer(sink, fastavro.parse_schema(schema), records, codec="null")
        whole_file = sink.getvalue()
        assert len(read(whole_file, fields)) == 3
        for _ in range(2_000):
            raw = bytearray(whole_file)
            for _ in range(random_bytes.randint(1, 4)):
                at = random_bytes.randrange(len(raw))
                raw[at] = random_bytes.choice([0, 1, 2, 0x7F, 0x80, 0xFF, random_bytes.randrange(256)])
            try:
                read(bytes(raw), fields)
            except AvroError:
                continue
