"""`laketx restore` of a folder that no service runs on."""

from __future__ import annotations

import click

from metaservice.cli.command import command
from metaservice.cli.kinds import FILE
from metaservice.cli.output import Session
from metaservice.cli.serve import become


@command("restore")
@click.option("--backup", required=True, type=FILE, help="Folder of the backup.")
@click.option("--data", required=True, type=FILE, help="New data folder to make.")
@click.option("--no-check", is_flag=True, help="Skip the check of the restored store.")
@click.option("--dry-run", is_flag=True, help="Only check the backup and the free space.")
def run(session: Session, backup: str, data: str, no_check: bool, dry_run: bool) -> None:
    """Make a new data folder from a backup, with a new history; needs no running service.

    laketx restore --backup data-backups/2026-11-21 --data restored
    Then `laketx serve --data restored`. It ends with 1 if it refuses, with 74 if a folder can't be used.
    """
    del session
    flags = [name for name, given in (("--no-check", no_check), ("--dry-run", dry_run)) if given]
    become("metaservice", "restore", "--backup", backup, "--data", data, *flags)
