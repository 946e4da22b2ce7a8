"""The services except those of the catalog and of operators: convert, ask, convert.

`Session`, `Watch` and `PlanScan` take or answer bytes, which the edge passes on as they are (`RAW_ANSWERS`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from metaservice.core.errors import invalid
from metaservice.rpc.auth.authorization import Authorizer
from metaservice.rpc.convert import answers, filters, plans, wire, wire_changes
from metaservice.rpc.convert.client_features import Reader
from metaservice.rpc.convert.paging import fitting, page_size, page_start, page_token
from metaservice.rpc.handlers import Context
from metaservice.rpc.services.apart import apart, of_appends
from metaservice.rpc.services.calls import Servicer, UseCases
from metaservice.rpc.services.key_checks import KeyCheckMethods
from metaservice.rpc.services.periodic_tasks import PeriodicTaskMethods
from metaservice.rpc.services.pins import PinMethods
from metaservice.rpc.services.purge import PurgeMethods, SweepMethods
from metaservice.rpc.services.scans import ScanMethods
from metaservice.rpc.services.session import Sessions
from metaservice.rpc.services.tags_and_cursors import MarkMethods
from metaservice.rpc.services.tasks import TaskMethods
from metaservice.rpc.services.warehouse import WarehouseMethods
from metaservice.rpc.services.watching import Watches
from metaservice.service.decider.decider import PendingJob
from metaservice.service.decider.views import TableView
from protos.laketx.v1 import maintenance_pb2_grpc, read_pb2, read_pb2_grpc, transaction_pb2_grpc
from protos.laketx.v1 import transaction_pb2 as pb

VERSION_DIGITS_MAX = 19


class TransactionServicer(Servicer, transaction_pb2_grpc.TransactionServiceServicer):
    """Transactions."""

    def __init__(self, calls: UseCases, sessions: Sessions) -> None:
        super().__init__(calls)
        self._sessions = sessions

    def BeginTransaction(self, request: pb.BeginTransactionRequest, context: Context) -> pb.BeginTransactionResponse:
        return self._ask(apart("begin", request, self._calls.prepared_begin(request)))

    def RegisterFiles(
        self, request_iterator: Iterable[pb.RegisterFilesRequest], context: Context
    ) -> pb.RegisterFilesResponse:
        under_way: PendingJob[pb.RegisterFilesResponse] | None = None
        for part in request_iterator:
            job = self._register(part)  # converted while the part before is made durable
            if under_way is not None:
                under_way.wait()
            under_way = self._calls.decider.ask(job)
        if under_way is None:
            raise invalid("REGISTRATION_EMPTY", "the stream had no message: send at least one")
        return under_way.wait()

    def _register(self, part: pb.RegisterFilesRequest) -> Callable[[], pb.RegisterFilesResponse]:
        entries = self._calls.entries(part)
        return apart("register", part, lambda: self._calls.register_entries(part.txn_id, part.table_id, entries))

    def CommitTransaction(self, request: pb.CommitTransactionRequest, context: Context) -> pb.CommitTransactionResponse:
        return self._ask(apart("commit", request, self._calls.prepared_commit(request)))

    def CommitBatch(self, request: pb.CommitBatchRequest, context: Context) -> pb.CommitBatchResponse:
        return self._ask(of_appends(request.appends, self._calls.prepared_batch(request)))

    def Append(self, request: pb.AppendRequest, context: Context) -> pb.AppendResponse:
        return self._ask(of_appends([request], self._calls.prepared_append(request)))

    def AbortTransaction(self, request: pb.AbortTransactionRequest, context: Context) -> pb.AbortTransactionResponse:
        return self._ask(lambda: self._calls.abort(request))

    def RenewTransaction(self, request: pb.RenewTransactionRequest, context: Context) -> pb.RenewTransactionResponse:
        return self._ask(lambda: self._calls.renew(request))

    def GetTransaction(self, request: pb.GetTransactionRequest, context: Context) -> pb.GetTransactionResponse:
        return self._ask(lambda: self._calls.get_transaction(request))

    def ListTransactions(self, request: pb.ListTransactionsRequest, context: Context) -> pb.ListTransactionsResponse:
        size, start = page_size(request.page_size), page_start(request.page_token)
        below = wire.txn_id(start) if start else ""
        page = self._calls.timeline.list_transactions(filters.txn_filter(request), below, size)
        shown = list(fitting(map(answers.transaction, page.items)))
        following = page.below if len(shown) == len(page.items) else shown[-1].txn_id
        return pb.ListTransactionsResponse(
            transactions=shown, next_page_token=page_token(following) if following is not None else ""
        )

    def ExplainTransaction(
        self, request: pb.ExplainTransactionRequest, context: Context
    ) -> pb.ExplainTransactionResponse:
        return self._ask(lambda: self._calls.explain(request))

    def Session(self, request_iterator: Iterator[bytes], context: Context) -> Iterator[bytes]:  # type: ignore[override]
        return self._sessions.open(request_iterator, context)


class ReadServicer(PinMethods, ScanMethods, MarkMethods, read_pb2_grpc.ReadServiceServicer):
    """Readers."""

    def __init__(self, calls: UseCases, watches: Watches) -> None:
        super().__init__(calls)
        self._watches = watches

    def _table(self, table_id: str) -> TableView:
        return self._calls.reads.get_table(table_id=wire.table_id(table_id))

    def ResolveVersion(
        self, request: read_pb2.ResolveVersionRequest, context: Context
    ) -> read_pb2.ResolveVersionResponse:
        table, reads = self._table(request.table_id), self._calls.reads
        named_by = request.WhichOneof("at")
        if named_by == "commits_ago":
            resolved = self._calls.planning.resolve_commits_ago(table, request.commits_ago)
        elif named_by == "time_us":
            resolved = self._ask(lambda: reads.resolve_time(table, request.time_us))
        elif named_by == "tag":
            resolved = reads.resolve_version(table, self._tagged_version(table.meta.table_id, request.tag))
        else:
            resolved = reads.resolve_version(table, request.version if named_by == "version" else None)
        applied = None
        if request.app_id:
            app_id = wire_changes.app_id(request.app_id)
            applied = self._ask(lambda: reads.app_version(table, app_id))
        return read_pb2.ResolveVersionResponse(
            version=resolved.version,
            commit_time_us=resolved.commit_time_us,
            time_read_us=resolved.time_read_us,
            cut=resolved.cut,
            app_version=applied,
        )

    def ListVersions(self, request: read_pb2.ListVersionsRequest, context: Context) -> read_pb2.ListVersionsResponse:
        table, size, start = self._table(request.table_id), page_size(request.page_size), page_start(request.page_token)
        if start and not (start.isdecimal() and len(start) <= VERSION_DIGITS_MAX):
            raise invalid("PAGE_TOKEN_INVALID")
        below = int(start) if start else None
        page = self._calls.timeline.list_versions(table, filters.version_filter(request.filter), below, size)
        shown = list(fitting(map(answers.version, page.items)))
        counts = self._calls.planning.scan_counts
        if request.with_scans:
            for version in shown:
                version.whole_scans_since, version.partial_scans_since = counts.since(table.raw_id, version.version)
        following = page.below if len(shown) == len(page.items) else shown[-1].version
        return read_pb2.ListVersionsResponse(
            versions=shown,
            next_page_token=page_token(str(following)) if following is not None else "",
            scans_counted_from_us=counts.began_us if request.with_scans else 0,
        )

    def ListFiles(self, request: read_pb2.ListFilesRequest, context: Context) -> Iterator[bytes]:  # type: ignore[override]
        table = self._table(request.table_id)
        version = self._calls.reads.check_version(table, request.version if request.HasField("version") else None)
        shown = Reader.of(context).shown(self._calls.reads.list_files(table, version), table.meta)
        return plans.entry_answers(version, map(plans.listed, shown))

    def Watch(self, request: read_pb2.WatchRequest, context: Context) -> Iterator[bytes]:  # type: ignore[override]
        return self._watches.open(request, context)

    def PlanScan(self, request: read_pb2.PlanScanRequest, context: Context) -> Iterator[bytes]:  # type: ignore[override]
        return self._plan_scan(request, context)

    def ReadInlined(
        self, request: read_pb2.ReadInlinedRequest, context: Context
    ) -> Iterator[read_pb2.ReadInlinedResponse]:
        return plans.inlined(self._calls.reads, request)

    def PlanChanges(
        self, request: read_pb2.PlanChangesRequest, context: Context
    ) -> Iterator[read_pb2.PlanChangesResponse]:
        return plans.changes(self._calls.planning, self._calls.reads, request, Reader.of(context))


class MaintenanceServicer(
    TaskMethods,
    PeriodicTaskMethods,
    KeyCheckMethods,
    PurgeMethods,
    SweepMethods,
    WarehouseMethods,
    maintenance_pb2_grpc.MaintenanceServiceServicer,
):
    """Table services, and periodic tasks."""

    def __init__(self, calls: UseCases, gate: Authorizer) -> None:
        super().__init__(calls)
        self._gate = gate
