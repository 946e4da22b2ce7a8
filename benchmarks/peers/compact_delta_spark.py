"""Delta on Spark on the work of `benchmarks/compact.py`: OPTIMIZE of many small files, beside plain Spark.

`python -m benchmarks.peers.compact_delta_spark FOLDER RUNS`, in the environment of Delta on Spark; FOLDER/small has the
small files. Seconds and bytes written as JSON in the last line.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from delta.tables import DeltaTable  # type: ignore[import-not-found, unused-ignore]

from benchmarks.peers.environment import DELTA_SETTINGS
from benchmarks.spark_data import session
from benchmarks.turns import interleaved


def main() -> None:
    folder, runs = Path(sys.argv[1]), int(sys.argv[2])
    spark = session("4g", **DELTA_SETTINGS)
    small = sorted(str(path) for path in (folder / "small").glob("*.parquet"))
    table, copy, target = folder / "delta-spark", str(folder / "delta-spark-copy"), str(folder / "plain-there")
    for path in small:
        spark.read.parquet(path).coalesce(1).write.format("delta").mode("append").save(str(table))
    found: dict[str, list[float]] = {"seconds": [], "plain": []}
    for run in range(-1, runs):
        shutil.copytree(table, copy)
        ways = {
            "plain": lambda: spark.read.parquet(*small).write.mode("overwrite").parquet(target),
            "seconds": lambda: DeltaTable.forPath(spark, copy).optimize().executeCompaction(),
        }
        for name, (seconds,) in interleaved(ways, runs=1, warm_ups=0).items():
            found[name] += [seconds] if run >= 0 else []
        found["bytes"] = [float(spark.sql(f"DESCRIBE DETAIL delta.`{copy}`").collect()[0]["sizeInBytes"])]
        shutil.rmtree(copy)
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
