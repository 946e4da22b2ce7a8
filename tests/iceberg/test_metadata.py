"""The parts of Iceberg's files, byte by byte."""

from __future__ import annotations

import io
import json
import struct
import zlib
from typing import Any

import fastavro
import pytest
from pyroaring import BitMap64

from iceberg.locations import location_of
from iceberg.metadata import manifests
from iceberg.metadata.avro_files import avro_name
from iceberg.metadata.deletes import puffin, vector
from iceberg.metadata.facts import ShownFile, SnapshotFacts, TableFacts
from iceberg.metadata.manifests import make_snapshot
from iceberg.metadata.values import avro_value, bound, decimal_bytes, plain_value
from laketx import InputError
from metaservice.column_types import read_type
from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2


@pytest.mark.parametrize(
    ("kind", "value", "raw"),
    [
        ("tinyint", common_pb2.Value(integer=-1), b"\xff\xff\xff\xff"),
        ("bigint", common_pb2.Value(integer=258), b"\x02\x01\0\0\0\0\0\0"),
        ("boolean", common_pb2.Value(boolean=True), b"\x01"),
        ("double", common_pb2.Value(real=1.0), b"\0\0\0\0\0\0\xf0\x3f"),
        ("string", common_pb2.Value(text="ü"), "ü".encode()),
        ("binary", common_pb2.Value(binary=b"\0\1"), b"\0\1"),
        ("date", common_pb2.Value(date=1), b"\1\0\0\0"),
        ("timestamp_ntz", common_pb2.Value(timestamp_us=1), b"\1\0\0\0\0\0\0\0"),
        ("decimal(10,2)", common_pb2.Value(decimal="-1.28"), b"\x80"),
        ("decimal(10,2)", common_pb2.Value(decimal="1.28"), b"\x00\x80"),
        ("decimal(38,10)", common_pb2.Value(decimal="0.5"), (5 * 10**9).to_bytes(5, "big")),
    ],
)
def test_bounds_in_bytes(kind: str, value: common_pb2.Value, raw: bytes) -> None:
    column = read_type(kind)
    assert bound(plain_value(value, column), column) == raw


def test_a_value_of_another_type_is_none() -> None:
    assert plain_value(common_pb2.Value(text="1"), read_type("bigint")) is None
    assert plain_value(common_pb2.Value(decimal="1.234"), read_type("decimal(10,2)")) is None
    assert plain_value(common_pb2.Value(null=common_pb2.NULL_VALUE_UNSPECIFIED), read_type("date")) is None


def test_decimals_of_partitions_have_a_fixed_length() -> None:
    assert [decimal_bytes(digits) for digits in (1, 9, 10, 18, 38)] == [1, 4, 5, 8, 16]
    assert avro_value(-1, read_type("decimal(10,2)")) == b"\xff" * 5


def test_names_are_those_of_avro() -> None:
    assert [avro_name(name) for name in ("day", "1st", "a b", "ü")] == ["day", "_1st", "a_x20b", "_xFC"]


def test_a_deletion_vector_is_framed() -> None:
    blob = vector(BitMap64([1, 7, 1 << 33]))
    length, magic = struct.unpack(">I", blob[:4])[0], blob[4:8]
    assert (length, magic) == (len(blob) - 8, b"\xd1\xd3\x39\x64")
    assert zlib.crc32(blob[4:-4]) == struct.unpack(">I", blob[-4:])[0]
    assert list(BitMap64.deserialize(blob[8:-4])) == [1, 7, 1 << 33]


def shown(number: int, hidden: tuple[int, ...] = ()) -> ShownFile:
    file = common_pb2.DataFile(path=f"t/{number}", rows=10, bytes=100, first_row_id=10 * number)
    entry = common_pb2.LiveEntry(file=file, data_version=number, added_version=number)
    return ShownFile(entry, f"file:///t/{number}", BitMap64(hidden))


def test_a_puffin_file_lists_its_vectors() -> None:
    content, places = puffin([shown(1, (0, 3)), shown(2, (4,))])
    size = struct.unpack("<I", content[-12:-8])[0]
    blobs = json.loads(content[-12 - size : -12])["blobs"]
    assert (content[:4], content[-4:], content[-16 - size : -12 - size]) == (b"PFA1",) * 3
    assert [one["properties"]["cardinality"] for one in blobs] == ["2", "1"]
    for place, hidden in zip(places, ([0, 3], [4]), strict=True):
        blob = content[place.offset : place.offset + place.length]
        assert list(BitMap64.deserialize(blob[8:-4])) == hidden


def test_many_files_have_several_manifests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "ENTRIES_MAX", 2)
    schema = catalog_pb2.SchemaVersion(columns=[catalog_pb2.Column(name="id", type="bigint", column_id=1)])
    commit = read_pb2.Version(version=5)
    table = TableFacts(catalog_pb2.Table(table_id="t"), "file:///t/_iceberg")
    made = make_snapshot(table, SnapshotFacts(commit, schema, [shown(number) for number in range(1, 6)]))
    again = make_snapshot(table, SnapshotFacts(commit, schema, [shown(number) for number in range(1, 6)]))
    assert made == again
    listed: list[Any] = list(fastavro.reader(io.BytesIO(made.files[-1].content)))
    assert [one["first_row_id"] for one in listed] == [10, 30, 50]
    assert [(one["added_files_count"], one["existing_files_count"]) for one in listed] == [(0, 2), (0, 2), (1, 0)]
    assert [one["min_sequence_number"] for one in listed] == [2, 4, 6]


def test_locations_are_uris_without_escapes() -> None:
    assert location_of("s3a://b/t x") == "s3://b/t x"
    assert location_of("/t/a") == location_of("file:/t/a") == "file:///t/a"
    with pytest.raises(InputError) as caught:
        location_of("/t/a#b")
    assert caught.value.reason == "ICEBERG_PATH"
