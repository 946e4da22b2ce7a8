"""How fast Spark SQL reads and changes tables through the catalog, beside plain Parquet and Delta. `make bench-sql`.

Tables, rows and peers are those of `benchmarks/scan.py` and `benchmarks/write.py`. Each group of rows is a function;
names on the command line choose among them, and `no-peers` leaves Delta out. Ratios are within a run.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.frame import Benchmark, scaled, scratch
from benchmarks.peers.environment import ensure_delta_spark, said
from benchmarks.scan import DELTAS, HUNDREDTH, append_copies, append_table, keyed_table, plain_of, ratios, say, using
from benchmarks.scan import peer_ratios as scan_ratios
from benchmarks.spark_data import FILES, ROWS, SCHEMA, aggregation, rows, session
from benchmarks.turns import interleaved, over
from benchmarks.words import NO_PEERS, chosen
from benchmarks.write import bucketed
from laketx import Lake, Table, connect
from worker.services.deletion_vectors import VectorKeeper
from worker.spark.catalog_jar import NO_JAR, jar_setting

RUNS = 3
MANY_FILES = 100_000
FEW_FILES = 100
PARTITION_FILES = 10
CHUNK = 5_000  # files of one call
SMALL_RUNS = 30
SMALL_UPSERT = 1_000  # rows, in every bucket
COMMITS = 600
EVERY_S = 0.1
ROWS_A_COMMIT = 10
FEW_ROWS = "amount < 10"  # true for 0.1 % of the rows, anywhere
Times = Mapping[str, Sequence[float]]


@dataclass
class Ready:
    """A session that knows the lake as a catalog, and what Delta took for the same work."""

    bench: Benchmark
    spark: SparkSession
    folder: Path
    lake: Lake
    catalog: str
    scans: dict[str, list[float]] = field(default_factory=dict)
    writes: Times = field(default_factory=dict)

    def sql(self, statement: str) -> DataFrame:
        return self.spark.sql(statement)

    def run(self, statement: str) -> None:
        self.spark.sql(statement).collect()

    def reads(self, table: Table, what: str, targets: Sequence[float]) -> None:
        read = partial(self.sql, f"SELECT * FROM {self.catalog}.{table.name}")
        ratios(self.bench, table, what, targets, self.scans, read)


# -- reads -------------------------------------------------------------------------------------------------------------


def clean(ready: Ready) -> None:
    ready.reads(append_table(ready.lake, "clean"), "clean append table", (1.03, 1.03))


def deleted(ready: Ready) -> None:
    table = append_table(ready.lake, "deleted")
    table.delete(HUNDREDTH.format(0))
    ready.reads(table, "append table, 1 % deleted", (1.2, 1.1))


def one_delta(ready: Ready) -> None:
    keyed(ready, "one", ["id"], 1, "keyed, one delta", 1.3)


def ten_deltas(ready: Ready) -> None:
    keyed(ready, "ten", ["id"], DELTAS, "keyed, ten deltas", 1.5)


def composite(ready: Ready) -> None:
    keyed(ready, "composite", ["cust", "pad"], DELTAS, "keyed by two strings, ten deltas", 2.0)


def keyed(ready: Ready, name: str, keys: Sequence[str], deltas: int, what: str, target: float) -> None:
    """The same query again and again, and the first one after a small upsert: before a worker keeps the deletion
    vectors, and after that.
    """
    table = keyed_table(ready.lake, name, keys, deltas)
    ready.reads(table, what, (target,))
    first_queries(ready, table, what, None)
    first_queries(ready, table, what, VectorKeeper(ready.lake, now_s=lambda: 0.0))


def first_queries(ready: Ready, table: Table, what: str, keeper: VectorKeeper | None) -> None:
    plain, read = plain_of(table), partial(ready.sql, f"SELECT * FROM {ready.catalog}.{table.name}")
    few = rows(ready.spark, SMALL_UPSERT, files=1)
    found: dict[str, list[float]] = {"plain": [], "LakeTX": []}
    for number in range(-1, RUNS):
        table.insert(few.withColumn("amount", few["amount"] - number))
        if keeper is not None:
            keeper.run_once()
        seconds = interleaved(
            {"plain": using(plain, aggregation), "LakeTX": using(read, aggregation)}, runs=1, warm_ups=0
        )
        for way in found:
            found[way] += seconds[way] if number >= 0 else []
    ratio = over(found["LakeTX"], found["plain"])
    kept = "" if keeper is None else ", vectors kept"
    say(f"{what}, first query after an upsert{kept}: {statistics.median(ratio):.2f} times plain")
    ready.bench.add(
        f"{what}: first query after an upsert of {SMALL_UPSERT:,} rows{kept}",
        ratio,
        unit="times plain",
        note="some deltas more in each round",
    )


def join(ready: Ready) -> None:
    """Orders with 1 % of their rows deleted, their customers and the customers' regions."""
    lake, spark = ready.lake, ready.spark
    orders = append_table(lake, "orders")
    orders.delete(HUNDREDTH.format(0))
    people = spark.range(100_000).selectExpr(
        "concat('cust-', lpad(cast(id as string), 6, '0')) as cust", "id % 25 as region"
    )
    regions = spark.range(25).selectExpr("id as region", "concat('region ', id) as title")
    for name, frame in (("people", people), ("regions", regions)):
        lake.create_table(f"bench.{name}", frame.schema).insert(frame)
        frame.write.parquet(str(ready.folder / name))
        spark.read.parquet(str(ready.folder / name)).createOrReplaceTempView(f"plain_{name}")
    spark.read.parquet(
        *(f"file:{path}" for path in Path(orders.folder).rglob("part-*.parquet"))
    ).createOrReplaceTempView("plain_orders")
    query = """
        SELECT title, day, sum(amount) AS total, count(*) AS orders
        FROM {orders} JOIN {people} USING (cust) JOIN {regions} USING (region)
        WHERE region < 20 GROUP BY title, day"""
    ways = {
        "plain": query.format(orders="plain_orders", people="plain_people", regions="plain_regions"),
        "LakeTX": query.format(**{one: f"{ready.catalog}.bench.{one}" for one in ("orders", "people", "regions")}),
    }
    times = interleaved({name: partial(ready.run, text) for name, text in ways.items()}, runs=11, warm_ups=3)
    ready.bench.add(
        "three tables joined, 1 % deleted of the largest",
        over(times["LakeTX"], times["plain"]),
        unit="times plain",
        at_most=1.15,
    )


