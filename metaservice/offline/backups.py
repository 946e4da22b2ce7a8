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
    found = parser.parse_args(arguments)
    return ACTIONS[found.action](open_repository(found.repository), found)


def _list(repository: Repository, found: argparse.Namespace) -> int:
    verified = repository.find_verification()
    damaged = 0
    for backup_id in repository.list_ids():
        try:
            one = repository.read(backup_id)
        except BackupUnusable as error:
            damaged += 1
            _say(found.json, {"backup": backup_id, "problem": str(error)}, f"{backup_id}  {error}")
            continue
        mine = verified if verified is not None and verified.backup_id == backup_id else None
        _say(found.json, _facts(one, mine), _line(one, mine))
    return EXIT_REFUSED if damaged else 0


def _facts(one: Stored, verified: Verification | None) -> dict[str, object]:
    manifest = one.manifest
    return {
        "backup": one.backup_id,
        "begin_time_us": manifest.begin_us,
        "end_time_us": manifest.end_us,
        "history_epoch": manifest.epoch,
        "tables": len(manifest.heads),
        "files": len(manifest.files),
        "bytes": manifest.size_bytes,
        "verified": asdict(verified) if verified is not None else None,
    }


def _line(one: Stored, verified: Verification | None) -> str:
    manifest = one.manifest
    moment = datetime.fromtimestamp(manifest.begin_us / 1_000_000, UTC).isoformat(" ", "seconds")
    said = f"{one.backup_id}  {moment}  {len(manifest.heads)} tables  {manifest.size_bytes} bytes  {manifest.epoch}"
    if verified is None:
        return said
    return f"{said}  {'verified' if not verified.problem else verified.problem}"


def _delete(repository: Repository, found: argparse.Namespace) -> int:
    if not found.backup:
        raise invalid("BACKUP_ID_MISSING", repository=repository.name)
    return _free(repository, found, found.backup)


def _prune(repository: Repository, found: argparse.Namespace) -> int:
    if found.keep < 1:
        raise invalid("BACKUP_KEEP_INVALID", keep=found.keep)
    return _free(repository, found, plan_prune(repository.list_ids(), found.keep))


def _free(repository: Repository, found: argparse.Namespace, gone: Sequence[str]) -> int:
    mark = backup_id_at(RealClocks().now_us(), f"{found.action} {id(found)}")
    freed = repository.delete(mark, gone, dry_run=found.dry_run)
    _say(found.json, asdict(freed), _freed_text(freed, found.dry_run))
    return 0


def _freed_text(freed: Freed, dry_run: bool) -> str:
    did = "would delete" if dry_run else "deleted"
    names = f": {', '.join(freed.backup_ids)}" if freed.backup_ids else ""
    return f"{did} {len(freed.backup_ids)} backups and {freed.files} files, {freed.size_bytes} bytes{names}"


def _verify(repository: Repository, found: argparse.Namespace) -> int:
    with contextlib.suppress(OSError):
        os.nice(NICENESS)  # beside a service that runs
    backup_id = found.backup[0] if found.backup else (repository.list_ids() or [""])[-1]
    with tempfile.TemporaryDirectory(prefix="laketx-verify-", dir=found.scratch) as scratch:
        problem, tables = _problem_of(repository, backup_id, Path(scratch) / "data")
    verification = Verification(backup_id, RealClocks().now_us(), problem)
    try:
        repository.put_verification(verification)
    except OSError as error:  # it may be readable only
        sys.stderr.write(printable(f"the result is not recorded in the repository: {error}") + "\n")
    _say(found.json, asdict(verification), f"{backup_id}: {problem or f'{tables} tables can be restored'}")
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
