"""Manifest entries in bytes: a reader of Avro finds in them what they were written from."""

from __future__ import annotations

import io
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.iceberg.metadata.avro_bytes import RECORDS_A_BLOCK, file_of, whole
from worker.iceberg.metadata.avro_files import entry_schema
from worker.iceberg.metadata.delete_files import DeleteFile
from worker.iceberg.metadata.deletes import FILE_PATH_ID, Place
from worker.iceberg.metadata.entries import Entries
from worker.iceberg.metadata.facts import ShownFile
from worker.iceberg.metadata.partitions import partition_columns

LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
COUNTS = st.integers(0, 1 << 62)
UNSCALED = st.integers(-(10**10) + 1, 10**10 - 1)
KINDS: Final[Mapping[str, tuple[str, st.SearchStrategy[Any]]]] = {  # the field of the wire value, and plain values
    "boolean": ("boolean", st.booleans()),
    "int": ("integer", st.integers(-(1 << 31), (1 << 31) - 1)),
    "bigint": ("integer", LONGS),
    "float": ("real", st.floats(width=32, allow_nan=False)),
    "double": ("real", st.floats(allow_nan=False)),
    "string": ("text", st.text()),
    "binary": ("binary", st.binary()),
    "date": ("date", st.integers(-(1 << 31), (1 << 31) - 1)),
    "timestamp": ("timestamp_us", LONGS),
    "decimal(10,2)": ("decimal", UNSCALED.map(lambda number: Decimal(number).scaleb(-2))),
}
COLUMNS = [catalog_pb2.Column(name=kind, type=kind, column_id=at) for at, kind in enumerate(KINDS, 1)]
NAMES = list(KINDS)


def wire(kind: str, value: Any) -> common_pb2.Value:
    if value is None:
        return common_pb2.Value(null=common_pb2.NULL_VALUE_UNSPECIFIED)
    found = common_pb2.Value()
    setattr(found, KINDS[kind][0], f"{value:f}" if isinstance(value, Decimal) else value)
    return found