def planning(ready: Ready) -> None:
    """Until the rows of one partition are there, out of many files and out of few."""
    reads: dict[str, Callable[[], object]] = {}
    for count in (scaled(MANY_FILES), FEW_FILES):
        table = ready.lake.create_table(f"bench.files{count}", f"{SCHEMA}, part int", partition_by=["part"])
        source = rows(ready.spark, 10, files=1)
        for part in (1, 2):
            table.insert(source.selectExpr("*", f"{part} AS part"))
        append_copies(table, PARTITION_FILES, 1, partition=0)
        for number, left in enumerate(range(count - PARTITION_FILES, 0, -CHUNK)):
            append_copies(table, min(left, CHUNK), 2 + number, partition=1)
        reads[str(count)] = partial(
            ready.run, f"SELECT count(*), max(amount) FROM {ready.catalog}.bench.files{count} WHERE part = 1"
        )
    times = interleaved(reads, runs=11, warm_ups=3)
    many, few = times.values()
    ready.bench.add(
        f"a partition of {PARTITION_FILES} files of {scaled(MANY_FILES):,}, over one of {FEW_FILES}",
        over(many, few),
        unit="times",
        at_most=1.3,
    )


# -- writes ------------------------------------------------------------------------------------------------------------


def plain_write(ready: Ready, frame: DataFrame) -> None:
    target = ready.folder / "plain-write"
    frame.write.option("compression", "zstd").parquet(str(target))
    shutil.rmtree(target)


