"""`laketx cursor`: places of readers that follow a table; what comes after them is kept."""

from __future__ import annotations

from metaservice.cli.command import TABLE, Arguments, Command, Parser, add_table, add_yes, seconds, whole
from metaservice.cli.failures import CommandError, Exit
from metaservice.cli.find import find_table, table_name
from metaservice.cli.output import Column, Session
from metaservice.cli.values import duration_text, when
from metaservice.cli.versioned import VERSION_MAX
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


def name_argument(parser: Parser) -> None:
    add_table(parser)
    parser.add("name", metavar="CURSOR", help="Name of the cursor: letters, digits, `_`, `-` and `.`.")


def create_arguments(parser: Parser) -> None:
    name_argument(parser)
    parser.add(
        "--version", type=whole(0, VERSION_MAX), metavar="N", help="This one counts as read; default: the newest."
    )
    parser.add(
        "--keep",
        type=seconds(1, KEEP_S_MAX),
        default=0.0,
        metavar="S",
        help="For how long after its last use it keeps what comes after it (default a week).",
    )


def run_create(session: Session, args: Arguments) -> None:
    table = find_table(session.client, args.table)
    keep_ms = round(args.keep * 1_000)
    made = session.client.create_cursor(table.table_id, args.name, version=args.version, keep_ms=keep_ms)
    if session.as_json:
        session.show_json(made)
    verb = "stands" if made.created else "stood already"
    session.done(f"{args.name} {verb} at {table.name}@{made.cursor.version}")


def list_arguments(parser: Parser) -> None:
    parser.add("table", nargs="?", metavar="TABLE", help="Only of this one, by name or id.", completes=TABLE)


def run_list(session: Session, args: Arguments) -> None:
    table_id = find_table(session.client, args.table).table_id if args.table is not None else ""
    cursors = list(session.client.list_cursors(table_id))
    if session.as_json:
        session.show_json(cursors)
        return
    names = {each: table_name(session.client, each) for each in {cursor.table_id for cursor in cursors}}
    session.show_rows(
        COLUMNS,
        (
            (
                cursor.name,
                names[cursor.table_id],
                cursor.version,
                cursor.principal.name,
                when(cursor.used_time_us),
                left_text(cursor),
            )
            for cursor in cursors
        ),
    )


def left_text(cursor: read_pb2.Cursor) -> str:
    return "expired" if cursor.expired else duration_text(cursor.left_ms)


def advance_arguments(parser: Parser) -> None:
    name_argument(parser)
    number = whole(0, VERSION_MAX)
    parser.add("--from", type=number, required=True, metavar="N", dest="expected", help="Where it stands.")
    parser.add("--to", type=number, required=True, metavar="N", dest="version", help="Where it goes.")


def run_advance(session: Session, args: Arguments) -> None:
    table = find_table(session.client, args.table)
    moved = session.client.advance_cursor(table.table_id, args.name, args.expected, args.version)
    if session.as_json:
        session.show_json(moved)
    session.done(f"{args.name} stands at {table.name}@{moved.version}")


def drop_arguments(parser: Parser) -> None:
    name_argument(parser)
    add_yes(parser)


def run_drop(session: Session, args: Arguments) -> None:
    table = find_table(session.client, args.table)
    cursor = find_cursor(session, table, args.name)
    what = f"the cursor {cursor.name}, at {table.name}@{cursor.version}"
    if args.dry_run:
        session.show_json(cursor) if session.as_json else session.say(f"would drop {what}")
        return
    session.confirm(f"Drop {what}? What comes after it may go then.", yes=args.yes)
    session.client.drop_cursor(table.table_id, args.name)
    if session.as_json:
        session.show_json(cursor)
    session.done(f"{args.name} is gone")


def find_cursor(session: Session, table: catalog_pb2.Table, name: str) -> read_pb2.Cursor:
    found = next((each for each in session.client.list_cursors(table.table_id) if each.name == name), None)
    if found is None:
        facts = {"table": table.name, "name": name}
        hint = f"laketx cursor list {table.name}"
        raise CommandError(Exit.NOT_FOUND, "CURSOR_UNKNOWN", "there is no such cursor", facts, hint)
    return found


COMMAND = Command(
    "cursor",
    "Look at the places of readers that follow a table, make and drop them.",
    commands=(
        Command("create", "Make a cursor; one that is there stays as it is.", run_create, create_arguments),
        Command("list", "List cursors, by table and name.", run_list, list_arguments),
        Command(
            "advance",
            "Move a cursor on, if it stands where it is expected to.",
            run_advance,
            advance_arguments,
            details="laketx cursor advance shop.orders nightly --from 41 --to 57",
        ),
        Command("drop", "Drop a cursor.", run_drop, drop_arguments),
    ),
)
