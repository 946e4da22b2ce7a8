"""`laketx view`: list, show, drop. Those of materialized views that read rows are `laketx/commands/views.py`."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Final

import click

from metaservice.cli.command import command, group
from metaservice.cli.kinds import NAMESPACE, VIEW
from metaservice.cli.output import Column, Row, Session
from metaservice.cli.parameters import asks
from metaservice.cli.values import when
from metaservice.client import NotFoundError
from protos.laketx.v1 import catalog_pb2

COLUMNS = (Column("name"), Column("made (UTC)", rank=1), Column("by", rank=2), Column("comment", rank=3, folds=True))

QUERY: Final = "view.query"  # a property of the tables that are materialized views
SOURCES: Final = "view.sources"
GROUP = group("view", "Show and drop views, and create, refresh and verify materialized ones.")
name_argument = click.argument("name", type=VIEW, help="Name of the view.")


@command("list", GROUP)
@click.option("--namespace", default="", type=NAMESPACE, help="Only views of this namespace.")
def run_list(session: Session, namespace: str) -> None:
    """List the views of SQL, by name.

    laketx view list
    Materialized views are tables: `laketx view status` lists them.
    """
    session.show_list(COLUMNS, session.client.list_views(namespace=namespace), row)


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
