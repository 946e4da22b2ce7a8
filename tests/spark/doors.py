"""The doors to Spark SQL, and the story of tests/sql/story.test through each of them.

    python -m tests.spark.doors sc://127.0.0.1:15002 laketx://127.0.0.1:7070 WAREHOUSE FOLDER
    python -m tests.spark.doors spark://127.0.0.1:7077 laketx://127.0.0.1:7070 WAREHOUSE FOLDER

A process has a classic session or one of Spark Connect, never both: so this is a program too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import pyspark
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.integration.service import free_address
from tests.spark.processes import WAIT_S, wait_until
from tests.spark.sessions import SMALL, small_session
from tests.spark.statements import FOLDER, KEYS, Door, play
from worker.spark.catalog_jar import catalog_settings, jar_setting

SPARK: Final = Path(pyspark.__file__).parent
STORY: Final = FOLDER / "story.test"
CONNECT: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
THRIFT: Final = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"


# -- servers -----------------------------------------------------------------------------------------------------------


class Server:
    """A server that comes with Spark, in a process group of its own. It has the jar, and the lake as `lake`."""

    def __init__(self, main: str, lake: Mapping[str, str], folder: Path, more: Mapping[str, str], **own: str) -> None:
        settings = {**SMALL, **jar_setting(), **lake, "spark.master": "local[2]", **more}
        command = [str(SPARK / "bin" / "spark-submit"), "--class", main]
        for key, value in settings.items():
            command += ["--conf", f"{key}={value}"]
        self._log = folder / "server.log"
        known = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, **own}
        with self._log.open("wb") as out:
            self._process = subprocess.Popen(
                command, cwd=folder, env=known, stdout=out, stderr=out, start_new_session=True
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(WAIT_S)

    def wait_for(self, sign: str) -> str:
        """The rest of the line of its log."""
        wait_until(lambda: sign in self._said() or self._process.poll() is not None)
        assert sign in self._said(), self._said()[-4_000:]
        return self._said().partition(sign)[2].partition("\n")[0]

    def _said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")


def connect_server(lake: Mapping[str, str], folder: Path) -> Server:
    own = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": "0"}
    return Server(CONNECT, lake, folder, own)


def connect_address(server: Server) -> str:
    return "sc://" + server.wait_for("Spark Connect server started at: ").strip()


def thrift_server(lake: Mapping[str, str], folder: Path) -> tuple[Server, str]:
    """With the URL for JDBC."""
    host, port = free_address().split(":")
    own = {"HIVE_SERVER2_THRIFT_BIND_HOST": host, "HIVE_SERVER2_THRIFT_PORT": port}
    return Server(THRIFT, lake, folder, {}, **own), f"jdbc:hive2://{host}:{port}/default"


# -- a client of the Thrift server -------------------------------------------------------------------------------------


class Jdbc:
    """A Java with Hive's driver, which comes with Spark."""

    def __init__(self) -> None:
        jars = SPARK / "jars"
        (py4j,) = jars.glob("py4j-*.jar")
        home = os.environ.get("JAVA_HOME")
        self._gateway = JavaGateway.launch_gateway(
            jarpath=str(py4j),
            classpath=f"{jars}/*",
            die_on_exit=True,
            java_path=f"{home}/bin/java" if home else "java",
        )
        self._driver: Any = self._gateway.jvm.org.apache.hive.jdbc.HiveDriver()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._gateway.shutdown()

    def connect(self, url: str) -> JdbcSession:
        return JdbcSession(self._driver.connect(url, self._gateway.jvm.java.util.Properties()))


class JdbcSession:
    """A connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def sql(self, statement: str, /) -> JdbcAnswer:
        made = self._connection.createStatement()
        try:
            return JdbcAnswer(_rows(made.getResultSet()) if made.execute(statement) else [])
        except Py4JJavaError as error:
            raise PySparkException(error.java_exception.getMessage()) from error
        finally:
            made.close()


class JdbcAnswer:
    """The rows of a statement, every cell a text."""

    def __init__(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self._rows = rows

    def collect(self) -> Sequence[tuple[Any, ...]]:
        return self._rows


def _rows(answer: Any) -> list[tuple[Any, ...]]:
    found = []
    columns = range(1, answer.getMetaData().getColumnCount() + 1)
    while answer.next():
        found.append(tuple(answer.getString(column) for column in columns))
    return found


# -- the story ---------------------------------------------------------------------------------------------------------


def tell(door: Door, another: Door) -> list[str]:
    """What went otherwise than expected; `another` is a second session."""
    failures = [failure for kind in KEYS for failure in play(door, STORY, kind)]
    return failures + [failure for kind in KEYS if (failure := race(door, another, f"lake.story_{kind}.orders"))]


def race(door: Door, another: Door, table: str) -> str:
    """Two statements change one row. Whichever is late is told so; a slow machine may let neither be."""
    for seconds in (2, 4, 8, 16, 32):
        sleep = f"java_method('java.lang.Thread', 'sleep', {seconds}000L)"
        slow = f"UPDATE {table} SET status = coalesce({sleep}, 'late') WHERE id = 1"
        told: list[str] = []
        late = threading.Thread(target=lambda: told.append(_refusal(door, slow)))  # noqa: B023 - joined in the loop
        late.start()
        while late.is_alive() and not _has_open(another, table):
            time.sleep(0.05)
        told.append(_refusal(another, f"UPDATE {table} SET status = 'first' WHERE id = 1"))
        late.join()
        refused = [text for text in told if text]
        if refused:
            is_right = len(refused) == 1 and all(word in refused[0] for word in ("LOST_RACE", "winner:", "advice:"))
            return "" if is_right else f"a lost race on {table}: {refused}"
    return f"no race on {table} was lost"


def _has_open(door: Door, table: str) -> bool:
    return len(door.sql(f"SELECT 1 FROM {table}.transactions WHERE state = 'open'").collect()) > 0


def _refusal(door: Door, statement: str) -> str:
    try:
        door.sql(statement).collect()
    except PySparkException as error:
        return str(error)
    return ""


def stream(spark: SparkSession, folder: Path) -> list[str]:
    """What is there, and what came since, each row once."""
    source, target = "lake.story_append.orders", "lake.story_append.copy"
    spark.sql(f"CREATE TABLE {target} LIKE {source}")
    for statement in (f"INSERT INTO {source} (id) VALUES (100)", f"INSERT INTO {source} (id) VALUES (101)"):
        spark.sql(statement)
        rows = spark.readStream.table(source)
        writer = rows.writeStream.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
        writer.toTable(target).awaitTermination()
    there, here = (spark.sql(f"SELECT * FROM {name} ORDER BY id").collect() for name in (source, target))
    return [] if there == here else [f"the stream copied {here} of {there}"]


def main(where: str, uri: str, warehouse: str, folder: str) -> int:
    if where.startswith("sc://"):
        spark = SparkSession.builder.remote(where).getOrCreate()
    else:
        spark = small_session(where, catalog_settings("lake", uri, warehouse, "ana"))
    failures = tell(spark, spark) or stream(spark, Path(folder))
    print("\n\n".join(failures) or "told")
    spark.stop()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
