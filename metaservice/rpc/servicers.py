"""The five services, two lines a method: convert, ask, convert."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import grpc

from metaservice.core import limits
from metaservice.core.errors import invalid
from metaservice.core.transaction import TxnState
from metaservice.rpc import answers, plans, wire
from metaservice.rpc.calls import Calls
from metaservice.rpc.session import Sessions
from protos.laketx.v1 import (
    admin_pb2_grpc,
    catalog_pb2,
    catalog_pb2_grpc,
    maintenance_pb2_grpc,
    read_pb2,
    read_pb2_grpc,
    transaction_pb2,
    transaction_pb2_grpc,
)

ENTRIES_PER_ANSWER = 1_000
VERSION_DIGITS_MAX = 19


def page_size(asked: int) -> int:
    if not 0 <= asked <= limits.PAGE_SIZE_MAX:
        raise invalid("PAGE_SIZE_INVALID", asked=asked, most=limits.PAGE_SIZE_MAX)
    return asked or limits.PAGE_SIZE_DEFAULT


def page_start(token: str) -> str:
    try:
        return base64.urlsafe_b64decode(token.encode()).decode() if token else ""
    except (binascii.Error, UnicodeError):
        raise invalid("PAGE_TOKEN_INVALID") from None


def page_token(start: str) -> str:
    return base64.urlsafe_b64encode(start.encode()).decode()


class TransactionServicer(transaction_pb2_grpc.TransactionServiceServicer):
    """Transactions."""

    def __init__(self, calls: Calls, sessions: Sessions) -> None:
        self._calls = calls
        self._sessions = sessions

    def _ask(self, call: Any, request: Any) -> Any:
        return self._calls.decider.call(lambda: call(request))

    def BeginTransaction(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._ask(self._calls.begin, request)

    def RegisterFiles(self, request_iterator: Iterable[Any], context: grpc.ServicerContext) -> Any:
        answer: Any = None
        for part in request_iterator:
            answer = self._calls.decider.call(self._register(part))
        if answer is None:
            raise invalid("REGISTRATION_EMPTY", "the stream held nothing")
        return answer

    def _register(self, part: Any) -> Callable[[], Any]:
        entries = self._calls.entries(part)
        return lambda: self._calls.register_entries(part.txn_id, part.table_id, entries)

    def CommitTransaction(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._ask(self._calls.commit, request)

    def CommitBatch(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._ask(self._calls.batch, request)

    def Append(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._ask(self._calls.append, request)

    def AbortTransaction(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._ask(self._calls.abort, request)

    def RenewTransaction(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._ask(self._calls.renew, request)

    def GetTransaction(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._ask(self._calls.get_transaction, request)

    def ListTransactions(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._ask(self._list, request)

    def _list(self, request: Any) -> Any:
        size = page_size(request.page_size)
        start = page_start(request.page_token)
        if request.state and request.state not in wire.TRANSACTION_STATES:
            raise invalid("STATE_INVALID", state=request.state)
        table_id = wire.table_id(request.table_id) if request.table_id else ""
        self._calls.decider.state.flush()
        found, last = [], ""
        below = wire.txn_id(start) if start else ""
        for txn in islice(self._calls.reads.list_txns(below), limits.PAGE_SIZE_MAX * 10):
            last = txn.txn_id
            if request.state and txn.state is not TxnState(request.state):
                continue
            if table_id and table_id not in txn.tables:
                continue
            found.append(answers.transaction(txn))
            if len(found) == size:
                break
        else:
            last = ""
        token = page_token(last) if last and len(found) == size else ""
        return transaction_pb2.ListTransactionsResponse(transactions=found, next_page_token=token)

    def ExplainTransaction(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._ask(self._calls.explain, request)

    def Session(self, request_iterator: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        return self._sessions.open(request_iterator, context)


class CatalogServicer(catalog_pb2_grpc.CatalogServiceServicer):
    """Tables."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def CreateTable(self, request: Any, context: grpc.ServicerContext) -> Any:
        meta, who = wire.new_table(request), wire.principal(request.principal)
        state = self._calls.decider.call(lambda: self._calls.catalog.create(meta, who))
        return catalog_pb2.CreateTableResponse(table=answers.table(state))  # type: ignore[arg-type]

    def GetTable(self, request: Any, context: grpc.ServicerContext) -> Any:
        if bool(request.name) == bool(request.table_id):
            raise invalid("TABLE_NOT_NAMED", "give a name or an id")
        table_id = wire.table_id(request.table_id) if request.table_id else ""
        found = self._calls.reads.get_table(name=request.name, table_id=table_id)
        return catalog_pb2.GetTableResponse(table=answers.table(found))

    def ListTables(self, request: Any, context: grpc.ServicerContext) -> Any:
        size, start = page_size(request.page_size), page_start(request.page_token)
        found = self._calls.reads.list_tables(start, size)
        token = page_token(found[-1].meta.name) if len(found) == size else ""
        prefix = f"{request.namespace}." if request.namespace else ""
        return catalog_pb2.ListTablesResponse(
            tables=[answers.table(one) for one in found if one.meta.name.startswith(prefix)], next_page_token=token
        )

    def AlterTable(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._calls.decider.call(lambda: self._calls.alter(request))

    def DropTable(self, request: Any, context: grpc.ServicerContext) -> Any:
        table_id = wire.table_id(request.table_id)
        dry = request.validate_only
        ended = self._calls.decider.call(lambda: self._calls.catalog.drop(table_id, validate_only=dry))
        return catalog_pb2.DropTableResponse(ended_transactions=ended)  # type: ignore[arg-type]


class ReadServicer(read_pb2_grpc.ReadServiceServicer):
    """Readers."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def _table(self, table_id: str) -> Any:
        return self._calls.reads.get_table(table_id=wire.table_id(table_id))

    def ResolveVersion(self, request: Any, context: grpc.ServicerContext) -> Any:
        table, reads = self._table(request.table_id), self._calls.reads
        asked = request.WhichOneof("at")
        found: Any
        if asked == "commits_ago":
            found = self._calls.planning.resolve_commits_ago(table, request.commits_ago)
        elif asked == "time_us":
            found = self._calls.decider.call(lambda: reads.resolve_time(table, request.time_us))
        else:
            found = reads.resolve_version(table, request.version if asked == "version" else None)
        return read_pb2.ResolveVersionResponse(
            version=found.version, commit_time_us=found.commit_time_us, time_read_us=found.time_read_us, cut=found.cut
        )

    def ListVersions(self, request: Any, context: grpc.ServicerContext) -> Any:
        table, size, start = self._table(request.table_id), page_size(request.page_size), page_start(request.page_token)
        if start and not (start.isdecimal() and len(start) <= VERSION_DIGITS_MAX):
            raise invalid("PAGE_TOKEN_INVALID")
        below = int(start) if start else None
        found = self._calls.reads.list_versions(table, below, size)
        last = found[-1].footprint.version if found else 0
        return read_pb2.ListVersionsResponse(
            versions=[answers.version(one) for one in found], next_page_token=page_token(str(last)) if last else ""
        )

    def ListFiles(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        table = self._table(request.table_id)
        version = self._calls.reads.check_version(table, request.version if request.HasField("version") else None)
        entries = self._calls.reads.list_files(table, version)
        sent = False
        while part := [answers.live_entry(live) for live in islice(entries, ENTRIES_PER_ANSWER)]:
            sent = True
            yield read_pb2.ListFilesResponse(version=version, entries=part)
        if not sent:
            yield read_pb2.ListFilesResponse(version=version)

    def PlanScan(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        return plans.scan(self._calls.planning, self._calls.reads, request)

    def PlanChanges(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        return plans.changes(self._calls.planning, self._calls.reads, request)


class MaintenanceServicer(maintenance_pb2_grpc.MaintenanceServiceServicer):
    """Table services; its methods answer UNIMPLEMENTED."""


class AdminServicer(admin_pb2_grpc.AdminServiceServicer):
    """Operators; its methods answer UNIMPLEMENTED."""
