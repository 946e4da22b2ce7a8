"""The parts of `make bench-keys` that are long or need several processes; `benchmarks/keys.py` says what they are.

As a program it is one process of `writers`: `python -m benchmarks.keys_targets ADDRESS WAREHOUSE SEED THREADS SECONDS`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from benchmarks.frame import ROOT, Benchmark, scaled, scratch
from benchmarks.keys_data import Rows
from benchmarks.serving import PEAK, Served, memory, server
from laketx import Lake, Table, connect
from metaservice.client import KEY_SCOPE, key_scope
from protos.laketx.v1 import common_pb2
from tests.integration.bucket import BUCKET, bucket
from tests.integration.slow_bucket import Request, SlowBucket, depth, far_away
from worker.files import key_index
from worker.services.key_indexes import KeyIndexKeeper

MANY: Final = Rows(100_000_000, 1_000)
LOADS: Final = 10
KILLS: Final = 5
KILL_AFTER_S: Final = 20.0
BEAT_S: Final = 0.25
BUILD_MAX_MIB: Final = 1_024.0
DELAY_S: Final = 0.030
FAR: Final = Rows(1_000_000, 200)
COLD_RUNS: Final = 7
COLD_MAX_MS: Final = 120.0
SPACE: Final = Rows(20_000, 20)
PROCESSES, THREADS = 4, 4
WRITTEN: Final = 10  # keys of a commit
WRITING_S: Final = 30.0
WRITERS_GAIN: Final = 8.0
COLUMNS: Final = "id bigint, day int, amount double"
COLD: Final = """
import sys, time
from laketx import connect
address, warehouse, other, name, key = sys.argv[1:]
with connect(address, warehouse=warehouse) as lake:
    assert len(lake.table(other).get([0])) == 1
    table = lake.table(name)
    print(flush=True)
    sys.stdin.readline()
    begin = time.perf_counter()
    assert len(table.get([int(key)])) == 1
    print(time.perf_counter() - begin, flush=True)
