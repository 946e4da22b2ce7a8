"""Clustering against an oracle: the same rows before and after, in the order that was asked for."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from laketx import Lake, connect
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.arrow.scan.file_rows import InputFile
from worker.files.arrow_types import arrow_schema
from worker.services.compaction.chunks import Chunk, Result, Settings, run_chunk
from worker.services.compaction.orders import Order, Places
from worker.services.compaction.sorted_output import SortedOutput

Rows = list[dict[str, Any]]
COLUMNS = {
    "i": ("int", st.integers(-3, 3)),
    "f": ("double", st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -1.5])),
    "s": ("string", st.sampled_from(["", "a", "B", "é", "\ufffd", "\U0001f600", "ab"])),
    "b": ("binary", st.sampled_from([b"", b"\x00", b"\x7f", b"\x80", b"\xff"])),
    "d": ("decimal(38,2)", st.sampled_from([Decimal("-1.50"), Decimal("0.00"), Decimal(10**35), Decimal("2.25")])),
    "t": ("timestamp", st.sampled_from([datetime(1066, 1, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC)])),
    "y": ("date", st.sampled_from([date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)])),
    "z": ("boolean", st.booleans()),
}
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, (_, values) in COLUMNS.items()}), min_size=1, max_size=40
)
ORDERED_BY = st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=3, unique=True)


def table_of(keys: tuple[str, ...] = ()) -> catalog_pb2.Table:
    columns = {"id": "bigint", **{name: kind for name, (kind, _) in COLUMNS.items()}}
    return catalog_pb2.Table(
        table_id="t",
        primary_key=keys,
        buckets=1 if keys else 0,
        columns=[
            catalog_pb2.Column(name=name, type=kind, column_id=at + 1, nullable=name not in keys)
            for at, (name, kind) in enumerate(columns.items())
        ],
    )


def clustered(
    files: list[Rows],
    order: Order,
    folder: Path,
    *,
    keys: tuple[str, ...] = (),
    gone: AbstractSet[int] = frozenset(),
    memory_bytes: int = 500,
) -> tuple[Result, Rows]:
    """The files' rows after a clustering in so little memory that every few rows are a run on disk."""
    table = table_of(keys)
    schema, inputs, first = arrow_schema(table), [], 0
    for number, rows in enumerate(files):
        path = folder / f"in-{number}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
        version = number + 1
        hidden = BitMap64(gone & set(range(first, first + len(rows)))) or None
        inputs.append(InputFile(str(path), version, len(rows), path.stat().st_size, first_row_id=first, hidden=hidden))
        first += len(rows)
    settings = Settings(
        table.SerializeToString(),
        str(folder),
        is_major=False,
        is_base=bool(table.primary_key),
        verify=True,
        file_bytes_target=1 << 20,
        memory_bytes=memory_bytes,
        order=order,
    )
    result = run_chunk(settings, Chunk(0, "out/0", tuple(inputs)))
    entries = [common_pb2.DataFile.FromString(one) for one in result.files]
    assert all(one.row_order == str(order) for one in entries)
    written = [row for one in entries for row in pq.ParquetFile(folder / one.path).read().to_pylist()]
    return result, written


def rank(value: Any) -> tuple[Any, ...]:
    """NULL first, NaN last, texts by their bytes: as Spark sorts."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (1, math.isnan(value), 0.0 if math.isnan(value) else value)
    return (1, value.encode() if isinstance(value, str) else value)


def said(rows: Rows) -> list[str]:
    return sorted(map(repr, rows))


@settings(max_examples=40)
@given(st.lists(ROWS, min_size=1, max_size=3), ORDERED_BY, st.booleans(), st.sets(st.integers(0, 20)))
def test_rows_stay_and_the_order_holds(files: list[Rows], columns: list[str], is_curve: bool, gone: set[int]) -> None:
    number = 0
    for rows in files:
        for row in rows:
            row["id"] = number
            number += 1
    schema = arrow_schema(table_of(), with_row_id=True)
    rows = [{**row, "_row_id": row["id"]} for rows in files for row in rows if row["id"] not in gone]
    before = pa.Table.from_pylist(rows, schema=schema).to_pylist()
    order = Order("zorder" if is_curve else "sort", tuple(columns))
    with tempfile.TemporaryDirectory() as folder:
        result, after = clustered(files, order, Path(folder), gone=gone)
        assert not list(Path(folder).glob("*.arrow"))
    assert result.input == result.output
    assert said(after) == said(before)
    if not order.is_curve:
        ranks = [tuple(rank(row[name]) for name in columns) for row in after]
        assert ranks == sorted(ranks)


@settings(max_examples=30)
@given(st.lists(st.dictionaries(st.integers(0, 9), st.integers(0, 3), min_size=1), min_size=1, max_size=4))
def test_of_a_key_in_two_base_files_the_newer_row_stays(files: list[dict[int, int]]) -> None:
    """The service plans no such files, but a clustering follows a reader's rules all the same."""
    nothing = dict.fromkeys(COLUMNS)
    listed = [[{**nothing, "id": key, "i": one[key]} for key in sorted(one)] for one in files]
    want = {key: value for one in files for key, value in one.items()}
    with tempfile.TemporaryDirectory() as folder:
        result, after = clustered(listed, Order("sort", ("i",)), Path(folder), keys=("id",))
    assert result.input == result.output
    assert {row["id"]: row["i"] for row in after} == want
    assert [row["i"] for row in after] == sorted(want.values())


