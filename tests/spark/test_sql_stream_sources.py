"""Streams from tables, through the Spark catalog."""

from __future__ import annotations

import json
import re
import shutil
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from laketx import Lake, connect
from metaservice.client import add_column, comment_column
from protos.laketx.v1 import common_pb2
from tests.integration.service import free_address, service
from tests.spark.queries import WAIT_S, Streams
from tests.spark.reading import shown
from tests.spark.sql import catalog_of


@pytest.fixture
def streams(lake: Lake, tmp_path: Path, new_name: Callable[[], str]) -> Streams:
    return Streams(lake, tmp_path, new_name)


@pytest.mark.parametrize("keyed", [False, pytest.param(True, marks=pytest.mark.long)])
def test_what_there_is_and_then_each_commit(streams: Streams, keyed: bool) -> None:
    """Compactions between two runs change nothing."""
    source = streams.table(primary_key=["id"] if keyed else [], buckets=1 if keyed else None)
    source.insert(streams.rows((1, "a"), (2, "a")))
    source.insert(streams.rows((2 if keyed else 3, "b")))
    rows = streams.read(source)
    first = streams.batches(rows)
    assert first == [[(1, "a"), (2, "b")]] if keyed else list(chain(*first)) == [(1, "a"), (2, "a"), (3, "b")]
    assert streams.batches(rows) == []
    source.insert(streams.rows((4, "c"), (5, "c")))
    source.compact()
    source.insert(streams.rows((5 if keyed else 6, "d")))
    source.compact()
    wanted = [(4, "c"), (5, "d")] if keyed else [(4, "c"), (5, "c"), (6, "d")]
    assert list(chain(*streams.batches(rows))) == wanted
    (cursor,) = streams.lake.client.list_cursors(source.table_id)
    assert cursor.name.startswith("stream-")
    assert cursor.version == 2  # the last batch of a run is confirmed by the first of the next one


def test_how_much_at_a_time(streams: Streams) -> None:
    source, keyed = streams.table(), streams.table(primary_key=["id"], buckets=2)
    for table in (source, keyed):
        table.insert(streams.rows((0, "first")))
        table.insert(streams.rows(*((at, "x") for at in range(1, 7))).repartition(3))
        table.insert(streams.rows((7, "last")))
    files = streams.batches(streams.read(source, startingVersion=1, maxFilesPerTrigger=2), "files")
    assert [len(batch) for batch in files] == [3, 4, 1]
    rows = streams.batches(streams.read(source, startingVersion=1, maxRowsPerTrigger=1), "rows")
    assert [len(batch) for batch in rows] == [1, 2, 2, 2, 1]
    commits = streams.batches(streams.read(keyed, startingVersion=1, maxBytesPerTrigger=1), "bytes")
    assert [len(batch) for batch in commits] == [1, 6, 1]
    shot = streams.batches(streams.read(source, maxFilesPerTrigger=4), "snapshot")
    assert len(shot) == 2
    assert sum(map(len, shot)) == 8
    for option, value in {"maxFilesPerTrigger": "0", "keepHours": "soon", "endingVersion": "2"}.items():
        with pytest.raises(PySparkException, match=f"OPTION_INVALID: {option}"):
            streams.batches(streams.read(source, **{option: value}), option)


def test_where_it_begins(streams: Streams) -> None:
    source = streams.table()
    for number in range(1, 5):
        source.insert(streams.rows((number, "x")))
    source.tag("two", version=2)
    times = {one.version: one.commit_time_us for one in streams.lake.client.list_versions(source.table_id)}
    third = streams.spark.sql(f"SELECT string(timestamp_micros({times[3]}))").collect()[0][0]
    for at, (options, ids) in enumerate(
        [
            ({"startingVersion": "3"}, [3, 4]),
            ({"startingVersion": "latest"}, []),
            ({"startingTag": "two"}, [3, 4]),
            ({"startingTimestamp": third}, [3, 4]),
        ]
    ):
        found = streams.batches(streams.read(source, **options), f"begin{at}")
        assert [row[0] for batch in found for row in batch] == ids, options
    source.insert(streams.rows((5, "x")))
    assert streams.batches(streams.read(source, startingVersion="latest"), "begin1") == [[(5, "x")]]
    with pytest.raises(PySparkException, match="OPTION_INVALID: a stream begins at a version, a time or a tag"):
        streams.batches(streams.read(source, startingVersion=1, startingTag="two"), "both")


