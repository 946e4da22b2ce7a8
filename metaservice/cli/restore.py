"""`laketx restore` of a store that no service runs on."""

from __future__ import annotations

import click

from metaservice.cli.command import command
from metaservice.cli.failures import usage_failure
from metaservice.cli.kinds import FILE, TIME
from metaservice.cli.output import Session
from metaservice.cli.serve import become


@command("restore")
@click.argument("repository", required=False, help="Repository of backups: s3://bucket/path or file:///folder.")
@click.option(
    "--backup", metavar="ID", type=FILE, help="The backup's id in the repository (default: the newest), or its folder."
)
@click.option("--at", type=TIME, help="Give tables the content that they had at this time.")
@click.option("--data", required=True, type=FILE, help="Store to make: a new data folder, or s3://bucket/path.")
@click.option(
    "--store-log", metavar="s3://BUCKET", help="Bucket of the store's write-ahead log (default: the store's own)."
)
@click.option("--no-check", is_flag=True, help="Skip the check of the restored store.")
@click.option("--dry-run", is_flag=True, help="Only check the backup and the free space.")
def run(
    session: Session,
    repository: str | None,
    backup: str | None,
    at: int | None,
    data: str,
    store_log: str | None,
    no_check: bool,
    dry_run: bool,
) -> None:
    """Make a new store from a backup, with a new history; needs no running service.

    laketx restore s3://bucket/backups --data restored
    laketx restore s3://bucket/backups --at 2026-11-21T12:00 --data restored
    laketx restore --backup data-backups/2026-11-21 --data restored
    Then `laketx serve --data restored`. --at uses the first backup that began at that time or later, and gives each
    table its content of that time by a RESTORE; without such a backup it uses the newest. It ends with 1 if it refuses,
    with 74 if a store or the storage can't be used.
    """
    if repository is None and (backup is None or at is not None):
        raise usage_failure("name a repository, or with --backup the folder of a backup")
    given = [("--backup", backup), ("--at-us", at), ("--store-log", store_log)]
    words = [word for name, value in given if value is not None for word in (name, str(value))]
    flags = [name for name, is_set in (("--no-check", no_check), ("--dry-run", dry_run)) if is_set]
    as_json = ["--json"] if session.as_json else []
    become("metaservice", "restore", *([repository] if repository else []), "--data", data, *words, *flags, *as_json)
