"""What each call needs: the one place where rights are checked.

Every method has an entry. A check gets the caller and the request, and raises what the caller is told. Something that
the caller may not see is answered as if it weren't there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from metaservice.core.access import Role, grantee_of
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.periodic_tasks import unknown_task
from metaservice.core.table.branches import branch_of, off_branch, on_branch
from metaservice.core.table.model import Operation
from metaservice.rpc.auth.caller import ADMIN, MAINTAINER, READER, WRITER, Caller, namespace_of
from metaservice.rpc.convert import wire
from metaservice.service.branch.branched_names import NAMESPACE, NEW, VIEW, BranchedName, BranchedNames
from metaservice.service.branch.branches import tables_on
from metaservice.service.decider.naming import find_namespace
from protos.laketx.v1 import catalog_pb2

OF_SERVICES: Final = {Operation.MINOR_COMPACT, Operation.MAJOR_COMPACT, Operation.CLUSTER, Operation.RESTORE}


Check = Callable[[Caller, Any], None]
Shown = Callable[[Caller, Any], None]  # takes out of an answer what the caller may not see


@dataclass(frozen=True, slots=True)
class Right:
    """What a method needs, in words and in deed."""

    says: str
    check: Check
    shown: Shown | None = None


def _anyone(caller: Caller, request: Any) -> None:
    del caller, request


def _on_table(role: Role) -> Right:
    return Right(f"{role.name.lower()} on the table", lambda caller, it: caller.need_table(it.table_id, role))


def _on_service(role: Role) -> Right:
    return Right(f"{role.name.lower()} on the service", lambda caller, _: caller.need(role))


def _begin(caller: Caller, request: Any) -> None:
    for table in request.tables:
        is_service = table.operation in {operation.value for operation in OF_SERVICES}
        caller.need_table(table.table_id, MAINTAINER if is_service or request.HasField("task") else WRITER)
    if request.HasField("task"):
        caller.need_task(request.task.task_id, MAINTAINER)
    if request.adopt_from:
        _own_txn(caller, request.adopt_from)


def _own_txn(caller: Caller, txn_id: str, on: Iterable[str] = ()) -> None:
    caller.need_own_txn(txn_id, on=on)
    caller.need_known_txn(txn_id)


def _claim(caller: Caller, request: Any) -> None:
    _tables_or_service(caller, request.table_ids, MAINTAINER)
    for task in list(caller.state.tasks.tasks.values()):
        if request.request_id and task.claim_id == request.request_id:  # it is handed out again, with its inputs
            caller.need_task(task.task_id, MAINTAINER)


def _finish(caller: Caller, request: Any) -> None:
    caller.need_task(request.task_id, MAINTAINER)
    if request.txn_id:
        caller.state.get_txn(wire.txn_id(request.txn_id))
        caller.need_known_txn(request.txn_id)


def _commit(caller: Caller, request: Any) -> None:
    if not caller.need_own_txn(request.txn_id, on=[one.table_id for one in request.changes]):
        return
    for change in request.changes:
        service = change.restore_version or change.groups or change.HasField("alteration")
        caller.need_table(change.table_id, MAINTAINER if service else WRITER)
    for move in request.cursors:
        caller.need_cursor(move.table_id, move.name)
    for replacement in request.replacements:
        caller.need_table(replacement.table_id, MAINTAINER)
        _new_name(caller, replacement.table_id, replacement.name)
    caller.need_known_txn(request.txn_id)


def _storage(caller: Caller, request: Any) -> None:
    if request.new_table:
        caller.need_namespace(namespace_of(request.new_table), WRITER)
        return
    caller.need_table(request.table_id, WRITER if request.write else READER)


def _batch(caller: Caller, request: Any) -> None:
    for append in request.appends:
        caller.need_append(append.table_id, append.txn_id)


def _new_name(caller: Caller, table_id: str, name: str) -> None:
    """A table that gets another name is made where that is."""
    table = caller.state.views.find(table_id)
    if name and table is not None and name != table.meta.name:
        caller.need_namespace(namespace_of(name), WRITER)


def _create(caller: Caller, request: Any) -> None:
    name, mode = request.table.name, request.mode
    caller.need_namespace(namespace_of(name), WRITER)
    made = caller.state.views.find(request.request_id)
    if made is not None and not caller.reads(made.meta.table_id):  # it was made by this request, and has moved away
        raise MetaError(ErrorKind.NOT_FOUND, "TABLE_UNKNOWN", table_id=request.request_id)
    if mode != catalog_pb2.CREATE_MODE_UNSPECIFIED and caller.state.views.find_by_name(name) is not None:
        caller.need_name(name, MAINTAINER if mode == catalog_pb2.CREATE_MODE_OR_REPLACE else READER)


def _get_table(caller: Caller, request: Any) -> None:
    if request.table_id:
        caller.need_table(request.table_id, READER)
        return
    table, name = caller.state.views.find_by_name(request.name), request.name
    while table is None and (branch := caller.state.branches.find(branch_of(name))) is not None:
        name = on_branch(off_branch(name), branch.parent)  # it has the rights of the table that it begins as
        table = caller.state.views.find_by_name(name)
    if table is not None and not caller.reads(table.meta.table_id):
        raise MetaError(ErrorKind.NOT_FOUND, "TABLE_UNKNOWN", name=request.name)


def _alter(caller: Caller, request: Any) -> None:
    caller.need_table(request.table_id, MAINTAINER)
    _new_name(caller, request.table_id, request.alteration.name)


def _list_tables(caller: Caller, request: Any) -> None:
    if request.namespace and not caller.sees_namespace(request.namespace):
        raise MetaError(ErrorKind.NOT_FOUND, "NAMESPACE_UNKNOWN", namespace=request.namespace)


def _create_namespace(caller: Caller, request: Any) -> None:
    is_there = request.if_not_exists and find_namespace(caller.state, request.name) is not None
    if not (is_there and caller.sees_namespace(request.name)):
        caller.need(MAINTAINER)


def _get_namespace(caller: Caller, request: Any) -> None:
    if not caller.sees_namespace(request.name):
        raise MetaError(ErrorKind.NOT_FOUND, "NAMESPACE_UNKNOWN", namespace=request.name)


def _rename_view(caller: Caller, request: Any) -> None:
    caller.need_view(request.name, MAINTAINER)
    caller.need_namespace(namespace_of(request.new_name), WRITER)


def _branch(caller: Caller, request: Any) -> None:
    """A branch of the caller; that of somebody else is for maintainers of the service."""
    branch = caller.state.branches.find(request.name)
    if branch is not None and branch.principal.name != caller.who.principal:
        caller.need(MAINTAINER)


def _branches(caller: Caller, request: Any) -> None:
    for each in request.branches:
        _branch(caller, each)


def _merge(caller: Caller, request: Any) -> None:
    branch = caller.state.branches.find(request.name)
    for table in tables_on(caller.state, branch) if branch is not None else ():
        if table.fork is None:
            caller.need_namespace(namespace_of(table.meta.name), WRITER)
        elif table.head > table.fork.version:
            caller.need_table(table.view().base_id, WRITER)
    for one in BranchedNames(caller.state, branch).to_come if branch is not None else ():
        _merge_name(caller, one)


def _merge_name(caller: Caller, one: BranchedName) -> None:
    """As for the same change in the parent."""
    if one.kind == VIEW:
        caller.need_namespace(namespace_of(one.name), WRITER if one.thing is not None else MAINTAINER)
    elif one.change == NEW:
        caller.need(MAINTAINER)
    else:
        caller.need_namespace(one.name, MAINTAINER if one.thing is not None else ADMIN)


def _sees_name(caller: Caller, one: Any) -> bool:
    return caller.sees_namespace(one.name if one.kind == NAMESPACE else namespace_of(one.name))


def _shown_branch(caller: Caller, answer: Any) -> None:
    _keep(answer.tables, lambda table: _sees_on_branch(caller, table))
    _keep(answer.names, lambda one: _sees_name(caller, one))


def _shown_refresh(caller: Caller, answer: Any) -> None:
    _keep(answer.tables, lambda table: caller.reads(table.table_id))
    _keep(answer.names, lambda one: _sees_name(caller, one))


def _sees_on_branch(caller: Caller, table: Any) -> bool:
    """A table of a branch; one that was dropped there is gone for all who may read the parent's."""
    return caller.reads(table.table_id) or bool(table.dropped and caller.reads(table.parent_table_id))


