"""`laketx view`: list, show, alter, drop. The commands of materialized views that read rows: laketx/commands."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Final

import click

from metaservice.cli.command import command, group
from metaservice.cli.failures import CommandError, Exit
from metaservice.cli.kinds import BRANCHED_NAMESPACE, TABLE, VIEW
from metaservice.cli.output import Column, Row, Session
from metaservice.cli.parameters import asks
from metaservice.cli.values import when
from metaservice.client import NotFoundError
from metaservice.shared.view_schedules import MANUAL, parse_view_schedule
from protos.laketx.v1 import catalog_pb2, common_pb2

COLUMNS = (Column("name"), Column("made (UTC)", rank=1), Column("by", rank=2), Column("comment", rank=3, folds=True))

QUERY: Final = "view.query"  # a property of the tables that are materialized views
SOURCES: Final = "view.sources"
SCHEDULE: Final = "view.schedule"
SUSPENDED: Final = "view.suspended"
FAILURE: Final = "view.failure"
GROUP = group("view", "Show and drop views, and create, refresh and verify materialized ones.")
name_argument = click.argument("name", type=VIEW, help="Name of the view.")
materialized_argument = click.argument("name", type=TABLE, help="Name of the materialized view.")


@command("list", GROUP)
@click.option("--namespace", default="", type=BRANCHED_NAMESPACE, help="Only views of this namespace.")
def run_list(session: Session, namespace: str) -> None:
    """List the views of SQL, by name.

    laketx view list
    laketx --branch etl view list
    Materialized views are tables: `laketx view status` lists them.
    """
    name, _, branch = namespace.partition("@")
    listed = session.client.list_views(namespace=name, branch=branch if name else session.settings.branch)
    session.show_list(COLUMNS, listed, row)


def row(view: catalog_pb2.View) -> Row:
    return view.name, when(view.create_time_us), view.principal.name, view.comment


@command("show", GROUP)
@name_argument
def run_show(session: Session, name: str) -> None:
    """Show a view: its query and its columns.

    laketx view show shop.totals
    """
    view = session.client.get_view(name)
    if session.as_json:
        session.show_json(view)
        return
    session.show_pairs(
        [
            ("view", view.name),
            ("query", view.text),
            ("columns", ", ".join(f"{column.name} {column.type.lower()}" for column in view.columns)),
            ("names are found in", ".".join([view.catalog or "its lake", *view.namespace])),
            ("comment", view.comment),
            ("made", when(view.create_time_us)),
            ("replaced", when(view.replace_time_us) if view.replace_time_us else ""),
            ("by", view.principal.name),
        ]
    )


@command("alter", GROUP)
@materialized_argument
@click.option("--schedule", metavar="TEXT", help="on commit, every 5 minutes, downstream, or manual: never.")
@click.option("--target-lag", metavar="TIME", help="How far behind it may be, such as 1 minute.")
def run_alter(session: Session, name: str, schedule: str | None, target_lag: str | None) -> None:
    """Change when `laketx worker` refreshes a materialized view.

    laketx view alter shop.daily --schedule "every 5 minutes"
    laketx view alter shop.daily --target-lag "1 minute"
    """
    hint = "laketx view alter --help"
    if (schedule is None) == (target_lag is None):
        raise CommandError(Exit.USAGE, "VIEW_SCHEDULE_INVALID", "give --schedule or --target-lag", next_step=hint)
    text = f"target lag {target_lag}" if schedule is None else schedule
    try:
        stored = parse_view_schedule(text).text
    except ValueError:
        sentence = f"{text!r} is no schedule"
        raise CommandError(Exit.USAGE, "VIEW_SCHEDULE_INVALID", sentence, next_step=hint) from None
    _set(session, name, {SCHEDULE: stored}, f"schedule of {name}: {stored or MANUAL}")


@command("suspend", GROUP)
@materialized_argument
def run_suspend(session: Session, name: str) -> None:
    """End refreshes of a materialized view by `laketx worker`, until `laketx view resume`.

    laketx view suspend shop.daily
    """
    _set(session, name, {SUSPENDED: "true"}, f"suspended {name}")


@command("resume", GROUP)
@materialized_argument
def run_resume(session: Session, name: str) -> None:
    """Let `laketx worker` refresh a suspended materialized view again; a failed one is tried again at once.

    laketx view resume shop.daily
    """
    _set(session, name, {SUSPENDED: "false", FAILURE: ""}, f"resumed {name}")


def _set(session: Session, name: str, properties: dict[str, str], text: str) -> None:
    table = session.client.get_table(name)
    answer = session.client.alter_table(table.table_id, common_pb2.Alteration(set_properties=properties))
    session.done(text, {"view": table.name, "properties": properties, "version": answer.version})


@command("drop", GROUP)
@name_argument
@asks
def run_drop(session: Session, name: str, yes: bool, dry_run: bool) -> None:
    """Drop a view, or a materialized view with its rows. The tables that it reads stay.

    laketx view drop shop.totals
    """
    table = _materialized(session, name)
    view = session.client.get_view(name).name if table is None else table.name
    answer = {"view": view, "dropped": False}
    if session.agreed("drop", f"view {view}", answer, yes=yes, dry_run=dry_run):
        if table is None:
            session.client.drop_view(view)
        else:
            _drop_materialized(session, table)
        session.done(f"dropped view {view}", {**answer, "dropped": True})


def _materialized(session: Session, name: str) -> catalog_pb2.Table | None:
    try:
        table = session.client.get_table(name)
    except NotFoundError:
        return None
    return table if table.properties.get(QUERY) else None


def _drop_materialized(session: Session, table: catalog_pb2.Table) -> None:
    """Drops the table, and the cursors with which the view keeps versions of its sources."""
    session.client.drop_table(table.table_id)
    for source in json.loads(table.properties[SOURCES]).values():
        with suppress(NotFoundError):  # the source was dropped
            session.client.drop_cursor(source["id"], f"view-{table.table_id}")
