"""How values look in tables, in CSV and in JSON."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from worker.formats.text_values import cells, csv_line, csv_lines, json_lines


def one_column(values: list[Any], kind: pa.DataType) -> pa.RecordBatch:
    """Of the values, cut out of more."""
    return pa.record_batch({"v": pa.array([None, *values, None], kind)}).slice(1, len(values))


def documents(batch: pa.RecordBatch) -> list[str]:
    lines = json_lines(batch).splitlines()
    assert [list(json.loads(line)) for line in lines] == [["v"]] * len(batch)
    return [line.removeprefix('{"v": ').removesuffix("}") for line in lines]


@pytest.mark.parametrize(
    ("values", "kind", "text", "document"),
    [
        ([True, None], pa.bool_(), ["true", "NULL"], ["true", "null"]),
        ([-(2**63), None], pa.int64(), ["-9223372036854775808", "NULL"], ["-9223372036854775808", "null"]),
        ([1.0, 0.1, 1e20, -0.0], pa.float32(), ["1.0", "0.1", "1e+20", "-0.0"], ["1.0", "0.1", "1e+20", "-0.0"]),
        ([float("nan"), None], pa.float64(), ["NaN", "NULL"], ['"NaN"', "null"]),
        ([float("-inf")], pa.float64(), ["-Infinity"], ['"-Infinity"']),
        ([Decimal("0E-10"), None], pa.decimal128(20, 10), ["0.0000000000", "NULL"], ["0.0000000000", "null"]),
        ([Decimal("1.50")], pa.decimal128(10, 2), ["1.50"], ["1.50"]),
        (["ä \u202e\n", None], pa.string(), ["ä \u202e\n", "NULL"], ['"ä \\u202e\\n"', "null"]),
        ([b"\x00\xff", None, b""], pa.binary(), ["X'00FF'", "NULL", "X''"], ['"AP8="', "null", '""']),
        ([date(1, 1, 1), None], pa.date32(), ["0001-01-01", "NULL"], ['"0001-01-01"', "null"]),
        ([0, None], pa.timestamp("us", "UTC"), ["1970-01-01 00:00:00Z", "NULL"], ['"1970-01-01T00:00:00Z"', "null"]),
        ([253402300800000001], pa.timestamp("us"), ["10000-01-01 00:00:00.000001"], ['"10000-01-01T00:00:00.000001"']),
    ],
)
def test_every_type_has_its_text(values: list[Any], kind: pa.DataType, text: list[str], document: list[str]) -> None:
    batch = one_column(values, kind)
    assert [row[0] for row in cells(batch)] == text
    assert documents(batch) == document


@pytest.mark.parametrize(
    ("values", "kind", "text"),
    [
        ([[1, None], [], None, [2]], pa.list_(pa.int64()), ["[1, null]", "[]", "NULL", "[2]"]),
        (
            [{"a": 1, 'b"': None}, None, {"a": None, 'b"': "x"}],
            pa.struct([("a", pa.int32()), ('b"', pa.string())]),
            ['{"a": 1, "b\\"": null}', "NULL", '{"a": null, "b\\"": "x"}'],
        ),
        ([[(1, 1.5), (2, None)], None, []], pa.map_(pa.int64(), pa.float64()), ['{"1": 1.5, "2": null}', "NULL", "{}"]),
        (
            [[{"at": [0]}], [None], [{"at": None}]],
            pa.list_(pa.struct([("at", pa.list_(pa.timestamp("us")))])),
            ['[{"at": ["1970-01-01T00:00:00"]}]', "[null]", '[{"at": null}]'],
        ),
    ],
)
def test_nested_values_are_shown_as_json(values: list[Any], kind: pa.DataType, text: list[str]) -> None:
    batch = one_column(values, kind)
    assert [row[0] for row in cells(batch)] == text
    assert documents(batch) == ["null" if one == "NULL" else one for one in text]


def test_names_are_written_as_they_are() -> None:
    batch = pa.record_batch({'100% "sure"': [1], "b": ["x"]})
    assert json.loads(json_lines(batch)) == {'100% "sure"': 1, "b": "x"}


def test_cells_of_csv_are_quoted_where_they_must_be() -> None:
    texts = ["x", "", None, 'a"b', "1,2", "two\nlines", "a\rb"]
    batch = pa.record_batch({"a": texts, "b": [1.0] * len(texts)})
    assert csv_lines(batch) == 'x,1.0\n"",1.0\n,1.0\n"a""b",1.0\n"1,2",1.0\n"two\nlines",1.0\n"a\rb",1.0\n'
    assert csv_lines(batch) == "".join(csv_line([one, "1.0"]) for one in texts)
