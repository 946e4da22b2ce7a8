"""Rows that earlier runs missed, each beside its goal; short enough for a look. `make bench-goals`.

ARGS choose: `inlined` (reads of 1,000 and 10,000 commits of ten rows, appended and by key), `field` (rows of
bench-field: one column and a delete of ten million rows, a delete of a million, a list of 10,000 files and one row of
them, commits of ten rows), `arrow` (rows of bench-arrow: many columns, many partitions, one per cent deleted), `commit`
(rows of bench-commit: open transactions, batches, contention), `iceberg` (appends by pyiceberg through the catalog).
JSON and SCALE as for bench-commit. Reads without deltalake beside them say the processor time of the reader, too.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

from benchmarks import arrow, commit, iceberg
from benchmarks.arrow_data import SCHEMA, rows
from benchmarks.field.system import LAKETX
from benchmarks.field.team import Team, team
from benchmarks.field.works import WORKS as FIELD_WORKS
from benchmarks.frame import Benchmark, scale, scaled, scratch
from benchmarks.serving import server
from benchmarks.turns import over
from benchmarks.words import chosen
from laketx import Lake, Table, connect
from metaservice.client.meta_client import MetaClient

COMMITS: Final = ((1_000, 8.0), (10_000, 40.0))  # of ten rows, and the ms in which they should be read
KEYED_OVER_APPENDED: Final = 1.5
RUNS: Final = 7
WRITERS: Final = 16
APPEND_RUNS: Final = 2
DELTALAKE: Final = "deltalake"
Bound = Literal["least", "most"]


def inlined(bench: Benchmark) -> None:
    """Small commits that nothing compacted."""
    for whole, goal_ms in COMMITS:
        made = scaled(whole)
        with scratch() as folder, connect(folder / "lake") as lake:
            tables = {name: small_commits(lake, name, made) for name in ("appended", "keyed")}
            times = {name: measured(partial(table.to_arrow)) for name, table in tables.items()}
        walls = {name: [wall for wall, _ in found] for name, found in times.items()}
        work = f"read of {made:,} commits of {arrow.FEW} rows"
        bench.add(
            f"{work}, appended", walls["appended"], unit="ms", at_most=goal_ms, note=processors(times["appended"])
        )
        bench.add(f"{work}, keyed", walls["keyed"], unit="ms", note=processors(times["keyed"]))
        ratios = over(walls["keyed"], walls["appended"])
        bench.add(f"{work}, keyed over appended", ratios, unit="times", at_most=KEYED_OVER_APPENDED)


def small_commits(lake: Lake, name: str, made: int) -> Table:
    keyed: dict[str, Any] = {"primary_key": ["id"], "buckets": 1} if name == "keyed" else {}
    table = lake.create_table(f"bench.{name}", SCHEMA, properties=arrow.UNCOMPACTED, **keyed)
    write = table.upsert if keyed else table.append
    for at in range(made):
        write(pa.Table.from_batches([rows(np.arange(at * arrow.FEW, (at + 1) * arrow.FEW))]))
    assert table.count() == made * arrow.FEW
    return table


def measured(work: Callable[[], object]) -> list[tuple[float, float]]:
    """Milliseconds of each run, by the clock and of this process's processors, after a warm-up."""
    found = []
    work()
    for _ in range(RUNS):
        begin, used = time.perf_counter(), time.process_time()
        work()
        found.append((1_000 * (time.perf_counter() - begin), 1_000 * (time.process_time() - used)))
    return found


def processors(found: Sequence[tuple[float, float]]) -> str:
    return f"processor time of the reader: {statistics.median(used for _, used in found):.0f} ms"


def field(bench: Benchmark) -> None:
    """Rows of bench-field, without the other systems but for deltalake beside one column."""
    numbers = count()
    with scratch() as folder:

        def of(word: str, goals: Sequence[float | None], bound: Bound = "most", peer: str | None = None) -> None:
            """The first rows of the work, each with its goal, or left out. The peer is there until the last."""
            begun: list[Team] = []

            @contextmanager
            def start() -> Iterator[Team]:
                names = [LAKETX, *([peer] if peer else [])]
                with team(folder / f"run{next(numbers)}", names, None) as systems:
                    begun.append(systems)
                    yield systems

            for at, (goal, row) in enumerate(zip(goals, FIELD_WORKS[word](start), strict=False), 2):
                if goal is not None:
                    others = {name: runs for name, runs in row.runs.items() if name != LAKETX}
                    said = {f"at_{bound}": goal}
                    bench.add(row.work, row.runs[LAKETX], unit=row.unit, peers=others, note=row.counted, **said)  # type: ignore[arg-type]
                if peer and at == len(goals):
                    begun[0].leave_out(peer, "it was measured")

        of("reads", [None, 50, 90], peer=DELTALAKE)
        of("changes", [25])
        of("files", [30, 10])
        of("commits", [1_000, 2_500], "least")


def arrow_rows(bench: Benchmark) -> None:
    for work in (arrow.wide, arrow.partitions, arrow.deleted):
        with scratch() as folder, connect(folder / "lake") as lake:
            work(bench, lake, peers=False)


def commits(bench: Benchmark) -> None:
    seconds = max(2.0, 6.0 * scale())
    with scratch() as folder, server(folder / "db") as (address, _), MetaClient(address, principal="bench") as client:
        loads = commit.Loads(bench, client, address, seconds)
        loads.overtaken()
        loads.batches(25_000)
        loads.contended({}, 3_000)


def iceberg_appends(bench: Benchmark) -> None:
    with scratch() as folder, connect(folder), iceberg.catalog(folder) as url:
        through = {"type": "rest", "uri": url, "warehouse": "v2"}
        made = [
            iceberg.appended_through(through, f"default.appended_{run}", WRITERS, iceberg.REBASED)
            for run in range(APPEND_RUNS)
        ]
    work = f"{WRITERS} writers, iceberg.append_rebase: appends by pyiceberg"
    rates = [one.rate for one in made]
    bench.add(work, rates, unit="commits/s", at_least=150, note=iceberg.lost(made))


WORKS: Final[dict[str, Callable[[Benchmark], None]]] = {
    "inlined": inlined,
    "field": field,
    "arrow": arrow_rows,
    "commit": commits,
    "iceberg": iceberg_appends,
}


def main() -> int:
    names = chosen(__doc__, WORKS) or list(WORKS)
    bench = Benchmark("goals", "Rows that earlier runs missed", ["pyarrow", "deltalake", "pyiceberg", "grpcio"])
    holds = False
    try:
        for name in names:
            print(f"{name} …", file=sys.stderr, flush=True)
            WORKS[name](bench)
    finally:  # what was measured before a fault is shown, too
        if bench.results:
            holds = bench.finish()
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
