"""Values of all types in all kinds of rows: each is stored as it is, or refused for the same reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from laketx import InputError, Lake, Table, connect
from laketx.input_rows import arrow_rows
from metaservice.client import default_column
from metaservice.shared.column_types import read_type, type_text
from protos.laketx.v1 import catalog_pb2
from worker.arrow.scan.version_rows import plain
from worker.arrow.write.input_rows import fitted
from worker.files.arrow_types import arrow_schema

NOON: Final = datetime(2026, 11, 1, 12, tzinfo=UTC)
NAIVE: Final = NOON.replace(tzinfo=None)
MIDNIGHT: Final = NAIVE.replace(hour=0)
DAY: Final = date(2026, 11, 1)
NAN: Final = float("nan")
LOSSY, MISMATCH, INVALID = "CAST_LOSSY", "SCHEMA_MISMATCH", "VALUE_INVALID"

# A column's type, a value, and what is stored, or why it is refused.
CASES: Final[list[tuple[str, Any, Any]]] = [
    ("bigint", 7, 7),
    ("bigint", 7.0, 7),
    ("bigint", Decimal("7.0"), 7),
    ("bigint", np.int16(7), 7),
    ("bigint", np.float32(7), 7),
    ("bigint", 1.5, LOSSY),
    ("bigint", np.float64(1.5), LOSSY),
    ("bigint", Decimal("1.5"), LOSSY),
    ("bigint", NAN, LOSSY),
    ("bigint", float("inf"), LOSSY),
    ("bigint", True, MISMATCH),
    ("bigint", "7", MISMATCH),
    ("bigint", b"7", MISMATCH),
    ("bigint", DAY, MISMATCH),
    ("tinyint", 300, LOSSY),
    ("int", 1 << 40, LOSSY),
    ("double", 2.5, 2.5),
    ("double", 2, 2.0),
    ("double", Decimal("0.1"), 0.1),
    ("double", (1 << 53) + 1, LOSSY),
    ("double", True, MISMATCH),
    ("double", "2.5", MISMATCH),
    ("float", 0.1, float(np.float32(0.1))),
    ("float", 1e300, LOSSY),
    ("float", (1 << 24) + 1, LOSSY),
    ("decimal(5,1)", 7, Decimal("7.0")),
    ("decimal(5,1)", Decimal("1.5"), Decimal("1.5")),
    ("decimal(5,1)", 1.5, Decimal("1.5")),
    ("decimal(5,1)", Decimal("1.25"), LOSSY),
    ("decimal(5,1)", 1.25, LOSSY),
    ("decimal(5,1)", 100_000, LOSSY),
    ("decimal(5,1)", NAN, LOSSY),
    ("decimal(5,1)", "1.5", MISMATCH),
    ("string", "x", "x"),
    ("string", b"x", MISMATCH),
    ("string", 1, MISMATCH),
    ("binary", b"x", b"x"),
    ("binary", "x", MISMATCH),
    ("boolean", True, True),
    ("boolean", 1, MISMATCH),
    ("boolean", "true", MISMATCH),
    ("date", DAY, DAY),
    ("date", MIDNIGHT, DAY),
    ("date", NAIVE, LOSSY),
    ("date", NOON, LOSSY),
    ("date", pd.Timestamp(NAIVE), LOSSY),
    ("date", 5, MISMATCH),
    ("date", "2026-11-01", MISMATCH),
    ("timestamp", NOON, NOON),
    ("timestamp", NOON.astimezone(timezone(timedelta(hours=5))), NOON),
    ("timestamp", NAIVE, MISMATCH),
    ("timestamp", DAY, MISMATCH),
    ("timestamp", 5, MISMATCH),
    ("timestamp", time(12), MISMATCH),
    ("timestamp_ntz", NAIVE, NAIVE),
    ("timestamp_ntz", DAY, MIDNIGHT),
    ("timestamp_ntz", NOON, MISMATCH),
    ("timestamp_ntz", np.datetime64("2026-11-01T12:00:00.000000001"), LOSSY),
    ("array<bigint>", [1, 2.0, None], [1, 2, None]),
    ("array<bigint>", [1.5], LOSSY),
    ("array<decimal(5,1)>", [1.25], LOSSY),
    ("array<float>", [1e300], LOSSY),
    ("array<string>", "abc", MISMATCH),
    ("array<date>", [NAIVE], LOSSY),
    ("struct<a:bigint,b:string>", {"A": 1.0}, {"a": 1, "b": None}),
    ("struct<a:bigint,b:string>", {"a": 1.5}, LOSSY),
    ("struct<a:bigint,b:string>", {"z": 1}, "COLUMN_UNKNOWN"),
    ("struct<a:bigint,b:string>", {"b": 1}, MISMATCH),
    ("struct<a:array<struct<n:int>>>", {"a": [{"n": 1.5}]}, LOSSY),
]
ONLY_DICTS: Final[list[tuple[str, Any, Any]]] = [  # what Arrow can't infer a column of
    ("bigint", 1 << 70, LOSSY),
    ("decimal(38,0)", 1 << 70, Decimal(1 << 70)),
    ("double", 1 << 70, LOSSY),
    ("date", pd.NaT, None),
    ("bigint", pd.NA, None),
    ("bigint", object(), INVALID),
    ("timestamp_ntz", pd.Timestamp("2026-11-01T12:00:00.000000001"), LOSSY),
    ("map<string,bigint>", {"k": 1.0}, [("k", 1)]),
    ("map<string,bigint>", [("k", 1), ("l", 2)], [("k", 1), ("l", 2)]),
    ("map<string,bigint>", {"k": 1.5}, LOSSY),
    ("map<string,bigint>", {None: 1}, "NULL_NOT_ALLOWED"),
    ("map<bigint,string>", {"k": "v"}, MISMATCH),
    ("struct<a:bigint,b:string>", (1, "x"), {"a": 1, "b": "x"}),
    ("struct<a:bigint,b:string>", {"a": 1, "A": 2}, "COLUMN_TWICE"),
    ("struct<a:bigint,b:string>", [1], MISMATCH),
    ("array<bigint>", (1, 2), [1, 2]),
    ("array<float>", np.array([0.5]), [0.5]),
    ("array<bigint>", np.array([1.5]), LOSSY),
    ("array<bigint>", 1, MISMATCH),
]
FORMS: Final[dict[str, Callable[[Any], Any]]] = {
    "dicts": lambda value: [{"v": value}],
    "dicts with others": lambda value: [{"v": None}, {"v": value}, {}],
    "arrow": lambda value: pa.table({"v": [value]}),
    "batch": lambda value: pa.record_batch({"v": pa.array([value])}),
    "pandas": lambda value: pd.DataFrame({"v": pd.Series([value], dtype=object)}),
    "polars": lambda value: pl.from_arrow(pa.table({"v": [value]})),
}


def outcome(kind: str, rows: Any, **settings: Any) -> Any:
    """The values as they would be stored, or the reason of the refusal."""
    columns = [catalog_pb2.Column(name="v", type=type_text(read_type(kind)), nullable=True, column_id=1)]
    meta = catalog_pb2.Table(name="t", columns=columns, **settings)
    try:
        return fitted(arrow_rows(rows, meta), meta).column("v").to_pylist()
    except InputError as error:
        return error.reason


def of_pandas(value: Any) -> Any:
    """What a column of pandas means by the value: its NaN is NULL."""
    return None if isinstance(value, float) and np.isnan(value) else value


def spelled(values: Any) -> str:
    """Comparable texts: NaN equals itself, 1 differs from 1.0, and UTC is UTC by any name."""
    if isinstance(values, str):
        return values
    return repr([one.replace(tzinfo=UTC) if getattr(one, "tzinfo", None) else one for one in values])


@pytest.mark.parametrize("form", FORMS)
def test_every_kind_of_rows_keeps_a_value_or_refuses_it_for_one_reason(form: str) -> None:
    wrong = []
    for kind, value, wanted in CASES if form != "dicts" else [*CASES, *ONLY_DICTS]:
        if form == "pandas" and of_pandas(value) is not value:
            continue
        if form == "polars" and isinstance(value, (np.datetime64, time)):
            continue
        found = outcome(kind, FORMS[form](value))
        is_reason = isinstance(wanted, str) and wanted.isupper()
        expected = wanted if is_reason else [None, wanted, None] if "others" in form else [wanted]
        if spelled(found) != spelled(expected):
            wrong.append(f"{kind} {value!r}: {found!r}, not {expected!r}")
    assert wrong == []


def test_values_of_several_python_types_in_one_column_keep_their_order() -> None:
    values = [1, 2.0, None, Decimal(3), np.int8(4), (1 << 53) + 1, 6.0]
    assert outcome("bigint", [{"v": one} for one in values]) == [1, 2, None, 3, 4, (1 << 53) + 1, 6]
    assert outcome("bigint", [{"v": one} for one in [*values, 7.5]]) == LOSSY
    moments = [NAIVE, DAY, None]
    assert outcome("timestamp_ntz", [{"v": one} for one in moments]) == [NAIVE, MIDNIGHT, None]
    assert outcome("timestamp", [{"v": NOON}, {"v": NAIVE}]) == MISMATCH
    for mixed in ([DAY, NAIVE], [NAIVE, NOON]):
        assert outcome("timestamp_ntz", pd.DataFrame({"v": pd.Series(mixed, dtype=object)})) == "ROWS_INVALID"


@pytest.mark.parametrize("exact", [{"primary_key": ["v"]}, {"properties": {"write.strict_casts": "true"}}])
def test_a_float_is_the_nearest_but_not_in_a_key_nor_under_strict_casts(exact: dict[str, Any]) -> None:
    for rows in ([{"v": 0.1}], pa.table({"v": [0.1]})):
        assert outcome("float", rows, **exact) == LOSSY
        assert outcome("float", rows) == [float(np.float32(0.1))]
    assert outcome("float", [{"v": np.float32(0.1)}], **exact) == [float(np.float32(0.1))]
    assert outcome("float", [{"v": NAN}], **exact) != LOSSY
    assert outcome("double", [{"v": Decimal("0.1")}], **exact) == [0.1]
    assert outcome("double", [{"v": Decimal("0.10000000000000000000001")}], **exact) == LOSSY


# -- every way into a table --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("values")) as made:
        yield made


def written(table: Table, row: dict[str, Any]) -> None:
    with table.writer() as writer:
        writer.write(row).result()


def in_a_transaction(lake: Lake, table: Table, rows: Any) -> None:
    with lake.transaction() as txn:
        txn.table(table.name).upsert(rows)


BAD: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "key": ({"id": 1.7, "day": DAY, "n": 9}, LOSSY),
    "number": ({"id": 1, "day": DAY, "n": 1.5}, LOSSY),
    "day": ({"id": 1, "day": NAIVE, "n": 9}, LOSSY),
    "text": ({"id": "1", "day": DAY, "n": 9}, MISMATCH),
}


@pytest.mark.parametrize("bad", BAD)
def test_no_way_into_a_table_cuts_a_value_or_changes_another_row(lake: Lake, bad: str) -> None:
    row, reason = BAD[bad]
    columns = "id bigint, day date, n int"
    keyed = lake.create_table(f"keyed_{bad}", columns, primary_key=["id"])
    plain = lake.create_table(f"plain_{bad}", columns)
    kept = [{"id": 1, "day": DAY, "n": 1}, {"id": 2, "day": DAY, "n": 2}]
    keyed.upsert(kept)
    plain.append(kept)
    ways: list[Callable[[], Any]] = []
    for rows in ([row], pa.Table.from_pylist([row]), pd.DataFrame([row]), pl.DataFrame([row])):
        ways += [partial(keyed.upsert, rows), partial(plain.append, rows)]
        ways += [partial(keyed.overwrite, rows), partial(plain.overwrite, rows)]
        ways += [partial(in_a_transaction, lake, keyed, rows)]
    ways += [lambda: plain.append(pa.Table.from_pylist([row]).to_reader())]
    ways += [lambda: written(keyed, row), lambda: written(plain, row)]
    if bad in ("key", "text"):
        ways += [lambda: keyed.delete(keys=[row["id"]]), lambda: keyed.delete(keys=[{"id": row["id"]}])]
        ways += [lambda: keyed.delete(keys=pa.table({"id": [row["id"]]}))]
    for way in ways:
        with pytest.raises(InputError) as refused:
            way()
        assert refused.value.reason == reason, refused.value
    for table in (keyed, plain):
        assert table.to_arrow().sort_by("id").to_pylist() == kept
        assert table.refresh().meta.head_version == 1


@pytest.mark.parametrize("keys", [[], (), set(), pa.table({"id": pa.array([], pa.int64())})])
def test_no_keys_delete_nothing(lake: Lake, keys: Any) -> None:
    names = {"id": 1, "day": DAY}
    for key in (["id"], ["id", "day"]):
        if isinstance(keys, pa.Table) and len(key) > 1:
            continue
        table = lake.create_table(
            f"none_{type(keys).__name__}_{len(key)}", "id bigint, day date, n int", primary_key=key
        )
        table.upsert([{**names, "n": 1}])
        assert table.delete(keys=keys).version == 2
        assert table.to_arrow().to_pylist() == [{**names, "n": 1}]
        assert not list(Path(table.folder).glob("*"))


def test_a_row_that_lacks_a_column_has_its_default(lake: Lake) -> None:
    table = lake.create_table("lacks", "id bigint, word string")
    lake.client.alter_columns(table.table_id, default_column("word", "'new'"))
    table.append([{"id": 1}, {"id": 2, "word": "x"}, {"id": 3, "word": None}])
    assert table.to_arrow().column("word").to_pylist() == ["new", "x", None]


WIDE: Final = [("id", "bigint", False), ("s", "string", True), ("t", "timestamp", True), ("m", "decimal(5,1)", True)]
WIDE_ROWS: Final = {"id": [1, 2, 3], "s": ["a", None, "c"], "t": [NOON, NOON, None], "m": [Decimal("1.5")] * 3}
NESTED: Final = ("n", "struct<a:bigint>", True)


def facts_of(columns: list[tuple[str, str, bool]]) -> catalog_pb2.Table:
    numbered = enumerate(columns, 1)
    return catalog_pb2.Table(
        name="t",
        columns=[
            catalog_pb2.Column(
                column_id=at,
                name=name,
                type=kind,
                nullable=nullable,
                nested=[catalog_pb2.NestedField(path="a", field_id=9)] if kind.startswith("struct") else [],
            )
            for at, (name, kind, nullable) in numbered
        ],
    )


@pytest.mark.parametrize("columns", [WIDE, [*WIDE, NESTED]], ids=["flat", "nested"])
def test_rows_of_the_tables_types_get_the_ids_of_its_columns(columns: list[tuple[str, str, bool]]) -> None:
    """Rows of these types are taken whole, others column by column: with the same outcome."""
    meta = facts_of(columns)
    schema = arrow_schema(meta)
    bare = pa.schema([pa.field(field.name, plain(field.type)) for field in schema])
    values = {**WIDE_ROWS, "n": [{"a": 1}, None, {"a": None}]}
    rows = pa.table([pa.array(values[name], bare.field(name).type) for name, _, _ in columns], schema=bare)
    assert not rows.schema.equals(schema, check_metadata=True)
    in_parts = rows.set_column(1, bare.field(1), pa.chunked_array([["a"], [None, "c"]]))
    for given in (rows, pa.concat_tables([rows.slice(0, 1), rows.slice(1)]), in_parts, rows.slice(1)):
        one_by_one = fitted(given.select(given.column_names[::-1]), meta)
        for found in (fitted(given, meta), one_by_one):
            found.validate(full=True)
            assert found.schema.equals(schema, check_metadata=True)
            assert found.column_names == [name for name, _, _ in columns]
            assert found.to_pylist() == given.to_pylist()
    nothing = fitted(rows.slice(3), meta)
    assert (nothing.schema.equals(schema, check_metadata=True), len(nothing)) == (True, 0)
    empty = bare.field(0).with_nullable(True)
    without_id = rows.set_column(0, empty, pa.array([1, None, 3], pa.int64()))
    with pytest.raises(InputError, match="NULL in id, which is NOT NULL"):
        fitted(without_id, meta)
