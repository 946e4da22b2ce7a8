"""How fast tables are written from Spark, beside Spark's own write of the same files. `make bench-write`.

Each group of rows is a function that takes the benchmark and what was made ready; GROUPS lists them, and the command
takes the names of those to run. Rows come from Parquet files, ratios are of one round: LakeTX and plain Spark take
turns. Peers run in processes of their own, one after the other, on the same rows.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from benchmarks.frame import Benchmark, scaled, scratch
from benchmarks.peers.environment import ensure_delta_spark, ensure_python, said
from benchmarks.spark_data import FILES, ROWS, SCHEMA, rows, session
from benchmarks.turns import interleaved, over
from benchmarks.words import NO_PEERS, chosen
from laketx import Lake, Table, connect
from worker.spark.catalog_jar import jar_setting

RUNS = 3
PARTITIONS = 3_000
ROWS_PARTED = 300_000
CONDITION = "amount < 10"  # true for 0.1 % of the rows, anywhere
Peers = Mapping[str, Mapping[str, list[float]]]


@dataclass
class Ready:
    """Rows in Parquet files, 1 % of their ids with other values, and a lake."""

    spark: SparkSession
    folder: Path
    lake: Lake
    source: DataFrame
    updates: DataFrame

    def __post_init__(self) -> None:
        self._numbers = count()

    def table(self, *, keyed: bool) -> Table:
        name = f"bench.t{next(self._numbers)}"
        return self.lake.create_table(
            name, SCHEMA, primary_key=["id"] if keyed else [], buckets=FILES if keyed else None
        )

    def plain(self, frame: DataFrame) -> None:
        """Spark's own write, with the codec that LakeTX takes."""
        target = self.folder / "plain"
        frame.write.option("compression", "zstd").parquet(str(target))
        shutil.rmtree(target)


def bucketed(frame: DataFrame) -> DataFrame:
    """A task a bucket, sorted: the quickest way to the files of a primary-key table that Spark has."""
    bucket = sf.pmod(sf.xxhash64("id"), sf.lit(FILES)).cast("int")
    return frame.repartitionById(FILES, bucket).sortWithinPartitions("id")


def find(spark: SparkSession, files: list[str]) -> object:
    return spark.read.schema(SCHEMA).parquet(*files).where(CONDITION).select("id").toArrow()


# -- groups ------------------------------------------------------------------------------------------------------------


def inserts(bench: Benchmark, ready: Ready, peers: Peers) -> None:
    """A table of its own for each run: all of them are empty."""
    for keyed in (False, True):
        wanted = bucketed(ready.source) if keyed else ready.source
        tables = [ready.table(keyed=keyed) for _ in range(RUNS + 1)]

        def insert(tables: list[Table] = tables) -> None:
            tables.pop().insert(ready.source)

        found = interleaved({"plain": partial(ready.plain, wanted), "LakeTX": insert}, runs=RUNS, warm_ups=1)
        what = f"{FILES} buckets, sorted by key" if keyed else "an append table"
        bench.add(f"insert {scaled(ROWS)} rows into {what}", found["LakeTX"], unit="s", peers=medians(peers, "insert"))
        bench.add(
            f"the same over Spark's write of the same files ({'buckets' if keyed else 'append'})",
            over(found["LakeTX"], found["plain"]),
            unit="times",
            at_most=1.1,
            peers={} if keyed else plain_ratio(peers, "insert", "plain"),
            note="zstd on both sides; Delta on Spark over plain Spark in its own session",
        )


def upserts(bench: Benchmark, ready: Ready, peers: Peers) -> None:
    """Into a table that has the rows; rewriting it is Spark's write of the same bucketed files, nothing merged."""
    table = ready.table(keyed=True)
    table.insert(ready.source)
    ways: dict[str, Callable[[], object]] = {
        "rewrite": partial(ready.plain, bucketed(ready.source)),
        "upsert": partial(table.insert, ready.updates),
    }
    found = interleaved(ways, runs=RUNS, warm_ups=1)
    bench.add("upsert 1 % of the rows by key", found["upsert"], unit="s", peers=medians(peers, "merge"))
    bench.add("the same over rewriting the table", over(found["upsert"], found["rewrite"]), unit="times", at_most=0.15)
    for peer, seconds in medians(peers, "merge").items():
        target = 3 if peer == "Delta on Spark" else None
        bench.add(
            f"times faster than MERGE by {peer}",
            [seconds / one for one in found["upsert"]],
            unit="times faster",
            at_least=target,
        )
    merging = table.merge(ready.updates, on="id").when_matched_update().when_not_matched_insert()
    merged = again(table, 1, {"merge": merging.execute})["merge"]
    bench.add("MERGE of the same rows", merged, unit="s", peers=medians(peers, "merge"))


