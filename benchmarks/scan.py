"""How fast Spark reads tables, beside plain Parquet and Delta on the same rows. `make bench-scan`.

Plain is Spark reading the very files of the table, without their deltas, in the same session; ratios are within a run.
Each group of rows is a function that takes the benchmark and an empty lake; ROWS="clean keyed" runs those alone.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from benchmarks.figures import figure_text
from benchmarks.frame import ROOT, Benchmark, scaled, scratch
from benchmarks.peers.environment import ensure_delta_spark
from benchmarks.spark_data import COLUMNS, FILES, ROWS, RUNS, SCHEMA, aggregation, all_columns, session
from benchmarks.spark_data import rows as rows_of
from benchmarks.turns import interleaved, over
from benchmarks.words import chosen
from laketx import Lake, Table, connect
from metaservice.client import uuid7
from protos.laketx.v1 import common_pb2
from worker.spark.catalog_jar import jar_setting

DELTAS = 10
HUNDREDTH = "pmod(xxhash64(id, {}), 100) = 0"
SMALL_FILES = 10_000
COMMITS = 1_000
COMMITS_FEW = 10
PAIRS = 11  # two seconds each, and the JVM's compiler still at work in the first ones
WAYS: dict[str, Callable[[DataFrame], None]] = {"aggregation": aggregation, "all columns": all_columns}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# -- tables ------------------------------------------------------------------------------------------------------------


def append_table(lake: Lake, name: str) -> Table:
    table = lake.create_table(f"bench.{name}", SCHEMA)
    table.insert(rows_of(lake.spark, scaled(ROWS)))
    return table


def keyed_table(lake: Lake, name: str, keys: Sequence[str], deltas: int) -> Table:
    """In 16 buckets, with upserts of a hundredth of the rows each."""
    table = lake.create_table(f"bench.{name}", SCHEMA, primary_key=keys, buckets=FILES)
    base = rows_of(lake.spark, scaled(ROWS))
    table.insert(base)
    for number in range(deltas):
        say(f"{name}: upsert {number + 1} of {deltas}")
        changed = base.where(HUNDREDTH.format(number)).withColumn("amount", base["amount"] + number + 1)
        table.insert(changed.select(*COLUMNS))
    return table


def plain_of(table: Table) -> Callable[[], DataFrame]:
    """Plain Spark on the files of the table's first commit."""
    entries = list(table.lake.client.list_files(table.table_id))
    first = min(one.data_version for one in entries)
    files = [one.file for one in entries if one.data_version == first and one.HasField("file")]
    paths = [f"{table.folder}/{one.path}" for one in files]
    return lambda: table.lake.spark.read.schema(SCHEMA).parquet(*paths)


def using(read: Callable[[], DataFrame], use: Callable[[DataFrame], None]) -> Callable[[], None]:
    return lambda: use(read())


def ratios(
    bench: Benchmark,
    table: Table,
    what: str,
    targets: Sequence[float],
    peers: dict[str, list[float]],
    read: Callable[[], DataFrame] | None = None,
) -> None:
    """Each way of reading, over plain; peers by work: their own ratios. Without `read`, the table's own read."""
    plain, read = plain_of(table), read or table.read
    for (name, use), target in zip(WAYS.items(), targets, strict=False):
        times = interleaved({"plain": using(plain, use), "LakeTX": using(read, use)}, runs=PAIRS, warm_ups=3)
        found = over(times["LakeTX"], times["plain"])
        say(f"{what}, {name}: {figure_text(statistics.median(found))} times plain")
        seconds = figure_text(statistics.median(times["LakeTX"]))
        plain_seconds = figure_text(statistics.median(times["plain"]))
        peer = peers.get(f"{what}, {name}")
        bench.add(
            f"{what}: {name}",
            found,
            unit="times plain",
            at_most=target,
            peers={"Delta on Spark": statistics.median(peer)} if peer else None,
            note=f"{seconds} s, plain {plain_seconds} s, planning included",
        )
        if peer:
            bench.add(f"{what}, {name}: over Delta's", over(found, peer), unit="times Delta", at_most=1.0)


# -- groups ------------------------------------------------------------------------------------------------------------


def clean(bench: Benchmark, lake: Lake, _peers: dict[str, list[float]]) -> None:
    ratios(bench, append_table(lake, "clean"), "clean append table", (1.05, 1.05), {})


def deleted(bench: Benchmark, lake: Lake, peers: dict[str, list[float]]) -> None:
    table = append_table(lake, "deleted")
    table.delete(HUNDREDTH.format(0))
    ratios(bench, table, "append table, 1 % deleted", (1.6, 1.2), peers)


def one_delta(bench: Benchmark, lake: Lake, peers: dict[str, list[float]]) -> None:
    ratios(bench, keyed_table(lake, "one", ["id"], 1), "keyed, one delta", (2.0, 1.25), peers)


def ten_deltas(bench: Benchmark, lake: Lake, peers: dict[str, list[float]]) -> None:
    ratios(bench, keyed_table(lake, "ten", ["id"], DELTAS), "keyed, ten deltas", (2.2, 2.0), peers)


def composite(bench: Benchmark, lake: Lake, _peers: dict[str, list[float]]) -> None:
    table = keyed_table(lake, "composite", ["cust", "pad"], DELTAS)
    ratios(bench, table, "keyed by two strings, ten deltas", (3.0, 3.0), {})