@st.composite
def partitions(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
    return {name: draw(st.none() | KINDS[name][1]) for name in names}


@st.composite
def statistics(draw: st.DrawFn) -> dict[str, tuple[int | None, Any, Any]]:
    """Nulls, the least and the largest value of some columns."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True))
    return {
        name: (draw(st.none() | COUNTS), draw(st.none() | KINDS[name][1]), draw(st.none() | KINDS[name][1]))
        for name in names
    }


@st.composite
def files(draw: st.DrawFn) -> tuple[ShownFile, dict[str, Any], dict[str, tuple[int | None, Any, Any]]]:
    values, stats = draw(partitions()), draw(statistics())
    file = common_pb2.DataFile(path="a", rows=draw(COUNTS), bytes=draw(COUNTS), first_row_id=draw(st.none() | COUNTS))
    for name, value in draw(st.permutations(list(values.items()))):
        file.partition.values.add(column=name, value=wire(name, value))
    for name, (nulls, least, most) in stats.items():
        one = file.stats.add(column_id=NAMES.index(name) + 1, nulls=nulls)
        if least is not None:
            one.min.CopyFrom(wire(name, least))
        if most is not None:
            one.max.CopyFrom(wire(name, most))
    entry = common_pb2.LiveEntry(file=file, data_version=draw(COUNTS), added_version=draw(COUNTS))
    hidden = BitMap64(draw(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=3)))
    return ShownFile(entry, f"s3://b/{draw(st.text(max_size=200))}", hidden), values, stats


def read_back(form: int, names: list[str], record: bytes) -> Any:
    listed = partition_columns(catalog_pb2.Table(partition_columns=names), COLUMNS)
    schema = _plain(entry_schema([(one.field_id, f"p{one.column_id}", one.kind) for one in listed], form))
    (found,) = fastavro.reader(io.BytesIO(file_of(schema, [record], {"a": "b"})))
    return found


def _plain(schema: Any) -> Any:
    """The schema without logical types, so that values are read as they are written."""
    match schema:
        case dict():
            return {key: _plain(value) for key, value in schema.items() if key != "logicalType"}
        case list():
            return [_plain(one) for one in schema]
        case _:
            return schema


def entries_of(names: list[str], form: int) -> Entries:
    return Entries(partition_columns(catalog_pb2.Table(partition_columns=names), COLUMNS), COLUMNS, form)


def expected_partition(values: Mapping[str, Any]) -> dict[str, Any]:
    found = {f"p{NAMES.index(name) + 1}": value for name, value in values.items()}
    for name, value in found.items():
        if isinstance(value, Decimal):
            found[name] = int(value.scaleb(2)).to_bytes(5, "big", signed=True)
    return found


def bounds_of(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    conversions = pytest.importorskip("pyiceberg.conversions", reason="pyiceberg is not installed")
    types = pytest.importorskip("pyiceberg.types", reason="pyiceberg is not installed")
    kinds = {
        "boolean": types.BooleanType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "float": types.FloatType(),
        "double": types.DoubleType(),
        "string": types.StringType(),
        "binary": types.BinaryType(),
        "date": types.DateType(),
        "timestamp": types.TimestamptzType(),
        "decimal(10,2)": types.DecimalType(10, 2),
    }
    names = [NAMES[one["key"] - 1] for one in pairs]
    return {name: conversions.from_bytes(kinds[name], one["value"]) for name, one in zip(names, pairs, strict=True)}


@given(made=files(), form=st.sampled_from([2, 3]), newest=COUNTS)
def test_a_data_file_is_read_as_it_is(made: Any, form: int, newest: int) -> None:
    one, values, stats = made
    names = list(values)
    entries = entries_of(names, form)
    found = read_back(form, names, entries.head(one, newest) + entries.data_file(one))
    added = one.entry.added_version + 1
    file = found.pop("data_file")
    assert found == {
        "status": int(added == newest + 1),
        "snapshot_id": added,
        "sequence_number": one.entry.data_version + 1,
        "file_sequence_number": added,
    }
    floats = {"float", "double"}
    assert bounds_of(file.pop("lower_bounds")) == {
        name: least for name, (_, least, _) in stats.items() if least is not None
    }
    assert bounds_of(file.pop("upper_bounds")) == {
        name: most for name, (_, _, most) in stats.items() if most is not None and name not in floats
    }
    assert {one["key"]: one["value"] for one in file.pop("value_counts")} == {
        NAMES.index(name) + 1: one.file.rows for name in stats
    }
    assert {one["key"]: one["value"] for one in file.pop("null_value_counts")} == {
        NAMES.index(name) + 1: nulls for name, (nulls, _, _) in stats.items() if nulls is not None
    }
    first = one.file.first_row_id if one.file.HasField("first_row_id") else None
    assert file == {
        "content": 0,
        "file_path": one.path,
        "file_format": "PARQUET",
        "partition": expected_partition(values),
        "record_count": one.file.rows,
        "file_size_in_bytes": one.file.bytes,
        "sort_order_id": None,
        "referenced_data_file": None,
    } | ({"first_row_id": first, "content_offset": None, "content_size_in_bytes": None} if form == 3 else {})


@given(made=files(), form=st.sampled_from([2, 3]), place=st.tuples(COUNTS, COUNTS))
def test_hidden_rows_are_read_as_they_are(made: Any, form: int, place: tuple[int, int]) -> None:
    one, values, _ = made
    names = list(values)
    entries = entries_of(names, form)
    at = DeleteFile("file:///d", 7, Place(*place) if form == 3 else None)
    written = entries.delete_file(one, at)
    file = read_back(form, names, entries.head(one, 0) + written)["data_file"]
    only = [{"key": FILE_PATH_ID, "value": one.path.encode()}] if form == 2 else None
    more = {"first_row_id": None, "content_offset": place[0], "content_size_in_bytes": place[1]}
    assert file == {
        "content": 1,
        "file_path": "file:///d",
        "file_format": "PUFFIN" if form == 3 else "PARQUET",
        "partition": expected_partition(values),
        "record_count": len(one.hidden),
        "file_size_in_bytes": 7,
        "value_counts": None,
        "null_value_counts": None,
        "lower_bounds": only,
        "upper_bounds": only,
        "sort_order_id": None,
        "referenced_data_file": one.path,
    } | (more if form == 3 else {})


@given(number=LONGS)
def test_whole_numbers_are_those_of_avro(number: int) -> None:
    assert fastavro.schemaless_reader(io.BytesIO(whole(number)), "long", None) == number


@pytest.mark.parametrize("count", [0, 1, RECORDS_A_BLOCK, 2 * RECORDS_A_BLOCK + 1])
def test_files_of_many_records_are_whole(count: int) -> None:
    raw = file_of(
        {"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}, [*map(whole, range(count))], {}
    )
    found: list[Any] = list(fastavro.reader(io.BytesIO(raw)))
    assert [one["n"] for one in found] == list(range(count))


def test_a_lower_bound_of_zero_is_below_both_zeros() -> None:
    entries = entries_of([], 3)
    file = common_pb2.DataFile(path="a", rows=1)
    file.stats.add(column_id=NAMES.index("double") + 1, min=common_pb2.Value(real=0.0), max=common_pb2.Value(real=1.0))
    one = ShownFile(common_pb2.LiveEntry(file=file), "file:///a", BitMap64())
    found = read_back(3, [], entries.head(one, 0) + entries.data_file(one))
    assert found["data_file"]["lower_bounds"][0]["value"] == b"\0" * 7 + b"\x80"
