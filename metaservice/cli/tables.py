"""`laketx tables`: what tables there are. Also finds a table by what a user types."""

from __future__ import annotations

import re

import click

from metaservice.cli.output import Session, pass_session, when
from metaservice.client import MetaClient
from protos.laketx.v1 import catalog_pb2

TABLE_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@click.command()
@click.option("--namespace", default="", help="Only of this namespace.")
@pass_session
def tables(session: Session, namespace: str) -> None:
    """Lists the tables."""
    found = list(session.client.list_tables(namespace=namespace))
    if session.as_json:
        session.show_json(found)
        return
    session.show_rows(
        ["name", "version", "last commit (UTC)", "key", "partitioned by", "buckets", "profile", "id"],
        [
            (
                table.name,
                str(table.head_version),
                when(table.head_commit_time_us),
                ", ".join(table.primary_key),
                ", ".join(table.partition_columns),
                str(table.buckets or ""),
                table.profile,
                table.table_id,
            )
            for table in found
        ],
    )


def find_table(client: MetaClient, name_or_id: str) -> catalog_pb2.Table:
    if TABLE_ID.fullmatch(name_or_id):
        return client.get_table(table_id=name_or_id)
    return client.get_table(name_or_id)
