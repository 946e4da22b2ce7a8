"""A range hides rows that came in it, or that other partitions have: their ids are far from those it reads."""

from collections.abc import Callable

import pytest

from laketx import Lake
from worker.arrow.changes.commits import MODES


@pytest.mark.parametrize("mode", MODES)
def test_rows_that_come_and_go_within_the_range(lake: Lake, new_name: Callable[[], str], mode: str) -> None:
    table = lake.create_table(new_name(), "id bigint")
    table.insert(lake.spark.range(0, 10, 1, 1))
    table.insert(lake.spark.range(10, 6000, 1, 1))
    table.delete("id in (4, 5000)")
    found = table.changes(since=1, mode=mode).drop("_commit_time").collect()
    gone = sorted(tuple(row) for row in found if row["_change_type"] == "delete")
    assert gone == {"latest": [], "changes": [(4, "delete", 3)], "log": [(4, "delete", 3), (5000, "delete", 3)]}[mode]
    come = {row["id"] for row in found if row["_change_type"] == "insert"}
    assert come == set(range(10, 6000)) - (set() if mode == "log" else {5000})


@pytest.mark.parametrize(
    ("first", "mode"),
    [
        ("a", "log"),
        ("b", "changes"),
        *(
            pytest.param(*one, marks=pytest.mark.long)
            for one in [("a", "latest"), ("a", "changes"), ("b", "latest"), ("b", "log")]
        ),
    ],
)
def test_rows_of_a_partition_that_is_overwritten(
    lake: Lake, new_name: Callable[[], str], mode: str, first: str
) -> None:
    """Its rows are read whole; those of the other one that are hidden come before or after."""
    table = lake.create_table(new_name(), "id bigint, day string", partition_by=["day"])
    for day in (first, "b" if first == "a" else "a"):
        table.insert(lake.spark.range(0, 3000, 1, 1).selectExpr("id", f"'{day}' as day"))
    table.delete("id in (7, 2900)")
    table.overwrite(lake.spark.range(0, 3000, 1, 1).selectExpr("id", "'a' as day"), partition={"day": "a"})
    found = table.changes(since=2, mode=mode).drop("_commit_time").where("day = 'b'").collect()
    wanted = [] if mode == "latest" else [(7, "b", "delete", 3), (2900, "b", "delete", 3)]
    assert sorted(tuple(row) for row in found) == wanted
