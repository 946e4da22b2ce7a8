"""Branches over the wire: rights, refusals, old clients, kills, and the command line."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest

from laketx import Branch, Lake, MergeRefusedError, connect
from laketx.branch import Check
from metaservice.client import (
    AlreadyExistsError,
    BlockedError,
    InvalidError,
    LakeTXError,
    MetaClient,
    MetaServiceError,
    NotFoundError,
)
from metaservice.rpc.convert.paging import bound_token
from protos.laketx.v1 import catalog_pb2
from tests.conformance.play import new_uuid7
from tests.integration.callers import Caller, Guarded, append, create, guarded
from tests.integration.service import Service, free_address, reason_of, service, wait_until
from tests.integration.terminal import Shell
from worker.base.errors import InputError

MADE_UP = bound_token(b"\xff\xfe", "branches")
ROWS = [{"id": 1, "v": 10}, {"id": 2, "v": 20}]


def columns_of(**types: str) -> list[catalog_pb2.Column]:
    return [catalog_pb2.Column(name=name, type=one, nullable=True) for name, one in types.items()]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("lake")) as lake:
        yield lake


@pytest.fixture(scope="module")
def guards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("rights") / "data") as made:
        made.owner.call("CatalogService/CreateNamespace", name="shop", request_id=new_uuid7())
        yield made


def test_a_table_on_a_branch_has_the_rights_of_its_parents(guards: Guarded) -> None:
    owner, knows = guards.owner, (("x-laketx-features", "forks"),)
    reader, stranger = (guards.caller(guards.token(name), knows) for name in ("reader", "stranger"))
    table_id = create(owner, "shop.mine")
    guards.grant("user:reader", "reader", table_id=table_id)
    owner.call("CatalogService/CreateBranch", request_id=new_uuid7(), name="rights")
    assert stranger.outcome("CatalogService/GetTable", name="shop.mine@rights") == "TABLE_UNKNOWN"
    fork = reader.call("CatalogService/GetTable", name="shop.mine@rights").table
    assert fork.folder_id == table_id
    assert stranger.outcome("CatalogService/GetTable", table_id=fork.table_id) == "TABLE_UNKNOWN"
    assert not stranger.call("CatalogService/GetBranch", name="rights").tables
    assert [one.name for one in reader.call("CatalogService/GetBranch", name="rights").tables] == ["shop.mine"]
    append(owner, fork.table_id, features=["forks"])
    made = create(owner, "shop.made@rights")
    owner.call("CatalogService/CreateBranch", request_id=new_uuid7(), name="below", parent="rights")
    for caller in (reader, stranger):
        assert caller.outcome("CatalogService/GetTable", name="shop.made@below") == "TABLE_UNKNOWN"
    assert reader.call("CatalogService/GetTable", name="shop.mine@below").table.folder_id == table_id
    owner.call("CatalogService/DropBranch", name="below")
    owner.call("CatalogService/DropTable", table_id=made)
    assert merge(reader) == "ROLE_MISSING"
    assert reader.outcome("CatalogService/DropBranch", name="rights") == "ROLE_MISSING"
    assert reader.outcome("CatalogService/DropBranches", branches=[{"name": "rights"}]) == "ROLE_MISSING"
    assert reader.outcome("CatalogService/ExtendBranch", name="rights", keep_ms=10_000) == "ROLE_MISSING"
    assert reader.outcome("CatalogService/CreateBranch", request_id=new_uuid7(), name="other") == "ROLE_MISSING"
    clone = {"request_id": new_uuid7(), "table_id": table_id, "name": "shop.copy"}
    assert reader.outcome("CatalogService/CloneTable", **clone) in ("ROLE_MISSING", "NAMESPACE_UNKNOWN")
    guards.grant("user:reader", "writer", table_id=table_id)
    assert merge(reader) == "ok"


def test_lists_of_a_branch_name_what_a_caller_may_look_up(guards: Guarded) -> None:
    owner, peer = guards.owner, guards.named("lister")
    names = [f"shop.{name}" for name in ("l1_hidden", "l2_seen", "l3_hidden", "l4_seen", "l5_hidden")]
    ids = {name: create(owner, name) for name in names}
    owner.call("CatalogService/CreateBranch", request_id=new_uuid7(), name="lists")
    for name in names[1::2]:
        guards.grant("user:lister", "reader", table_id=ids[name])
    forks = (("x-laketx-features", "forks"),)
    guards.caller(guards.token("lister"), forks).call("CatalogService/GetTable", name="shop.l4_seen@lists")
    guards.caller(guards.token("owner"), forks)
    create(owner, "shop.l6_made@lists")
    listed, token = list[catalog_pb2.Table](), ""
    while not listed or token:
        page = peer.call("CatalogService/ListTables", branch="LISTS", page_size=1, page_token=token)
        assert len(page.tables) == 1 or not page.next_page_token
        listed, token = [*listed, *page.tables], page.next_page_token
        assert b"hidden" not in base64.urlsafe_b64decode(token.rpartition(".")[2])
    assert [(one.name, bool(one.table_id), one.parent_table_id) for one in listed] == [
        ("shop.l2_seen@lists", False, ids["shop.l2_seen"]),
        ("shop.l4_seen@lists", True, ""),
    ]
    assert len(owner.call("CatalogService/ListTables", branch="lists", namespace="SHOP", name_contains="L").tables) == 6
    assert peer.outcome("CatalogService/ListTables", branch="nowhere") == "BRANCH_UNKNOWN"
    assert owner.outcome("CatalogService/ListTables", branch="lists", include_dropped=True) == "DROPPED_ON_BRANCH"
    assert owner.outcome("CatalogService/ListTables", branch="lists", namespace="none") == "NAMESPACE_UNKNOWN"
    token = owner.call("CatalogService/ListTables", branch="lists", page_size=1).next_page_token
    assert owner.outcome("CatalogService/ListTables", page_token=token) == "PAGE_TOKEN_INVALID"
    owner.call("CatalogService/DropBranch", name="lists")


def merge(caller: Caller) -> str:
    return caller.outcome("CatalogService/MergeBranch", txn_id=new_uuid7(), name="rights", validate_only=False)


def test_a_client_that_does_not_know_forks_is_refused(tmp_path: Path) -> None:
    with service(tmp_path / "data") as (running, stubs), lake_of(running, tmp_path) as lake:
        table = lake.create_table("old.t", "id bigint, day string", partition_by=["day"])
        table.append([{"id": 1, "day": "1"}])
        fork = lake.branch("old").table("old.t")
        with pytest.raises(grpc.RpcError) as caught:
            stubs.catalog.GetTable(catalog_pb2.GetTableRequest(table_id=fork.meta.table_id))
        assert reason_of(caught.value) == "CLIENT_TOO_OLD"
        with pytest.raises(grpc.RpcError) as caught:
            stubs.append(fork.meta.table_id)
        assert reason_of(caught.value) == "CLIENT_TOO_OLD"


@pytest.mark.parametrize("name", ["", "main", "7", "a b", "a@b", "-a", "x" * 65, "ä"])
def test_names_that_no_branch_can_have(lake: Lake, name: str) -> None:
    with pytest.raises(InvalidError) as caught:
        lake.client.create_branch(name)
    assert caught.value.reason == "BRANCH_NAME_INVALID"


def test_a_table_that_another_branch_brings_later_is_not_listed(lake: Lake) -> None:
    lake.create_table("brought.before", "id bigint").append([{"id": 1}])
    first = lake.branch("first")
    first.create_table("brought.made", "id bigint")
    second = lake.branch("second")
    first.merge()
    lake.rename_table("brought.before", "brought.renamed")
    lake.create_table("brought.later", "id bigint")
    assert second.tables("brought") == ["brought.before"]
    lake.client.drop_branch("second")


def test_calls_that_name_what_is_not_there(lake: Lake) -> None:
    lake.create_table("there.t", "id bigint")
    branch = lake.branch("there")
    lake.create_table("there.later", "id bigint")
    with pytest.raises(NotFoundError):
        lake.table("there.t@nowhere")
    with pytest.raises(NotFoundError):
        branch.table("there.later")
    assert "there.later" not in branch.tables()
    with pytest.raises(NotFoundError):
        lake.create_table("there.new@nowhere", "id bigint")
    with pytest.raises(AlreadyExistsError):
        lake.client.create_branch("THERE")
    with pytest.raises(AlreadyExistsError):
        branch.create_table("there.t", "id bigint")
    with pytest.raises(BlockedError) as caught:
        lake.rename_table("there.t@there", "there.u@there")
    assert caught.value.reason == "RENAME_ON_BRANCH"
    with pytest.raises(InvalidError):
        lake.clone_table("there.t", "there.copy@there")
    assert [one for one in lake.tables("there") if "@" in one] == []
    branch.drop()


def test_a_drop_on_a_branch_is_the_parents_with_the_merge(lake: Lake) -> None:
    for name in ("drops.a", "drops.b"):
        lake.create_table(name, "id bigint, v bigint").append(ROWS)
    branch = lake.branch("drops")
    branch.drop_table("drops.a")
    assert branch.tables("drops") == ["drops.b"]
    with pytest.raises(NotFoundError):
        branch.table("drops.a")
    assert lake.tables("drops") == ["drops.a", "drops.b"]
    branch.merge()
    assert lake.tables("drops") == ["drops.b"]


def test_a_branch_knows_nothing_of_an_earlier_one_of_its_name(lake: Lake) -> None:
    table = lake.create_table("again.a", "id bigint, v bigint")
    lake.branch("again").drop_table("again.a")
    lake.branch("again").drop()
    second = lake.branch("again")
    assert second.tables("again") == ["again.a"]
    assert second.table("again.a").to_arrow().num_rows == 0
    assert second.merge() == []
    assert lake.tables("again") == ["again.a"]
    table.append(ROWS)


def test_a_table_that_was_dropped_on_a_branch_comes_back_there_alone(lake: Lake) -> None:
    lake.create_table("back.a", "id bigint, v bigint").append(ROWS)
    branch = lake.branch("back")
    fork_id = branch.table("back.a").meta.table_id
    branch.drop_table("back.a")
    lake.client.undrop_table(fork_id)
    assert branch.table("back.a").to_arrow().num_rows == 2
    assert branch.merge() == []
    assert lake.tables("back") == ["back.a"]
    other = lake.branch("gone")
    fork_id = other.table("back.a").meta.table_id
    other.drop()
    assert not [one for one in lake.client.list_tables(include_dropped=True) if "@" in one.name]
    with pytest.raises(LakeTXError):
        lake.client.undrop_table(fork_id)


def test_no_compaction_is_planned_on_a_branch(tmp_path: Path) -> None:
    with service(tmp_path / "data", "--schedule-ms", "20") as (running, _), lake_of(running, tmp_path) as lake:
        properties = {"compaction.minor.files": "2", "write.inline.rows": "0"}
        for name in ("plan.a", "plan.b"):
            lake.create_table(name, "id bigint, v bigint", properties=properties)
        branch = lake.branch("plan")
        for _ in range(20):
            branch.table("plan.a").append(ROWS)
            lake.table("plan.b").append(ROWS)
        wait_until(lambda: any(lake.client.list_tasks()))
        assert {task.table_name for task in lake.client.list_tasks()} == {"plan.b"}


def test_a_drop_of_a_table_that_changed_is_refused(lake: Lake) -> None:
    table = lake.create_table("kept.a", "id bigint, v bigint")
    branch = lake.branch("kept")
    branch.drop_table("kept.a")
    table.append(ROWS)
    with pytest.raises(MergeRefusedError) as caught:
        branch.merge()
    assert [one.reason for one in caught.value.tables] == ["MERGE_NEEDS_UNCHANGED_PARENT"]
    assert lake.tables("kept") == ["kept.a"]


def test_an_alteration_goes_with_its_rows_or_not_at_all(lake: Lake) -> None:
    table = lake.create_table("alter.t", "id bigint, v bigint")
    table.append(ROWS)
    branch = lake.branch("alter")
    branch.table("alter.t").add_columns("note string")
    branch.table("alter.t").append([{"id": 3, "v": 30, "note": "new"}])
    other = lake.branch("other")
    other.table("alter.t").add_columns("mark string")
    branch.merge()
    assert sorted(row["note"] or "" for row in lake.table("alter.t").to_arrow().to_pylist()) == ["", "", "new"]
    other.merge()
    assert [column.name for column in lake.table("alter.t").meta.columns] == ["id", "v", "note", "mark"]


@pytest.mark.parametrize("profile", ["maxcompute", "delta_serializable", "delta_write_serializable", "row_level"])
@pytest.mark.parametrize("back", ["merge", "refresh"])
def test_an_alteration_follows_rows_of_the_parent(lake: Lake, profile: Any, back: str) -> None:
    name = f"after_{profile}_{back}.t"
    table = lake.create_table(name, "id bigint, v bigint", profile=profile)
    table.append(ROWS)
    branch = lake.branch(f"{profile}-{back}")
    fork = branch.table(name)
    fork.add_columns("note string")
    fork.set_properties(**{"user.owner": "ana"})
    fork.append([{"id": 3, "v": 30, "note": "new"}])
    fork.rename_column("note", "remark")
    fork.append([{"id": 4, "v": 40, "remark": "newer"}])
    table.append([{"id": 5, "v": 50}])
    table.set_properties(**{"user.team": "shop"})
    branch.merge() if back == "merge" else branch.refresh()
    merged = lake.table(name) if back == "merge" else branch.table(name)
    rows = sorted(merged.to_arrow().to_pylist(), key=lambda row: int(row["id"]))
    assert [(row["id"], row["remark"]) for row in rows] == [(1, None), (2, None), (3, "new"), (4, "newer"), (5, None)]
    properties = merged.refresh().meta.properties
    assert (properties["user.owner"], properties["user.team"]) == ("ana", "shop")
    table = lake.table(name)
    table.add_columns("late string")  # its id is a new one
    table.append([{"id": 6, "v": 60, "late": "x"}])
    assert [row["late"] for row in table.to_arrow().to_pylist() if row["id"] in (3, 6)].count("x") == 1


def test_a_table_that_was_replaced_on_a_branch_follows_rows_where_an_overwrite_does(lake: Lake) -> None:
    table = lake.create_table("replaced.t", "id bigint, v bigint")
    table.append(ROWS)
    branch = lake.branch("replaced")
    wanted = catalog_pb2.Table(name="replaced.t@replaced", columns=columns_of(id="bigint", name="string"))
    lake.client.create_table(wanted, or_replace=True)
    branch.table("replaced.t").append([{"id": 7, "name": "seven"}])
    table.append([{"id": 5, "v": 50}])
    branch.merge()
    assert lake.table("replaced.t").to_arrow().to_pylist() == [{"id": 7, "name": "seven"}]


def test_a_creation_is_repeated_after_the_merge_of_an_alteration(lake: Lake) -> None:
    wanted = catalog_pb2.Table(name="repeated.t", columns=columns_of(id="bigint", v="bigint"))
    lake.client.create_namespace("repeated")
    request_id = new_uuid7()
    made = lake.client.create_table(wanted, request_id=request_id)
    branch = lake.branch("repeated")
    branch.table("repeated.t").add_columns("note string")
    branch.merge()
    assert lake.client.create_table(wanted, request_id=request_id).table_id == made.table_id


def test_rows_in_commits_and_increments_of_a_fork(lake: Lake) -> None:
    table = lake.create_table("inc.t", "id bigint, v bigint", primary_key=["id"])
    table.insert(arrow(ROWS))
    branch = lake.branch("inc")
    fork = branch.table("inc.t")
    fork.insert(arrow([{"id": 1, "v": 11}, {"id": 3, "v": 30}]))
    fork.delete("id = 2")

    def changes(since: int) -> list[tuple[Any, ...]]:
        found = fork.to_arrow(since=since, mode="changes").to_pylist()
        return sorted((row["id"], row["v"], row["_change_type"]) for row in found)

    assert changes(1) == [(1, 10, "update_preimage"), (1, 11, "update_postimage"), (2, 20, "delete"), (3, 30, "insert")]
    assert changes(0) == [(1, 11, "insert"), (3, 30, "insert")]
    branch.merge()
    assert sorted((row["id"], row["v"]) for row in lake.table("inc.t").to_arrow().to_pylist()) == [(1, 11), (3, 30)]


def test_a_check_that_does_not_hold_stops_the_merge(lake: Lake) -> None:
    lake.create_table("wap.t", "id bigint, v bigint")
    with lake.branch("wap") as branch:
        branch.table("wap.t").append([{"id": 1, "v": -1}])
        with pytest.raises(MergeRefusedError, match="check 1 of 1"):
            branch.merge(checks=[lambda b: b.table("wap.t").to_arrow(where="v < 0").num_rows == 0])
        assert lake.table("wap.t").to_arrow().num_rows == 0
        branch.table("wap.t").update({"v": "1"})
        branch.merge(checks=[lambda b: b.table("wap.t").to_arrow(where="v < 0").num_rows == 0])
    assert lake.table("wap.t").to_arrow().to_pylist() == [{"id": 1, "v": 1}]
    assert "wap" not in lake.branches()


def test_checks_in_sql(lake: Lake) -> None:
    """Names are the branch's, or say a branch; an answer that is not true alone stops the merge."""
    lake.create_table("checked.t", "id bigint, v bigint").append(ROWS)
    branch = lake.branch("checked")
    fork = branch.table("checked.t")
    fork.append([{"id": 3, "v": -1}])
    refused = {
        "SELECT count(*) = 0 FROM checked.t WHERE v < 0": "answered false",
        "SELECT v FROM checked.t": "answered more than one value",
        "SELECT id, v FROM checked.t WHERE id = 1": "answered more than one value",
        "SELECT v > 0 FROM checked.t WHERE id = 9": "answered no row",
        "SELECT count(*) FROM checked.t": "answered 3",
        "SELECT max(nullif(v, v)) > 0 FROM checked.t": "answered None",
    }
    for query, said in refused.items():
        with pytest.raises(MergeRefusedError, match=f"check 2 of 2 does not hold on the branch checked.*{said}"):
            branch.merge(checks=["SELECT true", query])
    of_machine = f"SELECT count(*) = 1 FROM read_text('{__file__}')"  # a table's check may be somebody else's
    for wrong in ("SELECT", "SELECT true; SELECT true", "DELETE FROM checked.t", "SELECT w FROM checked.t", of_machine):
        with pytest.raises(InputError, match="CHECK_INVALID"):
            branch.merge(checks=[wrong])
    with pytest.raises(NotFoundError):
        branch.merge(checks=["SELECT count(*) = 0 FROM checked.other"])
    fork.update({"v": "30"}, where="id = 3")
    both = 'WITH t AS (SELECT * FROM lake.checked.t) SELECT count(*) = 1 FROM t ANTI JOIN checked."t@main" b USING (id)'
    assert [done.commits for done in branch.merge(checks=[both])] == [2]


