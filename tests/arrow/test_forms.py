"""Scans in polars, DuckDB and pandas: the same rows, and only what a query needs."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from laketx import InputError, Lake, Table, connect
from tests.arrow.tables import texts
from worker.arrow.expressions.conditions import Predicate
from worker.arrow.scan import polars_frames

ROWS = [
    {
        "id": number,
        "day": date(2026, 11, 1 + number % 3),
        "name": f"n{number}",
        "x": float(number),
        "ok": number % 2 == 0,
    }
    for number in range(30)
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("forms")) as made:
        yield made


@pytest.fixture(scope="module")
def table(lake: Lake) -> Table:
    made = lake.create_table("t", "id bigint, day date, name string, x double, ok boolean", partition_by=["day"])
    made.append(ROWS)
    made.append([{"id": None, "day": None, "name": None, "x": float("nan"), "ok": None}])
    return made


CONDITIONS = [
    pl.col("id") > 20,
    (pl.col("id") == 3) | (pl.col("name") == "n7"),
    pl.col("day") == date(2026, 11, 2),
    pl.col("id").is_in([1, 2, 99]),
    pl.col("name").is_in(["n1", "n2"]),
    pl.col("name").is_null(),
    pl.col("name").is_not_null() & (pl.col("id") <= 4),
    pl.col("x") > 28,
    ~(pl.col("id") > 3),
    pl.col("name").str.starts_with("n1"),
    pl.col("id") + 1 == 5,
    pl.col("ok"),
    pl.col("ok") & (pl.col("id") != 4),
    pl.col("id") > 1 << 40,
]


@pytest.mark.parametrize("at", range(len(CONDITIONS)))
def test_a_lazy_frame_has_the_rows_of_the_frame(table: Table, at: int) -> None:
    whole, lazy = table.to_polars(), table.to_lazy_polars()
    wanted = whole.filter(CONDITIONS[at]).select("day", "name").sort("name")
    assert lazy.filter(CONDITIONS[at]).select("day", "name").collect().sort("name").equals(wanted)
    assert lazy.filter(CONDITIONS[at]).select(pl.len()).collect().item() == len(wanted)
    assert len(lazy.filter(CONDITIONS[at]).head(2).collect()) == min(2, len(wanted))


def test_simple_conditions_reach_the_scan() -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("day", pa.date32()), ("t", pa.timestamp("us"))])
    seen: list[tuple[Sequence[str], Predicate | None]] = []

    def scan(columns: Sequence[str], where: Predicate | None, limit: int | None) -> Iterator[pa.Table]:
        del limit
        seen.append((columns, where))
        yield schema.empty_table().select(list(columns))

    lazy = polars_frames.lazy(schema, scan)
    when = datetime(2026, 11, 1, tzinfo=UTC).replace(tzinfo=None)
    known = (
        (pl.col("id") >= 3) & pl.col("name").is_in(["a"]) & (pl.col("day") < date(2026, 11, 2)) & (pl.col("t") > when)
    )
    lazy.filter(known & (pl.col("name").str.len_chars() > 2)).select("id").collect()
    [(columns, where)] = seen
    assert set(columns) == {"id", "name", "day", "t"}
    assert where is not None
    kinds = sorted(str(one.WhichOneof("kind")) for one in where.all_of.operands)
    assert kinds == ["compare", "compare", "compare", "in_list"]


def test_duckdb_reads_relations_and_scans(table: Table) -> None:
    connection = duckdb.connect()
    assert table.to_duckdb(connection).filter("id >= 28").project("name").order("name").fetchall() == [
        ("n28",),
        ("n29",),
    ]
    scan = table.scanner(columns=["id", "day"], where="id < 3")
    assert connection.sql("SELECT count(*), max(day) FROM scan").fetchall() == [(3, date(2026, 11, 3))]
    assert connection.sql("SELECT sum(id) FROM scan").fetchall() == [(3,)], "read again"
    del scan


def test_other_forms_have_the_same_rows(table: Table) -> None:
    wanted = table.to_arrow()
    scan = table.scanner()
    assert texts(pa.table(scan)) == texts(wanted)
    assert pl.DataFrame(scan).equals(table.to_polars())
    assert table.to_pandas(columns=["name"], where="id = 3")["name"].tolist() == ["n3"]
    assert scan.to_pandas(types_mapper=None).shape == (31, 5)
    assert len(table.to_arrow(limit=4)) == table.count(limit=4) == 4
    assert scan.schema == wanted.schema


def test_a_reader_keeps_its_version_until_it_is_gone(lake: Lake) -> None:
    table = lake.create_table("kept", "id bigint")  # no other test's pins are on it
    table.append(pa.table({"id": range(31)}))
    scan = table.scanner()
    reader = scan.to_batches()
    del scan
    gc.collect()
    assert pins(lake, table) == 1, "the reader needs it"
    assert sum(len(batch) for batch in reader) == 31
    del reader
    for _ in range(5):
        table.count()  # each has the pin of the one before ended, in the background
    gc.collect()
    until_s = time.monotonic() + 30
    while pins(lake, table) > 1 and time.monotonic() < until_s:
        time.sleep(0.05)
    assert pins(lake, table) <= 1, "the last count's, unless the renewal has told that it is over"


def test_a_pin_that_outlives_its_client_ends_without_an_error(tmp_path: Path) -> None:
    """The thread that renews pins may run while the lake closes."""
    with connect(tmp_path) as lake:
        held = lake.pins.own(lake.create_table("t", "id bigint").table_id)
        lake.client.close()
        held.release()
        assert lake.pins.renew_all() > 0, "when it renews next"


def test_a_version_has_one_name(lake: Lake) -> None:
    table = lake.create_table("named", "id bigint")
    table.append([{"id": 1}])
    assert table.resolve() == table.resolve(1) == table.resolve(commits_ago=0) == 1
    with pytest.raises(InputError, match="VERSION_AMBIGUOUS"):
        table.resolve(1, commits_ago=0)


def pins(lake: Lake, table: Table) -> int:
    return sum(one.table_id == table.table_id for one in lake.client.list_pins())


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"columns": ["nope"]}, "COLUMN_UNKNOWN"),
    ({"columns": []}, "COLUMNS_INVALID"),
    ({"columns": ["id", "ID"]}, "COLUMN_TWICE"),
    ({"where": "id ="}, "CONDITION_INVALID"),
    ({"where": "upper(name) = 'A'"}, "CONDITION_INVALID"),
    ({"limit": -1}, "LIMIT_INVALID"),
    ({"version": 1, "tag": "x"}, "VERSION_AMBIGUOUS"),
    ({"since": 0, "version": 1}, "VERSION_AMBIGUOUS"),
    ({"until": 1}, "RANGE_INVALID"),
    ({"since": 1, "until": 0}, "RANGE_INVALID"),
    ({"since": 0, "mode": "all"}, "MODE_INVALID"),
    ({"timestamp": "2026-11-01 10:00"}, "TIMESTAMP_INVALID"),
]


@pytest.mark.parametrize("at", range(len(WRONG)))
def test_what_a_read_can_not_mean_is_refused(table: Table, at: int) -> None:
    asked, reason = WRONG[at]
    with pytest.raises(InputError, match=reason):
        table.to_arrow(**asked)
