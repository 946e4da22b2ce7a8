"""`laketx backup` of a service that runs, and `laketx restore` of a folder that none runs on."""

from __future__ import annotations

import os
import sys

from metaservice.cli.command import FILE, Arguments, Command, Parser
from metaservice.cli.output import Session
from metaservice.cli.values import size_text


def backup_arguments(parser: Parser) -> None:
    parser.add("path", metavar="PATH", help="A folder on the server that is not there yet, below its --backup-root.")
    parser.add("--dry-run", action="store_true", help="Only check the place and the room.")


def run_backup(session: Session, args: Arguments) -> None:
    made = session.client.backup(args.path, validate_only=args.dry_run)
    if session.as_json:
        session.show_json(made)
    elif args.dry_run:
        session.say(f"would copy {size_text(made.bytes)} to {made.path}")
    else:
        took_s = (made.end_time_us - made.begin_time_us) / 1_000_000
        session.done(
            f"{made.tables} tables, {size_text(made.bytes)} in {took_s:.1f} s to {made.path}; "
            f"commits waited {made.stalled_us / 1_000:.0f} ms"
        )


def restore_arguments(parser: Parser) -> None:
    parser.add("--backup", required=True, metavar="PATH", help="Folder of the backup.", completes=FILE)
    parser.add("--data", required=True, metavar="PATH", help="Data folder to make: not there yet.", completes=FILE)
    parser.add("--no-check", action="store_true", help="Take the restored store as it is.")
    parser.add("--dry-run", action="store_true", help="Only check the backup and the room.")


def run_restore(session: Session, args: Arguments) -> int:
    del session
    flags = [name for name, given in (("--no-check", args.no_check), ("--dry-run", args.dry_run)) if given]
    become("restore", "--backup", args.backup, "--data", args.data, *flags)
    return 0


def become(*words: str) -> None:
    """Work on a folder is the service's part: this process becomes it."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "metaservice", *words])  # noqa: S606  # this Python, no shell


BACKUP = Command(
    "backup",
    "Copy the store to a folder on the server while commits go on.",
    run_backup,
    backup_arguments,
    details="laketx backup 2026-11-21",
)
RESTORE = Command(
    "restore",
    "Make a data folder from a backup, with a new history; no service runs on it.",
    run_restore,
    restore_arguments,
    details=(
        "laketx restore --backup data-backups/2026-11-21 --data restored\n"
        "Then `laketx serve --data restored`. Ends with 1 where it refuses, with 74 where a folder can't be used."
    ),
)
