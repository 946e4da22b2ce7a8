"""What an overwrite brings into partitions that were empty is an increment too."""

from collections.abc import Callable

import pytest

from laketx import Lake
from worker.arrow.changes.commits import MODES


@pytest.mark.parametrize("mode", MODES)
def test_rows_that_an_overwrite_brings_into_an_empty_partition(
    lake: Lake, new_name: Callable[[], str], mode: str
) -> None:
    table = lake.create_table(
        new_name(), "id bigint, day string", primary_key=["id"], buckets=2, partition_by=["day"], key_scope="partition"
    )
    table.overwrite(lake.spark.range(3).selectExpr("id", "'a' as day"), partition={"day": "a"})
    found = sorted(tuple(row) for row in table.changes(since=0, mode=mode).drop("_commit_time").collect())
    assert found == [(one, "a", "insert", 1) for one in range(3)]
