"""A transaction for its writer: begun, given files, and ended once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Protocol, Self

from metaservice.client.calling import PART_BYTES, size_of
from metaservice.client.errors import CommitOutcomeUnknownError, ConflictError, LakeTXError, MetaServiceError
from metaservice.client.heartbeat import Heartbeat
from protos.laketx.v1 import catalog_pb2, common_pb2
from protos.laketx.v1 import transaction_pb2 as wire

QUEUE_FILES_MAX: Final = 500


class TransactionCalls(Protocol):
    """The client's calls that a transaction uses."""

    def begin_now(self, begin: wire.BeginTransactionRequest) -> wire.BeginTransactionResponse: ...
    def register(
        self,
        txn_id: str,
        table_id: str,
        files: Sequence[common_pb2.DataFile],
        delete_sets: Sequence[common_pb2.DeleteSet] = (),
    ) -> wire.RegisterFilesResponse: ...
    def commit(
        self,
        txn_id: str,
        changes: Sequence[common_pb2.Change],
        queued: Sequence[wire.RegisterFilesRequest] = (),
        cursors: Sequence[wire.CursorMove] = (),
        begin: wire.BeginTransactionRequest | None = None,
        replacements: Sequence[catalog_pb2.Table] = (),
    ) -> wire.CommitTransactionResponse: ...
    def abort(self, txn_id: str, reason: str = "") -> None: ...
    def explain(self, txn_id: str, changes: Sequence[common_pb2.Change]) -> wire.ExplainTransactionResponse: ...


class _Registered:
    """The files registered for one table: a path counts once; a delete set counts as a file, but not its rows."""

    __slots__ = ("paths", "rows")

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.rows = 0


