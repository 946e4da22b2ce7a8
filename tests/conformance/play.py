"""Plays a case over gRPC: the table, its files, own begins, the winners commit, own commits; then it compares.

Every staged path is `<transaction id>/<name>`, so a name that recurs in a case stands for another file each time: own
names the files that were live when it began, a winner those live when it begins.
"""

import itertools
import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import grpc
from pyroaring import BitMap64

from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2, transaction_pb2
from protos.laketx.v1.catalog_pb2_grpc import CatalogServiceStub
from protos.laketx.v1.read_pb2_grpc import ReadServiceStub
from protos.laketx.v1.transaction_pb2_grpc import TransactionServiceStub
from tests.conformance.cases import (
    COMMITTED,
    CONFLICT,
    ROW_LEVEL,
    Action,
    ActionCase,
    Add,
    BadCaseError,
    Case,
    ChangeMetadata,
    ChangeProtocol,
    PairCase,
    PairFile,
    PairJob,
    PartitionText,
    ReadAppId,
    ReadPartitions,
    ReadWhere,
    Remove,
    Winner,
    WriteAppVersion,
)
from tests.conformance.sql import SqlError, parse_where

CALL_TIMEOUT_S = 30.0
ROWS = 10
BYTES = 1000
FILE_BYTES_TARGET = 64 * 1024 * 1024
INT_MAX = 2**31 - 1
PRINCIPAL = common_pb2.Principal(name="conformance", client="conformance")

KINDS = {"base": common_pb2.FILE_KIND_BASE, "delta": common_pb2.FILE_KIND_DELTA}
OPERATIONS = {
    "INSERT_OVERWRITE": common_pb2.OPERATION_OVERWRITE,
    "INSERT_INTO": common_pb2.OPERATION_INSERT,
    "UPDATE_DELETE": common_pb2.OPERATION_UPDATE,
    "MINOR_COMPACT": common_pb2.OPERATION_MINOR_COMPACT,
    "MAJOR_COMPACT": common_pb2.OPERATION_MAJOR_COMPACT,
}
RULES = {
    common_pb2.CONFLICT_RULE_OUTCOME_TABLE: "OutcomeTable",
    common_pb2.CONFLICT_RULE_LINEAGE: "Lineage",
    common_pb2.CONFLICT_RULE_PROTOCOL_CHANGED: "ProtocolChanged",
    common_pb2.CONFLICT_RULE_METADATA_CHANGED: "MetadataChanged",
    common_pb2.CONFLICT_RULE_CONCURRENT_TRANSACTION: "ConcurrentTransaction",
    common_pb2.CONFLICT_RULE_CONCURRENT_APPEND: "ConcurrentAppend",
    common_pb2.CONFLICT_RULE_CONCURRENT_DELETE_READ: "ConcurrentDeleteRead",
    common_pb2.CONFLICT_RULE_CONCURRENT_DELETE_DELETE: "ConcurrentDeleteDelete",
    common_pb2.CONFLICT_RULE_CONCURRENT_ROW_CHANGE: "ConcurrentRowChange",
}
READ_TRUE = common_pb2.Read(predicate=common_pb2.Predicate(literal=True))


class LostError(Exception):
    """A transaction that never conflicts by the case's own word lost."""


@dataclass(frozen=True)
class OpenTxn:
    """A transaction on the case's table that has begun."""

    txn_id: str
    table_id: str

    def path(self, name: str) -> str:
        return f"{self.txn_id}/{name}"


