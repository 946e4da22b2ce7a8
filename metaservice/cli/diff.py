"""`laketx diff`: what is live at one version of a table and not at another."""

from __future__ import annotations

from metaservice.cli.command import command
from metaservice.cli.files import COLUMNS as FILE_COLUMNS
from metaservice.cli.files import cells
from metaservice.cli.find import find_table
from metaservice.cli.output import Column, Session
from metaservice.cli.parameters import range_options, table_argument
from metaservice.cli.values import types_of
from metaservice.client import MetaClient
from protos.laketx.v1 import common_pb2, read_pb2

Entries = list[common_pb2.LiveEntry]
COLUMNS = (Column(""), *FILE_COLUMNS)


@command("diff")
@table_argument
@range_options
def run(session: Session, table: str, from_version: int, to_version: int | None) -> None:
    """Compare what is live at two versions of a table.

    laketx diff shop.orders --from 41 --to 50
    `+` is live only at --to, `-` only at --from; entries that were added and removed in between are not shown.
    """
    client = session.client
    meta = find_table(client, table)
    to_version = client.resolve_version(meta.table_id, version=to_version).version
    added, removed = difference(client, meta.table_id, from_version, to_version)
    if session.as_json:
        session.show_json(
            {"table": meta.name, "from": from_version, "to": to_version, "added": added, "removed": removed}
        )
        return
    types = types_of(meta)
    rows = [*(("-", *cells(entry, types)) for entry in removed), *(("+", *cells(entry, types)) for entry in added)]
    session.show_rows(COLUMNS, rows)
    session.note(
        f"{meta.name} from {from_version} to {to_version}: "
        f"+{len(added)} files -{len(removed)}, +{rows_of(added)} rows -{rows_of(removed)}"
    )


def difference(client: MetaClient, table_id: str, from_version: int, to_version: int) -> tuple[Entries, Entries]:
    """Added and removed; the service wants the older version first."""
    older, newer = sorted((from_version, to_version))
    added: Entries = []
    removed: Entries = []
    for part in client.plan_changes(table_id, older, newer, mode=read_pb2.CHANGES_MODE_DIFFERENCE):
        added += part.added
        removed += part.removed
    return (added, removed) if from_version == older else (removed, added)


def rows_of(entries: Entries) -> int:
    return sum(entry.file.rows for entry in entries)
