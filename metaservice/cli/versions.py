"""`laketx versions`: the timeline of a table, with both of its versions."""

from __future__ import annotations

import argparse
from itertools import islice

from metaservice.cli.command import Arguments, Command, Parser, add_limit, add_table, whole
from metaservice.cli.find import find_table
from metaservice.cli.output import Column, Row, Session
from metaservice.cli.values import read_time_us, when, word
from metaservice.cli.versioned import VERSION_MAX
from protos.laketx.v1 import common_pb2, read_pb2

OPERATIONS = [name.removeprefix("OPERATION_").lower() for name in common_pb2.Operation.keys()[1:]]
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
    parser.add("--by", default="", metavar="NAME", help="Only those that this user made.")
    parser.add("--client", default="", metavar="NAME", help="Only those that this program made.")
    parser.add(
        "--operation", action="append", choices=OPERATIONS, default=[], help="Only of this kind; may stand repeatedly."
    )
    parser.add("--logical", action="store_true", help="Only those that changed data for a reader.")
    parser.add("--message", "-m", default="", metavar="TEXT", help="Only with this in the message, whatever the case.")
    parser.add(
        "--property",
        action="append",
        type=named,
        default=[],
        metavar="NAME[=VALUE]",
        help="Only with this property, of this or any value.",
    )
    number = whole(0, VERSION_MAX)
    parser.add("--from", type=number, metavar="N", dest="from_version", help="From this version on.")
    parser.add("--to", type=number, metavar="N", dest="to_version", help="Up to this version.")
    parser.add("--since", metavar="TIME", help='From this time on: "2026-11-21 15:04:05" (UTC), "10m ago".')
    parser.add("--until", metavar="TIME", help="Up to this time.")


def run(session: Session, args: Arguments) -> None:
    table = find_table(session.client, args.table)
    wanted = wanted_versions(session, args)
    pages = session.client.list_versions(table.table_id, wanted=wanted, page_size=min(args.limit, 500))
    listed = islice(pages, args.limit)
    if session.as_json:
        session.show_json(list(listed))
    else:
        session.show_rows(COLUMNS, map(row, listed))


def named(text: str) -> tuple[str, str]:
    """NAME=VALUE, or NAME alone."""
    name, _, value = text.partition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"`{text}` is not NAME or NAME=VALUE")
    return name, value


def wanted_versions(session: Session, args: Arguments) -> read_pb2.VersionFilter | None:
    """None where every commit is wanted."""

    def time_us(text: str | None) -> int | None:
        return read_time_us(text, session.now_us()) if text is not None else None

    wanted = read_pb2.VersionFilter(
        principal=args.by,
        client=args.client,
        operations=[common_pb2.Operation.Value(f"OPERATION_{each.upper()}") for each in args.operation],
        logical_only=args.logical,
        message_contains=args.message,
        properties=dict(args.property),
        from_version=args.from_version,
        to_version=args.to_version,
        from_time_us=time_us(args.since),
        to_time_us=time_us(args.until),
    )
    return wanted if wanted != read_pb2.VersionFilter() else None


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
        'laketx versions shop.orders --by ana --operation overwrite --message monday --since "2d ago"\n'
        "Every commit has an ID version; those that change data for a reader have a time version too.\n"
        "`rebased` is how many commits of others it was moved over."
    ),
)
