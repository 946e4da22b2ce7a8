"""Takes out of an answer what its caller may not see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metaservice.core.table.branches import branch_of
from metaservice.rpc.auth.caller import MAINTAINER, READER, Caller, namespace_of
from metaservice.service.branch.branched_names import NAMESPACE

Filter = Callable[[Caller, Any], None]  # takes out of an answer what the caller may not see


def _sees_name(caller: Caller, name: Any) -> bool:
    return caller.sees_namespace(name.name if name.kind == NAMESPACE else namespace_of(name.name))


def hide_in_branch(caller: Caller, answer: Any) -> None:
    keep_seen(answer.tables, lambda table: _sees_on_branch(caller, table))
    keep_seen(answer.names, lambda name: _sees_name(caller, name))


def hide_in_refresh(caller: Caller, answer: Any) -> None:
    keep_seen(answer.tables, lambda table: caller.reads(table.table_id))
    keep_seen(answer.names, lambda name: _sees_name(caller, name))


def _sees_on_branch(caller: Caller, table: Any) -> bool:
    """A table of a branch; one that was dropped there is gone for all who may read the parent's."""
    return caller.reads(table.table_id) or bool(table.dropped and caller.reads(table.parent_table_id))


def keep_seen(items: Any, keeps: Callable[[Any], bool]) -> None:
    kept = [item for item in items if keeps(item)]
    if len(kept) < len(items):
        del items[:]
        items.extend(kept)


def hide_tables(caller: Caller, answer: Any) -> None:
    keep_seen(answer.tables, lambda table: _sees_table(caller, table))


def _sees_table(caller: Caller, table: Any) -> bool:
    if branch_of(table.name):
        return caller.reads(table.table_id or table.parent_table_id)
    return caller.on_named(table.name, table.table_id) >= READER


def hide_namespaces(caller: Caller, answer: Any) -> None:
    keep_seen(answer.names, caller.sees_namespace)
    keep_seen(answer.namespaces, lambda namespace: caller.sees_namespace(namespace.name))


def hide_transactions(caller: Caller, answer: Any) -> None:
    keep_seen(answer.transactions, lambda txn: _sees_txn(caller, txn))


def _sees_txn(caller: Caller, txn: Any) -> bool:
    return txn.principal.name == caller.who.principal or all(caller.reads(table.table_id) for table in txn.tables)


def hide_status(caller: Caller, answer: Any) -> None:
    if caller.on_service() < MAINTAINER:  # who uses how much, and on which tables
        del answer.quotas[:]
        answer.oldest_open_txn_id = ""
