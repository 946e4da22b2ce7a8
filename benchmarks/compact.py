"""How fast compactions are, as ratios to plain Spark reading and writing the same bytes. `make bench-compact`.

Each group of rows is a function; GROUPS lists them, and names on the command line choose among them.
"""

from __future__ import annotations

import json
import pickle
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from benchmarks.frame import ROOT, Benchmark, scaled, scratch
from benchmarks.peers.environment import ensure_delta_spark, ensure_python, ensure_spark_35, said
from benchmarks.spark_data import ROWS, SCHEMA, aggregation, all_columns, rows, session
from benchmarks.spark_data import RUNS as SCANS
from benchmarks.turns import interleaved, over
from benchmarks.words import chosen
from laketx import Lake, Table, connect
from metaservice.client import ConflictError, LakeTXError
from protos.laketx.v1 import common_pb2, maintenance_pb2
from worker.arrow.scan.plans import WrittenSchemas
from worker.services.compaction.chunks import Chunk, Settings
from worker.services.compaction.compaction import Options, input_files, staged
from worker.services.compaction.daemon import Daemon
from worker.services.compaction.groups import planned_groups
from worker.spark.catalog_jar import jar_setting

BUCKETS = 16
DELTAS = 10
SMALL_DELTAS = 100
SMALL_ROWS = 10_000
BUCKET_ROWS = 75_000_000  # about 2 GiB of Parquet
WORKER_MIB = 2_048
COMMITS = 1_000
COMMIT_ROWS = 1_000
INLINED_COMMITS = 600
INLINED_ROWS = 100
SETTLED_S = 90.0  # with no task for so long nothing more comes: compaction.settle.minutes is 1
SETTLED_S_MAX = 1_800.0
RUNS = 3
ROUNDS = 5
SOAKED = (
    ("append", "delta_write_serializable"),
    ("append", "row_level"),
    ("key", "row_level"),
    ("key", "maxcompute"),
)
MINOR, MAJOR = common_pb2.OPERATION_MINOR_COMPACT, common_pb2.OPERATION_MAJOR_COMPACT


def paths(table: Table) -> list[str]:
    listed = table.lake.client.list_files(table.table_id)
    return [f"{table.folder}/{entry.file.path}" for entry in listed if entry.HasField("file")]


