"""`laketx versions`: the timeline of a table, with both of its versions."""

from __future__ import annotations

import click

from metaservice.cli.output import Session, pass_session, when, word
from metaservice.cli.tables import find_table
from protos.laketx.v1 import common_pb2


@click.command()
@click.argument("table")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 10_000), help="At most so many.")
@pass_session
def versions(session: Session, table: str, limit: int) -> None:
    """Lists the versions of TABLE (a name or an id), newest first."""
    found = find_table(session.client, table)
    pages = session.client.list_versions(found.table_id, page_size=min(limit, 500))
    listed = [version for version, _ in zip(pages, range(limit), strict=False)]
    if session.as_json:
        session.show_json(listed)
        return
    session.show_rows(
        ["version", "time version (UTC)", "operation", "who", "+files", "-files", "+rows", "-rows", "rebased over"],
        [
            (
                str(version.version),
                when(version.time_version_us) if version.HasField("time_version_us") else "",
                word(common_pb2.Operation.Name, version.operation),
                version.principal.name,
                str(version.files_added),
                str(version.files_removed),
                str(version.rows_added),
                str(version.rows_removed),
                str(version.rebased_over or ""),
            )
            for version in listed
        ],
        title=found.name,
    )
