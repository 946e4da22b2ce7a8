"""What `laketx branch show --held` and `laketx pins list` say of branches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from laketx import connect
from tests.integration.service import service
from tests.integration.terminal import Shell

ROWS = [{"id": 1}]


def test_files_that_the_parent_has_no_more_are_held(tmp_path: Path) -> None:
    with (
        service(tmp_path / "data") as (running, _),
        connect(f"laketx://{running.address}", warehouse=str(tmp_path / "files")) as lake,
    ):
        shell = Shell(running.address)

        def held(branch: str) -> dict[str, tuple[int, int]]:
            answer: list[dict[str, Any]] = json.loads(shell.run("branch", "show", branch, "--held", "-o", "json").out)
            assert all(table["size_bytes"] > 0 for table in answer)
            return {table["name"]: (table["version"], table["files"]) for table in answer}

        for name in ("shop.emptied", "shop.dropped", "shop.same", "shop.grown", "other.t"):
            lake.create_table(name, "id bigint").append(ROWS)
        brings = lake.branch("brings")
        brings.create_table("shop.brought", "id bigint")
        lake.branch("all")
        brings.merge()  # the branch "all" shows no such table
        lake.branch("some", tables=["other.*"])
        assert held("all") == {}
        lake.table("shop.emptied").append(ROWS)
        lake.table("shop.emptied").truncate()
        lake.table("shop.grown").append(ROWS)
        lake.table("other.t").truncate()
        lake.drop_table("shop.dropped")
        lake.create_table("shop.new", "id bigint").append(ROWS)
        lake.table("shop.new").truncate()
        assert held("all") == {"shop.emptied": (1, 1), "shop.dropped": (1, 1), "other.t": (1, 1)}
        assert held("some") == {"other.t": (1, 1)}
        lake.rename_table("other.t", "shop.renamed")
        assert held("some") == {"other.t": (1, 1)}, "the branch shows it under its name there"
        lake.branch("child", parent="all")
        lake.branch("all").table("shop.grown").truncate()
        assert held("child") == {"shop.grown": (1, 1)}
        for given in (
            ["--branch", "all", "table", "list"],
            ["--branch", "child", "table", "list", "--namespace", "shop@all"],
        ):
            names = [line.split()[0].partition("@")[0] for line in shell.run(*given).lines()[1:]]
            here = ["shop.dropped", "shop.emptied", "shop.grown", "shop.same"]
            assert names == (here if "--namespace" in given else ["other.t", *here])
        assert "DROPPED_ON_BRANCH" in shell.run("--branch", "all", "table", "list", "--dropped").err
        assert shell.run("branch", "show", "all", "--held").out.endswith("3 files of 3 tables, 1.1 KiB\n")
        listed = shell.run("pins", "list").lines()
        assert [line.split()[0] for line in listed[1:]] == ["all", "all", "other.*"]
        named = {branch["name"] for branch in json.loads(shell.run("pins", "list", "-o", "json").out)}
        assert named == {"all", "child", "some"}
