"""How fast tables are read and written without Spark, beside pyarrow on the same files and peers on the same rows.

`make bench-arrow`; ARGS="clean deleted" runs those groups alone, `no-peers` leaves the peers out. JSON and SCALE as for
bench-commit. Ratios are within a run: all ways once, then all again.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.arrow_data import ARROW, SCHEMA, batches, is_hundredth, rows
from benchmarks.frame import ROOT, Benchmark, scale, scaled, scratch
from benchmarks.peers.environment import ensure_python, said
from benchmarks.turns import interleaved, over
from benchmarks.words import NO_PEERS, chosen
from laketx import Lake, Table, connect
from worker.arrow.scan.bucket_vectors import MEMORY
from worker.services.deletion_vectors import VectorKeeper

ROWS: Final = 10_000_000
BUCKETS: Final = 16
DELTAS: Final = 10
RUNS: Final = 5
LOOKUPS: Final = 100
STARTS: Final = 7
WINDOW_S: Final = 5.0
WRITERS: Final = 16
PROCESSES: Final = 2  # as many as cores
FEW: Final = 10
COMMITS: Final = 10_000
ROWS_UPDATED: Final = 100_000
BLOCKS: Final = 4
UPDATES: Final = 40
WIDE: Final = 2_000  # columns
PARTITIONS: Final = 5_000
RUNS_OF_PARTITIONS: Final = 3
SAMPLED: Final = 10  # every tenth row: callbacks of all would measure the garbage that they make
UNCOMPACTED: Final = {"compaction.enabled": "false"}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# -- tables ------------------------------------------------------------------------------------------------------------


def append_table(lake: Lake, name: str) -> Table:
    table = lake.create_table(f"bench.{name}", SCHEMA, properties=UNCOMPACTED)
    table.append(pa.RecordBatchReader.from_batches(ARROW, batches(scaled(ROWS))))
    return table


def keyed_table(lake: Lake, name: str, deltas: int) -> Table:
    table = lake.create_table(f"bench.{name}", SCHEMA, primary_key=["id"], buckets=BUCKETS, properties=UNCOMPACTED)
    table.upsert(pa.Table.from_batches(batches(scaled(ROWS))))
    for number in range(deltas):
        say(f"{name}: upsert {number + 1} of {deltas}")
        ids = np.arange(scaled(ROWS))
        table.upsert(pa.Table.from_batches([rows(ids[is_hundredth(number)(ids)], number + 1)]))
    return table


def paths_of(table: Table) -> list[str]:
    entries = table.lake.client.list_files(table.table_id)
    return [table.view.path(one.file.path) for one in entries if one.HasField("file") and not one.file.inlined]


def by_pyarrow(paths: Sequence[str]) -> pa.Table:
    return pq.ParquetDataset(list(paths)).read()


def beside_pyarrow(
    bench: Benchmark,
    work: str,
    table: Table,
    at_most: float,
    peers: dict[str, float],
    read: Callable[[], Any] | None = None,
) -> None:
    paths = paths_of(table)
    ways = {"ours": read or table.to_arrow, "pyarrow": lambda: by_pyarrow(paths)}
    times = interleaved(ways, runs=RUNS, warm_ups=1)
    say(f"{work}: {statistics.median(times['ours']):.2f} s, pyarrow {statistics.median(times['pyarrow']):.2f} s")
    bench.add(
        f"{work}, over pyarrow on its files",
        over(times["ours"], times["pyarrow"]),
        unit="times",
        at_most=at_most,
        peers=peers,
    )


# -- reads -------------------------------------------------------------------------------------------------------------


def clean(bench: Benchmark, lake: Lake, *, peers: bool) -> None:
    table = append_table(lake, "clean")
    found: dict[str, float] = {}
    if peers:
        folder = Path(lake.warehouse).parent / "peers"
        command = [str(ensure_python()), "-W", "ignore", "-m", "benchmarks.peers.read_arrow", str(folder), str(RUNS)]
        found = {name: statistics.median(ratios) for name, ratios in said([*command, *paths_of(table)]).items()}
        shutil.rmtree(folder, ignore_errors=True)
    beside_pyarrow(bench, "clean table", table, 1.1, found)


def deleted(bench: Benchmark, lake: Lake, *, peers: bool) -> None:  # noqa: ARG001 - delta-rs rewrites files
    table = append_table(lake, "deleted")
    ids = np.arange(scaled(ROWS))
    gone = ids[is_hundredth(0)(ids)].tolist()
    for begin in range(0, len(gone), 10_000):
        table.delete(f"id IN ({', '.join(map(str, gone[begin : begin + 10_000]))})")
    assert table.count() == len(ids) - len(gone)
    beside_pyarrow(bench, "1 % deleted", table, 1.15, {})


def ten(bench: Benchmark, lake: Lake, *, peers: bool) -> None:  # noqa: ARG001 - delta-rs rewrites files
    table = keyed_table(lake, "ten", DELTAS)
    assert table.count() == scaled(ROWS)

    def first_read() -> None:
        MEMORY.clear()
        table.to_arrow()

    beside_pyarrow(bench, "ten deltas of 1 %, hidden rows found by keys", table, 1.6, {}, first_read)
    VectorKeeper(lake).run_once()
    beside_pyarrow(bench, "ten deltas of 1 %, deletion vectors kept", table, 1.15, {}, first_read)
    beside_pyarrow(bench, "ten deltas of 1 %, read again", table, 1.15, {})


def lookup(bench: Benchmark, lake: Lake, *, peers: bool) -> None:  # noqa: ARG001 - they have no keys
    table = keyed_table(lake, "lookup", 0)
    chance = np.random.default_rng(1)
    wanted = chance.integers(0, scaled(ROWS), LOOKUPS + 5).tolist()
    times = []
    for key in wanted:
        start = time.perf_counter()
        found = table.to_arrow(where=f"id = {key}")
        times.append((time.perf_counter() - start) * 1_000)
        assert found.column("id").to_pylist() == [key]
    bench.add("look-up by key, warm", times[5:], unit="ms", at_most=30)


def start(bench: Benchmark, lake: Lake, *, peers: bool) -> None:  # noqa: ARG001
    lake.create_table("bench.small", "id bigint, v string").append([{"id": 1, "v": "x"}])
    ours = f"import laketx; print(laketx.connect({lake.warehouse!r}).table('bench.small').to_arrow(limit=1).num_rows)"
    bare = "import pyarrow.parquet"
    ways = {"ours": lambda: run_python(ours), "bare": lambda: run_python(bare)}
    times = interleaved(ways, runs=STARTS, warm_ups=1)
    note = f"python with pyarrow alone: {statistics.median(times['bare']):.2f} s"
    bench.add("process start to first row", times["ours"], unit="s", at_most=0.6, note=note)


def window_s() -> float:
    """Shorter ones say more about starts than about commits."""
    return max(2.0, WINDOW_S * scale())


def run_python(program: str) -> None:
    """With compiled modules, as an installation has them; a first run compiles them."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=env, check=True, stdout=subprocess.DEVNULL)


