"""What `texts` writes is read as what it was; what is no value of a type is refused, and says why."""

from __future__ import annotations

import io
import math
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.arrow.tables import texts
from worker.formats.csv_records import read_records
from worker.formats.json_lines import decode, from_documents
from worker.formats.rejects import UnfitError
from worker.formats.text_parser import from_texts
from worker.formats.text_values import csv_line, csv_lines, json_lines

FLAT = {
    "boolean": (pa.bool_(), st.booleans()),
    "tinyint": (pa.int8(), st.integers(-128, 127)),
    "bigint": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float": (pa.float32(), st.floats(width=32)),
    "double": (pa.float64(), st.floats()),
    "decimal": (pa.decimal128(9, 4), st.decimals(-99999, 99999, places=4)),
    "long decimal": (pa.decimal128(38, 0), st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal)),
    "small decimal": (
        pa.decimal128(38, 38),
        st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(f"{n}E-38")),
    ),
    "string": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=5)),
    "quoted": (pa.string(), st.text('",\r\n\\ a', max_size=6)),
    "binary": (pa.binary(), st.binary(max_size=4)),
    "date": (pa.date32(), st.integers(-800_000, 11_000_000)),
    "timestamp": (pa.timestamp("us", "UTC"), st.integers(-(2**56), 2**59)),
    "timestamp_ntz": (pa.timestamp("us"), st.integers(-(2**56), 2**59)),
}


def array(values: list[Any], kind: pa.DataType) -> Any:
    return pa.array(values, pa.int32()).cast(kind) if pa.types.is_date(kind) else pa.array(values, kind)


def same(found: Any, wanted: Any) -> bool:
    """NaN equals itself, and 0.0 differs from -0.0."""
    if pa.types.is_floating(wanted.type):
        return [math.copysign(1, one) if one == 0 else repr(one) for one in found.to_pylist() if one is not None] == [
            math.copysign(1, one) if one == 0 else repr(one) for one in wanted.to_pylist() if one is not None
        ] and found.is_null().equals(wanted.is_null())
    return bool(found.equals(wanted))


@pytest.mark.parametrize("name", FLAT)
@settings(max_examples=30)
@given(data=st.data())
def test_a_column_comes_back_from_csv_and_from_json(name: str, data: st.DataObject) -> None:
    check_column(name, data)


@pytest.mark.long
@pytest.mark.parametrize("name", FLAT)
@settings(max_examples=1_000)
@given(data=st.data())
def test_many_columns_come_back_from_csv_and_from_json(name: str, data: st.DataObject) -> None:
    check_column(name, data)


def check_column(name: str, data: st.DataObject) -> None:
    kind, values = FLAT[name]
    wanted = array(data.draw(st.lists(st.none() | values, max_size=6)), kind)
    for other in ([], [pa.nulls(len(wanted), pa.string())]):  # a column alone, and beside another
        batch = pa.record_batch([wanted, *other], ["v", "w"][: 1 + len(other)])
        written = (csv_line(batch.schema.names) + csv_lines(batch)).encode()
        cells = pa.concat_tables([one.cells for one in read_records(io.BytesIO(written))])
        assert same(from_texts(cells.column(0).combine_chunks(), kind, "v"), wanted)
    batch = pa.record_batch([wanted], ["v"])
    documents = [decode(line)[0][1] for line in json_lines(batch).split("\n")[:-1]]
    assert same(from_documents(documents, kind, "v"), wanted)


NESTED = pa.struct(
    [
        ("l", pa.list_(pa.list_(pa.int32()))),
        ("m", pa.map_(pa.timestamp("us", "UTC"), pa.struct([("d", pa.decimal128(5, 2))]))),
        ("n", pa.map_(pa.struct([("a", pa.int8()), ("b", pa.binary())]), pa.float64())),
        ("o", pa.map_(pa.float64(), pa.bool_())),
    ]
)
MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1))  # noqa: DTZ001 - of UTC
ROWS = st.none() | st.fixed_dictionaries(
    {
        "l": st.none() | st.lists(st.none() | st.lists(st.none() | st.integers(-9, 9), max_size=3), max_size=3),
        "m": st.none()
        | st.dictionaries(
            MOMENTS, st.none() | st.fixed_dictionaries({"d": st.none() | st.decimals(-99, 99, places=2)}), max_size=2
        ).map(lambda pairs: list(pairs.items())),
        "n": st.none()
        | st.dictionaries(
            st.tuples(st.integers(-9, 9), st.binary(max_size=2)), st.none() | st.floats(), max_size=2
        ).map(lambda pairs: [({"a": a, "b": b}, value) for (a, b), value in pairs.items()]),
        "o": st.none()
        | st.dictionaries(st.floats(allow_nan=False), st.booleans(), max_size=2).map(lambda m: list(m.items())),
    }
)


