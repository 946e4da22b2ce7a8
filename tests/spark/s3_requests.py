"""What small inserts and reads of Spark ask of an S3 server that is 30 ms away; JSON on the last line."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from laketx import connect
from tests.integration.bucket import bucket
from tests.integration.service import Service
from tests.integration.slow_bucket import depth, far_away
from tests.spark import s3

DELAY_S = 0.030


def main() -> None:
    found: dict[str, dict[str, int]] = {}
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        variables = ends.enter_context(bucket(folder))
        there = ends.enter_context(far_away(variables["AWS_ENDPOINT_URL"].removeprefix("http://"), DELAY_S))
        os.environ.update(variables)
        spark = s3.session(there.url, variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"])
        ends.callback(spark.stop)
        service = Service(folder / "store")
        ends.callback(service.kill)
        where = f"laketx://{service.start()}"
        lake = ends.enter_context(connect(where, spark, user="ana", warehouse=s3.WAREHOUSE))
        lake.as_catalog("lake")

        def ask(name: str, work: Callable[[], object]) -> None:
            work()  # the first of its kind in a session also loads and looks up
            requests = there.asked(work)
            listings = sum(one.is_listing for one in requests)
            found[name] = {"requests": len(requests), "depth": depth(requests), "listings": listings}

        spark.sql("CREATE NAMESPACE lake.far")
        spark.sql("CREATE TABLE lake.far.t (id BIGINT, v STRING) TBLPROPERTIES ('write.inline.rows' = '0')")
        ask("insert", lambda: spark.sql("INSERT INTO lake.far.t SELECT id, 'x' FROM range(100)"))
        ask("select", lambda: spark.sql("SELECT max(id), count(v) FROM lake.far.t").collect())
        ask("delete", lambda: spark.sql("DELETE FROM lake.far.t WHERE id = 3"))
        ask("select of what is left", lambda: spark.sql("SELECT max(id), count(v) FROM lake.far.t").collect())

        frames = spark.range(100).selectExpr("id", "'x' AS v")
        properties = {"write.inline.rows": "0"}
        table = lake.create_table("far.frames", "id bigint, v string", properties=properties)
        ask("table.insert", lambda: table.insert(frames))
        schema = "id bigint not null, v string"
        keyed = lake.create_table("far.keyed", schema, primary_key=["id"], buckets=2, properties=properties)
        ask("table.insert by key", lambda: keyed.insert(frames))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
