"""`laketx tag`: names for versions, which stay readable while they are named."""

from __future__ import annotations

from metaservice.cli.command import TABLE, Arguments, Command, Parser, add_table, add_yes
from metaservice.cli.failures import CommandError, Exit
from metaservice.cli.find import find_table, find_version, table_name
from metaservice.cli.output import Column, Session
from metaservice.cli.values import when
from metaservice.cli.versioned import add_version

COLUMNS = (
    Column("tag"),
    Column("table"),
    Column("version", right=True),
    Column("who", rank=1),
    Column("since (UTC)", rank=2),
    Column("comment", rank=3, folds=True),
)


def name_argument(parser: Parser) -> None:
    add_table(parser)
    parser.add("name", metavar="TAG", help="Name of the tag: letters, digits, `_`, `-` and `.`.")


def create_arguments(parser: Parser) -> None:
    name_argument(parser)
    add_version(parser)
    parser.add("--comment", default="", metavar="TEXT", help="For people.")
    parser.add("--move", action="store_true", help="Take the name from the version that has it.")


def run_create(session: Session, args: Arguments) -> None:
    table = find_table(session.client, args.table)
    version = find_version(session, table.table_id, args)
    made = session.client.create_tag(table.table_id, args.name, version=version, comment=args.comment, move=args.move)
    if session.as_json:
        session.show_json(made)
    session.done(f"{made.name} names {table.name}@{made.version}")


def list_arguments(parser: Parser) -> None:
    parser.add("table", nargs="?", metavar="TABLE", help="Only of this one, by name or id.", completes=TABLE)


def run_list(session: Session, args: Arguments) -> None:
    table_id = find_table(session.client, args.table).table_id if args.table is not None else ""
    tags = list(session.client.list_tags(table_id))
    if session.as_json:
        session.show_json(tags)
        return
    names = {each: table_name(session.client, each) for each in {tag.table_id for tag in tags}}
    session.show_rows(
        COLUMNS,
        (
            (tag.name, names[tag.table_id], tag.version, tag.principal.name, when(tag.create_time_us), tag.comment)
            for tag in tags
        ),
    )


def drop_arguments(parser: Parser) -> None:
    name_argument(parser)
    add_yes(parser)


def run_drop(session: Session, args: Arguments) -> None:
    table = find_table(session.client, args.table)
    tag = next((each for each in session.client.list_tags(table.table_id) if each.name == args.name), None)
    if tag is None:
        facts = {"table": table.name, "name": args.name}
        hint = f"laketx tag list {table.name}"
        raise CommandError(Exit.NOT_FOUND, "TAG_UNKNOWN", "there is no such tag", facts, hint)
    what = f"the tag {tag.name} of {table.name}@{tag.version}"
    if args.dry_run:
        session.show_json(tag) if session.as_json else session.say(f"would drop {what}")
        return
    session.confirm(f"Drop {what}? The version may go then.", yes=args.yes)
    session.client.drop_tag(table.table_id, args.name)
    if session.as_json:
        session.show_json(tag)
    session.done(f"{args.name} is gone")


COMMAND = Command(
    "tag",
    "Give versions names; a version that has one stays readable.",
    commands=(
        Command(
            "create",
            "Name a version, the newest unless another is chosen.",
            run_create,
            create_arguments,
            details="laketx tag create shop.orders 2026-11 --version 41",
        ),
        Command("list", "List tags, by table and name.", run_list, list_arguments),
        Command("drop", "Drop a tag.", run_drop, drop_arguments),
    ),
)
