"""What each call needs: the one place where rights are checked.

Every method has an entry. A check gets the caller and the request, and raises what the caller is told. Something that
the caller may not see is answered as if it weren't there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from metaservice.core.access import Role
from metaservice.core.errors import invalid
from metaservice.rpc.auth.answer_filters import (
    Filter,
    hide_in_branch,
    hide_in_refresh,
    hide_namespaces,
    hide_status,
    hide_tables,
    hide_transactions,
    keep_seen,
)
from metaservice.rpc.auth.caller import ADMIN, MAINTAINER, READER, WRITER, Caller, namespace_of
from metaservice.rpc.auth.request_checks import (
    Check,
    check_alter,
    check_batch,
    check_begin,
    check_branch,
    check_branches,
    check_can,
    check_claim,
    check_clone,
    check_commit,
    check_create,
    check_create_namespace,
    check_finish,
    check_get_namespace,
    check_get_table,
    check_grant,
    check_list_grants,
    check_list_tables,
    check_merge,
    check_nothing,
    check_own_txn,
    check_periodic,
    check_periodic_run,
    check_put_periodic,
    check_rename_view,
    check_storage,
    check_tables_or_service,
)


@dataclass(frozen=True, slots=True)
class Right:
    """What a method needs, in words and in deed."""

    says: str
    check: Check
    shown: Filter | None = None


def _on_table(role: Role) -> Right:
    return Right(f"{role.name.lower()} on the table", lambda caller, it: caller.need_table(it.table_id, role))


def _on_service(role: Role) -> Right:
    return Right(f"{role.name.lower()} on the service", lambda caller, _: caller.need(role))


def _plain(role: Role, says: str, check: Check, shown: Filter | None = None) -> Right:
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
        lambda caller, it: caller.need_tables([it.table_id, *(table.table_id for table in it.more)], READER),
    ),
    f"{_READ}ReadInlined": _on_table(READER),
    f"{_READ}PlanChanges": _on_table(READER),
    f"{_READ}Watch": _on_table(READER),
    f"{_READ}ListTags": Right(
        "reader: those of other tables are left out",
        lambda caller, it: caller.need_tables([it.table_id] if it.table_id else [], READER),
        lambda caller, answer: keep_seen(answer.tags, lambda tag: caller.reads(tag.table_id)),
    ),
    f"{_READ}ListCursors": Right(
        "reader: those of other tables are left out",
        lambda caller, it: caller.need_tables([it.table_id] if it.table_id else [], READER),
        lambda caller, answer: keep_seen(answer.cursors, lambda cursor: caller.reads(cursor.table_id)),
    ),
    f"{_READ}PinVersions": _plain(
        READER, "on the tables", lambda caller, it: caller.need_tables([table.table_id for table in it.tables], READER)
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
        "writer on the tables; maintainer for compaction, clustering and RESTORE", check_begin
    ),
    f"{_WRITE}RegisterFiles": Right(
        "one's own transaction", lambda caller, it: check_own_txn(caller, it.txn_id, [it.table_id])
    ),
    f"{_WRITE}CommitTransaction": Right(
        "one's own transaction, and writer on its tables; maintainer to alter, restore, compact or replace",
        check_commit,
    ),
    f"{_WRITE}CommitBatch": _plain(WRITER, "on the tables", check_batch),
    f"{_WRITE}Append": _plain(WRITER, "on the table", lambda caller, it: caller.need_append(it.table_id, it.txn_id)),
    f"{_WRITE}AbortTransaction": Right(
        "one's own transaction, or maintainer on its tables", lambda caller, it: caller.need_txn(it.txn_id, MAINTAINER)
    ),
    f"{_WRITE}RenewTransaction": Right("one's own transaction", lambda caller, it: check_own_txn(caller, it.txn_id)),
    f"{_WRITE}GetTransaction": Right(
        "one's own transaction, or reader on its tables", lambda caller, it: caller.need_txn(it.txn_id, READER)
    ),
    f"{_WRITE}ExplainTransaction": Right(
        "one's own transaction",
        lambda caller, it: check_own_txn(caller, it.txn_id, [change.table_id for change in it.changes]),
    ),
    f"{_WRITE}ListTransactions": Right("reader: those of other tables are left out", check_nothing, hide_transactions),
    f"{_WRITE}Session": Right("each call in it is checked as by itself", check_nothing),
    f"{_CATALOG}CreateTable": Right("writer on the namespace; maintainer on a table that is replaced", check_create),
    f"{_CATALOG}GetTable": Right("reader on the table", check_get_table),
    f"{_CATALOG}ListSchemas": _on_table(READER),
    f"{_CATALOG}ListTables": Right("reader: other tables are left out", check_list_tables, hide_tables),
    f"{_CATALOG}AlterTable": Right("maintainer on the table; writer on the namespace of a new name", check_alter),
    f"{_CATALOG}DropTable": _on_table(ADMIN),
    f"{_CATALOG}UndropTable": Right(
        "admin on the service, or on the table by a grant of its own",
        lambda caller, it: caller.need_table(it.table_id, ADMIN),
    ),
    f"{_CATALOG}CreateNamespace": Right(
        "maintainer on the service; with IF NOT EXISTS, reader of anything in one that is there", check_create_namespace
    ),
    f"{_CATALOG}GetNamespace": Right("reader of anything in the namespace", check_get_namespace),
    f"{_CATALOG}ListNamespaces": Right("reader: other namespaces are left out", check_nothing, hide_namespaces),
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
        check_list_tables,
        lambda caller, answer: keep_seen(answer.views, lambda view: caller.on_named(view.name, "") >= READER),
    ),
    f"{_CATALOG}RenameView": Right("maintainer on the namespace; writer on the new one", check_rename_view),
    f"{_CATALOG}DropView": Right(
        "maintainer on the namespace", lambda caller, it: caller.need_view(it.name, MAINTAINER)
    ),
    f"{_CATALOG}CreateBranch": _on_service(WRITER),
    f"{_CATALOG}CreateBranches": _on_service(WRITER),
    f"{_CATALOG}ListBranches": Right("any identity", check_nothing),
    f"{_CATALOG}ListBranchEvents": Right("any identity", check_nothing),
    f"{_CATALOG}GetBranch": Right(
        "any identity: tables that it may not read are left out",
        check_nothing,
        hide_in_branch,
    ),
    f"{_CATALOG}ExtendBranch": Right("one's own branch, or maintainer on the service", check_branch),
    f"{_CATALOG}DropBranch": Right("one's own branch, or maintainer on the service", check_branch),
    f"{_CATALOG}DropBranches": Right("one's own branches, or maintainer on the service", check_branches),
    f"{_CATALOG}MergeBranch": Right(
        "writer on the parent's tables that it changes, and on the namespaces of tables that it adds; of views and"
        " namespaces as for the same change in the parent",
        check_merge,
    ),
    f"{_CATALOG}RefreshBranch": Right(
        "one's own branch, or maintainer on the service: tables that it may not read are left out",
        check_branch,
        hide_in_refresh,
    ),
    f"{_CATALOG}CloneTable": Right("reader on the table, and writer on the namespace of the clone", check_clone),
    f"{_TABLES}PlanMaintenance": _on_table(READER),
    f"{_TABLES}RequestTask": _on_table(MAINTAINER),
    f"{_TABLES}ClaimTask": Right(
        "maintainer on the tables named, or on the service",
        check_claim,
    ),
    f"{_TABLES}RenewTask": Right(
        "maintainer on the table", lambda caller, it: caller.need_task(it.task_id, MAINTAINER)
    ),
    f"{_TABLES}FinishTask": Right("maintainer on the table", check_finish),
    f"{_TABLES}CancelTask": Right(
        "maintainer on the table", lambda caller, it: caller.need_task(it.task_id, MAINTAINER)
    ),
    f"{_TABLES}GetTask": Right("reader on the table", lambda caller, it: caller.need_task(it.task_id, READER)),
    f"{_TABLES}ListTasks": Right(
        "reader: those of other tables are left out",
        check_nothing,
        lambda caller, answer: keep_seen(answer.tasks, lambda task: caller.reads(task.table_id)),
    ),
    f"{_TABLES}ListPurgeable": Right(
        "maintainer on the table, or on the service",
        lambda caller, it: check_tables_or_service(caller, [it.table_id] if it.table_id else [], MAINTAINER),
    ),
    f"{_TABLES}ConfirmPurged": Right(
        "maintainer on the table", lambda caller, it: caller.need_table(it.table_id, MAINTAINER)
    ),
    f"{_TABLES}AdvanceKeyCheck": _on_table(MAINTAINER),
    f"{_TABLES}ListSweepable": _on_service(MAINTAINER),
    f"{_TABLES}ConfirmSwept": _on_service(MAINTAINER),
    f"{_TABLES}CheckPaths": Right(
        "maintainer on the table, or on the service",
        lambda caller, it: check_tables_or_service(caller, [it.table_id] if it.table_id else [], MAINTAINER),
    ),
    f"{_TABLES}PutPeriodicTask": Right(
        "writer on the table that it changes, reader on those that it reads; to replace the task of another,"
        " maintainer on the table of that",
        check_put_periodic,
    ),
    f"{_TABLES}AlterPeriodicTask": Right(
        "one's own task, or maintainer on the table that it changes", check_periodic(MAINTAINER)
    ),
    f"{_TABLES}GetPeriodicTask": Right("reader on the table that it changes", check_periodic(READER)),
    f"{_TABLES}ListPeriodicTasks": Right("reader: those of other tables are left out", check_nothing),
    f"{_TABLES}DropPeriodicTask": Right(
        "one's own task, or maintainer on the table that it changes", check_periodic(MAINTAINER)
    ),
    f"{_TABLES}ListPeriodicRuns": Right("reader on the table that it changes", check_periodic(READER)),
    f"{_TABLES}BeginPeriodicRun": Right(
        "maintainer on the table that the task changes, or one's own task", check_periodic_run
    ),
    f"{_TABLES}EndPeriodicRun": Right(
        "maintainer on the table that the task changes, or one's own task", check_periodic_run
    ),
    f"{_TABLES}GetWarehouse": Right("any identity", check_nothing),
    f"{_TABLES}SetWarehouse": _on_service(ADMIN),
    f"{_ADMIN}GetStatus": Right(
        "any identity; principals and quotas are shown to a maintainer", check_nothing, hide_status
    ),
    f"{_ADMIN}ListPins": Right(
        "reader: those of other tables are left out",
        check_nothing,
        lambda caller, answer: keep_seen(answer.pins, lambda pin: caller.reads(pin.table_id)),
    ),
    f"{_ADMIN}Backup": _on_service(ADMIN),
    f"{_ADMIN}Check": _on_service(MAINTAINER),
    f"{_ADMIN}ReleasePurge": _on_service(ADMIN),
    f"{_ADMIN}ConfirmClock": _on_service(ADMIN),
    f"{_ADMIN}StepDown": _on_service(ADMIN),
    f"{_ACCESS}WhoAmI": Right("any identity", check_nothing),
    f"{_ACCESS}Can": Right("any identity for itself; admin of the place for others", check_can),
    f"{_ACCESS}Grant": Right("admin of the place", check_grant),
    f"{_ACCESS}Revoke": Right("admin of the place", lambda caller, it: caller.need_place(it.place, ADMIN)),
    f"{_ACCESS}ListGrants": Right(
        "any identity for its own; admin of the place, or of the service for all", check_list_grants
    ),
    f"{_ACCESS}CreateToken": _on_service(ADMIN),
    f"{_ACCESS}ListTokens": _on_service(ADMIN),
    f"{_ACCESS}RevokeToken": _on_service(ADMIN),
    f"{_ACCESS}GetStorageCredentials": Right(
        "reader on the table; writer to write its files, or on the namespace of a table to be made", check_storage
    ),
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": Right("any identity", check_nothing),
}
OPEN_TO_ALL: Final = ("/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch")  # probes have no identity


def check(caller: Caller, method: str, request: Any) -> None:
    """Raises what the caller is told if they may not do this."""
    right = RIGHTS.get(method)
    if right is None:
        raise invalid("METHOD_UNKNOWN", "no right is defined for this method", method=method)
    right.check(caller, request)
