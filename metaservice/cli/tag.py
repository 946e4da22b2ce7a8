"""`laketx tag`: names for versions, which stay readable while they are named."""

from __future__ import annotations

from typing import Unpack

import click

from metaservice.cli.command import command, group
from metaservice.cli.failures import CommandError, Exit
from metaservice.cli.find import Tables, find_table
from metaservice.cli.kinds import TAG
from metaservice.cli.output import Column, Row, Session
from metaservice.cli.parameters import AsOf, asks, comment_option, one_table, table_argument, version_options
from metaservice.cli.values import when
from protos.laketx.v1 import read_pb2

COLUMNS = (
    Column("tag"),
    Column("table"),
    Column("version", right=True),
    Column("who", rank=1),
    Column("since (UTC)", rank=2),
    Column("comment", rank=3, folds=True),
)


GROUP = group("tag", "Name versions; a named version stays readable.")


@command("create", GROUP)
@table_argument
@click.argument("name", metavar="TAG", help="Name of the tag: letters, digits, `_`, `-` and `.`.")
@version_options
@comment_option
@click.option("--move", is_flag=True, help="Move the tag if it names another version.")
def run_create(session: Session, table: str, name: str, comment: str, move: bool, **as_of: Unpack[AsOf]) -> None:
    """Give a version a name; by default the newest version.

    laketx tag create shop.orders 2026-11 --version 41
    """
    meta = find_table(session.client, table)
    version = session.client.resolve_version(meta.table_id, **as_of).version
    verb = "set" if move else "created"
    made = session.client.create_tag(meta.table_id, name, version=version, comment=comment, move=move)
    session.done(f"{verb} tag {made.name}: {meta.name}@{made.version}", made)


@command("list", GROUP)
@one_table
def run_list(session: Session, table: str | None) -> None:
    """List tags, by table and name.

    laketx tag list shop.orders
    """
    table_id = find_table(session.client, table).table_id if table is not None else ""
    tables = Tables(session.client)
    session.show_list(COLUMNS, session.client.list_tags(table_id), lambda tag: row(tag, tables))


def row(tag: read_pb2.Tag, tables: Tables) -> Row:
    table = tables.name(tag.table_id)
    return tag.name, table, tag.version, tag.principal.name, when(tag.create_time_us), tag.comment


@command("drop", GROUP)
@table_argument
@click.argument("name", metavar="TAG", type=TAG, help="Name of the tag.")
@asks
def run_drop(session: Session, table: str, name: str, yes: bool, dry_run: bool) -> None:
    """Drop a tag.

    laketx tag drop shop.orders 2026-11
    """
    meta = find_table(session.client, table)
    tag = next((each for each in session.client.list_tags(meta.table_id) if each.name == name), None)
    if tag is None:
        facts, hint = {"table": meta.name, "name": name}, f"laketx tag list {meta.name}"
        raise CommandError(Exit.NOT_FOUND, "TAG_UNKNOWN", "there is no such tag", facts, hint)
    what, warning = f"the tag {tag.name} of {meta.name}@{tag.version}", " The version may go then."
    if session.agreed("drop", what, tag, yes=yes, dry_run=dry_run, warning=warning):
        session.client.drop_tag(meta.table_id, name)
        session.done(f"dropped tag {name} of {meta.name}", tag)
