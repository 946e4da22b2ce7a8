"""Bounds of floats: as Spark orders them, which holds NaN above every number and both zeros equal; or none."""

from __future__ import annotations

import io
import math
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaservice.core.table.predicates import COMPARISONS, Compare, Not
from metaservice.core.table.pruning import UNKNOWN, new_pruning
from metaservice.rpc.convert.plans import BoundsReader
from metaservice.shared.column_types import BLOOM_COLUMNS
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.files.footers import data_file
from worker.files.parquet_options import REPEATS, bounded, options_for, options_for_few, options_for_many
from worker.services.compaction.file_io import Output

NAN, INF = math.nan, math.inf
REALS = st.sampled_from([NAN, -INF, -1.5, -0.0, 0.0, 1.0, 7.5, INF, None])
SCHEMA = pa.schema([("id", pa.int64()), ("d", pa.float64()), ("f", pa.float32())])
META = catalog_pb2.Table(
    name="t",
    columns=[
        catalog_pb2.Column(column_id=number, name=name, type=kind, nullable=True)
        for number, (name, kind) in enumerate([("id", "bigint"), ("d", "double"), ("f", "float")], 1)
    ],
)
Group = list[tuple[float | None, float | None]]


def written(folder: Path, groups: list[Group]) -> list[Any]:
    """Footers of what a compaction writes, each row a row group."""
    output = Output(META, str(folder), "out", SCHEMA, 1 << 30)
    output._group_bytes = 0
    for group in groups:
        output.write(
            pl.DataFrame({"id": [7] * len(group), "d": [d for d, _ in group], "f": [f for _, f in group]}, SCHEMA_OF)
        )
    return [one.metadata for one in output.close()]


SCHEMA_OF = {"id": pl.Int64, "d": pl.Float64, "f": pl.Float32}


def largest(footer: Any, name: str) -> list[float | None]:
    """Of each row group; None where there are no bounds."""
    at = next(at for at in range(len(footer.schema)) if footer.schema.column(at).path == name)
    groups = [footer.row_group(group).column(at) for group in range(footer.num_row_groups)]
    return [one.statistics.max if one.is_stats_set and one.statistics.has_min_max else None for one in groups]


MIXED = pa.schema([*SCHEMA, ("s", pa.string()), ("l", pa.list_(pa.float64())), ("r", pa.struct([("x", pa.float32())]))])
MIXED_ROWS = st.fixed_dictionaries(
    {
        "id": st.sampled_from([None, 1, 2]),
        "d": REALS,
        "f": REALS,
        "s": st.sampled_from([None, "", "a", "b" * 100]),
        "l": st.none() | st.lists(REALS, max_size=2),
        "r": st.none() | st.fixed_dictionaries({"x": REALS}),
    }
)


@settings(max_examples=200)
@given(st.lists(MIXED_ROWS, min_size=1, max_size=REPEATS - 1))
def test_a_file_of_few_rows_is_written_as_one_of_many(rows: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(rows, MIXED)
    assert options_for_few(META, table) == options_for_many(META, table, 1 << 18)


def test_many_rows_and_bloom_filters_need_a_look() -> None:
    rows = pa.table({"id": list(range(REPEATS))})
    assert options_for_few(META, rows) is None
    meta = catalog_pb2.Table(columns=META.columns, properties={BLOOM_COLUMNS: "id"})
    assert options_for_few(meta, rows.slice(0, 1)) is None
    assert options_for(meta, rows.slice(0, 1), 1 << 18)["bloom_filter_options"].keys() == {"id"}


def test_a_column_with_nan_has_no_bounds_in_the_footer_of_a_compaction(tmp_path: Path) -> None:
    (footer,) = written(tmp_path, [[(1.0, NAN), (2.0, 1.0)]])
    assert (largest(footer, "f"), largest(footer, "d"), largest(footer, "id")) == ([None, None], [1.0, 2.0], [7, 7])


def test_nan_that_comes_late_begins_a_file_of_its_own(tmp_path: Path) -> None:
    """The file before keeps its bounds, which hold."""
    first, second = written(tmp_path, [[(1.0, 1.0)], [(2.0, 1.0)], [(NAN, 1.0)], [(3.0, 1.0)]])
    assert largest(first, "d") == [1.0, 2.0]
    assert largest(second, "d") == [None, None]
    assert largest(second, "id") == [7, 7]


def test_floats_inside_others_have_no_bounds() -> None:
    nested = pa.struct([("d", pa.float64()), ("n", pa.int64()), ("g", pa.struct([("h", pa.float32())]))])
    schema = pa.schema(
        [
            ("d", pa.float64()),
            ("e", pa.float64()),
            ("s", nested),
            ("l", pa.list_(pa.field("element", pa.float64()))),
            ("m", pa.map_(pa.string(), pa.float32())),
            ("s.n", pa.float64()),
        ]
    )
    assert bounded(schema, frozenset({"e"})) == ["d", "s.n", "m.key_value.key"]
    assert bounded(schema, frozenset({"e", "s.n"})) == ["d", "m.key_value.key"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.tuples(REALS, REALS), min_size=1, max_size=4), min_size=1, max_size=3), st.data())
