"""What reads are made of, without Spark: conditions, hashes, blocks, hidden keys."""

import tempfile
from collections.abc import Iterable
from datetime import UTC
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from protos.laketx.v1 import common_pb2
from worker.arrow.scan.key_merge import BucketToMerge, KeyFile, hidden_in
from worker.files.bucket_hash import row_hashes
from worker.files.position_blocks import blocks_of, has_bits, positions_of
from worker.spark.conditions import parse_condition
from worker.spark.session import find_zone

TYPES = {
    "id": "bigint",
    "amount": "double",
    "price": "decimal(10,2)",
    "status": "string",
    "flag": "boolean",
    "day": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "raw": "binary",
    "tags": "array<string>",
    "Date": "string",
}


def parsed(condition: str) -> str:
    return show(parse_condition(condition, TYPES, find_zone("Europe/Berlin")))


def show(predicate: common_pb2.Predicate) -> str:
    kind = predicate.WhichOneof("kind")
    match kind:
        case "literal":
            return str(predicate.literal).upper()
        case "compare":
            operator = common_pb2.Comparison.Name(predicate.compare.comparison).removeprefix("COMPARISON_")
            return f"{predicate.compare.column} {operator} {value(predicate.compare.value)}"
        case "in_list":
            return f"{predicate.in_list.column} IN {[value(one) for one in predicate.in_list.values]}"
        case "is_null":
            return f"{predicate.is_null.column} IS NULL"
        case "starts_with":
            return f"{predicate.starts_with.column} STARTS {predicate.starts_with.prefix}"
        case "negation":
            return f"NOT {show(predicate.negation)}"
        case _:
            word = " AND " if kind == "all_of" else " OR "
            return "(" + word.join(show(one) for one in getattr(predicate, str(kind)).operands) + ")"


def value(one: common_pb2.Value) -> str:
    return str(one).strip()


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("id = 7", "id EQUAL integer: 7"),
        ("ID == -7L", "id EQUAL integer: -7"),
        ("7 < `id`", "id GREATER integer: 7"),
        ("id = 7.0", "TRUE"),
        ("id = '7'", "TRUE"),
        ("id + 1 = 7", "TRUE"),
        ("id = 7 AND upper(status) = 'X'", "id EQUAL integer: 7"),
        ("id = 7 OR upper(status) = 'X'", "TRUE"),
        ("NOT (id = 7 AND upper(status) = 'X')", "TRUE"),
        ("(id = 7 OR id = 8) AND flag", "((id EQUAL integer: 7 OR id EQUAL integer: 8) AND flag EQUAL boolean: true)"),
        ("id = 1 OR id = 2 AND id = 3", "(id EQUAL integer: 1 OR (id EQUAL integer: 2 AND id EQUAL integer: 3))"),
        ("NOT flag AND id > 3", "(NOT flag EQUAL boolean: true AND id GREATER integer: 3)"),
        ("!flag", "NOT flag EQUAL boolean: true"),
        (
            "id BETWEEN 1 AND 3 AND id <> 2",
            "((id GREATER_OR_EQUAL integer: 1 AND id LESS_OR_EQUAL integer: 3) AND id NOT_EQUAL integer: 2)",
        ),
        ("id + 0 BETWEEN 1 AND 3 AND id <> 2", "id NOT_EQUAL integer: 2"),
        ("CASE WHEN id = 1 AND flag THEN true ELSE false END AND id <> 2", "id NOT_EQUAL integer: 2"),
        ("CASE WHEN id = 1 OR flag THEN true END OR id <> 2", "TRUE"),
        ("id IN (1, -2, NULL)", "id IN ['integer: 1', 'integer: -2', 'null: NULL_VALUE_UNSPECIFIED']"),
        ("id NOT IN (1)", "NOT id IN ['integer: 1']"),
        ("id IN (SELECT 1)", "TRUE"),
        ("id IN (1, 2.5)", "TRUE"),
        ("status IS NOT NULL", "NOT status IS NULL"),
        ("tags IS NULL", "tags IS NULL"),
        ("tags = NULL", "TRUE"),
        ("status LIKE 'ab%'", "status STARTS ab"),
        ("status LIKE 'ab'", 'status EQUAL text: "ab"'),
        ("status LIKE 'a_b%'", "TRUE"),
        ("status LIKE 'ab%' ESCAPE '!'", "TRUE"),
        (r"status = 'a\'b' AND id = 1", "id EQUAL integer: 1"),
        ("status = 'it''s'", "TRUE"),
        ("status = r'a' OR id = 1", "TRUE"),
        ("id = 1 -- AND id = 2", "TRUE"),
        ("status = 'x AND y' AND id = 1", '(status EQUAL text: "x AND y" AND id EQUAL integer: 1)'),
        ("status <=> NULL", "status IS NULL"),
        ("id <=> 5", "(id EQUAL integer: 5 AND NOT id IS NULL)"),
        ("amount > 5", "amount GREATER real: 5"),
        ("amount > 1.5e0", "amount GREATER real: 1.5"),
        ("price = 1.005", 'price EQUAL decimal: "1.005"'),
        ("price = 1e3", "TRUE"),
        ("day >= '2026-11-01'", "day GREATER_OR_EQUAL date: 20758"),
        ("day = DATE '2026-11-01'", "day EQUAL date: 20758"),
        ("day = '2026-11-1'", "TRUE"),
        ("day = '2026-02-30'", "TRUE"),
        ("Date = 'x'", 'Date EQUAL text: "x"'),
        ("at < '2026-11-01 01:00:00'", "at LESS timestamp_us: 1793491200000000"),
        ("at < TIMESTAMP '2026-11-01 01:00:00'", "TRUE"),
        ("local = '2026-11-01 00:00:00.5'", "local EQUAL timestamp_us: 1793491200500000"),
        ("raw = X'0aFF'", r'raw EQUAL binary: "\n\377"'),
        ("unknown = 1 AND id = 1", "id EQUAL integer: 1"),
        ("t.id = 1", "TRUE"),
        ("id.x = 1", "TRUE"),
        ("id = 1 = true", "TRUE"),
        ("(id) = 1 AND (((id = 2)))", "id EQUAL integer: 2"),
        ("(id = 1", "TRUE"),
        ("id = 1)", "TRUE"),
        ("true", "TRUE"),
        ("false", "FALSE"),
        ("", "TRUE"),
        ("(" * 40 + "id = 1" + ")" * 40, "TRUE"),
    ],
)
def test_a_condition_says_on_the_wire_what_it_says_in_sql(condition: str, wanted: str) -> None:
    assert parsed(condition) == wanted


