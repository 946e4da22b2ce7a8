"""Small writes and reads on an S3 server that is 30 ms away, beside deltalake on the same server. `make bench-s3`.

What is measured is without Spark; `benchmarks/s3_spark.py` measures Spark.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from benchmarks.frame import ROOT, Benchmark, scaled, scratch
from benchmarks.peers.environment import ensure_python
from benchmarks.serving import server
from benchmarks.words import chosen
from laketx import Table, connect
from tests.integration.bucket import BUCKET, bucket
from tests.integration.slow_bucket import Request, SlowBucket, depth, far_away

DELAY_S: Final = 0.030
RUNS: Final = 7
FILES: Final = 10  # of a table that is read
ROWS: Final = 100  # of each
AS_FILES: Final = {"write.inline.rows": "0"}
WORKS: Final = ("insert", "read", "read_one", "delete")
SAYS: Final[Mapping[str, str]] = {
    "insert": f"insert of {ROWS} rows",
    "read": f"read of {FILES} files",
    "read_one": f"read of one row of {FILES} files",
    "delete": f"delete of a row in {FILES} files",
}
Do = Callable[[str], float]  # a piece of work, in seconds


def rows() -> list[dict[str, object]]:
    return [{"id": number, "v": "x"} for number in range(ROWS)]


def main() -> int:
    chosen(__doc__)
    bench = Benchmark("s3", "S3 that is 30 ms away", packages=["pyarrow"])
    with scratch() as folder, bucket(folder) as variables, ExitStack() as ends:
        there = ends.enter_context(far_away(variables["AWS_ENDPOINT_URL"].removeprefix("http://"), DELAY_S))
        os.environ.update(variables | {"AWS_ENDPOINT_URL": there.url})
        service = ends.enter_context(server(folder / "store"))
        lake = ends.enter_context(connect(f"laketx://{service.address}", warehouse=f"s3a://{BUCKET}/files"))
        inlined = lake.create_table("inlined", "id bigint, v string")
        tables = [lake.create_table(f"t{number}", "id bigint, v string", properties=AS_FILES) for number in range(2)]
        ways: dict[str, Do] = {"LakeTX": lambda name: of_laketx(name, *tables)}
        ways["deltalake"] = ends.enter_context(peer(ensure_python(), "s3_delta_rs", f"s3://{BUCKET}/delta"))
        for name in WORKS:
            times = {way: measured(bench, there, f"{SAYS[name]}, {way}", name, do) for way, do in ways.items()}
            ratios = [one / statistics.median(times["LakeTX"]) for one in times["deltalake"]]
            bench.add(f"{SAYS[name]}: deltalake over LakeTX", ratios, unit="times")
        measured(bench, there, f"{SAYS['insert']} that go with the commit, LakeTX", "", lambda _: timed(inlined))
    return 0 if bench.finish() else 1


def measured(bench: Benchmark, there: SlowBucket, work: str, name: str, do: Do) -> list[float]:
    """Seconds of each run; the requests of the last one are counted."""
    do(name)
    times: list[float] = []
    requests: Sequence[Request] = ()
    for _ in range(scaled(RUNS, at_least=2)):
        requests = there.asked(lambda: times.append(do(name)))
    bench.add(work, [1000 * one for one in times], unit="ms")
    bench.add(f"{work}: requests", [len(requests)], unit="requests")
    bench.add(f"{work}: one after the other", [depth(requests)], unit="requests")
    bench.add(f"{work}: listings", [sum(one.is_listing for one in requests)], unit="requests")
    return times


def of_laketx(name: str, written: Table, read: Table) -> float:
    """Reads and deletes are of a table with so many files, filled once."""
    if name == "insert":
        return timed(written)
    while read.refresh().meta.head_version < FILES:
        read.append(rows())
    begun_s = time.perf_counter()
    match name:
        case "read":
            assert len(read.to_arrow()) > 0
        case "read_one":
            assert len(read.to_arrow(where="id = 5")) > 0
        case _:
            read.delete("id = 7")
    seconds = time.perf_counter() - begun_s
    if name == "delete":
        read.restore(version=FILES)
    return seconds


def timed(table: Table) -> float:
    given = rows()
    begun_s = time.perf_counter()
    table.append(given)
    return time.perf_counter() - begun_s


@contextmanager
def peer(python: Path, module: str, uri: str, *more: str) -> Iterator[Do]:
    """A process in an environment of its own, which does what it is told."""
    command = [str(python), "-m", f"benchmarks.peers.{module}", uri, str(FILES), str(ROWS), *more]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        told, said = running.stdin, running.stdout
        assert said.readline(), "it ended before its tables were there"

        def do(name: str) -> float:
            told.write(f"{name}\n")
            told.flush()
            return float(said.readline())

        yield do
        told.close()


if __name__ == "__main__":
    sys.exit(main())