def _clone(caller: Caller, request: Any) -> None:
    caller.need_table(request.table_id, READER)
    caller.need_namespace(namespace_of(request.name), WRITER)


def _tables_or_service(caller: Caller, table_ids: Iterable[str], role: Role) -> None:
    known = list(table_ids)
    caller.need_tables(known, role)
    if not known:
        caller.need(role)


def _put_periodic(caller: Caller, request: Any) -> None:
    task = request.task
    old = caller.state.periodic.find(task.name)
    if old is not None and request.mode == catalog_pb2.CREATE_MODE_OR_REPLACE:
        caller.need_periodic(old, MAINTAINER)
    caller.need_tables([*task.source_ids, *(each.table_id for each in task.conditions)], READER)
    caller.need_table(task.table_id, WRITER)


def _periodic(others: Role) -> Check:
    """One's own task, or a role on the table that it changes."""

    def check(caller: Caller, request: Any) -> None:
        task = caller.state.periodic.find(request.name)
        if task is not None:
            caller.need_periodic(task, others)

    return check


def _periodic_run(caller: Caller, request: Any) -> None:
    task = caller.state.periodic.of_id(request.task_id)
    if task is None:
        raise unknown_task(request.task_id)
    if task.owner.principal.name != caller.who.principal and not caller.reads(task.table_id):
        raise unknown_task(request.task_id)  # by what was asked for: its name is hidden
    caller.need_periodic(task, MAINTAINER)


