"""LakeTX without Spark beside DuckLake, deltalake and pyiceberg on the same works. `make bench-field`.

ARGS choose: `commits` (of ten rows, by one writer and by 16), `conflicts` (16 writers of the same rows), `reads` (ten
million rows: clean, deleted, one column, time travel), `changes` (upserts and deletes of one per cent of a million
rows), `files` (plans of 10,000 files), `small` (reads of 1,000 and 10,000 small commits). JSON and SCALE as for
bench-commit. DuckLake keeps its catalog in a DuckDB file, in SQLite, and in PostgreSQL if its programs are installed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from rich.console import Console

from benchmarks.field.postgres import Postgres, postgres
from benchmarks.field.ranking import Row, ranking_table
from benchmarks.field.system import MODULES, POSTGRES
from benchmarks.field.team import Team, team
from benchmarks.field.works import WORKS
from benchmarks.frame import Benchmark, scratch
from benchmarks.words import chosen


def main() -> int:
    words = chosen(__doc__, WORKS)
    bench = Benchmark("field", "LakeTX without Spark beside the field", ["duckdb", "deltalake", "pyiceberg", "pyarrow"])
    numbers = count()
    listed: list[Row] = []
    with scratch() as folder, postgres(folder) as server:
        say(f"PostgreSQL {server.version()}" if server else "DuckLake in PostgreSQL is left out: no PostgreSQL here")

        @contextmanager
        def start() -> Iterator[Team]:
            with team(folder / f"run{next(numbers)}", names(server), server) as systems:
                yield systems

        for word in words or WORKS:
            say(f"{word} …")
            for row in WORKS[word](start):
                say(f"{row.work}: first {row.lead}")
                row.add_to(bench)
                listed.append(row)
    holds = bench.finish()
    Console(width=None if sys.stdout.isatty() else 150).print(ranking_table(listed))
    return 0 if holds else 1


def names(server: Postgres | None) -> list[str]:
    return [name for name in MODULES if server is not None or name != POSTGRES]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
