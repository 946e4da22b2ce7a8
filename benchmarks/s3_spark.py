"""Small writes and reads by Spark on an S3 server that is 30 ms away, beside Delta on Spark. `make bench-s3-spark`.

Each has a session of its own, which is warm: the first work of each kind is not measured. The files are those of
`benchmarks/s3.py`.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final

from benchmarks.frame import Benchmark, scratch
from benchmarks.peers.environment import ensure_delta_spark
from benchmarks.s3 import AS_FILES, DELAY_S, FILES, ROWS, Do, measured, peer
from benchmarks.serving import server
from benchmarks.spark_data import session
from benchmarks.words import chosen
from laketx import Lake, Table, connect
from tests.integration.bucket import BUCKET, bucket
from tests.integration.slow_bucket import far_away
from tests.spark.s3 import session_settings
from worker.spark.catalog_jar import NO_JAR, jar_setting

SAYS: Final[Mapping[str, str]] = {
    "insert": f"INSERT of {ROWS} rows",
    "write": f"a DataFrame of {ROWS} rows",
    "read": f"SELECT of {FILES} files",
    "delete": f"DELETE of a row in {FILES} files",
}
DELTA: Final = "Delta"
CATALOG: Final = "lake"


def main() -> int:
    chosen(__doc__)
    if not jar_setting():
        sys.exit(NO_JAR)
    bench = Benchmark("s3-spark", "Spark on S3 that is 30 ms away", packages=["pyspark"])
    with scratch() as folder, bucket(folder) as variables, ExitStack() as ends:
        there = ends.enter_context(far_away(variables["AWS_ENDPOINT_URL"].removeprefix("http://"), DELAY_S))
        os.environ.update(variables)
        settings = session_settings(there.url, variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"])
        service = ends.enter_context(server(folder / "store"))
        spark = session("1g", **settings, **jar_setting())
        ends.callback(spark.stop)
        where = f"laketx://{service.address}"
        lake = ends.enter_context(connect(where, spark, warehouse=f"s3a://{BUCKET}/files"))
        tables = [lake.create_table(f"t{number}", "id bigint, v string", properties=AS_FILES) for number in range(2)]
        lake.as_catalog(CATALOG)
        others = ("s3_delta_spark", f"s3a://{BUCKET}/delta", json.dumps(settings))
        ways: dict[str, Do] = {"LakeTX": lambda name: of_laketx(name, lake, *tables)}
        ways[DELTA] = ends.enter_context(peer(ensure_delta_spark(), *others))
        for name, says in SAYS.items():
            times = {way: measured(bench, there, f"{says}, {way}", name, do) for way, do in ways.items()}
            ratios = [one / statistics.median(times["LakeTX"]) for one in times[DELTA]]
            bench.add(f"{says}: {DELTA} over LakeTX", ratios, unit="times")
    return 0 if bench.finish() else 1


def of_laketx(name: str, lake: Lake, written: Table, read: Table) -> float:
    """Reads and deletes are of a table with so many files, filled once."""
    while name in ("read", "delete") and read.refresh().meta.head_version < FILES:
        read.append([{"id": number, "v": "x"} for number in range(ROWS)])
    begun_s = time.perf_counter()
    match name:
        case "insert":
            lake.spark.sql(f"INSERT INTO {CATALOG}.{written.name} SELECT id, 'x' FROM range({ROWS})")
        case "write":
            written.insert(lake.spark.range(ROWS).selectExpr("id", "'x' AS v"))
        case "read":
            lake.spark.sql(f"SELECT max(id), count(v) FROM {CATALOG}.{read.name}").collect()
        case _:
            lake.spark.sql(f"DELETE FROM {CATALOG}.{read.name} WHERE id = 7")
    seconds = time.perf_counter() - begun_s
    if name == "delete":
        read.restore(version=FILES)
    return seconds


if __name__ == "__main__":
    sys.exit(main())
