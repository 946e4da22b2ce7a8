"""Writers of one service, by its address and several at a time."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from laketx import Lake, connect
from tests.integration.service import Service
from tests.spark.stored import stored_rows
from worker.commit.conflict_policies import OnConflict


@pytest.fixture
def far_lake(spark: SparkSession, tmp_path: Path) -> Iterator[Lake]:
    service = Service(tmp_path / "store")
    address = service.start()
    try:
        with connect(f"laketx://{address}", spark, user="ana", warehouse=str(tmp_path / "files")) as lake:
            yield lake
    finally:
        service.kill()


def test_writers_at_once_lose_nothing(far_lake: Lake, spark: SparkSession) -> None:
    table = far_lake.create_table("ns.t", "id bigint", primary_key=["id"], buckets=1)
    failures: list[Exception] = []

    def write(number: int, policy: OnConflict) -> None:
        try:
            far_lake.table("ns.t").insert(spark.range(number * 10, number * 10 + 5), on_conflict=policy)
        except Exception as error:  # noqa: BLE001 - told below
            failures.append(error)

    policies: list[OnConflict] = ["rerun", "resubmit", "rerun", "resubmit"]
    writers = [threading.Thread(target=write, args=one) for one in enumerate(policies)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert failures == []
    assert sorted(row["id"] for row in stored_rows(table)) == [10 * n + i for n in range(4) for i in range(5)]
    assert [one.user for one in table.history(4)] == ["ana"] * 4
