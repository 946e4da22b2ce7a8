"""`laketx table`: list, show, create, alter, drop, undrop, schemas."""

from __future__ import annotations

from metaservice.cli import columns
from metaservice.cli.columns import EXAMPLE, read_column, read_columns
from metaservice.cli.command import (
    COLUMN,
    DROPPED_TABLE,
    NAMESPACE,
    TABLE,
    Arguments,
    Command,
    Parser,
    add_table,
    add_yes,
    pair,
    whole,
)
from metaservice.cli.failures import CommandError, Exit, did_you_mean, usage_failure
from metaservice.cli.find import GONE, TABLE_ID, find_table
from metaservice.cli.output import Column, Row, Session
from metaservice.cli.values import properties_text, when
from metaservice.cli.versioned import VERSION_MAX
from metaservice.client import KEY_SCOPE, PROFILE_NAMES, MetaServiceError, key_scope
from protos.laketx.v1 import catalog_pb2, common_pb2

PROFILES = list(PROFILE_NAMES)
PROFILES_TEXT = f"{PROFILES[0]} (the default), {', '.join(PROFILES[1:-1])} or {PROFILES[-1]}"
KEY_SCOPES = {"table": "unique in the table", "partition": "unique within a partition", None: ""}
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

DROPPED_COLUMNS = (
    Column("name"),
    Column("dropped (UTC)", rank=1),
    Column("can come back until (UTC)", rank=2),
    Column("version", rank=3, right=True),
    Column("id"),
)
SCHEMA_COLUMNS = (
    Column("schema", right=True),
    Column("since version", right=True),
    Column("key", rank=1),
    Column("columns", folds=True),
)
COLUMN_CHANGES = (
    ("--add", columns.added, "COLUMN", "Add a column: \"note string\", with comment '…', then first or after NAME."),
    ("--drop", columns.dropped, "NAME", "Drop a column."),
    ("--rename", columns.renamed, "OLD=NEW", "Rename a column; it keeps its id."),
    ("--move", columns.moved, "PLACE", 'Move a column: "note first", "note after day".'),
    ("--widen", columns.widened, "COLUMN", 'Give a column a wider type: "id bigint".'),
    ("--relax", columns.relaxed, "NAME", "Let a column take NULL."),
    ("--comment-column", columns.commented, "NAME=TEXT", "Comment a column."),
)


def list_arguments(parser: Parser) -> None:
    parser.add("--namespace", default="", metavar="NAME", help="Only of this namespace.", completes=NAMESPACE)
    parser.add("--dropped", action="store_true", help="Those that were dropped and can be brought back.")


def run_list(session: Session, args: Arguments) -> None:
    found = list(session.client.list_tables(namespace=args.namespace, include_dropped=args.dropped))
    if args.dropped:
        found = [table for table in found if table.HasField("drop_time_us")]
    if session.as_json:
        session.show_json(found)
    elif args.dropped:
        session.show_rows(DROPPED_COLUMNS, map(dropped_row, found))
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


def dropped_row(table: catalog_pb2.Table) -> Row:
    return table.name, when(table.drop_time_us), when(table.undrop_until_us), table.head_version, table.table_id


def show_arguments(parser: Parser) -> None:
    add_table(parser)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--version", type=whole(0, VERSION_MAX), metavar="N", help="As it was at an ID version.")
    group.add_argument(
        "--schema-version", type=whole(0, VERSION_MAX), metavar="N", help="As of a version of its schema."
    )


def run_show(session: Session, args: Arguments) -> None:
    table = find_table(session.client, args.table)
    if args.version is not None or args.schema_version is not None:
        table = session.client.get_table(
            table_id=table.table_id, version=args.version, schema_version=args.schema_version
        )
    show(session, table)


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
            ("key scope", KEY_SCOPES[key_scope(table)]),
            ("partitioned by", ", ".join(table.partition_columns)),
            ("buckets", table.buckets or ""),
            ("properties", properties_text(table.properties)),
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
    parser.add(
        "column",
        nargs="*",
        metavar="COLUMN",
        help='A column, as in SQL: "id bigint not null", "day date comment \'x\'".',
    )
    parser.add("--columns", metavar="TEXT", help='Columns with commas: "id bigint not null, day date, v string".')
    parser.add(
        "--primary-key",
        "--key",
        dest="key",
        default="",
        metavar="COLUMNS",
        help="Primary key, with commas; default: an append table.",
    )
    parser.add("--partition-by", default="", metavar="COLUMNS", help="Partition columns, with commas.")
    parser.add(
        "--key-scope",
        choices=["table", "partition"],
        metavar="SCOPE",
        help="Where the key is unique: table (the default; it contains the partition columns) or partition.",
    )
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
    parser.add("--if-not-exists", action="store_true", help="No error where the name is taken; that table stays.")
    parser.add(
        "--or-replace", action="store_true", help="Empty and redefine the table that is there; its history stays."
    )
    add_yes(parser)