class Player:
    """Plays cases, each on a table of its own."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._wire = Wire(channel)
        self._numbers = itertools.count(1)

    def play(self, case: Case) -> str | None:
        """What went otherwise than the case says; None where nothing did."""
        name = f"case_{next(self._numbers)}"
        try:
            if isinstance(case, PairCase):
                return PairPlay(self._wire, case, name).play()
            return ActionPlay(self._wire, case, name).play()
        except grpc.RpcError as error:
            return f"expected {case.expect}, was refused: {describe(error)}"
        except (BadCaseError, LostError, SqlError) as error:
            return str(error)


class Wire:
    """The calls that playing takes."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._catalog = CatalogServiceStub(channel)
        self._transactions = TransactionServiceStub(channel)
        self._reads = ReadServiceStub(channel)

    def create(self, table: catalog_pb2.Table) -> str:
        request = catalog_pb2.CreateTableRequest(request_id=new_uuid7(), table=table, principal=PRINCIPAL)
        return self._catalog.CreateTable(request, timeout=CALL_TIMEOUT_S).table.table_id

    def begin(
        self, table_id: str, operation: common_pb2.Operation.ValueType, client_features: Sequence[str] = ()
    ) -> OpenTxn:
        request = transaction_pb2.BeginTransactionRequest(
            txn_id=new_uuid7(),
            tables=[transaction_pb2.TableIntent(table_id=table_id, operation=operation)],
            principal=PRINCIPAL,
            client_features=client_features,
        )
        self._transactions.BeginTransaction(request, timeout=CALL_TIMEOUT_S)
        return OpenTxn(request.txn_id, table_id)

    def commit(self, txn: OpenTxn, change: common_pb2.Change) -> transaction_pb2.CommitTransactionResponse:
        request = transaction_pb2.CommitTransactionRequest(txn_id=txn.txn_id, changes=[change])
        return self._transactions.CommitTransaction(request, timeout=CALL_TIMEOUT_S)

    def commit_unopposed(self, txn: OpenTxn, change: common_pb2.Change, what: str) -> None:
        answer = self.commit(txn, change)
        if answer.WhichOneof("outcome") != "committed":
            raise LostError(f"{what} must commit, was {outcome_of(answer)}: {answer.conflict.message}")

    def list_files(self, table_id: str) -> list[common_pb2.DataFile]:
        answers = self._reads.ListFiles(read_pb2.ListFilesRequest(table_id=table_id), timeout=CALL_TIMEOUT_S)
        entries = [entry for answer in answers for entry in answer.entries]
        return [entry.file for entry in entries if entry.WhichOneof("entry") == "file"]


class PairPlay:
    """One case of operation classes, on a primary-key table with one bucket."""

    def __init__(self, wire: Wire, case: PairCase, name: str) -> None:
        self._wire = wire
        self._case = case
        self._types = infer_types(pair_values(case), case.partition_by)
        self._names: dict[str, tuple[str, str]] = {}  # path -> (partition, name)
        self._paths: dict[tuple[str, str], str] = {}  # the newest committed path of a name
        self._table_id = wire.create(self._table(name))

    def play(self) -> str | None:
        for file in self._case.files:
            self._put(file)
        own = self._wire.begin(self._table_id, OPERATIONS[self._case.own.op])
        change = self._change(own, self._case.own)
        for number, job in enumerate(self._case.winners, start=1):
            txn = self._wire.begin(self._table_id, OPERATIONS[job.op])
            self._wire.commit_unopposed(txn, self._change(txn, job), f"winner {number}")
            self._keep(txn, job.adds)
        answer = self._wire.commit(own, change)
        outcome = outcome_of(answer)
        if self._case.expect not in (outcome, CONFLICT if outcome != COMMITTED else COMMITTED):
            return f"expected {self._case.expect}, was {outcome} {answer.conflict.message}".rstrip()
        return self._compare_live()

    def _table(self, name: str) -> catalog_pb2.Table:
        key = catalog_pb2.Column(name="id", type="bigint", nullable=False)
        return catalog_pb2.Table(
            name=name,
            columns=[key, *columns_of(self._types)],
            partition_columns=self._case.partition_by,
            primary_key=["id"],
            buckets=1,
            profile=self._case.profile,
            properties={"key.scope": "partition"},
        )

    def _put(self, file: PairFile) -> None:
        op = "INSERT_OVERWRITE" if file.kind == "base" else "INSERT_INTO"
        job = PairJob(op, (file.partition,), (file,), ())
        txn = self._wire.begin(self._table_id, OPERATIONS[op])
        self._wire.commit_unopposed(txn, self._change(txn, job), f"the file {file.file}")
        self._keep(txn, job.adds)

    def _keep(self, txn: OpenTxn, adds: Iterable[PairFile]) -> None:
        self._paths.update({(file.partition, file.file): txn.path(file.file) for file in adds})

    def _change(self, txn: OpenTxn, job: PairJob) -> common_pb2.Change:
        self._names.update({txn.path(file.file): (file.partition, file.file) for file in job.adds})
        change = common_pb2.Change(table_id=self._table_id, files=[self._file(txn, file) for file in job.adds])
        partitions = [self._partition(each) for each in job.partitions]
        if job.op == "INSERT_OVERWRITE":
            change.scope.named.partitions.extend(partitions)
        elif job.op == "UPDATE_DELETE":
            change.reads.append(common_pb2.Read(partitions=partitions))
        elif job.op in {"MINOR_COMPACT", "MAJOR_COMPACT"}:
            change.groups.extend(self._groups(txn, job))
        return change

    def _groups(self, txn: OpenTxn, job: PairJob) -> list[common_pb2.CompactionGroup]:
        written = [file.partition for file in job.adds] + [partition for partition, _ in job.replaces]
        return [
            common_pb2.CompactionGroup(
                partition=self._partition(partition),
                inputs=[self._path(each, file) for each, file in job.replaces if each == partition],
                outputs=[txn.path(file.file) for file in job.adds if file.partition == partition],
            )
            for partition in dict.fromkeys(written)
        ]

    def _path(self, partition: str, file: str) -> str:
        if (partition, file) not in self._paths:
            raise BadCaseError(f"a compaction reads {file!r} in {partition!r}, which isn't there")
        return self._paths[partition, file]

    def _file(self, txn: OpenTxn, file: PairFile) -> common_pb2.DataFile:
        return common_pb2.DataFile(
            path=txn.path(file.file),
            partition=self._partition(file.partition),
            kind=KINDS[file.kind],
            rows=ROWS,
            bytes=BYTES,
        )

    def _partition(self, text: str) -> common_pb2.Partition:
        return partition_of(values_of(text), self._types)

    def _compare_live(self) -> str | None:
        if self._case.expect_live is None:
            return None
        live: dict[str, list[str]] = {}
        for file in self._wire.list_files(self._table_id):
            partition, name = self._names.get(file.path, ("?", file.path))
            live.setdefault(partition, []).append(name)
        for partition in sorted(live.keys() | self._case.expect_live.keys()):
            found, expected = sorted(live.get(partition, [])), sorted(self._case.expect_live.get(partition, ()))
            if found != expected:
                where = f" in {partition}" if partition else ""
                return f"expected live{where}: {', '.join(expected)}; are: {', '.join(found)}"
        return None


