"""`laketx periodic`: list, show, alter, suspend, resume, drop, history. Those that run statements: laketx/commands."""

from __future__ import annotations

import click

from metaservice.cli.command import command, group
from metaservice.cli.failures import CommandError, Exit
from metaservice.cli.kinds import NAMESPACE, PERIODIC_TASK
from metaservice.cli.output import Column, Row, Session
from metaservice.cli.parameters import asks, limit_option
from metaservice.cli.values import when, word
from metaservice.client.periodic_tasks import engine_name, waiting_text
from protos.laketx.v1 import maintenance_pb2 as pb

COLUMNS = (
    Column("name"),
    Column("schedule"),
    Column("next (UTC)"),
    Column("last (UTC)", rank=1),
    Column("outcome"),
    Column("rows", rank=2, right=True),
    Column("owner", rank=3),
    Column("failure", rank=1, folds=True),
)
RUN_COLUMNS = (
    Column("due (UTC)"),
    Column("outcome"),
    Column("rows", right=True),
    Column("version", right=True),
    Column("seconds", rank=1, right=True),
    Column("attempts", rank=2, right=True),
    Column("engine", rank=3),
    Column("worker", rank=3),
    Column("failure", rank=1, folds=True),
)

GROUP = group("periodic", "Create, run, list and drop periodic tasks: statements that workers run by a schedule.")
name_argument = click.argument("name", metavar="TASK", type=PERIODIC_TASK, help="Name of the periodic task.")


@command("list", GROUP)
@click.option("--namespace", default="", type=NAMESPACE, help="Only tasks of this namespace.")
def run_list(session: Session, namespace: str) -> None:
    """List periodic tasks, by name, with their last run.

    laketx periodic list
    """
    session.show_list(COLUMNS, session.client.list_periodic_tasks(namespace), row)


def row(task: pb.PeriodicTask) -> Row:
    last = task.last_run
    due = "suspended" if task.suspended and not task.next_time_us else when(task.next_time_us)
    waits = f"waits for {waiting_text(task)}" if task.waits_for_engine else ""
    ended = when(last.due_time_us) if last.due_time_us else ""
    return task.name, task.schedule, due, ended, outcome(last), last.rows, task.owner.name, task.error or waits


def outcome(run: pb.PeriodicRun) -> str:
    """In a word; of many runs in succession that were skipped, with their number."""
    if not run.outcome:
        return ""
    text = word(pb.PeriodicOutcome.Name, run.outcome).removeprefix("PERIODIC_OUTCOME_").lower()
    return f"{text}, {run.skips} in succession" if run.skips > 1 else text


@command("show", GROUP)
@name_argument
def run_show(session: Session, name: str) -> None:
    """Show a periodic task: its statement and engine, its schedule, its condition and where its runs stand.

    laketx periodic show shop.nightly
    """
    task = session.client.get_periodic_task(name)
    if session.as_json:
        session.show_json(task)
        return
    last = task.last_run
    session.show_pairs(
        [
            ("task", task.name),
            ("statement", task.statement),
            ("engine", engine_name(task.engine)),
            ("schedule", task.schedule),
            ("when", condition_text(session, task)),
            ("comment", task.comment),
            ("owner", task.owner.name),
            ("suspended", "yes" if task.suspended else ""),
            ("next run", when(task.next_time_us) if task.next_time_us else ""),
            ("waits for", waiting_text(task)),
            ("last run", f"{when(last.due_time_us)}, {outcome(last)}" if last.due_time_us else ""),
            ("failure", task.error),
            ("made", when(task.create_time_us)),
            ("revision", task.revision),
        ]
    )


def condition_text(session: Session, task: pb.PeriodicTask) -> str:
    """The condition as SQL has it."""
    names = {table.table_id: table.name for table in session.client.list_tables()} if task.conditions else {}
    parts = [
        f"HAS_DATA('{names.get(each.table_id, each.table_id)}'{f', {each.cursor!r}' if each.cursor else ''})"
        for each in task.conditions
    ]
    return (" AND " if task.all_conditions else " OR ").join(parts)


@command("alter", GROUP)
@name_argument
@click.option("--schedule", metavar="TEXT", default="", help='every 5 minutes, or "cron 30 3 * * *" in UTC.')
@click.option("--comment", help="Another comment for people.")
def run_alter(session: Session, name: str, schedule: str, comment: str | None) -> None:
    """Give a periodic task another schedule, which counts from now, or another comment.

    laketx periodic alter shop.nightly --schedule "every hour"
    """
    if not schedule and comment is None:
        hint = "laketx periodic alter --help"
        raise CommandError(Exit.USAGE, "NOTHING_TO_ALTER", "give --schedule or --comment", next_step=hint)
    task = session.client.alter_periodic_task(name, schedule=schedule, comment=comment)
    session.done(f"altered {task.name}: {task.schedule}", task)


@command("suspend", GROUP)
@name_argument
def run_suspend(session: Session, name: str) -> None:
    """End the runs of a periodic task, until `laketx periodic resume`. One that is under way ends by itself.

    laketx periodic suspend shop.nightly
    """
    task = session.client.alter_periodic_task(name, suspended=True)
    session.done(f"suspended {task.name}", task)


@command("resume", GROUP)
@name_argument
def run_resume(session: Session, name: str) -> None:
    """Let a periodic task run again: once at once if runs were missed, then by its schedule.

    laketx periodic resume shop.nightly
    """
    task = session.client.alter_periodic_task(name, suspended=False)
    session.done(f"resumed {task.name}, next run {when(task.next_time_us)}", task)


@command("history", GROUP)
@name_argument
@limit_option(20)
def run_history(session: Session, name: str, limit: int) -> None:
    """Show the runs of a periodic task that ended, newest first. The service keeps the last 100.

    laketx periodic history shop.nightly
    """
    runs = [run for _, run in zip(range(limit), session.client.list_periodic_runs(name), strict=False)]
    session.show_list(RUN_COLUMNS, runs, run_row)


def run_row(run: pb.PeriodicRun) -> Row:
    seconds = f"{(run.end_time_us - run.begin_time_us) / 1_000_000:.1f}"
    done = (when(run.due_time_us), outcome(run), run.rows, run.version or "", seconds)
    return *done, run.attempts, engine_name(run.engine), run.worker, run.error


@command("drop", GROUP)
@name_argument
@asks
def run_drop(session: Session, name: str, yes: bool, dry_run: bool) -> None:
    """Drop a periodic task and its history. The rows that it wrote stay.

    laketx periodic drop shop.nightly
    """
    task = session.client.get_periodic_task(name)
    answer = {"task": task.name, "dropped": False}
    if session.agreed("drop", f"periodic task {task.name}", answer, yes=yes, dry_run=dry_run):
        session.client.drop_periodic_task(task.name)
        session.done(f"dropped periodic task {task.name}", {**answer, "dropped": True})
