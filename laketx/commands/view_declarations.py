"""The commands of materialized views, beside `laketx view list`. Imported when commands are listed: nothing heavy."""

from __future__ import annotations

from typing import Final

import click

from metaservice.cli.command import command, group
from metaservice.cli.kinds import TABLE, VERSION
from metaservice.cli.output import Session
from metaservice.cli.parameters import comment_option, dry_run_option, warehouse_option
from metaservice.cli.plugins import later

RUNS: Final = "laketx.commands.views"
VIEW: Final = group("view", "Show and drop views, and create, refresh and verify materialized ones.")

view_argument = click.argument("name", type=TABLE, help="Name of the materialized view.")


@command("create", VIEW)
@click.argument("name", type=TABLE, help="Name of the view.")
@click.argument("query", metavar="QUERY", help="A SELECT in DuckDB's SQL over tables of the lake.")
@click.option("--strict", is_flag=True, help="Refuse a query of which every refresh would be full.")
@click.option("--partition-by", metavar="NAMES", default="", help="Partition columns, separated by commas.")
@click.option("--no-data", is_flag=True, help="Leave the view empty until its first refresh.")
@click.option("--schedule", metavar="TEXT", default="", help="on commit, every 5 minutes, or downstream.")
@click.option("--target-lag", metavar="TIME", default="", help="How far behind it may be, such as 1 minute.")
@comment_option
@dry_run_option
@warehouse_option
def run_create(session: Session, **options: object) -> object:
    """Create a materialized view: a table that has the rows of a query.

    laketx --folder lake view create shop.daily "SELECT day, sum(amount) AS total FROM shop.orders GROUP BY day"
    laketx --folder lake view create shop.live "SELECT count(*) AS n FROM shop.orders" --schedule "on commit"
    It needs no Spark. Names of columns are in lower case. With --dry-run it shows how the view would be refreshed.
    `laketx worker` refreshes views that have a schedule. docs/views.md says which queries a view can have.
    """
    return later(RUNS, "run_create", extra="views")(session, **options)


@command("refresh", VIEW)
@view_argument
@click.option("--full", is_flag=True, help="Compute the query as a whole.")
@click.option("--incremental", is_flag=True, help="Don't, if it can be helped, though it may be faster.")
@warehouse_option
def run_refresh(session: Session, **options: object) -> object:
    """Bring a materialized view up to its sources as they are now, in one commit.

    laketx --folder lake view refresh shop.daily
    It shows whether the refresh was incremental, or full and why. If no source has moved, nothing is committed.
    Past refreshes say which kind is faster; --full and --incremental leave that choice out.
    """
    return later(RUNS, "run_refresh", extra="views")(session, **options)


@command("explain", VIEW)
@view_argument
@warehouse_option
def run_explain(session: Session, **options: object) -> object:
    """Show how a materialized view is refreshed: the class of each operator, the reason, and the plan in SQL.

    laketx --folder lake view explain shop.daily
    """
    return later(RUNS, "run_explain", extra="views")(session, **options)


@command("verify", VIEW)
@view_argument
@click.option("--version", type=VERSION, help="A version of the view; default: the newest.")
@warehouse_option
def run_verify(session: Session, **options: object) -> object:
    """Compute the query of a materialized view again, at its vector, and compare; ends with 7 if they differ.

    laketx --folder lake view verify shop.daily
    laketx --folder lake view verify shop.daily --version 12 -o json
    It shows some of the rows that differ. It writes nothing.
    """
    return later(RUNS, "run_verify", extra="views")(session, **options)


@command("status", VIEW)
@click.argument("name", type=TABLE, required=False, help="Name of the materialized view; default: all.")
@warehouse_option
def run_status(session: Session, **options: object) -> object:
    """Show when and how materialized views were refreshed last, how far behind they are, and why a refresh failed.

    laketx --folder lake view status
    laketx --folder lake view status shop.daily -o json
    """
    return later(RUNS, "run_status", extra="views")(session, **options)


@command("lineage", VIEW)
@click.argument("name", type=TABLE, required=False, help="A table or materialized view; default: all views.")
def run_lineage(session: Session, **options: object) -> object:
    """Show which materialized views read which tables and columns, or what a table reads and is read by.

    laketx view lineage
    laketx view lineage shop.orders -o json
    """
    return later(RUNS, "run_lineage", extra="views")(session, **options)
