"""One function per call that a decider's job answers: it takes the request and returns a job whose result is the wire's
answer.

The unary methods and the session stream share them. Jobs run on the decider's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NoReturn, TypeVar

from metaservice.core import limits
from metaservice.core.commit.transaction import Txn, TxnState
from metaservice.core.errors import MetaError, invalid
from metaservice.core.table.meta import TableMeta, replaced_with_assigned_ids
from metaservice.core.table.model import Change, Conflict, Entry, Operation, TableCommit
from metaservice.rpc.convert import answers, wire, wire_catalog, wire_changes, wire_entries, wire_tasks
from metaservice.service.branch.branches import Branches
from metaservice.service.branch.merging import Merging
from metaservice.service.branch.refreshing import Refreshing
from metaservice.service.commit import judging
from metaservice.service.commit.importing import Imports
from metaservice.service.commit.requests import Append, Begin, CommitRequest, Counts
from metaservice.service.commit.transactions import Transactions
from metaservice.service.compaction.compactions import Compactions
from metaservice.service.compaction.maintenance import Maintenance
from metaservice.service.decider.decider import ContinueNextGroup, Decider
from metaservice.service.operate.access import Access
from metaservice.service.operate.warehouse import Warehouses
from metaservice.service.read.planning import Planning
from metaservice.service.read.reads import Reads
from metaservice.service.read.timeline import Timeline
from metaservice.service.retention.marks import Marks
from metaservice.service.retention.pins import Pins
from metaservice.service.retention.purge import PurgeList
from metaservice.service.retention.sweeping import Sweeping
from metaservice.service.table.catalog import Catalog
from metaservice.service.table.commit_notifier import CommitNotifier
from metaservice.service.table.periodic_tasks import PeriodicTasks
from protos.laketx.v1 import common_pb2, transaction_pb2

T = TypeVar("T")
Beginning = Callable[[], transaction_pb2.BeginTransactionResponse]
Committing = Callable[[], transaction_pb2.CommitTransactionResponse]
Appending = Callable[[], list[Txn | MetaError]]
BatchAnswer = transaction_pb2.CommitBatchResponse
# Bytes of a request that the decider converts itself, which takes about 5 ms. A caller's thread would keep the
# interpreter from the decider for as long (`sys.getswitchinterval`), so nobody would wait less.
CONVERTED_IN_TURN_MAX = 32_768


@dataclass(frozen=True, slots=True)
class UseCases:
    """The use cases, and the calls that jobs answer."""

    decider: Decider
    transactions: Transactions
    catalog: Catalog
    reads: Reads
    pins: Pins
    purge: PurgeList
    timeline: Timeline
    bells: CommitNotifier
    planning: Planning
    marks: Marks
    sweeping: Sweeping
    maintenance: Maintenance
    compactions: Compactions
    imports: Imports
    warehouses: Warehouses
    access: Access
    branches: Branches
    merging: Merging
    refreshing: Refreshing
    periodic: PeriodicTasks

    def meta(self, table_id: str) -> TableMeta:
        return self.decider.state.get_table(wire.table_id(table_id)).meta

    def _metas(self, table_ids: list[str]) -> dict[str, TableMeta]:
        return {table_id: self.meta(table_id) for table_id in table_ids}

    def begin(self, request: transaction_pb2.BeginTransactionRequest) -> transaction_pb2.BeginTransactionResponse:
        return self._begin(
            request, wire_changes.begin(request, self._metas([table.table_id for table in request.tables]))
        )

    def prepared_begin(self, request: transaction_pb2.BeginTransactionRequest) -> Beginning:
        """Any thread: converts a large request before the decider's turn."""
        if request.ByteSize() <= CONVERTED_IN_TURN_MAX:
            return partial(self.begin, request)
        try:
            metas = self._metas([table.table_id for table in request.tables])
            parsed = wire_changes.begin(request, metas)
            for intent in parsed.tables:
                judging.prepare(intent.reads, self.meta(intent.table_id))
        except MetaError as refusal:
            return partial(_refuse, refusal)
        return lambda: self._begin(request, parsed) if self._are_current(metas) else self.begin(request)

    def _are_current(self, metas: Mapping[str, TableMeta]) -> bool:
        tables = [self.decider.state.tables.get(meta.table_id) for meta in metas.values()]
        return all(table is not None and table.meta is meta for table, meta in zip(tables, metas.values(), strict=True))

    def _begin(
        self, request: transaction_pb2.BeginTransactionRequest, parsed: Begin
    ) -> transaction_pb2.BeginTransactionResponse:
        if request.HasField("task"):
            task_id, fence = wire_tasks.task_id(request.task.task_id), wire.version(request.task.fence, "fence")
            txn = self.maintenance.begin(parsed, task_id, fence)
        else:
            txn = self.transactions.begin(parsed)
        return answers.begun(txn, self.transactions.lease_ms, self.transactions.doomed(txn))

    def register(self, request: transaction_pb2.RegisterFilesRequest) -> transaction_pb2.RegisterFilesResponse:
        return self.register_entries(request.txn_id, request.table_id, self.entries(request))

    def entries(self, request: transaction_pb2.RegisterFilesRequest) -> list[Entry]:
        """Any thread: checks and converts entries to register."""
        txn = self.decider.state.get_txn(wire.txn_id(request.txn_id))
        table_id = wire.table_id(request.table_id)
        intent = txn.tables.get(table_id) if txn.state is TxnState.OPEN else None
        operation = intent.operation if intent is not None else Operation.CUSTOM
        meta = self.meta(table_id)
        entries = wire_entries.entries(request.files, request.delete_sets, meta, request.txn_id, operation)
        self.imports.check(entries)
        return entries

    def register_entries(
        self, txn_id: str, table_id: str, entries: list[Entry]
    ) -> transaction_pb2.RegisterFilesResponse:
        files, rows = self.transactions.register(txn_id, wire.table_id(table_id), entries)
        return transaction_pb2.RegisterFilesResponse(registered_files=files, registered_rows=rows)

    def commit(self, request: transaction_pb2.CommitTransactionRequest) -> transaction_pb2.CommitTransactionResponse:
        return self._decide(self._commit(request))

    def prepared_commit(self, request: transaction_pb2.CommitTransactionRequest) -> Committing:
        """Any thread: converts a large request before the decider's turn."""
        is_open = request.txn_id in self.decider.state.open
        if request.ByteSize() <= CONVERTED_IN_TURN_MAX or not is_open:
            return partial(self.commit, request)
        try:
            metas = self._metas([change.table_id for change in request.changes])
            parsed = self._commit(request)
            for change in parsed.changes:
                judging.prepare(change.reads, self.meta(change.table_id))
        except MetaError as refusal:
            return partial(_refuse, refusal)
        return lambda: self._decide(parsed) if self._are_current(metas) else self.commit(request)

    def _decide(self, parsed: CommitRequest) -> transaction_pb2.CommitTransactionResponse:
        """Decides; a parsed request is kept when judging takes more than one turn."""
        try:
            return answers.commit_answer(self.maintenance.commit(parsed))
        except ContinueNextGroup:
            raise ContinueNextGroup(partial(self._decide, parsed)) from None

    def explain(self, request: transaction_pb2.ExplainTransactionRequest) -> transaction_pb2.ExplainTransactionResponse:
        txn = self.decider.state.get_txn(wire.txn_id(request.txn_id))
        changes, counts = self._changes(txn, () if txn.commit_digest else request.changes)  # one that ended is refused
        return self._explain(CommitRequest(txn.txn_id, changes, counts, b""))

    def _explain(self, parsed: CommitRequest) -> transaction_pb2.ExplainTransactionResponse:
        try:
            return _explained(self.transactions.explain(parsed))
        except ContinueNextGroup:
            raise ContinueNextGroup(partial(self._explain, parsed)) from None

    def _commit(self, request: transaction_pb2.CommitTransactionRequest) -> CommitRequest:
        txn, same = self.decider.state.get_txn(wire.txn_id(request.txn_id)), wire.digest(request)
        if txn.commit_digest == same:
            return CommitRequest(txn.txn_id, (), (), same)  # a repeat, perhaps about a table that is gone by now
        changes, counts = self._changes(txn, request.changes, self._replacements(request))
        moves = wire_changes.cursor_moves(request.cursors) if request.cursors else ()
        return CommitRequest(txn.txn_id, changes, counts, same, moves)

    def _replacements(self, request: transaction_pb2.CommitTransactionRequest) -> Mapping[str, TableMeta]:
        """Return the metadata of tables that the commit redefines."""
        changed = {change.table_id for change in request.changes}
        replaced: dict[str, TableMeta] = {}
        for replacement in request.replacements:
            if replacement.table_id not in changed or replacement.table_id in replaced:
                raise invalid("CHANGES_MISMATCH", "a replacement belongs to one change: send one for its table")
            table = self.decider.state.get_table(wire.table_id(replacement.table_id))
            definition = wire_catalog.definition(replacement, replacement.table_id)
            given = self.decider.state.column_ids.last(table.raw_id, table.meta)
            replaced[replacement.table_id] = replaced_with_assigned_ids(
                table.meta, definition, replacement.last_column_id, given
            )
            replaced[replacement.table_id].check_size()
        return replaced

    def _changes(
        self,
        txn: Txn,
        messages: Sequence[common_pb2.Change],
        replacements: Mapping[str, TableMeta] = wire_changes.NO_REPLACEMENTS,
    ) -> tuple[tuple[Change, ...], Counts]:
        operations = {table.table_id: table.operation for table in txn.tables.values()}
        metas = self._metas([message.table_id for message in messages])
        changes, counts = wire_changes.changes(messages, metas, operations, txn.txn_id, replacements)
        for change in changes:
            if change.adds:
                self.imports.check(change.adds)
        return changes, counts

    def prepared_append(self, request: transaction_pb2.AppendRequest) -> Callable[[], transaction_pb2.AppendResponse]:
        """Any thread: converts a large request before the decider's turn."""
        run = self.prepared_appends([request], request.ByteSize())
        return lambda: _append_answer(run())

    def prepared_batch(self, request: transaction_pb2.CommitBatchRequest) -> Callable[[], BatchAnswer]:
        """Likewise."""
        if len(request.appends) > limits.APPENDS_PER_BATCH_MAX:
            raise invalid("BATCH_TOO_LARGE", count=len(request.appends), most=limits.APPENDS_PER_BATCH_MAX)
        run = self.prepared_appends(request.appends, request.ByteSize())
        return lambda: answers.batch_answer(run())

    def prepared_appends(self, requests: Sequence[transaction_pb2.AppendRequest], size: int) -> Appending:
        """Likewise, of the appends of a frame or a batch of so many bytes."""
        if size <= CONVERTED_IN_TURN_MAX:
            return partial(self.append_many, requests)
        tables = self.decider.state.tables
        converted = []
        for request in requests:
            table = tables.get(request.table_id)
            meta = None if table is None else table.meta
            converted.append((request, meta, self._convert(request)))
        return lambda: self._decide_appends(requests, self._current(converted))

    def append_many(self, requests: Sequence[transaction_pb2.AppendRequest]) -> list[Txn | MetaError]:
        """On the decider's thread, conversion too."""
        return self._decide_appends(requests, map(self._convert, requests))

    def _convert(self, request: transaction_pb2.AppendRequest) -> Append | MetaError:
        try:
            parsed = wire_changes.append(request, self.meta(request.table_id))
            self.imports.check(parsed.entries)
        except MetaError as refusal:
            return refusal
        return parsed

    def _current(
        self, converted: Iterable[tuple[transaction_pb2.AppendRequest, TableMeta | None, Append | MetaError]]
    ) -> Iterator[Append | MetaError]:
        """What was converted before, unless the table's metadata is another than before that."""
        tables = self.decider.state.tables
        for request, meta, before in converted:
            table = tables.get(request.table_id)
            yield before if table is not None and table.meta is meta else self._convert(request)

    def _decide_appends(
        self, requests: Iterable[transaction_pb2.AppendRequest], given: Iterable[Append | MetaError]
    ) -> list[Txn | MetaError]:
        converted = list(given)
        decided = iter(
            self.transactions.appends.append_many([append for append in converted if not isinstance(append, MetaError)])
        )
        return [
            self._appended(request) or append if isinstance(append, MetaError) else next(decided)
            for request, append in zip(requests, converted, strict=True)
        ]

    def _appended(self, request: transaction_pb2.AppendRequest) -> Txn | None:
        """The append that is asked for again, perhaps about a table that is gone by now."""
        txn = self.decider.state.find_txn(request.txn_id) if wire.UUID7.match(request.txn_id) else None
        return txn if txn is not None and txn.begin_digest == wire.digest(request) else None

    def abort(self, request: transaction_pb2.AbortTransactionRequest) -> transaction_pb2.AbortTransactionResponse:
        txn = self.decider.state.get_txn(wire.txn_id(request.txn_id))  # a hidden one is refused before, in these words
        self.transactions.abort(txn.txn_id, wire.text(request.reason, "reason"))
        return transaction_pb2.AbortTransactionResponse()

    def renew(self, request: transaction_pb2.RenewTransactionRequest) -> transaction_pb2.RenewTransactionResponse:
        renewed = self.transactions.renew(wire.txn_id(request.txn_id))
        doomed = answers.conflict(renewed.doomed) if renewed.doomed is not None else None
        return transaction_pb2.RenewTransactionResponse(lease_ms=renewed.lease_ms, doomed=doomed)

    def ping(self, request: transaction_pb2.PingRequest) -> transaction_pb2.PingResponse:
        if len(request.payload) > limits.PING_BYTES_MAX:
            raise invalid("PAYLOAD_TOO_LARGE", bytes=len(request.payload), most=limits.PING_BYTES_MAX)
        return transaction_pb2.PingResponse(payload=request.payload)

    def get_transaction(self, request: transaction_pb2.GetTransactionRequest) -> transaction_pb2.GetTransactionResponse:
        txn = self.decider.state.get_txn(wire.txn_id(request.txn_id))
        message = answers.transaction(txn)
        if txn.state is TxnState.OPEN:
            message.lease_left_ms = self.transactions.lease_left_ms(txn)
            doomed = self.transactions.doomed(txn)
            if doomed is not None:
                message.doomed.CopyFrom(answers.conflict(doomed))
        return transaction_pb2.GetTransactionResponse(transaction=message)


class Servicer:
    """The methods of a service, on top of the calls."""

    def __init__(self, calls: UseCases) -> None:
        self._calls = calls

    def _ask(self, job: Callable[[], T]) -> T:
        return self._calls.decider.call(job)

    def _tagged_version(self, table_id: str, name: str) -> int:
        name = wire.mark_name(name)
        return self._ask(lambda: self._calls.marks.tagged_version(table_id, name))


def _append_answer(results: Sequence[Txn | MetaError]) -> transaction_pb2.AppendResponse:
    (result,) = results
    if isinstance(result, MetaError):
        raise result
    return answers.append_answer(result)


def _refuse(refusal: MetaError) -> NoReturn:
    raise refusal


def _explained(result: Conflict | list[TableCommit]) -> transaction_pb2.ExplainTransactionResponse:
    if isinstance(result, Conflict):
        return transaction_pb2.ExplainTransactionResponse(conflict=answers.conflict(result))
    return transaction_pb2.ExplainTransactionResponse(committed=answers.would_commit(result))