def deletes(bench: Benchmark, ready: Ready, peers: Peers) -> None:
    """The scan is plain Spark's: it collects the ids of the rows that hold the condition, from the same files."""
    for keyed in (False, True):
        table = ready.table(keyed=keyed)
        version = table.insert(ready.source).version
        files = [str(path) for path in Path(table.folder).rglob("part-*.parquet")]
        ways: dict[str, Callable[[], object]] = {
            "scan": partial(find, ready.spark, files),
            "delete": partial(table.delete, CONDITION),
        }
        found = again(table, version, ways)
        kind = "a primary-key table" if keyed else "an append table"
        bench.add(f"delete 0.1 % of {kind} by a condition", found["delete"], unit="s", peers=medians(peers, "delete"))
        bench.add(
            f"the same over the scan that finds them ({'primary key' if keyed else 'append'})",
            over(found["delete"], found["scan"]),
            unit="times",
            at_most=1.5,
            peers=plain_ratio(peers, "delete", "scan"),
        )


def partitions(bench: Benchmark, ready: Ready, _: Peers) -> None:
    """Many partitions in one insert; Spark's own write of them is `partitionBy`."""
    count = scaled(PARTITIONS)
    parted = rows(ready.spark, scaled(ROWS_PARTED), files=2).selectExpr("*", f"cast(pmod(id, {count}) as int) as part")
    source = parted.cache()
    source.count()
    target = ready.folder / "plain-parted"

    def plain() -> None:
        source.write.option("compression", "zstd").partitionBy("part").parquet(str(target))
        shutil.rmtree(target)

    for keyed in (False, True):
        names = [f"bench.parted_{'key' if keyed else 'append'}_{number}" for number in range(RUNS + 1)]
        tables = [
            ready.lake.create_table(
                name,
                f"{SCHEMA}, part int",
                partition_by=["part"],
                primary_key=["part", "id"] if keyed else [],
                buckets=1 if keyed else None,
            )
            for name in names
        ]
        insert = partial(lambda left: left.pop().insert(source), tables)
        found = interleaved({"plain": plain, "LakeTX": insert}, runs=RUNS, warm_ups=1)
        kind = "a primary-key table" if keyed else "an append table"
        bench.add(f"insert into {count:,} partitions of {kind}", found["LakeTX"], unit="s")
        bench.add(
            f"the same over Spark's write of the same partitions ({'primary key' if keyed else 'append'})",
            over(found["LakeTX"], found["plain"]),
            unit="times",
            at_most=3,
        )
    source.unpersist()


GROUPS: Mapping[str, Callable[[Benchmark, Ready, Peers], None]] = {
    "inserts": inserts,
    "upserts": upserts,
    "deletes": deletes,
    "partitions": partitions,
}


# -- around them -------------------------------------------------------------------------------------------------------


def again(table: Table, version: int, ways: Mapping[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Seconds of each way and run; before each the table is brought back to the version."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for run in range(-2, 2 * RUNS):
        for name, work in ways.items():
            table.restore(version=version)
            start = time.perf_counter()
            work()
            if run >= 0:
                found[name].append(time.perf_counter() - start)
    return found


def medians(peers: Peers, work: str) -> dict[str, float]:
    return {peer: statistics.median(found[work]) for peer, found in peers.items()}


def plain_ratio(peers: Peers, work: str, base: str) -> dict[str, float]:
    """What a peer takes over plain Spark in its own session."""
    return {
        peer: statistics.median(found[work]) / statistics.median(found[base])
        for peer, found in peers.items()
        if base in found
    }


def measure_peers(folder: Path) -> Peers:
    delta_spark = [str(ensure_delta_spark()), "-m", "benchmarks.peers.write_delta_spark"]
    delta_rs = [str(ensure_python()), "-W", "ignore", "-m", "benchmarks.peers.write_delta_rs"]
    on_spark = said(
        [*delta_spark, str(folder), str(scaled(ROWS)), str(RUNS)]
    )  # it leaves the rows that the other takes
    return {"Delta on Spark": on_spark, "delta-rs": said([*delta_rs, str(folder), str(RUNS)])}


@contextmanager
def made_ready(folder: Path) -> Iterator[Ready]:
    spark = session(**jar_setting())
    try:
        rows(spark, scaled(ROWS)).write.parquet(str(folder / "source"))
        rows(spark, scaled(ROWS // 100), step=100, edition=1).write.parquet(str(folder / "changed"))
        source, updates = (spark.read.parquet(str(folder / name)) for name in ("source", "changed"))
        with connect(folder / "lake", spark) as lake:
            yield Ready(spark, folder, lake, source, updates)
    finally:
        spark.stop()


def main() -> int:
    words = chosen(__doc__, [*GROUPS, NO_PEERS])
    bench = Benchmark("write", "Writes: LakeTX beside Spark and Delta", ["pyspark", "pyarrow"])
    with scratch() as folder:
        (folder / "peers").mkdir()
        peers = {} if NO_PEERS in words else measure_peers(folder / "peers")
        shutil.rmtree(folder / "peers")
        with made_ready(folder) as ready:
            for name, group in GROUPS.items():
                if name in words or not set(words) & set(GROUPS):
                    group(bench, ready, peers)
    return 0 if bench.finish() else 1


if __name__ == "__main__":
    sys.exit(main())
