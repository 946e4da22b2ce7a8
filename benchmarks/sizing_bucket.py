"""Ten million files in a store in a bucket: a copy, a start, memory, a take-over. `make bench-sizing ARGS=bucket`.

The server of S3 runs beside the service; then the same again with 30 ms more on each request. A start is measured from
the start of the process until it answers as the leader.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.frame import ROOT, Benchmark, scaled
from benchmarks.plan_tables import LAKE_FILES, load_lake
from benchmarks.serving import PEAK, Served, memory
from metaservice.client import MetaClient
from tests.integration.bucket import BUCKET, bucket, known_to
from tests.integration.high_availability import (
    Load,
    Pair,
    Process,
    check_history,
    create_table,
    list_committed,
    running,
)
from tests.integration.slow_bucket import far_away
from tests.integration.take_over_rounds import KILL, STOP, play_round

STORE: Final = f"s3://{BUCKET}/lake/meta"  # where the processes of `running` have it
FAR_S: Final = 0.030
STARTS: Final = 3
PLANNED: Final = 1_000  # tables
WRITERS: Final = 4
QUIET: Final = {"LAKETX_SCHEDULE_MS": "0", "LAKETX_PURGE_DELAY_MS": "3600000"}  # nothing else is read meanwhile
ENDS: Final = {
    KILL: ("killed with -9", 3, 8.0),
    STOP: ("stopped by SIGTERM", 3, 1.0),
}  # how often, and seconds at most


def add_lake_in_bucket(bench: Benchmark, folder: Path) -> None:
    data = folder / "lake"
    measure_in_bucket(bench, folder, data, load_lake(data))


def measure_in_bucket(bench: Benchmark, folder: Path, data: Path, ids: Sequence[str]) -> None:
    """`data` is a data folder with tables of those ids."""
    told = f"{len(ids) * LAKE_FILES:,} files in {len(ids):,} tables"
    with bucket(folder) as variables:
        add_copy(bench, data, known_to(variables), told)
        upstream = variables["AWS_ENDPOINT_URL"].removeprefix("http://")
        for where, delay_s in (("near", 0.0), ("30 ms away", FAR_S)):
            with far_away(upstream, delay_s) as there:
                known = known_to(variables | {"AWS_ENDPOINT_URL": there.url} | QUIET)
                add_starts(bench, Process(folder, f"alone {where}", known), ids, f"{told}, bucket {where}")
                pair = Pair([Process(folder, f"{name} {where}", known) for name in ("one", "two")], known)
                add_take_overs(bench, pair, f"bucket {where}")


def add_copy(bench: Benchmark, data: Path, known: Mapping[str, str], told: str) -> None:
    begun_s = time.perf_counter()
    command = [sys.executable, "-m", "metaservice.cli", "store", "copy", str(data), STORE]
    with subprocess.Popen(command, cwd=ROOT, env=dict(known)) as copying:
        _, status, used = os.wait4(copying.pid, 0)
        copying.returncode = os.waitstatus_to_exitcode(status)
    assert copying.returncode == 0
    bench.add(f"copy to a bucket, {told}", [time.perf_counter() - begun_s], unit="s")
    bench.add("peak memory of the copy", [used.ru_maxrss / 1024], unit="MiB")


def add_starts(bench: Benchmark, alone: Process, ids: Sequence[str], told: str) -> None:
    starts, memories, peaks = [], [], []
    for _ in range(STARTS):
        begun_s = time.perf_counter()
        alone.start()
        try:
            assert alone.running is not None
            service = Served(alone.address, alone.running.pid)
            with MetaClient(alone.address) as client:
                client.ping()
                starts.append(time.perf_counter() - begun_s)
                memories.append(memory(service))
                for table_id in ids[: scaled(PLANNED)]:
                    assert sum(len(part.entries) for part in client.plan_scan(table_id)) == LAKE_FILES
                peaks.append(memory(service, PEAK))
        finally:
            alone.stop()
    bench.add(f"start, {told}", starts, unit="s", at_most=5)
    bench.add(f"memory after the start, {told}", memories, unit="MiB", at_most=1024)
    bench.add(f"peak memory after plans of {scaled(PLANNED):,} tables, {told}", peaks, unit="MiB", at_most=1024)


def add_take_overs(bench: Benchmark, pair: Pair, where: str) -> None:
    """Of the same store, under writers of one more table; every answer is checked."""
    with running(pair) as both:
        load = Load(both.address, create_table(both, name=f"written_{len(bench.results)}"), between_s=0.0)
        load.start(WRITERS, readers=1)
        try:
            for end, (name, count, most_s) in ENDS.items():
                waits = [play_round(both, load, end) for _ in range(count)]
                bench.add(f"leader {name}, {where}: until commits go on", waits, unit="s", at_most=most_s)
        finally:
            load.stop()
        check_history(load, list_committed(both.leader().address, load.table_id))
