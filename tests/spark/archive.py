"""Puts Spark's classes down as Java has parsed and verified them: `python -m tests.spark.archive`.

Each Java of a test run maps the file into memory, and saves half of the seconds that a start of Spark takes.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from laketx import connect
from tests.java import ARCHIVE, BRIEF
from tests.spark.sessions import small_session
from worker.spark.catalog_jar import find_jar
from worker.spark.java import prepare_java

NEW = ARCHIVE.with_suffix(".new")
STATEMENTS = (
    "CREATE NAMESPACE lake.shop",
    "CREATE TABLE lake.shop.orders (id BIGINT, word STRING, day DATE, PRIMARY KEY (id))",
    "INSERT INTO lake.shop.orders SELECT id, concat('w', id), DATE '2026-11-01' FROM range(100)",
    "UPDATE lake.shop.orders SET word = upper(word) WHERE id % 7 = 3",
    "MERGE INTO lake.shop.orders t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "SELECT day, count(*), rank() OVER (ORDER BY day) FROM lake.shop.orders GROUP BY day ORDER BY day",
)


def main() -> None:
    """Java writes the file when it ends; where it can't, an empty one stays."""
    ARCHIVE.touch()
    if not prepare_java():
        return
    os.environ["SPARK_SUBMIT_OPTS"] = f"{BRIEF} -XX:ArchiveClassesAtExit={NEW} -Xlog:disable"
    with tempfile.TemporaryDirectory() as folder:
        spark = small_session()
        with connect(folder, spark) as lake:
            if find_jar() is not None:
                lake.as_catalog("lake")
                for statement in STATEMENTS:
                    spark.sql(statement).collect()
            spark.range(10).write.parquet(str(Path(folder, "rows")))
        gateway: Any = spark.sparkContext._gateway
        spark.stop()
        gateway.proc.stdin.close()  # so Java ends
        gateway.proc.wait()
    with suppress(FileNotFoundError):
        NEW.rename(ARCHIVE)


if __name__ == "__main__":
    main()