def source(ready: Ready) -> DataFrame:
    """The rows, and a hundredth of their ids with other values, as files and as views."""
    for name, frame in (
        ("source", rows(ready.spark, scaled(ROWS))),
        ("updates", rows(ready.spark, scaled(ROWS // 100), step=100, edition=1)),
    ):
        if not (ready.folder / name).exists():
            frame.write.parquet(str(ready.folder / name))
        ready.spark.read.parquet(str(ready.folder / name)).createOrReplaceTempView(name)
    return ready.spark.table("source")


def inserts(ready: Ready) -> None:
    """A table of its own for each run: all of them are empty."""
    frame = source(ready)
    for keyed, target in ((False, 1.1), (True, 1.15)):
        kind = f"{FILES} sorted buckets" if keyed else "an append table"
        names = [f"bench.insert_{'key' if keyed else 'append'}_{number}" for number in range(RUNS + 2)]
        for name in names:
            ready.lake.create_table(name, SCHEMA, primary_key=["id"] if keyed else [], buckets=FILES if keyed else None)

        def insert(names: list[str] = names) -> None:
            ready.run(f"INSERT INTO {ready.catalog}.{names.pop()} SELECT * FROM source")

        wanted = bucketed(frame) if keyed else frame
        found = interleaved({"plain": partial(plain_write, ready, wanted), "LakeTX": insert}, runs=RUNS, warm_ups=2)
        ready.bench.add(
            f"INSERT of {scaled(ROWS):,} rows into {kind}",
            over(found["LakeTX"], found["plain"]),
            unit="times Spark's write",
            at_most=target,
            note=f"{statistics.median(found['LakeTX']):.2f} s; zstd on both sides",
        )


def changes(ready: Ready) -> None:
    """Each statement on a keyed table that has the rows, beside Delta's."""
    source(ready)
    table = ready.lake.create_table("bench.changed", SCHEMA, primary_key=["id"], buckets=FILES)
    version = table.insert(ready.spark.table("source")).version
    name = f"{ready.catalog}.{table.name}"
    statements = {
        "merge": f"""
            MERGE INTO {name} t USING updates s ON t.id = s.id
            WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *""",
        "update": f"UPDATE {name} SET amount = amount + 1 WHERE {FEW_ROWS}",
        "delete": f"DELETE FROM {name} WHERE {FEW_ROWS}",
    }
    targets = {"merge": 10, "update": 3, "delete": 3}
    for work, statement in statements.items():
        found = []
        for run in range(-2, 2 * RUNS):
            table.restore(version=version)
            seconds = interleaved({work: partial(ready.run, statement)}, runs=1, warm_ups=0)[work]
            found += seconds if run >= 0 else []
        say(f"{work}: {statistics.median(found):.2f} s")
        what = "MERGE of 1 % of the rows by key" if work == "merge" else f"{work.upper()} of 0.1 % of the rows"
        ready.bench.add(what, found, unit="s")
        if work in ready.writes:
            theirs = statistics.median(ready.writes[work])
            ready.bench.add(
                f"{what}: times faster than Delta's",
                [theirs / one for one in found],
                unit="times faster",
                at_least=targets[work],
                note=f"Delta on Spark {theirs:.1f} s",
            )


def small(ready: Ready) -> None:
    """Statements of a few rows, on a table that the session knows: what they take is planning and calls."""
    table = ready.lake.create_table("bench.small", "id bigint, amount double")
    name = f"{ready.catalog}.{table.name}"
    statements = {
        "INSERT of one row": f"INSERT INTO {name} VALUES (1, 1.5D)",
        "SELECT": f"SELECT count(*) FROM {name} WHERE id = 0",
        "SELECT at a version": f"SELECT * FROM {name} VERSION AS OF 1",
        "CREATE OR REPLACE TABLE AS SELECT": f"CREATE OR REPLACE TABLE {name}_copy AS SELECT 1 AS id",
    }
    ready.run(statements["INSERT of one row"])  # version 1, whichever comes first
    works = {what: partial(ready.run, statement) for what, statement in statements.items()}
    for what, found in interleaved(works, runs=SMALL_RUNS, warm_ups=10).items():
        ready.bench.add(f"small {what}", [1_000 * one for one in found], unit="ms")


# -- streams -----------------------------------------------------------------------------------------------------------


def stream(ready: Ready) -> None:
    """From the answer to a commit until a batch with its rows was read, while ten commits come in a second."""
    table = ready.lake.create_table("bench.stream", SCHEMA)
    table.insert(rows(ready.spark, ROWS_A_COMMIT, files=1))
    committed: list[float] = []
    delivered: list[float] = []

    def keep(batch: DataFrame, _: int) -> None:
        read = batch.selectExpr("count(id) AS rows", "max(amount)").collect()[0].rows
        delivered.extend([time.time()] * (read // ROWS_A_COMMIT))

    source = ready.spark.readStream.table(f"{ready.catalog}.{table.name}")
    query = source.writeStream.option("checkpointLocation", str(ready.folder / "checkpoint")).foreachBatch(keep).start()
    while not delivered and query.isActive:  # what the table is when the query begins
        time.sleep(EVERY_S)
    delivered.clear()
    begun = time.time()
    for number in range(1, scaled(COMMITS) + 1):
        append_copies(table, 1, number)
        committed.append(time.time())
        time.sleep(max(begun + number * EVERY_S - time.time(), 0))
    while len(delivered) < len(committed) and query.isActive:
        time.sleep(EVERY_S)
    query.stop()
    waits = sorted(there - then for then, there in zip(committed, delivered, strict=True))
    ready.bench.add("stream: commit to delivery, 10 commits/s", waits, unit="s", at_most=1.0)
    ready.bench.add("stream: 99 % of them", [waits[len(waits) * 99 // 100]], unit="s", note=f"{len(waits)} commits")


GROUPS: Mapping[str, Callable[[Ready], None]] = {
    "clean": clean,
    "deleted": deleted,
    "one": one_delta,
    "ten": ten_deltas,
    "composite": composite,
    "join": join,
    "planning": planning,
    "inserts": inserts,
    "changes": changes,
    "small": small,
    "stream": stream,
}


def main() -> int:
    words = chosen(__doc__, [*GROUPS, NO_PEERS])
    bench = Benchmark("sql", "Spark SQL: LakeTX beside plain Parquet and Delta", ["pyspark", "pyarrow"])
    names = [name for name in GROUPS if name in words or not set(words) & set(GROUPS)]
    jar = jar_setting()
    if not jar:
        sys.exit(NO_JAR)
    with scratch() as folder:
        by_peers = [name for name in ("deleted", "one", "ten") if name in names and NO_PEERS not in words]
        scans = scan_ratios(folder / "peers", by_peers) if by_peers else {}
        writes = delta_writes(folder / "delta") if "changes" in names and NO_PEERS not in words else {}
        spark = session(**{"spark.local.dir": str(folder / "spark"), **jar})
        for name in names:
            say(f"{name} …")
            (folder / name).mkdir()
            with connect(folder / name / "lake", spark) as lake:
                catalog = lake.as_catalog(f"lake_{name}")
                GROUPS[name](Ready(bench, spark, folder / name, lake, catalog, scans, writes))
        spark.stop()
    return 0 if bench.finish() else 1


def delta_writes(folder: Path) -> Times:
    folder.mkdir()
    command = [str(ensure_delta_spark()), "-m", "benchmarks.peers.write_delta_spark"]
    found: Times = said([*command, str(folder), str(scaled(ROWS)), str(RUNS)])
    shutil.rmtree(folder)
    return found


if __name__ == "__main__":
    sys.exit(main())
