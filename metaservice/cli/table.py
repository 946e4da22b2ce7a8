"""`laketx table`: list, show, create, alter, drop."""

from __future__ import annotations

import re

from metaservice.cli.command import NAMESPACE, TABLE, Arguments, Command, Parser, add_table, add_yes, pair, whole
from metaservice.cli.failures import usage_failure
from metaservice.cli.find import find_table
from metaservice.cli.output import Column, Row, Session
from metaservice.cli.values import when
from protos.laketx.v1 import catalog_pb2, common_pb2

PROFILES = ["maxcompute", "delta_serializable", "delta_write_serializable"]
PROFILES_TEXT = "maxcompute (the default), delta_serializable or delta_write_serializable"
COLUMNS = (
    Column("name"),
    Column("version", right=True),
    Column("last commit (UTC)", rank=4),
    Column("key", rank=2),
    Column("partitioned by", rank=1),
    Column("buckets", rank=6, right=True),
    Column("profile", rank=3),
    Column("id", rank=5),
)
COLUMN_COLUMNS = (
    Column("id", rank=2, right=True),
    Column("column"),
    Column("type", folds=True),
    Column("null", rank=1),
    Column("comment", rank=3, folds=True),
)
COLUMN = re.compile(r"(?P<name>\w+)\s+(?P<type>.+?)(?P<not_null>\s+not\s+null)?", re.IGNORECASE | re.DOTALL)


def list_arguments(parser: Parser) -> None:
    parser.add("--namespace", default="", metavar="NAME", help="Only of this namespace.", completes=NAMESPACE)


def run_list(session: Session, args: Arguments) -> None:
    found = list(session.client.list_tables(namespace=args.namespace))
    if session.as_json:
        session.show_json(found)
    else:
        session.show_rows(COLUMNS, map(row, found))


def row(table: catalog_pb2.Table) -> Row:
    return (
        table.name,
        table.head_version,
        when(table.head_commit_time_us),
        ", ".join(table.primary_key) or "-",
        ", ".join(table.partition_columns) or "-",
        table.buckets or "-",
        table.profile,
        table.table_id,
    )


def run_show(session: Session, args: Arguments) -> None:
    show(session, find_table(session.client, args.table))


def show(session: Session, table: catalog_pb2.Table) -> None:
    if session.as_json:
        session.show_json(table)
        return
    session.show_pairs(
        [
            ("table", table.name),
            ("id", table.table_id),
            ("comment", table.comment),
            ("profile", table.profile),
            ("key", ", ".join(table.primary_key) or "none: an append table"),
            ("partitioned by", ", ".join(table.partition_columns)),
            ("buckets", table.buckets or ""),
            ("properties", ", ".join(f"{name}={value}" for name, value in sorted(table.properties.items()))),
            ("features", ", ".join(table.features)),
            ("schema version", table.schema_version),
            ("version", table.head_version),
            ("last commit", when(table.head_commit_time_us)),
            ("created", when(table.create_time_us)),
        ]
    )
    session.say("")
    session.show_rows(COLUMN_COLUMNS, map(column_row, table.columns))


def column_row(column: catalog_pb2.Column) -> Row:
    return column.column_id, column.name, column.type, "" if column.nullable else "not null", column.comment


def create_arguments(parser: Parser) -> None:
    parser.add("name", metavar="NAME", help='"table" or "namespace.table".')
    parser.add("--columns", required=True, metavar="TEXT", help='As in SQL: "id bigint not null, day date, v string".')
    parser.add("--key", default="", metavar="COLUMNS", help="Primary key, with commas; default: an append table.")
    parser.add("--partition-by", default="", metavar="COLUMNS", help="Partition columns, with commas.")
    parser.add("--buckets", type=whole(1, 65_536), metavar="N", help="Buckets of a table with a key (default 1).")
    parser.add(
        "--profile",
        choices=PROFILES,
        default="",
        metavar="NAME",
        help=f"Which rules judge its commits: {PROFILES_TEXT}.",
    )
    parser.add("--property", action="append", type=pair, default=[], metavar="NAME=VALUE", help="A property.")
    parser.add("--feature", action="append", default=[], metavar="NAME", help="A feature that readers need.")
    parser.add("--comment", default="", metavar="TEXT", help="For people.")


def run_create(session: Session, args: Arguments) -> None:
    key = names_in(args.key)
    table = catalog_pb2.Table(
        name=args.name,
        columns=read_columns(args.columns, key),
        partition_columns=names_in(args.partition_by),
        primary_key=key,
        buckets=args.buckets or (1 if key else 0),
        profile=args.profile,
        properties=dict(args.property),
        features=args.feature,
        comment=args.comment,
    )
    made = session.client.create_table(table)
    if session.as_json:
        session.show_json(made)
    session.done(f"{made.name} is made ({made.table_id})")


