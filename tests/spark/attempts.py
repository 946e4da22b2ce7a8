"""Writes of which a task fails, or is killed with its executor, after it wrote files; JSON on the last line.

For each write: how often the task began, the files of the table, those that lie in its folder beside them, and whether
the rows are all there, once each. A second attempt beside a slow one (speculation) can't be had on one machine: Spark
gives no two attempts of a task to the same host.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from laketx import Table, connect
from tests.integration.service import Service
from tests.spark.processes import WAIT_S
from tests.spark.sessions import small_session
from tests.spark.stored import live, stored_rows

TASKS: Final = 2
ROWS: Final = 1_000
SETTINGS: Final = {
    "spark.executor.memory": "512m",
    "spark.task.maxFailures": "4",
    "spark.sql.files.maxRecordsPerFile": "50",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10",
}


def troubled(spark: SparkSession, log: Path, trouble: str, folder: Path) -> DataFrame:
    """Rows of which one task's first attempt has the trouble when it has written files."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        task, attempt = context.partitionId(), context.attemptNumber()
        (log / f"{task}-{attempt}").touch()
        seen = 0
        for batch in batches:
            seen += len(batch)
            if task == 1 and attempt == 0 and seen == ROWS // TASKS:
                until = time.monotonic() + WAIT_S
                while len(list(folder.rglob("part-00001-*.parquet"))) < 3 and time.monotonic() < until:
                    time.sleep(0.1)
                if trouble == "killed":
                    of_daemon = Path(f"/proc/{os.getppid()}/stat").read_text()  # whose parent is the executor
                    os.kill(int(of_daemon.rpartition(")")[2].split()[1]), signal.SIGKILL)
                raise RuntimeError("the first attempt fails")
            yield batch

    given = spark.range(0, ROWS, 1, TASKS).selectExpr("id", "repeat('x', 3000) as v")
    return given.mapInArrow(rows, "id bigint, v string")


def outcome(table: Table, log: Path) -> dict[str, Any]:
    named = {entry.file.path for entry in live(table)}
    folder = Path(table.folder)
    there = {str(path.relative_to(folder)) for path in folder.rglob("*.parquet")}
    return {
        "attempts": len(list(log.glob("1-*"))),
        "files": len(named),
        "missing": len(named - there),
        "left over": len(there - named),
        "rows are right": sorted(row["id"] for row in stored_rows(table)) == list(range(ROWS)),
    }


def main() -> None:
    found = {}
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        spark = small_session("local-cluster[2,1,512]", SETTINGS)
        ends.callback(spark.stop)
        service = Service(folder / "store")
        ends.callback(service.kill)
        where = f"laketx://{service.start()}"
        with connect(where, spark, user="ana", warehouse=str(folder / "files")) as lake:
            for trouble in ("fails", "killed"):
                log = folder / trouble
                log.mkdir()
                table = lake.create_table(f"t.{trouble}", "id bigint, v string")
                table.insert(troubled(spark, log, trouble, Path(table.folder)))
                found[trouble] = outcome(table, log)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
