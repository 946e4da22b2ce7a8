"""`laketx versions`: the timeline of a table, with both of its versions."""

from __future__ import annotations

from itertools import islice
from typing import TypedDict, Unpack

import click

from metaservice.cli.command import command
from metaservice.cli.find import find_table
from metaservice.cli.kinds import TIME, VERSION, OneOf, Pair
from metaservice.cli.output import Column, Row, Session
from metaservice.cli.parameters import limit_option, table_argument
from metaservice.cli.values import when, word
from protos.laketx.v1 import common_pb2, read_pb2

OPERATIONS = [name.removeprefix("OPERATION_").lower() for name in common_pb2.Operation.keys()[1:]]
COLUMNS = (
    Column("version", right=True),
    Column("time version (UTC)"),
    Column("operation"),
    Column("who", rank=1),
    Column("+files", rank=2, right=True),
    Column("-files", rank=2, right=True),
    Column("+rows", right=True),
    Column("-rows", right=True),
    Column("rebased", rank=3, right=True),
    Column("transaction", rank=5, is_id=True),
    Column("client", rank=6),
    Column("message", rank=4, folds=True),
)


class Matching(TypedDict):
    """Options that select versions."""

    by: str
    client: str
    operation: tuple[str, ...]
    logical: bool
    message: str
    property: tuple[tuple[str, str], ...]
    from_version: int | None
    to_version: int | None
    from_time_us: int | None
    to_time_us: int | None


@command("versions")
@table_argument
@limit_option()
@click.option("--by", default="", metavar="NAME", help="Only commits by this user.")
@click.option("--client", default="", metavar="NAME", help="Only commits by this program.")
@click.option(
    "--operation",
    multiple=True,
    type=OneOf(OPERATIONS),
    metavar="KIND",
    help=f"Only commits of this kind: {', '.join(OPERATIONS)}; may be repeated.",
)
@click.option("--logical", is_flag=True, help="Only commits that changed data for a reader.")
@click.option("--message", "-m", default="", help="Only commits whose message contains this, in any case.")
@click.option(
    "--property",
    multiple=True,
    type=Pair(value_may_lack=True),
    help="Only commits with this property, or with this value of it; may be repeated.",
)
@click.option("--from", "from_version", type=VERSION, help="Start at this version.")
@click.option("--to", "to_version", type=VERSION, help="End at this version.")
@click.option(
    "--since", "from_time_us", type=TIME, help='Start at this time: "2026-11-21 15:04:05" (UTC), "10m ago", "now".'
)
@click.option("--until", "to_time_us", type=TIME, help="End at this time.")
def run(session: Session, table: str, limit: int, **matching: Unpack[Matching]) -> None:
    """List the versions of a table, newest first.

    laketx versions shop.orders --by ana --operation overwrite --message monday --since "2d ago"
    Every commit has an ID version; commits that change data for a reader also have a time version. `rebased` is the
    number of other commits that it was rebased over. `insert again` is an INSERT that lost a race and whose files
    another transaction committed: `laketx why` shows both.
    """
    meta = find_table(session.client, table)
    pages = session.client.list_versions(meta.table_id, matching=version_filter(matching), page_size=min(limit, 500))
    session.show_list(COLUMNS, islice(pages, limit), row)


def version_filter(matching: Matching) -> read_pb2.VersionFilter | None:
    """Return the filter of the commits; None for all commits."""
    given = read_pb2.VersionFilter(
        principal=matching["by"],
        client=matching["client"],
        operations=[common_pb2.Operation.Value(f"OPERATION_{each.upper()}") for each in matching["operation"]],
        logical_only=matching["logical"],
        message_contains=matching["message"],
        properties=dict(matching["property"]),
        from_version=matching["from_version"],
        to_version=matching["to_version"],
        from_time_us=matching["from_time_us"],
        to_time_us=matching["to_time_us"],
    )
    return given if given != read_pb2.VersionFilter() else None


def row(version: read_pb2.Version) -> Row:
    return (
        version.version,
        when(version.time_version_us) if version.HasField("time_version_us") else "-",
        word(common_pb2.Operation.Name, version.operation) + (" again" if version.adopt_from else ""),
        version.principal.name,
        version.files_added,
        version.files_removed,
        version.rows_added,
        version.rows_removed,
        version.rebased_over or "",
        version.txn_id,
        version.principal.client,
        version.commit_message,
    )
