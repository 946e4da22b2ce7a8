"""What `laketx periodic create` and `run` do, and the SQL of periodic tasks in `laketx sql`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import assert_never

from laketx.commands.view_statements import Answer
from laketx.commands.views import opened
from laketx.lake import Lake
from laketx.periodic_task import PeriodicRun, PeriodicTask
from metaservice.cli.output import Session
from metaservice.client import NotFoundError
from worker.periodic.definitions import (
    AlterTask,
    CreateTask,
    DropTask,
    Engine,
    ExecuteTask,
    NamedTask,
    ShowTasks,
    TaskDefinition,
)

RUN_COLUMNS = (
    "due timestamp, outcome string, rows bigint, version bigint, seconds double, attempts int, engine string, "
    "worker string, failure string"
)
TASK_COLUMNS = (
    "name string, schedule string, suspended boolean, next_run timestamp, outcome string, owner string, "
    "engine string, waits_for string, statement string, failure string"
)


def run_create(
    session: Session,
    name: str,
    statement: str,
    schedule: str,
    when: str,
    engine: Engine,
    or_replace: bool,
    comment: str,
    dry_run: bool,
    warehouse: str | None,
) -> None:
    with opened(session, warehouse) as lake:
        if dry_run:
            checked = lake.check_periodic_statement(statement, engine)
            names = [table.name for table in checked.sources]
            reads = ", ".join(names)
            answer = {"task": name, "engine": engine, "changes": checked.target.name, "reads": names}
            text = f"would create {name}, which changes {checked.target.name}"
            session.show_answer(answer, f"{text} and reads {reads}" if reads else text)
            return
        task = lake.create_periodic_task(
            name, statement, schedule=schedule, when=when, engine=engine, comment=comment, or_replace=or_replace
        )
        by = ", by workers with Spark" if task.engine == "spark" else ""
        text = f"created {task.name}: {task.schedule}{by}, next run {task.next_run:%Y-%m-%d %H:%M:%S}"
        session.done(text, task.message)


def run_run(session: Session, name: str, request_id: str | None, warehouse: str | None) -> None:
    with opened(session, warehouse) as lake:
        run = lake.periodic_task(name).run(request_id=request_id)
    text = f"ran {name}: {run.rows} rows, version {run.version}, {run.seconds:.1f} s"
    session.done(text, {**asdict(run), "due": run.due.isoformat(), "begin": run.begin.isoformat()})


def carry_out(lake: Lake, definition: TaskDefinition, whole: Callable[[str], str]) -> Answer:
    """Carry out a statement; `whole` makes a name that is written in the session a name of the lake."""
    match definition:
        case CreateTask():
            _create(lake, definition, whole(definition.name))
        case AlterTask(name, action):
            task = lake.periodic_task(whole(name))
            if action:
                (task.suspend if action == "suspend" else task.resume)()
            else:
                task.alter(schedule=definition.schedule, comment=definition.comment)
        case ExecuteTask(name, request_id):
            return Answer(RUN_COLUMNS, (_run(lake.periodic_task(whole(name)).run(request_id=request_id)),))
        case NamedTask("history", name):
            return Answer(RUN_COLUMNS, tuple(map(_run, lake.periodic_task(whole(name)).history())))
        case NamedTask(_, name):
            return Answer(TASK_COLUMNS, (_task(lake.periodic_task(whole(name))),))
        case DropTask(name, if_exists):
            try:
                lake.periodic_task(whole(name)).drop()
            except NotFoundError:
                if not if_exists:
                    raise
        case ShowTasks(namespace):
            tasks = [lake.periodic_task(name) for name in lake.periodic_tasks(namespace)]
            return Answer(TASK_COLUMNS, tuple(map(_task, tasks)))
        case _:
            assert_never(definition)
    return Answer()


def _create(lake: Lake, definition: CreateTask, name: str) -> None:
    parts = (" AND " if definition.condition.needs_all else " OR ").join(
        f"HAS_DATA('{table}', '{cursor}')" if cursor else f"HAS_DATA('{table}')"
        for table, cursor in definition.condition.tables
    )
    lake.create_periodic_task(
        name,
        definition.statement,
        schedule=definition.schedule,
        when=parts,
        engine=definition.engine,
        comment=definition.comment,
        if_not_exists=definition.if_not_exists,
        or_replace=definition.or_replace,
    )


def _run(run: PeriodicRun) -> tuple[object, ...]:
    done = (run.due, run.outcome, run.rows, run.version, run.seconds)
    return *done, run.attempts, run.engine, run.worker, run.error


def _task(task: PeriodicTask) -> tuple[object, ...]:
    last = next(iter(task.history(1)), None)
    outcome = "" if last is None else last.outcome
    return (
        *(task.name, task.schedule, task.is_suspended, task.next_run, outcome, task.owner),
        *(task.engine, task.waits_for, task.statement, task.error),
    )
