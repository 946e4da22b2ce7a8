"""Every call of the service, typed. Threads can share a client, which has one connection and one session stream.

Each call that changes something carries an id, which the caller can choose, and is repeated under it. Begin, register,
commit, append, renew and abort use the session stream, or unary calls if the service refuses it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import grpc

from metaservice.client import features
from metaservice.client.access import AccessCalls
from metaservice.client.admin import AdminCalls
from metaservice.client.branches import BranchCalls
from metaservice.client.calling import PAGE_SIZE, PART_BYTES, open_channel, principal_metadata, size_of
from metaservice.client.catalog import CatalogCalls
from metaservice.client.credentials import Address, Credentials, check_token, why_no_tls
from metaservice.client.epochs import expect_epoch
from metaservice.client.errors import (
    ConflictError,
    ErrorKind,
    MetaServiceError,
    build_error,
    decode_rpc_error,
    decode_status,
)
from metaservice.client.heartbeat import Heartbeat
from metaservice.client.maintenance import MaintenanceCalls
from metaservice.client.marks import MarkCalls
from metaservice.client.periodic_tasks import PeriodicTaskCalls
from metaservice.client.reads import ReadCalls
from metaservice.client.retries import Retries
from metaservice.client.session_calls import CHUNK_FILES, SessionCalls
from metaservice.client.tracing import Metadata
from metaservice.client.transaction import Transaction
from metaservice.shared.ids import uuid7
from protos.laketx.v1 import (
    access_pb2_grpc,
    admin_pb2_grpc,
    catalog_pb2,
    catalog_pb2_grpc,
    common_pb2,
    maintenance_pb2,
    maintenance_pb2_grpc,
    read_pb2_grpc,
    transaction_pb2_grpc,
)
from protos.laketx.v1 import transaction_pb2 as wire

if TYPE_CHECKING:
    from metaservice.client.tokens import Tokens

CALL_TIMEOUT_S: Final = 20.0
ELSEWHERE_S: Final = 5.0  # of one attempt, where another process may lead meanwhile
RETRY_BUDGET_S: Final = 60.0
MESSAGE_BYTES_MAX: Final = common_pb2.LIMIT_MESSAGE_BYTES
CONTACT_S: Final = 4.0  # for the first connection: a wrong address is reported soon
CONTACT_S_MIN: Final = 1.0
CONTACT_PAUSE_S: Final = 0.1
HEALTH: Final = "/grpc.health.v1.Health/Check"

BatchOutcome = common_pb2.Committed | ConflictError | MetaServiceError


class MetaClient(
    SessionCalls,
    CatalogCalls,
    BranchCalls,
    ReadCalls,
    MaintenanceCalls,
    PeriodicTaskCalls,
    MarkCalls,
    AdminCalls,
    AccessCalls,
):
    """A connection to MetaService.

    With `expected_epoch`, a service with another history (after a restore from a backup) refuses every call with
    HISTORY_CHANGED. Clients that keep versions, pins or cursors beyond a call should set it.
    """

    def __init__(
        self,
        address: str,
        *,
        principal: str = "",
        client_name: str = "",
        client_features: Sequence[str] = (),
        call_timeout_s: float = CALL_TIMEOUT_S,
        retry_budget_s: float = RETRY_BUDGET_S,
        use_session: bool = True,
        expected_epoch: str = "",
        revive: Callable[[], None] | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """Makes a client of `laketxs://host:port` (TLS), `laketx://host:port` or `unix:path`.

        Several processes of one service are `laketx://a:7070,b:7070`: the client goes to the one that leads.

        `revive` is called before a failed call is repeated: it may restart the service. `credentials`: by default those
        of the environment.
        """
        where = Address.of(address)
        shown = Credentials.from_environment() if credentials is None else credentials
        check_token(shown, where)
        self._principal = common_pb2.Principal(name=principal, client=client_name)
        self._named = (*principal_metadata(principal), *features.METADATA)
        self._tokens = tokens_of(shown, self._named) if shown.has_token else None
        self._client_features = [*features.WRITTEN, *client_features]
        self._ask_features = lambda: self.get_status().features
        self._is_alone = is_alone = len(where.targets) == 1
        self._timeout_s = call_timeout_s if is_alone else min(call_timeout_s, ELSEWHERE_S)
        self._retries = Retries(
            retry_budget_s,
            revive=revive,
            contact=self._contact,
            tokens=self._tokens,
        )
        self._closed = False
        self._greeting_s = CONTACT_S if is_alone else CONTACT_S_MIN
        channel = open_channel(
            where,
            shown,
            [
                ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
                ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.min_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 2_000 if revive is None else 200),
                # A watch must notice that the service is gone; where another process can lead, soon.
                ("grpc.keepalive_time_ms", 30_000 if is_alone else 6_000),
                ("grpc.keepalive_timeout_ms", 20_000 if is_alone else 3_000),
                ("grpc.use_local_subchannel_pool", 1),  # two clients of a process don't share a connection
            ],
        )
        self._address, self._credentials = where, shown
        self._is_reached = revive is not None  # who can restart the service does so when a call fails
        self._greet: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(HEALTH)
        self._contact_s = max(min(CONTACT_S, retry_budget_s), CONTACT_S_MIN)
        self._channel = expect_epoch(channel, expected_epoch) if expected_epoch else channel
        self._transactions = transaction_pb2_grpc.TransactionServiceStub(self._channel)
        self._catalog = catalog_pb2_grpc.CatalogServiceStub(self._channel)
        self._reads = read_pb2_grpc.ReadServiceStub(self._channel)
        self._maintenance = maintenance_pb2_grpc.MaintenanceServiceStub(self._channel)
        self._admin = admin_pb2_grpc.AdminServiceStub(self._channel)
        self._access = access_pb2_grpc.AccessServiceStub(self._channel)
        self._session = None
        self._session_lock = threading.Lock()
        self._no_session_until_s = 0.0 if use_session else float("inf")
        self._heartbeat = Heartbeat(lambda txn_id: self._retries.once(lambda: self._renew_once(txn_id)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection. Open transactions end with their leases."""
        self._closed = True
        self._heartbeat.stop()
        with self._session_lock:
            self._no_session_until_s = float("inf")
            session, self._session = self._session, None
        if session is not None:
            session.close()
        self._channel.close()

    def reach(self) -> None:
        """Raises UnavailableError if no service answers at the address. Every first call does this by itself."""
        self._retries.run(lambda: None)

    def _contact(self) -> None:
        """Checks the address before the first call. Later the client waits for an absent service within the budget."""
        if self._closed:
            raise build_error(ErrorKind.BLOCKED, "CONNECTION_CLOSED", "the connection was closed: open another one", {})
        until_s = time.monotonic() + self._contact_s
        while not (self._is_reached or self._closed):
            left_s = until_s - time.monotonic()
            try:
                self._greet(b"", timeout=max(min(left_s, self._greeting_s), 0.0), wait_for_ready=True)
            except ValueError:  # gRPC's word for a channel that was closed meanwhile
                if not self._closed:
                    raise
            except grpc.RpcError as error:
                if decode_rpc_error(error).kind is ErrorKind.UNAVAILABLE:
                    if left_s > CONTACT_PAUSE_S:  # a service that ends cuts the call off: its successor may come
                        time.sleep(CONTACT_PAUSE_S)
                        continue
                    raise self._unreachable() from error
            self._is_reached = True

    def _unreachable(self) -> MetaServiceError:
        facts = {"address": self._address.target}
        if message := why_no_tls(self._address, self._credentials):
            message = f"the service at {self._address} can't be used: {message}"
            return build_error(ErrorKind.UNAVAILABLE, "TLS_FAILED", message, facts)
        message = f"no service answers at {self._address}: does one run there, and is the address right?"
        return build_error(ErrorKind.UNAVAILABLE, "SERVER_UNREACHABLE", message, facts)

    # -------------------------------------------------------------------------------------------------- transactions

    def begin(
        self,
        tables: Iterable[wire.TableIntent],
        *,
        txn_id: str | None = None,
        commit_message: str = "",
        adopt_from: str = "",
        properties: Mapping[str, str] | None = None,
        task: maintenance_pb2.TaskClaim | None = None,
        at_once: bool = True,
        features: Sequence[str] = (),
    ) -> Transaction:
        """Begins a transaction and keeps it alive until it ends or is dropped; with `task` it works for a claim.

        With `at_once=False` the begin is sent with the first call, in one frame: a round trip less for a small blind
        change. Errors of the begin are raised then, and it reads the version of that moment. `features`: what this
        transaction can do beside what the client can.
        """
        begin = wire.BeginTransactionRequest(txn_id=txn_id or uuid7(), tables=tables)
        begin.principal.CopyFrom(self._principal)
        begin.client_features.extend([*self._client_features, *features])
        if commit_message:
            begin.commit_message = commit_message
        if adopt_from:
            begin.adopt_from = adopt_from
        if properties:
            begin.properties.update(properties)
        if task is not None:
            begin.task.CopyFrom(task)
        txn = Transaction(self, self._heartbeat, begin)
        if at_once or adopt_from:
            txn.begin()
        return txn

    def begin_now(self, begin: wire.BeginTransactionRequest) -> wire.BeginTransactionResponse:
        """Sends the begin of a transaction that waited for its first call."""
        request = wire.SessionRequest()
        request.calls.add().begin.CopyFrom(begin)
        return self._retries.run(lambda: self._session_call(request)).begin

    def register(
        self,
        txn_id: str,
        table_id: str,
        files: Sequence[common_pb2.DataFile],
        delete_sets: Sequence[common_pb2.DeleteSet] = (),
    ) -> wire.RegisterFilesResponse:
        """Adds staged files to an open transaction; many files are sent in a stream."""
        if len(files) + len(delete_sets) > CHUNK_FILES or size_of(files) + size_of(delete_sets) > PART_BYTES:
            return self._register_streamed(txn_id, table_id, files, delete_sets)
        request = wire.SessionRequest()
        register = request.calls.add().register
        register.txn_id = txn_id
        register.table_id = table_id
        register.files.extend(files)
        register.delete_sets.extend(delete_sets)
        return self._retries.run(lambda: self._session_call(request)).register

    def commit(
        self,
        txn_id: str,
        changes: Sequence[common_pb2.Change],
        queued: Sequence[wire.RegisterFilesRequest] = (),
        cursors: Sequence[wire.CursorMove] = (),
        begin: wire.BeginTransactionRequest | None = None,
        replacements: Sequence[catalog_pb2.Table] = (),
    ) -> wire.CommitTransactionResponse:
        """Commits and returns the answer; repeats until it arrives or the budget ends in CommitOutcomeUnknownError.

        The same frame first carries the waiting begin and the queued registrations, if any.
        """
        request = wire.SessionRequest()
        if begin is not None:
            request.calls.add().begin.CopyFrom(begin)
        for registration in queued:
            request.calls.add().register.CopyFrom(registration)
        commit = request.calls.add().commit
        commit.txn_id = txn_id
        commit.changes.extend(changes)
        commit.cursors.extend(cursors)
        commit.replacements.extend(replacements)
        return self._retries.run(lambda: self._session_call(request), decides=(txn_id,)).commit

    def abort(self, txn_id: str, reason: str = "") -> None:
        """Ends an open transaction; nothing of it becomes visible."""
        request = wire.SessionRequest()
        request.calls.add().abort.CopyFrom(wire.AbortTransactionRequest(txn_id=txn_id, reason=reason))
        self._retries.run(lambda: self._session_call(request))

    def renew(self, txn_id: str) -> wire.RenewTransactionResponse:
        """Renews a transaction; those that `begin` returned are renewed without it."""
        return self._retries.run(lambda: self._renew_once(txn_id))

    def append(
        self,
        table_id: str,
        files: Iterable[common_pb2.DataFile],
        *,
        txn_id: str | None = None,
        schema_version: int = 0,
        commit_message: str = "",
        app_versions: Sequence[common_pb2.AppVersion] = (),
        properties: Mapping[str, str] | None = None,
        unchanged_since: int | None = None,
    ) -> common_pb2.Committed:
        """A blind append in one call. Raises ConflictError if the schema changed.

        `unchanged_since`: refused with ROWS_CHANGED if rows changed after that version.
        """
        request = wire.SessionRequest()
        append = request.calls.add().append
        append.txn_id = txn_id or uuid7()
        append.table_id = table_id
        append.files.extend(files)
        append.principal.CopyFrom(self._principal)
        append.client_features.extend(self._client_features)
        if schema_version:
            append.schema_version = schema_version
        if commit_message:
            append.commit_message = commit_message
        append.app_versions.extend(app_versions)
        if properties:
            append.properties.update(properties)
        if unchanged_since is not None:
            append.unchanged_since = unchanged_since
        answer = self._retries.run(lambda: self._session_call(request), decides=(append.txn_id,)).append
        if answer.WhichOneof("outcome") == "conflict":
            raise ConflictError(answer.conflict)
        return answer.committed

    def commit_batch(self, appends: Sequence[wire.AppendRequest]) -> list[BatchOutcome]:
        """Independent appends, each with its own outcome; missing ids and principals are filled in."""
        request = wire.CommitBatchRequest(appends=appends)
        for append in request.appends:
            append.txn_id = append.txn_id or uuid7()
            if not append.HasField("principal"):
                append.principal.CopyFrom(self._principal)
            if not append.client_features:
                append.client_features.extend(self._client_features)
        if not request.appends:
            return []
        txn_ids = [append.txn_id for append in request.appends]
        answer = self._call(self._transactions.CommitBatch, request, decides=txn_ids)
        return [batch_outcome(item) for item in answer.items]

    def explain(self, txn_id: str, changes: Sequence[common_pb2.Change]) -> wire.ExplainTransactionResponse:
        """The answer that a commit of these changes would get now."""
        return self._call(
            self._transactions.ExplainTransaction,
            wire.ExplainTransactionRequest(txn_id=txn_id, changes=changes),
        )

    def get_transaction(self, txn_id: str) -> wire.Transaction:
        """A transaction's state and, once it has ended, its outcome."""
        answer = self._call(self._transactions.GetTransaction, wire.GetTransactionRequest(txn_id=txn_id))
        return answer.transaction

    def list_transactions(
        self,
        *,
        state: wire.TransactionState.ValueType = wire.TRANSACTION_STATE_UNSPECIFIED,
        table_id: str = "",
        page_size: int = PAGE_SIZE,
    ) -> Iterator[wire.Transaction]:
        """Transactions, newest first."""
        request = wire.ListTransactionsRequest(page_size=page_size, state=state, table_id=table_id)
        for page in self._pages(self._transactions.ListTransactions, request):
            yield from page.transactions

    def ping(self, payload: bytes = b"") -> bytes:
        """A ping over the session stream, to measure the cost of a call."""
        request = wire.SessionRequest()
        request.calls.add().ping.payload = payload
        return self._retries.run(lambda: self._session_call(request)).ping.payload


def batch_outcome(item: wire.BatchItem) -> BatchOutcome:
    match item.WhichOneof("outcome"):
        case "committed":
            return item.committed
        case "conflict":
            return ConflictError(item.conflict)
        case _:
            return decode_status(item.error)


def tokens_of(credentials: Credentials, others: Metadata) -> Tokens:
    from metaservice.client.tokens import Tokens  # noqa: PLC0415 - slow, and not needed without a token

    return Tokens(credentials, others)
