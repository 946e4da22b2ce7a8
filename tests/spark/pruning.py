"""Tables that every writer wrote to, for tests of what reads leave out: by writer and part, with each type's values.

A part is a partition, so a file has the values of one part alone: low ones, high ones, some with NaN, zeros, NULLs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from laketx import Lake, Table
from protos.laketx.v1 import common_pb2
from tests.spark.sessions import INTERPRETED
from worker.spark.session import with_settings

NAN, INF = float("nan"), float("inf")
REPEATS: Final = 20  # so that writers take dictionaries
Counts = dict[tuple[str, str, str], int]
APPEND_WRITERS: Final = ("spark", "minor", "cluster", "pyarrow", "polars", "outside")
KEYED_WRITERS: Final = ("spark", "few", "minor", "major")
QUICK_PARTS: Final = ("high", "odd", "negative zeros")
PARTS: Final = ("low", "high", "odd", "negative zeros", "zeros", "nulls")


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# Of a type: Spark's word, pyarrow's, the values by part, and literals to compare with.
TYPES: dict[str, tuple[str, Any, Sequence[Sequence[Any]], Sequence[str]]] = {
    "f64": (
        "double",
        pa.float64(),
        [[-1.5, 2.0], [7.5, INF], [NAN, 1.0], [-0.0, -0.0], [0.0, 0.0], [None, None]],
        ["5.0D", "0.0D", "-0.0D", "double('NaN')", "double('Infinity')", "5", "1e300"],
    ),
    "f32": (
        "float",
        pa.float32(),
        [[-INF, 2.5], [7.5, 3e38], [NAN, NAN], [-0.0, -1.0], [0.0, 1.0], [None, NAN]],
        ["5.0", "cast(0 as float)", "-0.0D", "float('NaN')", "0.1"],
    ),
    "i64": (
        "bigint",
        pa.int64(),
        [[-(1 << 63), -1], [5, (1 << 63) - 1], [0, 1], [1, 1], [2, 3], [None, None]],
        ["1", "5"],
    ),
    "i8": ("tinyint", pa.int8(), [[-128, -1], [5, 127], [0, 1], [1, 1], [2, 3], [None, None]], ["1", "127"]),
    "d9": (
        "decimal(9,2)",
        pa.decimal128(9, 2),
        [[Decimal("-9999999.99"), Decimal("-0.01")], [Decimal("5.00"), Decimal("9999999.99")]]
        + [[Decimal("0.00"), Decimal("1.50")]] * 2
        + [[Decimal("-1.00"), Decimal("1.00")], [None, None]],
        ["1.5", "-0.01", "5"],
    ),
    "d38": (
        "decimal(38,4)",
        pa.decimal128(38, 4),
        [[Decimal("-" + "9" * 34 + ".9999"), Decimal("-256.0000")], [Decimal("127.0000"), Decimal("9" * 34)]]
        + [[Decimal("-1.0000"), Decimal("1.0000")]] * 2
        + [[Decimal("0.0001"), Decimal("255.0000")], [None, None]],
        ["127", "-256", "0.0001"],
    ),
    "flag": (
        "boolean",
        pa.bool_(),
        [[False, False], [True, True], [True, False], [None, True], [False, None], [None, None]],
        ["true"],
    ),
    "text": (
        "string",
        pa.string(),
        [
            ["", "a" * 100],
            ["zz", "\U0001f600" * 90],
            ["a" * 64, "a" * 65],
            ["\ud7ff", "\ue000"],
            ["Z", "b"],
            [None, None],
        ],
        [f"'{'a' * 64}'", "'b'", "'\U0001f600'", "'\ue000'", "''"],
    ),
    "raw": (
        "binary",
        pa.binary(),
        [[b"", b"\x00"], [b"\x80", b"\xff" * 100], [b"a", b"b"], [b"\x7f", b"\x80"], [b"c", b"\x00\xff"], [None, None]],
        ["x'80'", "x'62'"],
    ),
    "day": (
        "date",
        pa.date32(),
        [
            [date(1, 1, 1), date(1582, 10, 4)],
            [date(2026, 11, 1), date(9999, 12, 31)],
            [date(1582, 10, 15), date(1969, 12, 31)],
        ]
        + [[date(1970, 1, 1)] * 2] * 2
        + [[None, None]],
        ["date'1582-10-04'", "'1970-01-01'", "date'1582-10-15'"],
    ),
    "at": (
        "timestamp",
        pa.timestamp("us", "UTC"),
        [
            [moment("0001-01-01"), moment("1582-10-04T23:59:59.999999")],
            [moment("2026-11-01T00:00:00.000001"), moment("9999-12-31")],
        ]
        + [[moment("1969-12-31T23:59:59.999999"), moment("1970-01-01")]] * 3
        + [[None, None]],
        ["'1970-01-01 00:00:00'", "timestamp_ltz'1582-10-05 00:00:00'", "'2026-11-01'"],
    ),
    "local": (
        "timestamp_ntz",
        pa.timestamp("us"),
        [[datetime(1, 1, 1), datetime(1899, 12, 31)], [datetime(2026, 11, 1, 2, 30), datetime(9999, 12, 31)]]  # noqa: DTZ001
        + [[datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(1970, 1, 1)]] * 3  # noqa: DTZ001
        + [[None, None]],
        ["timestamp_ntz'1970-01-01 00:00:00'", "'2026-11-01 02:30:00'"],
    ),
    "s": (
        "struct<f:double,g:struct<h:float>,n:int>",
        pa.struct([("f", pa.float64()), ("g", pa.struct([("h", pa.float32())])), ("n", pa.int32())]),
        [
            [{"f": -1.5, "g": {"h": 1.0}, "n": 1}, {"f": 2.0, "g": {"h": -0.0}, "n": 2}],
            [{"f": 7.5, "g": None, "n": 7}, {"f": INF, "g": {"h": INF}, "n": 8}],
            [{"f": NAN, "g": {"h": 0.5}, "n": 3}, {"f": 1.0, "g": {"h": NAN}, "n": 3}],
            [{"f": -0.0, "g": {"h": -0.0}, "n": 3}, {"f": -0.0, "g": {"h": -0.0}, "n": 3}],
            [{"f": 0.0, "g": {"h": 0.0}, "n": 3}, {"f": 0.0, "g": {"h": 0.0}, "n": None}],
            [None, {"f": None, "g": {"h": None}, "n": None}],
        ],
        [],
    ),
    "fs": (
        "array<double>",
        pa.list_(pa.float64()),
        [[[1.0], []], [[7.5], [INF]], [[NAN, 1.0], [1.0]], [[-0.0], None], [[0.0], [None]], [None, None]],
        [],
    ),
}
NESTED: Final = ("s", "fs")
FOR_LONG_PLANS: Final = {  # of few rows: what Spark does to be fast with many is in the way
    "spark.sql.adaptive.enabled": "false",
    **INTERPRETED,
    "spark.sql.files.minPartitionNum": "1",
}
SCANS_MAX: Final = 14  # at once: more fill the heap of a test's Spark
COLUMNS: Final = ", ".join(f"{name} {word}" for name, (word, _, _, _) in TYPES.items())
PLACES: Final = ("writer", "part")
SCHEMA: Final = f"id bigint not null, writer string not null, part string not null, {COLUMNS}"


def rows_of(writer: str, parts: Sequence[str], *, half: int | None = None, places: bool = True) -> pa.Table:
    """Of these parts; with `half` the one half of them, with as many values."""
    at = [(part, number) for part in parts for number in range(2 * REPEATS) if half in (None, number // 2 % 2)]
    columns: dict[str, pa.Array] = {
        "id": pa.array([PARTS.index(part) * 1_000 + number for part, number in at], pa.int64())
    }
    if places:
        columns["writer"] = pa.array([writer] * len(at))
        columns["part"] = pa.array([part for part, _ in at])
    for name, (_, kind, values, _) in TYPES.items():
        columns[name] = pa.array([values[PARTS.index(part)][number % 2] for part, number in at], kind)
    return pa.table(columns)


def oracle(spark: SparkSession, tests: Sequence[str]) -> dict[tuple[str, str], int]:
    """How many rows of a part match a condition, if some do, by condition and part: no reader of files has a say."""
    rows = frame(spark, rows_of("", PARTS))
    found = rows.selectExpr("part", *[f"{test} as c{at}" for at, test in enumerate(tests)]).toArrow().to_pydict()
    counts = Counter(
        (test, part)
        for at, test in enumerate(tests)
        for part, holds in zip(found["part"], found[f"c{at}"], strict=True)
        if holds
    )
    return dict(counts)


def frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    return spark.createDataFrame(rows).withColumn("local", sf.col("local").cast("timestamp_ntz"))


# -- tables ------------------------------------------------------------------------------------------------------------


def append_table(lake: Lake, name: str, parts: Sequence[str], folder: Path) -> Table:
    """In each partition the files of one writer."""
    spark = lake.spark
    table = lake.create_table(name, SCHEMA, partition_by=list(PLACES))
    table.insert(together(spark, ("minor",), parts, 0))
    table.insert(together(spark, ("minor",), parts, 1).unionAll(together(spark, ("spark", "cluster"), parts, None)))
    table.compact("minor", partition=partitions("minor", parts))
    table.compact("cluster", partition=partitions("cluster", parts), sort_by=["id"])
    for part in parts:
        write_outside(part, folder)
    with with_settings(spark, {"spark.sql.parquet.outputTimestampType": "INT96"}):
        rows = frame(spark, rows_of("outside", parts)).coalesce(1)
        rows.write.mode("append").partitionBy(*PLACES).parquet(str(folder))
    lake.import_parquet(folder, name)
    return table.refresh()


def keyed_table(lake: Lake, name: str, parts: Sequence[str]) -> Table:
    spark = lake.spark
    table = lake.create_table(name, SCHEMA, primary_key=["id", *PLACES], buckets=1, partition_by=list(PLACES))
    table.insert(together(spark, ("minor",), parts, 0))
    table.insert(together(spark, ("minor",), parts, 1).unionAll(together(spark, ("spark", "major"), parts, None)))
    merge = table.merge(together(spark, ("few",), parts, None), on=["id", *PLACES])
    merge.when_not_matched_insert().execute()
    table.compact("minor", partition=partitions("minor", parts))
    table.compact("major", partition=partitions("major", parts))
    return table.refresh()


def together(spark: SparkSession, writers: Sequence[str], parts: Sequence[str], half: int | None) -> DataFrame:
    return frame(spark, pa.concat_tables([rows_of(writer, parts, half=half) for writer in writers])).coalesce(1)


def partitions(writer: str, parts: Sequence[str]) -> list[dict[str, str]]:
    return [{"writer": writer, "part": part} for part in parts]


def write_outside(part: str, folder: Path) -> None:
    """By others, in folders such as Spark's."""
    rows = rows_of("", [part], places=False)
    to_polars = pl.from_arrow(rows)
    assert isinstance(to_polars, pl.DataFrame)
    for writer in ("pyarrow", "polars"):
        path = folder / f"writer={writer}" / f"part={part}" / "a.parquet"
        path.parent.mkdir(parents=True)
        if writer == "pyarrow":
            pq.write_table(rows, path, write_page_index=True)
        else:
            to_polars.write_parquet(path, statistics="full")


