"""Every call with every role: what is allowed, what is refused, and what is as if it weren't there."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import grpc
import pytest
from google.protobuf import message_factory

from metaservice.core.access import Role
from metaservice.rpc.auth.rights import RIGHTS, SESSION_CALLS
from metaservice.shared.call_attributes import subject_of
from protos.laketx.v1 import access_pb2, catalog_pb2, common_pb2, maintenance_pb2, read_pb2, transaction_pb2
from tests.conformance.play import new_uuid7
from tests.integration.callers import COLUMNS, METHODS, Caller, Guarded, append, create, guarded
from tests.integration.service import TIMEOUT_S, code_of, data_file, facts_of, reason_of

STRANGER, READER, WRITER, MAINTAINER, ADMIN = "stranger", "reader", "writer", "maintainer", "admin"
ROLES: Final = (STRANGER, READER, WRITER, MAINTAINER, ADMIN)
FOUND: Final = {grpc.StatusCode.PERMISSION_DENIED: "denied", grpc.StatusCode.NOT_FOUND: "unknown"}
NOBODY: Final = "nobody"  # no role on a table is enough


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("rights") / "data") as made:
        made.owner.call("CatalogService/CreateNamespace", name="shop", request_id=new_uuid7())
        yield made


@dataclass(frozen=True)
class World:
    """A table of the owner with all that calls name."""

    table_id: str
    name: str
    txn_id: str
    pin_id: str
    task_id: str
    periodic: str = ""
    periodic_id: str = ""


def begin(
    caller: Caller, table_id: str, operation: common_pb2.Operation.ValueType = common_pb2.OPERATION_INSERT
) -> str:
    txn_id = new_uuid7()
    intents = [transaction_pb2.TableIntent(table_id=table_id, operation=operation)]
    caller.call("TransactionService/BeginTransaction", txn_id=txn_id, tables=intents)
    return txn_id


def world(lake: Guarded, name: str) -> World:
    owner = lake.owner
    table_id = create(owner, name)
    for _ in range(2):
        append(owner, table_id)
    pin_id = new_uuid7()
    owner.call("ReadService/PinVersions", pin_id=pin_id, tables=[{"table_id": table_id, "version": 1}])
    owner.call("ReadService/CreateTag", table_id=table_id, name="t", version=1)
    owner.call("ReadService/CreateCursor", table_id=table_id, name="c", version=1)
    asked = owner.call(
        "MaintenanceService/RequestTask",
        request_id=new_uuid7(),
        table_id=table_id,
        operation=common_pb2.OPERATION_MAJOR_COMPACT,
    )
    at = World(table_id, name, begin(owner, table_id), pin_id, asked.tasks[0].task_id)
    task = periodic_task(at, "noted")
    made = owner.call("MaintenanceService/PutPeriodicTask", request_id=new_uuid7(), task=task).task
    return replace(at, periodic=made.name, periodic_id=made.task_id)


def periodic_task(at: World, name: str) -> maintenance_pb2.PeriodicTask:
    return maintenance_pb2.PeriodicTask(
        name=f"{at.name}_{name}",
        statement="DELETE …",
        operation=common_pb2.OPERATION_DELETE,
        table_id=at.table_id,
        schedule="every hour",
    )


def requests(at: World) -> dict[str, tuple[str, dict[str, Any]]]:
    """For each method the smallest role on the table that may call it, and a request; what destroys comes last."""
    on = {"table_id": at.table_id}
    txn = {"txn_id": at.txn_id}
    intents = [transaction_pb2.TableIntent(table_id=at.table_id, operation=common_pb2.OPERATION_INSERT)]
    mine = new_uuid7()
    file = {"txn_id": mine, "table_id": at.table_id, "files": [data_file(mine)]}
    new = catalog_pb2.Table(name="shop.new", columns=COLUMNS)
    place = access_pb2.Place(table_id=at.table_id)
    grant = access_pb2.Grant(place=place, grantee="user:somebody", role=access_pb2.ROLE_READER)
    return {
        "ReadService/ResolveVersion": (READER, on),
        "ReadService/ListVersions": (READER, on),
        "ReadService/ListFiles": (READER, on),
        "ReadService/PlanScan": (READER, on),
        "ReadService/ReadInlined": (READER, {**on, "paths": []}),
        "ReadService/PlanChanges": (READER, {**on, "from_version": 1, "to_version": 2}),
        "ReadService/PinVersions": (READER, {"pin_id": new_uuid7(), "tables": [{**on, "version": 1}]}),
        "ReadService/RenewPin": (MAINTAINER, {"pin_id": at.pin_id}),
        "ReadService/ListTags": (READER, on),
        "ReadService/ListCursors": (READER, on),
        "ReadService/CreateCursor": (READER, {**on, "name": "c", "version": 1}),
        "ReadService/AdvanceCursor": (WRITER, {**on, "name": "c", "expected_version": 1, "version": 2}),
        "ReadService/CreateTag": (MAINTAINER, {**on, "name": "t", "version": 2, "move": True}),
        "TransactionService/BeginTransaction": (WRITER, {"txn_id": new_uuid7(), "tables": intents}),
        "TransactionService/Append": (WRITER, file),
        "TransactionService/CommitBatch": (WRITER, {"appends": [{**file, "txn_id": mine}]}),
        "TransactionService/GetTransaction": (READER, txn),
        "TransactionService/RegisterFiles": (NOBODY, {**txn, **on, "files": []}),
        "TransactionService/RenewTransaction": (NOBODY, txn),
        "TransactionService/ExplainTransaction": (NOBODY, {**txn, "changes": [on]}),
        "TransactionService/CommitTransaction": (NOBODY, {**txn, "changes": [on]}),
        "CatalogService/GetTable": (READER, {"name": at.name}),
        "CatalogService/ListSchemas": (READER, on),
        "CatalogService/AlterTable": (
            MAINTAINER,
            {"txn_id": new_uuid7(), **on, "alteration": {"comment": "x"}, "validate_only": True},
        ),
        "CatalogService/CreateTable": (NOBODY, {"request_id": new_uuid7(), "table": new}),
        "CatalogService/CreateBranch": (NOBODY, {"request_id": new_uuid7(), "name": "b"}),
        "CatalogService/CreateBranches": (NOBODY, {"branches": [{"request_id": new_uuid7(), "name": "b2"}]}),
        "CatalogService/CloneTable": (NOBODY, {"request_id": new_uuid7(), **on, "name": "shop.copy"}),
        "CatalogService/CreateNamespace": (NOBODY, {"name": "new", "request_id": new_uuid7()}),
        "CatalogService/AlterNamespace": (NOBODY, {"name": "shop", "set_properties": {"user.a": "b"}}),
        "CatalogService/DropNamespace": (NOBODY, {"name": "shop", "validate_only": True}),
        "CatalogService/PutView": (
            NOBODY,
            {"request_id": new_uuid7(), "view": {"name": "shop.v", "text": "SELECT 1"}},
        ),
        "MaintenanceService/PlanMaintenance": (READER, {**on, "operation": common_pb2.OPERATION_MINOR_COMPACT}),
        "MaintenanceService/RequestTask": (
            MAINTAINER,
            {"request_id": new_uuid7(), **on, "operation": common_pb2.OPERATION_MAJOR_COMPACT},
        ),
        "MaintenanceService/GetTask": (READER, {"task_id": at.task_id}),
        "MaintenanceService/RenewTask": (MAINTAINER, {"task_id": at.task_id, "fence": 1}),
        "MaintenanceService/FinishTask": (MAINTAINER, {"task_id": at.task_id, "fence": 99, "give_back": True}),
        "MaintenanceService/ClaimTask": (MAINTAINER, {"request_id": new_uuid7(), "table_ids": [at.table_id]}),
        "MaintenanceService/CancelTask": (MAINTAINER, {"task_id": at.task_id}),
        "MaintenanceService/PutPeriodicTask": (WRITER, {"request_id": new_uuid7(), "task": periodic_task(at, "new")}),
        "MaintenanceService/GetPeriodicTask": (READER, {"name": at.periodic}),
        "MaintenanceService/ListPeriodicRuns": (READER, {"name": at.periodic}),
        "MaintenanceService/AlterPeriodicTask": (MAINTAINER, {"name": at.periodic, "suspended": True}),
        "MaintenanceService/BeginPeriodicRun": (MAINTAINER, {"task_id": at.periodic_id, "worker": "w"}),
        "MaintenanceService/EndPeriodicRun": (MAINTAINER, {"task_id": at.periodic_id, "worker": "w"}),
        "MaintenanceService/DropPeriodicTask": (MAINTAINER, {"name": at.periodic}),
        "MaintenanceService/ListPurgeable": (MAINTAINER, on),
        "MaintenanceService/ConfirmPurged": (MAINTAINER, {**on, "paths": []}),
        "MaintenanceService/AdvanceKeyCheck": (MAINTAINER, {**on, "txn_id": new_uuid7()}),
        "MaintenanceService/CheckPaths": (MAINTAINER, {**on, "paths": []}),
        "MaintenanceService/ListSweepable": (NOBODY, {}),
        "MaintenanceService/ConfirmSwept": (NOBODY, {}),
        "MaintenanceService/SetWarehouse": (NOBODY, {"location": "/nowhere"}),
        "AdminService/Backup": (NOBODY, {"path": "b", "validate_only": True}),
        "AdminService/Check": (NOBODY, {}),
        "AdminService/ReleasePurge": (NOBODY, {"validate_only": True}),
        "AdminService/ConfirmClock": (NOBODY, {"validate_only": True}),
        "AdminService/StepDown": (NOBODY, {"validate_only": True}),
        "AccessService/Can": (ADMIN, {"grantee": "user:other", "role": access_pb2.ROLE_READER, "place": place}),
        "AccessService/ListGrants": (ADMIN, {"place": place}),
        "AccessService/Grant": (ADMIN, {"grant": grant}),
        "AccessService/Revoke": (ADMIN, {"place": place, "grantee": "user:somebody"}),
        "AccessService/CreateToken": (NOBODY, {"principal": "x"}),
        "AccessService/ListTokens": (NOBODY, {}),
        "AccessService/GetStorageCredentials": (WRITER, {**on, "write": True}),
        "AccessService/RevokeToken": (NOBODY, {"token_id": "x"}),
        "ReadService/Unpin": (MAINTAINER, {"pin_id": at.pin_id}),
        "ReadService/DropCursor": (WRITER, {**on, "name": "c"}),
        "ReadService/DropTag": (MAINTAINER, {**on, "name": "t"}),
        "TransactionService/AbortTransaction": (MAINTAINER, {**txn, "reason": "test"}),
        "CatalogService/UndropTable": (ADMIN, on),
        "CatalogService/DropTable": (ADMIN, on),
    }


ELSEWHERE: Final = {  # what needs no role on a table, and what other tests look at
    "ReadService/Watch", "TransactionService/ListTransactions", "TransactionService/Session",
    "CatalogService/ListTables", "CatalogService/GetNamespace", "CatalogService/ListNamespaces",
    "CatalogService/GetView", "CatalogService/ListViews", "CatalogService/RenameView", "CatalogService/DropView",
    "CatalogService/ListBranches", "CatalogService/ListBranchEvents", "CatalogService/GetBranch",
    "CatalogService/ExtendBranch", "CatalogService/DropBranch", "CatalogService/DropBranches",
    "CatalogService/MergeBranch", "CatalogService/RefreshBranch",
    "MaintenanceService/ListTasks", "MaintenanceService/ListPeriodicTasks", "MaintenanceService/GetWarehouse",
    "AdminService/GetStatus",
    "AdminService/ListPins", "AccessService/WhoAmI",
}  # fmt: skip


def test_every_method_has_a_right() -> None:
    assert {name for name in RIGHTS if name.startswith("/laketx.")} == set(METHODS)
    calls = transaction_pb2.SessionCall.DESCRIPTOR.oneofs_by_name["call"].fields
    assert set(SESSION_CALLS) == {one.name for one in calls}


def test_the_audit_can_name_what_each_request_is_about() -> None:
    for method in METHODS.values():
        request = message_factory.GetMessageClass(method.input_type)()
        assert subject_of(request).tables == ()


def test_the_table_below_has_every_method() -> None:
    listed = set(requests(World("", "", "", "", ""))) | ELSEWHERE
    assert {name.removeprefix("/laketx.v1.") for name in METHODS} == listed


@pytest.mark.parametrize("role", ROLES)
def test_a_role_allows_what_it_says(lake: Guarded, role: str) -> None:
    at = world(lake, f"shop.of_{role}")
    caller = lake.named(role)
    if role != STRANGER:
        lake.grant(f"user:{role}", role, table_id=at.table_id)
    wrong = []
    for name, (needed, fields) in requests(at).items():
        try:
            caller.call(name, **fields)
            found = "allowed"
        except grpc.RpcError as error:
            found = FOUND.get(error.code(), "allowed")
        may = needed != NOBODY and ROLES.index(role) >= ROLES.index(needed)
        expected = {"allowed"} if may else {"denied"} if role != STRANGER else {"denied", "unknown"}
        if found not in expected:
            wrong.append(f"{name}: {found}, not {' or '.join(expected)}")
    assert not wrong, "\n".join(wrong)


def test_what_a_stranger_asks_for_seems_not_to_be_there(lake: Guarded) -> None:
    at = world(lake, "shop.hidden")
    stranger = lake.named("stranger")

    def told(name: str, /, **fields: Any) -> tuple[object, ...]:
        with pytest.raises(grpc.RpcError) as caught:
            stranger.call(name, **fields)
        facts = facts_of(caught.value)
        return caught.value.code(), {key: value for key, value in facts.items() if key == "did_you_mean"}

    nowhere = new_uuid7()
    pairs: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("CatalogService/GetTable", {"name": at.name}, {"name": "shop.hiddex"}),
        ("CatalogService/GetTable", {"table_id": at.table_id}, {"table_id": nowhere}),
        ("ReadService/ListVersions", {"table_id": at.table_id}, {"table_id": nowhere}),
        ("TransactionService/GetTransaction", {"txn_id": at.txn_id}, {"txn_id": nowhere}),
        ("TransactionService/AbortTransaction", {"txn_id": at.txn_id}, {"txn_id": nowhere}),
        ("MaintenanceService/GetTask", {"task_id": at.task_id}, {"task_id": nowhere}),
        ("MaintenanceService/GetPeriodicTask", {"name": at.periodic}, {"name": "shop.nothing"}),
        (
            "MaintenanceService/BeginPeriodicRun",
            {"task_id": at.periodic_id, "worker": "w"},
            {"task_id": nowhere, "worker": "w"},
        ),
        ("ReadService/Unpin", {"pin_id": at.pin_id}, {"pin_id": nowhere}),
        ("CatalogService/GetNamespace", {"name": "shop"}, {"name": "shup"}),
        ("CatalogService/ListTables", {"namespace": "shop"}, {"namespace": "shup"}),
        ("CatalogService/GetView", {"name": "shop.v"}, {"name": "shop.w"}),
    ]
    for name, hidden, missing in pairs:
        if name == "ReadService/Unpin":
            assert stranger.outcome(name, **missing) == "ok"  # a repeat
            continue
        assert told(name, **hidden) == told(name, **missing), name
    assert not stranger.call("CatalogService/ListTables").tables
    assert not stranger.call("CatalogService/ListNamespaces").names
    assert not stranger.call("TransactionService/ListTransactions").transactions
    assert not stranger.call("MaintenanceService/ListTasks").tasks
    assert not stranger.call("MaintenanceService/ListPeriodicTasks").tasks
    assert not stranger.call("AdminService/ListPins").pins
    assert not stranger.call("ReadService/ListTags").tags
    assert not stranger.call("AdminService/GetStatus").quotas


def test_lists_of_tables_betray_no_name_that_is_hidden(lake: Guarded) -> None:
    for name in ("aaa.hidden_1", "aaa.seen_1", "aaa.hidden_2", "zzz.hidden_3", "zzz.seen_2"):
        lake.owner.call("CatalogService/CreateNamespace", name=name[:3], request_id=new_uuid7(), if_not_exists=True)
        table_id = create(lake.owner, name)
        if "seen" in name:
            lake.grant("user:peer", "reader", table_id=table_id)
    peer = lake.named("peer")
    seen, token = [], ""
    while True:
        page = peer.call("CatalogService/ListTables", page_size=1, page_token=token)
        assert len(page.tables) == 1 or not page.next_page_token, "no page says that something is left out"
        seen += [table.name for table in page.tables]
        token = page.next_page_token
        assert b"hidden" not in base64.urlsafe_b64decode(token.rpartition(".")[2])
        if not token:
            break
    assert seen == ["aaa.seen_1", "zzz.seen_2"]
    for part in ("hidden", "aaa.h", "nothing"):
        page = peer.call("CatalogService/ListTables", name_contains=part, page_size=1)
        assert (list(page.tables), page.next_page_token) == ([], "")


@pytest.mark.parametrize("things", ["namespaces", "views"])
def test_lists_of_namespaces_and_views_betray_no_name_that_is_hidden(lake: Guarded, things: str) -> None:
    names = ("k_hidden_1", "k_seen_1", "k_hidden_2", "k_seen_2", "k_hidden_3")
    for name in names:
        lake.owner.call("CatalogService/CreateNamespace", name=name, request_id=new_uuid7(), if_not_exists=True)
        if things == "views":
            view = catalog_pb2.View(
                name=f"{name}.v", text="SELECT 1", columns=[catalog_pb2.ViewColumn(name="a", type="int")]
            )
            lake.owner.call("CatalogService/PutView", view=view, request_id=new_uuid7())
        if "seen" in name:
            lake.grant("user:peer", "reader", namespace=name)
    peer, method = lake.named("peer"), {"namespaces": "ListNamespaces", "views": "ListViews"}[things]
    seen, token = [], ""
    while True:
        page = peer.call(f"CatalogService/{method}", page_size=1, page_token=token)
        assert len(getattr(page, things)) == 1 or not page.next_page_token, "no page says that something is left out"
        seen += [each.name for each in getattr(page, things)]
        token = page.next_page_token
        assert b"hidden" not in base64.urlsafe_b64decode(token.rpartition(".")[2])
        if not token:
            break
    assert [name.partition(".")[0] for name in seen if name.startswith("k_")] == ["k_seen_1", "k_seen_2"]


def test_roles_are_inherited_downwards(lake: Guarded) -> None:
    at = world(lake, "shop.below")
    lake.owner.call("CatalogService/CreateNamespace", name="other", request_id=new_uuid7())
    elsewhere = create(lake.owner, "other.t")
    lake.grant("group:analysts", "reader", namespace="shop")
    analyst = lake.named("ana", "analysts")
    assert analyst.outcome("ReadService/ListVersions", table_id=at.table_id) == "ok"
    assert analyst.outcome("ReadService/ListVersions", table_id=elsewhere) == "TABLE_UNKNOWN"
    assert [one.name for one in analyst.call("CatalogService/ListNamespaces").namespaces] == ["shop"]
    lake.grant("user:ana", "reader", table_id=elsewhere)
    assert [one.name for one in analyst.call("CatalogService/ListNamespaces").namespaces] == ["other", "shop"]
    listed = {one.name for one in analyst.call("CatalogService/ListTables").tables}
    assert {"shop.below", "other.t"} <= listed
    lake.grant("group:everyone", "reader")
    assert lake.named("anybody").outcome("ReadService/ListVersions", table_id=elsewhere) == "ok"
    lake.owner.call("AccessService/Revoke", grantee="group:everyone")
    assert lake.named("anybody").outcome("ReadService/ListVersions", table_id=elsewhere) == "TABLE_UNKNOWN"


def test_a_plan_of_several_tables_needs_a_right_on_each_and_its_pin_is_the_callers(lake: Guarded) -> None:
    one, other = (create(lake.owner, f"shop.planned_{side}") for side in ("left", "right"))
    lake.grant("user:planner", "reader", table_id=one)
    planner = lake.named("planner")
    asked = {"table_id": one, "pin_id": new_uuid7(), "principal": {"name": "owner"}, "more": [{"table_id": other}]}
    assert planner.outcome("ReadService/PlanScan", **asked) == "TABLE_UNKNOWN"
    assert not planner.call("AdminService/ListPins").pins
    lake.grant("user:planner", "reader", table_id=other)
    assert planner.outcome("ReadService/PlanScan", **asked) == "ok"
    pins = planner.call("AdminService/ListPins").pins
    assert [(pin.table_id, pin.principal.name) for pin in pins] == [(one, "planner"), (other, "planner")]


def test_a_table_belongs_to_who_made_it(lake: Guarded) -> None:
    lake.grant("user:maker", "writer", namespace="shop")
    maker, other = lake.named("maker"), lake.named("fellow")
    lake.grant("user:fellow", "writer", namespace="shop")
    mine = create(maker, "shop.made")
    assert other.outcome("CatalogService/DropTable", table_id=mine) == "ROLE_MISSING"
    assert (
        maker.outcome("AccessService/Grant", grant={"place": {"table_id": mine}, "grantee": "user:fellow", "role": 4})
        == "ok"
    )
    assert other.outcome("CatalogService/DropTable", table_id=mine) == "ok"


def grants_of(lake: Guarded, who: str) -> list[str]:
    found = lake.owner.call("AccessService/ListGrants", grantee=f"user:{who}").grants
    return sorted(one.place.namespace or one.place.table_id for one in found)


def test_a_repeated_creation_of_a_table_grants_nothing(lake: Guarded) -> None:
    lake.grant("user:again", "writer", namespace="shop")
    again = lake.named("again")
    asked = {"request_id": new_uuid7(), "table": catalog_pb2.Table(name="shop.again", columns=COLUMNS)}
    first = again.call("CatalogService/CreateTable", **asked)
    table_id = first.table.table_id
    assert grants_of(lake, "again") == sorted(["shop", table_id])
    lake.owner.call("AccessService/Revoke", grantee="user:again", place={"table_id": table_id})
    assert again.call("CatalogService/CreateTable", **asked) == first
    assert grants_of(lake, "again") == ["shop"]
    assert again.outcome("CatalogService/DropTable", table_id=table_id) == "ROLE_MISSING"
    lake.owner.call("CatalogService/CreateNamespace", name="vault", request_id=new_uuid7())
    lake.owner.call(
        "CatalogService/AlterTable", txn_id=new_uuid7(), table_id=table_id, alteration={"name": "vault.again"}
    )
    assert again.outcome("CatalogService/CreateTable", **asked) == "TABLE_UNKNOWN"  # it is out of sight
    assert grants_of(lake, "again") == ["shop"]


def test_a_repeated_creation_of_a_namespace_grants_nothing(lake: Guarded) -> None:
    lake.grant("user:founder", "maintainer")
    founder = lake.named("founder")
    asked = {"name": "founded", "request_id": new_uuid7()}
    first = founder.call("CatalogService/CreateNamespace", **asked)
    assert grants_of(lake, "founder") == ["", "founded"]
    lake.owner.call("AccessService/Revoke", grantee="user:founder", place={"namespace": "founded"})
    for relaxed in (False, True):
        again = {**asked, "if_not_exists": relaxed}
        assert founder.outcome("CatalogService/CreateNamespace", **again) in ("ok", "NAMESPACE_EXISTS")
    assert founder.call("CatalogService/CreateNamespace", **asked) == first
    assert grants_of(lake, "founder") == [""]
    assert founder.outcome("CatalogService/DropNamespace", name="founded") == "ROLE_MISSING"


def test_a_repeated_claim_hands_out_nothing_after_a_revoke(lake: Guarded) -> None:
    at, own = world(lake, "shop.claimed"), create(lake.owner, "shop.of_the_worker")
    for table_id in (at.table_id, own):
        lake.grant("user:worker", "maintainer", table_id=table_id)
    worker = lake.named("worker")
    asked = {"request_id": new_uuid7(), "table_ids": [at.table_id]}
    assert worker.call("MaintenanceService/ClaimTask", **asked).task.task_id == at.task_id
    lake.owner.call("AccessService/Revoke", grantee="user:worker", place={"table_id": at.table_id})
    assert worker.outcome("MaintenanceService/ClaimTask", **{**asked, "table_ids": [own]}) == "TASK_UNKNOWN"


def words_of(caller: Caller, name: str, fields: dict[str, Any], masked: str) -> tuple[object, str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        caller.call(name, **fields)
    details = str(caught.value.details()).replace(masked, "ID")
    return caught.value.code(), details, str(facts_of(caught.value)).replace(masked, "ID")


def test_ids_that_are_hidden_are_told_as_unknown_ones_are(lake: Guarded) -> None:
    """Word for word, whatever else is wrong with the request."""
    at, own = world(lake, "shop.out_of_sight"), world(lake, "shop.in_sight")
    lake.grant("user:curious", "maintainer", table_id=own.table_id)
    curious = lake.named("curious")
    txn_id, appended = begin(curious, own.table_id), append(curious, own.table_id)
    file, on = data_file(txn_id), {"table_id": own.table_id}
    nowhere = new_uuid7()
    by_table: list[tuple[str, dict[str, Any], str]] = [
        ("TransactionService/RegisterFiles", {"txn_id": txn_id, "files": [file]}, "table_id"),
        ("TransactionService/RegisterFiles", {"txn_id": txn_id, "files": [{"path": "/x"}]}, "table_id"),
        ("TransactionService/Append", {"txn_id": appended, "files": [data_file(appended)]}, "table_id"),
    ]
    by_txn: list[tuple[str, dict[str, Any], str]] = [
        ("TransactionService/RegisterFiles", {**on, "files": [{"path": "/x"}]}, "txn_id"),
        ("TransactionService/ExplainTransaction", {"changes": [on]}, "txn_id"),
        ("TransactionService/ExplainTransaction", {"changes": []}, "txn_id"),
        ("TransactionService/CommitTransaction", {"changes": [on]}, "txn_id"),
        ("TransactionService/RenewTransaction", {}, "txn_id"),
        ("TransactionService/GetTransaction", {}, "txn_id"),
        ("TransactionService/AbortTransaction", {"reason": "x" * 5_000}, "txn_id"),
        ("MaintenanceService/FinishTask", {"task_id": own.task_id, "fence": 99}, "txn_id"),
    ]
    by_task: list[tuple[str, dict[str, Any], str]] = [
        ("MaintenanceService/GetTask", {"page_token": "x"}, "task_id"),
        ("MaintenanceService/RenewTask", {"progress": 7}, "task_id"),
        ("MaintenanceService/FinishTask", {}, "task_id"),
        ("MaintenanceService/CancelTask", {"reason": "x" * 5_000}, "task_id"),
    ]
    for pairs, hidden in ((by_table, at.table_id), (by_txn, at.txn_id), (by_task, at.task_id)):
        for name, fields, field in pairs:
            told = [words_of(curious, name, {**fields, field: one}, one) for one in (hidden, nowhere)]
            assert told[0] == told[1], name
    told, asked = [], dict[str, Any]()
    for one in (at.table_id, nowhere):
        asked = {"txn_id": txn_id, "changes": [{"table_id": one}]}
        told.append(words_of(curious, "TransactionService/ExplainTransaction", asked, one))
    for one in (at.task_id, nowhere):
        intents = [transaction_pb2.TableIntent(table_id=own.table_id, operation=common_pb2.OPERATION_MAJOR_COMPACT)]
        asked = {"txn_id": new_uuid7(), "tables": intents, "task": {"task_id": one, "fence": 1}}
        told.append(words_of(curious, "TransactionService/BeginTransaction", asked, one))
    assert told[0] == told[1]
    assert told[2] == told[3]


def watching(caller: Caller, table_id: str) -> Any:
    """An open watch, after its first answer."""
    opened = caller.channel.unary_stream(
        "/laketx.v1.ReadService/Watch",
        request_serializer=read_pb2.WatchRequest.SerializeToString,
        response_deserializer=read_pb2.WatchResponse.FromString,
    )
    stream = opened(
        read_pb2.WatchRequest(table_id=table_id, after_version=0), timeout=TIMEOUT_S, metadata=caller.metadata
    )
    next(stream)
    return stream


def ended_with(stream: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        for _ in stream:
            pass
    return code_of(caught.value), reason_of(caught.value)


def test_a_watch_ends_when_its_right_is_revoked(lake: Guarded) -> None:
    table_id = create(lake.owner, "shop.watched")
    lake.grant("user:watcher", "reader", table_id=table_id)
    watcher = lake.named("watcher")
    stream = watching(watcher, table_id)
    append(lake.owner, table_id)
    assert [one.version for one in next(stream).versions] == [1]
    lake.grant("user:other", "reader", table_id=table_id)
    lake.owner.call("AccessService/Revoke", grantee="user:other", place={"table_id": table_id})
    append(lake.owner, table_id)
    assert next([one.version for one in answer.versions] for answer in stream if answer.versions) == [2]
    lake.owner.call("AccessService/Revoke", grantee="user:watcher", place={"table_id": table_id})
    assert ended_with(stream) == (grpc.StatusCode.NOT_FOUND, "TABLE_UNKNOWN")  # without a commit


def test_a_watch_ends_when_its_right_is_revoked_while_it_rests(lake: Guarded) -> None:
    """It rests after each frame, longer beside others, so that they don't take the processor from those who commit."""
    table_id = create(lake.owner, "shop.watched_at_rest")
    lake.grant("user:resting", "reader", table_id=table_id)
    quiet_id = create(lake.owner, "shop.quiet")
    others = [watching(lake.owner, quiet_id) for _ in range(100)]
    stream = watching(lake.named("resting"), table_id)
    append(lake.owner, table_id)
    assert next(stream).versions
    lake.owner.call("AccessService/Revoke", grantee="user:resting", place={"table_id": table_id})
    assert ended_with(stream) == (grpc.StatusCode.NOT_FOUND, "TABLE_UNKNOWN")
    for other in others:
        other.cancel()


