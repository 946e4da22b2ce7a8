"""Branches that are limited to some tables: what they have, and what they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from laketx import Lake, connect
from metaservice.client import InvalidError, NotFoundError
from metaservice.core import quotas
from metaservice.core.errors import MetaError
from metaservice.core.table.model import Principal
from metaservice.service.branch.branches import BranchRequest
from metaservice.shared.table_patterns import is_among
from tests.branches.rig import DAY_MS, BranchRig, purge
from tests.integration.service import service
from tests.integration.terminal import Shell

ROWS = [{"id": 1, "v": 10}, {"id": 2, "v": 20}]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("lake")) as lake:
        yield lake


def test_a_branch_has_the_tables_that_it_is_limited_to(lake: Lake) -> None:
    for name in ("shop.orders", "shop.items", "bank.accounts", "bank.moves"):
        lake.create_table(name, "id bigint, v bigint").append(ROWS)
    branch = lake.branch("some", tables=["Shop.*", "bank.accounts"])
    assert branch.limits == ["Shop.*", "bank.accounts"]
    assert branch.tables() == ["bank.accounts", "shop.items", "shop.orders"]
    branch.table("shop.orders").append(ROWS)
    branch.create_table("shop.new", "id bigint")
    calls: list[Callable[[], object]] = [
        lambda: branch.table("bank.moves"),
        lambda: branch.create_table("bank.new", "id bigint"),
    ]
    for call in calls:
        with pytest.raises(NotFoundError, match="limited to other tables") as caught:
            call()
        assert (caught.value.reason, caught.value.facts["branch"]) == ("TABLE_NOT_ON_BRANCH", "some")
        assert caught.value.facts["tables"] == "Shop.*, bank.accounts"
    child = lake.branch("child", parent="some")
    assert child.limits == branch.limits
    narrow = lake.branch("narrow", parent="some", tables=["shop.orders", "bank.moves"])
    assert narrow.table("shop.orders").to_arrow().num_rows == 4
    for name in ("shop.items", "bank.moves"):
        with pytest.raises(NotFoundError):
            narrow.table(name)
    for each in (child, narrow):
        each.drop()
    assert {table.name for table in branch.refresh()} == {"shop.orders"}
    assert lake.branch("some").limits == branch.limits
    branch.merge()
    assert lake.table("shop.orders").to_arrow().num_rows == 4


@pytest.mark.parametrize("pattern", ["", "*", "a.b.c", "a.b.*", "sh*p", "shop.", ".*", "x" * 300, "shop.t@b"])
def test_texts_that_are_no_patterns(lake: Lake, pattern: str) -> None:
    with pytest.raises(InvalidError) as caught:
        lake.client.create_branch("pattern", tables=[pattern])
    assert caught.value.reason == "NAME_INVALID"


def test_a_branch_has_few_patterns(lake: Lake) -> None:
    with pytest.raises(InvalidError) as caught:
        lake.client.create_branch("many", tables=[f"t{number}" for number in range(101)])
    assert caught.value.reason == "COUNT_OUT_OF_RANGE"


def test_patterns() -> None:
    patterns = ["shop.*", "T"]
    assert [name for name in ("shop.a", "SHOP.B", "t", "shop", "shops.a", "a.t", "tt") if is_among(name, patterns)] == [
        "shop.a", "SHOP.B", "t",
    ]  # fmt: skip


def test_a_limited_branch_holds_its_tables_alone() -> None:
    rig = BranchRig()
    root, other = rig.table_id, rig.create("other", 24)
    (kept,) = rig.insert("a")
    rig.table_id = other
    (lost,) = rig.insert("b")
    rig.branch("b", keep_ms=40 * DAY_MS, tables=("days",))
    rig.branch("c", keep_ms=40 * DAY_MS, tables=("none.*",))
    for table_id in (root, other):
        rig.table_id = table_id
        rig.overwrite("c")
    for _ in range(2):
        rig.pass_time(5 * DAY_MS)
    assert purge(rig, root) == set()
    assert purge(rig, other) == {lost}
    rig.crash()
    rig.pass_time(5 * DAY_MS)
    assert purge(rig, root) == set()
    assert rig.on("days@b").list_files(1) == {kept}


def test_the_command_line(tmp_path: Path) -> None:
    with service(tmp_path / "data") as (running, _):
        lake = connect(f"laketx://{running.address}", warehouse=str(tmp_path / "files"))
        shell = Shell(running.address)
        lake.create_table("shop.t", "id bigint")
        lake.create_table("bank.t", "id bigint")
        assert shell.run("branch", "create", "etl", "--tables", "shop.*", "--tables", "bank.u").code == 0
        assert "shop.*, bank.u" in shell.run("branch", "show", "etl").out
        lost = shell.run("versions", "bank.t@etl")
        assert (lost.code, "TABLE_NOT_ON_BRANCH" in lost.err) == (5, True)
        assert shell.run("branch", "create", "bad", "--tables", "*").code != 0


def test_branches_are_a_quota_of_who_made_them() -> None:
    rig = BranchRig()
    rig.branches._quotas = {quotas.BRANCHES: quotas.Quota(3, 2)}

    def make(name: str, who: str) -> str:
        request = BranchRequest(rig.uuid(), name, "", 0, "", Principal(who, "tests"), b"branch")
        try:
            return rig.ask(lambda: rig.branches.create(request)).name
        except MetaError as refusal:
            return f"{refusal.reason} {refusal.facts.get('principal', 'all')}"

    assert [make(name, "ana") for name in "abc"] == ["a", "b", "TOO_MANY_BRANCHES ana"]
    rig.ask(lambda: rig.branches.extend("a", DAY_MS))
    assert rig.merge("a", keep=True).is_done
    assert rig.decider.state.usage.use(quotas.BRANCHES) == (2, {"ana": 2})
    rig.crash()
    rig.branches._quotas = {quotas.BRANCHES: quotas.Quota(3, 2)}
    assert [make("c", "bob"), make("d", "bob"), make("d", "ana")] == [
        "c",
        "TOO_MANY_BRANCHES all",
        "TOO_MANY_BRANCHES all",
    ]
    assert rig.merge("a").is_done
    assert make("d", "ana") == "d"
    for name in "bcd":
        assert rig.drop(name)
    assert rig.decider.state.usage.use(quotas.BRANCHES) == (0, {})