def test_no_file_of_a_compaction_is_left_out_where_a_row_matches(
    tmp_path_factory: pytest.TempPathFactory, groups: list[Group], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("out")
    condition = Compare(
        data.draw(st.sampled_from(["d", "f"])),
        data.draw(st.sampled_from(sorted(COMPARISONS))),
        data.draw(REALS.filter(lambda value: value == value and value is not None)),
    )
    is_not = data.draw(st.booleans())
    pruning = new_pruning(Not(condition) if is_not else condition, {"d": "double", "f": "float"}, [], [])
    reader = BoundsReader([({"d": 2, "f": 3}[name], "double") for name in pruning.columns])
    rows = [row for group in groups for row in group]
    for footer in written(folder, groups):
        entry = data_file(META, "f.parquet", footer, 1)
        mine, rows = rows[: footer.num_rows], rows[footer.num_rows :]
        if pruning.failed(reader.read(entry.SerializeToString())) is not None:
            assert not any(matches(condition, is_not, dict(zip("df", row, strict=True))) for row in mine)


def matches(condition: Compare, is_not: bool, row: dict[str, float | None]) -> bool:
    value = row[condition.column]
    if value is None:
        return False
    ranks = [(one != one, 0.0 if one != one else one) for one in (value, condition.value)]
    return bool(COMPARISONS[condition.comparison](*ranks)) is not is_not


@pytest.mark.parametrize("group_rows", [1, 10])
def test_registered_bounds_hold_for_nan_and_both_zeros(group_rows: int) -> None:
    entry = registered([1.0, -0.0, 3.0], group_rows)
    assert (str(entry.stats[1].min.real), entry.stats[1].max.real) == ("-0.0", 3.0)
    entry = registered([1.0, 0.0, None], group_rows)
    assert (str(entry.stats[1].min.real), entry.stats[1].nulls) == ("-0.0", 1)


def registered(values: list[float | None], group_rows: int, *, external: bool = False) -> common_pb2.DataFile:
    out = io.BytesIO()
    rows = pa.table({"id": pa.array([1] * len(values), pa.int64()), "d": pa.array(values, pa.float64())})
    pq.write_table(rows, out, row_group_size=group_rows)
    return data_file(META, "f.parquet", pq.read_metadata(out), 1, external=external)


def test_bounds_of_floats_from_outside_are_not_believed() -> None:
    """NaN may be there that they leave out; NULLs are counted alike by all, and integers bounded."""
    entry = registered([1.0, None, 2.0], 10, external=True)
    known = {one.column_id: one for one in entry.stats}
    assert (known[1].min.integer, known[1].max.integer) == (1, 1)
    assert not known[2].HasField("min")
    assert not known[2].HasField("max")
    assert known[2].nulls == 1


def test_bounds_of_floats_from_outside_that_are_registered_are_not_believed_either() -> None:
    stats = common_pb2.ColumnStats(column_id=2, min=common_pb2.Value(real=1.0), max=common_pb2.Value(real=2.0), nulls=0)
    entry = common_pb2.DataFile(path="f", rows=3, stats=[stats])
    reader = BoundsReader([(2, "double"), (1, "bigint")])
    assert reader.read(entry.SerializeToString()) == ((1.0, 2.0, False, True), UNKNOWN)
    entry.external = True
    assert reader.read(entry.SerializeToString()) == ((None, None, False, True), UNKNOWN)


@pytest.mark.parametrize(
    ("words", "known"),
    [
        ({}, True),
        ({b"org.apache.spark.version": b"4.0.0"}, True),
        ({b"org.apache.spark.version": b"2.4.8"}, False),
        ({b"org.apache.spark.version": b"3.5.1", b"org.apache.spark.legacyDateTime": b""}, False),
    ],
)
def test_bounds_of_days_of_an_older_calendar_are_not_believed(words: dict[bytes, bytes], known: bool) -> None:
    days = pa.table({"day": pa.array([date(1500, 1, 1)]), "n": pa.array([1], pa.int64())})
    out = io.BytesIO()
    pq.write_table(days.replace_schema_metadata(words), out)
    columns = [catalog_pb2.Column(column_id=number, name=name, type=kind) for number, name, kind in DAYS]
    entry = data_file(catalog_pb2.Table(columns=columns), "f.parquet", pq.read_metadata(out), 1, external=True)
    assert [one.column_id for one in entry.stats] == ([1, 2] if known else [2])


DAYS = [(1, "day", "date"), (2, "n", "bigint")]