def memory(bench: Benchmark, lake: Lake, *, peers: bool) -> None:  # noqa: ARG001
    append_table(lake, "batches")
    figures = []
    for _ in range(3):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            figures.append(pool.apply(peak_of_batches, (str(lake.warehouse), "bench.batches")))
    bench.add("peak memory of a read by batches", figures, unit="MiB", at_most=500)


def peak_of_batches(warehouse: str, name: str) -> float:
    with connect(warehouse) as lake:
        count = sum(batch.num_rows for batch in lake.table(name).to_batches())
    assert count == scaled(ROWS)
    status = Path("/proc/self/status").read_text(encoding="utf-8")  # what the parent had is not in it
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1024


# -- writes ------------------------------------------------------------------------------------------------------------


def commits(bench: Benchmark, lake: Lake, *, peers: bool) -> None:
    """Writers in two processes of eight threads each."""
    figures = []
    for run in range(4):
        name = f"bench.commits{run}"
        table = lake.create_table(name, "id bigint, v string, amount double", profile="delta_write_serializable")
        figures.append(many_writers(lake, name))
        assert table.count() == sum(done for done, _ in figures[-1]) * FEW
    rates = [sum(done / seconds for done, seconds in one) for one in figures[1:]]
    found = {}
    if peers:
        folder = Path(lake.warehouse).parent / "delta-commits"
        command = [str(ensure_python()), "-W", "ignore", "-m", "benchmarks.peers.read_arrow", "commits", str(folder)]
        found = {name: statistics.median(one) for name, one in said([*command, str(window_s())]).items()}
    bench.add(f"commits of {FEW} rows, {WRITERS} writers", rates, unit="commits/s", at_least=2_000, peers=found)


