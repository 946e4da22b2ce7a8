"""A compaction from begin to commit: one job that stages the outputs of all its groups, then one commit.

A chunk of the job is a bucket of a primary-key table, or some files of a partition of an append table; to cluster by
columns, all of them. A runner has the chunks done, each with both digests, wherever it has processes for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from metaservice.client import CommitOutcomeUnknownError, ConflictError, LakeTXError, Transaction
from protos.laketx.v1 import catalog_pb2, common_pb2, maintenance_pb2, transaction_pb2
from worker.arrow.scan.deleted_row_ids import hidden_ids
from worker.arrow.scan.file_rows import InputFile, input_file
from worker.arrow.scan.inlined_rows import fetch_entries
from worker.arrow.scan.plans import WrittenSchemas
from worker.base.errors import InputError, lost_race
from worker.base.lazy_modules import LazyModule
from worker.base.values import moment_of
from worker.commit.stages import Stage
from worker.commit.writes import Commit
from worker.connection.lake_connection import Connection
from worker.connection.table_view import TableView
from worker.services.compaction.chunks import Chunk, Settings
from worker.services.compaction.groups import Group, GroupOutcome, is_delta, planned_groups
from worker.services.compaction.jobs import Job, Runner
from worker.services.compaction.orders import ORDERS, Order, check_order
from worker.services.compaction.processes import Processes

if TYPE_CHECKING:
    from worker.services.compaction import spark_executors
else:
    spark_executors = LazyModule("worker.services.compaction.spark_executors")

FILE_BYTES_TARGET: Final = 128 << 20
LOOK_EVERY_S: Final = 0.2


class DigestMismatchError(LakeTXError):
    """The rows of a compaction's outputs differ from those of its inputs. Nothing was committed."""


@dataclass(frozen=True)
class Options:
    """How to write outputs; unset options come from the table's properties. An order means clustering by it."""

    file_bytes_target: int = 0
    order: Order | None = None
    message: str = ""
    verify: bool | None = None

    def to_wire(self) -> maintenance_pb2.TaskOptions:
        options = maintenance_pb2.TaskOptions(file_bytes_target=self.file_bytes_target)
        if self.order is not None:
            options.order, options.order_columns[:] = ORDERS[self.order.kind], self.order.columns
        return options


@dataclass
class Compaction:
    """Staged outputs, until `commit`."""

    table: TableView
    operation: common_pb2.Operation.ValueType
    txn: Transaction
    read_version: int
    groups: Sequence[Group] = ()
    outcomes: Sequence[GroupOutcome] = ()
    is_verified: bool = True
    committed: Commit | None = field(default=None, init=False)

    def change(self) -> common_pb2.Change:
        return common_pb2.Change(
            table_id=self.table.table_id,
            groups=[
                _wire_group(*pair, is_verified=self.is_verified)
                for pair in zip(self.groups, self.outcomes, strict=True)
            ],
        )

    def commit(self) -> Commit:
        files = [file for outcome in self.outcomes for file in outcome.files]
        table = self.table
        if files:
            self.txn.queue(table.table_id, files)
        try:
            answer = self.txn.commit([self.change()])
        except ConflictError as error:
            raise lost_race(error.conflict, table.name) from None
        committed = answer.tables[0]
        rows = sum(file.rows for file in files)
        moment = moment_of(answer.commit_time_us)
        self.committed = Commit(table.name, committed.version, moment, self.txn.txn_id, committed.rebased_over, rows)
        return self.committed


def run(
    table: TableView,
    operation: common_pb2.Operation.ValueType,
    *,
    partitions: Sequence[common_pb2.Partition] = (),
    options: Options | None = None,
) -> Commit | None:
    """Compact the groups that benefit; None if there is nothing to do."""
    with staged(table, operation, partitions=partitions, options=options or Options()) as compaction:
        return compaction.commit() if compaction.groups else None


@contextmanager
def staged(
    table: TableView,
    operation: common_pb2.Operation.ValueType,
    groups: Sequence[Group] | None = None,
    *,
    partitions: Sequence[common_pb2.Partition] = (),
    read_version: int | None = None,
    options: Options,
    begin: Callable[[transaction_pb2.TableIntent], Transaction] | None = None,
    runner: Runner | None = None,
    job: Job | None = None,
) -> Iterator[Compaction]:
    """The outputs as files of an open transaction; if the block does not commit them, they are removed.

    The groups are those of a task at its read version; if none are given, MetaService plans them now. `job` is what
    others look at and cancel.
    """
    table = table.refreshed()
    meta = table.meta
    table.lake.mark_warehouse()
    if groups is None:
        read_version, groups = planned_groups(table, operation, partitions, options.to_wire())
    intent = transaction_pb2.TableIntent(
        table_id=table.table_id, operation=operation, schema_version=meta.schema_version, read_version=read_version
    )
    txn = begin(intent) if begin else table.client.begin([intent], commit_message=options.message)
    compaction = Compaction(table, operation, txn, txn.tables[table.table_id].read_version)
    compaction.is_verified = verifies(meta, options)
    stage = Stage(meta, table.folder, txn.txn_id, compaction.read_version)
    unknown = False
    try:
        with txn:
            if groups:
                work = job or Job()
                with _cancelled_when_doomed(txn, work):
                    settings = _settings(table, operation, groups, options)
                    compaction.outcomes = _outcomes(
                        table, stage, settings, groups, runner or runner_of(table.lake), work
                    )
                compaction.groups = groups
                if compaction.is_verified:
                    _check(table, compaction)
            yield compaction
    except ConflictError as error:
        raise error if error.table else lost_race(error.conflict, table.name) from None
    except CommitOutcomeUnknownError:
        unknown = True  # it may have committed
        raise
    finally:
        if compaction.committed is None and not unknown:
            with suppress(OSError):
                stage.remove()


