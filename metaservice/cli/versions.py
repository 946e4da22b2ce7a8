"""`laketx versions`: the timeline of a table, with both of its versions."""

from __future__ import annotations

from itertools import islice

from metaservice.cli.command import Arguments, Command, Parser, add_limit, add_table
from metaservice.cli.find import find_table
from metaservice.cli.output import Column, Row, Session
from metaservice.cli.values import when, word
from protos.laketx.v1 import common_pb2, read_pb2

COLUMNS = (
    Column("version", right=True),
    Column("time version (UTC)", rank=2),
    Column("operation"),
    Column("who", rank=1),
    Column("+files", right=True),
    Column("-files", right=True),
    Column("+rows", right=True),
    Column("-rows", right=True),
    Column("rebased", rank=3, right=True),
    Column("transaction", rank=5),
    Column("client", rank=6),
    Column("message", rank=4, folds=True),
)


def arguments(parser: Parser) -> None:
    add_table(parser)
    add_limit(parser)


def run(session: Session, args: Arguments) -> None:
    table = find_table(session.client, args.table)
    pages = session.client.list_versions(table.table_id, page_size=min(args.limit, 500))
    listed = islice(pages, args.limit)
    if session.as_json:
        session.show_json(list(listed))
    else:
        session.show_rows(COLUMNS, map(row, listed))


def row(version: read_pb2.Version) -> Row:
    return (
        version.version,
        when(version.time_version_us) if version.HasField("time_version_us") else "-",
        word(common_pb2.Operation.Name, version.operation),
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


COMMAND = Command(
    "versions",
    "List the versions of a table, newest first.",
    run,
    arguments,
    details=(
        "Every commit has an ID version; those that change data for a reader have a time version too.\n"
        "`rebased` is how many commits of others it was moved over."
    ),
)