def many_writers(lake: Lake, name: str) -> list[tuple[int, float]]:
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        ready = pool.starmap(commit_for, [(str(lake.warehouse), name, 0.3)] * PROCESSES, chunksize=1)
        done = pool.starmap(commit_for, [(str(lake.warehouse), name, window_s())] * PROCESSES, chunksize=1)
    return [*((count, float("inf")) for count, _ in ready), *done]


def commit_for(warehouse: str, name: str, seconds: float) -> tuple[int, float]:
    """Commits by this process's threads, and how long it took."""
    batch = pa.table({"id": range(FEW), "v": ["some text"] * FEW, "amount": [1.5] * FEW})
    counts = [0] * (WRITERS // PROCESSES)
    with connect(warehouse) as lake:
        tables = [lake.table(name) for _ in counts]
        begin = time.perf_counter()

        def write(number: int) -> None:
            while time.perf_counter() - begin < seconds:
                tables[number].append(batch)
                counts[number] += 1

        in_threads([lambda number=number: write(number) for number in range(len(counts))])  # type: ignore[misc]
        return sum(counts), time.perf_counter() - begin


def writer(bench: Benchmark, lake: Lake, *, peers: bool) -> None:  # noqa: ARG001 - they have none
    rates, latest = [], []
    for run in range(4):
        table = lake.create_table(f"bench.writer{run}", "id bigint, v string, amount double")
        waits: list[float] = []
        taken = [0] * WRITERS
        with table.writer(flush_rows=500, flush_ms=10, rows_max=500) as out:
            begin = time.perf_counter()

            def write(number: int) -> None:
                while time.perf_counter() - begin < window_s():  # noqa: B023
                    sent = time.perf_counter()
                    done = out.write({"id": taken[number], "v": "some text", "amount": 1.5})  # noqa: B023
                    if taken[number] % SAMPLED == 0:  # noqa: B023
                        done.add_done_callback(lambda _, sent=sent: waits.append(time.perf_counter() - sent))  # type: ignore[misc]  # noqa: B023
                    taken[number] += 1  # noqa: B023

            in_threads([lambda number=number: write(number) for number in range(WRITERS)])  # type: ignore[misc]
        seconds = time.perf_counter() - begin
        assert table.count() == sum(taken)
        if run:
            rates.append(sum(taken) / seconds)
            latest.append(float(np.percentile(waits, 99)) * 1_000)
    bench.add("table.writer, single rows of 16 threads", rates, unit="rows/s", at_least=30_000)
    bench.add("table.writer, until a row is durable, p99", latest, unit="ms", at_most=50)


def in_threads(jobs: Sequence[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def inlined(bench: Benchmark, lake: Lake, *, peers: bool) -> None:  # noqa: ARG001 - they inline nothing
    many, few = (lake.create_table(f"bench.{name}", SCHEMA, properties=UNCOMPACTED) for name in ("many", "few"))
    count = scaled(COMMITS)
    say(f"inlined: {count} commits")
    for at in range(count):
        many.append(pa.Table.from_batches([rows(np.arange(at * FEW, (at + 1) * FEW))]))
    few.append(pa.Table.from_batches([rows(np.arange(count * FEW))]))
    live = [one.file.inlined for one in lake.client.list_files(many.table_id)]
    assert live == [True] * count
    wanted = count_and_sum(few.to_arrow())
    assert count_and_sum(many.to_arrow()) == wanted
    times = interleaved({"inlined": many.to_arrow, "file": few.to_arrow}, runs=RUNS, warm_ups=1)
    note = f"{statistics.median(times['inlined']) * 1_000:.0f} ms"
    work = f"{count:,} inlined commits over the same rows in a file"
    bench.add(work, over(times["inlined"], times["file"]), unit="times", at_most=2, note=note)


def updates(bench: Benchmark, lake: Lake, *, peers: bool) -> None:  # noqa: ARG001
    """One row again and again: every image but the newest is hidden."""
    table = lake.create_table("bench.updates", "id bigint, v double", properties=UNCOMPACTED)
    table.append(pa.table({"id": np.arange(scaled(ROWS_UPDATED)), "v": np.zeros(scaled(ROWS_UPDATED))}))
    blocks = []
    for block in range(BLOCKS):
        times = []
        for number in range(UPDATES):
            start = time.perf_counter()
            table.update({"v": float(block * UPDATES + number)}, where="id = 500")
            times.append((time.perf_counter() - start) * 1_000)
        blocks.append(statistics.median(times))
    assert table.to_arrow(where="id = 500").column("v").to_pylist() == [float(BLOCKS * UPDATES - 1)]
    note = f"blocks of {UPDATES}: {', '.join(f'{one:.0f}' for one in blocks)} ms"
    bench.add(
        "update of one row, after 120 of that row, over the first 40",
        [blocks[-1] / blocks[0]],
        unit="times",
        at_most=1.5,
        note=note,
    )


def wide(bench: Benchmark, lake: Lake, *, peers: bool) -> None:  # noqa: ARG001
    names = [f"c{number}" for number in range(WIDE)]
    table = lake.create_table("bench.wide", ", ".join(f"{name} bigint" for name in names), properties=UNCOMPACTED)
    given = pa.table({name: list(range(FEW)) for name in names})
    ways = {"append": lambda: table.append(given), "read": lambda: table.to_arrow(columns=names[7:8])}
    times = interleaved(ways, runs=RUNS, warm_ups=1)
    work = {"append": f"{FEW} rows into {WIDE:,} columns", "read": "one column of them"}
    for name, at_most in (("append", 40), ("read", 30)):
        bench.add(work[name], [one * 1_000 for one in times[name]], unit="ms", at_most=at_most)


def partitions(bench: Benchmark, lake: Lake, *, peers: bool) -> None:  # noqa: ARG001
    count = scaled(PARTITIONS)
    given = pa.table({"p": np.arange(count), "v": np.zeros(count)})
    writes, reads = [], []
    for number in range(RUNS_OF_PARTITIONS):
        table = lake.create_table(
            f"bench.partitions{number}", "p bigint, v double", partition_by=["p"], properties=UNCOMPACTED
        )
        begin = time.perf_counter()
        table.append(given)
        written = time.perf_counter()
        assert len(table.to_arrow()) == count
        writes.append(written - begin)
        reads.append(time.perf_counter() - written)
    bench.add(f"a row each into {count:,} partitions", writes, unit="s", at_most=1)
    bench.add("read of them", reads, unit="s", at_most=1)


def count_and_sum(table: pa.Table) -> Any:
    return len(table), pc.sum(table.column("id")).as_py()


GROUPS: Final[dict[str, Callable[..., None]]] = {
    one.__name__: one
    for one in (clean, deleted, ten, lookup, start, memory, commits, writer, inlined, updates, wide, partitions)
}


def main() -> None:
    words = chosen(__doc__, [*GROUPS, NO_PEERS])
    bench = Benchmark("arrow", "Tables without Spark", packages=["pyarrow", "polars"])
    for name in [one for one in words if one != NO_PEERS] or GROUPS:
        with scratch() as folder, connect(folder / "lake") as lake:
            say(f"{name} …")
            GROUPS[name](bench, lake, peers=NO_PEERS not in words)
    raise SystemExit(0 if bench.finish() else 1)


if __name__ == "__main__":
    main()
