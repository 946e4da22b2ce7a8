"""Rows of the plan's benchmark: many watchers of one table, and opening the service of a folder."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.frame import ROOT, Benchmark, scale, scratch
from benchmarks.words import chosen
from metaservice.client.folder_service import find_or_start, open_folder
from metaservice.client.meta_client import MetaClient
from protos.laketx.v1 import catalog_pb2

WATCHERS = 100
RATE = 100.0
PROCESSES = 2
WRITERS = 8
RATE_LOST_MAX = 0.2


@dataclass(frozen=True)
class Watched:
    """One run: what a watcher waited for a commit, and the rate of commits with and without watchers."""

    median_ms: float
    p99_ms: float
    per_s: float
    alone_per_s: float


def add_watch_rows(bench: Benchmark, runs: int = 3) -> None:
    """100 watchers at 100 commits/s."""
    seconds = max(2.0, 10.0 * scale())
    found = [run_watchers(seconds) for _ in range(runs)]
    work = f"{WATCHERS} watchers of one table, {RATE:.0f} commits/s"
    p99_ms = statistics.median(one.p99_ms for one in found)
    bench.add(
        f"{work}: delay, median",
        [one.median_ms for one in found],
        unit="ms",
        at_most=100,
        note=f"each watcher saw every commit, in order; p99 {p99_ms:.0f} ms",
    )
    bench.add(
        f"{work}: rate of commits, of that without watchers",
        [one.per_s / one.alone_per_s for one in found],
        unit="times",
        at_least=1 - RATE_LOST_MAX,
        note=f"without: {statistics.median(one.alone_per_s for one in found):.0f} commits/s",
    )


def add_embedded_rows(bench: Benchmark, runs: int = 5) -> None:
    """Opening to the first answer: in a process that has loaded its libraries, and with loading them."""
    served, unserved, with_imports = [], [], []
    for _ in range(runs):
        with scratch() as folder:
            unserved.append(time_open(folder))
            served.append(time_open(folder))
            with_imports.append(time_open_in_a_process(folder))
            end_server(folder)
    bench.add("open an embedded folder that is served", served, unit="s", at_most=0.1)
    bench.add("open an embedded folder that is not served", unserved, unit="s", at_most=1.0)
    bench.add("open a served folder, loading the libraries", with_imports, unit="s")


def run_watchers(seconds: float) -> Watched:
    with scratch() as folder:
        address = find_or_start(folder)
        try:
            with MetaClient(address) as client:
                table = catalog_pb2.Table(name="t", columns=[catalog_pb2.Column(name="id", type="bigint")])
                table_id = client.create_table(table).table_id
                alone = write(address, table_id, seconds)
                return watched(client, address, table_id, seconds, alone)
        finally:
            end_server(folder)


def watched(client: MetaClient, address: str, table_id: str, seconds: float, alone: float) -> Watched:
    after = client.resolve_version(table_id).version
    until = after + round(RATE * seconds)
    arguments = [str(WATCHERS // PROCESSES), str(after), str(until)]
    watching = [spawn("watch", address, table_id, *arguments) for _ in range(PROCESSES)]
    time.sleep(2.0)  # all are connected
    per_s = write(address, table_id, seconds)
    reports = [json.loads(one.communicate(timeout=seconds + 60)[0]) for one in watching]
    if not all(report["complete"] for report in reports):
        raise RuntimeError("a watcher missed a commit")
    delays = sorted(ms for report in reports for ms in report["delays_ms"])
    return Watched(statistics.median(delays), delays[int(len(delays) * 0.99)], per_s, alone)


def write(address: str, table_id: str, seconds: float) -> float:
    said, _ = spawn("write", address, table_id, str(WRITERS), str(RATE), str(seconds)).communicate(timeout=300)
    return float(json.loads(said)["per_s"])


def spawn(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.watchers", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def time_open(folder: Path) -> float:
    start = time.perf_counter()
    with open_folder(folder):
        return time.perf_counter() - start


def time_open_in_a_process(folder: Path) -> float:
    code = (
        "import time; start = time.perf_counter(); import sys\n"
        "from metaservice.client.folder_service import open_folder\n"
        "with open_folder(sys.argv[1]): print(time.perf_counter() - start)"
    )
    said = subprocess.run([sys.executable, "-c", code, folder], cwd=ROOT, capture_output=True, text=True, check=True)
    return float(said.stdout)


def end_server(folder: Path) -> None:
    pid = json.loads((folder / "_laketx" / "server.json").read_text(encoding="utf-8"))["pid"]
    os.kill(pid, signal.SIGTERM)
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.01)


def main() -> int:
    chosen(__doc__)
    bench = Benchmark("watch", "Watchers, and opening a folder", ["grpcio", "rocksdict"])
    add_watch_rows(bench)
    add_embedded_rows(bench)
    return 0 if bench.finish() else 1


if __name__ == "__main__":
    raise SystemExit(main())
