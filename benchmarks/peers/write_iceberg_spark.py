"""A table that Spark-Iceberg writes from Parquet files, file by file, and deletes from by deletion vectors.

`python write_iceberg_spark.py REQUEST`, in the environment of Spark with Iceberg; REQUEST is a JSON file with the
settings of the session, the warehouse, the files and the condition. The location of the metadata in the last line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

NAME = "peer.default.large"
PROPERTIES = "'format-version' = '3', 'write.delete.mode' = 'merge-on-read'"


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text())
    catalog = {
        "spark.sql.catalog.peer": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.peer.type": "hadoop",
        "spark.sql.catalog.peer.warehouse": request["warehouse"],
    }
    spark = SparkSession.builder.master("local[2]").config(map=request["settings"] | catalog).getOrCreate()
    spark.sql(f"CREATE TABLE {NAME} (id bigint, v double, note string) USING iceberg TBLPROPERTIES ({PROPERTIES})")
    for path in request["files"]:
        spark.read.parquet(path).select("id", "v", "note").coalesce(1).writeTo(NAME).append()
    spark.sql(f"DELETE FROM {NAME} WHERE {request['condition']}")
    newest = spark.sql(f"SELECT file FROM {NAME}.metadata_log_entries ORDER BY timestamp DESC LIMIT 1").collect()[0][0]
    spark.stop()
    print(newest)


if __name__ == "__main__":
    main()
