"""`laketx view`: list, show, drop."""

from __future__ import annotations

import click

from metaservice.cli.command import command, group
from metaservice.cli.kinds import NAMESPACE, VIEW
from metaservice.cli.output import Column, Row, Session
from metaservice.cli.parameters import asks
from metaservice.cli.values import when
from protos.laketx.v1 import catalog_pb2

COLUMNS = (Column("name"), Column("made (UTC)", rank=1), Column("by", rank=2), Column("comment", rank=3, folds=True))

GROUP = group("view", "List, show and drop views. SQL creates them.")
name_argument = click.argument("name", type=VIEW, help="Name of the view.")


@command("list", GROUP)
@click.option("--namespace", default="", type=NAMESPACE, help="Only views of this namespace.")
def run_list(session: Session, namespace: str) -> None:
    """List the views, by name.

    laketx view list
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
    """Drop a view. The tables that it reads stay.

    laketx view drop shop.totals
    """
    found = session.client.get_view(name).name
    answer = {"view": found, "dropped": False}
    if session.agreed("drop", f"view {found}", answer, yes=yes, dry_run=dry_run):
        session.client.drop_view(found)
        session.done(f"dropped view {found}", {**answer, "dropped": True})