@dataclass(frozen=True)
class LiveFile:
    path: str
    partition: common_pb2.Partition


class ActionPlay:
    """One case of actions, on an append table, by transactions of operation CUSTOM.

    Under row_level, which knows none, a file that is removed is one whose rows are all hidden.
    """

    def __init__(self, wire: Wire, case: ActionCase, name: str) -> None:
        self._wire = wire
        self._case = case
        self._types = infer_types(action_values(case), case.partition_by)
        self._features = [f"test_feature_{number}" for number in range(1, count_protocol_changes(case) + 1)]
        self._next_feature = iter(self._features)
        self._next_target = itertools.count(FILE_BYTES_TARGET)
        self._next_row = itertools.cycle(range(ROWS))
        self._files: dict[str, LiveFile] = {}
        self._first_row_ids: dict[str, int] = {}
        self._table_id = wire.create(self._table(name))

    def play(self) -> str | None:
        if self._case.files:
            txn = self._begin(common_pb2.OPERATION_INSERT)
            change = common_pb2.Change(table_id=self._table_id, files=[self._file(txn, a) for a in self._case.files])
            for file in change.files:
                file.ClearField("data_change")
            self._wire.commit_unopposed(txn, change, "the first files")
            self._keep(txn, self._case.files)
        own = self._begin(self._operation(self._case.actions))
        change = self._own_change(own)
        for number, winner in enumerate(self._case.winners, start=1):
            txn = self._begin(self._operation(winner.actions))
            self._wire.commit_unopposed(txn, self._winner_change(txn, winner), f"winner {number}")
            self._keep(txn, winner.actions)
        answer = self._wire.commit(own, change)
        outcome = outcome_of(answer)
        if outcome != self._case.expect:
            return f"expected {self._case.expect}, was {outcome} {answer.conflict.message}".rstrip()
        return None

    def _begin(self, operation: common_pb2.Operation.ValueType) -> OpenTxn:
        return self._wire.begin(self._table_id, operation, self._features)

    def _operation(self, actions: Sequence[Action]) -> common_pb2.Operation.ValueType:
        if self._case.profile != ROW_LEVEL:
            return common_pb2.OPERATION_CUSTOM
        if any(isinstance(action, ChangeMetadata | ChangeProtocol) for action in actions):
            return common_pb2.OPERATION_ALTER
        hides = any(isinstance(action, Remove) for action in actions)
        return common_pb2.OPERATION_UPDATE if hides else common_pb2.OPERATION_INSERT

    def _table(self, name: str) -> catalog_pb2.Table:
        pad = catalog_pb2.Column(name="x_pad", type="string", nullable=True)
        return catalog_pb2.Table(
            name=name,
            columns=[*columns_of(self._types), pad],
            partition_columns=self._case.partition_by,
            profile=self._case.profile,
        )

    def _own_change(self, txn: OpenTxn) -> common_pb2.Change:
        change = self._change(txn, self._case.actions)
        change.changes_data = self._case.changes_data
        for read in self._case.reads:
            match read:
                case ReadWhere(where=where, reads_files=reads_files):
                    predicate = parse_where(where, self._value)
                    change.reads.append(common_pb2.Read(predicate=predicate, reads_no_files=not reads_files))
                case ReadPartitions(partitions=partitions, reads_files=reads_files):
                    named = [partition_of(each, self._types) for each in partitions]
                    change.reads.append(common_pb2.Read(partitions=named, reads_no_files=not reads_files))
                case ReadAppId(app_id=app_id):
                    change.app_ids_read.append(app_id)
        return change

    def _winner_change(self, txn: OpenTxn, winner: Winner) -> common_pb2.Change:
        change = self._change(txn, winner.actions)
        change.changes_data = True
        adds = any(isinstance(action, Add) for action in winner.actions)
        removes = any(isinstance(action, Remove) for action in winner.actions)
        if adds and not removes and not winner.blind:
            change.reads.append(READ_TRUE)
        return change

    def _change(self, txn: OpenTxn, actions: Sequence[Action]) -> common_pb2.Change:
        change = common_pb2.Change(table_id=self._table_id)
        rewritten = hidden_rows_changed(actions)
        change.delete_sets.extend(self._delete_sets(txn, actions, rewritten))
        for action in actions:
            match action:
                case Add(file=file):
                    if file not in rewritten:
                        change.files.append(self._file(txn, action))
                case Remove(file=file, data_change=data_change):
                    if file not in rewritten and self._case.profile == ROW_LEVEL:
                        change.delete_sets.append(self._all_rows(txn, file))
                    elif file not in rewritten:
                        live = self._live(file)
                        removed = common_pb2.FileRef(path=live.path, partition=live.partition, data_change=data_change)
                        change.removes.append(removed)
                case WriteAppVersion(app_id=app_id, version=version):
                    change.app_versions.append(common_pb2.AppVersion(app_id=app_id, version=version))
                case ChangeMetadata():
                    target = str(next(self._next_target))
                    change.alteration.set_properties["write.file_bytes_target"] = target
                case ChangeProtocol():
                    change.alteration.add_features.append(next(self._next_feature))
        return change

    def _delete_sets(
        self, txn: OpenTxn, actions: Sequence[Action], rewritten: Iterable[str]
    ) -> list[common_pb2.DeleteSet]:
        """One for each partition and data_change, over a row of each file."""
        changes = {action.file for action in actions if isinstance(action, Add | Remove) and action.data_change}
        groups: dict[tuple[bytes, bool], list[LiveFile]] = {}
        for file in rewritten:
            live = self._live(file)
            key = (live.partition.SerializeToString(deterministic=True), file in changes)
            groups.setdefault(key, []).append(live)
        return [
            common_pb2.DeleteSet(
                path=txn.path(f"ds-{number}"),
                partition=files[0].partition,
                bitmap=BitMap64([self._row_id(file.path) for file in files]).serialize(),
                rows=len(files),
                touches=[file.path for file in files],
                data_change=data_change,
            )
            for number, ((_, data_change), files) in enumerate(groups.items(), start=1)
        ]

    def _all_rows(self, txn: OpenTxn, file: str) -> common_pb2.DeleteSet:
        live = self._live(file)
        first = self._first_row_id(live.path)
        return common_pb2.DeleteSet(
            path=txn.path(f"all-{file}"),
            partition=live.partition,
            bitmap=BitMap64(range(first, first + ROWS)).serialize(),
            touches=[live.path],
        )

    def _row_id(self, path: str) -> int:
        """A row of the file, another one each time."""
        return self._first_row_id(path) + next(self._next_row)

    def _first_row_id(self, path: str) -> int:
        if path not in self._first_row_ids:
            for file in self._wire.list_files(self._table_id):
                self._first_row_ids[file.path] = file.first_row_id
        if path not in self._first_row_ids:
            raise BadCaseError(f"rows of {path} can't be hidden: it isn't live")
        return self._first_row_ids[path]

    def _live(self, file: str) -> LiveFile:
        if file not in self._files:
            raise BadCaseError(f"{file!r} is removed and was never there")
        return self._files[file]

    def _keep(self, txn: OpenTxn, actions: Sequence[Action]) -> None:
        rewritten = hidden_rows_changed(actions)
        for action in actions:
            if isinstance(action, Add) and action.file not in rewritten:
                self._files[action.file] = LiveFile(txn.path(action.file), partition_of(action.partition, self._types))

    def _file(self, txn: OpenTxn, add: Add) -> common_pb2.DataFile:
        return common_pb2.DataFile(
            path=txn.path(add.file),
            partition=partition_of(add.partition, self._types),
            rows=ROWS,
            bytes=BYTES,
            data_change=add.data_change,
        )

    def _value(self, column: str, literal: str | None) -> common_pb2.Value:
        return value_of(literal, self._types[column])


