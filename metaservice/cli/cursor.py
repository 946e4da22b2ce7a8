"""`laketx cursor`: places of readers that follow a table; what comes after them is kept."""

from __future__ import annotations

import click

from metaservice.cli.command import command, group
from metaservice.cli.failures import CommandError, Exit
from metaservice.cli.find import Tables, find_table
from metaservice.cli.kinds import CURSOR, VERSION, seconds
from metaservice.cli.output import Column, Row, Session
from metaservice.cli.parameters import asks, one_table, table_argument
from metaservice.cli.values import duration_text, when
from protos.laketx.v1 import catalog_pb2, read_pb2

KEEP_S_MAX = 366 * 24 * 3_600
COLUMNS = (
    Column("cursor"),
    Column("table"),
    Column("read up to", right=True),
    Column("who", rank=1),
    Column("used (UTC)", rank=2),
    Column("keeps for", rank=3, right=True),
)


GROUP = group("cursor", "List, make, move and drop cursors: the positions of readers that follow a table.")
cursor_argument = click.argument("name", metavar="CURSOR", type=CURSOR, help="Name of the cursor.")


@command("create", GROUP)
@table_argument
@click.argument("name", metavar="CURSOR", help="Name of the cursor: letters, digits, `_`, `-` and `.`.")
@click.option("--version", type=VERSION, help="Last version that counts as read; default: the newest.")
@click.option(
    "--keep",
    type=seconds(1, KEEP_S_MAX),
    help="How long after its last use it keeps later versions readable (default a week).",
)
def run_create(session: Session, table: str, name: str, version: int | None, keep: float | None) -> None:
    """Create a cursor; an existing one stays as it is.

    laketx cursor create shop.orders nightly --version 41
    """
    meta = find_table(session.client, table)
    keep_ms = round((keep or 0) * 1_000)
    made = session.client.create_cursor(meta.table_id, name, version=version, keep_ms=keep_ms)
    text = f"cursor {name}: {meta.name}@{made.cursor.version}"
    session.done(f"created {text}" if made.created else f"kept {text}, as it was", made)


@command("list", GROUP)
@one_table
def run_list(session: Session, table: str | None) -> None:
    """List cursors, by table and name.

    laketx cursor list shop.orders
    """
    table_id = find_table(session.client, table).table_id if table is not None else ""
    tables = Tables(session.client)
    session.show_list(COLUMNS, session.client.list_cursors(table_id), lambda cursor: row(cursor, tables))


def row(cursor: read_pb2.Cursor, tables: Tables) -> Row:
    table, used = tables.name(cursor.table_id), when(cursor.used_time_us)
    return cursor.name, table, cursor.version, cursor.principal.name, used, left_text(cursor)


def left_text(cursor: read_pb2.Cursor) -> str:
    return "expired" if cursor.expired else duration_text(cursor.left_ms)


@command("advance", GROUP)
@table_argument
@cursor_argument
@click.option("--from", "expected", type=VERSION, required=True, help="Version that the cursor is at.")
@click.option("--to", "version", type=VERSION, required=True, help="Version to move it to.")
def run_advance(session: Session, table: str, name: str, expected: int, version: int) -> None:
    """Advance a cursor, if it is where you expect it.

    laketx cursor advance shop.orders nightly --from 41 --to 57
    """
    meta = find_table(session.client, table)
    moved = session.client.advance_cursor(meta.table_id, name, expected, version)
    session.done(f"advanced cursor {name}: {meta.name}@{moved.version}", moved)


@command("drop", GROUP)
@table_argument
@cursor_argument
@asks
def run_drop(session: Session, table: str, name: str, yes: bool, dry_run: bool) -> None:
    """Drop a cursor.

    laketx cursor drop shop.orders nightly
    """
    meta = find_table(session.client, table)
    cursor = find_cursor(session, meta, name)
    what, warning = f"the cursor {cursor.name}, at {meta.name}@{cursor.version}", " What comes after it may go then."
    if session.agreed("drop", what, cursor, yes=yes, dry_run=dry_run, warning=warning):
        session.client.drop_cursor(meta.table_id, name)
        session.done(f"dropped cursor {name} of {meta.name}", cursor)


def find_cursor(session: Session, table: catalog_pb2.Table, name: str) -> read_pb2.Cursor:
    cursor = next((each for each in session.client.list_cursors(table.table_id) if each.name == name), None)
    if cursor is None:
        facts = {"table": table.name, "name": name}
        hint = f"laketx cursor list {table.name}"
        raise CommandError(Exit.NOT_FOUND, "CURSOR_UNKNOWN", "there is no such cursor", facts, hint)
    return cursor
