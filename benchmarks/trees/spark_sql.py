"""Rows of `make bench-turns` that are statements of Spark SQL, and writes of DataFrames."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.spark_data import COLUMNS, SCHEMA, SETTINGS, aggregation, all_columns, rows
from benchmarks.trees.work import UNCOMPACTED, Place, Row, Work, repeated, restoring
from laketx import Table

ROWS_READ = 400_000
FILES = 8
DELTAS = 10
SMALL_UPSERT = 1_000
MANY_FILES = 2_000
COMMITS = 5  # of a unit of a stream
WARM_UPS = 5  # the compiler of the JVM is at work in the first ones
HUNDREDTH = "pmod(xxhash64(id, {}), 100) = 0"
FEW_ROWS = "amount < 10"  # true for 0.1 % of the rows, anywhere
LASTING_COMPILERS = "-XX:-UseDynamicNumberOfCompilerThreads"  # so that their time can be told from the rest
JARS = ("worker.spark.catalog_jar", "worker.base.spark_jar")  # a tree has one of them


def jar_setting() -> dict[str, str]:
    for name in JARS:
        if importlib.util.find_spec(name.rpartition(".")[0]) and importlib.util.find_spec(name):
            setting: dict[str, str] = importlib.import_module(name).jar_setting()
            return setting
    raise ModuleNotFoundError(" or ".join(JARS))


def session(folder: Path) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable  # of Spark's Python workers
    builder = SparkSession.builder.master("local[2]")
    settings = {
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": LASTING_COMPILERS,
        "spark.local.dir": str(folder / "spark"),
        **jar_setting(),
    }
    settings["spark.sql.warehouse.dir"] = str(folder / "spark-warehouse")
    for name, value in {**SETTINGS, **settings}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def name_of(place: Place, table: Table) -> str:
    return f"{place.lake.as_catalog('lake')}.{table.name}"


def run(place: Place, statement: str) -> None:
    place.lake.spark.sql(statement).collect()


def source(place: Place, files: int = FILES) -> DataFrame:
    return rows(place.lake.spark, ROWS_READ, files=files)


def view(place: Place, name: str, frame: DataFrame) -> None:
    """Rows that come from files, not from what makes them."""
    path = str(place.folder / "views" / name)
    if not Path(path).exists():
        frame.write.parquet(path)
    place.lake.spark.read.parquet(path).createOrReplaceTempView(name)


def append_table(place: Place, name: str) -> Table:
    table = place.lake.create_table(f"bench.{name}", SCHEMA, properties=UNCOMPACTED)
    table.insert(source(place))
    return table


def keyed_table(place: Place, name: str, keys: Sequence[str] = ("id",), deltas: int = 0) -> Table:
    table = place.lake.create_table(
        f"bench.{name}", SCHEMA, primary_key=list(keys), buckets=FILES, properties=UNCOMPACTED
    )
    base = source(place)
    table.insert(base)
    for number in range(deltas):
        changed = base.where(HUNDREDTH.format(number)).withColumn("amount", base["amount"] + number + 1)
        table.insert(changed.select(*COLUMNS))
    return table


def reading(place: Place, table: Table, use: Callable[[DataFrame], None] = aggregation) -> Callable[[], None]:
    statement = f"SELECT * FROM {name_of(place, table)}"
    return lambda: use(place.lake.spark.sql(statement))


# -- reads -------------------------------------------------------------------------------------------------------------


def clean(place: Place) -> Work:
    return Work(reading(place, append_table(place, "clean"), all_columns))


def deleted(place: Place) -> Work:
    table = append_table(place, "deleted")
    run(place, f"DELETE FROM {name_of(place, table)} WHERE {HUNDREDTH.format(0)}")
    return Work(repeated(2, reading(place, table)))


def keyed(place: Place, *, deltas: int, keys: Sequence[str] = ("id",)) -> Work:
    return Work(repeated(2, reading(place, keyed_table(place, f"keyed_{len(keys)}_{deltas}", keys, deltas))))


def first_query(place: Place) -> Work:
    """The first one after an upsert, which has to find the hidden rows of each bucket."""
    table = keyed_table(place, "anew", deltas=DELTAS)
    version = table.refresh().meta.head_version
    few = rows(place.lake.spark, SMALL_UPSERT, step=ROWS_READ // SMALL_UPSERT, files=1, edition=7)

    def before() -> None:
        table.restore(version=version)
        table.insert(few)

    return Work(reading(place, table), before)


def join(place: Place) -> Work:
    orders = append_table(place, "orders")
    run(place, f"DELETE FROM {name_of(place, orders)} WHERE {HUNDREDTH.format(0)}")
    people = place.lake.spark.range(100_000).selectExpr(
        "concat('cust-', lpad(cast(id as string), 6, '0')) as cust", "id % 25 as region"
    )
    table = place.lake.create_table("bench.people", people.schema, properties=UNCOMPACTED)
    table.insert(people)
    statement = (
        f"SELECT region, day, sum(amount) AS total FROM {name_of(place, orders)} JOIN {name_of(place, table)} "
        "USING (cust) WHERE region < 20 GROUP BY region, day"
    )
    return Work(partial(run, place, statement))


def planning(place: Place) -> Work:
    """A partition of ten rows, out of many others."""
    table = place.lake.create_table(
        "bench.parted", "id bigint, part int", partition_by=["part"], properties=UNCOMPACTED
    )
    parted = place.lake.spark.range(0, MANY_FILES, 1, 1).selectExpr("id", "cast(id AS int) AS part")
    table.insert(parted)
    statement = f"SELECT count(*) FROM {name_of(place, table)} WHERE part = 7"
    return Work(repeated(4, partial(run, place, statement)))


def small_table(place: Place, name: str) -> str:
    table = place.lake.create_table(f"bench.{name}", "id bigint, amount double", properties=UNCOMPACTED)
    run(place, f"INSERT INTO {name_of(place, table)} VALUES (1, 1.5D)")
    return name_of(place, table)


def small(place: Place, name: str, statement: str, times: int = 4) -> Work:
    text = statement.format(table=small_table(place, f"small_{name}"))
    return Work(repeated(times, partial(run, place, text)))


# -- writes ------------------------------------------------------------------------------------------------------------


def insert(place: Place, *, buckets: int | None) -> Work:
    """Each into a table of its own."""
    view(place, "source", source(place))
    numbers = count()
    names: list[str] = []

    def before() -> None:
        table = place.lake.create_table(
            f"bench.inserted_{buckets or 0}_{next(numbers)}",
            SCHEMA,
            primary_key=["id"] if buckets else [],
            buckets=buckets,
            properties=UNCOMPACTED,
        )
        names.append(name_of(place, table))

    return Work(lambda: run(place, f"INSERT INTO {names.pop()} SELECT * FROM source"), before)


def changing(place: Place, name: str, statement: str, times: int = 1) -> Work:
    view(place, "updates", rows(place.lake.spark, ROWS_READ // 100, step=100, files=1, edition=1))
    table = keyed_table(place, name)
    text = statement.format(table=name_of(place, table))
    return restoring(table, repeated(times, partial(run, place, text)))


def deleting(place: Place) -> Work:
    table = append_table(place, "shrunk")
    return restoring(table, partial(run, place, f"DELETE FROM {name_of(place, table)} WHERE {FEW_ROWS}"))


def insert_frame(place: Place) -> Work:
    """`table.insert` of a DataFrame, which upserts."""
    table = keyed_table(place, "frame")
    view(place, "updates", rows(place.lake.spark, ROWS_READ // 100, step=100, files=1, edition=1))
    return restoring(table, lambda: table.insert(place.lake.spark.table("updates")))


def stream(place: Place) -> Work:
    """Commits one after the other, until a batch with their last row was read."""
    table = place.lake.create_table("bench.streamed", "id bigint", properties=UNCOMPACTED)
    table.append([{"id": 0}])
    seen, numbers = [-1], count(1)

    def keep(batch: DataFrame, _: int) -> None:
        seen[0] = max(seen[0], batch.selectExpr("max(id) AS id").collect()[0].id or 0)

    checkpoint = place.folder / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    source = place.lake.spark.readStream.table(name_of(place, table))
    source.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(keep).start()

    def unit() -> None:
        for _ in range(COMMITS):
            number = next(numbers)
            table.append([{"id": number}])
            while seen[0] < number:
                time.sleep(0.005)

    return Work(unit)


MERGE = """
    MERGE INTO {table} t USING updates s ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"""
MERGE_SOME = """
    MERGE INTO {table} t USING updates s ON t.id = s.id
    WHEN MATCHED AND t.amount < 5000 THEN UPDATE SET amount = s.amount + t.amount
    WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"""
MAKES: dict[str, tuple[str, Callable[[Place], Work]]] = {
    "clean": ("SELECT of all columns, clean table", clean),
    "deleted": ("2 aggregations, 1 % deleted", deleted),
    "one": ("2 aggregations by key, one delta", partial(keyed, deltas=1)),
    "ten": (f"2 aggregations by key, {DELTAS} deltas", partial(keyed, deltas=DELTAS)),
    "strings": (
        f"2 aggregations, two strings as key, {DELTAS} deltas",
        partial(keyed, deltas=DELTAS, keys=("cust", "pad")),
    ),
    "first": (f"first aggregation after an upsert, {DELTAS} deltas", first_query),
    "join": ("join of two tables, 1 % deleted of the larger", join),
    "planning": (f"4 SELECTs of one of {MANY_FILES:,} partitions", planning),
    "small": (
        "4 SELECTs of a table of one row",
        partial(small, name="read", statement="SELECT count(*) FROM {table} WHERE id = 0"),
    ),
    "version": (
        "4 SELECTs at a version, of one row",
        partial(small, name="travel", statement="SELECT * FROM {table} VERSION AS OF 1"),
    ),
    "values": (
        "4 INSERTs of one row",
        partial(small, name="values", statement="INSERT INTO {table} VALUES (1, 1.5D)"),
    ),
    "replace": (
        "2 times CREATE OR REPLACE TABLE AS SELECT",
        partial(small, name="made", statement="CREATE OR REPLACE TABLE {table}_copy AS SELECT 1 AS id", times=2),
    ),
    "insert": (f"INSERT of {ROWS_READ:,} rows", partial(insert, buckets=None)),
    "insert-buckets": (f"INSERT of {ROWS_READ:,} rows into {FILES} buckets", partial(insert, buckets=FILES)),
    "merge": ("MERGE of 1 % by key", partial(changing, name="merged", statement=MERGE)),
    "merge-some": (
        "MERGE of 1 % by key, with conditions",
        partial(changing, name="merged_some", statement=MERGE_SOME),
    ),
    "update": (
        "UPDATE of 0.1 %",
        partial(changing, name="updated", statement="UPDATE {table} SET amount = amount + 1 WHERE " + FEW_ROWS),
    ),
    "delete": ("DELETE of 0.1 %", deleting),
    "delete-keyed": (
        "DELETE of 0.1 %, primary key",
        partial(changing, name="deleted_keyed", statement="DELETE FROM {table} WHERE " + FEW_ROWS),
    ),
    "frame": ("upsert of 1 % by table.insert", insert_frame),
    "stream": (f"stream: {COMMITS} commits, each until it was read", stream),
}
ROWS = {name: Row(title, make, WARM_UPS) for name, (title, make) in MAKES.items()}
