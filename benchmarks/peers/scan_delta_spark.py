"""Delta on Spark on the dirty tables of `benchmarks/scan.py`, over plain Spark in the same session.

`python -m benchmarks.peers.scan_delta_spark FOLDER ROWS RUNS GROUP…`, in the environment of Delta on Spark; the
ratios of each work and run as JSON in the last line. Deletion vectors are on.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from delta.tables import DeltaTable  # type: ignore[import-not-found, unused-ignore]
from pyspark.sql import DataFrame, SparkSession

from benchmarks.peers.environment import DELTA_SETTINGS
from benchmarks.spark_data import SCHEMA, aggregation, all_columns, rows, session
from benchmarks.turns import interleaved, over

WORKS = {"deleted": "append table, 1 % deleted", "one": "keyed, one delta", "ten": "keyed, ten deltas"}
MERGES = {"deleted": 0, "one": 1, "ten": 10}
Use = Callable[[DataFrame], None]
HUNDREDTH = "pmod(xxhash64(id, {}), 100) = 0"


def main() -> None:
    folder, count, runs, groups = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    spark = session(**DELTA_SETTINGS)
    plain = str(folder / "plain")
    rows(spark, count).write.parquet(plain)
    found = {}
    for group in groups:
        path = str(folder / group)
        make(spark, path, count, MERGES[group])
        for name, use in (("aggregation", aggregation), ("all columns", all_columns)):
            ways = {"plain": partial(plain_scan, spark, plain, use), "delta": partial(delta_scan, spark, path, use)}
            times = interleaved(ways, runs=runs)
            found[f"{WORKS[group]}, {name}"] = over(times["delta"], times["plain"])
            print(group, name, found[f"{WORKS[group]}, {name}"], file=sys.stderr, flush=True)
    print(json.dumps(found))
    spark.stop()


def plain_scan(spark: SparkSession, path: str, use: Use) -> None:
    use(spark.read.schema(SCHEMA).parquet(path))


def delta_scan(spark: SparkSession, path: str, use: Use) -> None:
    use(spark.read.format("delta").load(path))


def make(spark: SparkSession, path: str, count: int, merges: int) -> None:
    """The rows, with a hundredth of them deleted, or merged so often."""
    base = rows(spark, count)
    base.write.format("delta").save(path)
    table = DeltaTable.forPath(spark, path)
    if not merges:
        table.delete(HUNDREDTH.format(0))
    for number in range(merges):
        changed = base.where(HUNDREDTH.format(number)).withColumn("amount", base["amount"] + number + 1)
        merge = table.alias("t").merge(changed.alias("s"), "t.id = s.id")
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()


if __name__ == "__main__":
    main()
