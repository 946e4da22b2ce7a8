"""A stream into a table, every batch exactly once: `python -m examples.stream`.

Spark repeats a batch that was under way when its program died, under the same number. The table remembers the highest
number of each application, so a batch that had committed changes nothing the second time.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from laketx import Lake, Table, connect

APP_ID = "orders-from-files"


def stream_into(lake: Lake, name: str, rows: DataFrame, checkpoint: Path) -> StreamingQuery:
    """Writes what has come, and ends. A new checkpoint counts batches from 0 again: give it a new application id."""

    def write(batch: DataFrame, number: int) -> None:
        commit = lake.table(name).insert(batch, app_id=APP_ID, app_version=number)
        print(f"batch {number}:", "was there" if commit.already_applied else f"version {commit.version}")

    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def play(lake: Lake, name: str, folder: Path) -> Table:
    incoming, checkpoint = folder / "incoming", folder / "checkpoint"
    incoming.mkdir()
    orders = lake.create_table(name, "id bigint, amount double")
    rows = lake.spark.readStream.schema("id bigint, amount double").json(str(incoming))
    for number in range(2):
        (incoming / f"{number}.json").write_text(json.dumps({"id": number, "amount": number * 10.0}))
        stream_into(lake, name, rows, checkpoint).awaitTermination()
    for note in (checkpoint / "commits").glob("*1*"):  # as if the program had died before Spark noted its last batch
        note.unlink()
    stream_into(lake, name, rows, checkpoint).awaitTermination()
    return orders


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="laketx-stream-"))
    with connect(folder / "lake", user="stream") as lake:
        play(lake, "shop.orders", folder).read().orderBy("id").show()


if __name__ == "__main__":
    main()