class Transaction:
    """Made by `MetaClient.begin`. As a context manager it aborts if it was not committed."""

    __slots__ = (
        "__weakref__",
        "_begin",
        "_calls",
        "_ended",
        "_heartbeat",
        "_is_sent",
        "_queued",
        "_queued_bytes",
        "_registered",
        "_tables",
        "doomed",
        "lease_s",
        "lost",
        "renew_at_s",
        "txn_id",
    )

    def __init__(
        self,
        calls: TransactionCalls,
        heartbeat: Heartbeat,
        begin: wire.BeginTransactionRequest,
    ) -> None:
        self.txn_id = begin.txn_id
        self.lease_s = self.renew_at_s = 0.0
        # Set by the begin or the heartbeat: what makes a commit pointless; why the transaction is no more.
        self.doomed: common_pb2.Conflict | None = None
        self.lost: MetaServiceError | None = None
        self._begin: wire.BeginTransactionRequest | None = begin  # until it was answered
        self._is_sent = False
        self._tables: dict[str, wire.BegunTable] = {}
        self._calls = calls
        self._heartbeat = heartbeat
        self._registered: dict[str, _Registered] = {}
        self._queued: list[wire.RegisterFilesRequest] = []
        self._queued_bytes = 0
        self._ended = False

    def begin(self) -> None:
        """Sends a begin that was put off; other calls do so when they need it."""
        if self._begin is None or self._ended:
            return
        self._is_sent = True
        begun = self._calls.begin_now(self._begin)
        self._begin = None
        self._tables = {table.table_id: table for table in begun.tables}
        self.lease_s = begun.lease_ms / 1_000
        self._note_doomed(begun)
        self._heartbeat.add(self)

    @property
    def tables(self) -> Mapping[str, wire.BegunTable]:
        """The service's answer for each table at the begin: its read version, its schema.

        Empty if the transaction began together with its commit.
        """
        self.begin()
        return self._tables

    def register(
        self,
        table_id: str,
        files: Iterable[common_pb2.DataFile],
        delete_sets: Iterable[common_pb2.DeleteSet] = (),
    ) -> wire.RegisterFilesResponse:
        """Registers files, in any number of calls; a path registered twice counts once."""
        files = list(files)
        delete_sets = list(delete_sets)
        self._send_queued()
        answer = self._calls.register(self.txn_id, table_id, files, delete_sets)
        self._count(table_id, files, delete_sets)
        return answer

    def queue(
        self,
        table_id: str,
        files: Iterable[common_pb2.DataFile],
        delete_sets: Iterable[common_pb2.DeleteSet] = (),
    ) -> None:
        """Registers with the next call, in its frame: a round trip less for a small transaction.

        That call reports errors of the files.
        """
        files, delete_sets = list(files), list(delete_sets)
        count, size = len(files) + len(delete_sets), size_of(files) + size_of(delete_sets)
        if count > QUEUE_FILES_MAX or size > PART_BYTES:
            self.register(table_id, files, delete_sets)
            return
        queued = sum(len(request.files) + len(request.delete_sets) for request in self._queued)
        if queued + count > QUEUE_FILES_MAX or self._queued_bytes + size > PART_BYTES:
            self._send_queued()
        self._queued_bytes += size
        self._queued.append(
            wire.RegisterFilesRequest(txn_id=self.txn_id, table_id=table_id, files=files, delete_sets=delete_sets)
        )
        self._count(table_id, files, delete_sets)

    def _send_queued(self) -> None:
        self.begin()
        while self._queued:
            request = self._queued[0]
            self._calls.register(self.txn_id, request.table_id, request.files, request.delete_sets)
            del self._queued[0]
        self._queued_bytes = 0

    def _count(
        self, table_id: str, files: Sequence[common_pb2.DataFile], delete_sets: Sequence[common_pb2.DeleteSet]
    ) -> None:
        registered = self._registered.setdefault(table_id, _Registered())
        for file in files:
            if file.path not in registered.paths:
                registered.paths.add(file.path)
                registered.rows += file.rows
        registered.paths.update(delete_set.path for delete_set in delete_sets)

    def commit(
        self,
        changes: Iterable[common_pb2.Change],
        cursors: Sequence[wire.CursorMove] = (),
        replacements: Sequence[catalog_pb2.Table] = (),
    ) -> common_pb2.Committed:
        """Commits, with the number of files that the service must have registered. Raises ConflictError after a lost
        race.

        The cursors advance with the commit, or not at all. `replacements`: new definitions of overwritten tables.
        """
        self._is_sent = True
        try:
            answer = self._calls.commit(
                self.txn_id, self._counted(changes), self._queued, cursors, self._begin, replacements
            )
        except CommitOutcomeUnknownError:
            self._end()  # nor may it be aborted: it may have committed
            raise
        self._end()
        if answer.WhichOneof("outcome") == "conflict":
            raise ConflictError(answer.conflict)
        return answer.committed

    def explain(self, changes: Iterable[common_pb2.Change]) -> wire.ExplainTransactionResponse:
        """The answer that a commit would get now."""
        self._send_queued()
        return self._calls.explain(self.txn_id, self._counted(changes))

    def abort(self, reason: str = "") -> None:
        """Aborts the transaction; none of its changes becomes visible."""
        self._end()
        if self._is_sent:
            self._calls.abort(self.txn_id, reason)

    def renewed(self, answer: wire.RenewTransactionResponse) -> None:
        """Called by the client after each heartbeat."""
        if answer.lease_ms:
            self.lease_s = answer.lease_ms / 1_000
        self._note_doomed(answer)

    def _note_doomed(self, answer: wire.BeginTransactionResponse | wire.RenewTransactionResponse) -> None:
        if answer.HasField("doomed"):
            self.doomed = answer.doomed

    def lease_lost(self, error: MetaServiceError) -> None:
        """Called by the client when a heartbeat was refused."""
        self.lost = error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._ended:
            return
        try:
            self.abort("left without a commit" if error is None else f"left by {type(error).__name__}")
        except LakeTXError:
            # Its lease ends it anyway, and the caller's own error says more.
            return

    def _end(self) -> None:
        self._ended = True
        self._heartbeat.remove(self.txn_id)

    def _counted(self, changes: Iterable[common_pb2.Change]) -> list[common_pb2.Change]:
        if not self._registered:
            return list(changes)
        return [self._with_counts(change) for change in changes]

    def _with_counts(self, change: common_pb2.Change) -> common_pb2.Change:
        registered = self._registered.get(change.table_id)
        begun = self._tables.get(change.table_id)
        if registered is None or change.HasField("registered_files") or (begun is not None and begun.adopted_files):
            return change
        counted = common_pb2.Change()
        counted.CopyFrom(change)
        counted.registered_files = len(registered.paths)
        counted.registered_rows = registered.rows
        return counted