def names_in(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def read_columns(text: str, key: list[str]) -> list[catalog_pb2.Column]:
    """Key columns are not nullable, whether it is said or not."""
    return [read_column(part, key) for part in split_outside_brackets(text)]


def read_column(text: str, key: list[str]) -> catalog_pb2.Column:
    found = COLUMN.fullmatch(text.strip())
    if found is None:
        raise usage_failure(
            f"--columns: `{text.strip()}` is not a column", next_step='write: --columns "id bigint not null, day date"'
        )
    nullable = found["not_null"] is None and found["name"] not in key
    return catalog_pb2.Column(name=found["name"], type=found["type"].strip().lower(), nullable=nullable)


def split_outside_brackets(text: str) -> list[str]:
    """At commas, those inside of decimal(10,2) or struct<a: int, b: int> apart."""
    parts, depth = [""], 0
    for each in text:
        depth += (each in "(<") - (each in ")>")
        if each == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += each
    return parts


def alter_arguments(parser: Parser) -> None:
    add_table(parser)
    parser.add("--set", action="append", type=pair, default=[], metavar="NAME=VALUE", help="Set a property.")
    parser.add("--unset", action="append", default=[], metavar="NAME", help="Remove a property.")
    parser.add(
        "--profile", choices=PROFILES, metavar="NAME", help=f"Judge its commits by other rules: {PROFILES_TEXT}."
    )
    parser.add("--comment", metavar="TEXT", help="A new comment.")
    parser.add("--add-feature", action="append", default=[], metavar="NAME", help="Turn a feature on.")
    parser.add("--remove-feature", action="append", default=[], metavar="NAME", help="Turn a feature off.")
    parser.add("--message", "-m", default="", metavar="TEXT", help="What for, as history shows it.")


def run_alter(session: Session, args: Arguments) -> None:
    alteration = common_pb2.Alteration(
        set_properties=dict(args.set),
        remove_properties=args.unset,
        profile=args.profile,
        comment=args.comment,
        add_features=args.add_feature,
        remove_features=args.remove_feature,
    )
    if alteration == common_pb2.Alteration():
        raise usage_failure("nothing to alter", next_step="say what: --set NAME=VALUE, --profile, --comment, …")
    table = find_table(session.client, args.table)
    answer = session.client.alter_table(table.table_id, alteration, commit_message=args.message)
    if session.as_json:
        session.show_json(answer)
    session.done(f"{table.name} is altered: version {answer.version}")


def drop_arguments(parser: Parser) -> None:
    parser.add("tables", nargs="+", metavar="TABLE", help="Names or ids of tables.", completes=TABLE)
    add_yes(parser)


def run_drop(session: Session, args: Arguments) -> None:
    """All are looked up before the first is dropped: a misspelt name drops nothing."""
    client = session.client
    tables = [find_table(client, each) for each in dict.fromkeys(args.tables)]
    would_end = {table.name: client.drop_table(table.table_id, validate_only=True) for table in tables}
    what = ", ".join(
        f"{name} (its {ended} open transactions end)" if ended else name for name, ended in would_end.items()
    )
    if args.dry_run:
        if session.as_json:
            session.show_json([{"table": name, "ended_transactions": ended} for name, ended in would_end.items()])
        else:
            session.say(f"would drop {what}")
        return
    session.confirm(f"Drop {what}?", yes=args.yes)
    ended_by = {table.name: client.drop_table(table.table_id) for table in tables}
    if session.as_json:
        session.show_json([{"table": name, "ended_transactions": ended} for name, ended in ended_by.items()])
    for name in ended_by:
        session.done(f"{name} is dropped")


COMMAND = Command(
    "table",
    "Look at tables, make, alter and drop them.",
    commands=(
        Command("list", "List the tables, by name.", run_list, list_arguments),
        Command("show", "Show a table: columns, key, partitions, settings.", run_show, add_table),
        Command(
            "create",
            "Make a table.",
            run_create,
            create_arguments,
            details='laketx table create shop.orders --columns "id bigint, day date, amount decimal(10,2)" '
            "--key id --partition-by day",
        ),
        Command("alter", "Alter properties, profile, comment or features.", run_alter, alter_arguments),
        Command("drop", "Drop tables; their open transactions end.", run_drop, drop_arguments),
    ),
)