def _can(caller: Caller, request: Any) -> None:
    if request.grantee and grantee_of(request.grantee) not in caller.who.grantees:
        caller.need_place(request.place, ADMIN)


def _grant(caller: Caller, request: Any) -> None:
    caller.need_place(request.grant.place, ADMIN)


def _list_grants(caller: Caller, request: Any) -> None:
    own = request.grantee and grantee_of(request.grantee) in caller.who.grantees
    if not own:
        caller.need_place(request.place, ADMIN)


def _keep(items: Any, keeps: Callable[[Any], bool]) -> None:
    kept = [item for item in items if keeps(item)]
    if len(kept) < len(items):
        del items[:]
        items.extend(kept)


def _shown_tables(caller: Caller, answer: Any) -> None:
    _keep(answer.tables, lambda one: _sees_table(caller, one))


def _sees_table(caller: Caller, one: Any) -> bool:
    if branch_of(one.name):
        return caller.reads(one.table_id or one.parent_table_id)
    return caller.on_named(one.name, one.table_id) >= READER


def _shown_namespaces(caller: Caller, answer: Any) -> None:
    _keep(answer.names, caller.sees_namespace)
    _keep(answer.namespaces, lambda one: caller.sees_namespace(one.name))


def _shown_txns(caller: Caller, answer: Any) -> None:
    _keep(answer.transactions, lambda one: _sees_txn(caller, one))


def _sees_txn(caller: Caller, one: Any) -> bool:
    return one.principal.name == caller.who.principal or all(caller.reads(table.table_id) for table in one.tables)


def _shown_status(caller: Caller, answer: Any) -> None:
    if caller.on_service() < MAINTAINER:  # who uses how much, and on which tables
        del answer.quotas[:]
        answer.oldest_open_txn_id = ""


def _plain(role: Role, says: str, check: Check, shown: Shown | None = None) -> Right:
    return Right(f"{role.name.lower()} {says}", check, shown)


_READ, _WRITE = "/laketx.v1.ReadService/", "/laketx.v1.TransactionService/"
_CATALOG, _TABLES = "/laketx.v1.CatalogService/", "/laketx.v1.MaintenanceService/"
_ADMIN, _ACCESS = "/laketx.v1.AdminService/", "/laketx.v1.AccessService/"

SESSION_CALLS: Final[Mapping[str, str]] = {  # the calls in a session's frames, by their field
    "begin": f"{_WRITE}BeginTransaction",
    "register": f"{_WRITE}RegisterFiles",
    "commit": f"{_WRITE}CommitTransaction",
    "append": f"{_WRITE}Append",
    "abort": f"{_WRITE}AbortTransaction",
    "renew": f"{_WRITE}RenewTransaction",
    "ping": f"{_WRITE}Session",
}

