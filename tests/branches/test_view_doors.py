"""Views and namespaces on a branch over the wire: rights, the command line, conflicts, a killed service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from laketx import Lake, MergeRefusedError, connect
from metaservice.client import AlreadyExistsError, BlockedError, InvalidError, NotFoundError
from metaservice.core import limits
from protos.laketx.v1 import access_pb2, catalog_pb2
from tests.conformance.play import new_uuid7
from tests.integration.callers import COLUMNS, Guarded, guarded
from tests.integration.service import Service, service
from tests.integration.terminal import Shell

ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Lake]]:
    folder = tmp_path_factory.mktemp("data")
    with service(folder / "data") as (found, _), lake_of(found, folder) as lake:
        yield found, lake


@pytest.fixture(scope="module")
def lake(running: tuple[Service, Lake]) -> Lake:
    return running[1]


@pytest.fixture(scope="module")
def guards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("rights") / "data") as made:
        made.owner.call("CatalogService/CreateNamespace", name="shop", request_id=new_uuid7())
        yield made


def lake_of(running: Service, folder: Path) -> Lake:
    return connect(f"laketx://{running.address}", warehouse=str(folder / "files"))


def view(name: str, text: str) -> catalog_pb2.View:
    column = catalog_pb2.ViewColumn(name="total", type="BIGINT", nullable=True)
    return catalog_pb2.View(name=name, text=text, columns=[column])


def views(lake: Lake, branch: str = "") -> dict[str, str]:
    return {one.name: one.text for one in lake.client.list_views(branch=branch)}


def test_views_and_namespaces_of_a_branch_go_to_the_lake_with_the_merge(lake: Lake) -> None:
    client = lake.client
    client.create_namespace("merged")
    client.put_view(view("merged.kept", "SELECT 1"))
    client.put_view(view("merged.lost", "SELECT 2"))
    branch = lake.branch("all")
    client.put_view(view("merged.later", "SELECT 3"))
    client.put_view(view("merged.kept@all", "SELECT 10"), or_replace=True)
    assert client.drop_view("merged.lost@all")
    branch.create_table("made.t", "id bigint").append(ROWS)
    client.put_view(view("made.v@all", "SELECT 4"))
    assert views(lake, "all") == {"made.v@all": "SELECT 4", "merged.kept@all": "SELECT 10"}
    assert {one.name for one in client.list_namespaces(branch="all")} >= {"merged", "made"}
    assert "made" not in {one.name for one in client.list_namespaces()}
    assert branch.tables("made") == ["made.t"]
    changes = [("made.t", "table", "new"), ("made", "namespace", "new"), ("made.v", "view", "new")]
    changes += [("merged.kept", "view", "changed"), ("merged.lost", "view", "dropped")]
    assert [(one.name, one.kind, one.change) for one in branch.diff()] == changes
    would = branch.merge(dry_run=True)
    assert [(one.name, one.kind) for one in would] == [(name, kind) for name, kind, _ in changes]
    txn_id = new_uuid7()
    assert branch.merge(txn_id=txn_id) == would
    client.put_view(view("made.v", "SELECT 5"), or_replace=True)
    assert branch.merge(txn_id=txn_id) == would
    client.put_view(view("made.v", "SELECT 4"), or_replace=True)
    shown = {name: text for name, text in views(lake).items() if name.startswith("m")}
    assert shown == {"made.v": "SELECT 4", "merged.kept": "SELECT 10", "merged.later": "SELECT 3"}
    assert lake.table("made.t").to_arrow() == ROWS


def test_what_both_sides_changed_is_a_conflict_that_is_named(lake: Lake) -> None:
    client = lake.client
    client.create_namespace("both", properties={"user.v": "0"})
    client.put_view(view("both.v", "SELECT 1"))
    branch = lake.branch("both")
    branch.create_table("both.t", "id bigint").append(ROWS)
    for name, text in (("both.v@both", "SELECT 2"), ("both.v", "SELECT 3")):
        client.put_view(view(name, text), or_replace=True)
    for name, value in (("both@both", "1"), ("both", "2")):
        client.alter_namespace(name, set_properties={"user.v": value})
    for refused in (branch.merge, branch.refresh):
        with pytest.raises(MergeRefusedError, match="the parent has changed it") as caught:
            refused()
        assert {one.name for one in caught.value.tables if one.reason == "MERGE_NAME_CHANGED"} == {"both", "both.v"}
    assert lake.tables("both") == []
    client.put_view(view("both.v@both", "SELECT 3"), or_replace=True)
    client.alter_namespace("both@both", set_properties={"user.v": "2"})
    assert [one.name for one in branch.merge()] == ["both.t"]


def test_names_of_a_branch_are_refused_as_those_of_the_lake(lake: Lake) -> None:
    client = lake.client
    lake.create_table("taken.t", "id bigint")
    client.put_view(view("taken.v", "SELECT 1"))
    branch = lake.branch("taken")
    client.drop_view("taken.v")
    client.create_namespace("late")
    with pytest.raises(AlreadyExistsError):
        client.put_view(view("taken.t@taken", "SELECT 1"))
    with pytest.raises(AlreadyExistsError):
        branch.create_table("taken.v", "id bigint")
    with pytest.raises(NotFoundError):
        client.put_view(view("late.v@taken", "SELECT 1"))
    with pytest.raises(BlockedError) as caught:
        client.drop_namespace("taken@taken")
    assert caught.value.reason == "NAMESPACE_NOT_EMPTY"
    with pytest.raises(BlockedError) as renamed:
        client.rename_view("taken.v@taken", "taken.w")
    assert renamed.value.reason == "RENAME_ON_BRANCH"
    for name in ("taken@none", "taken@"):
        with pytest.raises((NotFoundError, InvalidError)):
            client.create_namespace(name)
    limited = lake.branch("limited", parent="taken", tables=["taken.t"])
    assert views(lake, "limited") == {}
    with pytest.raises(NotFoundError) as outside:
        client.put_view(view("taken.w@limited", "SELECT 1"))
    assert outside.value.reason == "TABLE_NOT_ON_BRANCH"
    limited.drop()
    branch.drop()


def test_a_new_table_whose_namespace_the_parent_dropped_is_refused(lake: Lake) -> None:
    lake.client.create_namespace("ended")
    branch = lake.branch("ended")
    lake.client.drop_namespace("ended")
    branch.create_table("ended.t", "id bigint")
    with pytest.raises(MergeRefusedError) as caught:
        branch.merge()
    assert [one.reason for one in caught.value.tables] == ["NAMESPACE_UNKNOWN"]
    lake.client.create_namespace("ended")
    assert [one.name for one in branch.merge()] == ["ended.t"]


def test_a_killed_service_knows_them(tmp_path: Path) -> None:
    with service(tmp_path / "data") as (running, _), lake_of(running, tmp_path) as lake:
        lake.client.create_namespace("shop")
        lake.client.put_view(view("shop.v", "SELECT 1"))
        lake.branch("b")
        lake.client.put_view(view("shop.v", "SELECT 2"), or_replace=True)
        lake.client.put_view(view("shop.w@b", "SELECT 3"))
        lake.client.create_namespace("own@b")
        lake.client.drop_namespace("own@b")
        running.kill()
        running.start()
        assert views(lake) == {"shop.v": "SELECT 2"}
        assert views(lake, "b") == {"shop.v@b": "SELECT 1", "shop.w@b": "SELECT 3"}
        assert {one.name for one in lake.client.list_namespaces(branch="b")} == {"shop"}
        assert [(one.kind, one.name) for one in lake.client.get_branch("b").names] == [("view", "shop.w")]
        assert [problem for part in lake.client.check() for problem in part.problems] == []


def test_the_command_line_works_on_a_branch(running: tuple[Service, Lake]) -> None:
    found, lake = running
    shell = Shell(found.address)
    lake.client.create_namespace("line")
    lake.client.put_view(view("line.v", "SELECT 1"))
    assert shell.run("branch", "create", "line").code == 0
    assert shell.run("--branch", "line", "namespace", "create", "lines").code == 0
    assert shell.run("--branch", "line", "view", "drop", "line.v", "--yes").code == 0
    assert "lines" in shell.run("--branch", "line", "namespace", "list").out
    assert "lines" not in shell.run("namespace", "list").out
    assert "line.v" in shell.run("view", "list").out
    assert "line.v" not in shell.run("--branch", "line", "view", "list").out
    assert "line.v" in shell.run("--branch", "line", "view", "list", "--namespace", "line@main").out
    assert "dropped view" in shell.run("branch", "show", "line").out
    diff = json.loads(shell.run("-o", "json", "branch", "diff", "line").out)
    assert diff == [{"namespace": "lines", "change": "new"}, {"view": "line.v", "change": "dropped"}]
    lake.client.put_view(view("line.v", "SELECT 2"), or_replace=True)
    refused = shell.run("branch", "merge", "line")
    assert refused.code == 4
    assert "line.v" in refused.err
    lake.client.put_view(view("line.v", "SELECT 1"), or_replace=True)
    merged = shell.run("branch", "merge", "line")
    assert (merged.code, "0 tables, 2 views and namespaces" in merged.err) == (0, True)
    assert shell.run("namespace", "show", "lines").code == 0
    assert shell.run("view", "show", "line.v").code != 0


def test_a_merge_needs_the_rights_of_the_changes_that_it_makes(guards: Guarded) -> None:
    owner, writer = guards.owner, guards.caller(guards.token("writer"))
    guards.grant("user:writer", "writer", namespace="shop")
    owner.call("CatalogService/PutView", view=view("shop.v", "SELECT 1"), request_id=new_uuid7())
    owner.call("CatalogService/CreateBranch", request_id=new_uuid7(), name="rights")
    assert writer.outcome("CatalogService/CreateNamespace", name="more@rights") == "ROLE_MISSING"
    assert writer.outcome("CatalogService/DropView", name="shop.v@rights") == "ROLE_MISSING"
    put = {"view": view("shop.w@rights", "SELECT 2"), "request_id": new_uuid7()}
    assert writer.outcome("CatalogService/PutView", **put) == "ok"
    stranger = guards.caller(guards.token("stranger"))
    assert not stranger.call("CatalogService/GetBranch", name="rights").names
    assert [one.name for one in writer.call("CatalogService/GetBranch", name="rights").names] == ["shop.w"]
    merge = {"txn_id": new_uuid7(), "name": "rights", "validate_only": True}
    assert writer.outcome("CatalogService/MergeBranch", **merge) == "ok"
    assert stranger.outcome("CatalogService/MergeBranch", **merge) == "NAMESPACE_UNKNOWN"
    owner.call("CatalogService/CreateNamespace", name="more@rights", request_id=new_uuid7())
    assert writer.outcome("CatalogService/MergeBranch", **merge) == "ROLE_MISSING"
    maintainer = guards.caller(guards.token("maintainer"))
    guards.grant("user:maintainer", "maintainer")
    assert maintainer.outcome("CatalogService/MergeBranch", **(merge | {"validate_only": False})) == "ok"
    assert maintainer.outcome("CatalogService/DropNamespace", name="more") == "ok"  # its admin, as its maker would be


def test_whoever_merges_in_turns_is_the_admin_of_the_new_namespaces(guards: Guarded) -> None:
    """The last turn finds them in the lake."""
    maintainer = guards.caller(guards.token("turner"))
    guards.grant("user:turner", "maintainer")
    guards.owner.call("CatalogService/CreateBranch", request_id=new_uuid7(), name="turns")
    guards.owner.call("CatalogService/CreateNamespace", name="turned@turns", request_id=new_uuid7())
    for number in range(limits.MERGE_WRITTEN // 3):
        table = catalog_pb2.Table(name=f"turned.t{number}@turns", columns=COLUMNS)
        guards.owner.call("CatalogService/CreateTable", request_id=new_uuid7(), table=table)
    assert maintainer.outcome("CatalogService/MergeBranch", txn_id=new_uuid7(), name="turns") == "ok"
    granted = guards.owner.call("AccessService/ListGrants", place=access_pb2.Place(namespace="turned")).grants
    assert [(one.grantee, one.role) for one in granted] == [("user:turner", access_pb2.ROLE_ADMIN)]