def hidden_rows_changed(actions: Sequence[Action]) -> list[str]:
    """Files that one commit both adds and removes: their hidden rows changed, they themselves stay."""
    added = {action.file for action in actions if isinstance(action, Add)}
    return [action.file for action in actions if isinstance(action, Remove) and action.file in added]


def count_protocol_changes(case: ActionCase) -> int:
    actions = itertools.chain(case.actions, *(winner.actions for winner in case.winners))
    return sum(isinstance(action, ChangeProtocol) for action in actions)


Values = dict[str, list[str | None]]  # column -> every value that the case compares it with


def pair_values(case: PairCase) -> Values:
    jobs = (case.own, *case.winners)
    texts = [file.partition for file in case.files]
    texts += [partition for job in jobs for partition in job.partitions]
    texts += [file.partition for job in jobs for file in job.adds]
    values: Values = {}
    for text in texts:
        collect(values, values_of(text))
    return values


def action_values(case: ActionCase) -> Values:
    values: Values = {}
    actions = itertools.chain(case.files, case.actions, *(winner.actions for winner in case.winners))
    for action in actions:
        if isinstance(action, Add):
            collect(values, action.partition)
    for read in case.reads:
        if isinstance(read, ReadPartitions):
            for partition in read.partitions:
                collect(values, partition)
        elif isinstance(read, ReadWhere):
            parse_where(read.where, collector(values))
    return values


