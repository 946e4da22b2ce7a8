"""The front door, compactions, fsck and purge on an S3 server: `make s3`.

moto is the server, in an environment of its own; Spark's side, `hadoop-aws`, comes when the session starts: 0.7 GB at
the first time. What Spark is told of the server it is told in its settings, pyarrow in the environment.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from laketx import Lake, connect
from tests.house.tree import ROOT
from tests.integration.service import Service, free_address
from tests.spark.processes import WAIT_S, wait_until
from tests.spark.sessions import small_session
from tests.spark.whole_session import play
from tools.environment import FOLDER, ensure
from worker.services.fsck import Fsck
from worker.services.purge import Purge

HADOOP_AWS: Final = "org.apache.hadoop:hadoop-aws:3.5.0"  # by the version of Spark's Hadoop
SERVER: Final = ("moto[s3]", "flask", "flask-cors")
PARTS: Final = ("keyed", "appended", "several_tables", "refusals", "conflicts", "in_and_out", "compacted")
WAREHOUSE: Final = "s3a://lake/files"
USER, SECRET, REGION = "user", "secret", "us-east-1"


@contextmanager
def server(log: Path) -> Iterator[str]:
    """Its URL; it has one bucket, and forgets everything."""
    python = ensure("s3", SERVER, ROOT / "tests/spark/constraints-s3.txt")
    host, port = free_address().split(":")
    command = [str(python), "-c", "from moto.server import main; main()", "-H", host, "-p", port]
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as running:
        try:
            wait_until(lambda: b"Running on" in log.read_bytes() or running.poll() is not None)
            assert running.poll() is None, log.read_text()[-3000:]
            url = f"http://{host}:{port}"
            made = urllib.request.Request(f"{url}/lake", method="PUT")
            urllib.request.urlopen(made, timeout=WAIT_S).close()
            yield url
        finally:
            running.terminate()


def session(url: str, user: str = USER, secret: str = SECRET) -> SparkSession:
    return small_session(more=session_settings(url, user, secret))


def session_settings(url: str, user: str, secret: str) -> dict[str, str]:
    """What Spark is told of the server; what pyarrow is told gets into this process' environment."""
    known = {"AWS_ENDPOINT_URL": url, "AWS_REGION": REGION, "AWS_ACCESS_KEY_ID": user, "AWS_SECRET_ACCESS_KEY": secret}
    os.environ.update(known)
    s3a = {
        "endpoint": url,
        "endpoint.region": REGION,
        "path.style.access": "true",
        "access.key": user,
        "secret.key": secret,
        "performance.flags": "create,mkdir",
    }
    more = {f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()}
    more |= {"spark.jars.packages": HADOOP_AWS, "spark.jars.ivy": str(FOLDER / "ivy")}
    return more | {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}


def moved(lake: Lake) -> None:
    """Six files become two; what is exported is taken in again."""
    schema, spark = "id bigint, v string", lake.spark
    properties = {"data.retain.hours": "0"}
    table = lake.create_table("s3.kept", schema, primary_key=["id"], buckets=2, properties=properties)
    for number in range(3):
        table.insert(spark.range(10 * number, 10 * number + 20).selectExpr("id", f"'{number}' v"))
    table.compact("major")
    assert table.export("s3a://lake/out") == table.refresh().meta.head_version
    outside = lake.import_parquet("s3a://lake/out", "s3.outside")
    outside.delete("id < 5")
    assert outside.read().count() == 35
    lake.drop_table("s3.outside")


def asked(lake: Lake) -> None:
    """The same by statements: Spark's file system reads, writes and sweeps."""
    sql = lake.spark.sql
    lake.as_catalog("lake")
    sql("CREATE NAMESPACE lake.asked")
    sql("CREATE TABLE lake.asked.t (id BIGINT, day STRING, v STRING, PRIMARY KEY (id, day)) PARTITIONED BY (day)")
    sql("INSERT INTO lake.asked.t SELECT id, 'd' || id % 3, 'a' FROM range(100)")
    sql("UPDATE lake.asked.t SET v = 'b' WHERE id < 10")
    sql("DELETE FROM lake.asked.t WHERE id BETWEEN 10 AND 19")
    sql(
        "MERGE INTO lake.asked.t USING (SELECT id, 'd' || id % 3 AS day FROM range(90, 110)) s "
        "ON t.id = s.id AND t.day = s.day "
        "WHEN MATCHED THEN UPDATE SET v = 'c' WHEN NOT MATCHED THEN INSERT (id, day, v) VALUES (s.id, s.day, 'd')"
    )
    counts = {row.v: row.n for row in sql("SELECT v, count(*) AS n FROM lake.asked.t GROUP BY v").collect()}
    assert counts == {"a": 70, "b": 10, "c": 10, "d": 10}
    assert sql("SELECT count(*) AS n FROM lake.asked.t VERSION AS OF 1 WHERE v = 'a'").collect() == [(100,)]
    assert sql("SELECT count(*) AS n FROM table_changes('lake.asked.t', 3, 3)").collect() == [(10,)]
    sql("CREATE TABLE lake.asked.copy PARTITIONED BY (day) AS SELECT * FROM lake.asked.t WHERE v <> 'a'")
    sql("INSERT OVERWRITE lake.asked.copy PARTITION (day = 'd0') SELECT 1000L, 'e'")
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        sql("INSERT INTO lake.asked.copy SELECT id, 'x', CAST(1 / (id - 5) AS STRING) FROM range(10)").collect()
    out = "s3a://lake/asked"
    [(_, version, path)] = sql(f"CALL lake.system.export('asked.copy', '{out}')").collect()
    assert path == out
    [(name, _, rows)] = sql(f"CALL lake.system.import_parquet('{out}', 'asked.again')").collect()
    assert (name, rows) == ("asked.again", sql("SELECT * FROM lake.asked.copy").count())
    wanted = sorted(map(str, sql(f"SELECT id, day, v FROM lake.asked.copy VERSION AS OF {version}").collect()))
    assert sorted(map(str, sql("SELECT id, day, v FROM lake.asked.again").collect())) == wanted
    for each in ("t", "copy"):
        assert list(Fsck(lake.client, WAREHOUSE, lake.table(f"asked.{each}").meta).run()) == []
    print("Spark SQL: as it should be", flush=True)


def purged(lake: Lake) -> None:
    """The six are deleted; what is named stays, and what was taken in."""
    found = 0

    def purge() -> bool:
        nonlocal found
        report = Purge(lake.client, WAREHOUSE).run()
        assert not report.failed, report.failures
        found += report.files - report.missing
        return found >= 6

    wait_until(purge)
    table = lake.table("s3.kept")
    assert list(Fsck(lake.client, WAREHOUSE, table.meta).run()) == []
    assert table.read().count() == 40
    assert lake.import_parquet("s3a://lake/out", "s3.again").read().count() == 40


def main() -> None:
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory()))
        url = ends.enter_context(server(folder / "server.log"))
        spark = session(url)
        ends.callback(spark.stop)
        service = Service(folder / "store", "--purge-delay-ms", "0")
        ends.callback(service.kill)
        where = f"laketx://{service.start()}"
        with connect(where, spark, user="ana", warehouse=WAREHOUSE) as lake:
            play(lake, folder, PARTS)
            asked(lake)
            moved(lake)
        with connect(where, spark, user="ana", warehouse=WAREHOUSE) as lake:  # which holds no version
            purged(lake)
        print("fsck and purge: as they should be", flush=True)


if __name__ == "__main__":
    main()
