"""What a refresh of a materialized view costs beside a full one. `make bench-views`; SCALE as elsewhere.

The rows of orders are partitioned by day. 0.1 % of them change: on one day, or all over the table.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import date, timedelta
from statistics import median
from typing import Final

import numpy as np
import pyarrow as pa

from benchmarks.frame import Benchmark, scaled, scratch
from benchmarks.words import chosen
from laketx import Lake, MaterializedView, Table, connect

ROWS: Final = 2_000_000
DAYS: Final = 100
BUYERS: Final = 100_000
RUNS: Final = 3
FIRST: Final = date(2026, 1, 1)
BY_DAY: Final = "SELECT day, count(*) AS n, sum(amount) AS total, max(amount) AS best FROM shop.orders GROUP BY day"
BY_BUYER: Final = "SELECT buyer, count(*) AS n, sum(amount) AS total FROM shop.orders GROUP BY buyer"
LARGE: Final = "SELECT id, day, amount * 2 AS double FROM shop.orders WHERE amount > 900"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def orders(rng: np.random.Generator, count: int, day: int | None = None) -> pa.Table:
    days = rng.integers(0, DAYS, count) if day is None else np.full(count, day)
    first = np.datetime64(FIRST, "D")
    return pa.table(
        {
            "id": rng.integers(0, 1 << 60, count),
            "day": pa.array(first + days),
            "buyer": rng.integers(0, BUYERS, count),
            "amount": rng.integers(1, 1_000, count),
        }
    )


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def refreshed(view: MaterializedView, change: Callable[[], object]) -> tuple[list[float], list[float]]:
    """Return the seconds of incremental refreshes, and of full ones after the same kind of change."""
    parts: list[float] = []
    wholes: list[float] = []
    for _ in range(RUNS + 1):
        change()
        parts.append(seconds(view.refresh))
        change()
        wholes.append(seconds(lambda: view.refresh(full=True)))
    assert view.verify().holds
    return parts[1:], wholes[1:]


def measure(bench: Benchmark, lake: Lake, table: Table, rng: np.random.Generator) -> None:
    count = max(scaled(ROWS) // 1_000, 1)
    changes: dict[str, Callable[[], object]] = {
        "on one day": lambda: table.append(orders(rng, count, 40)),
        "on all days": lambda: table.append(orders(rng, count)),
        "by updates of one day": lambda: table.update(
            {"amount": "amount + 1"}, where=f"day = '{FIRST + timedelta(40)}' AND buyer < {BUYERS // 10}"
        ),
    }
    for name, query in (("GROUP BY day", BY_DAY), ("GROUP BY buyer", BY_BUYER), ("a filter", LARGE)):
        say(f"{name}: the first refresh")
        view = lake.create_materialized_view(f"shop.v{name.replace(' ', '_').lower()}", query)
        for where, change in changes.items():
            parts, wholes = refreshed(view, change)
            share = median(parts) / median(wholes)
            say(f"{name}, {where}: {share:.2f} of a full refresh")
            bench.add(
                f"{name}, 0.1 % {where}", parts, unit="s", peers={"full refresh": wholes}, details={"share": share}
            )
        view.drop()


def main() -> None:
    chosen(__doc__)
    bench = Benchmark("views", "Refreshes of materialized views", packages=["duckdb", "sqlglot", "pyarrow"])
    rng = np.random.default_rng(1)
    with scratch() as folder, connect(folder / "lake") as lake:
        columns = "id bigint, day date, buyer bigint, amount bigint"
        table = lake.create_table("shop.orders", columns, partition_by=["day"])
        for _ in range(4):
            table.append(orders(rng, scaled(ROWS) // 4))
        measure(bench, lake, table, rng)
    raise SystemExit(0 if bench.finish() else 1)


if __name__ == "__main__":
    main()
