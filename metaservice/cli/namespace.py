"""`laketx namespace`: list, show, create, drop."""

from __future__ import annotations

from metaservice.cli.command import NAMESPACE, Arguments, Command, Parser, add_yes, pair
from metaservice.cli.output import Column, Session
from metaservice.cli.values import properties_text, when

COLUMNS = (Column("name"), Column("made (UTC)", rank=1), Column("properties", rank=2, folds=True))


def run_list(session: Session, args: Arguments) -> None:
    del args
    found = list(session.client.list_namespaces())
    if session.as_json:
        session.show_json(found)
    else:
        session.show_rows(
            COLUMNS, [(each.name, when(each.create_time_us), properties_text(each.properties)) for each in found]
        )


def name_argument(parser: Parser) -> None:
    parser.add("name", metavar="NAME", help="The namespace.", completes=NAMESPACE)


def run_show(session: Session, args: Arguments) -> None:
    namespace = session.client.get_namespace(args.name)
    if session.as_json:
        session.show_json(namespace)
        return
    tables = sum(1 for _ in session.client.list_tables(namespace=namespace.name))
    session.show_pairs(
        [
            ("namespace", namespace.name),
            ("made", when(namespace.create_time_us)),
            ("properties", properties_text(namespace.properties)),
            ("tables", tables),
        ]
    )


def create_arguments(parser: Parser) -> None:
    parser.add("name", metavar="NAME", help="Letters, digits and _, up to 128.")
    parser.add(
        "--property", action="append", type=pair, default=[], metavar="NAME=VALUE", help="A property, under user.…"
    )
    parser.add("--if-not-exists", action="store_true", help="No error where it is there; then it stays as it is.")


def run_create(session: Session, args: Arguments) -> None:
    made = session.client.create_namespace(args.name, properties=dict(args.property), if_not_exists=args.if_not_exists)
    if session.as_json:
        session.show_json(made)
    session.done(f"{made.name} is there")


def drop_arguments(parser: Parser) -> None:
    name_argument(parser)
    add_yes(parser)


def run_drop(session: Session, args: Arguments) -> None:
    session.client.drop_namespace(args.name, validate_only=True)
    if args.dry_run:
        if session.as_json:
            session.show_json({"namespace": args.name, "dropped": False})
        else:
            session.say(f"would drop namespace {args.name}")
        return
    session.confirm(f"Drop namespace {args.name}?", yes=args.yes)
    session.client.drop_namespace(args.name)
    if session.as_json:
        session.show_json({"namespace": args.name, "dropped": True})
    session.done(f"namespace {args.name} is dropped")


COMMAND = Command(
    "namespace",
    "Look at namespaces, make and drop them.",
    commands=(
        Command("list", "List the namespaces, by name.", run_list),
        Command("show", "Show a namespace.", run_show, name_argument),
        Command(
            "create",
            "Make a namespace.",
            run_create,
            create_arguments,
            details="laketx namespace create shop --property user.owner=ana",
        ),
        Command("drop", "Drop a namespace in which no table lives.", run_drop, drop_arguments),
    ),
)
