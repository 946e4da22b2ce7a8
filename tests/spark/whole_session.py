"""The front door from one end to the other, on Spark Connect or a cluster: `python -m tests.spark.whole_session …`.

    python -m tests.spark.whole_session connect FOLDER
    python -m tests.spark.whole_session spark://127.0.0.1:7077 FOLDER keyed appended

A process has a classic session or one of Spark Connect, never both: so this is a program of its own.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import date
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from laketx import ConflictError, InputError, Lake, Table, connect
from tests.spark.sessions import SMALL, small_session
from worker.dataframes.catalog_writes import OWN_SETTINGS
from worker.spark.catalog_jar import jar_setting
from worker.spark.jobs import counting
from worker.spark.session import is_classic

Rows = list[tuple[Any, ...]]


def main(master: str, folder: Path, names: list[str]) -> None:
    """All parts, or those named."""
    spark = connect_session() if master == "connect" else small_session(master)
    assert is_classic(spark) == (master != "connect")
    with connect(folder / "lake", spark, user="ana") as lake:
        before = {key: spark.conf.get(key, None) for key in OWN_SETTINGS}
        play(lake, folder, names)
        assert {key: spark.conf.get(key, None) for key in OWN_SETTINGS} == before, "put back"
    spark.stop()


def play(lake: Lake, folder: Path, names: Sequence[str]) -> None:
    parts = (
        keyed, appended, several_tables, refusals, conflicts, in_and_out, in_sql, streamed, compacted, seen,
    )  # fmt: skip
    for part in parts:
        if names and part.__name__ not in names:
            continue
        begun_s = time.monotonic()
        part(lake, folder)
        print(f"{part.__name__}: {time.monotonic() - begun_s:.1f} s", flush=True)


def connect_session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    own = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.progress.reportInterval": "50ms"}
    return SparkSession.builder.remote("local[2]").config(map={**SMALL, **jar_setting(), **own}).getOrCreate()


def rows_of(frame: DataFrame) -> Rows:
    return sorted((tuple(row) for row in frame.collect()), key=str)


def frame(lake: Lake, schema: str, *rows: tuple[Any, ...]) -> DataFrame:
    return lake.spark.createDataFrame(list(rows), schema)


def refused(work: Callable[[], object], kind: type[Exception], says: str) -> None:
    found: Exception | None = None
    try:
        work()
    except kind as error:
        found = error
    assert found is not None, f"not refused: {says}"
    assert says in str(found), found


# -- what works --------------------------------------------------------------------------------------------------------


def keyed(lake: Lake, folder: Path) -> None:
    schema = "id bigint, amount double, status string"
    table = lake.create_table("sales.orders", schema, primary_key=["id"], buckets=2)
    table.insert(frame(lake, schema, (1, 1.0, "open"), (2, 2.0, "open"), (3, 3.0, "open")))
    table.insert(frame(lake, schema, (2, 20.0, "open"), (2, 22.0, "paid")), order_by="amount")
    table.update({"status": "'void'", "amount": sf.col("amount") * 2}, where="id = 1")
    table.delete("amount = 3")
    assert rows_of(table.read()) == [(1, 2.0, "void"), (2, 22.0, "paid")]
    assert rows_of(table.read(version=1, where="id > 1")) == [(2, 2.0, "open"), (3, 3.0, "open")]
    merge = table.merge(frame(lake, "id bigint, amount double", (2, 5.0), (9, 9.0)), on="id")
    merge = merge.when_matched_update({"amount": "target.amount + source.amount"}).when_not_matched_insert()
    merge.when_not_matched_by_source_delete().execute()
    assert rows_of(table.read()) == [(2, 27.0, "paid"), (9, 9.0, None)]
    found = table.changes(since=4, mode="log").select("id", "_change_type", "_commit_version")
    assert rows_of(found) == [
        (1, "delete", 5),
        (2, "update_postimage", 5),
        (2, "update_preimage", 5),
        (9, "insert", 5),
    ]


def appended(lake: Lake, folder: Path) -> None:
    schema = "id bigint, day date"
    one, two = date(2026, 11, 1), date(2026, 11, 2)
    table = lake.create_table("web.events", schema, partition_by=["day"])
    table.insert(frame(lake, schema, (1, one), (2, one), (3, two), (4, None)).coalesce(1))
    table.update({"id": "id * 10"}, where="id = 2")
    table.delete("id = 1")
    assert rows_of(table.read()) == [(20, one), (3, two), (4, None)]
    table.overwrite(lake.spark.range(7, 8), partition={"day": two})
    with table.snapshot(version=4) as snapshot:
        table.add_columns("note string").rename_column("id", "number")
        assert rows_of(snapshot.read(where="day IS NOT NULL")) == [(20, one), (7, two)]
    table.insert(frame(lake, "number bigint, note string, day date, more int", (8, "x", None, 1)), merge_schema=True)
    assert rows_of(table.read(where="more = 1")) == [(8, None, "x", 1)]
    table.restore(version=1)
    assert table.read(commits_ago=0).count() == 4
    many_files(table)


def many_files(table: Table) -> None:
    """More than Spark lists in the driver by itself."""
    rows = table.lake.spark.range(40).select(sf.col("id").alias("number"))
    day = sf.date_add(sf.lit(date(2026, 1, 1)), sf.col("number").cast("int"))
    table.overwrite(rows.withColumn("day", day))
    assert table.read().agg(sf.sum("number")).collect()[0][0] == 780


def several_tables(lake: Lake, folder: Path) -> None:
    with lake.transaction("both") as txn:
        txn.table("sales.orders").delete("id = 9")
        txn.table("web.events").insert(frame(lake, "number bigint, day date", (100, None)))
    assert [commit.table for commit in txn.commits] == ["sales.orders", "web.events"]


# -- what is refused ---------------------------------------------------------------------------------------------------


def refusals(lake: Lake, folder: Path) -> None:
    """What a Connect session would say only when a job runs is said before."""
    orders = lake.table("sales.orders")
    head = orders.meta.head_version
    one = frame(lake, "id bigint, amount double, status string", (1, 1.0, "x"))
    refused(lambda: orders.insert(one.withColumn("extra", sf.lit(1))), InputError, "extra")
    refused(lambda: orders.insert(one.withColumn("amount", sf.lit("x"))), InputError, "SCHEMA_MISMATCH")
    refused(lambda: orders.insert(one.union(one)), InputError, "KEY_TWICE")
    refused(lambda: orders.delete("nobody = 1"), InputError, "CONDITION_INVALID")
    refused(lambda: orders.update({"amount": "nobody"}, where="id = 1"), InputError, "VALUE_INVALID")
    refused(lambda: orders.update({"id": "2"}), InputError, "KEY_SET")
    wrong = orders.merge(one, on="target.nobody = source.id").when_not_matched_insert()
    refused(wrong.execute, InputError, "CONDITION_INVALID")
    refused(lambda: lake.create_table("sales.bad", "id nothing"), InputError, "COLUMNS_INVALID")
    assert orders.refresh().meta.head_version == head


def conflicts(lake: Lake, folder: Path) -> None:
    table = lake.create_table("sales.stock", "item bigint, left int", primary_key=["item"], buckets=1)

    def lose() -> None:
        with lake.transaction() as txn:
            mine = txn.table("sales.stock")
            table.insert(frame(lake, "item bigint, left int", (1, 1)))
            mine.delete("item = 1")

    refused(lose, ConflictError, "on_conflict='rerun'")
    stale = table.read().withColumn("left", sf.col("left") + 1)
    table.update({"left": 7}, where="item = 1")
    refused(lambda: table.insert(stale), ConflictError, "lost a race")
    table.update({"left": 1}, where="item = 1")
    writers = [threading.Thread(target=add, args=[lake, item]) for item in (2, 3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert rows_of(table.read()) == [(1, 1), (2, 0), (3, 0)]


def add(lake: Lake, item: int) -> None:
    lake.table("sales.stock").insert(frame(lake, "item bigint, left int", (item, 0)), on_conflict="rerun")


def in_and_out(lake: Lake, folder: Path) -> None:
    table = lake.table("sales.stock")
    assert table.export(folder / "out") == table.refresh().meta.head_version
    assert sorted(pq.read_table(folder / "out").column("item").to_pylist()) == [1, 2, 3]
    table.export(folder / "out", where="item = 1", overwrite=True)
    assert lake.import_parquet(folder / "out", "sales.imported").read().count() == 1


def in_sql(lake: Lake, folder: Path) -> None:
    """The catalog's reader runs in the executors; its rows are those of Python's."""
    name = lake.as_catalog("by_sql")
    assert lake.as_catalog("by_sql") == name
    for kind, keys in (("keyed", ["word", "id"]), ("appended", [])):
        table = lake.create_table(f"sql.{kind}", "id bigint, word string, v int", primary_key=keys)
        for v, step in ((1, 1), (2, 3)):
            table.insert(lake.spark.range(0, 300, step).selectExpr("id", "concat('w', id % 7) word", f"{v} v"))
        table.delete("id % 10 = 4")
        table.update({"v": "9"}, where="id = 7")
        for where in ("true", "v = 2", "word = 'w3' and id < 100"):
            found = lake.spark.sql(f"SELECT * FROM {name}.sql.{kind} WHERE {where}")
            assert rows_of(found) == rows_of(table.read().where(where)) != [], (kind, where)
        old = lake.spark.sql(f"SELECT count(*) n FROM {name}.sql.{kind} VERSION AS OF 1")
        assert rows_of(old) == [(300,)]


def streamed(lake: Lake, folder: Path) -> None:
    """One stream by name, one by format; and a view. Without a JVM here, statements join no transaction."""
    name, spark = lake.as_catalog("by_stream"), lake.spark
    source = lake.create_table("streams.source", "id bigint, v string")
    targets = [lake.create_table(f"streams.{kind}", "id bigint, v string") for kind in ("named", "formatted")]
    table = f"{name}.{source.name}"
    rows = (spark.readStream.table(table), spark.readStream.format("laketx").load(table))
    spark.sql(f"CREATE VIEW {name}.streams.counted AS SELECT count(*) AS n FROM {name}.streams.formatted")
    for number in range(2):  # the second run goes on from its checkpoint
        source.insert(frame(lake, "id bigint, v string", (number, "a")))
        for stream, target in zip(rows, targets, strict=True):
            writer = stream.writeStream.trigger(availableNow=True)
            query = writer.option("checkpointLocation", str(folder / target.name)).toTable(f"{name}.{target.name}")
            query.awaitTermination()
            assert rows_of(target.refresh().read()) == [(id_, "a") for id_ in range(number + 1)]
    assert rows_of(spark.table(f"{name}.streams.counted")) == [(2,)]
    if not is_classic(spark):
        with lake.transaction() as txn:
            refused(lambda: txn.sql("SELECT 1"), InputError, "NOT_OVER_CONNECT")


def compacted(lake: Lake, folder: Path) -> None:
    spark, schema = lake.spark, "id bigint, v string"
    tables = [lake.create_table("jobs.keyed", schema, primary_key=["id"], buckets=2)]
    tables.append(lake.create_table("jobs.plain", schema))
    for table in tables:
        for begin in (0, 500, 800):
            table.insert(spark.range(begin, begin + 500).selectExpr("id", f"'{begin}' v"))
        table.delete("id % 10 = 3")
        want = rows_of(table.read())
        assert len(want) == (1170 if table.meta.primary_key else 1350)
        for operation in ("minor", "major", "cluster"):
            table.compact(operation, sort_by=["v"] if operation == "cluster" else [])
            assert rows_of(table.read()) == want
        assert set(rows_of(table.read(version=1))) == {(number, "0") for number in range(500)}


# -- jobs --------------------------------------------------------------------------------------------------------------


def seen(lake: Lake, folder: Path) -> None:
    """Progress is counted for the thread that waits, and lines of the log have their facts."""
    heard = logging.getLogger("laketx.worker")
    listener = BufferingHandler(1_000)
    heard.addHandler(listener)
    heard.setLevel(logging.INFO)
    with counting(lake.spark) as count:
        other = threading.Thread(target=lambda: lake.spark.range(100).count())
        other.start()
        other.join()
        assert count() == (0, 0)
        lake.create_table("sales.slow", "id bigint").insert(lake.spark.range(0, 160_000, numPartitions=16))
        done, known = count()
    assert 0 < done <= known, "the last tasks may end unheard, not all sixteen"
    facts = [(one.table, one.version) for one in listener.buffer if "committed" in one.getMessage()]  # type: ignore[attr-defined]
    assert facts == [("sales.slow", 1)]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
