"""Periodic tasks and their runs: wire -> core, checked, and core -> wire."""

from __future__ import annotations

from collections.abc import Iterable

from metaservice.core import limits
from metaservice.core.access import Identity, Role
from metaservice.core.errors import invalid
from metaservice.core.periodic_tasks import HasData, Owner, PeriodicRun, ScheduledStatement, StatementEngine
from metaservice.core.table.branches import branch_of
from metaservice.rpc.convert import answers, wire
from protos.laketx.v1 import maintenance_pb2 as pb


def task_name(name: str) -> str:
    if branch_of(name):
        raise invalid("NAME_INVALID", "a periodic task has a name without a branch", name=name[:128])
    return wire.table_name(name)


def new_task(request: pb.PutPeriodicTaskRequest, who: Identity) -> ScheduledStatement:
    """The definition that a request gives, and whoever makes it as the owner."""
    wire.table_id(request.request_id)
    task = request.task
    for what, items in (("source_ids", task.source_ids), ("conditions", task.conditions)):
        if len(items) > limits.PERIODIC_SOURCES_MAX:
            raise invalid("COUNT_OUT_OF_RANGE", what=what, value=len(items))
    if not task.statement.strip():
        raise invalid("PERIODIC_STATEMENT_INVALID", "the statement is empty: give one")
    conditions = tuple(
        HasData(wire.table_id(each.table_id), wire.mark_name(each.cursor) if each.cursor else "")
        for each in task.conditions
    )
    return ScheduledStatement(
        task_name(task.name),
        "",
        wire.text(task.statement, "statement", limits.PERIODIC_STATEMENT_CHARS_MAX),
        wire.operation(task.operation),
        wire.table_id(task.table_id),
        tuple(dict.fromkeys(map(wire.table_id, task.source_ids))),
        wire.text(task.schedule, "schedule", 256),
        tuple(dict.fromkeys(conditions)),
        task.all_conditions,
        wire.text(task.comment, "comment"),
        Owner(wire.principal(request.principal), tuple(sorted(who.groups)), int(who.role)),
        digest=wire.digest(request),
        engine=_engine(task.engine),
    )


def engines(given: Iterable[int]) -> frozenset[StatementEngine]:
    """The engines of a worker; DuckDB of one that names none."""
    return frozenset(map(_engine, given)) or frozenset([StatementEngine.DUCKDB])


def _engine(number: int) -> StatementEngine:
    if number not in pb.PeriodicEngine.values():
        raise invalid("PERIODIC_ENGINE_INVALID", engine=number)
    return StatementEngine(number or StatementEngine.DUCKDB)


def owner_identity(task: ScheduledStatement) -> Identity:
    """The owner as proved when the task was made."""
    return Identity(task.owner.principal.name, frozenset(task.owner.groups), role=Role(task.owner.role))


def task_message(task: ScheduledStatement, *, waits: bool = False) -> pb.PeriodicTask:
    return pb.PeriodicTask(
        name=task.name,
        task_id=task.task_id,
        statement=task.statement,
        operation=int(task.operation),  # type: ignore[arg-type]
        table_id=task.table_id,
        source_ids=task.source_ids,
        schedule=task.schedule,
        conditions=[pb.HasData(table_id=each.table_id, cursor=each.cursor) for each in task.conditions],
        all_conditions=task.needs_all,
        comment=task.comment,
        owner=answers.principal(task.owner.principal),
        revision=task.revision,
        create_time_us=task.create_us,
        change_time_us=task.change_us,
        suspended=task.is_suspended,
        next_time_us=task.next_us,
        run_time_us=task.run_us,
        attempts=task.attempts,
        worker=task.worker,
        error=task.error,
        failures=task.failures,
        last_run=None if task.last is None else run_message(task.last),
        engine=int(task.engine),  # type: ignore[arg-type]
        waits_for_engine=waits,
    )


def run_message(run: PeriodicRun) -> pb.PeriodicRun:
    return pb.PeriodicRun(
        due_time_us=run.due_us,
        outcome=int(run.outcome),  # type: ignore[arg-type]
        begin_time_us=run.begin_us,
        end_time_us=run.end_us,
        attempts=run.attempts,
        rows=run.rows,
        version=run.version,
        worker=run.worker,
        error=run.error,
        skips=run.skips,
        requested=run.requested,
        revision=run.revision,
        engine=int(run.engine or 0),  # type: ignore[arg-type]
    )