def file_bytes_target(meta: catalog_pb2.Table, options: Options) -> int:
    return options.file_bytes_target or int(meta.properties.get("write.file_bytes_target", FILE_BYTES_TARGET))


def verifies(meta: catalog_pb2.Table, options: Options) -> bool:
    if options.verify is not None:
        return options.verify
    return meta.properties.get("compaction.verify", "true") != "false"


@contextmanager
def _cancelled_when_doomed(txn: Transaction, job: Job) -> Iterator[None]:
    """Stops the job when its transaction can no longer commit, and says why."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_EVERY_S):
            if txn.lost is not None or txn.doomed is not None:
                job.cancel()

    watcher = threading.Thread(target=look, name="laketx-doom", daemon=True)
    watcher.start()
    failure: Exception | None = None
    try:
        yield
    except Exception as error:  # noqa: BLE001 - raised below, unless there is a reason behind it
        failure = error
    finally:
        over.set()
        watcher.join()
    if txn.lost is not None:
        raise txn.lost from failure
    if txn.doomed is not None:
        raise ConflictError(txn.doomed) from failure
    if failure is not None:
        raise failure


def _settings(
    table: TableView, operation: common_pb2.Operation.ValueType, groups: Sequence[Group], options: Options
) -> Settings:
    meta = table.meta
    if options.order is not None:
        check_order(meta, options.order)
    if operation == common_pb2.OPERATION_CLUSTER and any(is_delta(entry) for group in groups for entry in group.inputs):
        raise InputError("CLUSTER_DELTAS", "only base files are clustered: run a major compaction first")
    return Settings(
        meta=meta.SerializeToString(),
        table_folder=table.folder,
        is_major=operation == common_pb2.OPERATION_MAJOR_COMPACT,
        is_base=bool(meta.primary_key) and operation != common_pb2.OPERATION_MINOR_COMPACT,
        verify=verifies(meta, options),
        file_bytes_target=file_bytes_target(meta, options),
        order=options.order,
    )


def _outcomes(
    table: TableView, stage: Stage, settings: Settings, groups: Sequence[Group], runner: Runner, job: Job
) -> list[GroupOutcome]:
    written = WrittenSchemas(table)
    fetch_entries(table, [entry for group in groups for entry in group.inputs])
    folder = stage.next_name()
    is_whole = table.meta.primary_key or settings.order is not None
    chunks = []
    for at, group in enumerate(groups):
        files = input_files(table, written, group)
        parts = [files] if is_whole else list(_split(files, settings.file_bytes_target))
        chunks += [Chunk(at, f"{folder}/{at}-{number}", tuple(part)) for number, part in enumerate(parts)]
    chunks.sort(key=lambda chunk: -sum(file.bytes for file in chunk.files))
    outcomes = [GroupOutcome() for _ in groups]
    for result in sorted(runner.run(settings, chunks, job), key=lambda result: result.group):
        outcome, group = outcomes[result.group], groups[result.group]
        for payload in result.files:
            file = common_pb2.DataFile.FromString(payload)
            file.partition.CopyFrom(group.partition)
            file.bucket = group.bucket
            outcome.files.append(file)
        outcome.input += result.input
        outcome.output += result.output
    return outcomes


def _split(files: Sequence[InputFile], file_bytes_target: int) -> Iterator[list[InputFile]]:
    """Splits files into neighbours that make about one file together."""
    part: list[InputFile] = []
    size = 0.0
    for file in files:
        shown = file.bytes * (1 - len(file.hidden or ()) / max(file.rows, 1))
        if part and size + shown > file_bytes_target * 1.1:
            yield part
            part, size = [], 0.0
        part.append(file)
        size += shown
    if part:
        yield part


def _check(table: TableView, compaction: Compaction) -> None:
    """Compare the digests. MetaService does it again; a mismatch seen here isn't sent."""
    for group, outcome in zip(compaction.groups, compaction.outcomes, strict=True):
        if outcome.input != outcome.output:
            raise DigestMismatchError(
                f"DIGEST_MISMATCH: bucket {group.bucket} of {table.name} had {outcome.input}, the outputs have "
                f"{outcome.output}: not committed"
            )


def _wire_group(group: Group, outcome: GroupOutcome, *, is_verified: bool) -> common_pb2.CompactionGroup:
    message = common_pb2.CompactionGroup(
        partition=group.partition,
        bucket=group.bucket,
        inputs=[entry.file.path for entry in group.inputs],
        outputs=[file.path for file in outcome.files],
    )
    if is_verified:
        message.input_digest = outcome.input.to_bytes()
        message.output_digest = outcome.output.to_bytes()
        message.input_rows, message.output_rows = outcome.input.rows, outcome.output.rows
    return message


def input_files(table: TableView, written: WrittenSchemas, group: Group) -> list[InputFile]:
    """Return the files in the order of their versions, each with the ids of its hidden rows."""
    newest_first = sorted(group.inputs, key=lambda entry: -entry.data_version)
    hidden = hidden_ids(table, [(live.file, live.data_version) for live in newest_first], group.delete_sets)
    return [
        input_file(table, written, entry.file, entry.data_version, ids or None)
        for entry, ids in zip(newest_first, hidden, strict=True)
    ][::-1]


def runner_of(lake: Connection) -> Runner:
    """Processes of this machine; the executors of a Spark session that has them elsewhere."""
    if lake.uses_spark and spark_executors.are_elsewhere(lake.spark):
        return on_spark(lake)
    return Processes()


def on_spark(lake: Connection) -> Runner:
    """The executors of the lake's session, which is started if there is none."""
    return spark_executors.SparkExecutors(lake.spark)
