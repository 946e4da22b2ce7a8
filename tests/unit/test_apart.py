"""Which calls need not wait for a merge of other tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import Message

from metaservice.core.commit.transaction import Txn, TxnTable
from metaservice.core.table.model import Operation, Principal
from metaservice.rpc.services.apart import apart, of_appends
from metaservice.service.decider.decider import Apart
from metaservice.service.decider.state import State
from metaservice.store.engines.memory import MemoryStore
from protos.laketx.v1 import common_pb2, maintenance_pb2
from protos.laketx.v1 import transaction_pb2 as pb

A, B, OPEN = "table a", "table b", "a transaction"


def begin(**fields: Any) -> pb.BeginTransactionRequest:
    return pb.BeginTransactionRequest(tables=[pb.TableIntent(table_id=A), pb.TableIntent(table_id=B)], **fields)


def commit(txn_id: str = OPEN, **fields: Any) -> pb.CommitTransactionRequest:
    return pb.CommitTransactionRequest(txn_id=txn_id, **fields)


def tables_of(job: Callable[[], object]) -> list[str] | None:
    state = State(MemoryStore())
    tables = {table: TxnTable(table, Operation.INSERT, 0, 0) for table in (A, B)}
    state.open[OPEN] = Txn(OPEN, tables, Principal("ann", "tests"), "", {}, 0, b"")
    assert isinstance(job, Apart)
    found = job.tables(state)
    return None if found is None else list(found)


@pytest.mark.parametrize(
    ("kind", "request_", "found"),
    [
        ("begin", begin(), [A, B]),
        ("begin", begin(adopt_from=OPEN), None),
        ("begin", begin(task=maintenance_pb2.TaskClaim(task_id="a task")), None),
        ("register", pb.RegisterFilesRequest(txn_id=OPEN, table_id=A), [A, B]),
        ("register", pb.RegisterFilesRequest(txn_id="another", table_id=A), None),
        ("commit", commit(changes=[common_pb2.Change(table_id=A)]), [A, B]),
        ("commit", commit("another"), None),
        ("commit", commit(cursors=[pb.CursorMove(table_id=A)]), None),
        ("commit", commit(replacements=[{"table_id": A}]), None),
        ("commit", commit(changes=[common_pb2.Change(alteration=common_pb2.Alteration())]), None),
    ],
)
def test_a_call_names_the_tables_that_it_is_about(kind: str, request_: Message, found: list[str] | None) -> None:
    assert tables_of(apart(kind, request_, lambda: 1)) == found


def test_other_calls_may_be_about_anything() -> None:
    job = lambda: 1  # noqa: E731
    for kind in ("abort", "renew", "ping"):
        assert apart(kind, pb.PingRequest(), job) is job


def test_appends_are_about_the_tables_of_all() -> None:
    job = of_appends([pb.AppendRequest(table_id=B), pb.AppendRequest(table_id=A)], lambda: 7)
    assert tables_of(job) == [B, A]
    assert job() == 7
