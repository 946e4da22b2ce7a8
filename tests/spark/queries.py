"""Streaming queries of one lake's tables, for tests of the catalog."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from laketx import Lake
from laketx.table import Table
from tests.spark.reading import shown
from tests.spark.sql import catalog_of

WAIT_S: Final = 600  # only what never comes takes as long


class Streams:
    """Queries of one lake, each with a checkpoint of its own."""

    def __init__(self, lake: Lake, folder: Path, new_name: Callable[[], str]) -> None:
        self.lake = lake
        self.spark = lake.spark
        self.folder = folder
        self.new_name = new_name
        self.catalog = catalog_of(lake)

    def table(self, schema: str = "id bigint, v string", **more: Any) -> Table:
        return self.lake.create_table(self.new_name(), schema, **more)

    def rows(self, *pairs: tuple[int, str]) -> DataFrame:
        return self.spark.createDataFrame(pairs, "id bigint, v string")

    def read(self, table: Table, **options: Any) -> DataFrame:
        return self.spark.readStream.options(**options).table(f"{self.catalog}.{table.name}")

    def run(self, rows: DataFrame, target: Table, checkpoint: str = "c", mode: str = "append") -> StreamingQuery:
        """Until it has read what there is."""
        writer = rows.writeStream.option("checkpointLocation", str(self.folder / checkpoint)).outputMode(mode)
        query = writer.trigger(availableNow=True).toTable(f"{self.catalog}.{target.name}")
        assert query.awaitTermination(WAIT_S)
        return query

    def batches(
        self, rows: DataFrame, checkpoint: str = "c", kept: list[list[tuple[Any, ...]]] | None = None
    ) -> list[list[tuple[Any, ...]]]:
        """The rows of each batch that has any; `kept` has them where the query fails, too."""
        found: list[list[tuple[Any, ...]]] = [] if kept is None else kept

        def keep(batch: DataFrame, _: int) -> None:
            if some := shown(batch):
                found.append(some)

        writer = rows.writeStream.option("checkpointLocation", str(self.folder / checkpoint)).foreachBatch(keep)
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_S)
        return found

    def forget_last_batch(self, checkpoint: str = "c") -> None:
        """As if the query had died before Spark noted that it was done."""
        notes = [one for one in (self.folder / checkpoint / "commits").iterdir() if one.name.isdigit()]
        last = max(notes, key=lambda one: int(one.name))
        for one in (last, last.with_name(f".{last.name}.crc")):
            one.unlink(missing_ok=True)
