"""`laketx namespace`: list, show, create, drop."""

from __future__ import annotations

import click

from metaservice.cli.command import BranchedCommand, command, group
from metaservice.cli.kinds import BRANCHED_NAMESPACE, NEW_NAMESPACE
from metaservice.cli.output import Column, Row, Session
from metaservice.cli.parameters import asks, property_option
from metaservice.cli.values import properties_text, when
from protos.laketx.v1 import catalog_pb2

COLUMNS = (Column("name"), Column("made (UTC)", rank=1), Column("properties", rank=2, folds=True))

GROUP = group("namespace", "List, show, make and drop namespaces.")
name_argument = click.argument("name", type=BRANCHED_NAMESPACE, help="Name of the namespace.")


@command("list", GROUP, kind=BranchedCommand)
def run_list(session: Session) -> None:
    """List the namespaces, by name.

    laketx namespace list
    laketx --branch etl namespace list
    """
    session.show_list(COLUMNS, session.client.list_namespaces(branch=session.settings.branch), row)


def row(namespace: catalog_pb2.Namespace) -> Row:
    return namespace.name, when(namespace.create_time_us), properties_text(namespace.properties)


@command("show", GROUP)
@name_argument
def run_show(session: Session, name: str) -> None:
    """Show a namespace.

    laketx namespace show shop
    """
    namespace = session.client.get_namespace(name)
    if session.as_json:
        session.show_json(namespace)
        return
    facts: list[tuple[str, object]] = [
        ("namespace", namespace.name),
        ("made", when(namespace.create_time_us)),
        ("properties", properties_text(namespace.properties)),
    ]
    if "@" not in name:
        facts.append(("tables", sum(1 for _ in session.client.list_tables(namespace=namespace.name))))
    session.show_pairs(facts)


@command("create", GROUP)
@click.argument("name", type=NEW_NAMESPACE, help="Name of the new namespace: letters, digits and _, at most 128.")
@property_option
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the namespace exists.")
def run_create(session: Session, name: str, properties: tuple[tuple[str, str], ...], if_not_exists: bool) -> None:
    """Create a namespace.

    laketx namespace create shop --property user.owner=ana
    """
    made = session.client.create_namespace(name, properties=dict(properties), if_not_exists=if_not_exists)
    session.done(f"namespace {made.name} exists" if if_not_exists else f"created namespace {made.name}", made)


@command("drop", GROUP)
@name_argument
@asks
def run_drop(session: Session, name: str, yes: bool, dry_run: bool) -> None:
    """Drop a namespace that has no tables and no views.

    laketx namespace drop shop
    """
    session.client.drop_namespace(name, validate_only=True)
    answer = {"namespace": name, "dropped": False}
    if session.agreed("drop", f"namespace {name}", answer, yes=yes, dry_run=dry_run):
        session.client.drop_namespace(name)
        session.done(f"dropped namespace {name}", {**answer, "dropped": True})