def ranges(bench: Benchmark, lake: Lake, _peers: dict[str, list[float]]) -> None:
    """The bytes that Spark opens, over those of the files that hold a row that matches."""
    table = append_table(lake, "sorted")
    count = scaled(ROWS)
    conditions = {
        "point": f"id = {count // 3}",
        "range of 1 %": f"id >= {count // 2} and id < {count // 2 + count // 100}",
    }
    for name, where in conditions.items():
        found = table.read(where=where)
        matching = found.select(found.metadataColumn("_metadata").getField("file_path").alias("path")).distinct()
        needed = sum(size_of(row.path) for row in matching.collect())
        opened = sum(size_of(path) for path in found.inputFiles())
        bench.add(f"{name} of a sorted column: bytes read over needed", [opened / needed], unit="times", at_most=1.2)


def size_of(path: str) -> int:
    return Path(path.removeprefix("file:").replace("///", "/")).stat().st_size


def increments(bench: Benchmark, lake: Lake, _peers: dict[str, list[float]]) -> None:
    few, many = (copied_table(lake, f"commits{count}", count) for count in (COMMITS_FEW, COMMITS))
    for mode in ("log", "latest"):
        times = interleaved(
            {"many": partial(last_change, many, mode), "few": partial(last_change, few, mode)}, runs=RUNS
        )
        what = f"last of {COMMITS} commits as {mode}, over the last of {COMMITS_FEW}"
        bench.add(what, over(times["many"], times["few"]), unit="times", at_most=1.5)


def last_change(table: Table, mode: str) -> None:
    head = table.refresh().meta.head_version
    table.changes(since=head - 1, until=head, mode=mode).collect()


def copied_table(lake: Lake, name: str, commits: int) -> Table:
    """Commits of a file each: one that Spark wrote, linked again and again."""
    table = lake.create_table(f"bench.{name}", SCHEMA)
    table.insert(rows_of(lake.spark, 100, files=1))
    for number in range(1, commits):
        append_copies(table, 1, number)
    return table.refresh()


def append_copies(table: Table, count: int, number: int = 0, partition: int = 0) -> None:
    """So many copies of a file of the table's partition that comes first, second, …, in one commit."""
    client, txn_id = table.lake.client, uuid7()
    firsts: dict[bytes, common_pb2.DataFile] = {}
    for one in client.list_files(table.table_id):
        firsts.setdefault(one.file.partition.SerializeToString(deterministic=True), one.file)
    first = firsts[sorted(firsts)[partition]]
    folder = Path(table.folder) / txn_id
    folder.mkdir()
    files = []
    for at in range(count):
        path = folder / f"{number}-{at}.parquet"
        if at == 0:
            shutil.copyfile(f"{table.folder}/{first.path}", path)  # a file system bounds the links to one file
        else:
            os.link(folder / f"{number}-0.parquet", path)
        file = common_pb2.DataFile(path=f"{txn_id}/{number}-{at}.parquet", rows=first.rows, bytes=first.bytes)
        file.partition.CopyFrom(first.partition)
        file.schema_version = first.schema_version
        files.append(file)
    client.append(table.table_id, files, txn_id=txn_id)


def planning(bench: Benchmark, lake: Lake, _peers: dict[str, list[float]]) -> None:
    """Until the first rows are there, which is later than the first task."""
    table = lake.create_table("bench.many", SCHEMA)
    table.insert(rows_of(lake.spark, 10, files=1))
    append_copies(table, scaled(SMALL_FILES))
    times = interleaved({"read": lambda: table.read().take(1)}, runs=RUNS)
    bench.add(f"read of {scaled(SMALL_FILES)} files: first row", times["read"], unit="s", at_most=2.5)


Group = Callable[[Benchmark, Lake, dict[str, list[float]]], None]
GROUPS: dict[str, Group] = {
    "clean": clean,
    "deleted": deleted,
    "one": one_delta,
    "ten": ten_deltas,
    "composite": composite,
    "ranges": ranges,
    "increments": increments,
    "planning": planning,
}
PEERS = "peers"


def peer_ratios(folder: Path, groups: Sequence[str]) -> dict[str, list[float]]:
    """What Delta on Spark takes over plain Spark in its own session, by work."""
    command = [str(ensure_delta_spark()), "-m", "benchmarks.peers.scan_delta_spark"]
    command += [str(folder), str(scaled(ROWS)), str(PAIRS), *groups]
    said = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


def main() -> int:
    asked = chosen(__doc__, [PEERS, *GROUPS], [*sys.argv[1:], *os.environ.get("ROWS", "").split()]) or [PEERS, *GROUPS]
    bench = Benchmark("scan", "Reads with Spark: LakeTX beside plain Parquet", ["pyspark", "pyarrow", "polars"])
    with scratch() as folder:
        by_peers = [name for name in ("deleted", "one", "ten") if name in asked]
        peers = peer_ratios(folder / "peers", by_peers) if PEERS in asked and by_peers else {}
        spark = session(**jar_setting(), **{"spark.local.dir": str(folder / "spark")})
        for name in [one for one in GROUPS if one in asked]:
            say(f"{name} …")
            with connect(folder / name, spark) as lake:
                GROUPS[name](bench, lake, peers)
        spark.stop()
    return 0 if bench.finish() else 1


if __name__ == "__main__":
    sys.exit(main())