def run_create(session: Session, args: Arguments) -> None:
    if args.if_not_exists and args.or_replace:
        raise usage_failure("--if-not-exists or --or-replace, not both")
    wanted = wanted_table(args)
    modes = {"if_not_exists": args.if_not_exists, "or_replace": args.or_replace}
    replaces = args.or_replace and is_there(session, args.name)
    checked = session.client.create_table(wanted, validate_only=True, **modes)
    if args.dry_run:
        if session.as_json:
            session.show_json(checked)
        else:
            session.say(f"would {'empty and redefine' if replaces else 'make'} {checked.name}")
        return
    if replaces:
        session.confirm(f"Empty and redefine {args.name}? Older versions stay readable.", yes=args.yes)
    made = session.client.create_table(wanted, **modes)
    if session.as_json:
        session.show_json(made)
    if replaces:
        session.done(f"{made.name} is replaced: version {made.head_version}")
    else:
        session.done(f"{made.name} is {'there' if args.if_not_exists else 'made'} ({made.table_id})")


def is_there(session: Session, name: str) -> bool:
    try:
        session.client.get_table(name)
    except MetaServiceError as error:
        if error.reason not in GONE:
            raise
        return False
    return True


def wanted_table(args: Arguments) -> catalog_pb2.Table:
    key = names_in(args.key)
    wanted = [read_column(text, key) for text in args.column]
    wanted += read_columns(args.columns, key) if args.columns is not None else []
    if not wanted:
        raise usage_failure("a table has columns", next_step=EXAMPLE)
    scope = {KEY_SCOPE: args.key_scope} if args.key_scope else {}
    return catalog_pb2.Table(
        name=args.name,
        columns=wanted,
        partition_columns=names_in(args.partition_by),
        primary_key=key,
        buckets=args.buckets or (1 if key else 0),
        profile=args.profile,
        properties=dict(args.property) | scope,
        features=args.feature,
        comment=args.comment,
    )


def names_in(text: str) -> list[str]:
    return [columns.unquoted(name.strip()) for name in columns.split_outside_brackets(text) if name.strip()]


def alter_arguments(parser: Parser) -> None:
    add_table(parser)
    for name, read, metavar, text in COLUMN_CHANGES:
        parser.add_argument(name, dest="changes", action="append", default=[], type=read, metavar=metavar, help=text)
    parser.completes["changes"] = COLUMN
    parser.add("--set", action="append", type=pair, default=[], metavar="NAME=VALUE", help="Set a property.")
    parser.add("--unset", action="append", default=[], metavar="NAME", help="Remove a property.")
    parser.add(
        "--profile", choices=PROFILES, metavar="NAME", help=f"Judge its commits by other rules: {PROFILES_TEXT}."
    )
    parser.add("--comment", metavar="TEXT", help="A new comment of the table.")
    parser.add("--add-feature", action="append", default=[], metavar="NAME", help="Turn a feature on.")
    parser.add("--remove-feature", action="append", default=[], metavar="NAME", help="Turn a feature off.")
    parser.add("--message", "-m", default="", metavar="TEXT", help="What for, as history shows it.")
    add_yes(parser)


def run_alter(session: Session, args: Arguments) -> None:
    """Asks only where a column goes."""
    alteration = common_pb2.Alteration(
        set_properties=dict(args.set),
        remove_properties=args.unset,
        profile=args.profile,
        comment=args.comment,
        add_features=args.add_feature,
        remove_features=args.remove_feature,
        schema_changes=args.changes,
    )
    if alteration == common_pb2.Alteration():
        raise usage_failure("nothing to alter", next_step="say what: --add, --set NAME=VALUE, --profile, --comment, …")
    table = find_table(session.client, args.table)
    checked = session.client.alter_table(table.table_id, alteration, validate_only=True)
    if args.dry_run:
        show(session, checked.table)
        return
    gone = ", ".join(change.drop.path for change in args.changes if change.HasField("drop"))
    if gone:
        session.confirm(f"Drop {gone} of {table.name}?", yes=args.yes)
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


