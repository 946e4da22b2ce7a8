"""What a refresh of a materialized view costs beside full ones, ours and Spark's. `make bench-views`.

The rows of orders are partitioned by day; there are a tenth as many buyers. Some rows change: on one day, or all over
the table. Spark only computes the query and writes nothing. With SCALE=5 the orders are 10 million, as in the targets.
The sources are compacted before each case, so that none pays for the small files of those before; the word
small-files leaves that out, and no-peers Spark. On a machine that does other work the processor's time says more: the
list has its share of a full refresh, too, and each line says whether that holds or missed the target.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.frame import Benchmark, scaled, scratch
from benchmarks.words import NO_PEERS, chosen
from laketx import Lake, MaterializedView, Table, connect
from worker.spark.catalog_jar import catalog_settings, jar_setting
from worker.spark.java import prepare_java

ROWS: Final = 2_000_000
DAYS: Final = 100
RUNS: Final = 3
FIRST: Final = date(2026, 1, 1)
SMALL_CHANGE: Final = 10_000  # rows, of a refresh in a process of its own
KEYS_PER_REGION: Final = 100
ALONE: Final = "alone"  # in a process of its own
SMALL_FILES: Final = "small-files"
LOCAL: Final = {"spark.driver.host": "127.0.0.1", "spark.ui.showConsoleProgress": "false", "spark.ui.enabled": "false"}

Change = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Case:
    """A view, what changes before its refreshes, and the most that one may take, as a share of a full one."""

    word: str
    name: str
    query: str
    changes: Sequence[tuple[str, float]]


CASES: Final = (
    Case(
        "days",
        "GROUP BY day",
        "SELECT day, count(*) AS n, sum(amount) AS total FROM shop.orders GROUP BY day",
        (("0.1 % on one day", 0.1), ("0.1 % on all days", 0.1), ("0.1 % by updates of one day", 0.1)),
    ),
    Case(
        "buyers",
        "GROUP BY buyer",
        "SELECT buyer, count(*) AS n, sum(amount) AS total FROM shop.orders GROUP BY buyer",
        (("0.1 % on one day", 0.1), ("0.1 % on all days", 0.1), ("1 % on one day", 0.2), ("1 % on all days", 0.2)),
    ),
    Case(
        "join",
        "join and GROUP BY",
        "SELECT b.region, count(*) AS n, sum(o.amount) AS total "
        "FROM shop.orders o JOIN shop.buyers b ON o.buyer = b.buyer GROUP BY b.region",
        (("0.1 % on one day", 0.15), ("0.1 % of the buyers", 0.15)),
    ),
    Case(
        "extremes",
        "MIN and MAX",
        "SELECT buyer, min(amount) AS least, max(amount) AS most FROM shop.orders GROUP BY buyer",
        (("0.1 % on one day", 0.3), ("0.1 % by updates of one day", 0.3)),
    ),
    Case(
        "distinct",
        "COUNT(DISTINCT)",
        "SELECT buyer, count(DISTINCT day) AS days FROM shop.orders GROUP BY buyer",
        (("0.1 % on one day", 0.3), ("0.1 % by updates of one day", 0.3)),
    ),
    Case(
        "left-join",
        "a left join",
        "SELECT b.buyer, b.region, o.id, o.amount FROM shop.buyers b LEFT JOIN shop.orders o ON o.buyer = b.buyer",
        (("0.1 % on one day", 0.3), ("0.1 % of the buyers", 0.3)),
    ),
    Case(
        "window",
        "a window per key",
        "SELECT id, buyer, amount, rank() OVER (PARTITION BY buyer ORDER BY amount) AS place FROM shop.orders",
        (("0.1 % on one day", 0.3),),
    ),
    Case(
        "filter",
        "a filter",
        "SELECT id, day, amount * 2 AS double FROM shop.orders WHERE amount > 900",
        (("0.1 % on one day", 0.1), ("0.1 % on all days", 0.1)),
    ),
)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def buyers_count() -> int:
    return max(scaled(ROWS) // 10, 100)


def orders(rng: np.random.Generator, count: int, day: int | None = None) -> pa.Table:
    days = rng.integers(0, DAYS, count) if day is None else np.full(count, day)
    first = np.datetime64(FIRST, "D")
    return pa.table(
        {
            "id": rng.integers(0, 1 << 60, count),
            "day": pa.array(first + days),
            "buyer": rng.integers(0, buyers_count(), count),
            "amount": rng.integers(1, 1_000, count),
        }
    )


def buyers() -> pa.Table:
    keys = np.arange(buyers_count())
    return pa.table({"buyer": keys, "region": keys // KEYS_PER_REGION})


def changes(rng: np.random.Generator, table: Table, known: Table) -> dict[str, Change]:
    count = max(scaled(ROWS) // 1_000, 1)
    on_one_day = f"day = '{FIRST + timedelta(40)}' AND buyer < {buyers_count() // 10}"  # a tenth of a hundredth

    def move() -> None:
        first = int(rng.integers(buyers_count() // 2))
        known.update({"region": "region + 1"}, where=f"buyer >= {first} AND buyer < {first + buyers_count() // 1_000}")

    return {
        "0.1 % on one day": lambda: table.append(orders(rng, count, 40)),
        "0.1 % on all days": lambda: table.append(orders(rng, count)),
        "0.1 % by updates of one day": lambda: table.update({"amount": "amount + 1"}, where=on_one_day),
        "1 % on one day": lambda: table.append(orders(rng, 10 * count, 41)),
        "1 % on all days": lambda: table.append(orders(rng, 10 * count)),
        "0.1 % of the buyers": move,
    }


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


@dataclass(frozen=True, slots=True)
class Times:
    """The seconds of one refresh, and those that processors worked for this process meanwhile."""

    seconds: float
    processor: float


def timed(work: Callable[[], object]) -> Times:
    begin = time.process_time()
    whole = seconds(work)
    return Times(whole, time.process_time() - begin)


def refreshed(view: MaterializedView, change: Change) -> tuple[list[Times], list[Times]]:
    """Return the times of incremental refreshes, and of full ones after the same kind of change."""
    parts: list[Times] = []
    wholes: list[Times] = []
    for _ in range(RUNS + 1):
        change()
        parts.append(timed(lambda: view.refresh(incremental=True)))
        change()
        wholes.append(timed(lambda: view.refresh(full=True)))
    assert view.verify().holds
    return parts[1:], wholes[1:]


def by_spark(spark: SparkSession, query: str) -> list[float]:
    frame = spark.sql(query.replace("shop.", "lake.shop."))
    return [seconds(frame.write.format("noop").mode("overwrite").save) for _ in range(RUNS + 1)][1:]


def measure(
    bench: Benchmark,
    lake: Lake,
    spark: SparkSession | None,
    known: dict[str, Change],
    cases: Sequence[Case],
    compacted: Sequence[Table],
) -> None:
    for case in cases:
        say(f"{case.name}: the first refresh")
        view = lake.create_materialized_view("shop.measured", case.query)
        for name, share_most in case.changes:
            for table in compacted:
                table.compact()
            parts, wholes = refreshed(view, known[name])
            figures, fulls = [part.seconds for part in parts], [whole.seconds for whole in wholes]
            peers = {"full refresh": fulls} | ({} if spark is None else {"Spark's query": by_spark(spark, case.query)})
            share = median(figures) / min(map(median, peers.values()))
            of_processor = median(part.processor for part in parts) / median(whole.processor for whole in wholes)
            verdict = "holds" if of_processor <= share_most else "missed"
            say(
                f"{case.name}, {name}: {share:.2f} of the faster full one{'' if compacted else ', among small files'}; "
                f"processor time {of_processor:.2f} of our full one, at most {share_most}: {verdict}"
            )
            bench.add(
                f"{case.name}, {name}",
                figures,
                unit="s",
                at_most=share_most * median(fulls),
                peers=peers,
                details={
                    "share of a full refresh": median(figures) / median(fulls),
                    "share of the faster": share,
                    "share of a full refresh's processor time": of_processor,
                },
            )
        view.drop()


def small_and_idle(bench: Benchmark, folder: Path, rng: np.random.Generator) -> None:
    """A refresh in a process of its own, of a lake that no other process has open; and one with nothing to do."""
    with connect(folder / "small") as lake:
        table = lake.create_table("shop.orders", "id bigint, day date, buyer bigint, amount bigint")
        table.append(orders(rng, 10 * SMALL_CHANGE))
        lake.create_materialized_view("shop.small", "SELECT day, sum(amount) AS total FROM shop.orders GROUP BY day")
        command = [sys.executable, "-m", "metaservice.cli", "--folder", str(folder / "small"), "view", "refresh"]
        command.append("shop.small")

        def refresh() -> float:
            return seconds(lambda: subprocess.run(command, check=True, capture_output=True))

        cold: list[float] = []
        idle: list[float] = []
        for _ in range(RUNS + 1):
            table.append(orders(rng, SMALL_CHANGE))
            cold.append(refresh())
            idle.append(refresh())
    bench.add("10,000 rows changed, in a process of its own", cold[1:], unit="s", at_most=1.0)
    bench.add("nothing to do, in a process of its own", idle[1:], unit="s")


def main() -> None:
    words = chosen(__doc__, [*(case.word for case in CASES), ALONE, SMALL_FILES, NO_PEERS])
    is_compacted, has_peers = SMALL_FILES not in words, NO_PEERS not in words
    words = [word for word in words if word not in (SMALL_FILES, NO_PEERS)]
    title = (
        f"Refreshes of materialized views, sources {'compacted before each case' if is_compacted else 'in small files'}"
    )
    bench = Benchmark("views", title, packages=["duckdb", "sqlglot", "pyarrow", "pyspark"])
    cases = [case for case in CASES if not words or case.word in words]
    rng = np.random.default_rng(1)
    spark = session() if has_peers else None
    with scratch() as folder, connect(folder / "lake", spark) as lake:
        columns = "id bigint, day date, buyer bigint, amount bigint"
        table = lake.create_table("shop.orders", columns, partition_by=["day"])
        for _ in range(4):
            table.append(orders(rng, scaled(ROWS) // 4))
        known = lake.create_table("shop.buyers", "buyer bigint, region bigint")
        known.append(buyers())
        if not words or ALONE in words:
            small_and_idle(bench, folder, rng)
        if spark is not None:
            for key, value in catalog_settings("lake", str(folder / "lake"), str(folder / "lake")).items():
                spark.conf.set(key, value)
        measure(bench, lake, spark, changes(rng, table, known), cases, [table, known] if is_compacted else [])
    if spark is not None:
        spark.stop()
    raise SystemExit(0 if bench.finish() else 1)


def session() -> SparkSession:
    prepare_java()
    return SparkSession.builder.master("local[2]").config(map={**jar_setting(), **LOCAL}).getOrCreate()


if __name__ == "__main__":
    main()
