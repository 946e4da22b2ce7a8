"""Who calls, and what they may do. Something that the caller may not see is answered as if it weren't there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from metaservice.core.access import Identity, Place, Policy, Role
from metaservice.core.commit.transaction import Txn, TxnState, unknown_txn
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.periodic_tasks import ScheduledStatement, unknown_task
from metaservice.core.table.branches import off_branch
from metaservice.rpc.convert import wire, wire_tasks
from metaservice.service.decider.branch_marks import find_cursor, find_tag
from metaservice.service.decider.state import State
from protos.laketx.v1 import access_pb2

READER, WRITER, MAINTAINER, ADMIN = Role.READER, Role.WRITER, Role.MAINTAINER, Role.ADMIN


def denied(who: Identity, needed: Role, role: Role, on: str) -> MetaError:
    message = f"{who.principal} needs the role {needed.name.lower()} on {on}: ask an admin for a grant"
    return MetaError(
        ErrorKind.DENIED, "ROLE_MISSING", message, needed=needed.name.lower(), has=role.name.lower(), on=on
    )


def namespace_of(table_name: str) -> str:
    return table_name.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, and what they may do as things stand."""

    who: Identity
    policy: Policy
    state: State

    # -- questions

    def on_service(self) -> Role:
        return self.policy.role(self.who)

    def on_namespace(self, name: str) -> Role:
        return self.policy.role(self.who, off_branch(name))

    def on_table(self, table_id: str) -> Role:
        table = self.state.views.find(table_id)
        role = self.policy.role(self.who, namespace_of(table.meta.name) if table is not None else "", table_id)
        if table is None or table.fork is None or not table.fork.branch:
            return role
        return max(role, self.on_table(table.base_id))

    def on_named(self, name: str, table_id: str) -> Role:
        return self.policy.role(self.who, namespace_of(name), table_id)

    def on_named_place(self, place: Place) -> Role:
        return self.on_table(place.table_id) if place.table_id else self.on_namespace(place.namespace)

    def sees_namespace(self, name: str) -> bool:
        """Whether the namespace or anything in it is the caller's to read."""
        if self.on_namespace(name) >= READER:
            return True
        tables = map(self.state.views.find, self.policy.tables_of(self.who))
        return any(
            table is not None and namespace_of(table.meta.name).lower() == off_branch(name).lower() for table in tables
        )

    def reads(self, table_id: str) -> bool:
        return self.on_table(table_id) >= READER

    def owns(self, txn: Txn) -> bool:
        return txn.principal.name == self.who.principal

    # -- checks

    def need(self, role: Role) -> None:
        """Refuses a caller without the role on the service."""
        actual = self.on_service()
        if actual < role:
            raise denied(self.who, role, actual, "the service")

    def need_namespace(self, name: str, role: Role) -> None:
        actual = self.on_namespace(name)
        if actual >= role:
            return
        if not name:
            raise denied(self.who, role, actual, "the service, for names without a namespace")
        if not self.sees_namespace(name):
            raise MetaError(ErrorKind.NOT_FOUND, "NAMESPACE_UNKNOWN", namespace=name)
        raise denied(self.who, role, actual, f"the namespace {name}")

    def need_table(self, table_id: str, role: Role) -> None:
        actual = self.on_table(table_id)
        if actual >= role:
            return
        table = self.state.views.find(table_id)
        if table is None or actual < READER:
            raise MetaError(ErrorKind.NOT_FOUND, "TABLE_UNKNOWN", table_id=table_id)
        raise denied(self.who, role, actual, table.meta.name)

    def need_tables(self, table_ids: Iterable[str], role: Role) -> None:
        for table_id in table_ids:
            self.need_table(table_id, role)

    def need_name(self, name: str, role: Role) -> None:
        """Refuses a caller without the role on the table, or if it doesn't exist, where it would be."""
        table = self.state.views.find_by_name(name)
        if table is None:
            self.need_namespace(namespace_of(name), role)
            return
        actual = self.on_table(table.meta.table_id)
        if actual < READER:
            raise MetaError(ErrorKind.NOT_FOUND, "TABLE_UNKNOWN", name=name)
        if actual < role:
            raise denied(self.who, role, actual, name)

    def need_view(self, name: str, role: Role) -> None:
        actual = self.on_named(name, "")
        if actual < READER:
            raise MetaError(ErrorKind.NOT_FOUND, "VIEW_UNKNOWN", view=name)
        if actual < role:
            raise denied(self.who, role, actual, f"the namespace of {name}")

    def need_txn(self, txn_id: str, others: Role) -> None:
        """Allows the caller's own transaction; another's with the role `others` on its tables."""
        txn = self.state.find_txn(wire.txn_id(txn_id))
        if txn is None or self.owns(txn):
            return  # the service says that there is none; everyone may learn how his own ended, and end it
        actual = self._on_all(txn)
        if actual < READER:
            raise self._unknown_txn(txn_id)
        if actual < others:
            raise denied(self.who, others, actual, f"the tables of {txn_id}, a transaction of {txn.principal.name}")

    def need_known_txn(self, txn_id: str) -> None:
        """One that the caller may know of. A session may still begin it, so the service says that there is none."""
        txn = self.state.find_txn(wire.txn_id(txn_id))
        if txn is not None and self._is_hidden(txn):
            raise self._unknown_txn(txn_id)

    def _is_hidden(self, txn: Txn) -> bool:
        return not self.owns(txn) and self._on_all(txn) < READER

    def _on_all(self, txn: Txn) -> Role:
        return min((self.on_table(table_id) for table_id in txn.tables), default=Role.NONE)

    def _unknown_txn(self, txn_id: str) -> MetaError:
        return unknown_txn(txn_id, self.state.history.epoch, self.state.history.since_us)

    def need_own_txn(self, txn_id: str, *, on: Iterable[str] = ()) -> bool:
        """Allows the caller's own transaction, with the right to write. Returns if it is open: a repeat is answered.

        `on`: tables that the request names; those that aren't of the transaction have to be the caller's to see. A
        hidden transaction passes here as one does that isn't there: `need_known_txn` comes after all else.
        """
        txn = self.state.find_txn(wire.txn_id(txn_id))
        if txn is None or self._is_hidden(txn):
            self.need_tables(on, READER)
            return True
        if self.owns(txn):
            if txn.state is TxnState.OPEN:
                self.need_tables((table for table in txn.tables if self.state.views.find(table) is not None), WRITER)
            self.need_tables((table_id for table_id in on if table_id not in txn.tables), READER)
            return txn.state is TxnState.OPEN
        message = f"{txn_id} is a transaction of {txn.principal.name}: begin one of your own"
        raise MetaError(ErrorKind.DENIED, "TRANSACTION_OF_ANOTHER", message, txn_id=txn_id)

    def need_append(self, table_id: str, txn_id: str) -> None:
        """The right to write; the answer to one's own append can be asked for again, whatever came since."""
        try:
            self.need_table(table_id, WRITER)
        except MetaError:
            txn = self.state.find_txn(wire.txn_id(txn_id))
            if txn is None or txn.state is TxnState.OPEN or not self.owns(txn) or table_id not in txn.tables:
                raise

    def need_task(self, task_id: str, role: Role) -> None:
        task = self.state.tasks.tasks.get(task_id)
        ended = self.state.tasks.ended.get(task_id)
        table_id = task.table_id if task is not None else ended.table_id if ended is not None else ""
        if not table_id or not self.reads(table_id):
            wire_tasks.task_id(task_id)
            raise MetaError(ErrorKind.NOT_FOUND, "TASK_UNKNOWN", task_id=task_id)
        self.need_table(table_id, role)

    def need_periodic(self, task: ScheduledStatement, others: Role) -> None:
        """The caller's own task; that of somebody else with a role on the table that it changes."""
        if task.owner.principal.name == self.who.principal:
            return
        role = self.on_table(task.table_id)
        if role < READER:
            raise unknown_task(task.name)
        if role < others:
            raise denied(self.who, others, role, f"the table of {task.name}, a task of {task.owner.principal.name}")

    def need_pin(self, pin_id: str, others: Role) -> None:
        pin = self.state.pins.pins.get(pin_id)
        if pin is None or pin.principal.name == self.who.principal:
            return
        actual = min((self.on_table(table_id) for table_id, _ in pin.versions), default=Role.NONE)
        if actual < READER:
            raise MetaError(ErrorKind.NOT_FOUND, "PIN_UNKNOWN", pin_id=pin_id)
        if actual < others:
            raise denied(self.who, others, actual, f"the tables of {pin_id}, a pin of {pin.principal.name}")

    def need_cursor(self, table_id: str, name: str) -> None:
        """A cursor of the caller, or the right to write."""
        self.need_table(table_id, READER)
        cursor = find_cursor(self.state, table_id, name)
        if cursor is not None and cursor.principal.name != self.who.principal:
            self.need_table(table_id, WRITER)

    def need_tag(self, table_id: str, name: str) -> None:
        """A tag of the caller with the right to write, or the role maintainer."""
        self.need_table(table_id, WRITER)
        tag = find_tag(self.state, table_id, name)
        if tag is not None and tag.principal.name != self.who.principal:
            self.need_table(table_id, MAINTAINER)

    def need_place(self, place: access_pb2.Place, role: Role) -> None:
        if place.table_id:
            self.need_table(wire.table_id(place.table_id), role)
        elif place.namespace:
            self.need_namespace(place.namespace, role)
        else:
            self.need(role)
