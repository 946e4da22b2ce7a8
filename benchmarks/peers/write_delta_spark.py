"""Delta on Spark on the work of `benchmarks/write.py`, beside plain Spark in the same session.

`python -m benchmarks.peers.write_delta_spark FOLDER ROWS RUNS`, in the environment of Delta on Spark; the seconds of
each work and run as JSON in the last line. Deletion vectors are on, which serves it best.
"""

from __future__ import annotations

import json
import shutil
import sys
from functools import partial
from pathlib import Path

from delta.tables import DeltaTable  # type: ignore[import-not-found, unused-ignore]
from pyspark.sql import DataFrame, SparkSession

from benchmarks.peers.environment import DELTA_SETTINGS
from benchmarks.spark_data import rows, session
from benchmarks.turns import interleaved


def main() -> None:
    folder, count, runs = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    spark = session("4g", **DELTA_SETTINGS)
    rows(spark, count).write.parquet(str(folder / "rows"))
    rows(spark, count // 100, step=100, edition=1).write.parquet(str(folder / "updates"))
    source, updates = (spark.read.parquet(str(folder / name)) for name in ("rows", "updates"))
    print(json.dumps(measured(spark, folder, source, updates, runs)))
    spark.stop()


def measured(
    spark: SparkSession, folder: Path, source: DataFrame, updates: DataFrame, runs: int
) -> dict[str, list[float]]:
    made = str(folder / "made")

    def plain() -> None:
        source.write.mode("overwrite").parquet(str(folder / "plain"))

    def insert() -> None:
        source.write.format("delta").mode("overwrite").save(str(folder / "fresh"))
        shutil.rmtree(folder / "fresh")

    def merge(table: str) -> None:
        found = DeltaTable.forPath(spark, table).alias("target").merge(updates.alias("source"), "target.id = source.id")
        found.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    def scan(_: str) -> None:
        spark.read.parquet(str(folder / "rows")).where("amount < 10").select("id").collect()

    def delete(table: str) -> None:
        DeltaTable.forPath(spark, table).delete("amount < 10")

    def update(table: str) -> None:
        DeltaTable.forPath(spark, table).update("amount < 10", {"amount": "amount + 1"})

    found = interleaved({"plain": plain, "insert": insert}, runs=runs, warm_ups=1)
    source.write.format("delta").save(made)
    for name, work in {"merge": merge, "scan": scan, "delete": delete, "update": update}.items():
        found[name] = []
        for run in range(-1, runs):
            table = str(folder / f"{name}{run}")  # Delta remembers what it knows of a path
            shutil.copytree(made, table)
            seconds = interleaved({name: partial(work, table)}, runs=1, warm_ups=0)[name]
            shutil.rmtree(table)
            found[name] += seconds if run >= 0 else []
    return found


if __name__ == "__main__":
    main()
