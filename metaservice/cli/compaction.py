"""`laketx compaction`: what table services would do, what they do, and doing it now."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import chain, islice
from typing import Final

import click

from metaservice.cli.command import command, group
from metaservice.cli.failures import CommandError, Exit
from metaservice.cli.find import Tables, find_table, find_task
from metaservice.cli.kinds import TASK, OneOf
from metaservice.cli.output import Column, Row, Session
from metaservice.cli.parameters import asks, limit_option, table_argument, table_option
from metaservice.cli.partitions import read_partitions
from metaservice.cli.values import duration_text, partition_text, size_text, to_second, types_of, word
from protos.laketx.v1 import catalog_pb2, common_pb2, maintenance_pb2

OPERATIONS: Final = {
    "minor": common_pb2.OPERATION_MINOR_COMPACT,
    "major": common_pb2.OPERATION_MAJOR_COMPACT,
    "cluster": common_pb2.OPERATION_CLUSTER,
}
STATES: Final = ["queued", "claimed", "done", "failed", "cancelled"]
ENDED: Final = (maintenance_pb2.TASK_STATE_DONE, maintenance_pb2.TASK_STATE_CANCELLED)
WAIT_STEP_S: Final = 0.5
TASKS = (
    Column("state"),
    Column("what"),
    Column("table"),
    Column("where", rank=4),
    Column("queued (UTC)", rank=2),
    Column("done", rank=1, right=True),
    Column("files", rank=5, right=True),
    Column("size", rank=6, right=True),
    Column("tries", rank=7, right=True),
    Column("worker", rank=8),
    Column("why", rank=9, folds=True),
    Column("task", is_id=True),
)
PLANS = (
    Column("what"),
    Column("where"),
    Column("files", right=True),
    Column("size", rank=1, right=True),
    Column("files less", rank=2, right=True),
    Column("rows less", rank=3, right=True),
    Column("gain", rank=4, right=True),
    Column("why", rank=5, folds=True),
)


GROUP = group("compaction", "Plan compactions and clustering; list, start and cancel tasks.")
WORK = OneOf(list(OPERATIONS))
partition_option = click.option(
    "--partition",
    "partitions",
    multiple=True,
    metavar="COLUMN=VALUE[/…]",
    help="Only this partition, as listings show it, a timestamp with its zone (Z is UTC); may be repeated.",
)


@command("plan", GROUP)
@table_argument
@click.option(
    "--what",
    type=WORK,
    metavar="WORK",
    help="Show what minor, major or cluster would do now, regardless of the thresholds.",
)
@partition_option
@click.option("--dry-run", is_flag=True, help="Has no effect: a plan never changes anything.")
@limit_option()
def run_plan(
    session: Session, table: str, what: str | None, partitions: tuple[str, ...], dry_run: bool, limit: int
) -> None:
    """Show what would run, why, and what it would gain.

    laketx compaction plan shop.orders --dry-run
    """
    del dry_run
    meta = find_table(session.client, table)
    pages = session.client.plan_maintenance(
        meta.table_id,
        operation=OPERATIONS[what] if what else common_pb2.OPERATION_UNSPECIFIED,
        partitions=read_partitions(meta, partitions),
        page_size=min(limit, 500),
    )
    first = next(pages)
    tasks = list(islice((task for page in chain([first], pages) for task in page.tasks), limit))
    if session.as_json:
        del first.tasks[:]
        first.ClearField("next_page_token")
        first.tasks.extend(tasks)
        session.show_json(first)
        return
    tables = Tables(session.client)
    session.show_rows(PLANS, (plan_row(task, tables) for task in tasks))
    if first.held_back:
        session.note(f"held back: {first.held_back}")
    left = first.tasks_in_all - len(tasks)
    session.note(
        f"{first.tasks_in_all} tasks at version {first.read_version}" + (f", {left} not shown" if left else "")
    )


def plan_row(task: maintenance_pb2.MaintenanceTask, tables: Tables) -> Row:
    return (
        what_of(task),
        where_of(task, tables),
        sum(group.files for group in task.groups),
        size_text(sum(group.bytes for group in task.groups)),
        task.gain.files_less,
        task.gain.rows_less,
        f"{task.gain.score:.2f}",
        task.reason,
    )


@command("list", GROUP)
@table_option
@click.option("--state", type=OneOf(STATES), multiple=True, help="Only in this state; may be repeated.")
@click.option("--all", "ended_too", is_flag=True, help="Also list tasks that have ended.")
@limit_option()
def run_list(session: Session, table: str | None, state: tuple[str, ...], ended_too: bool, limit: int) -> None:
    """List the tasks that wait or run, oldest first.

    laketx compaction list --state queued
    """
    table_id = find_table(session.client, table).table_id if table else ""
    names = STATES if ended_too else state
    states = [maintenance_pb2.TaskState.Value(f"TASK_STATE_{name.upper()}") for name in names]
    pages = session.client.list_task_pages(table_id=table_id, states=states, page_size=min(limit, 500))
    first = next(pages)
    tasks = list(islice((task for page in chain([first], pages) for task in page.tasks), limit))
    if session.as_json:
        session.show_json(tasks)
        return
    show_tasks(session, tasks)
    age_ms = max(session.now_us() - first.oldest_create_time_us, 0) // 1000
    oldest = f", the oldest for {duration_text(age_ms)}" if first.oldest_create_time_us else ""
    alarm = f", {first.failed} with an alarm" if first.failed else ""
    session.note(f"in all {first.queued} waiting, {first.claimed} running{alarm}{oldest}")


def show_tasks(session: Session, tasks: Sequence[maintenance_pb2.MaintenanceTask]) -> None:
    tables = Tables(session.client)
    session.show_rows(TASKS, (task_row(task, tables) for task in tasks))


def task_row(task: maintenance_pb2.MaintenanceTask, tables: Tables) -> Row:
    return (
        word(maintenance_pb2.TaskState.Name, task.state),
        what_of(task),
        task.table_name or task.table_id,
        where_of(task, tables),
        to_second(task.create_time_us),
        f"{task.progress:.0%}",
        sum(group.files for group in task.groups),
        size_text(sum(group.bytes for group in task.groups)),
        task.attempts,
        task.worker.name,
        task.error or task.reason,
        task.task_id,
    )


def what_of(task: maintenance_pb2.MaintenanceTask) -> str:
    return next(name for name, operation in OPERATIONS.items() if operation == task.operation)


def where_of(task: maintenance_pb2.MaintenanceTask, tables: Tables) -> str:
    """The first bucket, and how many there are more. The table is asked for only where a time needs its type."""
    if not task.groups:
        return ""
    first = task.groups[0]
    has_time = any(each.value.HasField("timestamp_us") for each in first.partition.values)
    table = tables[task.table_id] if has_time else None
    place = f"{partition_text(first.partition, types_of(table) if table is not None else None)} #{first.bucket}".strip()
    more = len(task.groups) - 1 + task.groups_left_out
    return f"{place} +{more}" if more else place


@command("run", GROUP)
@table_argument
@click.argument("what", type=WORK, metavar="WORK", help="minor, major or cluster.")
@partition_option
@click.option("--priority", type=int, metavar="N", help="Higher priorities run first (default 100).")
@click.option("--wait", is_flag=True, help="Wait until the tasks have ended; needs a worker.")
def run_run(
    session: Session, table: str, what: str, partitions: tuple[str, ...], priority: int | None, wait: bool
) -> Exit:
    """Queue work now, regardless of the thresholds; a worker runs it.

    laketx compaction run shop.orders --partition day=2026-11-01 major --wait
    """
    meta = find_table(session.client, table)
    requested = read_partitions(meta, partitions)
    answer = session.client.request_tasks(meta.table_id, OPERATIONS[what], partitions=requested, priority=priority)
    tasks = list(answer.tasks)
    if not tasks:
        tasks = under_way(session, meta, OPERATIONS[what], requested)
        if tasks:
            session.note("already queued:")
    if tasks:
        warn_without_workers(session, tasks[0])
    if wait:
        tasks = [wait_for(session, task.task_id) for task in tasks]
    if session.as_json:
        session.show_json({"tasks": tasks, "left_out": answer.left_out})
    elif tasks:
        show_tasks(session, tasks)
    else:
        session.say("nothing to do")
    if answer.left_out:
        session.note(f"{answer.left_out} tasks more than one request takes: ask again later")
    failed = [task for task in tasks if task.state == maintenance_pb2.TASK_STATE_FAILED]
    if wait and failed:
        raise CommandError(
            Exit.REFUSED,
            "TASK_FAILED",
            f"{len(failed)} of {len(tasks)} tasks fail again and again: {failed[0].error}",
            {"task_id": failed[0].task_id},
            f"laketx compaction cancel {failed[0].task_id}",
        )
    return Exit.DONE


def under_way(
    session: Session,
    table: catalog_pb2.Table,
    operation: common_pb2.Operation.ValueType,
    partitions: Sequence[common_pb2.Partition],
) -> list[maintenance_pb2.MaintenanceTask]:
    """Return waiting and running tasks that do what was requested."""
    texts = {partition_text(partition) for partition in partitions}
    states = [maintenance_pb2.TASK_STATE_QUEUED, maintenance_pb2.TASK_STATE_CLAIMED]
    pages = session.client.list_task_pages(table_id=table.table_id, states=states)
    return [
        task
        for page in pages
        for task in page.tasks
        if task.operation == operation
        and (not texts or any(partition_text(group.partition) in texts for group in task.groups))
    ]


def wait_for(session: Session, task_id: str) -> maintenance_pb2.MaintenanceTask:
    """The task when it has ended, or when an alarm says that it won't soon."""
    while True:
        task = session.client.get_task(task_id)
        if task.state in ENDED or task.state == maintenance_pb2.TASK_STATE_FAILED:
            return task
        time.sleep(WAIT_STEP_S)


def warn_without_workers(session: Session, task: maintenance_pb2.MaintenanceTask) -> None:
    if task.state != maintenance_pb2.TASK_STATE_QUEUED:
        return
    status = session.client.get_status()
    if status.HasField("workers") and not status.workers:
        session.note("no worker is running: the task waits until `laketx worker` runs")


@command("cancel", GROUP)
@click.argument("task_id", metavar="TASK", type=TASK, help="Id of the task.")
@click.option("--reason", default="cancelled by an operator", help="Shown with the outcome.")
@asks
def run_cancel(session: Session, task_id: str, reason: str, yes: bool, dry_run: bool) -> None:
    """Cancel a task that waits or runs.

    laketx compaction cancel 01a20627-6675
    """
    task = find_task(session.client, task_id)
    task_id = task.task_id
    what = f"{what_of(task)} of {task.table_name or task.table_id}, {where_of(task, Tables(session.client))}"
    if session.agreed("cancel", what, task, yes=yes or task.state in ENDED, dry_run=dry_run):
        session.done(f"cancelled task {task_id}", session.client.cancel_task(task_id, reason=reason))