def test_watches_and_sessions_end_with_their_token(lake: Guarded) -> None:
    table_id = create(lake.owner, "shop.watched_by_a_token")
    lake.grant("user:short", "reader", table_id=table_id)
    token = lake.token("short")
    short = lake.caller(token)
    stream = watching(short, table_id)
    session = short.channel.stream_stream(
        "/laketx.v1.TransactionService/Session",
        request_serializer=transaction_pb2.SessionRequest.SerializeToString,
        response_deserializer=transaction_pb2.SessionResponse.FromString,
    )
    keeps_open = threading.Event()

    def frames() -> Iterator[transaction_pb2.SessionRequest]:
        first = transaction_pb2.SessionRequest()
        first.calls.add(call_id=1).ping.payload = b"x"
        yield first
        keeps_open.wait(TIMEOUT_S)

    talk = session(frames(), timeout=TIMEOUT_S, metadata=short.metadata)
    assert next(talk).replies[0].ping.payload == b"x"
    lake.owner.call("AccessService/RevokeToken", token_id=token.split("_")[1])
    try:
        assert ended_with(stream) == ended_with(talk) == (grpc.StatusCode.UNAUTHENTICATED, "TOKEN_INVALID")
    finally:
        keeps_open.set()


def test_nothing_is_imported_from_elsewhere_where_callers_are_known(lake: Guarded) -> None:
    table_id = create(lake.owner, "shop.imported")
    txn_id = new_uuid7()
    file = data_file(txn_id)
    file.path, file.external = "file:///elsewhere/a.parquet", True
    asked = {"txn_id": txn_id, "table_id": table_id, "files": [file]}
    assert lake.owner.outcome("TransactionService/Append", **asked) == "PATH_NOT_ALLOWED"


