"""Streams into tables, through the Spark catalog."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf

from laketx import Lake
from laketx.table import Table
from tests.spark.queries import Streams
from tests.spark.reading import shown


@pytest.fixture
def streams(lake: Lake, tmp_path: Path, new_name: Callable[[], str]) -> Streams:
    return Streams(lake, tmp_path, new_name)


def inserts(table: Table) -> int:
    return sum(one.operation.lower() == "insert" for one in table.refresh().history())


@pytest.mark.parametrize("keyed", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_batch_that_spark_repeats_is_written_once(streams: Streams, keyed: bool) -> None:
    key = {"primary_key": ["id"], "buckets": 2} if keyed else {}
    source, target = streams.table(), streams.table("v string, id bigint, more int", **key)
    source.insert(streams.rows((1, "a"), (2, "a")))
    mode = "update" if keyed else "append"
    streams.run(streams.read(source), target, mode=mode)
    source.insert(streams.rows((3, "b")))
    streams.run(streams.read(source), target, mode=mode)
    wanted = [("a", 1, None), ("a", 2, None), ("b", 3, None)]
    assert shown(target.read()) == wanted
    before = inserts(target)
    streams.forget_last_batch()
    streams.run(streams.read(source), target, mode=mode)
    assert shown(target.refresh().read()) == wanted
    assert inserts(target) == before
    if keyed:
        source.insert(streams.rows((1, "new")))
        streams.run(streams.read(source), target, mode=mode)
        assert ("new", 1, None) in shown(target.refresh().read())


def test_a_batch_loses_no_race(streams: Streams, tmp_path: Path) -> None:
    """Under the default profile an INSERT loses to an INSERT; that of a stream doesn't."""
    source, target = streams.table(), streams.table()
    source.insert(streams.rows((1, "a")))
    begun, go_on = tmp_path / "begun", tmp_path / "go on"

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begun.touch()
        while not go_on.exists():
            time.sleep(0.02)
        yield from batches

    with ThreadPoolExecutor(1) as other:
        slow = streams.read(source).mapInArrow(wait, "id bigint, v string")
        done = other.submit(streams.run, slow, target)
        while not begun.exists() and not done.done():
            time.sleep(0.02)
        target.insert(streams.rows((7, "other")))
        go_on.touch()
        done.result()
    assert shown(target.refresh().read()) == [(1, "a"), (7, "other")]


@pytest.mark.long
def test_complete_and_update(streams: Streams) -> None:
    source = streams.table()
    whole = streams.table("v string, n bigint")
    newest = streams.table("v string, n bigint", primary_key=["v"], buckets=1)
    sums = streams.read(source).groupBy("v").agg(sf.count("*").alias("n"))
    for some in ([(1, "a"), (2, "b")], [(3, "a")]):
        source.insert(streams.rows(*some))
        streams.run(sums, whole, "whole", mode="complete")
        streams.run(sums, newest, "newest", mode="update")
    for target in (whole, newest):
        assert shown(target.refresh().read()) == [("a", 2), ("b", 1)]
    streams.forget_last_batch("whole")
    streams.run(sums, whole, "whole", mode="complete")
    assert shown(whole.refresh().read()) == [("a", 2), ("b", 1)]
    with pytest.raises(PySparkException, match="does not support Update mode"):
        streams.run(sums, whole, "refused", mode="update")


def test_rows_that_do_not_fit(streams: Streams) -> None:
    source = streams.table()
    source.insert(streams.rows((1, "a"), (1, "b")))
    rows = streams.read(source)
    for target, said in [
        (streams.table("id int, v string"), "the column id is BIGINT in the query and INT in the table"),
        (streams.table("id bigint"), "the table has no column v"),
        (streams.table("id bigint, v string, k int", primary_key=["k"]), "the query has no column k"),
        (streams.table(primary_key=["id"]), "KEY_TWICE"),
    ]:
        with pytest.raises(PySparkException, match=said):
            streams.run(rows, target, said[-8:])
        assert target.refresh().read().count() == 0