def test_a_value_that_fills_the_table_takes_no_more_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    right = SortedOutput._write

    def write(self: SortedOutput, rows: pl.DataFrame) -> None:
        sizes.append(len(rows))
        right(self, rows)

    monkeypatch.setattr(SortedOutput, "_write", write)
    nothing = dict.fromkeys(COLUMNS)
    rows = [{**nothing, "id": at, "s": "same"} for at in range(6_000)]
    _, after = clustered([rows[:3_000], rows[3_000:]], Order("sort", ("s", "i")), tmp_path)
    assert len(after) == len(rows)
    assert max(sizes) < 2_000, "only a batch waits"


def test_neighbours_on_a_curve_are_neighbours_in_files(tmp_path: Path) -> None:
    nothing = dict.fromkeys(COLUMNS)
    rows = [
        {**nothing, "id": at, "i": at % 64, "t": datetime(2026, 1, 1, at // 64 % 24, at // 1536, tzinfo=UTC)}
        for at in range(4096)
    ]
    _, after = clustered([rows], Order("zorder", ("i", "t")), tmp_path)
    parts = [after[at : at + 256] for at in range(0, len(after), 256)]
    for name in ("i", "t"):
        assert sum(len({row[name] for row in part}) for part in parts) / len(parts) < 40  # of 64


Fault = Callable[[pl.DataFrame], pl.DataFrame]


@pytest.mark.parametrize(
    "fault", [lambda rows: rows[1:], lambda rows: rows.with_columns(pl.col("id").reverse())], ids=["drop", "swap"]
)
def test_a_fault_in_the_merge_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    right = SortedOutput._write
    monkeypatch.setattr(SortedOutput, "_write", lambda self, rows: right(self, fault(rows)))
    nothing = dict.fromkeys(COLUMNS)
    rows = [{**nothing, "id": at, "i": at % 7} for at in range(100)]
    result, _ = clustered([rows], Order("sort", ("i",)), tmp_path)
    assert result.input != result.output


def test_rows_that_are_not_in_order_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = SortedOutput._sorted
    monkeypatch.setattr(SortedOutput, "_sorted", lambda self: right(self).reverse())
    nothing = dict.fromkeys(COLUMNS)
    with pytest.raises(AssertionError, match="not in the order"):
        clustered(
            [[{**nothing, "id": at, "i": at} for at in range(100)]],
            Order("sort", ("i",)),
            tmp_path,
            memory_bytes=1 << 20,
        )


def test_places_are_never_null() -> None:
    rows = pl.DataFrame({"a": [None, 1.0, math.nan], "b": [None, "x", ""]})
    for order in (Order("sort", ("a", "b")), Order("zorder", ("a", "b"))):
        places = Places(order, [rows]).of(rows)
        assert places.null_count().sum_horizontal().item() == 0


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with connect(tmp_path_factory.mktemp("clustered") / "lake") as found:
        yield found


@pytest.mark.parametrize("keyed", [True, False])
def test_compactions_and_clusterings_change_no_answer(lake: Lake, keyed: bool) -> None:
    name = f"all.{'keyed' if keyed else 'appended'}"
    table = lake.create_table(
        name, "id bigint, v string, p int", primary_key=["id", "p"] if keyed else [], partition_by=["p"]
    )
    add = table.upsert if keyed else table.append
    for number in range(12):
        add([{"id": at, "v": f"{number}-{at}" if at % 5 else None, "p": at % 2} for at in range(number, number + 30)])
    table.delete("id < 4")
    want = said(table.to_arrow().to_pylist())
    calls: list[Callable[[], object]] = [
        lambda: table.compact("minor", partition={"p": 1}),
        lambda: table.compact("minor"),
        lambda: table.compact("major"),
        lambda: table.compact("cluster", sort_by=["v"]),
        lambda: table.compact("cluster", zorder_by=["v", "id"]),
    ]
    for call in calls:
        call()
        assert said(table.to_arrow().to_pylist()) == want
    assert table.compact("cluster", zorder_by=["v", "id"]) is None