# -- conditions --------------------------------------------------------------------------------------------------------


def conditions() -> list[str]:
    """Every operator with every literal of every type."""
    found = []
    for name, (_, _, _, literals) in TYPES.items():
        if name not in NESTED:
            found += [f"{name} is null", f"{name} is not null", f"not ({name} is null) and id >= 0"]
        for at, literal in enumerate(literals):
            other = literals[at - 1]
            found += [f"{name} {operator} {literal}" for operator in ("=", "<>", "<", "<=", ">", ">=", "<=>")]
            found += [f"not ({name} {operator} {literal})" for operator in ("=", "<", "<=", ">", "<=>")]
            found += [
                f"{literal} < {name}",
                f"{name} in ({literal}, {other})",
                f"{name} not in ({literal}, {other})",
                f"{name} in ({literal}, null)",
                f"{name} between {other} and {literal}",
                f"not ({name} between {literal} and {other})",
                f"{name} > {literal} or {name} is null",
            ]
    found += [
        "isnan(f64)",
        "not isnan(f64)",
        "f32 = f64",
        "f64 > 5 and f32 > 5",
        "f64 > 5 or f32 < -5",
        "text like 'a%'",
    ]
    for field in ("s.f", "s.g.h"):
        found += [f"{field} {test}" for test in ("> 5", "= 0.0", "<= -0.0D", ">= 0.0D", "= double('NaN')", "is null")]
    found += [
        "s.n > 5",
        "s.f > 5 and s.n < 5",
        "not (s.f <= 5)",
        "array_contains(fs, 1.0D)",
        "get(fs, 0) > 5",
        "s is null",
    ]
    return found


