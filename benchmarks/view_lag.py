"""How far a view that is refreshed on each commit is behind its source, while the source has five commits a second.

`make bench-view-lag` runs for an hour; SCALE=0.1 for six minutes. `laketx worker` refreshes the view in a process of
its own. Each commit appends ten rows; the view has a total for each of 1,000 buyers. A commit's lag is the time from it
to the first refresh whose vector has it. At the end the newest version is verified, and some before it.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from benchmarks.frame import ROOT, Benchmark, scaled, scratch
from benchmarks.words import chosen
from laketx import Lake, MaterializedView, Table, connect
from protos.laketx.v1 import common_pb2, read_pb2
from worker.views.definition import VECTOR

SECONDS: Final = 3_600
COMMITS_A_SECOND: Final = 5
ROWS: Final = 10
BUYERS: Final = 1_000
CAUGHT_UP_S: Final = 60.0
VERIFIED_EACH: Final = 100
QUERY: Final = "SELECT buyer, count(*) AS n, sum(amount) AS total FROM shop.orders GROUP BY buyer"


@contextmanager
def worker(folder: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "metaservice.cli", "worker", "--folder", str(folder)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        process.stdout.readline()  # it is ready
        yield
    finally:
        process.terminate()
        process.wait()


def commit_steadily(table: Table, count: int) -> float:
    """Append to the table at the rate; returns how late the last commit began, in seconds."""
    rng = np.random.default_rng(1)
    begin_s, late_s = time.monotonic(), 0.0
    for number in range(count):
        due_s = begin_s + number / COMMITS_A_SECOND
        time.sleep(max(0.0, due_s - time.monotonic()))
        late_s = time.monotonic() - due_s
        ids = np.arange(number * ROWS, (number + 1) * ROWS)
        table.append(pa.table({"id": ids, "buyer": rng.integers(0, BUYERS, ROWS), "amount": ids % 97}))
    return late_s


def lags_s(lake: Lake, table: Table, view: MaterializedView) -> list[float]:
    """Of each commit of the source, in their order."""
    refreshes = read_pb2.VersionFilter(properties={VECTOR: ""})
    shown = sorted(
        (json.loads(one.properties[VECTOR])[table.table_id], one.commit_time_us)
        for one in lake.client.list_versions(view.table.table_id, matching=refreshes)
    )
    commits = [one for one in lake.client.list_versions(table.table_id) if one.operation == common_pb2.OPERATION_INSERT]
    found, at = [], 0
    for commit in sorted(commits, key=lambda one: one.version):
        while shown[at][0] < commit.version:
            at += 1
        found.append((shown[at][1] - commit.commit_time_us) / 1e6)
    return found


def catch_up(view: MaterializedView) -> None:
    until_s = time.monotonic() + CAUGHT_UP_S
    while any(view.status().behind.values()):
        assert time.monotonic() < until_s, "the view is still behind its source"
        time.sleep(0.5)


def main() -> None:
    chosen(__doc__)
    bench = Benchmark("view-lag", "The lag of a view that is refreshed on commit", packages=["duckdb", "pyarrow"])
    with scratch() as folder, connect(folder / "lake") as lake:
        lake.client.create_namespace("shop", if_not_exists=True)
        table = lake.create_table("shop.orders", "id bigint, buyer bigint, amount bigint")
        view = lake.create_materialized_view("shop.totals", QUERY, schedule="ON COMMIT")
        with worker(folder / "lake"):
            late_s = commit_steadily(table, scaled(SECONDS) * COMMITS_A_SECOND)
            catch_up(view)
        lags = lags_s(lake, table, view)
        newest = view.status().version
        versions = [*itertools.islice(range(newest, 1, -VERIFIED_EACH), 20)]
        assert all(view.verify(version).holds for version in versions), "a version differs from its query"
    p50, p99 = np.percentile(lags, [50, 99])
    note = f"{len(lags):,} commits, {len(versions)} versions verified, the last commit began {late_s:.2f} s late"
    bench.add("lag of a commit, median", [float(p50)], unit="s", at_most=2.0, note=note)
    bench.add("lag of a commit, p99", [float(p99)], unit="s", at_most=5.0)
    bench.add("lag of a commit, longest", [max(lags)], unit="s")
    raise SystemExit(0 if bench.finish() else 1)


if __name__ == "__main__":
    main()
