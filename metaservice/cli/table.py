"""`laketx table`: list, show, create, alter, drop, undrop, schemas."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import click

from metaservice.cli import columns
from metaservice.cli.command import BranchedCommand, Command, command, group
from metaservice.cli.failures import CommandError, Exit, did_you_mean, usage_failure
from metaservice.cli.find import TABLE_ID, find_table
from metaservice.cli.kinds import BRANCHED_NAMESPACE, COLUMN, DROPPED_TABLE, MAIN, PAIR, TABLE, VERSION
from metaservice.cli.output import Column, Row, Session
from metaservice.cli.parameters import PROFILES, PROFILES_TEXT, Run, alone, asks, message_option, table_argument
from metaservice.cli.table_definition import run_create
from metaservice.cli.values import properties_text, when
from metaservice.client import key_scope, keys_checked
from protos.laketx.v1 import catalog_pb2, common_pb2

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
COLUMN_CHANGES = {
    "--add": (columns.added, "COLUMN", "Add a column: \"note string\", with comment '…', then first or after NAME."),
    "--drop": (columns.dropped, "NAME", "Drop a column."),
    "--rename": (columns.renamed, "OLD=NEW", "Rename a column; it keeps its id."),
    "--move": (columns.moved, "PLACE", 'Move a column: "note first", "note after day".'),
    "--widen": (columns.widened, "COLUMN", 'Give a column a wider type: "id bigint".'),
    "--relax": (columns.relaxed, "NAME", "Let a column take NULL."),
    "--comment-column": (columns.commented, "NAME=TEXT", "Comment a column."),
}
GROUP = group("table", "List, show, make, alter and drop tables.")


@command("clone", GROUP)
@table_argument
@click.argument("name", metavar="CLONE", help="Name of the clone.")
@click.option("--version", type=VERSION, help="The version that it begins with; default: the newest.")
def run_clone(session: Session, table: str, name: str, version: int | None) -> None:
    """Make a table that begins as another one is, or was at a version. Nothing is copied.

    laketx table clone shop.orders test.orders --version 41
    """
    meta = find_table(session.client, table)
    made = session.client.clone_table(meta.table_id, name, version=version)
    session.done(f"created table {made.name}: a clone of {meta.name}@{made.head_version}", made)


@command("list", GROUP, kind=BranchedCommand)
@click.option("--namespace", default="", type=BRANCHED_NAMESPACE, help="Only tables of this namespace.")
@click.option("--dropped", is_flag=True, help="List dropped tables that can be brought back.")
def run_list(session: Session, namespace: str, dropped: bool) -> None:
    """List the tables, by name.

    laketx table list --namespace shop
    laketx --branch etl table list
    """
    name, _, branch = namespace.partition("@")
    branch = branch if name else session.settings.branch
    if branch.lower() == MAIN:
        branch = ""
    tables = session.client.list_tables(namespace=name, branch=branch, include_dropped=dropped)
    if dropped:
        gone = [table for table in tables if table.HasField("drop_time_us")]
        session.show_list(DROPPED_COLUMNS, gone, dropped_row)
    else:
        session.show_list(COLUMNS, tables, row)


def row(table: catalog_pb2.Table) -> Row:
    return (
        table.name,
        table.head_version,
        when(table.head_commit_time_us),
        ", ".join(table.primary_key) or "-",
        ", ".join(table.partition_columns) or "-",
        table.buckets or "-",
        table.profile,
        table.table_id or "-",
    )


def dropped_row(table: catalog_pb2.Table) -> Row:
    return table.name, when(table.drop_time_us), when(table.undrop_until_us), table.head_version, table.table_id


@command("show", GROUP)
@table_argument
@click.option("--version", type=VERSION, callback=alone, help="As it was at an ID version.")
@click.option("--schema-version", type=VERSION, callback=alone, help="As of a version of its schema.")
def run_show(session: Session, table: str, version: int | None, schema_version: int | None) -> None:
    """Show a table: columns, key, partitions, settings.

    laketx table show shop.orders
    """
    meta = find_table(session.client, table)
    if version is not None or schema_version is not None:
        meta = session.client.get_table(table_id=meta.table_id, version=version, schema_version=schema_version)
    show(session, meta)


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
            ("key scope", _scope_text(table)),
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


def _scope_text(table: catalog_pb2.Table) -> str:
    checked = keys_checked(table)
    if checked is None:
        return KEY_SCOPES[key_scope(table)]
    return f"being checked: unique in the table in {checked[1]} of {table.buckets} buckets (laketx check-keys)"


def column_row(column: catalog_pb2.Column) -> Row:
    return column.column_id, column.name, column.type, _rules(column), column.comment


def _rules(column: catalog_pb2.Column) -> str:
    default = f"default {column.default_sql}" if column.default_sql else ""
    return " ".join(filter(None, ("" if column.nullable else "not null", default)))


GROUP.add_command(run_create)


class Altering(Command):
    """Changes of columns are done in the order in which they stand; Click groups them by their options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        order = [each.partition("=")[0] for each in args]
        rest = super().parse_args(ctx, args)
        changes = {name: iter(ctx.params.pop(key_of(name)) or ()) for name in COLUMN_CHANGES}
        ctx.params["changes"] = [change for name in order if name in changes for change in islice(changes[name], 1)]
        return rest