"""


# -- a hundred million keys --------------------------------------------------------------------------------------------


@contextmanager
def many_keys() -> Iterator[tuple[Lake, Table, Rows, Served]]:
    """A table whose key is unique within each partition, loaded some partitions at a time, and its service."""
    rows = Rows(scaled(MANY.count), scaled(MANY.partitions, LOADS))
    with ExitStack() as ends:
        folder = ends.enter_context(scratch())
        served = ends.enter_context(server(folder / "store"))
        lake = ends.enter_context(connect(f"laketx://{served.address}", warehouse=folder / "lake"))
        table = lake.create_table("shop.many", COLUMNS, primary_key=["id"], partition_by=["day"], key_scope="partition")
        for at in range(LOADS):
            table.upsert(rows.of_load(at, LOADS))
        yield lake, table, rows, served


def build(bench: Benchmark, lake: Lake, table: Table, rows: Rows, served: Served) -> None:
    """Check the keys and make the index by a worker that is killed five times, while a writer writes."""
    wanted = common_pb2.Alteration(set_properties={KEY_SCOPE: "table"})
    table.view.client.alter_table(table.table_id, wanted)
    writer, peaks, kills, begin = Writer(lake, rows), [0.0], 0, time.perf_counter()
    with writer.running():
        while not is_built(table):
            with worker(lake, served) as running:
                until = time.monotonic() + KILL_AFTER_S
                while not is_built(table) and (kills == KILLS or time.monotonic() < until):
                    time.sleep(0.2)
                    assert running.poll() is None, "the worker ended by itself"
                    peaks.append(memory(Served("", running.pid), PEAK))
            kills += not is_built(table)
    took = time.perf_counter() - begin
    bench.add(f"check and index {rows.count:,} keys while a writer writes, {kills} kills", [took], unit="s")
    bench.add("the writer meanwhile", [writer.commits / took], unit="commits/s")
    bench.add("peak memory of the worker", [max(peaks)], unit="MiB", at_most=BUILD_MAX_MIB)


def is_built(table: Table) -> bool:
    """Whether the table promises its keys, and an index says what it covers."""
    if key_scope(table.refresh().meta) != "table":
        return False
    return key_index.KeyIndex(table.view.folder, table.meta).coverage() is not None


@dataclass
class Writer:
    """Upserts ten keys again and again, on a thread of its own."""

    lake: Lake
    rows: Rows
    commits: int = 0
    _stopping: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        with ThreadPoolExecutor(1) as pool:
            written = pool.submit(self._write)
            try:
                yield
            finally:
                self._stopping.set()
            written.result()

    def _write(self) -> None:
        table = self.lake.table("shop.many")
        while not self._stopping.wait(BEAT_S):
            table.upsert(self.rows.some(WRITTEN, moves=False), on_conflict="rerun")
            self.commits += 1


@contextmanager
def worker(lake: Lake, served: Served) -> Iterator[subprocess.Popen[bytes]]:
    """A worker that ends by a kill -9."""
    laketx = [sys.executable, "-c", "from metaservice.cli import main; main()"]
    command = [*laketx, "worker", "--server", served.address, "--warehouse", lake.warehouse, "--idle", "0.5"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        try:
            yield running
        finally:
            running.kill()


# -- files on S3, 30 ms away -------------------------------------------------------------------------------------------


class FarLake(NamedTuple):
    """A lake whose service is here and whose files are far away."""

    lake: Lake
    served: Served
    there: SlowBucket


@contextmanager
def far_lake() -> Iterator[FarLake]:
    with scratch() as folder, bucket(folder) as variables, ExitStack() as ends:
        there = ends.enter_context(far_away(variables["AWS_ENDPOINT_URL"].removeprefix("http://"), DELAY_S))
        os.environ.update(variables | {"AWS_ENDPOINT_URL": there.url})
        served = ends.enter_context(server(folder / "store"))
        lake = ends.enter_context(connect(f"laketx://{served.address}", warehouse=f"s3a://{BUCKET}/files"))
        yield FarLake(lake, served, there)


def far(bench: Benchmark) -> None:
    """The first look-up of a table, by a process that has read another one."""
    rows = Rows(scaled(FAR.count), scaled(FAR.partitions, 4))
    with far_lake() as (lake, served, there):
        filled_table(lake, "shop.other", SPACE)
        filled_table(lake, "shop.far", rows)
        times: list[float] = []
        requests: Sequence[Request] = ()
        for key in rows.chance.choice(rows.count, COLD_RUNS).tolist():
            command = [sys.executable, "-c", COLD, f"laketx://{served.address}", lake.warehouse]
            with started([*command, "shop.other", "shop.far", str(key)]) as one:
                requests = there.asked(lambda one=one: times.append(float(answer_to(one, "get"))))  # type: ignore[misc]
        title = f"the first get of {rows.count:,} keys, files 30 ms away"
        bench.add(title, [1_000 * each for each in times], unit="ms", at_most=COLD_MAX_MS)
        bench.add(f"{title}: requests", [len(requests)], unit="requests")
        bench.add(f"{title}: one after the other", [depth(requests)], unit="requests")


@contextmanager
def started(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that is ready, which a line on its stdin starts."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as running:
        assert running.stdout is not None
        running.stdout.readline()
        yield running


def answer_to(running: subprocess.Popen[str], line: str) -> str:
    return running.communicate(f"{line}\n")[0]


def filled_table(lake: Lake, name: str, rows: Rows, **properties: str) -> Table:
    """A table by row_level whose key spans partitions, with its index."""
    table = lake.create_table(
        name,
        COLUMNS,
        primary_key=["id"],
        partition_by=["day"],
        key_scope="table",
        buckets=2,
        profile="row_level",
        properties={"write.inline.rows": "0", **properties},
    )
    table.upsert(rows.all())
    KeyIndexKeeper(lake, now_s=lambda: 0.0).run_once()
    return table


class Acknowledged(NamedTuple):
    """A commit: its version, and the keys and values that it wrote."""

    version: int
    rows: list[tuple[int, int, float]]


def writers(bench: Benchmark) -> None:
    """One writer, then sixteen of four processes; every read of every key is what the last commit of it wrote."""
    seconds = max(scaled(int(WRITING_S)), 2)
    with far_lake() as (lake, served, _):
        table = filled_table(lake, "shop.space", SPACE)
        state = {row["id"]: row for row in table.to_arrow().to_pylist()}
        rates = {}
        for processes, threads in ((1, 1), (PROCESSES, THREADS)):
            said = written_by(lake, served, processes, threads, seconds)
            for one in sorted(said):
                state |= {key: {"id": key, "day": day, "amount": value} for key, day, value in one.rows}
            assert len({one.version for one in said}) == len(said), "two commits got one version"
            rates[processes * threads] = len(said) / seconds
        rows = table.refresh().to_arrow().to_pylist()
        assert len(rows) == SPACE.count, "a key is there twice, or lost"
        wrong = sum(state[row["id"]] != row for row in rows)
        title = f"{PROCESSES * THREADS} writers of {WRITTEN} random keys, files 30 ms away"
        bench.add(f"{title}: keys with another value than that of their last commit", [wrong], unit="keys", at_most=0)
        bench.add(f"one writer of {WRITTEN} random keys, files 30 ms away", [rates[1]], unit="commits/s")
        bench.add(title, [rates[PROCESSES * THREADS]], unit="commits/s")
        gain = rates[PROCESSES * THREADS] / rates[1]
        bench.add(f"{title}: over one writer", [gain], unit="times", at_least=WRITERS_GAIN)


def written_by(lake: Lake, served: Served, processes: int, threads: int, seconds: float) -> list[Acknowledged]:
    command = [sys.executable, "-m", "benchmarks.keys_targets", f"laketx://{served.address}", lake.warehouse]
    with ExitStack() as ends, ThreadPoolExecutor(processes) as pool:
        running = [
            ends.enter_context(started([*command, str(10 * processes + at), str(threads), str(seconds)]))
            for at in range(processes)
        ]
        said = [json.loads(one) for one in pool.map(lambda one: answer_to(one, "go"), running)]
    return [Acknowledged(version, [(*row,) for row in rows]) for each in said for version, rows in each]


def main() -> None:
    address, warehouse, seed, threads, seconds = sys.argv[1:]
    with connect(address, warehouse=warehouse) as lake:
        table = lake.table("shop.space")
        table.get([0])
        print("ready", flush=True)
        sys.stdin.readline()
        until = time.monotonic() + float(seconds)

        def write(at: int) -> list[tuple[int, list[tuple[int, int, float]]]]:
            rows, found = Rows(SPACE.count, SPACE.partitions, np.random.default_rng([int(seed), at])), []
            while time.monotonic() < until:
                part = rows.some(WRITTEN, moves=True)
                commit = table.upsert(part, on_conflict="rerun")
                given = part.to_pylist()
                found.append((commit.version, [(row["id"], row["day"], row["amount"]) for row in given]))
            return found

        with ThreadPoolExecutor(int(threads)) as pool:
            print(json.dumps([one for each in pool.map(write, range(int(threads))) for one in each]))


if __name__ == "__main__":
    main()