@pytest.mark.parametrize("keyed", [pytest.param(False, marks=pytest.mark.long), True])
def test_commits_that_did_more_than_add_rows(streams: Streams, keyed: bool) -> None:
    source = streams.table(primary_key=["id"] if keyed else [])
    source.insert(streams.rows((1, "a"), (2, "a")))
    source.delete("id = 1")
    source.insert(streams.rows((3, "c")))
    rows = streams.read(source, startingVersion=1)
    with pytest.raises(PySparkException, match=r"STREAM_SEES_CHANGES: .*version 2 \(DELETE\) did more than add rows"):
        streams.batches(rows)
    passed = streams.batches(streams.read(source, startingVersion=1, skipChangeCommits="true"), "passed")
    assert list(chain(*passed)) == [(1, "a"), (2, "a"), (3, "c")]
    source.overwrite(streams.rows((2, "b"), (3, "c")))
    feed = streams.read(source, startingVersion=2, readChangeFeed="true")
    assert feed.columns[-3:] == ["_change_type", "_commit_version", "_commit_time"]
    found = streams.batches(feed, "feed")
    assert sorted(chain(*found), key=repr) == shown(source.changes(since=1, mode="log"))
    whole = chain(*streams.batches(streams.read(source, readChangeFeed="true"), "whole"))
    assert [one[2:4] for one in whole] == [("insert", 4), ("insert", 4)]
    named = streams.spark.readStream.option("startingVersion", 3).changes(f"{streams.catalog}.{source.name}")
    assert named.columns[-1] == "_commit_timestamp"
    found = streams.batches(named, "named")
    assert sorted(chain(*found), key=repr) == shown(source.changes(since=2, mode="log"))
    for mode in ({"mode": "latest"}, {"deduplicationMode": "netChanges"}):
        reader = streams.spark.readStream.options(**mode)
        name = f"{streams.catalog}.{source.name}"
        rows = reader.table(f"{name}.changes") if "mode" in mode else reader.changes(name)
        with pytest.raises(PySparkException, match="OPTION_INVALID: a stream gives each change"):
            streams.batches(rows, next(iter(mode)))


CHANGES: Final[Mapping[str, common_pb2.Alteration]] = {
    "the property write.compression": common_pb2.Alteration(set_properties={"write.compression": "gzip"}),
    "the features": common_pb2.Alteration(add_features=["delete_sets"]),
    "the profile": common_pb2.Alteration(profile="row_level"),
    "the columns": common_pb2.Alteration(schema_changes=[add_column("w", "int")]),
}


@pytest.mark.parametrize(
    "changes",
    [["the profile", "the columns"], pytest.param(list(CHANGES), marks=pytest.mark.long)],
    ids=["some", "all"],
)
def test_a_query_ends_where_metadata_change(streams: Streams, changes: list[str]) -> None:
    """After what came before the change; a query of the table as it is then goes on."""
    source = streams.table()
    source.insert(streams.rows((-1, "first")))
    assert streams.batches(streams.read(source)) == [[(-1, "first")]]
    for number, words in enumerate(changes):
        rows = streams.read(source)
        source.insert(streams.rows((2 * number, "before")))
        streams.lake.client.alter_table(source.table_id, CHANGES[words])
        source.refresh().insert(streams.rows((2 * number + 1, "after")))
        version = source.refresh().meta.head_version - 1
        kept: list[list[tuple[Any, ...]]] = []
        with pytest.raises(PySparkException, match=f"STREAM_METADATA_CHANGED: .*version {version} changed {words}: "):
            streams.batches(rows, kept=kept)
        with pytest.raises(PySparkException, match="STREAM_METADATA_CHANGED"):
            streams.batches(rows, kept=kept)
        ((before,),) = kept
        assert before[:2] == (2 * number, "before")
        ((after,),) = streams.batches(streams.read(source))
        assert after[:2] == (2 * number + 1, "after")


def test_a_change_with_nothing_after_it_ends_a_query(streams: Streams) -> None:
    source = streams.table()
    rows = streams.read(source)
    source.insert(streams.rows((1, "a")))
    found: list[int] = []
    with running(rows, streams.folder / "c", found) as query:
        source.set_properties(**{"write.compression": "gzip"})
        with pytest.raises(PySparkException, match="STREAM_METADATA_CHANGED"):
            assert not query.awaitTermination(WAIT_S)
    assert found == [1]


