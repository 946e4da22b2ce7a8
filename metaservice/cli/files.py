"""`laketx files`: what is live at a version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from metaservice.cli.command import Arguments, Command, Parser, add_table, pair, whole
from metaservice.cli.failures import did_you_mean, usage_failure
from metaservice.cli.find import find_table, find_version
from metaservice.cli.output import Column, Row, Session
from metaservice.cli.values import partition_text, value_text, word
from metaservice.cli.versioned import add_version
from protos.laketx.v1 import catalog_pb2, common_pb2

COLUMNS = (
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
    add_version(parser)
    parser.add(
        "--partition",
        action="append",
        type=pair,
        default=[],
        metavar="COLUMN=VALUE",
        help="Only of this partition; once for each column.",
    )
    parser.add("--limit", type=whole(1, 1 << 40), metavar="N", help="At most so many; default: all.")


def run(session: Session, args: Arguments) -> None:
    table = find_table(session.client, args.table)
    check_partition(table, args.partition)
    version = find_version(session, table.table_id, args.version, args.at)
    entries = of_partition(session.client.list_files(table.table_id, version=version), args.partition)
    listed = islice(entries, args.limit)
    if session.as_json:
        session.show_json_lines(listed)
    else:
        session.show_rows(COLUMNS, map(cells, listed))


def check_partition(table: catalog_pb2.Table, wanted: Iterable[tuple[str, str]]) -> None:
    for column, _ in wanted:
        if column not in table.partition_columns:
            known = list(table.partition_columns)
            raise usage_failure(
                f"{table.name} is not partitioned by `{column}`",
                next_step=did_you_mean(column, known) or f"its partition columns: {', '.join(known) or 'none'}",
            )


def of_partition(
    entries: Iterable[common_pb2.LiveEntry], wanted: Iterable[tuple[str, str]]
) -> Iterator[common_pb2.LiveEntry]:
    asked = dict(wanted)
    for entry in entries:
        values = {each.column: value_text(each.value) for each in partition_of(entry).values}
        if all(values.get(column) == value for column, value in asked.items()):
            yield entry


def partition_of(entry: common_pb2.LiveEntry) -> common_pb2.Partition:
    return entry.file.partition if entry.HasField("file") else entry.delete_set.partition


def cells(entry: common_pb2.LiveEntry) -> Row:
    """In the order of COLUMNS."""
    file, hidden = entry.file, entry.delete_set
    is_file = entry.HasField("file")
    return (
        kind_of(entry),
        partition_text(partition_of(entry)),
        file.bucket if is_file else "",
        file.rows if is_file else hidden.rows,
        file.bytes if is_file else hidden.bytes,
        entry.added_version,
        file.path if is_file else hidden.path,
    )


def kind_of(entry: common_pb2.LiveEntry) -> str:
    if not entry.HasField("file"):
        return "delete set"
    return word(common_pb2.FileKind.Name, entry.file.kind) if entry.file.kind else "data"


COMMAND = Command(
    "files",
    "List the files that are live at a version.",
    run,
    arguments,
    details="With `-o json` a document a line. `added` is the version that made the file live.",
)
