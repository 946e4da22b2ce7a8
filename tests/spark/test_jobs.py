"""Compactions as real Spark jobs whose commits cross with others', and the daemon; contents against a plain dict."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from laketx import Lake, connect
from protos.laketx.v1 import common_pb2, maintenance_pb2
from tests.spark.crossed import CLUSTER, MAJOR, MINOR, Crossed
from tests.spark.stored import live, row_ids
from worker.services.compaction.compaction import Options, staged
from worker.services.compaction.daemon import Daemon
from worker.services.compaction.jobs import Job
from worker.services.compaction.processes import Processes
from worker.services.compaction.spark_executors import SparkExecutors

NewName = Callable[[], str]


def word(operation: common_pb2.Operation.ValueType) -> str:
    return common_pb2.Operation.Name(operation).removeprefix("OPERATION_").lower()


@pytest.mark.parametrize("operation", [MINOR, pytest.param(MAJOR, marks=pytest.mark.long)], ids=["minor", "major"])
@pytest.mark.parametrize("keyed", [True, pytest.param(False, marks=pytest.mark.long)], ids=["key", "append"])
def test_compactions_cross_with_everything(
    lake: Lake, new_name: NewName, keyed: bool, operation: common_pb2.Operation.ValueType
) -> None:
    crossed = Crossed(lake, new_name(), keyed=keyed)
    stands: dict[str, set[common_pb2.Operation.ValueType]] = {
        "insert": {MINOR},
        "update": {MINOR},
        "overwrite": set(),
        "minor_compact": {MAJOR},
        "major_compact": set(),
    }
    for name, passed in stands.items():
        crossed.make_work()
        other = {"minor_compact": MINOR, "major_compact": MAJOR}.get(name)
        winner: Callable[[], None] = getattr(crossed, name) if other is None else partial(crossed.compact, other)
        assert crossed.compact_across(operation, winner) == (operation in passed), (word(operation), name)
    crossed.check()


@pytest.mark.parametrize("operation", [pytest.param(MINOR, marks=pytest.mark.long), MAJOR], ids=["minor", "major"])
@pytest.mark.parametrize("keyed", [pytest.param(True, marks=pytest.mark.long), False], ids=["key", "append"])
def test_changes_pass_compactions_that_came_first(
    lake: Lake, new_name: NewName, keyed: bool, operation: common_pb2.Operation.ValueType
) -> None:
    crossed = Crossed(lake, new_name(), keyed=keyed)
    for mine in (crossed.insert, crossed.update, crossed.overwrite):
        crossed.make_work()
        version = crossed.head()
        crossed.compact(operation)
        mine(version)
    crossed.check()


def test_executors_and_processes_have_the_same_digests(lake: Lake, new_name: NewName) -> None:
    crossed = Crossed(lake, new_name(), keyed=True)
    crossed.make_work()
    digests = []
    for runner in (SparkExecutors(lake.spark), Processes(), Processes(little_bytes=0)):
        job = Job()
        with staged(crossed.table.view, MAJOR, options=Options(), runner=runner, job=job) as compaction:
            digests.append([(one.input.to_bytes(), one.output.to_bytes()) for one in compaction.outcomes])
        assert job.progress == 1.0
    assert digests[0]
    assert digests[0] == digests[1] == digests[2]


def test_clustering_and_inserts_pass_each_other(lake: Lake, new_name: NewName) -> None:
    crossed = Crossed(lake, new_name(), keyed=False)
    crossed.make_work()
    ids = {key: row_id for key, row_id in row_ids(crossed.table, "id").items() if key in crossed.rows}
    assert crossed.compact_across(CLUSTER, crossed.insert)
    version = crossed.head()
    crossed.compact(CLUSTER)
    crossed.insert(version)
    crossed.check()
    assert ids.items() <= row_ids(crossed.table, "id").items()


@pytest.mark.long
@pytest.mark.parametrize("keyed", [True, False], ids=["key", "append"])
def test_increments_are_as_if_nothing_were_compacted(lake: Lake, new_name: NewName, keyed: bool) -> None:
    crossed = Crossed(lake, new_name(), keyed=keyed)
    crossed.make_work()
    since = crossed.head()
    crossed.update()
    crossed.insert()

    def increments() -> list[list[Any]]:
        return [
            sorted(map(tuple, crossed.table.changes(since=since, mode=mode).collect()))
            for mode in ("log", "changes", "latest")
        ]

    want = increments()
    for operation in (MINOR, MAJOR) if keyed else (MINOR,):
        crossed.compact(operation)
    assert increments() == want


def test_older_schemas_come_out_under_the_present_one(lake: Lake, new_name: NewName, spark: SparkSession) -> None:
    types = "id bigint, n int, gone string, s struct<a:int,b:string>, m map<string,decimal(9,2)>, p date"
    table = lake.create_table(
        new_name(), types, primary_key=["id"], buckets=2, partition_by=["p"], key_scope="partition"
    )
    row = "id", "cast(id as int) n", "'old' gone", "struct(cast(id as int) a, 'b' b) s", "map('k', 1.5BD) m"
    table.insert(spark.range(20).selectExpr(*row, "if(id % 2 = 0, date'2026-01-01', null) p"))
    table.drop_column("gone").rename_column("n", "number").widen_column("number", "bigint")
    table.add_columns("gone double").rename_column("s.b", "c")
    new = "id", "id number", "0.5D gone", "struct(cast(id as int) a, 'c' c) s", "map('k', 2.5BD) m"
    table.insert(spark.range(10, 30).selectExpr(*new, "if(id % 2 = 0, date'2026-01-01', null) p"))
    want = sorted(map(repr, table.read().collect()))
    assert table.compact("major") is not None
    assert sorted(map(repr, table.read().collect())) == want
    assert {entry.file.schema_version for entry in live(table)} == {table.refresh().meta.schema_version}
    assert all(entry.file.stats for entry in live(table))


def test_a_curve_and_a_partition_alone(lake: Lake, new_name: NewName, spark: SparkSession) -> None:
    table = lake.create_table(new_name(), "id bigint, v string, p int", partition_by=["p"])
    for _ in range(2):
        table.insert(spark.range(40).selectExpr("id", "cast(-id as string) v", "cast(id % 2 as int) p").coalesce(1))
    want = sorted(map(tuple, table.read().collect()))
    table.compact("cluster", zorder_by=["id", "v"], partition={"p": 1})
    ordered = [entry.file for entry in live(table) if entry.file.row_order]
    assert {file.row_order for file in ordered} == {"zorder(id,v)"}
    assert {file.partition.values[0].value.integer for file in ordered} == {1}
    assert sorted(map(tuple, table.read().collect())) == want


@pytest.mark.parametrize("keyed", [True, False], ids=["key", "append"])
def test_a_user_compacts_what_the_service_plans_and_no_more(
    lake: Lake, new_name: NewName, spark: SparkSession, keyed: bool
) -> None:
    layout: dict[str, Any] = {"primary_key": ["id"], "buckets": 1} if keyed else {}
    table = lake.create_table(new_name(), "id bigint, v string", **layout)
    for _ in range(3):
        table.insert(spark.range(9).selectExpr("id", "cast(-id as string) v").coalesce(1))
    want = sorted(map(tuple, table.read().collect()))
    waiting = lake.client.request_tasks(table.table_id, MINOR).tasks
    assert len(waiting) == 1, "nobody works on it: that is no reason to wait for anybody"
    assert table.compact("major") is not None
    assert (table.compact("major"), table.compact("minor")) == (None, None)
    assert table.compact("cluster", sort_by=["v"]) is not None
    assert table.compact("cluster", sort_by=["v"]) is None
    assert [entry.file.row_order for entry in live(table)] == ["sort(v)"]
    assert sorted(map(tuple, table.read().collect())) == want
    lake.client.cancel_task(waiting[0].task_id)


def test_files_from_outside_are_compacted_into_own_ones(
    lake: Lake, new_name: NewName, spark: SparkSession, tmp_path: Path
) -> None:
    rows = {at: (f"v{at}", at % 2) for at in range(8)}
    for part in range(2):
        frame = spark.createDataFrame([(at, *rows[at]) for at in list(rows)[part::2]], "id bigint, v string, p bigint")
        frame.repartition(2).write.mode("append").partitionBy("p").parquet(str(tmp_path / "old"))
    before = {path: path.read_bytes() for path in (tmp_path / "old").rglob("*.parquet")}
    table = lake.import_parquet(tmp_path / "old", new_name())
    table.delete("id = 3")
    imported = table.rename_column("v", "word").add_columns("n int").refresh().meta.head_version
    want = sorted((at, word, p, None) for at, (word, p) in rows.items() if at != 3)

    def check(*, external: bool) -> None:
        found = table.read().select("id", "word", "p", "n").collect()
        assert sorted(map(tuple, found)) == want
        assert any(entry.file.external for entry in live(table)) == external

    check(external=True)
    table.compact("minor", partition={"p": 0})
    check(external=True)
    table.compact("major", partition={"p": 1})
    check(external=False)
    table.restore(version=imported)
    check(external=True)
    table.compact("cluster", sort_by=["id"])
    check(external=False)
    assert {file.file.row_order for file in live(table) if file.HasField("file")} == {"sort(id)"}
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("keyed", [True, pytest.param(False, marks=pytest.mark.long)])
def test_clustering_takes_older_schemas(lake: Lake, new_name: NewName, spark: SparkSession, keyed: bool) -> None:
    table = lake.create_table(
        new_name(), "id bigint, v int, s struct<a:int,b:int>, gone int", primary_key=["id"] if keyed else []
    )
    for start in (0, 4):
        rows = spark.range(start, start + 4).selectExpr("id", "int(-id) v", "named_struct('a', 1, 'b', 2) s", "1 gone")
        table.overwrite(rows.coalesce(1), partition="all") if start == 0 else table.insert(rows.coalesce(1))
    table.drop_column("gone")
    table.rename_column("v", "word").widen_column("word", "bigint").rename_column("s.a", "c").add_columns("n int")
    want = sorted(map(tuple, table.read().collect()))
    if keyed:
        table.compact("major")
    table.compact("cluster", sort_by=["id"] if keyed else ["word"])
    assert sorted(map(tuple, table.read().collect())) == want
    assert all(row["word"] is not None and row["s"]["c"] == 1 for row in table.read().collect())


# -- the daemon --------------------------------------------------------------------------------------------------------


def test_the_daemon_does_what_is_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    """In a lake of its own: in another one it would do what waits for tables of other tests, too."""
    with connect(tmp_path / "lake", spark) as lake:
        crossed = Crossed(lake, "a.t", keyed=True)
        crossed.make_work()
        asked = lake.client.request_tasks(crossed.table.table_id, MAJOR).tasks
        assert Daemon(lake).run_waiting() >= len(asked) == 1
        done = lake.client.get_task(asked[0].task_id)
        assert done.state == maintenance_pb2.TASK_STATE_DONE
        assert [entry.file.kind for entry in live(crossed.table)] == [common_pb2.FILE_KIND_BASE]
        crossed.check()


def test_a_task_that_fails_says_why_and_comes_again(spark: SparkSession, tmp_path: Path) -> None:
    """In a lake of its own: where others' tasks wait too, the task comes again before they are done."""
    with connect(tmp_path / "lake", spark) as lake:
        crossed = Crossed(lake, "a.t", keyed=True)
        crossed.make_work()
        asked = lake.client.request_tasks(crossed.table.table_id, MAJOR).tasks[0]
        file = Path(f"{crossed.table.folder}/{live(crossed.table)[0].file.path}")
        payload = file.read_bytes()
        file.write_bytes(payload[:100])
        Daemon(lake).run_waiting()
        failed = lake.client.get_task(asked.task_id)
        assert failed.attempts == 1
        assert failed.error
        assert failed.state == maintenance_pb2.TASK_STATE_QUEUED
        file.write_bytes(payload)
        lake.client.cancel_task(asked.task_id)
        crossed.check()


def test_maintenance_runs_beside_an_embedded_table(spark: SparkSession, tmp_path: Path) -> None:
    with connect(tmp_path / "lake", spark) as first:
        crossed = Crossed(first, "a.t", keyed=False)
        crossed.make_work()
        head = crossed.head()
        first.client.request_tasks(crossed.table.table_id, MAJOR)
        with connect(tmp_path / "lake", spark, maintenance=True):
            version = next(first.client.watch(crossed.table.table_id, after_version=head))
        assert version.operation == MAJOR
        crossed.check()