def test_a_column_named_like_the_structure_leaves_everything_open() -> None:
    assert show(parse_condition("end = 1 AND id = 2", {"end": "int", "id": "int"}, UTC)) == "TRUE"


def test_decimals_are_exact() -> None:
    text = "-1234567890123456789012345678.9"
    found = parse_condition(f"wide = {text}", {"wide": "decimal(30,1)"}, UTC)
    assert Decimal(found.compare.value.decimal) == Decimal(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [  # as Spark answers
        ("", -7444071767201028348),
        ("Spark", -4294468057691064905),
        ("a" * 31, 1155894261107880164),
        ("a" * 32, 4175410394768388789),
        ("abc" * 30, -4296764107559630167),
    ],
)
def test_the_hash_is_sparks(text: str, wanted: int) -> None:
    assert row_hashes([pa.array([text])]).tolist() == [wanted]


@settings(deadline=None, max_examples=60)
@given(st.sets(st.integers(0, 1 << 20), max_size=300), st.integers(0, 1 << 20))
def test_blocks_hold_the_positions(positions: set[int], file: int) -> None:
    blocks = blocks_of(positions_of(BitMap64(positions)), file)
    assert positions_in(blocks.numbers.tolist(), blocks.words) == positions
    assert blocks.files.tolist() == [file] * len(blocks)
    assert len(set(blocks.numbers.tolist())) == len(blocks)


@settings(deadline=None, max_examples=60)
@given(st.sets(st.integers(0, 3000), min_size=1), st.integers(0, 3000), st.integers(0, 1 << 40))
def test_a_bit_is_looked_up_as_a_scan_does(positions: set[int], last: int, offset: int) -> None:
    hidden = BitMap64(position + offset for position in positions)
    asked = np.arange(offset, offset + last + 1, dtype=np.uint64)
    found = has_bits(blocks_of(positions_of(hidden)), asked)
    assert {int(one) for one in asked[found]} == {int(one) for one in asked} & set(hidden)


def positions_in(blocks: Iterable[int], words: Any) -> set[int]:
    """What blocks of these numbers hold."""
    return {
        block * 512 + at * 64 + bit
        for block, row in zip(blocks, words, strict=True)
        for at, word in enumerate(row.tolist())
        for bit in range(64)
        if word >> bit & 1
    }


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.dictionaries(st.integers(0, 12), st.booleans(), max_size=8)),
        min_size=1,
        max_size=6,
    )
)
def test_newer_images_hide_older_ones(files: list[tuple[int, dict[int, bool]]]) -> None:
    """Files of (data version, key -> is a tombstone); one version holds a key once."""
    seen: set[tuple[int, int]] = set()
    kept = []
    for version, rows in files:
        kept.append((version, {key: gone for key, gone in rows.items() if (version, key) not in seen}))
        seen |= {(version, key) for key in rows}
    newest = {key: max(version for version, rows in kept if key in rows) for _, rows in kept for key in rows}
    assert hidden_in_files(kept) == [
        {place for place, (key, gone) in enumerate(rows.items()) if gone or newest[key] > version}
        for version, rows in kept
    ]


def hidden_in_files(files: list[tuple[int, dict[int, bool]]]) -> list[set[int]]:
    """The hidden places of each file."""
    with tempfile.TemporaryDirectory() as folder:
        made = []
        for at, (version, rows) in enumerate(files):
            path = Path(folder) / f"{at}.parquet"
            columns = {"id": pa.array(list(rows), pa.int64()), "_op": pa.array(list(rows.values())).cast(pa.int8())}
            pq.write_table(pa.table(columns), path)
            made.append(KeyFile(str(path), len(rows), version, at, ("id",), is_delta=True))
        answers = list(hidden_in(BucketToMerge(tuple(made))))
    found: list[set[int]] = [set() for _ in files]
    for file, positions in answers:
        found[file] |= set(positions.tolist())
    return found
