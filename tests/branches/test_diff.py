"""What changed on a branch and in its parent, by Python and on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

from laketx import TableDiff, connect
from tests.integration.service import service
from tests.integration.terminal import Shell

ROWS = [{"id": 1, "v": 10}, {"id": 2, "v": 20}]


def test_a_diff_has_the_commits_of_both_sides(tmp_path: Path) -> None:
    with service(tmp_path / "data") as (running, _):
        lake = connect(f"laketx://{running.address}", warehouse=str(tmp_path / "files"))
        shell = Shell(running.address)
        for name in ("shop.t", "shop.unchanged", "shop.dropped", "shop.gone"):
            lake.create_table(name, "id bigint, v bigint, old string", profile="row_level").append(ROWS)
        branch = lake.branch("etl")
        assert branch.diff() == []
        fork = branch.table("shop.t")
        fork.append([{"id": 3, "v": 30}], message="three")
        fork.append([{"id": 4, "v": 40}, {"id": 5, "v": 50}])
        fork.compact("major")
        fork.add_columns("note string")
        fork.drop_column("old")
        fork.rename_column("v", "w")
        branch.table("shop.unchanged")
        branch.table("shop.gone").append(ROWS)
        branch.drop_table("shop.dropped")
        branch.create_table("shop.new", "id bigint").append(pa.table({"id": pa.array([1], pa.int64())}))
        lake.table("shop.t").append(ROWS, message="above")
        lake.drop_table("shop.gone")

        diffs = {diff.name: diff for diff in branch.diff()}
        assert {name: brief(diff) for name, diff in diffs.items()} == {
            "shop.dropped": ("dropped", [], [], 0, 0),
            "shop.gone": ("changed", [2], [], 2, 0),
            "shop.new": ("new", [1, 0], [], 1, 0),
            "shop.t": ("changed", [7, 6, 5, 4, 3, 2], [2], 3, 0),
        }
        assert diffs["shop.t"].columns == ["- old string", "~ v bigint -> w bigint", "+ note string"]
        assert (diffs["shop.t"].commits[-1].message, diffs["shop.t"].parent_commits[0].message) == ("three", "above")
        assert [name for name, diff in diffs.items() if diff.parent_dropped] == ["shop.gone"]

        shown = shell.run("branch", "diff", "etl").out
        row = next(line for line in shown.splitlines() if line.startswith("shop.t "))
        assert row.split()[:6] == ["shop.t", "changed", "6", "1", "+3", "-0"]
        listed = {one["table"]: one for one in json.loads(shell.run("branch", "diff", "etl", "-o", "json").out)}
        assert (len(listed["shop.t"]["commits"]), listed["shop.t"]["rows_added"]) == (6, 3)
        assert shell.run("branch", "diff", "none").code == 5


def brief(diff: TableDiff) -> tuple[object, ...]:
    versions = [[commit.version for commit in commits] for commits in (diff.commits, diff.parent_commits)]
    return diff.change, *versions, diff.rows_added, diff.rows_removed