def test_the_name_is_that_of_the_identity(lake: Guarded) -> None:
    at = world(lake, "shop.signed")
    lake.grant("user:real", "writer", table_id=at.table_id)
    real = lake.caller(lake.token("real"), metadata=(("x-laketx-principal", "boss"),))
    declared = common_pb2.Principal(name="boss", client="nightly 1.4")
    txn_id = new_uuid7()
    real.call(
        "TransactionService/Append", txn_id=txn_id, table_id=at.table_id, files=[data_file(txn_id)], principal=declared
    )
    version = real.call("ReadService/ListVersions", table_id=at.table_id).versions[0]
    assert (version.principal.name, version.principal.client) == ("real", "nightly 1.4 as boss")


def test_everyone_may_learn_how_his_own_commit_ended(lake: Guarded) -> None:
    """Whatever came since: a client never has to guess."""
    table_id = create(lake.owner, "shop.fleeting")
    lake.grant("user:brief", "writer", table_id=table_id)
    brief = lake.named("brief")
    appended = new_uuid7()
    asked = {"txn_id": appended, "table_id": table_id, "files": [data_file(appended)]}
    first = brief.call("TransactionService/Append", **asked)
    begun = begin(brief, table_id)
    change = {"txn_id": begun, "changes": [{"table_id": table_id}]}
    committed = brief.call("TransactionService/CommitTransaction", **change)
    left_open = begin(brief, table_id)
    lake.owner.call("AccessService/Revoke", grantee="user:brief", place={"table_id": table_id})
    assert brief.call("TransactionService/Append", **asked) == first
    assert brief.outcome("TransactionService/Append", **{**asked, "txn_id": new_uuid7()}) == "TABLE_UNKNOWN"
    for _ in range(2):
        assert brief.call("TransactionService/CommitTransaction", **change) == committed
        assert brief.call("TransactionService/GetTransaction", txn_id=begun).transaction.committed.tables
        assert brief.outcome("TransactionService/AbortTransaction", txn_id=left_open) == "ok"
        lake.owner.outcome("CatalogService/DropTable", table_id=table_id)


