"""`laketx table create`: the definition of a table, from its options."""

from __future__ import annotations

from typing import TypedDict, Unpack

import click

from metaservice.cli.columns import EXAMPLE, read_columns
from metaservice.cli.command import command
from metaservice.cli.failures import usage_failure
from metaservice.cli.find import GONE
from metaservice.cli.kinds import NEW_TABLE, OneOf, whole
from metaservice.cli.output import Session
from metaservice.cli.parameters import PROFILES, PROFILES_TEXT, alone, asks, comment_option, property_option
from metaservice.client import KEY_SCOPE, MetaServiceError
from metaservice.client.column_texts import split_outside_brackets, unquoted
from protos.laketx.v1 import catalog_pb2


class Definition(TypedDict):
    """Options that say what a table is."""

    column: tuple[str, ...]
    columns: str
    key: str
    partition_by: str
    key_scope: str | None
    buckets: int | None
    profile: str | None
    properties: tuple[tuple[str, str], ...]
    feature: tuple[str, ...]
    comment: str


@command("create")
@click.argument("name", type=NEW_TABLE, help='"table" or "namespace.table".')
@click.argument("column", nargs=-1, help='A column, as in SQL: "id bigint not null", "day date comment \'x\'".')
@click.option("--columns", default="", help='Columns, separated by commas: "id bigint not null, day date, v string".')
@click.option(
    "--primary-key",
    "--key",
    "key",
    default="",
    metavar="COLUMNS",
    help="Columns of the primary key, separated by commas; default: none (an append table).",
)
@click.option("--partition-by", default="", metavar="COLUMNS", help="Partition columns, separated by commas.")
@click.option(
    "--key-scope",
    type=OneOf(["table", "partition"]),
    help="Where the key is unique: table or partition. A key without the partition columns must say it.",
)
@click.option("--buckets", type=whole(1, 65_536), help="Buckets of a table with a key (default 1).")
@click.option("--profile", type=PROFILES, metavar="NAME", help=f"Conflict rules of the table: {PROFILES_TEXT}.")
@property_option
@click.option("--feature", multiple=True, metavar="NAME", help="A feature that readers need; may be repeated.")
@comment_option
@click.option("--if-not-exists", is_flag=True, callback=alone, help="Do nothing if the table exists.")
@click.option(
    "--or-replace", is_flag=True, callback=alone, help="Empty and redefine a table that is there; its history stays."
)
@asks
def run_create(
    session: Session,
    name: str,
    if_not_exists: bool,
    or_replace: bool,
    yes: bool,
    dry_run: bool,
    **definition: Unpack[Definition],
) -> None:
    """Create a table.

    laketx table create shop.orders "id bigint" "day date" "note string" --primary-key day,id --partition-by day
    The key contains the partition columns, or --key-scope says where it is unique.
    --or-replace asks before it empties a table.
    """
    meta = defined_table(name, definition)
    replaces = or_replace and is_there(session, name)
    checked = session.client.create_table(meta, validate_only=True, if_not_exists=if_not_exists, or_replace=or_replace)
    if dry_run:
        session.show_answer(checked, f"would {'replace' if replaces else 'create'} table {checked.name}")
        return
    if replaces:
        session.confirm(f"Empty and redefine {name}? Older versions stay readable.", yes=yes)
    made = session.client.create_table(meta, if_not_exists=if_not_exists, or_replace=or_replace)
    if replaces:
        session.done(f"replaced table {made.name}: version {made.head_version}", made)
    else:
        named = f"{made.name} ({made.table_id})"
        session.done(f"table {named} exists" if if_not_exists else f"created table {named}", made)


def is_there(session: Session, name: str) -> bool:
    try:
        session.client.get_table(name)
    except MetaServiceError as error:
        if error.reason not in GONE:
            raise
        return False
    return True


def defined_table(name: str, definition: Definition) -> catalog_pb2.Table:
    key = names_in(definition["key"])
    columns = [column for text in definition["column"] for column in read_columns(text, key)]
    columns += read_columns(definition["columns"], key) if definition["columns"] else []
    if not columns:
        raise usage_failure("a table has columns", next_step=EXAMPLE)
    scope = {KEY_SCOPE: definition["key_scope"]} if definition["key_scope"] else {}
    return catalog_pb2.Table(
        name=name,
        columns=columns,
        partition_columns=names_in(definition["partition_by"]),
        primary_key=key,
        buckets=definition["buckets"] or (1 if key else 0),
        profile=definition["profile"] or "",
        properties=dict(definition["properties"]) | scope,
        features=definition["feature"],
        comment=definition["comment"],
    )


def names_in(text: str) -> list[str]:
    return [unquoted(name.strip()) for name in split_outside_brackets(text) if name.strip()]
