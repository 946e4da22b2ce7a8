"""`laketx compaction`: what table services would do, what they do, and doing it now."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import chain, islice
from typing import Final

from metaservice.cli.command import TABLE, TASK, Arguments, Command, Parser, add_limit, add_table, add_yes
from metaservice.cli.failures import CommandError, Exit
from metaservice.cli.find import Tables, find_table
from metaservice.cli.output import Column, Row, Session
from metaservice.cli.partitions import read_partitions
from metaservice.cli.values import duration_text, partition_text, size_text, types_of, when, word
from protos.laketx.v1 import catalog_pb2, common_pb2, maintenance_pb2

OPERATIONS: Final = {
    "minor": common_pb2.OPERATION_MINOR_COMPACT,
    "major": common_pb2.OPERATION_MAJOR_COMPACT,
    "cluster": common_pb2.OPERATION_CLUSTER,
}
STATES: Final = ["queued", "claimed", "done", "failed", "cancelled"]
ENDED: Final = (maintenance_pb2.TASK_STATE_DONE, maintenance_pb2.TASK_STATE_CANCELLED)
WAIT_STEP_S: Final = 0.5
LOOKS_UNTIL_NOTE: Final = 10
TASKS = (
    Column("task"),
    Column("table"),
    Column("what", rank=1),
    Column("state"),
    Column("where", rank=3),
    Column("files", rank=4, right=True),
    Column("size", rank=5, right=True),
    Column("done", rank=2, right=True),
    Column("tries", rank=6, right=True),
    Column("queued (UTC)", rank=8),
    Column("worker", rank=7),
    Column("why", rank=9, folds=True),
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


def partition_argument(parser: Parser) -> None:
    parser.add(
        "--partition",
        action="append",
        default=[],
        metavar="COLUMN=VALUE[/…]",
        help="Only this partition, as listings show it, a timestamp with its zone (Z is UTC); may be repeated.",
    )


def plan_arguments(parser: Parser) -> None:
    add_table(parser)
    parser.add(
        "--what",
        choices=list(OPERATIONS),
        metavar="WORK",
        help="What minor, major or cluster would do now, whatever the thresholds say.",
    )
    partition_argument(parser)
    parser.add("--dry-run", action="store_true", help="Planning never changes anything; said for those who ask.")
    add_limit(parser)


def run_plan(session: Session, args: Arguments) -> None:
    table = find_table(session.client, args.table)
    pages = session.client.plan_maintenance(
        table.table_id,
        operation=OPERATIONS[args.what] if args.what else common_pb2.OPERATION_UNSPECIFIED,
        partitions=read_partitions(table, args.partition),
        page_size=min(args.limit, 500),
    )
    first = next(pages)
    tasks = list(islice((task for page in chain([first], pages) for task in page.tasks), args.limit))
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


def list_arguments(parser: Parser) -> None:
    parser.add("--table", metavar="TABLE", default="", help="Only of this table: its name or id.", completes=TABLE)
    parser.add("--state", choices=STATES, action="append", default=[], help="Only in this state; may be repeated.")
    parser.add("--all", action="store_true", help="Those that have ended too.")
    add_limit(parser)


def run_list(session: Session, args: Arguments) -> None:
    table_id = find_table(session.client, args.table).table_id if args.table else ""
    names = STATES if args.all else args.state
    states = [maintenance_pb2.TaskState.Value(f"TASK_STATE_{name.upper()}") for name in names]
    pages = session.client.list_task_pages(table_id=table_id, states=states, page_size=min(args.limit, 500))
    first = next(pages)
    tasks = list(islice((task for page in chain([first], pages) for task in page.tasks), args.limit))
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
        task.task_id,
        task.table_name or task.table_id,
        what_of(task),
        word(maintenance_pb2.TaskState.Name, task.state),
        where_of(task, tables),
        sum(group.files for group in task.groups),
        size_text(sum(group.bytes for group in task.groups)),
        f"{task.progress:.0%}",
        task.attempts,
        when(task.create_time_us),
        task.worker.name,
        task.error or task.reason,
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


def run_arguments(parser: Parser) -> None:
    add_table(parser)
    parser.add("what", choices=list(OPERATIONS), metavar="WORK", help="minor, major or cluster.")
    partition_argument(parser)
    parser.add("--priority", type=int, default=None, metavar="N", help="Higher ones go first (default 100).")
    parser.add("--wait", action="store_true", help="Until the tasks have ended; needs a worker.")


def run_run(session: Session, args: Arguments) -> int:
    table = find_table(session.client, args.table)
    answer = session.client.request_tasks(
        table.table_id,
        OPERATIONS[args.what],
        partitions=read_partitions(table, args.partition),
        priority=args.priority,
    )
    tasks, is_new = list(answer.tasks), True
    if not tasks:
        tasks, is_new = under_way(session, table, args), False
        if tasks:
            session.note("that is queued already:")
    if args.wait:
        tasks = [wait_for(session, task.task_id) for task in tasks]
    elif tasks and not is_new:
        warn_without_workers(session, tasks[0])
    if session.as_json:
        session.show_json({"tasks": tasks, "left_out": answer.left_out})
    elif tasks:
        show_tasks(session, tasks)
    else:
        session.say("nothing to do")
    if answer.left_out:
        session.note(f"{answer.left_out} tasks more than one request takes: ask again later")
    failed = [task for task in tasks if task.state == maintenance_pb2.TASK_STATE_FAILED]
    if args.wait and failed:
        raise CommandError(
            Exit.REFUSED,
            "TASK_FAILED",
            f"{len(failed)} of {len(tasks)} tasks fail again and again: {failed[0].error}",
            {"task_id": failed[0].task_id},
            f"laketx compaction cancel {failed[0].task_id}",
        )
    return Exit.DONE


def under_way(session: Session, table: catalog_pb2.Table, args: Arguments) -> list[maintenance_pb2.MaintenanceTask]:
    """Tasks that wait or run and do what was asked for."""
    wanted = {partition_text(one) for one in read_partitions(table, args.partition)}
    states = [maintenance_pb2.TASK_STATE_QUEUED, maintenance_pb2.TASK_STATE_CLAIMED]
    pages = session.client.list_task_pages(table_id=table.table_id, states=states)
    return [
        task
        for page in pages
        for task in page.tasks
        if task.operation == OPERATIONS[args.what]
        and (not wanted or any(partition_text(group.partition) in wanted for group in task.groups))
    ]


def wait_for(session: Session, task_id: str) -> maintenance_pb2.MaintenanceTask:
    """The task when it has ended, or when an alarm says that it won't soon."""
    looks = 0
    while True:
        task = session.client.get_task(task_id)
        if task.state in ENDED or task.state == maintenance_pb2.TASK_STATE_FAILED:
            return task
        if looks == LOOKS_UNTIL_NOTE:
            warn_without_workers(session, task)
        looks += 1
        time.sleep(WAIT_STEP_S)


