"""`laketx diff`: what is live at one version of a table and not at another."""

from __future__ import annotations

from metaservice.cli.command import Arguments, Command, Parser, add_table, whole
from metaservice.cli.files import cells
from metaservice.cli.find import find_table, find_version
from metaservice.cli.output import Column, Session
from metaservice.cli.versioned import VERSION_MAX
from metaservice.client import MetaClient
from protos.laketx.v1 import common_pb2

Entries = dict[str, common_pb2.LiveEntry]
COLUMNS = (
    Column(""),
    Column("kind", rank=2),
    Column("partition", folds=True),
    Column("bucket", rank=3, right=True),
    Column("rows", right=True),
    Column("bytes", rank=1, right=True),
    Column("added", rank=4, right=True),
    Column("path", folds=True),
)


def arguments(parser: Parser) -> None:
    add_table(parser)
    number = whole(0, VERSION_MAX)
    parser.add("--from", type=number, required=True, metavar="N", dest="from_version", help="An ID version.")
    parser.add("--to", type=number, metavar="N", dest="to_version", help="An ID version; default: the newest.")


def run(session: Session, args: Arguments) -> None:
    client = session.client
    table = find_table(client, args.table)
    to_version = find_version(session, table.table_id, args.to_version, None)
    before = live_at(client, table.table_id, args.from_version)
    after = live_at(client, table.table_id, to_version)
    removed = [entry for path, entry in before.items() if path not in after]
    added = [entry for path, entry in after.items() if path not in before]
    if session.as_json:
        session.show_json(
            {
                "table": table.name,
                "from": args.from_version,
                "to": to_version,
                "added": added,
                "removed": removed,
            }
        )
        return
    rows = [*(("-", *cells(entry)) for entry in removed), *(("+", *cells(entry)) for entry in added)]
    session.show_rows(COLUMNS, rows)
    session.note(
        f"{table.name} from {args.from_version} to {to_version}: "
        f"+{len(added)} files -{len(removed)}, +{rows_of(added)} rows -{rows_of(removed)}"
    )


def live_at(client: MetaClient, table_id: str, version: int) -> Entries:
    """By path; delete sets among them."""
    entries = client.list_files(table_id, version=version)
    return {entry.file.path or entry.delete_set.path: entry for entry in entries}


def rows_of(entries: list[common_pb2.LiveEntry]) -> int:
    return sum(entry.file.rows for entry in entries)


COMMAND = Command(
    "diff",
    "Compare what is live at two versions of a table.",
    run,
    arguments,
    details="`+` is live at --to alone, `-` at --from alone; what came and went between them is in neither.",
)