RIGHTS: Final[Mapping[str, Right]] = {
    f"{_READ}ResolveVersion": _on_table(READER),
    f"{_READ}ListVersions": _on_table(READER),
    f"{_READ}ListFiles": _on_table(READER),
    f"{_READ}PlanScan": _plain(
        READER,
        "on the tables",
        lambda caller, it: caller.need_tables([it.table_id, *(one.table_id for one in it.more)], READER),
    ),
    f"{_READ}ReadInlined": _on_table(READER),
    f"{_READ}PlanChanges": _on_table(READER),
    f"{_READ}Watch": _on_table(READER),
    f"{_READ}ListTags": Right(
        "reader: those of other tables are left out",
        lambda caller, it: caller.need_tables([it.table_id] if it.table_id else [], READER),
        lambda caller, answer: _keep(answer.tags, lambda one: caller.reads(one.table_id)),
    ),
    f"{_READ}ListCursors": Right(
        "reader: those of other tables are left out",
        lambda caller, it: caller.need_tables([it.table_id] if it.table_id else [], READER),
        lambda caller, answer: _keep(answer.cursors, lambda one: caller.reads(one.table_id)),
    ),
    f"{_READ}PinVersions": _plain(
        READER, "on the tables", lambda caller, it: caller.need_tables([one.table_id for one in it.tables], READER)
    ),
    f"{_READ}RenewPin": Right(
        "one's own pin, or maintainer on its tables", lambda caller, it: caller.need_pin(it.pin_id, MAINTAINER)
    ),
    f"{_READ}Unpin": Right(
        "one's own pin, or maintainer on its tables", lambda caller, it: caller.need_pin(it.pin_id, MAINTAINER)
    ),
    f"{_READ}CreateTag": Right(
        "writer on the table; maintainer to move the tag of another",
        lambda caller, it: caller.need_tag(it.table_id, it.name),
    ),
    f"{_READ}DropTag": Right(
        "writer on the table for one's own tag, else maintainer",
        lambda caller, it: caller.need_tag(it.table_id, it.name),
    ),
    f"{_READ}CreateCursor": _on_table(READER),
    f"{_READ}AdvanceCursor": Right(
        "reader on the table for one's own cursor, else writer",
        lambda caller, it: caller.need_cursor(it.table_id, it.name),
    ),
    f"{_READ}DropCursor": Right(
        "reader on the table for one's own cursor, else writer",
        lambda caller, it: caller.need_cursor(it.table_id, it.name),
    ),
    f"{_WRITE}BeginTransaction": Right(
        "writer on the tables; maintainer for compaction, clustering and RESTORE", _begin
    ),
    f"{_WRITE}RegisterFiles": Right(
        "one's own transaction", lambda caller, it: _own_txn(caller, it.txn_id, [it.table_id])
    ),
    f"{_WRITE}CommitTransaction": Right(
        "one's own transaction, and writer on its tables; maintainer to alter, restore, compact or replace", _commit
    ),
    f"{_WRITE}CommitBatch": _plain(WRITER, "on the tables", _batch),
    f"{_WRITE}Append": _plain(WRITER, "on the table", lambda caller, it: caller.need_append(it.table_id, it.txn_id)),
    f"{_WRITE}AbortTransaction": Right(
        "one's own transaction, or maintainer on its tables", lambda caller, it: caller.need_txn(it.txn_id, MAINTAINER)
    ),
    f"{_WRITE}RenewTransaction": Right("one's own transaction", lambda caller, it: _own_txn(caller, it.txn_id)),
    f"{_WRITE}GetTransaction": Right(
        "one's own transaction, or reader on its tables", lambda caller, it: caller.need_txn(it.txn_id, READER)
    ),
    f"{_WRITE}ExplainTransaction": Right(
        "one's own transaction", lambda caller, it: _own_txn(caller, it.txn_id, [one.table_id for one in it.changes])
    ),
    f"{_WRITE}ListTransactions": Right("reader: those of other tables are left out", _anyone, _shown_txns),
    f"{_WRITE}Session": Right("each call in it is checked as by itself", _anyone),
    f"{_CATALOG}CreateTable": Right("writer on the namespace; maintainer on a table that is replaced", _create),
    f"{_CATALOG}GetTable": Right("reader on the table", _get_table),
    f"{_CATALOG}ListSchemas": _on_table(READER),
    f"{_CATALOG}ListTables": Right("reader: other tables are left out", _list_tables, _shown_tables),
    f"{_CATALOG}AlterTable": Right("maintainer on the table; writer on the namespace of a new name", _alter),
    f"{_CATALOG}DropTable": _on_table(ADMIN),
    f"{_CATALOG}UndropTable": Right(
        "admin on the service, or on the table by a grant of its own",
        lambda caller, it: caller.need_table(it.table_id, ADMIN),
    ),
    f"{_CATALOG}CreateNamespace": Right(
        "maintainer on the service; with IF NOT EXISTS, reader of anything in one that is there", _create_namespace
    ),
    f"{_CATALOG}GetNamespace": Right("reader of anything in the namespace", _get_namespace),
    f"{_CATALOG}ListNamespaces": Right("reader: other namespaces are left out", _anyone, _shown_namespaces),
    f"{_CATALOG}AlterNamespace": Right(
        "maintainer on the namespace", lambda caller, it: caller.need_namespace(it.name, MAINTAINER)
    ),
    f"{_CATALOG}DropNamespace": Right(
        "admin on the namespace", lambda caller, it: caller.need_namespace(it.name, ADMIN)
    ),
    f"{_CATALOG}PutView": Right(
        "writer on the namespace", lambda caller, it: caller.need_namespace(namespace_of(it.view.name), WRITER)
    ),
    f"{_CATALOG}GetView": Right("reader on the namespace", lambda caller, it: caller.need_view(it.name, READER)),
    f"{_CATALOG}ListViews": Right(
        "reader: those of other namespaces are left out",
        _list_tables,
        lambda caller, answer: _keep(answer.views, lambda one: caller.on_named(one.name, "") >= READER),
    ),
    f"{_CATALOG}RenameView": Right("maintainer on the namespace; writer on the new one", _rename_view),
    f"{_CATALOG}DropView": Right(
        "maintainer on the namespace", lambda caller, it: caller.need_view(it.name, MAINTAINER)
    ),
    f"{_CATALOG}CreateBranch": _on_service(WRITER),
    f"{_CATALOG}CreateBranches": _on_service(WRITER),
    f"{_CATALOG}ListBranches": Right("any identity", _anyone),
    f"{_CATALOG}ListBranchEvents": Right("any identity", _anyone),
    f"{_CATALOG}GetBranch": Right(
        "any identity: tables that it may not read are left out",
        _anyone,
        _shown_branch,
    ),
    f"{_CATALOG}ExtendBranch": Right("one's own branch, or maintainer on the service", _branch),
    f"{_CATALOG}DropBranch": Right("one's own branch, or maintainer on the service", _branch),
    f"{_CATALOG}DropBranches": Right("one's own branches, or maintainer on the service", _branches),
    f"{_CATALOG}MergeBranch": Right(
        "writer on the parent's tables that it changes, and on the namespaces of tables that it adds; of views and"
        " namespaces as for the same change in the parent",
        _merge,
    ),
    f"{_CATALOG}RefreshBranch": Right(
        "one's own branch, or maintainer on the service: tables that it may not read are left out",
        _branch,
        _shown_refresh,
    ),
    f"{_CATALOG}CloneTable": Right("reader on the table, and writer on the namespace of the clone", _clone),
    f"{_TABLES}PlanMaintenance": _on_table(READER),
    f"{_TABLES}RequestTask": _on_table(MAINTAINER),
    f"{_TABLES}ClaimTask": Right(
        "maintainer on the tables named, or on the service",
        _claim,
    ),
    f"{_TABLES}RenewTask": Right(
        "maintainer on the table", lambda caller, it: caller.need_task(it.task_id, MAINTAINER)
    ),
    f"{_TABLES}FinishTask": Right("maintainer on the table", _finish),
    f"{_TABLES}CancelTask": Right(
        "maintainer on the table", lambda caller, it: caller.need_task(it.task_id, MAINTAINER)
    ),
    f"{_TABLES}GetTask": Right("reader on the table", lambda caller, it: caller.need_task(it.task_id, READER)),
    f"{_TABLES}ListTasks": Right(
        "reader: those of other tables are left out",
        _anyone,
        lambda caller, answer: _keep(answer.tasks, lambda one: caller.reads(one.table_id)),
    ),
    f"{_TABLES}ListPurgeable": Right(
        "maintainer on the table, or on the service",
        lambda caller, it: _tables_or_service(caller, [it.table_id] if it.table_id else [], MAINTAINER),
    ),
    f"{_TABLES}ConfirmPurged": Right(
        "maintainer on the table", lambda caller, it: caller.need_table(it.table_id, MAINTAINER)
    ),
    f"{_TABLES}AdvanceKeyCheck": _on_table(MAINTAINER),
    f"{_TABLES}ListSweepable": _on_service(MAINTAINER),
    f"{_TABLES}ConfirmSwept": _on_service(MAINTAINER),
    f"{_TABLES}CheckPaths": Right(
        "maintainer on the table, or on the service",
        lambda caller, it: _tables_or_service(caller, [it.table_id] if it.table_id else [], MAINTAINER),
    ),
    f"{_TABLES}PutPeriodicTask": Right(
        "writer on the table that it changes, reader on those that it reads; to replace the task of another,"
        " maintainer on the table of that",
        _put_periodic,
    ),
    f"{_TABLES}AlterPeriodicTask": Right(
        "one's own task, or maintainer on the table that it changes", _periodic(MAINTAINER)
    ),
    f"{_TABLES}GetPeriodicTask": Right("reader on the table that it changes", _periodic(READER)),
    f"{_TABLES}ListPeriodicTasks": Right("reader: those of other tables are left out", _anyone),
    f"{_TABLES}DropPeriodicTask": Right(
        "one's own task, or maintainer on the table that it changes", _periodic(MAINTAINER)
    ),
    f"{_TABLES}ListPeriodicRuns": Right("reader on the table that it changes", _periodic(READER)),
    f"{_TABLES}BeginPeriodicRun": Right(
        "maintainer on the table that the task changes, or one's own task", _periodic_run
    ),
    f"{_TABLES}EndPeriodicRun": Right(
        "maintainer on the table that the task changes, or one's own task", _periodic_run
    ),
    f"{_TABLES}GetWarehouse": Right("any identity", _anyone),
    f"{_TABLES}SetWarehouse": _on_service(ADMIN),
    f"{_ADMIN}GetStatus": Right(
        "any identity; principals and quotas are shown to a maintainer", _anyone, _shown_status
    ),
    f"{_ADMIN}ListPins": Right(
        "reader: those of other tables are left out",
        _anyone,
        lambda caller, answer: _keep(answer.pins, lambda one: caller.reads(one.table_id)),
    ),
    f"{_ADMIN}Backup": _on_service(ADMIN),
    f"{_ADMIN}Check": _on_service(MAINTAINER),
    f"{_ADMIN}ReleasePurge": _on_service(ADMIN),
    f"{_ADMIN}ConfirmClock": _on_service(ADMIN),
    f"{_ADMIN}StepDown": _on_service(ADMIN),
    f"{_ACCESS}WhoAmI": Right("any identity", _anyone),
    f"{_ACCESS}Can": Right("any identity for itself; admin of the place for others", _can),
    f"{_ACCESS}Grant": Right("admin of the place", _grant),
    f"{_ACCESS}Revoke": Right("admin of the place", lambda caller, it: caller.need_place(it.place, ADMIN)),
    f"{_ACCESS}ListGrants": Right(
        "any identity for its own; admin of the place, or of the service for all", _list_grants
    ),
    f"{_ACCESS}CreateToken": _on_service(ADMIN),
    f"{_ACCESS}ListTokens": _on_service(ADMIN),
    f"{_ACCESS}RevokeToken": _on_service(ADMIN),
    f"{_ACCESS}GetStorageCredentials": Right(
        "reader on the table; writer to write its files, or on the namespace of a table to be made", _storage
    ),
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": Right("any identity", _anyone),
}
OPEN_TO_ALL: Final = ("/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch")  # probes have no identity


def check(caller: Caller, method: str, request: Any) -> None:
    """Raises what the caller is told if they may not do this."""
    right = RIGHTS.get(method)
    if right is None:
        raise invalid("METHOD_UNKNOWN", "no right is defined for this method", method=method)
    right.check(caller, request)