def test_a_namespace_that_comes_back_has_none_of_the_old_grants(lake: Guarded) -> None:
    def grants() -> list[str]:
        return [
            one.grantee for one in lake.owner.call("AccessService/ListGrants").grants if one.place.namespace == "old"
        ]

    lake.owner.call("CatalogService/CreateNamespace", name="old", request_id=new_uuid7())
    lake.grant("user:former", "writer", namespace="old")
    assert grants() == ["user:former"]
    lake.owner.call("CatalogService/DropNamespace", name="old")
    assert grants() == []
    lake.owner.call("CatalogService/CreateNamespace", name="old", request_id=new_uuid7())
    lake.service.kill()
    lake.service.start()
    assert grants() == []


def test_calls_of_a_session_are_checked_one_by_one(lake: Guarded) -> None:
    at = world(lake, "shop.session")
    lake.grant("user:half", "writer", table_id=at.table_id)
    half = lake.named("half")
    hidden = create(lake.owner, "shop.session_hidden")
    mine, other = new_uuid7(), new_uuid7()
    frame = transaction_pb2.SessionRequest()
    for number, (txn_id, table_id) in enumerate([(mine, at.table_id), (other, hidden)], 1):
        call = frame.calls.add(call_id=number)
        call.append.CopyFrom(transaction_pb2.AppendRequest(txn_id=txn_id, table_id=table_id, files=[data_file(txn_id)]))
    frame.calls.add(call_id=3).abort.CopyFrom(transaction_pb2.AbortTransactionRequest(txn_id=at.txn_id))
    answers = [reply for one in half.call("TransactionService/Session", frame) for reply in one.replies]
    told = {one.call_id: one.error.message.partition(":")[0] for one in answers}
    assert told == {1: "", 2: "TABLE_UNKNOWN", 3: "ROLE_MISSING"}
    assert lake.owner.call("TransactionService/GetTransaction", txn_id=mine).transaction.principal.name == "half"
    assert lake.owner.outcome("TransactionService/GetTransaction", txn_id=other) == "TRANSACTION_UNKNOWN"