def with_deltas(lake: Lake, count: int) -> Table:
    """A base in buckets, and upserts of every hundredth row, each time of others."""
    table = lake.create_table("bench.keyed", SCHEMA, primary_key=["id"], buckets=BUCKETS)
    table.overwrite(rows(lake.spark, count))
    for number in range(DELTAS):
        table.insert(rows(lake.spark, count // 100, start=number, step=100, files=2, edition=number + 1))
    return table


def plain_copy(lake: Lake, files: Sequence[str], folder: Path) -> Callable[[], None]:
    """Plain Spark reads the files and writes what is in them, by the same codec."""

    def copy() -> None:
        frame = lake.spark.read.schema(SCHEMA).parquet(*files)
        frame.write.mode("overwrite").option("compression", "zstd").parquet(str(folder))

    return copy


def compaction(table: Table, operation: common_pb2.Operation.ValueType, *, verify: bool) -> Callable[[], None]:
    """All but its commit, so that it can be measured again."""

    def compact() -> None:
        with staged(table.view, operation, options=Options(verify=verify)) as job:
            assert job.groups, "there is nothing to compact"

    return compact


def add_major_rows(bench: Benchmark) -> None:
    count = scaled(ROWS, 100_000)
    with scratch() as folder, connect(folder / "lake", session(**jar_setting())) as lake:
        table = with_deltas(lake, count)
        ours, copy = compaction(table, MAJOR, verify=True), plain_copy(lake, paths(table), folder / "plain")
        start = time.perf_counter()
        ours()
        first_s = time.perf_counter() - start
        ways = {"plain": copy, "alone": compaction(table, MAJOR, verify=False), "verified": ours}
        times = interleaved(ways, runs=RUNS, warm_ups=1)
        what = f"major compaction: {count:,} rows, {DELTAS} deltas of 1 %, {BUCKETS} buckets"
        ratio = "times plain"
        bench.add(f"{what}, no digests", over(times["alone"], times["plain"]), unit=ratio, at_most=0.8)
        bench.add(f"{what}, output read again", over(times["verified"], times["plain"]), unit=ratio, at_most=1.0)
        bench.add(f"{what}, first of its session", [first_s / min(times["plain"])], unit=ratio, at_most=1.8)
        add_scan_rows(bench, lake, table, folder)


def add_scan_rows(bench: Benchmark, lake: Lake, table: Table, folder: Path) -> None:
    """The same rows as plain Parquet, in as many files, spread and sorted alike."""
    table.compact("major")
    sorted_rows = table.read().repartition(BUCKETS, "id").sortWithinPartitions("id")
    sorted_rows.write.option("compression", "zstd").parquet(str(folder / "sorted"))
    read = table.read()

    def plain() -> DataFrame:
        return lake.spark.read.schema(SCHEMA).parquet(str(folder / "sorted"))

    for name, work in (("three columns", aggregation), ("all columns", all_columns)):
        ways = {"plain": lambda work=work: work(plain()), "LakeTX": lambda work=work: work(read)}
        times = interleaved(ways, runs=SCANS, warm_ups=2)
        ratios = over(times["LakeTX"], times["plain"])
        bench.add(f"scan after a major compaction, {name}", ratios, unit="times plain", at_most=1.02)


def add_minor_rows(bench: Benchmark) -> None:
    deltas = scaled(SMALL_DELTAS, 4)
    with scratch() as folder, connect(folder / "lake", session(**jar_setting())) as lake:
        table = lake.create_table("bench.small", SCHEMA, primary_key=["id"], buckets=2)
        table.overwrite(rows(lake.spark, SMALL_ROWS * 10, files=2))
        base = set(paths(table))
        for number in range(deltas):
            table.insert(rows(lake.spark, SMALL_ROWS, start=number * 977, files=1, edition=number + 1))
        files = [path for path in paths(table) if path not in base]
        for path in base:
            Path(path).unlink()  # whoever read a byte of it would fail
        ways = {
            "plain": plain_copy(lake, files, folder / "plain"),
            "LakeTX": compaction(table, MINOR, verify=True),
        }
        times = interleaved(ways, runs=RUNS, warm_ups=1)
        ratios = over(times["LakeTX"], times["plain"])
        work = f"minor compaction of {deltas} deltas of {SMALL_ROWS:,} rows, the base files deleted"
        bench.add(work, ratios, unit="times plain", at_most=2.0)


def add_inlined_rows(bench: Benchmark) -> None:
    """Many commits so small that the service has their rows; without Spark."""
    commits = scaled(INLINED_COMMITS, 20)
    with scratch() as folder, connect(folder / "lake") as lake:
        for kind, key in (("primary-key", ["id"]), ("append", [])):
            table = lake.create_table(
                f"bench.inlined_{kind.partition('-')[0]}",
                "id bigint, v string, n double",
                primary_key=key,
                properties={"compaction.enabled": "false"},
            )
            write = table.upsert if key else table.append
            for number in range(commits):
                ids = [(number * 7_919 + 104_729 * at) % 1_000_003 for at in range(INLINED_ROWS)]
                write(pa.table({"id": ids, "v": [f"{number}-{at}" for at in ids], "n": [float(number)] * len(ids)}))
            compact = compaction(table, MINOR, verify=True)
            times = interleaved({"LakeTX": compact}, runs=RUNS, warm_ups=1)["LakeTX"]
            what = f"minor of {commits:,} inlined commits of {INLINED_ROWS} rows, {kind} table"
            bench.add(what, times, unit="s", at_most=3.0)


def add_peer_rows(bench: Benchmark) -> None:
    """Many small files of an append table become few; and a user's deletes that cross that, both ways."""
    count, rounds = scaled(SMALL_DELTAS, 10), ROUNDS
    with scratch() as folder, connect(folder / "lake", session(**jar_setting())) as lake:
        frame = rows(lake.spark, count * SMALL_ROWS, files=count)
        frame.write.option("compression", "zstd").parquet(str(folder / "small"))
        small = sorted(str(path) for path in (folder / "small").glob("*.parquet"))
        table = lake.create_table("bench.many", SCHEMA, profile="row_level")
        for path in small:
            table.insert(lake.spark.read.parquet(path).coalesce(1))
        ways = {
            "plain": plain_copy(lake, paths(table), folder / "plain"),
            "LakeTX": compaction(table, MINOR, verify=True),
        }
        times = interleaved(ways, runs=RUNS, warm_ups=1)
        with staged(table.view, MINOR, options=Options()) as job:
            mib = sum(file.bytes for outcome in job.outcomes for file in outcome.files) / 2**20
        user, service = crossings(table, small, rounds)
        lake.spark.stop()
        peers = measure_peers(folder, rounds)
    what = f"{count} files of {SMALL_ROWS:,} rows become few"
    seconds = {name: statistics.median(found["seconds"]) for name, found in peers.items()}
    bench.add(what, times["LakeTX"], unit="s", peers=seconds, note="ours with digests; delta-rs without Spark")
    ratios = over(times["LakeTX"], times["plain"])
    of_plain = over(peers["Delta on Spark"]["seconds"], peers["Delta on Spark"]["plain"])
    bench.add(
        f"{what}, over plain Spark", ratios, unit="times plain", peers={"Delta on Spark": statistics.median(of_plain)}
    )
    bench.add(
        f"{what}: written", [mib], unit="MiB", peers={name: found["bytes"][0] / 2**20 for name, found in peers.items()}
    )
    refused = peers["delta-rs"]
    for who, ours, theirs in (("users", user, "user refused"), ("compactions", service, "optimize refused")):
        bench.add(
            f"{who} refused, of {rounds} that a {'compaction' if who == 'users' else 'delete of a row'} passed",
            [float(ours)],
            unit="refused",
            at_most=0,
            peers={"delta-rs": refused[theirs][0]},
        )


def add_keyed_peer_rows(bench: Benchmark) -> None:
    """A table with a key and ten deltas, beside Hudi and Paimon in Sparks of their own."""
    count = scaled(ROWS, 100_000)
    with scratch() as folder, connect(folder / "lake", session(**jar_setting())) as lake:
        table = with_deltas(lake, count)
        ways = {
            "plain": plain_copy(lake, paths(table), folder / "plain"),
            "LakeTX": compaction(table, MAJOR, verify=True),
        }
        times = interleaved(ways, runs=RUNS, warm_ups=1)
        with staged(table.view, MAJOR, options=Options()) as job:
            mib = sum(file.bytes for outcome in job.outcomes for file in outcome.files) / 2**20
        lake.spark.stop()
        peers = {}
        for name in ("hudi", "paimon"):
            command = [str(ensure_spark_35()), "-m", "benchmarks.peers.compact_keyed_spark", name, str(folder)]
            peers[name.capitalize()] = said([*command, *map(str, (count, BUCKETS, DELTAS, RUNS))])
    what = f"{count:,} rows with a key and {DELTAS} deltas of 1 % become base files"
    seconds = {name: statistics.median(found["seconds"]) for name, found in peers.items()}
    bench.add(what, times["LakeTX"], unit="s", peers=seconds, note="ours with digests, without its commit")
    of_plain = {name: statistics.median(over(found["seconds"], found["plain"])) for name, found in peers.items()}
    bench.add(f"{what}, over plain Spark", over(times["LakeTX"], times["plain"]), unit="times plain", peers=of_plain)
    written = {name: found["bytes"][0] / 2**20 for name, found in peers.items()}
    bench.add(f"{what}: written", [mib], unit="MiB", peers=written)


def crossings(table: Table, small: Sequence[str], rounds: int) -> tuple[int, int]:
    """Refused of as many deletes of a row, and of as many compactions, that began before the other ended."""
    user = service = 0
    lake, spark = table.lake, table.lake.spark
    assert isinstance(lake, Lake)
    for number in range(rounds):
        for place in (number, number + 1):
            table.insert(spark.read.parquet(small[place]).coalesce(1))
        try:
            with lake.transaction() as txn:
                txn.table(table.name).delete(f"id = {number}")
                assert table.compact("minor") is not None
        except ConflictError:
            user += 1
        table.insert(spark.read.parquet(small[number]).coalesce(1))
        with staged(table.view, MINOR, options=Options()) as job:
            assert job.groups, "there is nothing to compact"
            table.delete(f"id = {rounds + number}")
            try:
                job.commit()
            except ConflictError:
                service += 1
    return user, service


def measure_peers(folder: Path, rounds: int) -> dict[str, dict[str, list[float]]]:
    on_spark = [str(ensure_delta_spark()), "-m", "benchmarks.peers.compact_delta_spark", str(folder), str(RUNS)]
    delta_rs = [str(ensure_python()), "-W", "ignore", "-m", "benchmarks.peers.compact_delta_rs", str(folder), str(RUNS)]
    return {"Delta on Spark": said(on_spark), "delta-rs": said([*delta_rs, str(rounds)])}


ALONE = """
import json, pickle, resource, sys, time
from worker.services.compaction.chunks import run_chunk
settings, chunk = pickle.load(open(sys.argv[1], "rb"))
start = time.perf_counter()
result = run_chunk(settings, chunk)
print(json.dumps([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, time.perf_counter() - start,
                  result.output.rows, result.input == result.output]))
"""


def add_large_bucket_rows(bench: Benchmark) -> None:
    """The task of one bucket in a process of its own, whose memory can be told."""
    count = scaled(BUCKET_ROWS, 100_000)
    with scratch() as folder, connect(folder / "lake", session(**jar_setting())) as lake:
        table = lake.create_table("bench.large", SCHEMA, primary_key=["id"], buckets=1)
        table.overwrite(rows(lake.spark, count))
        table.insert(rows(lake.spark, count // 100, step=100, files=2, edition=1))
        _, (group,) = planned_groups(table.view, MAJOR, (), maintenance_pb2.TaskOptions())
        settings = Settings(
            table.meta.SerializeToString(),
            table.folder,
            is_major=True,
            is_base=True,
            verify=True,
            file_bytes_target=128 << 20,
        )
        work = folder / "work.pickle"
        work.write_bytes(
            pickle.dumps(
                (settings, Chunk(0, "out/0", tuple(input_files(table.view, WrittenSchemas(table.view), group))))
            )
        )
        lake.spark.stop()
        done = subprocess.run(
            [sys.executable, "-c", ALONE, str(work)], cwd=ROOT, check=True, capture_output=True, text=True
        )
        mib, seconds, kept, same = json.loads(done.stdout)
        assert (kept, same) == (count, True)
        note = f"{seconds:.1f} s, both digests"
        what = f"a bucket of {group.bytes / 2**20:,.0f} MiB, {count:,} rows: memory of its worker"
        bench.add(what, [mib], unit="MiB", at_most=WORKER_MIB, note=note)


def settle(table: Table) -> None:
    """Until no task is left, and none has come for a while."""
    start = last = time.monotonic()
    while time.monotonic() - last < SETTLED_S:
        if time.monotonic() - start > SETTLED_S_MAX:
            raise TimeoutError(f"the daemon has not settled in {SETTLED_S_MAX:.0f} s")
        if list(table.lake.client.list_tasks(table_id=table.table_id)):
            last = time.monotonic()
        time.sleep(1.0)


def add_soak_rows(bench: Benchmark, kinds: Sequence[tuple[str, str]] = SOAKED) -> None:
    """Small inserts while the daemon compacts beside them; read right after the last, and when all has settled."""
    commits = scaled(COMMITS, 20)
    with scratch() as folder, connect(folder / "lake", session(**jar_setting())) as lake:
        for kind, profile in kinds:
            key = ["id"] if kind == "key" else []
            properties = {"compaction.major.quiet.minutes": "1"} if profile == "maxcompute" else {}
            table = lake.create_table(
                f"bench.{kind}_{profile}", SCHEMA, primary_key=key, profile=profile, properties=properties
            )
            daemon = Daemon(lake, tasks_at_once=1, idle_s=0.2)
            daemon.start()
            refused = 0
            for number in range(commits):
                try:
                    table.insert(rows(lake.spark, COMMIT_ROWS, start=number * COMMIT_ROWS, files=1))
                except (ConflictError, LakeTXError):
                    refused += 1
            what = f"{commits:,} inserts of {COMMIT_ROWS:,} rows, {kind} table, {profile}"
            note = f"{daemon.tasks_done} tasks beside"
            bench.add(f"{what}: refused", [float(refused)], unit="commits", at_most=0, note=note)
            fresh = lake.create_table(f"bench.fresh_{kind}_{profile}", SCHEMA, primary_key=key, profile=profile)
            fresh.insert(rows(lake.spark, commits * COMMIT_ROWS, files=1))
            ways = {
                "fresh": lambda one=fresh: aggregation(one.read()),
                "old": lambda one=table: aggregation(one.read()),
            }
            ideal = len(paths(fresh))
            times = interleaved(ways, runs=RUNS, warm_ups=1)
            bench.add(f"{what}: read at once", over(times["old"], times["fresh"]), unit="times fresh")
            bench.add(f"{what}: files at once", [len(paths(table)) / ideal], unit="times ideal")
            settle(table)
            daemon.stop()
            times = interleaved(ways, runs=RUNS, warm_ups=1)
            bench.add(f"{what}: read", over(times["old"], times["fresh"]), unit="times fresh", at_most=1.2)
            bench.add(f"{what}: files", [len(paths(table)) / ideal], unit="times ideal", at_most=3)


GROUPS: dict[str, Callable[[Benchmark], None]] = {
    "major": add_major_rows,
    "minor": add_minor_rows,
    "inlined": add_inlined_rows,
    "large": add_large_bucket_rows,
    "soak": add_soak_rows,
    **{f"soak-{kind}-{profile}": partial(add_soak_rows, kinds=[(kind, profile)]) for kind, profile in SOAKED},
    "peers": add_peer_rows,
    "peers-keyed": add_keyed_peer_rows,
}


def main() -> int:
    names = chosen(__doc__, GROUPS)
    bench = Benchmark("compact", "Compactions", packages=["pyspark", "polars", "pyarrow"])
    for name in names or [name for name in GROUPS if not name.startswith("soak-")]:
        GROUPS[name](bench)
    return 0 if bench.finish() else 1


if __name__ == "__main__":
    raise SystemExit(main())
