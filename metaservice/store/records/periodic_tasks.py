"""Periodic task, run <-> bytes."""

from __future__ import annotations

from collections.abc import Iterable

from metaservice.core.periodic_tasks import (
    HasData,
    Owner,
    PeriodicRun,
    RunOutcome,
    ScheduledStatement,
    StatementEngine,
)
from metaservice.core.table.model import Operation, Principal
from protos.laketx.storage.v1 import tasks_pb2 as pb


def encode_periodic_task(task: ScheduledStatement) -> bytes:
    return pb.PeriodicTaskRecord(
        name=task.name,
        task_id=task.task_id,
        statement=task.statement,
        operation=task.operation,
        table_id=task.table_id,
        source_ids=task.source_ids,
        schedule=task.schedule,
        conditions=[pb.HasDataRecord(table_id=each.table_id, cursor=each.cursor) for each in task.conditions],
        needs_all=task.needs_all,
        comment=task.comment,
        owner=task.owner.principal.name,
        owner_client=task.owner.principal.client,
        owner_groups=task.owner.groups,
        owner_role=task.owner.role,
        create_us=task.create_us,
        change_us=task.change_us,
        revision=task.revision,
        digest=task.digest,
        suspended=task.is_suspended,
        anchor_us=task.anchor_us,
        ended_us=task.ended_us,
        run_us=task.run_us,
        requested=task.is_requested,
        begin_us=task.begin_us,
        attempts=task.attempts,
        worker=task.worker,
        not_before_us=task.not_before_us,
        failures=task.failures,
        error=task.error,
        noted=_seen(task.noted),
        seen=_seen(task.seen),
        last=None if task.last is None else _run(task.last),
        request_ids=task.request_ids,
        engine=task.engine,
    ).SerializeToString()


def decode_periodic_task(raw: bytes) -> ScheduledStatement:
    record = pb.PeriodicTaskRecord.FromString(raw)
    return ScheduledStatement(
        name=record.name,
        task_id=record.task_id,
        statement=record.statement,
        operation=Operation(record.operation),
        table_id=record.table_id,
        source_ids=tuple(record.source_ids),
        schedule=record.schedule,
        conditions=tuple(HasData(each.table_id, each.cursor) for each in record.conditions),
        needs_all=record.needs_all,
        comment=record.comment,
        owner=Owner(Principal(record.owner, record.owner_client), tuple(record.owner_groups), record.owner_role),
        create_us=record.create_us,
        change_us=record.change_us,
        revision=record.revision,
        digest=record.digest,
        is_suspended=record.suspended,
        anchor_us=record.anchor_us,
        ended_us=record.ended_us,
        run_us=record.run_us,
        is_requested=record.requested,
        begin_us=record.begin_us,
        attempts=record.attempts,
        worker=record.worker,
        not_before_us=record.not_before_us,
        failures=record.failures,
        error=record.error,
        noted=tuple((each.table_id, each.version) for each in record.noted),
        seen=tuple((each.table_id, each.version) for each in record.seen),
        last=_run_of(record.last) if record.HasField("last") else None,
        request_ids=tuple(record.request_ids),
        engine=StatementEngine(record.engine or StatementEngine.DUCKDB),
    )


def encode_periodic_run(run: PeriodicRun) -> bytes:
    return _run(run).SerializeToString()


def decode_periodic_run(raw: bytes) -> PeriodicRun:
    return _run_of(pb.PeriodicRunRecord.FromString(raw))


def _seen(versions: Iterable[tuple[str, int]]) -> list[pb.SeenVersionRecord]:
    return [pb.SeenVersionRecord(table_id=table_id, version=version) for table_id, version in versions]


def _run(run: PeriodicRun) -> pb.PeriodicRunRecord:
    return pb.PeriodicRunRecord(
        due_us=run.due_us,
        outcome=run.outcome,
        begin_us=run.begin_us,
        end_us=run.end_us,
        attempts=run.attempts,
        rows=run.rows,
        version=run.version,
        worker=run.worker,
        error=run.error,
        skips=run.skips,
        requested=run.requested,
        revision=run.revision,
        request_ids=run.request_ids,
        engine=run.engine or 0,
    )


def _run_of(record: pb.PeriodicRunRecord) -> PeriodicRun:
    return PeriodicRun(
        record.due_us,
        RunOutcome(record.outcome),
        record.begin_us,
        record.end_us,
        record.attempts,
        record.rows,
        record.version,
        record.worker,
        record.error,
        record.skips,
        record.requested,
        record.revision,
        tuple(record.request_ids),
        StatementEngine(record.engine) if record.engine else None,
    )