def collect(values: Values, partition: PartitionText) -> None:
    for column, value in partition.items():
        values.setdefault(column, []).append(value)


def collector(values: Values) -> Callable[[str, str | None], common_pb2.Value]:
    def keep(column: str, literal: str | None) -> common_pb2.Value:
        collect(values, {column: literal})
        return value_of(literal, "string")

    return keep


def infer_types(values: Values, partition_by: Sequence[str]) -> dict[str, str]:
    columns = dict.fromkeys([*partition_by, *sorted(values)])
    return {column: infer_type([each for each in values.get(column, []) if each is not None]) for column in columns}


def infer_type(values: Sequence[str]) -> str:
    try:
        numbers = [int(value) for value in values]
    except ValueError:
        return "string"
    return "int" if all(-INT_MAX <= number <= INT_MAX for number in numbers) else "bigint"


def columns_of(types: Mapping[str, str]) -> list[catalog_pb2.Column]:
    return [catalog_pb2.Column(name=name, type=type_name, nullable=True) for name, type_name in types.items()]


def values_of(text: str) -> PartitionText:
    """`a=1/b=2` as columns and values."""
    parts = [part.split("=", 1) for part in text.split("/") if part]
    if any(len(part) != 2 for part in parts):
        raise BadCaseError(f"{text!r} names no partition")
    return {part[0]: part[1] for part in parts}


def partition_of(values: PartitionText, types: Mapping[str, str]) -> common_pb2.Partition:
    return common_pb2.Partition(
        values=[
            common_pb2.PartitionValue(column=column, value=value_of(value, types[column]))
            for column, value in values.items()
        ]
    )


def value_of(literal: str | None, type_name: str) -> common_pb2.Value:
    if literal is None:
        return common_pb2.Value(null=common_pb2.NULL_VALUE_UNSPECIFIED)
    if type_name == "string":
        return common_pb2.Value(text=literal)
    return common_pb2.Value(integer=int(literal))


def outcome_of(answer: transaction_pb2.CommitTransactionResponse) -> str:
    outcome = answer.WhichOneof("outcome")
    if outcome == "committed":
        return COMMITTED
    if outcome == "conflict":
        return RULES.get(answer.conflict.rule, "a conflict without a rule")
    return "an answer without an outcome"


def describe(error: grpc.RpcError) -> str:
    call: object = error  # the types don't know that an RpcError is a Call too
    return f"{call.code().name} {call.details()}" if isinstance(call, grpc.Call) else str(error)


def new_uuid7() -> str:
    bits = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    bits = bits & ~(0xF << 76) | 7 << 76
    return str(uuid.UUID(int=bits & ~(0b11 << 62) | 0b10 << 62))
