"""The services but the catalog's, two lines a method: convert, ask, convert."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import grpc

from metaservice.core.errors import invalid
from metaservice.rpc import answers, filters, plans, wire
from metaservice.rpc.calls import Calls
from metaservice.rpc.paging import fitting, in_parts, page_size, page_start, page_token
from metaservice.rpc.session import Sessions
from metaservice.rpc.watching import Watches
from metaservice.service.decider import Asked
from protos.laketx.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    maintenance_pb2_grpc,
    read_pb2,
    read_pb2_grpc,
    transaction_pb2,
    transaction_pb2_grpc,
)

ENTRIES_PER_ANSWER = 1_000
VERSION_DIGITS_MAX = 19


class TransactionServicer(transaction_pb2_grpc.TransactionServiceServicer):
    """Transactions."""

    def __init__(self, calls: Calls, sessions: Sessions) -> None:
        self._calls = calls
        self._sessions = sessions

    def _ask(self, call: Any, request: Any) -> Any:
        return self._calls.decider.call(lambda: call(request))

    def BeginTransaction(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._calls.decider.call(self._calls.prepared_begin(request))

    def RegisterFiles(self, request_iterator: Iterable[Any], context: grpc.ServicerContext) -> Any:
        under_way: Asked[transaction_pb2.RegisterFilesResponse] | None = None
        for part in request_iterator:
            job = self._register(part)  # converted while the part before is made durable
            if under_way is not None:
                under_way.wait()
            under_way = self._calls.decider.ask(job)
        if under_way is None:
            raise invalid("REGISTRATION_EMPTY", "the stream held nothing")
        return under_way.wait()

    def _register(
        self, part: transaction_pb2.RegisterFilesRequest
    ) -> Callable[[], transaction_pb2.RegisterFilesResponse]:
        entries = self._calls.entries(part)
        return lambda: self._calls.register_entries(part.txn_id, part.table_id, entries)

    def CommitTransaction(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._calls.decider.call(self._calls.prepared_commit(request))

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
        size, start = page_size(request.page_size), page_start(request.page_token)
        below = wire.txn_id(start) if start else ""
        page = self._calls.timeline.list_transactions(filters.txn_filter(request), below, size)
        shown = list(fitting(map(answers.transaction, page.items)))
        following = page.below if len(shown) == len(page.items) else shown[-1].txn_id
        return transaction_pb2.ListTransactionsResponse(
            transactions=shown, next_page_token=page_token(following) if following is not None else ""
        )

    def ExplainTransaction(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._ask(self._calls.explain, request)

    def Session(self, request_iterator: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        return self._sessions.open(request_iterator, context)


class ReadServicer(read_pb2_grpc.ReadServiceServicer):
    """Readers."""

    def __init__(self, calls: Calls, watches: Watches) -> None:
        self._calls = calls
        self._watches = watches

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
        elif asked == "tag":
            found = reads.resolve_version(table, self._calls.marking.tagged_version(table.meta.table_id, request.tag))
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
        page = self._calls.timeline.list_versions(table, filters.version_filter(request.filter), below, size)
        shown = list(fitting(map(answers.version, page.items)))
        following = page.below if len(shown) == len(page.items) else shown[-1].version
        return read_pb2.ListVersionsResponse(
            versions=shown, next_page_token=page_token(str(following)) if following is not None else ""
        )

    def ListFiles(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        table = self._table(request.table_id)
        version = self._calls.reads.check_version(table, request.version if request.HasField("version") else None)
        entries = self._calls.reads.list_files(table, version)
        sent = False
        for part in in_parts(map(answers.live_entry, entries), ENTRIES_PER_ANSWER):
            sent = True
            yield read_pb2.ListFilesResponse(version=version, entries=part)
        if not sent:
            yield read_pb2.ListFilesResponse(version=version)

    def PinVersions(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._calls.keeping.pin(request)

    def RenewPin(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._calls.keeping.renew(request)

    def Unpin(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._calls.keeping.unpin(request)

    def Watch(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        return self._watches.open(request, context)

    def CreateTag(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._calls.marking.create_tag(request)

    def ListTags(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._calls.marking.list_tags(request)

    def DropTag(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._calls.marking.drop_tag(request)

    def CreateCursor(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._calls.marking.create_cursor(request)

    def AdvanceCursor(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._calls.marking.advance_cursor(request)

    def ListCursors(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._calls.marking.list_cursors(request)

    def DropCursor(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._calls.marking.drop_cursor(request)

    def PlanScan(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        return plans.scan(self._calls.planning, self._calls.reads, request)

    def PlanChanges(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        return plans.changes(self._calls.planning, self._calls.reads, request)


class MaintenanceServicer(maintenance_pb2_grpc.MaintenanceServiceServicer):
    """Table services."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def PlanMaintenance(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._calls.tasks.plan(request)

    def RequestTask(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._calls.tasks.request(request)

    def ClaimTask(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._calls.tasks.claim(request)

    def RenewTask(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._calls.tasks.renew(request)

    def FinishTask(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._calls.tasks.finish(request)

    def CancelTask(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._calls.tasks.cancel(request)

    def GetTask(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._calls.tasks.get(request)

    def ListTasks(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._calls.tasks.list(request)

    def ListPurgeable(self, request: Any, context: grpc.ServicerContext) -> Any:
        answer, place = self._calls.keeping.list_purgeable(request, page_start(request.page_token))
        answer.next_page_token = page_token(place)
        return answer

    def ConfirmPurged(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._calls.keeping.confirm_purged(request)

    def ListSweepable(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._calls.sweeping.list_sweepable(request)

    def ConfirmSwept(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._calls.sweeping.confirm_swept(request)

    def CheckPaths(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._calls.sweeping.check_paths(request)

    def GetWarehouse(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._calls.warehouse.get(request)

    def SetWarehouse(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._calls.warehouse.put(request)


class AdminServicer(admin_pb2_grpc.AdminServiceServicer):
    """Operators: pins; the other methods answer UNIMPLEMENTED."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def ListPins(self, request: Any, context: grpc.ServicerContext) -> Any:
        size, start = page_size(request.page_size), page_start(request.page_token)
        pins, place = self._calls.keeping.list_pins(start, size)
        return admin_pb2.ListPinsResponse(pins=pins, next_page_token=page_token(place))