FEW_CONDITIONS: Final = (
    "f64 > 5", "not (f64 <= 5)", "f64 in (double('NaN'), 77)", "f64 = 0.0D", "f64 <= -0.0D", "f32 = float('NaN')",
    "s.f > 5", "s.g.h = 0.0D", "d38 >= 127", "text > 'b'", "raw >= x'80'", "at < '1970-01-01 00:00:00'",
)  # fmt: skip


def matching(rows: DataFrame, tests: Sequence[str]) -> Counts:
    """How many rows match a condition, if some do, by condition, writer and part; a scan for each condition."""
    spark = rows.sparkSession
    before = {name: spark.conf.get(name, None) for name in FOR_LONG_PLANS}
    for name, value in FOR_LONG_PLANS.items():
        spark.conf.set(name, value)
    rows.createOrReplaceTempView("pruned_rows")
    counts: Counts = {}
    try:
        for first in range(0, len(tests), SCANS_MAX):
            some = tests[first : first + SCANS_MAX]
            parts = [f"select {at} as c, writer, part from pruned_rows where {test}" for at, test in enumerate(some)]
            found = spark.sql(" union all ".join(parts)).groupBy("c", *PLACES).count().collect()
            counts |= {(some[row["c"]], row["writer"], row["part"]): row["count"] for row in found}
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)
    return counts


def places_planned(entries: Sequence[common_pb2.LiveEntry]) -> set[tuple[str, str]]:
    """By writer and part."""
    found = set()
    for entry in entries:
        values = {one.column: one.value.text for one in entry.file.partition.values}
        found.add((values["writer"], values["part"]))
    return found
