"""Brings the tables of a restored store to the versions that they had at a moment, by RESTORE commits on top.

The history stays: what came after the moment can still be read, and restored. Names, definitions, grants and tags are
as in the backup; a table that was made after the moment is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from metaservice.core.commit.transaction import TxnState
from metaservice.core.errors import MetaError
from metaservice.core.table.model import Change, Operation, Principal, Scope
from metaservice.service.commit.requests import Begin, CommitRequest, Intent
from metaservice.service.commit.transactions import Transactions
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.state import State
from metaservice.service.decider.views import TableView
from metaservice.service.read.reads import Reads

WHO = Principal("laketx restore", "laketx")
_TIMES_MS = 3_600_000  # more than such a commit can take


@dataclass(frozen=True, slots=True)
class RolledBack:
    """A table, its version in the backup, and the version whose content it has again; or why it is left as it is."""

    name: str
    head: int
    version: int = -1
    why: str = ""


def roll_back(state: State, clocks: Clocks, make_id: Callable[[], str], at_us: int) -> list[RolledBack]:
    """Commits to every table that has changed since the moment; no service uses the store."""
    failures: list[BaseException] = []
    decider = Decider(lambda: state, lambda: None, failures.append)
    transactions = Transactions(decider, clocks, _TIMES_MS, _TIMES_MS, 0)
    reads = Reads(decider, clocks)
    decider.start()
    try:
        return list(_each_table(decider, transactions, reads, make_id, at_us))
    finally:
        decider.stop()
        if failures:
            raise failures[0]


def _each_table(
    decider: Decider, transactions: Transactions, reads: Reads, make_id: Callable[[], str], at_us: int
) -> Iterator[RolledBack]:
    views = decider.state.views
    for table_id in list(views.table_ids()):
        table = views.find(table_id)
        if table is None:
            continue
        name, head = table.meta.name, table.head
        try:
            version = decider.call(lambda table=table: reads.resolve_time(table, at_us).version)  # type: ignore[misc]
            if version < head:
                _restore(decider, transactions, table, version, make_id())
            yield RolledBack(name, head, version)
        except MetaError as error:
            yield RolledBack(name, head, why=error.reason)


def _restore(decider: Decider, transactions: Transactions, table: TableView, version: int, txn_id: str) -> None:
    table_id, message = table.meta.table_id, f"version {version}, by laketx restore --at"
    begin = Begin(
        txn_id,
        (Intent(table_id, Operation.RESTORE),),
        WHO,
        message,
        b"begin",
        features=table.meta.features,
    )
    decider.call(lambda: transactions.begin(begin))
    change = Change(table_id, Operation.RESTORE, table.head, scope=Scope(None), restore_version=version)
    request = CommitRequest(txn_id, (change,), ((None, None),), b"commit")
    ended = decider.call(lambda: transactions.commit(request))
    if ended.state is not TxnState.COMMITTED:
        raise AssertionError(f"a RESTORE without rivals ended as {ended.state.name}")