def warn_without_workers(session: Session, task: maintenance_pb2.MaintenanceTask) -> None:
    """Workers that are idle say nothing to the service: that nobody runs anything is what can be known."""
    if task.state != maintenance_pb2.TASK_STATE_QUEUED:
        return
    if not next(session.client.list_task_pages(page_size=1)).claimed:
        session.note("no worker runs a task now: `laketx worker` starts one, if none is there")


def cancel_arguments(parser: Parser) -> None:
    parser.add("task_id", metavar="TASK", help="Id of the task.", completes=TASK)
    parser.add("--reason", default="called off by an operator", help="Shown to who asks what became of it.")
    add_yes(parser)


def run_cancel(session: Session, args: Arguments) -> None:
    task = session.client.get_task(args.task_id)
    what = f"{what_of(task)} of {task.table_name or task.table_id}, {where_of(task, Tables(session.client))}"
    if args.dry_run:
        if session.as_json:
            session.show_json(task)
        else:
            session.say(f"would call off {what}")
        return
    if task.state not in ENDED:
        session.confirm(f"Call off {what}?", yes=args.yes)
    task = session.client.cancel_task(args.task_id, reason=args.reason)
    if session.as_json:
        session.show_json(task)
    session.done(f"{args.task_id} is called off")


COMMAND = Command(
    "compaction",
    "Plan compactions and clustering, see what runs, start and stop it.",
    commands=(
        Command(
            "plan",
            "Show what would run, why, and what it would bring.",
            run_plan,
            plan_arguments,
            details="laketx compaction plan shop.orders --dry-run",
        ),
        Command("list", "List the tasks that wait or run, oldest first.", run_list, list_arguments),
        Command(
            "run",
            "Queue work now, whatever the thresholds say; a worker does it.",
            run_run,
            run_arguments,
            details="laketx compaction run shop.orders --partition day=2026-11-01 major --wait",
        ),
        Command("cancel", "Call a task off, waiting or running.", run_cancel, cancel_arguments),
    ),
)