def key_of(option: str) -> str:
    return option.strip("-").replace("-", "_")


def column_changes(run: Run) -> Run:
    for name, (read, metavar, text) in reversed(COLUMN_CHANGES.items()):
        complete = COLUMN.shell_complete
        run = click.option(
            name, key_of(name), multiple=True, type=read, metavar=metavar, help=text, shell_complete=complete
        )(run)
    return run


@command("alter", GROUP, kind=Altering)
@table_argument
@column_changes
@click.option("--set", "to_set", multiple=True, type=PAIR, help="Set a property.")
@click.option("--unset", multiple=True, metavar="NAME", help="Remove a property.")
@click.option("--profile", type=PROFILES, metavar="NAME", help=f"Change the conflict rules: {PROFILES_TEXT}.")
@click.option("--comment", help="Change the table's comment.")
@click.option("--add-feature", multiple=True, metavar="NAME", help="Turn a feature on.")
@click.option("--remove-feature", multiple=True, metavar="NAME", help="Turn a feature off.")
@message_option
@asks
def run_alter(
    session: Session,
    table: str,
    changes: list[common_pb2.SchemaChange],
    to_set: tuple[tuple[str, str], ...],
    unset: tuple[str, ...],
    profile: str | None,
    comment: str | None,
    add_feature: tuple[str, ...],
    remove_feature: tuple[str, ...],
    message: str,
    yes: bool,
    dry_run: bool,
) -> None:
    """Alter columns, properties, profile, comment or features, in one commit.

    laketx table alter shop.orders --add "note string after day" --rename pay=salary -m ticket-7
    laketx table alter shop.orders --set data.retain.hours=48 --dry-run
    Column changes are made in the order in which you give them. Nested fields have paths: address.zip, tags.element.
    You are asked only before a column is dropped.
    """
    alteration = common_pb2.Alteration(
        set_properties=dict(to_set),
        remove_properties=unset,
        profile=profile,
        comment=comment,
        add_features=add_feature,
        remove_features=remove_feature,
        schema_changes=changes,
    )
    if alteration == common_pb2.Alteration():
        raise usage_failure("nothing to alter", next_step="say what: --add, --set NAME=VALUE, --profile, --comment, …")
    meta = find_table(session.client, table)
    checked = session.client.alter_table(meta.table_id, alteration, validate_only=True)
    if dry_run:
        show(session, checked.table)
        return
    gone = ", ".join(change.drop.path for change in changes if change.HasField("drop"))
    if gone:
        session.confirm(f"Drop {gone} of {meta.name}?", yes=yes)
    answer = session.client.alter_table(meta.table_id, alteration, commit_message=message)
    session.done(f"altered table {meta.name}: version {answer.version}", answer)


