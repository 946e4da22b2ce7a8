"""Lists, verifies and deletes the backups of a repository; needs no service."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from metaservice.core.errors import invalid
from metaservice.offline.restore import Noted, RepositoryBackup, verify
from metaservice.offline.stores import EXIT_REFUSED
from metaservice.server.process import RealClocks
from metaservice.shared.terminal import printable
from metaservice.store.backups.folders import BackupUnusable
from metaservice.store.backups.repository import (
    Freed,
    Repository,
    Stored,
    Verification,
    backup_id_at,
    open_repository,
    plan_prune,
)
from metaservice.store.port import StoreUnusable

NICENESS = 10


def run_backups(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="laketx backup", description="Works on a repository of backups.")
    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument("repository", help="s3://bucket/path or file:///folder")
    parser.add_argument("--backup", action="append", default=[], help="a backup's id")
    parser.add_argument("--keep", type=int, default=0, help="number of newest backups to keep")
    parser.add_argument("--scratch", type=Path, help="folder for the temporary store; the system's by default")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be deleted")
    parser.add_argument("--json", action="store_true", help="answer as JSON")
    parsed = parser.parse_args(arguments)
    return ACTIONS[parsed.action](open_repository(parsed.repository), parsed)


def _list(repository: Repository, parsed: argparse.Namespace) -> int:
    verified = repository.find_verification()
    damaged = 0
    for backup_id in repository.list_ids():
        try:
            stored = repository.read(backup_id)
        except BackupUnusable as error:
            damaged += 1
            _say(parsed.json, {"backup": backup_id, "problem": str(error)}, f"{backup_id}  {error}")
            continue
        result = verified if verified is not None and verified.backup_id == backup_id else None
        _say(parsed.json, _facts(stored, result), _line(stored, result))
    return EXIT_REFUSED if damaged else 0


def _facts(stored: Stored, verified: Verification | None) -> dict[str, object]:
    manifest = stored.manifest
    return {
        "backup": stored.backup_id,
        "begin_time_us": manifest.begin_us,
        "end_time_us": manifest.end_us,
        "history_epoch": manifest.epoch,
        "tables": len(manifest.heads),
        "files": len(manifest.files),
        "bytes": manifest.size_bytes,
        "verified": asdict(verified) if verified is not None else None,
    }


def _line(stored: Stored, verified: Verification | None) -> str:
    manifest = stored.manifest
    moment = datetime.fromtimestamp(manifest.begin_us / 1_000_000, UTC).isoformat(" ", "seconds")
    text = f"{stored.backup_id}  {moment}  {len(manifest.heads)} tables  {manifest.size_bytes} bytes  {manifest.epoch}"
    if verified is None:
        return text
    return f"{text}  {'verified' if not verified.problem else verified.problem}"


def _delete(repository: Repository, parsed: argparse.Namespace) -> int:
    if not parsed.backup:
        raise invalid("BACKUP_ID_MISSING", repository=repository.name)
    return _free(repository, parsed, parsed.backup)


def _prune(repository: Repository, parsed: argparse.Namespace) -> int:
    if parsed.keep < 1:
        raise invalid("BACKUP_KEEP_INVALID", keep=parsed.keep)
    return _free(repository, parsed, plan_prune(repository.list_ids(), parsed.keep))


def _free(repository: Repository, parsed: argparse.Namespace, gone: Sequence[str]) -> int:
    mark = backup_id_at(RealClocks().now_us(), f"{parsed.action} {id(parsed)}")
    freed = repository.delete(mark, gone, dry_run=parsed.dry_run)
    _say(parsed.json, asdict(freed), _freed_text(freed, parsed.dry_run))
    return 0


def _freed_text(freed: Freed, dry_run: bool) -> str:
    did = "would delete" if dry_run else "deleted"
    names = f": {', '.join(freed.backup_ids)}" if freed.backup_ids else ""
    return f"{did} {len(freed.backup_ids)} backups and {freed.files} files, {freed.size_bytes} bytes{names}"


def _verify(repository: Repository, parsed: argparse.Namespace) -> int:
    with contextlib.suppress(OSError):
        os.nice(NICENESS)  # beside a service that runs
    backup_id = parsed.backup[0] if parsed.backup else (repository.list_ids() or [""])[-1]
    with tempfile.TemporaryDirectory(prefix="laketx-verify-", dir=parsed.scratch) as scratch:
        problem, tables = _problem_of(repository, backup_id, Path(scratch) / "data")
    verification = Verification(backup_id, RealClocks().now_us(), problem)
    try:
        repository.put_verification(verification)
    except OSError as error:  # it may be readable only
        sys.stderr.write(printable(f"the result is not recorded in the repository: {error}") + "\n")
    _say(parsed.json, asdict(verification), f"{backup_id}: {problem or f'{tables} tables can be restored'}")
    return EXIT_REFUSED if problem else 0


def _problem_of(repository: Repository, backup_id: str, scratch: Path) -> tuple[str, int]:
    try:
        stored = repository.find(backup_id)
    except BackupUnusable as error:
        if error.reason == "BACKUP_MISSING":
            raise
        return str(error), 0
    try:
        return verify(RepositoryBackup(repository, stored, Noted("downloaded")), scratch), len(stored.manifest.heads)
    except StoreUnusable as error:
        return str(error), 0


def _say(as_json: bool, facts: dict[str, object], text: str) -> None:
    sys.stdout.write((json.dumps(facts) if as_json else printable(text)) + "\n")


ACTIONS: dict[str, Callable[[Repository, argparse.Namespace], int]] = {
    "list": _list,
    "verify": _verify,
    "prune": _prune,
    "delete": _delete,
}
