"""`laketx storage-key`: a temporary key of S3 for the files of one table."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import click

from metaservice.cli.command import command
from metaservice.cli.find import find_table
from metaservice.cli.output import Session
from metaservice.cli.parameters import table_argument
from metaservice.cli.values import when

SECOND_US = 1_000_000


@command("storage-key")
@table_argument
@click.option("--write", is_flag=True, help="A key that writes and deletes files, too.")
def run(session: Session, table: str, write: bool) -> None:
    """Get a temporary key for the files of a table on S3, in the format of AWS's tools.

    laketx storage-key shop.orders
    In ~/.aws/config:  credential_process = laketx --server laketxs://meta:7070 storage-key shop.orders
    """
    meta = find_table(session.client, table)
    made = session.client.storage_credentials(meta.table_id, write=write)
    deed = "reads and writes" if write else "reads"
    session.note(f"it {deed} {made.location}, until {when(made.expire_time_us)}")
    expires = datetime.fromtimestamp(made.expire_time_us // SECOND_US, UTC)
    answer = {
        "Version": 1,
        "AccessKeyId": made.access_key_id,
        "SecretAccessKey": made.secret_access_key,
        "SessionToken": made.session_token,
        "Expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    click.echo(json.dumps(answer, indent=1))
