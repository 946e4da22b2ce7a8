"""Delta on Spark on the work of `benchmarks/s3_spark.py`: it does what each line of stdin names, and answers with the
seconds.

`python -m benchmarks.peers.s3_delta_spark URI FILES ROWS SETTINGS`, in the environment of Delta on Spark; the settings
of the session, as JSON, name the server of S3. One driver writes, for which Delta's default suffices.
"""

from __future__ import annotations

import json
import sys
import time

from pyspark.sql import SparkSession

from benchmarks.peers.environment import DELTA_SETTINGS
from benchmarks.spark_data import session


def main() -> None:
    uri, files, count, settings = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
    jars = ",".join((DELTA_SETTINGS["spark.jars.packages"], settings["spark.jars.packages"]))
    spark = session("1g", **settings | DELTA_SETTINGS | {"spark.jars.packages": jars})
    insert(spark, f"{uri}/written", count)
    for _ in range(files):
        insert(spark, f"{uri}/read", count)
    print("ready", flush=True)
    for line in sys.stdin:
        print(timed(spark, uri, line.strip(), count), flush=True)
    spark.stop()


def insert(spark: SparkSession, table: str, count: int) -> None:
    """Makes the table, if it is not there."""
    spark.range(count).selectExpr("id", "'x' AS v").coalesce(1).write.format("delta").mode("append").save(table)


def timed(spark: SparkSession, uri: str, name: str, count: int) -> float:
    written, read = f"delta.`{uri}/written`", f"delta.`{uri}/read`"
    version = spark.sql(f"DESCRIBE HISTORY {read} LIMIT 1").collect()[0].version if name == "delete" else 0
    begun_s = time.perf_counter()
    match name:
        case "insert":
            spark.sql(f"INSERT INTO {written} SELECT id, 'x' FROM range({count})")
        case "write":
            spark.range(count).selectExpr("id", "'x' AS v").write.format("delta").mode("append").save(f"{uri}/written")
        case "read":
            spark.sql(f"SELECT max(id), count(v) FROM {read}").collect()
        case _:
            spark.sql(f"DELETE FROM {read} WHERE id = 7")
    seconds = time.perf_counter() - begun_s
    if name == "delete":
        spark.sql(f"RESTORE TABLE {read} TO VERSION AS OF {version}")
    return seconds


if __name__ == "__main__":
    main()
