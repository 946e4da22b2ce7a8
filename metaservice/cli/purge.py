"""`laketx purge`: which files may be deleted; release a purge that waits since a restore."""

from __future__ import annotations

from itertools import islice

import click

from metaservice.cli.command import command, group
from metaservice.cli.find import TABLE_ID, find_table, table_name
from metaservice.cli.kinds import TABLE
from metaservice.cli.output import Column, Session
from metaservice.cli.parameters import asks, limit_option

TABLES = (Column("table"), Column("id", rank=1))
PATHS = (Column("path"),)


GROUP = group("purge", "List and delete files that are no longer needed; release a held purge.")


@command("list", GROUP)
@click.argument(
    "table",
    required=False,
    type=TABLE,
    help="Name or id of a table (a dropped one by its id); default: list the tables that have something to purge.",
)
@limit_option(1_000)
def run_list(session: Session, table: str | None, limit: int) -> None:
    """List the tables that have something to purge, or the paths of one.

    laketx purge list shop.orders
    """
    if table is None:
        ids = islice(session.client.list_purgeable_tables(), limit)
        tables = [{"table_id": each, "name": table_name(session.client, each)} for each in ids]
        session.show_list(TABLES, tables, lambda listed: (listed["name"], listed["table_id"]))
        return
    table_id = table if TABLE_ID.fullmatch(table) else find_table(session.client, table).table_id
    session.show_list(PATHS, islice(session.client.list_purgeable(table_id), limit), lambda path: [path])


@command("release", GROUP)
@asks
def run_release(session: Session, yes: bool, dry_run: bool) -> None:
    """Resume the purge, which is held after the store was restored.

    laketx purge release
    Release it only when nobody uses the history before the restore: its files are in the same folders.
    """
    reason = session.client.release_purge(validate_only=True)
    waits = f"it waits: {reason}" if reason else "it does not wait"
    if dry_run or not reason:
        text = f"would release the purge; {waits}" if reason else f"nothing to release: {waits}"
        session.show_answer({"reason": reason, "released": False}, text)
        return
    session.confirm(f"Release the purge, so that files are deleted? {waits[0].upper()}{waits[1:]}.", yes=yes)
    session.client.release_purge()
    session.done("released the purge", {"reason": reason, "released": True})
