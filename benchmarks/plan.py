"""How fast MetaService plans, beside deltalake on the same question. `make bench-plan`.

Each group of rows is a function that takes the benchmark and the loaded tables; GROUPS lists them.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.frame import ROOT, Benchmark, scaled, scratch
from benchmarks.peers.environment import ensure_python
from benchmarks.plan_tables import FILES_A_PARTITION, ROWS, data_file, load_deep, load_history, load_wide, loader
from benchmarks.serving import server
from benchmarks.watch import add_embedded_rows, add_watch_rows
from benchmarks.words import chosen
from metaservice.client import uuid7
from metaservice.client.meta_client import MetaClient
from protos.laketx.v1 import common_pb2

PARTITIONS = 10_000
PARTITIONS_FEW = 100
DEEP_FILES = 100_000
COMMITS = 100_000
COMMITS_FEW = 100
ASKED = 101


@dataclass(frozen=True)
class Tables:
    """What was loaded: ids of tables, each on its own folder where its size counts."""

    wide_folder: Path
    wide: str
    few: str
    deep: str
    long: str
    short: str


def load_tables(folder: Path) -> Tables:
    data = folder / "db"
    with loader(data) as load:
        return Tables(
            data,
            load_wide(load, scaled(PARTITIONS)),
            load_wide(load, scaled(PARTITIONS_FEW)),
            load_deep(load, scaled(DEEP_FILES)),
            load_history(load, scaled(COMMITS)),
            load_history(load, COMMITS_FEW),
        )


def compare(column: str, comparison: common_pb2.Comparison.ValueType, value: int) -> common_pb2.Predicate:
    literal = common_pb2.Value(integer=value)
    return common_pb2.Predicate(compare=common_pb2.Compare(column=column, comparison=comparison, value=literal))


def day_is(day: int) -> common_pb2.Predicate:
    return compare("day", common_pb2.COMPARISON_EQUAL, day)


def plan(
    client: MetaClient, table_id: str, predicate: common_pb2.Predicate | None, version: int | None, files: int
) -> float:
    """Milliseconds; the plan has so many files."""
    start = time.perf_counter()
    found = sum(len(part.entries) for part in client.plan_scan(table_id, predicate=predicate, version=version))
    taken_ms = (time.perf_counter() - start) * 1_000
    if found != files:
        raise RuntimeError(f"a plan of {found} files instead of {files}")
    return taken_ms


def median_plan(
    client: MetaClient,
    table_id: str,
    partitions: int = 1,
    version: int | None = None,
    asked: int = ASKED,
    start: int = 0,
) -> float:
    """Of plans of one partition each, another every time where there are several."""
    times = [
        plan(client, table_id, day_is(n * 7_919 % partitions), version, FILES_A_PARTITION)
        for n in range(start, start + asked)
    ]
    return statistics.median(times)


def peer_plan_s(folder: Path) -> float:
    """Seconds that deltalake takes for the same."""
    command = [str(ensure_python()), "-W", "ignore", "-m", "benchmarks.peers.plan_delta", str(folder / "delta")]
    command += [str(scaled(PARTITIONS)), str(FILES_A_PARTITION), "3"]
    said = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    seconds: list[float] = json.loads(said)
    return statistics.median(seconds)


def one_partition(bench: Benchmark, tables: Tables, client: MetaClient, _pid: int, peer_ms: float) -> None:
    files = scaled(PARTITIONS) * FILES_A_PARTITION
    starts = iter(range(0, 1 << 30, ASKED))  # no partition is planned twice, or it would be remembered
    many = bench.measure(
        f"plan a partition of {FILES_A_PARTITION} files, of {files} in all (median)",
        lambda: median_plan(client, tables.wide, scaled(PARTITIONS), start=next(starts)),
        unit="ms",
        at_most=5,
        peers={"deltalake": peer_ms},
        note="deltalake opens the table and lists the files of the partition",
    )
    few = bench.add(
        f"the same, of {scaled(PARTITIONS_FEW) * FILES_A_PARTITION} in all",
        [median_plan(client, tables.few, scaled(PARTITIONS_FEW), asked=scaled(PARTITIONS_FEW))],
        unit="ms",
    )
    bench.add("many files over few", [one / few.figure for one in many.runs], unit="times", at_most=1.5)
    bench.add("times deltalake", [peer_ms / one for one in many.runs], unit="times", at_least=20)


def whole_table(bench: Benchmark, tables: Tables, client: MetaClient, pid: int, _peer_ms: float) -> None:
    files = scaled(PARTITIONS) * FILES_A_PARTITION
    bench.measure(
        f"stream the plan of all {files} files",
        lambda: plan(client, tables.wide, None, None, files) / 1_000,
        unit="s",
        at_most=6,
        warm_ups=0,
    )
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    peak_kib = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
    bench.add("most memory of the server so far", [peak_kib / 2**20], unit="GiB", at_most=1.5)


def by_statistics(bench: Benchmark, tables: Tables, client: MetaClient, _pid: int, _peer_ms: float) -> None:
    files = scaled(DEEP_FILES, 100)
    kept = files // 100
    place = [0]

    def once() -> float:
        """Another range of ids each time; a hundredth of the files may hold it."""
        place[0] = (place[0] + 37) % 99
        first = place[0] * kept * ROWS
        operands = [
            day_is(0),
            compare("id", common_pb2.COMPARISON_GREATER_OR_EQUAL, first),
            compare("id", common_pb2.COMPARISON_LESS, first + kept * ROWS),
        ]
        ranged = common_pb2.Predicate(all_of=common_pb2.PredicateList(operands=operands))
        return plan(client, tables.deep, ranged, None, kept)

    def after_a_commit() -> float:
        txn_id = uuid7()
        file = data_file(0, 2 * files)
        file.path = f"{txn_id}/0.parquet"
        client.append(tables.deep, [file], txn_id=txn_id)
        return once()

    bench.add(f"plan with statistics, {files} files of a partition: first time", [once()], unit="ms")
    bench.measure("the same, 1 % kept", once, unit="ms", at_most=250, runs=5)
    bench.measure("the same, after a commit to the partition", after_a_commit, unit="ms", at_most=250, runs=5)


def history(bench: Benchmark, tables: Tables, client: MetaClient, _pid: int, _peer_ms: float) -> None:
    commits = scaled(COMMITS)
    first = [plan(client, tables.long, day_is(0), None, FILES_A_PARTITION)]
    bench.add(f"head plan with {commits} commits behind: first time", first, unit="ms")
    short = bench.measure(
        f"head plan with {COMMITS_FEW} commits behind (median)", lambda: median_plan(client, tables.short), unit="ms"
    )
    long = bench.measure(
        f"head plan with {commits} commits behind (median)", lambda: median_plan(client, tables.long), unit="ms"
    )
    bench.add("long history over short", [one / short.figure for one in long.runs], unit="times", at_most=1.5)
    then = client.get_table(table_id=tables.long).head_version - commits // 2
    back = bench.measure(
        f"time travel {commits // 2} versions back (median)",
        lambda: median_plan(client, tables.long, version=then),
        unit="ms",
    )
    bench.add("time travel over head", [one / long.figure for one in back.runs], unit="times", at_most=3)


GROUPS: tuple[Callable[[Benchmark, Tables, MetaClient, int, float], None], ...] = (
    one_partition,
    whole_table,
    by_statistics,
    history,
)


def main() -> int:
    chosen(__doc__)
    bench = Benchmark("plan", "Plans: LakeTX beside deltalake", ["grpcio", "rocksdict"])
    with scratch() as folder:
        peer_ms = peer_plan_s(folder) * 1_000
        tables = load_tables(folder)
        starts = []
        for _ in range(3):
            start = time.perf_counter()
            with server(tables.wide_folder) as (address, _), MetaClient(address) as client:
                client.ping()
                starts.append(time.perf_counter() - start)
        files = scaled(PARTITIONS) * FILES_A_PARTITION
        bench.add(f"start with {files} files and {scaled(PARTITIONS)} versions", starts, unit="s", at_most=3)
        with server(tables.wide_folder) as (address, pid), MetaClient(address, principal="bench") as client:
            for group in GROUPS:
                group(bench, tables, client, pid, peer_ms)
    add_watch_rows(bench)
    add_embedded_rows(bench)
    return 0 if bench.finish() else 1


if __name__ == "__main__":
    sys.exit(main())