def test_services_need_a_maintainer(lake: Guarded) -> None:
    at = world(lake, "shop.services")
    lake.grant("user:w", "writer", table_id=at.table_id)
    writer = lake.named("w")
    for operation in (common_pb2.OPERATION_RESTORE, common_pb2.OPERATION_MINOR_COMPACT, common_pb2.OPERATION_CLUSTER):
        intents = [transaction_pb2.TableIntent(table_id=at.table_id, operation=operation)]
        said = writer.outcome("TransactionService/BeginTransaction", txn_id=new_uuid7(), tables=intents)
        assert said == "ROLE_MISSING"
    claim = maintenance_pb2.TaskClaim(task_id=at.task_id, fence=1)
    intents = [transaction_pb2.TableIntent(table_id=at.table_id, operation=common_pb2.OPERATION_INSERT)]
    said = writer.outcome("TransactionService/BeginTransaction", txn_id=new_uuid7(), tables=intents, task=claim)
    assert said == "ROLE_MISSING"


def test_grants_and_tokens_outlive_a_restart(lake: Guarded) -> None:
    at = world(lake, "shop.kept")
    token = lake.token("kept", "keepers")
    lake.grant("group:keepers", "maintainer", table_id=at.table_id)
    lake.service.kill()
    lake.service.start()
    kept = lake.caller(token)
    found = kept.call("AccessService/WhoAmI")
    assert (found.principal, list(found.groups), found.how) == ("kept", ["keepers"], "token")
    asked = {"role": access_pb2.ROLE_MAINTAINER, "place": access_pb2.Place(table_id=at.table_id)}
    assert kept.call("AccessService/Can", **asked).grant.grantee == "group:keepers"
    grants = lake.owner.call("AccessService/ListGrants", grantee="group:keepers").grants
    assert [(one.table_name, one.role) for one in grants] == [("shop.kept", Role.MAINTAINER)]
