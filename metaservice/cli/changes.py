"""`laketx changes`: what the commits between two versions added and removed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from metaservice.cli.command import Arguments, Command, Parser, add_table, whole
from metaservice.cli.files import COLUMNS as FILE_COLUMNS
from metaservice.cli.files import cells
from metaservice.cli.find import find_table, read_condition
from metaservice.cli.output import Column, Row, Session
from metaservice.cli.values import types_of, word
from metaservice.cli.versioned import VERSION_MAX
from protos.laketx.v1 import common_pb2, read_pb2

MODES = {"log": read_pb2.CHANGES_MODE_LOG, "difference": read_pb2.CHANGES_MODE_DIFFERENCE}
COLUMNS = (
    Column("version", right=True),
    Column("operation", rank=1),
    Column(""),
    *(column for column in FILE_COLUMNS if column.name != "added"),
)
ADDED_AT = [column.name for column in FILE_COLUMNS].index("added")


def arguments(parser: Parser) -> None:
    add_table(parser)
    add_range(parser)
    parser.add(
        "--mode",
        choices=list(MODES),
        default="log",
        help="Commit by commit, or what the two ends differ by (default log).",
    )
    parser.add("--where", metavar="COND", help="Only partitions that may match; see `laketx files`.")


def add_range(parser: Parser) -> None:
    number = whole(0, VERSION_MAX)
    parser.add("--from", type=number, required=True, metavar="N", dest="from_version", help="After this version.")
    parser.add("--to", type=number, metavar="N", dest="to_version", help="Up to this version; default: the newest.")


def run(session: Session, args: Arguments) -> None:
    table = find_table(session.client, args.table)
    if args.to_version is not None:
        table = session.client.get_table(table_id=table.table_id, version=args.to_version)
    predicate = read_condition(table, args.where) if args.where is not None else None
    parts = session.client.plan_changes(
        table.table_id, args.from_version, args.to_version, predicate=predicate, mode=MODES[args.mode]
    )
    if session.as_json:
        session.show_json_lines(parts)
    else:
        session.show_rows(COLUMNS, rows(parts, types_of(table)))


def rows(parts: Iterable[read_pb2.PlanChangesResponse], types: Mapping[str, str]) -> Iterator[Row]:
    for part in parts:
        is_commit = part.HasField("version")
        version: object = part.version.version if is_commit else ""
        operation = word(common_pb2.Operation.Name, part.version.operation) if is_commit else ""
        for sign, entries in (("-", part.removed), ("+", part.added)):
            for entry in entries:
                told = list(cells(entry, types))
                added = told.pop(ADDED_AT)
                yield (version if is_commit else added, operation, sign, *told)


COMMAND = Command(
    "changes",
    "List what the commits after a version added (+) and removed (-).",
    run,
    arguments,
    details=(
        "laketx changes shop.orders --from 41\n"
        "laketx changes shop.orders --from 41 --to 50 --mode difference -o json\n"
        "Compactions and ALTERs don't appear in the log; in a difference a compaction shows as other files.\n"
        "With `-o json` a document a line, each with the commit that its entries belong to."
    ),
)
