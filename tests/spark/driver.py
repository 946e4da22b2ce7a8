"""A Spark driver in a process of its own, that does what it is told and may be killed at any moment.

Each line of its input is a command as JSON, run in a thread of its own; each line of its output is an answer.

    {"id": 1, "do": "jobs", "table": "t", "jobs": [...], "on_conflict": "rerun"}
    {"id": 2, "do": "stumble", "table": "t", "mark": "/tmp/x"}      a write whose first task fails once, half-way
    {"id": 3, "do": "straggle", "table": "t", "mark": "/tmp/x"}     one with a task that a second copy of it overtakes
    {"id": 4, "do": "stop", "at": "before", "table": "t", ...}      answers where it stops, and goes no further

With "sql" a write is that statement of Spark SQL; `{rows}` stands for what it writes, `{lake}` for the catalog.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from laketx import Lake, connect
from metaservice.client import Transaction, meta_client
from protos.laketx.v1 import common_pb2
from tests.spark.jobs import SCHEMA, attempt, run_by
from tests.spark.sessions import small_session

Command = dict[str, Any]
CATALOG = "lake"
BATCHES = 4
ROWS_PER_BATCH = 25

_said = threading.Lock()
_stops = threading.local()


def say(answer: Command) -> None:
    with _said:
        print(json.dumps(answer), flush=True)


def stay() -> None:
    """Until the process is killed."""
    threading.Event().wait()


class StoppingTransaction(Transaction):
    """Stops on either side of a commit, where its thread was told to."""

    __slots__ = ()

    def commit(self, changes: Any, cursors: Any = (), replacements: Any = ()) -> common_pb2.Committed:
        stop = getattr(_stops, "command", None)
        if stop is not None and stop["at"] == "before":
            say({"id": stop["id"], "at": "before", "txn_id": self.txn_id})
            stay()
        answer = super().commit(changes, cursors, replacements)
        if stop is not None and stop["at"] == "after":
            say({"id": stop["id"], "at": "after", "txn_id": self.txn_id})
            stay()
        return answer


def rows_with(spark: SparkSession, at_batch: Callable[[int, int], None], first_id: int) -> DataFrame:
    """Rows of two tasks, which call back between their batches."""

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for number in range(BATCHES):
                    at_batch(task, number)
                    begin = first_id + (task * BATCHES + number) * ROWS_PER_BATCH
                    ids = list(range(begin, begin + ROWS_PER_BATCH))
                    yield pa.RecordBatch.from_pydict(
                        {"id": ids, "amount": [1] * len(ids), "day": ["a", "b"] * (len(ids) // 2) + ["a"]}
                    )

    return spark.range(2, numPartitions=2).mapInArrow(make, SCHEMA)


def stumbling(spark: SparkSession, mark: str, first_id: int) -> DataFrame:
    def stumble(task: int, number: int) -> None:
        if task == 1 and number == BATCHES - 1 and not Path(mark).exists():
            Path(mark).touch()
            raise RuntimeError("the first attempt fails when most is written")

    return rows_with(spark, stumble, first_id)


def straggling(spark: SparkSession, mark: str, first_id: int) -> DataFrame:
    parent = os.getpid()

    def straggle(task: int, number: int) -> None:
        if task == 1 and number == BATCHES - 1:
            with suppress(FileExistsError):
                Path(mark).touch(exist_ok=False)
                while not Path(mark + "-again").exists() and Path(f"/proc/{parent}").exists():
                    time.sleep(0.05)
                return
            Path(mark + "-again").touch()

    return rows_with(spark, straggle, first_id)


def stuck(spark: SparkSession, mark: str) -> DataFrame:
    parent = os.getpid()

    def wait(task: int, number: int) -> None:
        if task == 1 and number == BATCHES - 1:
            Path(mark).touch()
            while Path(f"/proc/{parent}").exists():  # its driver: nothing is left behind
                time.sleep(0.05)

    return rows_with(spark, wait, 0)


def write(lake: Lake, command: Command, rows: DataFrame) -> int:
    table = lake.table(command["table"])
    if "sql" not in command:
        return table.insert(rows).version
    view = f"rows_{command['id']}"
    rows.createOrReplaceTempView(view)
    lake.spark.sql(command["sql"].format(rows=view, lake=CATALOG))
    return table.refresh().meta.head_version


def stop(lake: Lake, command: Command) -> None:
    where, table = command["at"], lake.table(command["table"])
    if where in ("before", "after"):
        _stops.command = command
        if command["other"]:
            with lake.transaction() as txn:
                txn.table(command["table"]).update({"amount": "amount - 10"}, where="id = 1")
                txn.table(command["other"]).update({"amount": "amount + 10"}, where="id = 1")
        else:
            with lake.transaction() as txn:
                run_by(lake.spark, txn.table(command["table"]), command["job"])
    elif where == "task":
        write(lake, command, stuck(lake.spark, command["mark"]))
    elif where == "read":
        table.read().count()
        say({"id": command["id"], "at": "read"})
        stay()


def obey(lake: Lake, command: Command) -> None:
    try:
        match command["do"]:
            case "jobs":
                done = attempt(lake.table(command["table"]), command["jobs"], on_conflict=command["on_conflict"])
                say({"id": command["id"], "done": [asdict(one) for one in done]})
            case "stumble" | "straggle":
                make = stumbling if command["do"] == "stumble" else straggling
                rows = make(lake.spark, command["mark"], command["first_id"])
                say({"id": command["id"], "version": write(lake, command, rows)})
            case _:
                stop(lake, command)
    except Exception as error:  # noqa: BLE001 - who asked is told
        say({"id": command["id"], "error": f"{type(error).__name__}: {error}"[:2000]})


def main(address: str, warehouse: str, master: str = "local[4,2]") -> None:  # a task may fail once
    faulthandler.register(signal.SIGQUIT, all_threads=True)  # what it waits for, as a JVM tells it
    setattr(meta_client, "Transaction", StoppingTransaction)  # noqa: B010 - its transactions are to stop
    speculation = {  # where there is more than one host
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.4",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.minTaskRuntime": "200ms",
    }
    spark = small_session(master, speculation)
    with connect(f"laketx://{address}", spark, user="driver", warehouse=warehouse) as lake:
        lake.as_catalog(CATALOG)
        say({"id": 0})
        for line in sys.stdin:
            threading.Thread(target=obey, args=[lake, json.loads(line)], daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
