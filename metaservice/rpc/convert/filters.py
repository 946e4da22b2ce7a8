"""Filters of lists: wire to core, checked."""

from __future__ import annotations

from collections.abc import Callable

from metaservice.core.commit.transaction import Txn, TxnState
from metaservice.core.errors import invalid
from metaservice.core.table.model import Operation
from metaservice.rpc.convert import wire
from metaservice.service.read.timeline import VersionFilter
from protos.laketx.v1 import read_pb2, transaction_pb2

OPERATIONS = {int(operation): operation for operation in Operation}


def version_filter(message: read_pb2.VersionFilter) -> VersionFilter:
    matching = VersionFilter(
        principal=wire.text(message.principal, "principal", 256),
        client=wire.text(message.client, "client", 256),
        operations=frozenset(_operation(number) for number in message.operations),
        logical_only=message.logical_only,
        message_contains=wire.text(message.message_contains, "message_contains"),
        properties=wire.properties(message.properties),
        from_version=wire.version(message.from_version, "from_version"),
        to_version=wire.version(message.to_version, "to_version") if message.HasField("to_version") else None,
        from_time_us=message.from_time_us if message.HasField("from_time_us") else None,
        to_time_us=message.to_time_us if message.HasField("to_time_us") else None,
    )
    _check_range("version", matching.from_version, matching.to_version)
    _check_range("time_us", matching.from_time_us, matching.to_time_us)
    return matching


def txn_filter(request: transaction_pb2.ListTransactionsRequest) -> Callable[[Txn], bool]:
    if request.state and request.state not in wire.TRANSACTION_STATES:
        raise invalid("STATE_INVALID", state=request.state)
    state = TxnState(request.state) if request.state else None
    table_id = wire.table_id(request.table_id) if request.table_id else ""
    return lambda txn: (state is None or txn.state is state) and (not table_id or table_id in txn.tables)


def _operation(number: int) -> Operation:
    if number not in OPERATIONS:
        raise invalid("OPERATION_INVALID", operation=number)
    return OPERATIONS[number]


def _check_range(what: str, first: int | None, last: int | None) -> None:
    if first is not None and last is not None and first > last:
        raise invalid("RANGE_REVERSED", what=what, first=first, last=last)
