"""What a call of a transaction is about, so that it need not wait for a merge of other tables (`Apart`).

It is if it names all that it reads and changes. One that moves cursors, alters a table, works for a task or takes over
another transaction's files may be about more, and so may one whose transaction is not open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from metaservice.service.decider.decider import Apart
from metaservice.service.decider.state import State
from protos.laketx.v1 import transaction_pb2 as pb

T = TypeVar("T")


def apart(kind: str, request: Any, run: Callable[[], T]) -> Callable[[], T]:
    """The job of a call of that kind; as it is if such a call may be about anything."""
    tables = _TABLES.get(kind)
    return run if tables is None else Apart(run, partial(tables, request))


def of_appends(requests: Sequence[pb.AppendRequest], run: Callable[[], T]) -> Apart[T]:
    return Apart(run, lambda _: [request.table_id for request in requests])


def _of_begin(request: pb.BeginTransactionRequest, _: State) -> Iterable[str] | None:
    if request.adopt_from or request.HasField("task"):
        return None
    return [table.table_id for table in request.tables]


def _of_registration(request: pb.RegisterFilesRequest, state: State) -> Iterable[str] | None:
    return _of_open(request.txn_id, state)


def _of_commit(request: pb.CommitTransactionRequest, state: State) -> Iterable[str] | None:
    if request.cursors or request.replacements or any(change.HasField("alteration") for change in request.changes):
        return None
    return _of_open(request.txn_id, state)


def _of_open(txn_id: str, state: State) -> Iterable[str] | None:
    txn = state.open.get(txn_id)
    return None if txn is None else txn.tables


_TABLES: Final[dict[str, Callable[[Any, State], Iterable[str] | None]]] = {
    "begin": _of_begin,
    "register": _of_registration,
    "commit": _of_commit,
}