def test_a_merge_that_is_repeated_runs_its_checks_once(lake: Lake) -> None:
    """Its answer was lost: the branch has ended, and what was checked is committed."""
    lake.create_table("twice.t", "id bigint, v bigint")
    branch, txn_id, ran = lake.branch("twice"), new_uuid7(), list[str]()
    branch.table("twice.t").append(ROWS)

    def check(on: Branch) -> bool:
        ran.append(on.name)
        return True

    checks: list[Check] = ["SELECT count(*) > 0 FROM twice.t", check]
    first = branch.merge(checks=checks, txn_id=txn_id)
    again = branch.merge(checks=checks, txn_id=txn_id)
    assert [(done.version, done.commits) for done in again] == [(done.version, done.commits) for done in first]
    assert ran == ["twice"]


def test_checks_of_a_table(lake: Lake) -> None:
    """Each merge into the table must pass them; a client that doesn't know of them changes nothing."""
    checks = ["SELECT min(v) >= 0 FROM guard.t", "SELECT count(*) > 0 FROM guard.t"]
    table = lake.create_table("guard.t", "id bigint, v bigint", properties={"merge.checks": json.dumps(checks)})
    other = lake.create_table("guard.other", "id bigint, v bigint")
    branch = lake.branch("guard")
    branch.table("guard.other").append(ROWS)
    branch.table("guard.t").append([{"id": 1, "v": -1}])
    answer = lake.client.merge_branch("guard")
    assert not answer.merged
    [failed] = [done for done in answer.tables if done.reason]
    assert (failed.name, failed.reason, list(failed.checks)) == ("guard.t", "MERGE_CHECKS_NOT_RUN", checks)
    with pytest.raises(MergeRefusedError, match=r"of the table guard\.t .*SELECT min\(v\) >= 0.*answered false"):
        branch.merge()
    with pytest.raises(MergeRefusedError, match="answered false"):
        branch.merge(dry_run=True)
    assert (table.refresh().meta.head_version, other.refresh().meta.head_version) == (0, 0)
    branch.table("guard.t").update({"v": "1"})
    txn_id = new_uuid7()
    assert {done.name: done.reason for done in branch.merge(txn_id=txn_id)} == {"guard.t": "", "guard.other": ""}
    assert lake.client.merge_branch("guard", txn_id=txn_id).merged
    assert table.refresh().to_arrow().to_pylist() == [{"id": 1, "v": 1}]