def test_what_no_writer_follows_ends_no_query(streams: Streams) -> None:
    source = streams.table()
    rows = streams.read(source)
    source.insert(streams.rows((1, "a")))
    comments = [comment_column("v", "a letter")]
    source.set_properties(**{"data.retain.hours": "24", "user.owner": "ann"})
    streams.lake.client.alter_table(source.table_id, common_pb2.Alteration(comment="letters", schema_changes=comments))
    source.tag("now")
    source.insert(streams.rows((2, "b")))
    assert list(chain(*streams.batches(rows))) == [(1, "a"), (2, "b")]


def test_a_checkpoint_belongs_to_one_table(streams: Streams) -> None:
    source, other = streams.table(), streams.table()
    for table in (source, other):
        table.insert(streams.rows((1, "a")))
    assert streams.batches(streams.read(source)) == [[(1, "a")]]
    with pytest.raises(PySparkException, match="CHECKPOINT_INVALID"):
        streams.batches(streams.read(other))


def twin(streams: Streams) -> None:
    """A checkpoint `twin` as a second process has it that shares `c`, with another id: Spark lets one id run once."""
    folder = streams.folder / "twin"
    shutil.copytree(streams.folder / "c", folder)
    (folder / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    (folder / ".metadata.crc").unlink()


@contextmanager
def running(rows: DataFrame, checkpoint: Path, found: list[int]) -> Iterator[StreamingQuery]:
    def keep(batch: DataFrame, _: int) -> None:
        found.extend(row["id"] for row in batch.collect())

    query = rows.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(keep).start()
    try:
        query.processAllAvailable()
        yield query
    finally:
        query.stop()


def wait(query: StreamingQuery, found: list[int], row: int) -> None:
    """Until a row is delivered, and its batch is done; the query asks for the newest version a few times a second."""
    end = time.monotonic() + WAIT_S
    while row not in found:
        assert time.monotonic() < end
        query.processAllAvailable()
    query.processAllAvailable()


@pytest.mark.long
def test_a_query_ends_where_another_took_its_checkpoint(streams: Streams) -> None:
    """It ends before it plans a batch, so that the other one has no rival in Spark's log either."""
    source = streams.table()
    rows = streams.read(source)
    source.insert(streams.rows((1, "a")))
    assert streams.batches(rows) == [[(1, "a")]]
    offsets = streams.folder / "c" / "offsets"
    old: list[int] = []
    new: list[int] = []
    with running(rows, streams.folder / "c", old) as first:
        source.insert(streams.rows((2, "b")))
        wait(first, old, 2)
        planned = sorted(offsets.iterdir())
        twin(streams)
        with running(rows, streams.folder / "twin", new) as second:
            source.insert(streams.rows((3, "c")))
            with pytest.raises(PySparkException, match=r"CHECKPOINT_SHARED: .* another query has the same checkpoint"):
                wait(first, old, 3)
            wait(second, new, 3)
            source.insert(streams.rows((4, "d")))
            wait(second, new, 4)
    assert (old, new) == ([2], [3, 4])
    assert sorted(offsets.iterdir()) == planned
    streams.forget_last_batch("twin")
    assert streams.batches(rows, "twin") == [[(4, "d")]]  # a batch that is repeated after a crash fails nowhere


def test_one_of_two_queries_at_one_place_ends(streams: Streams) -> None:
    """Both have delivered the same when they begin to move the cursor: the second to move it ends."""
    source = streams.table()
    rows = streams.read(source)
    source.insert(streams.rows((1, "a")))
    assert streams.batches(rows) == [[(1, "a")]]
    twin(streams)
    found: dict[str, list[int]] = {"c": [], "twin": []}
    with ExitStack() as stack:
        queries = {
            name: stack.enter_context(running(rows, streams.folder / name, some)) for name, some in found.items()
        }
        source.insert(streams.rows((2, "b")))
        for name, query in queries.items():
            wait(query, found[name], 2)
        source.insert(streams.rows((3, "c")))
        failures: dict[str, str] = {}
        for name, query in queries.items():
            try:
                wait(query, found[name], 3)
            except PySparkException as error:
                failures[name] = str(error)
        assert len(failures) == 1
        (ended,) = failures
        assert "CHECKPOINT_SHARED" in failures[ended]
        assert found.pop(ended) == [2]
        ((name, some),) = found.items()
        source.insert(streams.rows((4, "d")))
        wait(queries[name], some, 4)
        assert some == [2, 3, 4]


def test_a_checkpoint_that_nobody_asked_for_leaves_no_cursor(streams: Streams) -> None:
    source = streams.table()
    source.insert(streams.rows((1, "a")))
    query = streams.read(source).writeStream.foreachBatch(lambda batch, _: None).start()
    query.processAllAvailable()
    assert list(streams.lake.client.list_cursors(source.table_id))
    query.stop()
    assert not list(streams.lake.client.list_cursors(source.table_id))


def test_an_idle_query_asks_for_the_head_alone(spark: SparkSession, tmp_path: Path) -> None:
    metrics = free_address()
    flags = ("--metrics-listen", metrics)
    with (
        service(tmp_path / "db", *flags) as (server, _),
        connect(f"laketx://{server.address}", spark, warehouse=str(tmp_path / "files")) as lake,
    ):
        source = lake.create_table("source", "id bigint")
        source.insert(spark.range(3))
        rows = spark.readStream.table(f"{catalog_of(lake)}.source")
        query = rows.writeStream.foreachBatch(lambda _batch, _number: None).start()
        query.processAllAvailable()
        before, began = calls(metrics), time.monotonic()
        time.sleep(1.0)
        while (after := calls(metrics)).get("ResolveVersion") == before.get("ResolveVersion"):  # a busy machine is late
            assert time.monotonic() < began + WAIT_S
            time.sleep(0.1)
        took_s = time.monotonic() - began
        query.stop()
    asked = {name: count - before.get(name, 0) for name, count in after.items() if count != before.get(name, 0)}
    assert 1 <= asked.pop("ResolveVersion") <= took_s / 0.2 + 2
    assert not {"PlanChanges", "PlanScan", "GetTable", "AdvanceCursor"} & asked.keys(), asked


def calls(metrics: str) -> dict[str, float]:
    """How often each method was called."""
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=WAIT_S) as answer:
        lines = answer.read().decode().splitlines()
    found = [
        re.fullmatch(r'laketx_call_seconds_count\{method="/laketx.v1.\w+/(\w+)"\} ([0-9.e+]+)', line) for line in lines
    ]
    return {one[1]: float(one[2]) for one in found if one}


