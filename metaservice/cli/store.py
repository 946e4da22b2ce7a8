"""`laketx store`: move a store between a folder and a bucket."""

from __future__ import annotations

import click

from metaservice.cli.command import command, group
from metaservice.cli.output import Session
from metaservice.cli.serve import become

GROUP = group("store", "Move a store between a data folder and a bucket.")


@command("copy", GROUP)
@click.argument("source", metavar="FROM", help="A data folder or s3://bucket/path, on which no service runs.")
@click.argument("target", metavar="TO", help="S3://bucket/path or a data folder; must be missing or empty.")
@click.option(
    "--store-log", metavar="s3://BUCKET", help="Bucket of the copy's write-ahead log (default: the copy's own)."
)
def run_copy(session: Session, source: str, target: str, store_log: str | None) -> None:
    """Copy a store that no service runs on, from a data folder to a bucket or back.

    laketx store copy laketx-data s3://bucket/lake/meta
    The copy is the same store: never run services on both. It ends with 1 if it refuses, with 74 if a store can't be
    used.
    """
    del session
    become("metaservice", "copy", source, target, *(["--store-log", store_log] if store_log else []))