def test_a_table_without_merged_commits_needs_no_check(lake: Lake) -> None:
    lake.create_table("idle.t", "id bigint, v bigint", properties={"merge.checks": "SELECT false"})
    lake.create_table("idle.other", "id bigint, v bigint")
    branch = lake.branch("idle")
    assert branch.table("idle.t").to_arrow().num_rows == 0
    branch.table("idle.other").append(ROWS)
    assert [done.name for done in branch.merge()] == ["idle.other"]
    with pytest.raises(InvalidError, match="PROPERTY_INVALID"):
        lake.create_table("idle.wrong", "id bigint", properties={"merge.checks": '["SELECT true", 1]'})


def test_a_clone_of_a_table_by_itself(lake: Lake) -> None:
    table = lake.create_table("cloned.t", "id bigint, v bigint")
    table.append(ROWS[:1])
    table.append(ROWS[1:])
    assert table.clone("copies.old", version=1).to_arrow().num_rows == 1
    assert table.clone("copies.t").name == "copies.t"
    with pytest.raises(AlreadyExistsError):
        table.clone("copies.t")


def test_an_application_writes_once_on_either_line(lake: Lake) -> None:
    table = lake.create_table("app.t", "id bigint, v bigint")
    table.append(ROWS[:1], app_id="job", app_version=1)
    branch = lake.branch("app")
    fork = branch.table("app.t")
    fork.append(ROWS[:1], app_id="job", app_version=1)
    fork.append(ROWS[1:], app_id="job", app_version=2)
    assert fork.to_arrow().num_rows == 2
    table.append(ROWS[1:], app_id="job", app_version=2)
    [done] = branch.merge()
    assert done.commits == 0
    assert lake.table("app.t").to_arrow().num_rows == 2


