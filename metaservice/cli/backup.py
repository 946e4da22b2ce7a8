"""`laketx backup` of a service that runs."""

from __future__ import annotations

import click

from metaservice.cli.command import command
from metaservice.cli.output import Session
from metaservice.cli.values import size_text


@command("backup")
@click.argument("path", help="A new folder on the server, below its --backup-root.")
@click.option("--dry-run", is_flag=True, help="Only check the place and the free space.")
def run(session: Session, path: str, dry_run: bool) -> None:
    """Copy the store to a folder on the server while commits go on.

    laketx backup 2026-11-21
    """
    made = session.client.backup(path, validate_only=dry_run)
    if dry_run:
        session.show_answer(made, f"would copy {size_text(made.bytes)} to {made.path}")
        return
    took_s = (made.end_time_us - made.begin_time_us) / 1_000_000
    session.done(
        f"{made.tables} tables, {size_text(made.bytes)} in {took_s:.1f} s to {made.path}; "
        f"commits waited {made.stalled_us / 1_000:.0f} ms",
        made,
    )