def test_the_format_reads_and_writes_streams(streams: Streams) -> None:
    source, target, keyed = streams.table(), streams.table(), streams.table(primary_key=["id"])
    name = f"{streams.catalog}.{source.name}"
    source.insert(streams.rows((1, "a")))
    source.insert(streams.rows((2, "b")))
    rows = streams.spark.readStream.format("laketx").option("startingVersion", 2).load(name)
    assert streams.batches(rows, "rows") == [[(2, "b")]]
    changes = streams.spark.readStream.format("laketx").option("readChangeFeed", "true").load(name)
    assert "_change_type" in changes.columns
    whole = streams.spark.readStream.format("laketx").load(name)
    writer = whole.writeStream.format("laketx").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(streams.folder / "into")).start(f"{streams.catalog}.{target.name}")
    assert query.awaitTermination(WAIT_S)
    assert shown(target.refresh().read()) == [(1, "a"), (2, "b")]
    query = writer.option("checkpointLocation", str(streams.folder / "no")).start(f"{streams.catalog}.{keyed.name}")
    with pytest.raises(PySparkException, match="SINK_NEEDS_CATALOG"):
        query.awaitTermination(WAIT_S)


@pytest.mark.parametrize(
    ("reason", "options", "name"),
    [
        ("TABLE_UNKNOWN", {}, "{catalog}.tests.no_such"),
        ("CATALOG_MISSING", {}, "no_such_catalog.tests.t"),
        ("OPTION_INVALID", {"versionAsOf": "1"}, "{table}"),
    ],
)
def test_the_format_refuses_what_is_no_stream(
    streams: Streams, reason: str, options: dict[str, str], name: str
) -> None:
    table = f"{streams.catalog}.{streams.table().name}"
    with pytest.raises(PySparkException, match=reason):
        streams.spark.readStream.format("laketx").options(**options).load(
            name.format(catalog=streams.catalog, table=table)
        )