def test_the_command_line(tmp_path: Path) -> None:
    with service(tmp_path / "data") as (running, _), lake_of(running, tmp_path) as lake:
        shell = Shell(running.address)
        lake.create_table("shop.t", "id bigint, v bigint").append(ROWS)
        assert shell.run("branch", "create", "etl", "--keep", "172800", "--comment", "nightly").code == 0
        lake.branch("etl").table("shop.t").update({"v": "0"}, where="id = 1")
        assert "next: `laketx branch list`" in shell.run("branch", "merge", "none").err
        listed = json.loads(shell.run("branch", "list", "-o", "json").out)
        assert [(one["name"], one["comment"]) for one in listed] == [("etl", "nightly")]
        assert "1 commit" in shell.run("branch", "show", "etl").out
        assert shell.run("branch", "merge", "etl", "--dry-run").code == 0
        assert lake.table("shop.t").meta.head_version == 1
        lake.table("shop.t").delete("id = 2")
        lost = shell.run("branch", "merge", "etl")
        assert (lost.code, "MERGE_REFUSED" in lost.err) == (4, True)
        assert shell.run("branch", "extend", "etl", "--keep", "2592000").code == 0
        checked = ["branch", "merge", "etl", "--warehouse", str(lake.warehouse)]
        refused = shell.run(*checked, "--check", "SELECT true", "--check", "SELECT min(v) > 0 FROM shop.t")
        assert (refused.code, "CHECK_FAILED" in refused.err, "answered false" in refused.err) == (4, True, True)
        assert "MERGE_REFUSED" in shell.run(*checked, "--check", "SELECT min(v) = 0 FROM shop.t").err
        assert shell.run("branch", "drop", "etl", "--yes").code == 0
        many = shell.run("branch", "create", "one", "2", "three")
        assert (many.code, many.out.splitlines(), "BRANCH_NAME_INVALID" in many.err) == (
            1,
            ["created branch one", "created branch three"],
            True,
        )
        assert shell.run("branch", "drop", "one", "two", "--yes").code == 5
        assert len(json.loads(shell.run("branch", "drop", "one", "three", "--yes", "-o", "json").out)) == 2
        lake.create_table("shop.gone", "id bigint")
        lake.branch("drops").drop_table("shop.gone")
        for words in (["--dry-run"], []):
            said = shell.run("branch", "merge", "drops", *words)
            assert (said.code, "drops the table" in said.out, ", 1 dropped" in said.err) == (0, True, True), words
        assert shell.run("table", "clone", "shop.t", "shop.copy", "--version", "1").code == 0
        assert lake.table("shop.copy").to_arrow().num_rows == 2
        lake.mark_warehouse()
        run = shell.run("purge", "run", "shop.copy", "--warehouse", str(lake.warehouse), "--yes")
        assert (run.code, "the files of shop.copy are in the folder of shop.t" in run.err) == (0, True), run.err


