"""A refresh: the fork point becomes now, with the branch's commits on top, or nothing changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from laketx import Lake, MergeRefusedError, connect
from metaservice.client import BlockedError, InvalidError
from metaservice.core.errors import MetaError
from metaservice.core.table.model import Operation
from protos.laketx.v1 import read_pb2
from tests.branches.rig import DAY_MS, BranchRig, purge
from tests.conformance.play import new_uuid7
from tests.integration.callers import Guarded, append, create, guarded
from tests.integration.service import service
from tests.integration.terminal import Shell
from tests.retention.rig import HOUR_MS

ROWS = [{"id": 1, "v": 10}, {"id": 2, "v": 20}]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("lake")) as lake:
        yield lake


def values(lake: Lake, name: str) -> dict[int, int]:
    return {row["id"]: row["v"] for row in lake.table(name).to_arrow().to_pylist()}


def test_a_branch_shows_its_parents_present_with_its_commits_on_top(lake: Lake) -> None:
    changed = lake.create_table("on.changed", "id bigint, v bigint", profile="row_level")
    unchanged = lake.create_table("on.unchanged", "id bigint, v bigint")
    changed.append(ROWS)
    branch = lake.branch("on")
    fork = branch.table("on.changed")
    fork.update({"v": "v + 1"}, where="id = 1")
    assert branch.table("on.unchanged").to_arrow().num_rows == 0
    branch.create_table("on.made", "id bigint, v bigint").append(ROWS)
    changed.append([{"id": 3, "v": 30}])
    unchanged.append(ROWS)
    lake.create_table("on.later", "id bigint, v bigint")
    before = branch.time
    would = branch.refresh(dry_run=True)
    assert (branch.time, values(lake, "on.changed@on")) == (before, {1: 11, 2: 20})
    assert branch.refresh() == would
    assert [(one.name, one.commits, one.version, one.fast_forward) for one in would] == [("on.changed", 1, 3, False)]
    assert branch.time > before
    assert values(lake, "on.changed@on") == {1: 11, 2: 20, 3: 30}
    assert values(lake, "on.unchanged@on") == {1: 10, 2: 20}
    assert branch.tables("on") == ["on.changed", "on.later", "on.made", "on.unchanged"]
    assert values(lake, "on.changed") == {1: 10, 2: 20, 3: 30}
    assert [row["v"] for row in branch.table("on.changed").to_arrow(version=2, where="id = 1").to_pylist()] == [10]
    changed.update({"v": "v + 5"}, where="id = 2")
    branch.merge()
    assert values(lake, "on.changed") == {1: 11, 2: 25, 3: 30}
    assert values(lake, "on.made") == {1: 10, 2: 20}


def test_what_was_judged_before_is_judged_again_against_later_commits(lake: Lake) -> None:
    table = lake.create_table("twice.t", "id bigint, v bigint", profile="row_level")
    table.append(ROWS)
    branch = lake.branch("twice")
    branch.table("twice.t").update({"v": "v + 1"}, where="id = 1")
    table.append([{"id": 3, "v": 30}])
    branch.refresh()
    table.update({"v": "0"}, where="id = 1")
    with pytest.raises(MergeRefusedError):
        branch.merge()


def test_what_a_commit_had_read_is_judged_after_a_refresh_too(lake: Lake) -> None:
    options: dict[str, Any] = {"partition_by": ["p"], "profile": "delta_serializable"}
    table = lake.create_table("reads.t", "id bigint, p int, v bigint", **options)
    table.append([{"id": 1, "p": 0, "v": 10}, {"id": 2, "p": 1, "v": 20}])
    branch = lake.branch("reads")
    branch.table("reads.t").update({"v": "v + 1"}, where="p = 1")
    table.append([{"id": 3, "p": 0, "v": 30}])
    assert [one.commits for one in branch.refresh()] == [1]
    table.append([{"id": 4, "p": 1, "v": 40}])
    with pytest.raises(MergeRefusedError):
        branch.merge()
    assert values(lake, "reads.t") == {1: 10, 2: 20, 3: 30, 4: 40}


def test_conflicts_are_told_for_every_table_and_nothing_changes(lake: Lake) -> None:
    for name in ("lost.a", "lost.b", "lost.c"):
        lake.create_table(name, "id bigint, v bigint").append(ROWS)
    branch = lake.branch("lost")
    for name in ("lost.a", "lost.b", "lost.c"):
        branch.table(name).update({"v": "v + 1"})
    ids = [branch.table(name).meta.table_id for name in ("lost.a", "lost.b", "lost.c")]
    for name in ("lost.a", "lost.b"):
        lake.table(name).delete("id = 2")
    before = branch.time
    assert [bool(one.reason) for one in branch.refresh(dry_run=True)] == [True, True, False]
    with pytest.raises(MergeRefusedError, match=r"lost\.a: .*; lost\.b: ") as caught:
        branch.refresh()
    assert [(one.name, one.branch_version) for one in caught.value.tables if one.reason] == [
        ("lost.a", 2),
        ("lost.b", 2),
    ]
    assert ids == [branch.table(name).meta.table_id for name in ("lost.a", "lost.b", "lost.c")]
    assert (lake.branch("lost").time, values(lake, "lost.a@lost")) == (before, {1: 11, 2: 21})


def test_old_versions_of_the_branch_are_refused_in_words(lake: Lake) -> None:
    table = lake.create_table("ids.t", "id bigint, v bigint")
    branch = lake.branch("ids")
    fork = branch.table("ids.t")
    fork.append(ROWS)
    table.append([{"id": 3, "v": 30}])
    pin = lake.client.pin([read_pb2.TableVersion(table_id=fork.meta.table_id, version=1)])
    branch.refresh()
    with pytest.raises(BlockedError) as caught:
        fork.refresh()
    assert (caught.value.reason, caught.value.facts["branch"]) == ("TABLE_ID_OUTDATED", "ids")
    with pytest.raises(BlockedError) as dropped:
        lake.client.undrop_table(fork.meta.table_id)
    assert dropped.value.reason == "TABLE_ID_OUTDATED"
    anew = branch.table("ids.t")
    assert anew.meta.table_id != fork.meta.table_id
    assert [anew.to_arrow(version=version).num_rows for version in range(3)] == [0, 1, 3]
    lake.client.unpin(pin.pin_id)


def test_drops_and_new_names_stay_on_the_branch(lake: Lake) -> None:
    for name in ("drop.a", "drop.b", "drop.c"):
        lake.create_table(name, "id bigint, v bigint").append(ROWS)
    branch = lake.branch("dropping")
    branch.table("drop.b")
    branch.drop_table("drop.a")
    lake.rename_table("drop.b", "drop.d")
    lake.drop_table("drop.c")
    branch.refresh()
    assert branch.tables("drop") == ["drop.d"]
    assert lake.tables("drop") == ["drop.a", "drop.d"]
    branch.refresh()
    assert branch.tables("drop") == ["drop.d"]
    branch.create_table("drop.e", "id bigint")
    made = lake.create_table("drop.e", "id bigint")
    with pytest.raises(MergeRefusedError) as caught:
        branch.refresh()
    assert [(one.name, one.reason) for one in caught.value.tables] == [("drop.e", "TABLE_EXISTS")]
    lake.rename_table(made.meta.name, "drop.f")
    lake.table("drop.a").append(ROWS)
    with pytest.raises(MergeRefusedError) as caught:
        branch.refresh()
    assert [one.reason for one in caught.value.tables] == ["MERGE_NEEDS_UNCHANGED_PARENT"]


def test_an_application_writes_once_over_a_refresh(lake: Lake) -> None:
    table = lake.create_table("app.t", "id bigint, v bigint")
    branch = lake.branch("app")
    fork = branch.table("app.t")
    fork.append(ROWS[:1], app_id="job", app_version=1)
    fork.append(ROWS[1:], app_id="job", app_version=2)
    table.append(ROWS[:1], app_id="job", app_version=1)
    [done] = branch.refresh()
    assert (done.commits, done.version) == (1, 2)
    assert values(lake, "app.t@app") == {1: 10, 2: 20}
    branch.table("app.t").append(ROWS[1:], app_id="job", app_version=2)
    assert values(lake, "app.t@app") == {1: 10, 2: 20}
    branch.merge()
    assert values(lake, "app.t") == {1: 10, 2: 20}


def test_open_transactions_and_children_stop_a_refresh_and_a_merge_that_keeps() -> None:
    rig = BranchRig()
    rig.insert("a")
    rig.branch("b")
    rig.on("days@b").insert("b")
    rig.branch("c", parent="b")
    with pytest.raises(MetaError, match="BRANCH_HAS_CHILDREN"):
        rig.refresh("b")
    with pytest.raises(MetaError, match="BRANCH_HAS_CHILDREN"):
        rig.merge("b", keep=True)
    rig.drop("c")
    txn_id = rig.on("days@b").begin(Operation.INSERT)
    with pytest.raises(MetaError) as caught:
        rig.refresh("b")
    assert (caught.value.reason, caught.value.facts["txn_id"]) == ("BRANCH_IN_USE", txn_id)


def test_a_pin_keeps_what_the_branch_showed_before() -> None:
    rig = BranchRig()
    root = rig.table_id
    rig.insert("a")
    rig.branch("b")
    (own,) = rig.on("days@b").insert("b")
    pin_id = rig.pin(2, lease_ms=HOUR_MS)
    rig.on("days").insert("c")
    assert rig.refresh("b").is_done
    rig.on("days@b").insert("d")
    assert rig.refresh("b").is_done
    assert rig.drop("b")
    for _ in range(3):
        rig.pass_time(HOUR_MS // 10)
        assert own not in purge(rig, root)
    rig.ask(lambda: rig.pins.unpin(pin_id))
    for _ in range(3):
        rig.pass_time(DAY_MS)
    assert own in rig.purgeable(root)


def test_a_refresh_is_answered_again_by_its_id_also_when_others_followed() -> None:
    rig = BranchRig()
    rig.insert("a")
    rig.branch("b")
    rig.on("days@b").insert("b")
    rig.on("days").insert("c")
    txn_id = rig.uuid()
    first = rig.refresh("b", txn_id=txn_id)
    again = rig.refresh("b", txn_id=txn_id)
    answers = [[(one.name, one.count, one.version, one.is_forward) for one in each.tables] for each in (first, again)]
    assert answers == [[("days", 1, 3, False)]] * 2
    assert (again.is_done, again.time_us) == (True, first.time_us)
    rig.refresh("b")
    assert rig.refresh("b", txn_id=txn_id).is_done
    assert rig.on("days@b").head == 3
    with pytest.raises(MetaError) as caught:
        rig.ask(lambda: rig.transactions.abort(txn_id, "no"))
    assert caught.value.reason == "TRANSACTION_ENDED"


@pytest.mark.parametrize("survivors", [0, 1])
def test_a_refresh_is_whole_after_a_power_cut_or_has_not_happened(survivors: int) -> None:
    rig = BranchRig()
    rig.insert("a")
    rig.branch("b")
    for name in ("b", "c"):
        rig.on("days@b").insert(name)
    rig.on("days").insert("d")
    shown, txn_id = rig.on("days@b").list_files(3), rig.uuid()
    rig.store.fail_syncs_after = 0
    with pytest.raises(MetaError, match="STORE_FAILED"):
        rig.refresh("b", txn_id=txn_id)
    rig.store.fail_syncs_after = None
    rig.crash(min(survivors, rig.store.unsynced_batches))
    done = rig.decider.state.find_txn(txn_id) is not None
    assert rig.on("days@b").head == (4 if done else 3)
    assert shown <= rig.list_files(rig.head)
    again = rig.refresh("b", txn_id=txn_id)
    assert [(one.count, one.version, one.is_forward) for one in again.tables] == [(2, 4, False)]
    assert rig.on("days@b").head == 4
    assert shown < rig.list_files(4)


@pytest.fixture(scope="module")
def guards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("rights") / "data") as made:
        yield made


def test_whose_branch_it_is_may_refresh_it(guards: Guarded) -> None:
    owner, knows = guards.owner, (("x-laketx-features", "forks"),)
    owner.call("CatalogService/CreateNamespace", name="shop", request_id=new_uuid7())
    writer = guards.caller(guards.token("writer"), knows)
    table_id = create(owner, "shop.t")
    guards.grant("user:writer", "writer")
    owner.call("CatalogService/CreateBranch", request_id=new_uuid7(), name="his")
    writer.call("CatalogService/CreateBranch", request_id=new_uuid7(), name="own")
    refresh = "CatalogService/RefreshBranch"
    assert writer.outcome(refresh, txn_id=new_uuid7(), name="his") == "ROLE_MISSING"
    fork = writer.call("CatalogService/GetTable", name="shop.t@own").table
    append(writer, fork.table_id, features=["forks"])
    append(owner, table_id)
    answer = writer.call(refresh, txn_id=new_uuid7(), name="own")
    assert [(one.name, one.version) for one in answer.tables] == [("shop.t", 2)]
    assert owner.outcome(refresh, txn_id=new_uuid7(), name="own") == "ok"
    assert owner.outcome(refresh, txn_id="x", name="own") == "TRANSACTION_ID_INVALID"
    assert owner.outcome(refresh, txn_id=new_uuid7(), name="none") == "BRANCH_UNKNOWN"


def test_the_command_line_and_a_kill(tmp_path: Path) -> None:
    with service(tmp_path / "data") as (running, _):
        lake = connect(f"laketx://{running.address}", warehouse=str(tmp_path / "files"))
        shell = Shell(running.address)
        lake.create_table("shop.t", "id bigint, v bigint").append(ROWS)
        branch = lake.branch("etl")
        branch.table("shop.t").append([{"id": 3, "v": 30}])
        lake.table("shop.t").append([{"id": 4, "v": 40}])
        assert "judged against" in shell.run("branch", "refresh", "etl", "--dry-run").out
        assert len(values(lake, "shop.t@etl")) == 3
        txn_id = new_uuid7()
        [done] = branch.refresh(txn_id=txn_id)
        running.kill()
        running.start()
        assert branch.refresh(txn_id=txn_id) == [done]
        assert values(lake, "shop.t@etl") == {1: 10, 2: 20, 3: 30, 4: 40}
        with pytest.raises(InvalidError):
            lake.client.merge_branch("etl", txn_id=txn_id)
        shell.run("branch", "refresh", "etl")
        lake.table("shop.t").update({"v": "0"})
        branch.table("shop.t").update({"v": "1"})
        lost = shell.run("branch", "refresh", "etl")
        assert (lost.code, "MERGE_REFUSED" in lost.err) == (4, True)
        assert [problem for part in lake.client.check() for problem in part.problems] == []
