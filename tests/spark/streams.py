"""Streaming queries that copy tables, in a process of its own, to be killed: `python -m tests.spark.streams …`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from laketx import connect
from tests.spark.sessions import small_session

KINDS: Final = ("append", "keyed")
FILES_A_BATCH: Final = 2


def copy(spark: SparkSession, catalog: str, kind: str, folder: Path, *, until_now: bool) -> StreamingQuery:
    """`until_now`: it ends when it has read what there is."""
    rows = spark.readStream.option("maxFilesPerTrigger", FILES_A_BATCH).table(f"{catalog}.source.{kind}")
    writer = rows.writeStream.option("checkpointLocation", str(folder / f"checkpoint-{kind}"))
    writer = writer.outputMode("update" if kind == "keyed" else "append")
    return (writer.trigger(availableNow=True) if until_now else writer).toTable(f"{catalog}.target.{kind}")


def main(address: str, warehouse: str, folder: str, *kinds: str) -> None:
    spark = small_session()
    with connect(address, spark, user="stream", warehouse=warehouse) as lake:
        name = lake.as_catalog("copied")
        for kind in kinds or KINDS:
            copy(spark, name, kind, Path(folder), until_now=False)
        spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
