"""`laketx backup`: copies of the store, made by the service; and what a repository of them holds, without it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import click

from metaservice.cli.command import Group, command, group
from metaservice.cli.kinds import FILE, whole
from metaservice.cli.output import Session
from metaservice.cli.serve import become
from metaservice.cli.values import size_text
from metaservice.client import MetaServiceError

LOOK_S = 1.0
MAKE = "make"


class Making(Group):
    """Treats a word that is no command as a place: `laketx backup s3://bucket/path` makes a backup there."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        is_command = not args or args[0].startswith("-") or args[0] in self.commands or ctx.resilient_parsing
        return super().resolve_command(ctx, args if is_command else [MAKE, *args])


GROUP = group("backup", "Make, list, verify and delete backups of the store.", Making)


@command(MAKE, GROUP)
@click.argument(
    "place",
    required=False,
    default="",
    help="Repository, s3://bucket/path or file:///folder; or a new folder below --backup-root; default: --backup-to.",
)
@click.option("--full", is_flag=True, help="Upload all files, also those that the repository already has.")
@click.option("--dry-run", is_flag=True, help="Only check the place and the free space.")
def run_make(session: Session, place: str, full: bool, dry_run: bool) -> None:
    """Copy the store while commits continue, to a repository of backups or to a folder on the server.

    laketx backup s3://bucket/backups
    laketx backup 2026-11-21
    The word `make` can be left out before a place. Only files that the repository lacks are uploaded.
    """
    with _progress(session, silent=dry_run):
        made = session.client.backup(place, validate_only=dry_run, full=full)
    if dry_run:
        session.show_answer(made, f"would copy {size_text(made.bytes)} to {made.path}")
        return
    took_s = (made.end_time_us - made.begin_time_us) / 1_000_000
    uploaded = f", {size_text(made.uploaded_bytes)} of them uploaded" if made.backup_id else ""
    session.done(
        f"copied {made.tables} tables, {size_text(made.bytes)}{uploaded}, to {made.path} in {took_s:.1f} s; "
        f"commits waited {made.stalled_us / 1_000:.0f} ms",
        made,
    )


@contextmanager
def _progress(session: Session, *, silent: bool) -> Iterator[None]:
    """Reports the upload's progress from time to time."""
    ended = threading.Event()
    client = session.client

    def look() -> None:
        noted_bytes = -1
        while not ended.wait(LOOK_S):
            try:
                backup = client.get_status().backup
            except MetaServiceError:
                continue
            if backup.transfer_bytes and backup.transferred_bytes != noted_bytes:
                noted_bytes = backup.transferred_bytes
                session.note(f"{size_text(noted_bytes)} of {size_text(backup.transfer_bytes)} uploaded …")

    looking = threading.Thread(target=look, daemon=True)
    if not silent:
        looking.start()
    try:
        yield
    finally:
        ended.set()
        if looking.is_alive():
            looking.join()


repository_argument = click.argument("repository", help="The repository: s3://bucket/path or file:///folder.")


@command("list", GROUP)
@repository_argument
def run_list(session: Session, repository: str) -> None:
    """List the backups of a repository, oldest first; needs no running service.

    laketx backup list s3://bucket/backups
    It ends with 1 if a manifest can't be read.
    """
    _become(session, "list", repository)


@command("verify", GROUP)
@repository_argument
@click.option("--backup", metavar="ID", help="Id of the backup (default: the newest).")
@click.option("--scratch", type=FILE, help="Folder for the temporary store (default: the system's).")
def run_verify(session: Session, repository: str, backup: str | None, scratch: str | None) -> None:
    """Restore a backup into a temporary folder, check it and compare it with its manifest; needs no running service.

    laketx backup verify s3://bucket/backups
    It ends with 1 if the backup can't be restored as it was made.
    """
    _become(session, "verify", repository, backup=backup, scratch=scratch)


@command("prune", GROUP)
@repository_argument
@click.option("--keep", required=True, type=whole(1, 1_000_000), help="Number of newest backups to keep.")
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
def run_prune(session: Session, repository: str, keep: int, dry_run: bool) -> None:
    """Delete all but the newest backups, and the files that no remaining backup uses; needs no running service.

    laketx backup prune s3://bucket/backups --keep 30
    Files that a backup left behind when it was cut off are deleted too.
    """
    _become(session, "prune", repository, dry_run=dry_run, keep=str(keep))


@command("delete", GROUP)
@repository_argument
@click.argument("backup", metavar="ID", help="Id of the backup, as `laketx backup list` shows it.")
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
def run_delete(session: Session, repository: str, backup: str, dry_run: bool) -> None:
    """Delete one backup, and the files that no other backup uses; needs no running service.

    laketx backup delete s3://bucket/backups 01a20627-651c-7231-9a3c-e4eb132cf76f
    """
    _become(session, "delete", repository, dry_run=dry_run, backup=backup)


def _become(session: Session, action: str, repository: str, *, dry_run: bool = False, **options: str | None) -> None:
    words = [word for name, value in options.items() if value for word in (f"--{name}", value)]
    flags = [name for name, given in (("--dry-run", dry_run), ("--json", session.as_json)) if given]
    become("metaservice", "backups", action, repository, *words, *flags)
