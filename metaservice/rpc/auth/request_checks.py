"""Checks of what a caller may do, by the request: each raises what the caller is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from metaservice.core.access import Role, grantee_of
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.periodic_tasks import unknown_task
from metaservice.core.table.branches import branch_of, off_branch, on_branch
from metaservice.core.table.model import Operation
from metaservice.rpc.auth.caller import ADMIN, MAINTAINER, READER, WRITER, Caller, namespace_of
from metaservice.rpc.convert import wire
from metaservice.service.branch.branched_names import NEW, VIEW, BranchedName, BranchedNames
from metaservice.service.branch.branches import tables_on
from metaservice.service.decider.naming import find_namespace
from protos.laketx.v1 import catalog_pb2

OF_SERVICES: Final = {Operation.MINOR_COMPACT, Operation.MAJOR_COMPACT, Operation.CLUSTER, Operation.RESTORE}


Check = Callable[[Caller, Any], None]


def check_nothing(caller: Caller, request: Any) -> None:
    del caller, request


def check_begin(caller: Caller, request: Any) -> None:
    for table in request.tables:
        is_service = table.operation in {operation.value for operation in OF_SERVICES}
        caller.need_table(table.table_id, MAINTAINER if is_service or request.HasField("task") else WRITER)
    if request.HasField("task"):
        caller.need_task(request.task.task_id, MAINTAINER)
    if request.adopt_from:
        check_own_txn(caller, request.adopt_from)


def check_own_txn(caller: Caller, txn_id: str, on: Iterable[str] = ()) -> None:
    caller.need_own_txn(txn_id, on=on)
    caller.need_known_txn(txn_id)


def check_claim(caller: Caller, request: Any) -> None:
    check_tables_or_service(caller, request.table_ids, MAINTAINER)
    for task in list(caller.state.tasks.tasks.values()):
        if request.request_id and task.claim_id == request.request_id:  # it is handed out again, with its inputs
            caller.need_task(task.task_id, MAINTAINER)


def check_finish(caller: Caller, request: Any) -> None:
    caller.need_task(request.task_id, MAINTAINER)
    if request.txn_id:
        caller.state.get_txn(wire.txn_id(request.txn_id))
        caller.need_known_txn(request.txn_id)


def check_commit(caller: Caller, request: Any) -> None:
    if not caller.need_own_txn(request.txn_id, on=[change.table_id for change in request.changes]):
        return
    for change in request.changes:
        service = change.restore_version or change.groups or change.HasField("alteration")
        caller.need_table(change.table_id, MAINTAINER if service else WRITER)
    for move in request.cursors:
        caller.need_cursor(move.table_id, move.name)
    for replacement in request.replacements:
        caller.need_table(replacement.table_id, MAINTAINER)
        check_new_name(caller, replacement.table_id, replacement.name)
    caller.need_known_txn(request.txn_id)


def check_storage(caller: Caller, request: Any) -> None:
    if request.new_table:
        caller.need_namespace(namespace_of(request.new_table), WRITER)
        return
    caller.need_table(request.table_id, WRITER if request.write else READER)


def check_batch(caller: Caller, request: Any) -> None:
    for append in request.appends:
        caller.need_append(append.table_id, append.txn_id)


def check_new_name(caller: Caller, table_id: str, name: str) -> None:
    """A table that gets another name is made where that is."""
    table = caller.state.views.find(table_id)
    if name and table is not None and name != table.meta.name:
        caller.need_namespace(namespace_of(name), WRITER)


def check_create(caller: Caller, request: Any) -> None:
    name, mode = request.table.name, request.mode
    caller.need_namespace(namespace_of(name), WRITER)
    made = caller.state.views.find(request.request_id)
    if made is not None and not caller.reads(made.meta.table_id):  # it was made by this request, and has moved away
        raise MetaError(ErrorKind.NOT_FOUND, "TABLE_UNKNOWN", table_id=request.request_id)
    if mode != catalog_pb2.CREATE_MODE_UNSPECIFIED and caller.state.views.find_by_name(name) is not None:
        caller.need_name(name, MAINTAINER if mode == catalog_pb2.CREATE_MODE_OR_REPLACE else READER)


def check_get_table(caller: Caller, request: Any) -> None:
    if request.table_id:
        caller.need_table(request.table_id, READER)
        return
    table, name = caller.state.views.find_by_name(request.name), request.name
    while table is None and (branch := caller.state.branches.find(branch_of(name))) is not None:
        name = on_branch(off_branch(name), branch.parent)  # it has the rights of the table that it begins as
        table = caller.state.views.find_by_name(name)
    if table is not None and not caller.reads(table.meta.table_id):
        raise MetaError(ErrorKind.NOT_FOUND, "TABLE_UNKNOWN", name=request.name)


def check_alter(caller: Caller, request: Any) -> None:
    caller.need_table(request.table_id, MAINTAINER)
    check_new_name(caller, request.table_id, request.alteration.name)


def check_list_tables(caller: Caller, request: Any) -> None:
    if request.namespace and not caller.sees_namespace(request.namespace):
        raise MetaError(ErrorKind.NOT_FOUND, "NAMESPACE_UNKNOWN", namespace=request.namespace)


def check_create_namespace(caller: Caller, request: Any) -> None:
    is_there = request.if_not_exists and find_namespace(caller.state, request.name) is not None
    if not (is_there and caller.sees_namespace(request.name)):
        caller.need(MAINTAINER)


def check_get_namespace(caller: Caller, request: Any) -> None:
    if not caller.sees_namespace(request.name):
        raise MetaError(ErrorKind.NOT_FOUND, "NAMESPACE_UNKNOWN", namespace=request.name)


def check_rename_view(caller: Caller, request: Any) -> None:
    caller.need_view(request.name, MAINTAINER)
    caller.need_namespace(namespace_of(request.new_name), WRITER)


def check_branch(caller: Caller, request: Any) -> None:
    """A branch of the caller; that of somebody else is for maintainers of the service."""
    branch = caller.state.branches.find(request.name)
    if branch is not None and branch.principal.name != caller.who.principal:
        caller.need(MAINTAINER)


def check_branches(caller: Caller, request: Any) -> None:
    for each in request.branches:
        check_branch(caller, each)


def check_merge(caller: Caller, request: Any) -> None:
    branch = caller.state.branches.find(request.name)
    for table in tables_on(caller.state, branch) if branch is not None else ():
        if table.fork is None:
            caller.need_namespace(namespace_of(table.meta.name), WRITER)
        elif table.head > table.fork.version:
            caller.need_table(table.view().base_id, WRITER)
    for name in BranchedNames(caller.state, branch).to_come if branch is not None else ():
        check_merge_name(caller, name)


def check_merge_name(caller: Caller, name: BranchedName) -> None:
    """Require the role that the same change needs in the parent."""
    if name.kind == VIEW:
        caller.need_namespace(namespace_of(name.name), WRITER if name.thing is not None else MAINTAINER)
    elif name.change == NEW:
        caller.need(MAINTAINER)
    else:
        caller.need_namespace(name.name, MAINTAINER if name.thing is not None else ADMIN)


def check_clone(caller: Caller, request: Any) -> None:
    caller.need_table(request.table_id, READER)
    caller.need_namespace(namespace_of(request.name), WRITER)


def check_tables_or_service(caller: Caller, table_ids: Iterable[str], role: Role) -> None:
    named = list(table_ids)
    caller.need_tables(named, role)
    if not named:
        caller.need(role)


def check_put_periodic(caller: Caller, request: Any) -> None:
    task = request.task
    old = caller.state.periodic.find(task.name)
    if old is not None and request.mode == catalog_pb2.CREATE_MODE_OR_REPLACE:
        caller.need_periodic(old, MAINTAINER)
    caller.need_tables([*task.source_ids, *(each.table_id for each in task.conditions)], READER)
    caller.need_table(task.table_id, WRITER)


def check_periodic(others: Role) -> Check:
    """One's own task, or a role on the table that it changes."""

    def check(caller: Caller, request: Any) -> None:
        task = caller.state.periodic.find(request.name)
        if task is not None:
            caller.need_periodic(task, others)

    return check


def check_periodic_run(caller: Caller, request: Any) -> None:
    task = caller.state.periodic.of_id(request.task_id)
    if task is None:
        raise unknown_task(request.task_id)
    if task.owner.principal.name != caller.who.principal and not caller.reads(task.table_id):
        raise unknown_task(request.task_id)  # by what was asked for: its name is hidden
    caller.need_periodic(task, MAINTAINER)


def check_can(caller: Caller, request: Any) -> None:
    if request.grantee and grantee_of(request.grantee) not in caller.who.grantees:
        caller.need_place(request.place, ADMIN)


def check_grant(caller: Caller, request: Any) -> None:
    caller.need_place(request.grant.place, ADMIN)


def check_list_grants(caller: Caller, request: Any) -> None:
    own = request.grantee and grantee_of(request.grantee) in caller.who.grantees
    if not own:
        caller.need_place(request.place, ADMIN)
