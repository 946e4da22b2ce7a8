"""`laketx purge`: which files may be deleted; release a purge that waits since a restore."""

from __future__ import annotations

from itertools import islice

from metaservice.cli.command import TABLE, Arguments, Command, Parser, add_limit, add_yes
from metaservice.cli.find import TABLE_ID, find_table, table_name
from metaservice.cli.output import Column, Session

TABLES = (Column("table"), Column("id", rank=1))
PATHS = (Column("path"),)


def list_arguments(parser: Parser) -> None:
    parser.add(
        "table",
        nargs="?",
        metavar="TABLE",
        help="Name or id; a dropped table by its id. Without it the tables that have something to purge.",
        completes=TABLE,
    )
    add_limit(parser, default=1_000)


def run_list(session: Session, args: Arguments) -> None:
    if args.table is None:
        tables = [
            {"table_id": table_id, "name": table_name(session.client, table_id)}
            for table_id in islice(session.client.list_purgeable_tables(), args.limit)
        ]
        if session.as_json:
            session.show_json(tables)
        else:
            session.show_rows(TABLES, [(each["name"], each["table_id"]) for each in tables])
        return
    named = TABLE_ID.fullmatch(args.table)
    table_id = args.table if named else find_table(session.client, args.table).table_id
    paths = islice(session.client.list_purgeable(table_id), args.limit)
    if session.as_json:
        session.show_json(list(paths))
    else:
        session.show_rows(PATHS, ([path] for path in paths))


def release_arguments(parser: Parser) -> None:
    add_yes(parser)


def run_release(session: Session, args: Arguments) -> None:
    reason = session.client.release_purge(validate_only=True)
    waits = f"it waits: {reason}" if reason else "it does not wait"
    if args.dry_run or not reason:
        if session.as_json:
            session.show_json({"reason": reason, "released": False})
        else:
            session.say(f"would release the purge; {waits}" if reason else f"nothing to release: {waits}")
        return
    session.confirm(f"Release the purge, so that files are deleted? {waits[0].upper()}{waits[1:]}.", yes=args.yes)
    session.client.release_purge()
    if session.as_json:
        session.show_json({"reason": reason, "released": True})
    session.done("the purge goes on")


COMMAND = Command(
    "purge",
    "Look at what may be deleted from storage; release a purge that waits.",
    commands=(
        Command("list", "List the tables that have something to purge, or the paths of one.", run_list, list_arguments),
        Command(
            "release",
            "Let the purge begin again, which waits since the store was restored.",
            run_release,
            release_arguments,
            details="Only when the history before the restore is out of use: its files lie in the same folders.",
        ),
    ),
)
