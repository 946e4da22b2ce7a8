"""`laketx changes`: what the commits between two versions added and removed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import click

from metaservice.cli.command import command
from metaservice.cli.files import COLUMNS as FILE_COLUMNS
from metaservice.cli.files import cells
from metaservice.cli.find import find_table, read_condition
from metaservice.cli.kinds import OneOf
from metaservice.cli.output import Column, Row, Session
from metaservice.cli.parameters import range_options, table_argument
from metaservice.cli.values import types_of, word
from protos.laketx.v1 import common_pb2, read_pb2

MODES = {"log": read_pb2.CHANGES_MODE_LOG, "difference": read_pb2.CHANGES_MODE_DIFFERENCE}
COLUMNS = (
    Column("version", right=True),
    Column("operation", rank=1),
    Column(""),
    *(column for column in FILE_COLUMNS if column.name != "added"),
)
ADDED_AT = [column.name for column in FILE_COLUMNS].index("added")


@command("changes")
@table_argument
@range_options
@click.option(
    "--mode",
    type=OneOf(list(MODES)),
    default="log",
    help="log: commit by commit (the default); difference: what differs between the two ends.",
)
@click.option("--where", metavar="COND", help="Only partitions that may match; see `laketx files`.")
def run(session: Session, table: str, from_version: int, to_version: int | None, mode: str, where: str | None) -> None:
    """List what the commits after a version added (+) and removed (-).

    laketx changes shop.orders --from 41
    laketx changes shop.orders --from 41 --to 50 --mode difference -o json
    Compactions and ALTERs don't appear in the log; in a difference, a compaction appears as changed files. With `-o
    json` it prints one document a line, each with the commit that its entries belong to.
    """
    meta = find_table(session.client, table)
    if to_version is not None:
        meta = session.client.get_table(table_id=meta.table_id, version=to_version)
    predicate = read_condition(meta, where) if where is not None else None
    parts = session.client.plan_changes(meta.table_id, from_version, to_version, predicate=predicate, mode=MODES[mode])
    if session.as_json:
        session.show_json_lines(parts)
    else:
        session.show_rows(COLUMNS, rows(parts, types_of(meta)))


def rows(parts: Iterable[read_pb2.PlanChangesResponse], types: Mapping[str, str]) -> Iterator[Row]:
    for part in parts:
        is_commit = part.HasField("version")
        version: object = part.version.version if is_commit else ""
        operation = word(common_pb2.Operation.Name, part.version.operation) if is_commit else ""
        for sign, entries in (("-", part.removed), ("+", part.added)):
            for entry in entries:
                texts = list(cells(entry, types))
                added = texts.pop(ADDED_AT)
                yield (version if is_commit else added, operation, sign, *texts)
