"""The commands of periodic tasks that run statements, beside `laketx periodic list`. Imports nothing heavy."""

from __future__ import annotations

from typing import Final

import click

from metaservice.cli.command import command, group
from metaservice.cli.kinds import PERIODIC_TASK
from metaservice.cli.output import Session
from metaservice.cli.parameters import comment_option, dry_run_option, warehouse_option
from metaservice.cli.plugins import later

RUNS: Final = "laketx.commands.periodic_tasks"
PERIODIC: Final = group(
    "periodic", "Create, run, list and drop periodic tasks: statements that workers run by a schedule."
)


@command("create", PERIODIC)
@click.argument("name", metavar="TASK", type=PERIODIC_TASK, help="Name of the periodic task.")
@click.argument("statement", metavar="STATEMENT", help="An INSERT, UPDATE, DELETE or MERGE.")
@click.option("--schedule", metavar="TEXT", required=True, help='every 5 minutes, or "cron 30 3 * * *" in UTC.')
@click.option("--when", metavar="TEXT", default="", help="Skip runs without new data: \"HAS_DATA('shop.orders')\".")
@click.option(
    "--engine",
    type=click.Choice(["duckdb", "spark"]),
    default="duckdb",
    help="What runs it, in whose SQL it is (default: duckdb).",
)
@click.option("--or-replace", is_flag=True, help="Replace the task of that name.")
@comment_option
@dry_run_option
@warehouse_option
def run_create(session: Session, **options: object) -> object:
    """Create a periodic task: a statement that `laketx worker` runs by a schedule, each due run once.

    laketx --folder lake periodic create shop.clean "DELETE FROM shop.carts WHERE day < current_date - 7" \
--schedule "cron 30 3 * * *"
    The statement is checked against its tables. With --engine spark it is checked by Spark, which starts for that, and
    workers with --spark run it. With --dry-run nothing is created.
    """
    return later(RUNS, "run_create", extra="views")(session, **options)


@command("run", PERIODIC)
@click.argument("name", metavar="TASK", type=PERIODIC_TASK, help="Name of the periodic task.")
@click.option("--request-id", metavar="UUID", default=None, help="Of this request: the same again runs nothing twice.")
@warehouse_option
def run_run(session: Session, **options: object) -> object:
    """Run a periodic task now, whatever its schedule and its condition say, also if it is suspended.

    laketx --folder lake periodic run shop.clean
    A scheduler that may repeat the command gives it an id: then the answer is that of the run which was asked for
    first, as long as the history has it.
    """
    return later(RUNS, "run_run", extra="views")(session, **options)