@given(st.lists(ROWS, max_size=4))
def test_nested_values_come_back_from_json(rows: list[Any]) -> None:
    wanted = pa.table({"v": pa.array(rows, NESTED)})
    lines = [line for batch in wanted.to_batches() for line in json_lines(batch).split("\n")[:-1]]
    found = pa.table({"v": from_documents([decode(line)[0][1] for line in lines], NESTED, "v")})
    assert found.schema == wanted.schema
    assert texts(found) == texts(wanted)


# -- one text after another --------------------------------------------------------------------------------------------

DAY = date(2026, 11, 1)
NOON = datetime(2026, 11, 1, 12)  # noqa: DTZ001 - a timestamp_ntz


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("TRUE", pa.bool_(), True),
        ("0", pa.bool_(), False),
        (" 7\t", pa.int32(), 7),
        ("+7", pa.int8(), 7),
        ("1.0", pa.int64(), 1),
        ("1e3", pa.int64(), 1000),
        ("-9223372036854775808", pa.int64(), -(2**63)),
        ("007", pa.int64(), 7),
        (".5", pa.float64(), 0.5),
        ("-infinity", pa.float32(), -math.inf),
        ("1e-400", pa.float64(), 0.0),
        ("1.500", pa.decimal128(3, 1), Decimal("1.5")),
        ("1E+2", pa.decimal128(3, 0), Decimal(100)),
        ("-0.1", pa.decimal128(1, 1), Decimal("-0.1")),
        ("0" * 50 + "1", pa.decimal128(2, 0), Decimal(1)),
        ("2026-11-01", pa.date32(), DAY),
        ("2026-11-01", pa.timestamp("us"), datetime.combine(DAY, datetime.min.time())),
        ("2026-11-01T12:00", pa.timestamp("us"), NOON),
        ("2026-11-01 12:00:00.000001000", pa.timestamp("us"), NOON + timedelta(microseconds=1)),
        (" x'00fF' ", pa.binary(), b"\0\xff"),
        ("NULL", pa.string(), "NULL"),
        (" 7 ", pa.string(), " 7 "),
    ],
)
def test_forms_that_are_taken(text: str, kind: pa.DataType, value: Any) -> None:
    assert from_texts(pa.array([text, None]), kind, "v").to_pylist() == [value, None]


@pytest.mark.parametrize(
    "text", ["2026-11-01T12:00:00Z", "2026-11-01 13:30:00.0+01:30", "2026-11-01 11:00-01", "2026-11-01 12:00:00+0000"]
)
def test_instants_in_any_zone(text: str) -> None:
    [found] = from_texts(pa.array([text]), pa.timestamp("us", "UTC"), "v").to_pylist()
    assert found.replace(tzinfo=None) == NOON


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("yes", pa.bool_(), "`yes` is no boolean"),
        ("", pa.int64(), "`` is no bigint"),
        ("0x1F", pa.int64(), "`0x1F` is no bigint"),
        ("1_000", pa.int64(), "no bigint"),
        ("٣", pa.int64(), "no bigint"),
        ("NULL", pa.int64(), "no bigint"),
        ("1.5", pa.int32(), "`1.5` is no int: it would change"),
        ("128", pa.int8(), "`128` is no tinyint"),
        ("9223372036854775808", pa.int64(), "out of range"),
        ("1e999999999", pa.int64(), "out of range"),
        ("1e400", pa.float64(), "`1e400` is no double: it is out of range"),
        ("1e39", pa.float32(), "out of range"),
        ("1,5", pa.float64(), "no double"),
        ("1.25", pa.decimal128(9, 1), "`1.25` is no decimal(9,1): it would change"),
        ("1" + "0" * 39, pa.decimal128(38, 0), "out of range"),
        ("100", pa.decimal128(38, 36), "out of range"),
        ("NaN", pa.decimal128(38, 0), "no decimal(38,0)"),
        ("2026-02-30", pa.date32(), "`2026-02-30` is no date"),
        ("01.11.2026", pa.date32(), "no date"),
        ("2026-11-01 12:00:00", pa.date32(), "no date"),
        ("2026-11-01 12:00:00", pa.timestamp("us", "UTC"), "it has no time zone, such as Z or +01:00"),
        (
            "2026-11-01 12:00:00Z",
            pa.timestamp("us"),
            "`2026-11-01 12:00:00Z` is no timestamp_ntz: it takes no time zone",
        ),
        ("2026-11-01 12:00:00.0000001", pa.timestamp("us"), "parts of a microsecond"),
        ("2026-11-01 12:00.5", pa.timestamp("us"), "no timestamp_ntz"),
        ("2026-11-01 24:00:00", pa.timestamp("us"), "no timestamp_ntz"),
        ("999999-01-01", pa.timestamp("us"), "out of range"),
        ("X'0'", pa.binary(), "bytes are written X'00FF'"),
        ("AP8=", pa.binary(), "no binary"),
    ],
)
def test_forms_that_are_refused(text: str, kind: pa.DataType, said: str) -> None:
    right = {pa.bool_(): "true", pa.binary(): "X''", pa.date32(): "2026-11-01"}
    good = right.get(
        kind, "2026-11-01 12:00:00" + "Z" * bool(getattr(kind, "tz", None)) if pa.types.is_timestamp(kind) else "1"
    )
    with pytest.raises(UnfitError) as refused:
        from_texts(pa.array([None, good, text, "worse"]), kind, "v")
    assert said in refused.value.message
    assert refused.value.column == "v"


