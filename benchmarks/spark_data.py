"""The rows that the Spark benchmarks use, a session for them, and fair timing. Needs nothing but pyspark.

The row of an id is always the same, wherever and by whichever Spark it is made: about 80 bytes, half of them a text
that hardly compresses. Rows come in the order of their ids; `ts` rises with them, all other columns jump.

    rows(spark, scaled(ROWS)).write.parquet(folder)
    times = interleaved({"plain": plain, "LakeTX": ours})
    bench.add("scan", over(times["LakeTX"], times["plain"]), unit="times plain", at_most=1.05)
"""

from __future__ import annotations

import os
import sys
from typing import Final

from pyspark.sql import DataFrame, SparkSession

ROWS: Final = 10_000_000
FILES: Final = 16
CUSTOMERS: Final = 100_000
DAYS: Final = 30
SCHEMA: Final = "id bigint, amount double, cust string, day string, ts timestamp, pad string"
COLUMNS: Final = ("id", "amount", "cust", "day", "ts", "pad")
RUNS: Final = 5
SETTINGS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}
_FIRST_SECOND: Final = 1_760_000_000


def rows(
    spark: SparkSession, count: int, *, start: int = 0, step: int = 1, files: int = FILES, edition: int = 0
) -> DataFrame:
    """`count` rows of the ids start, start + step, …, in so many tasks; another edition has other values per id."""
    ids = spark.range(start, start + count * step, step, files)
    word = f"xxhash64(id, {edition})"
    day = f"cast(pmod(shiftright({word}, 20), {DAYS}) as int)"
    return ids.selectExpr(
        "id",
        f"round(pmod({word}, 1000000) / 100, 2) as amount",
        f"concat('cust-', lpad(cast(pmod(xxhash64(id, {edition}, 1), {CUSTOMERS}) as string), 6, '0')) as cust",
        f"date_format(date_add(date'2026-01-01', {day}), 'yyyy-MM-dd') as day",
        f"timestamp_seconds({_FIRST_SECOND} + id + {edition}) as ts",
        f"concat(md5(cast(concat(id, '/', {edition}) as binary)), '-pad') as pad",
    )


def aggregation(frame: DataFrame) -> None:
    """Three columns of all rows."""
    frame.groupBy("day").agg({"amount": "sum", "ts": "max", "*": "count"}).collect()


def all_columns(frame: DataFrame) -> None:
    """Every value of every row, in a single number."""
    hashed = ", ".join(COLUMNS)
    frame.selectExpr(f"bit_xor(xxhash64({hashed}))").collect()


def session(memory: str = "6g", **settings: str) -> SparkSession:
    """Two cores, no UI, loopback alone. More settings come as a dict: session(**{"spark.sql.…": "…"})."""
    from worker.spark.java import prepare_java  # noqa: PLC0415 - not in every tree whose rows come from here

    os.environ["PYSPARK_PYTHON"] = sys.executable  # of Spark's Python workers
    prepare_java()
    builder = SparkSession.builder.master("local[2]")
    for name, value in {**SETTINGS, "spark.driver.memory": memory, **settings}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