def rename_arguments(parser: Parser) -> None:
    add_table(parser)
    parser.add("name", metavar="NAME", help='The new name: "table" or "namespace.table".')
    parser.add("--message", "-m", default="", metavar="TEXT", help="What for, as history shows it.")


def run_rename(session: Session, args: Arguments) -> None:
    table = find_table(session.client, args.table)
    renamed = session.client.rename_table(table.table_id, args.name, commit_message=args.message)
    if session.as_json:
        session.show_json(renamed)
    session.done(f"{table.name} is {renamed.name}: version {renamed.head_version}")


def undrop_arguments(parser: Parser) -> None:
    parser.add("table", metavar="TABLE", help="Name or id of a dropped table.", completes=DROPPED_TABLE)


def run_undrop(session: Session, args: Arguments) -> None:
    """By a name the one that was dropped last."""
    table_id = args.table
    if not TABLE_ID.fullmatch(table_id):
        found = session.client.find_dropped_tables(args.table)
        if not found:
            raise no_dropped_table(session, args.table)
        table_id = found[0].table_id
        others = ", ".join(each.table_id for each in found[1:])
        if others:
            session.note(f"dropped earlier under the same name: {others}")
    table = session.client.undrop_table(table_id)
    if session.as_json:
        session.show_json(table)
    session.done(f"{table.name} is back: version {table.head_version}")


def no_dropped_table(session: Session, name: str) -> CommandError:
    dropped = [each.name for each in session.client.list_tables(include_dropped=True) if each.HasField("drop_time_us")]
    hint = did_you_mean(name, dropped) or "`laketx table list --dropped` shows those that can be brought back"
    return CommandError(Exit.NOT_FOUND, "TABLE_UNKNOWN", "no dropped table has that name", {"table": name}, hint)


def run_schemas(session: Session, args: Arguments) -> None:
    table = find_table(session.client, args.table)
    found = session.client.list_schemas(table.table_id)
    if session.as_json:
        session.show_json(list(found))
    else:
        session.show_rows(SCHEMA_COLUMNS, map(schema_row, found))


def schema_row(schema: catalog_pb2.SchemaVersion) -> Row:
    columns = ", ".join(f"{column.name} {column.type}" for column in schema.columns)
    return schema.schema_version, schema.version, ", ".join(schema.primary_key) or "-", columns


COMMAND = Command(
    "table",
    "Look at tables, make, alter and drop them.",
    commands=(
        Command("list", "List the tables, by name.", run_list, list_arguments),
        Command("show", "Show a table: columns, key, partitions, settings.", run_show, show_arguments),
        Command(
            "create",
            "Make a table.",
            run_create,
            create_arguments,
            details=(
                'laketx table create shop.orders "id bigint" "day date" "amount decimal(10,2)" '
                "--primary-key day,id --partition-by day\n"
                "The key contains the partition columns, or --key-scope partition makes it unique within a partition.\n"
                "With --or-replace it asks where a table is there."
            ),
        ),
        Command(
            "alter",
            "Alter columns, properties, profile, comment or features, in one commit.",
            run_alter,
            alter_arguments,
            details=(
                'laketx table alter shop.orders --add "note string after day" --rename pay=salary -m ticket-7\n'
                "laketx table alter shop.orders --set data.retain.hours=48 --dry-run\n"
                "Changes of columns are done in their order. Fields have paths: address.zip, tags.element."
            ),
        ),
        Command(
            "rename",
            "Give a table another name; the old one is free at once.",
            run_rename,
            rename_arguments,
            details="laketx table rename shop.orders shop.sales\nIts id, history, files and readers stay.",
        ),
        Command("drop", "Drop tables; their open transactions end.", run_drop, drop_arguments),
        Command(
            "undrop",
            "Bring a dropped table back, with its history.",
            run_undrop,
            undrop_arguments,
            details="laketx table undrop shop.orders\nOf several dropped ones of a name the one that was dropped last.",
        ),
        Command("schemas", "List the versions of a table's schema, oldest first.", run_schemas, add_table),
    ),
)