def test_branches_and_forks_survive_a_kill(tmp_path: Path) -> None:
    with service(tmp_path / "data") as (running, _), lake_of(running, tmp_path) as lake:
        lake.create_table("kill.t", "id bigint, v bigint", primary_key=["id"]).insert(arrow(ROWS))
        fork = lake.branch("kill").table("kill.t")
        fork.insert(arrow([{"id": 3, "v": 30}]))
        running.kill()
        running.start()
        assert fork.refresh().to_arrow().num_rows == 3
        lake.branch("kill").merge()
        running.kill()
        running.start()
        assert lake.table("kill.t").to_arrow().num_rows == 3
        assert [problem for part in lake.client.check() for problem in part.problems] == []


def arrow(rows: list[dict[str, int]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=pa.schema({"id": pa.int64(), "v": pa.int64()}))


def lake_of(running: Service, folder: Path) -> Lake:
    return connect(f"laketx://{running.address}", warehouse=str(folder / "files"))


def test_a_branch_of_a_client_is_made_once(lake: Lake) -> None:
    client: MetaClient = lake.client
    request_id = new_uuid7()
    first = client.create_branch("once", request_id=request_id)
    assert client.create_branch("once", request_id=request_id) == first
    assert client.drop_branch("once").dropped
    assert not client.drop_branch("once").dropped


def test_many_branches_are_made_and_dropped_each_by_itself(lake: Lake) -> None:
    lake.branch("many-1")
    made = lake.create_branches(["many-0", "many-1", "1", "many-2"], comment="many", tables=["shop.*"])
    kinds = [each.reason if isinstance(each, MetaServiceError) else each.name for each in made.values()]
    assert kinds == ["many-0", "BRANCH_EXISTS", "BRANCH_NAME_INVALID", "many-2"]
    event = list(lake.client.list_branch_events())[-1]
    assert (event.kind, event.branch, event.comment) == ("created", "many-2", "many")
    assert lake.client.get_branch("many-0").branch.tables == ["shop.*"]
    lake.branch("below", parent="many-0")
    dropped = lake.drop_branches(["many-0", "many-1", "many-2", "many-3"])
    assert [getattr(each, "reason", each) for each in dropped.values()] == ["BRANCH_HAS_CHILDREN", True, True, False]
    assert lake.drop_branches(["below", "many-0"]) == {"below": True, "many-0": True}
    too_many = catalog_pb2.DropBranchesRequest(branches=[catalog_pb2.DropBranchRequest(name="x")] * 1_001)
    with pytest.raises(InvalidError, match="BATCH_TOO_LARGE"):
        lake.client._call(lake.client._catalog.DropBranches, too_many)


def test_a_page_token_that_somebody_made_up_is_refused(lake: Lake) -> None:
    with pytest.raises(InvalidError) as caught:
        list(lake.client._pages(lake.client._catalog.ListBranches, catalog_pb2.ListBranchesRequest(page_token=MADE_UP)))
    assert caught.value.reason == "PAGE_TOKEN_INVALID"


def test_branches_and_merges_are_counted(tmp_path: Path) -> None:
    address = free_address()
    listening = service(tmp_path / "data", "--metrics-listen", address)
    with listening as (running, _), lake_of(running, tmp_path) as lake:
        table = lake.create_table("count.t", "id bigint, v bigint")
        first, _ = lake.branch("first"), lake.branch("second")
        first.table("count.t").append(ROWS)
        table.append(ROWS)
        first.refresh()
        first.table("count.t").update({"v": "0"})
        table.update({"v": "1"})
        assert first.merge(dry_run=True)[0].reason
        for refused in (first.merge, first.refresh):
            with pytest.raises(MergeRefusedError):
                refused()
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        samples = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        assert (float(samples["laketx_branches"]), float(samples["laketx_forks"])) == (2, 2)
        assert 0 < float(samples["laketx_oldest_branch_seconds"]) < 600
        outcomes = {name: float(count) for name, count in samples.items() if name.startswith("laketx_merges_total")}
        assert outcomes == {
            f'laketx_merges_total{{outcome="{outcome}"}}': 1
            for outcome in ("refreshed", "merge_refused", "refresh_refused")
        }


def test_a_branch_shows_what_the_parent_dropped_or_renamed_since(lake: Lake) -> None:
    for name in ("lost.dropped", "lost.renamed", "lost.stays"):
        lake.create_table(name, "id bigint, v bigint").append(ROWS)
    branch = lake.branch("lost")
    limited = lake.branch("lost-limited", tables=["lost.stays"])
    lake.drop_table("lost.dropped")
    lake.rename_table("lost.renamed", "lost.other")
    lake.create_table("lost.renamed", "id bigint").append([{"id": 9}])
    child = lake.branch("lost-child", parent="lost")
    assert branch.tables("lost") == child.tables("lost") == ["lost.dropped", "lost.renamed", "lost.stays"]
    for one in (branch, child):
        for name in ("lost.dropped", "lost.renamed"):
            assert one.table(name).to_arrow().to_pylist() == ROWS
    assert limited.tables() == ["lost.stays"]
    with pytest.raises(NotFoundError):
        branch.table("lost.other")
    child.drop()
    branch.table("lost.renamed").append([{"id": 3, "v": 30}])
    branch.merge()
    assert lake.tables("lost") == ["lost.other", "lost.renamed", "lost.stays"]
    assert lake.table("lost.other").to_arrow().num_rows == 3


def test_a_merge_that_drops_a_table_leaves_it_to_other_branches(lake: Lake) -> None:
    lake.create_table("gone.t", "id bigint, v bigint").append(ROWS)
    first, second = lake.branch("gone-1"), lake.branch("gone-2")
    first.drop_table("gone.t")
    first.merge()
    assert lake.tables("gone") == []
    assert second.table("gone.t").to_arrow().to_pylist() == ROWS
    second.table("gone.t").append(ROWS)
    with pytest.raises(MergeRefusedError) as caught:
        second.merge()
    assert [one.reason for one in caught.value.tables] == ["MERGE_PARENT_DROPPED"]


@pytest.mark.parametrize("back", ["merge", "refresh"])
def test_a_table_that_was_dropped_and_made_again_on_a_branch_takes_the_place_of_the_old_one(
    lake: Lake, back: str
) -> None:
    name = f"again_{back}.t"
    old = lake.create_table(name, "id bigint, v bigint")
    old.append(ROWS)
    branch = lake.branch(f"again-{back}")
    branch.drop_table(name)
    made = branch.create_table(name, "id bigint, name string")
    made.append([{"id": 1, "name": "one"}])
    if back == "refresh":
        lake.create_table(f"again_{back}.other", "id bigint")
        branch.refresh()
        assert branch.table(name).to_arrow().num_rows == 1
    branch.merge()
    assert lake.table(name).meta.table_id == made.meta.table_id
    assert lake.table(name).to_arrow().to_pylist() == [{"id": 1, "name": "one"}]
    with pytest.raises(AlreadyExistsError):
        lake.client.undrop_table(old.meta.table_id)
    changed = lake.branch(f"again-{back}")
    changed.drop_table(name)
    changed.create_table(name, "id bigint")
    lake.table(name).append([{"id": 2, "name": "two"}])
    with pytest.raises(MergeRefusedError) as caught:
        changed.merge()
    assert "MERGE_NEEDS_UNCHANGED_PARENT" in [one.reason for one in caught.value.tables]
    assert lake.table(name).to_arrow().num_rows == 2