@command("rename", GROUP)
@table_argument
@click.argument("name", help='The new name: "table" or "namespace.table".')
@message_option
def run_rename(session: Session, table: str, name: str, message: str) -> None:
    """Rename a table; the old name is free at once.

    laketx table rename shop.orders shop.sales
    Its id, history, files and readers stay.
    """
    meta = find_table(session.client, table)
    renamed = session.client.rename_table(meta.table_id, name, commit_message=message)
    session.done(f"renamed table {meta.name} to {renamed.name}: version {renamed.head_version}", renamed)


@command("drop", GROUP)
@click.argument("tables", metavar="TABLE...", nargs=-1, required=True, type=TABLE, help="Names or ids of tables.")
@asks
def run_drop(session: Session, tables: tuple[str, ...], yes: bool, dry_run: bool) -> None:
    """Drop tables; their open transactions end.

    laketx table drop shop.orders shop.visits
    Every name is checked before the first table is dropped: a misspelt name drops nothing.
    """
    client = session.client
    metas = [find_table(client, each) for each in dict.fromkeys(tables)]
    would_end = {table.name: client.drop_table(table.table_id, validate_only=True) for table in metas}
    what = ", ".join(
        f"{name} (its {ended} open transactions end)" if ended else name for name, ended in would_end.items()
    )
    if not session.agreed("drop", what, ended_json(would_end), yes=yes, dry_run=dry_run):
        return
    ended_by = {table.name: client.drop_table(table.table_id) for table in metas}
    if session.as_json:
        session.show_json(ended_json(ended_by))
    for name in ended_by:
        session.done(f"dropped table {name}")


def ended_json(ended_by: Mapping[str, int]) -> list[dict[str, object]]:
    return [{"table": name, "ended_transactions": ended} for name, ended in ended_by.items()]


@command("undrop", GROUP)
@click.argument("table", type=DROPPED_TABLE, help="Name or id of a dropped table.")
def run_undrop(session: Session, table: str) -> None:
    """Bring a dropped table back, with its history.

    laketx table undrop shop.orders
    If several dropped tables had the name, the one that was dropped last comes back.
    """
    table_id = table
    if not TABLE_ID.fullmatch(table):
        dropped = session.client.find_dropped_tables(table)
        if not dropped:
            raise no_dropped_table(session, table)
        table_id = dropped[0].table_id
        others = ", ".join(each.table_id for each in dropped[1:])
        if others:
            session.note(f"dropped earlier under the same name: {others}")
    back = session.client.undrop_table(table_id)
    session.done(f"undropped table {back.name}: version {back.head_version}", back)


def no_dropped_table(session: Session, name: str) -> CommandError:
    dropped = [each.name for each in session.client.list_tables(include_dropped=True) if each.HasField("drop_time_us")]
    hint = did_you_mean(name, dropped) or "`laketx table list --dropped` shows those that can be brought back"
    return CommandError(Exit.NOT_FOUND, "TABLE_UNKNOWN", "no dropped table has that name", {"table": name}, hint)


@command("schemas", GROUP)
@table_argument
def run_schemas(session: Session, table: str) -> None:
    """List the versions of a table's schema, oldest first.

    laketx table schemas shop.orders
    """
    meta = find_table(session.client, table)
    session.show_list(SCHEMA_COLUMNS, session.client.list_schemas(meta.table_id), schema_row)


def schema_row(schema: catalog_pb2.SchemaVersion) -> Row:
    columns = ", ".join(f"{column.name} {column.type}" for column in schema.columns)
    return schema.schema_version, schema.version, ", ".join(schema.primary_key) or "-", columns