@pytest.mark.parametrize(
    ("document", "kind", "said"),
    [
        ('"7"', pa.int64(), '`"7"` is no bigint'),
        ("true", pa.int64(), "`true` is no bigint"),
        ("1", pa.bool_(), "`1` is no boolean"),
        ("7", pa.string(), "`7` is no string"),
        ("1.5", pa.int64(), "`1.5` is no bigint: it would change"),
        ('"1.5"', pa.decimal128(5, 2), "no decimal(5,2)"),
        ('"nan"', pa.float64(), '`"nan"` is no double'),
        ("20261101", pa.date32(), "no date"),
        ("\"X'00'\"", pa.binary(), "is no base64"),
        ('"\\ud800"', pa.string(), "no character"),
        ("{}", pa.list_(pa.int64()), "an object is no array"),
        ("[]", pa.struct([("a", pa.int64())]), "an array is no struct"),
        ('[1, "2"]', pa.list_(pa.int64()), '`"2"` is no bigint'),
        ('{"a": 1, "A": 2}', pa.struct([("a", pa.int64())]), "the field A is there twice"),
        ('{"b": 1}', pa.struct([("a", pa.int64())]), "there is no field b"),
        ('{"x": 1}', pa.map_(pa.int64(), pa.int64()), "`x` is no bigint"),
        ('{"1": 1, "1": 2}', pa.map_(pa.int64(), pa.int64()), "a map has a key twice"),
        ('{"{": 1}', pa.map_(pa.struct([("a", pa.int64())]), pa.int64()), "a key is no struct"),
    ],
)
def test_documents_that_are_refused(document: str, kind: pa.DataType, said: str) -> None:
    with pytest.raises(UnfitError) as refused:
        from_documents([None, decode(document)], kind, "v")
    assert said in refused.value.message


@pytest.mark.parametrize(
    ("kind", "odd"),
    [
        (pa.int64(), "+1"),
        (pa.decimal128(6, 2), "1e0"),
        (pa.date32(), "10000-01-01"),
        (pa.timestamp("us"), "2026-11-01"),
        (pa.timestamp("us", "UTC"), "2026-11-01 12:00Z"),
    ],
    ids=str,
)
@given(data=st.data())
def test_both_ways_to_read_agree(kind: pa.DataType, odd: str, data: st.DataObject) -> None:
    """An odd text beside it makes a text be read one by one, and not by Arrow."""
    days = r"[0-9]{4}-(0[0-9]|1[0-3])-([0-2][0-9]|3[0-2])"
    forms = {
        pa.int64(): r"-?[0-9]{1,19}",
        pa.decimal128(6, 2): r"[+-]?[0-9]{1,5}(\.[0-9]{1,3})?",
        pa.date32(): days,
        pa.timestamp("us"): days + r"[ T][0-2][0-9]:[0-6][0-9]:[0-6][0-9](\.[0-9]{1,6})?",
        pa.timestamp("us", "UTC"): days + r" [0-2][0-9]:[0-5][0-9]:[0-5][0-9](Z|[+-][0-2][0-9]:[0-6][0-9])",
    }
    text = data.draw(st.from_regex(forms[kind], fullmatch=True))
    assert read(text, kind, []) == read(text, kind, [odd])


def read(text: str, kind: pa.DataType, beside: list[str]) -> str:
    try:
        found = from_texts(pa.array([text, *beside]), kind, "v")
    except UnfitError:
        return "refused"
    if pa.types.is_date(kind):
        return repr(found[0].cast(pa.int32()).as_py())  # Python has no year 0
    return repr(found[0].cast(pa.int64()).as_py() if pa.types.is_timestamp(kind) else str(found[0]))
