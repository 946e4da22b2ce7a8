"""Makes a store from a backup: a folder of files, checked, with a history of its own, that gets its name at the end."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.offline.restore_to_time import RolledBack, roll_back
from metaservice.offline.stores import add_store_log, copy_store, list_problems, opened
from metaservice.rpc.convert.payloads import WirePayloads
from metaservice.server.process import RealClocks
from metaservice.server.store_opening import fresh_history_id
from metaservice.service.decider.state import State
from metaservice.service.operate.restoring import begin_history, list_differences
from metaservice.shared.ids import uuid7
from metaservice.shared.log import RESTORED, event
from metaservice.shared.terminal import printable
from metaservice.store.backups import folders
from metaservice.store.backups.folders import BackupUnusable, Manifest
from metaservice.store.backups.objects import is_repository
from metaservice.store.backups.repository import Progress, Repository, Stored, open_repository
from metaservice.store.object_location import ObjectPlace

ROOM_TO_RESTORE_BYTES = 64 << 20
_NOTED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Restored:
    """A store restored from a backup."""

    manifest: Manifest
    epoch: str
    tables: Sequence[RolledBack] = field(default=())


class Backup(Protocol):
    """A backup, wherever it is. Both raise BackupUnusable."""

    def read_manifest(self) -> Manifest: ...

    def fetch(self, target: Path) -> None:
        """Writes the backup's files, all of them and each with its bytes, into a new folder."""


@dataclass(frozen=True)
class FolderBackup(Backup):
    """A folder with files and manifest."""

    path: Path

    def read_manifest(self) -> Manifest:
        manifest = folders.read_manifest(self.path)
        folders.check_files(self.path, manifest)
        return manifest

    def fetch(self, target: Path) -> None:
        folders.copy_files(self.path, target)

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True)
class RepositoryBackup(Backup):
    """A backup in a repository."""

    repository: Repository
    stored: Stored
    progress: Progress

    def read_manifest(self) -> Manifest:
        return self.stored.manifest

    def fetch(self, target: Path) -> None:
        self.repository.fetch(self.stored, target, self.progress)

    def __str__(self) -> str:
        return f"{self.repository.name}/{self.stored.backup_id}"


def run_restore(arguments: Sequence[str]) -> int:
    parsed = _parser().parse_args(arguments)
    backup = _find(parsed.source, parsed.backup, parsed.at_us)
    if parsed.dry_run:
        place = None if ObjectPlace.of(parsed.data) else Path(parsed.data)
        _answer(parsed.json, Restored(check_backup(backup, place), ""), backup, parsed.data)
        return 0
    clocks = RealClocks()
    ident, check = fresh_history_id(), not parsed.no_check
    if ObjectPlace.of(parsed.data) is None:
        done = restore(backup, Path(parsed.data), ident, clocks.now_us(), check=check, at_us=parsed.at_us)
    else:
        with tempfile.TemporaryDirectory(prefix="laketx-restore-") as scratch:
            folder = Path(scratch) / "data"
            done = restore(backup, folder, ident, clocks.now_us(), check=check, at_us=parsed.at_us)
            copy_store(str(folder), parsed.data, parsed.store_log)
    _answer(parsed.json, done, backup, parsed.data)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="laketx restore", description="Makes a store from a backup.")
    parser.add_argument("source", nargs="?", default="", help="repository of backups")
    parser.add_argument("--backup", default="", help="the backup's id in the repository; without one, its folder")
    parser.add_argument("--at-us", type=int, help="time, in microseconds since 1970, whose content tables get")
    parser.add_argument("--data", required=True, help="store to make: a folder, or s3://bucket/path; nothing is there")
    add_store_log(parser)
    parser.add_argument("--no-check", action="store_true", help="don't check the restored store, take it as it is")
    parser.add_argument("--dry-run", action="store_true", help="only check the backup and the room")
    parser.add_argument("--json", action="store_true", help="answer as JSON")
    return parser


def _find(source: str, backup: str, at_us: int | None) -> Backup:
    if source and not is_repository(source):
        source, backup = "", backup or source
    if not source:
        if not backup or at_us is not None:
            raise invalid("BACKUP_REPOSITORY_INVALID", repository=source)
        return FolderBackup(Path(backup))
    repository = open_repository(source)
    return RepositoryBackup(repository, repository.find(backup, at_us), Noted("downloaded"))


class Noted:
    """Says on stderr how far a transfer is, now and then."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._reported_bytes = 0

    def __call__(self, done: int, total: int) -> None:
        if done - self._reported_bytes >= _NOTED_BYTES:
            self._reported_bytes = done
            sys.stderr.write(f"{done >> 20} of {total >> 20} MiB {self._what} …\n")


def _answer(as_json: bool, done: Restored, backup: Backup, data: str) -> None:
    manifest = done.manifest
    if as_json:
        facts = {
            "backup": str(backup),
            "data": data,
            "tables": len(manifest.heads),
            "bytes": manifest.size_bytes,
            "begin_time_us": manifest.begin_us,
            "history_epoch": done.epoch or manifest.epoch,
            "rolled_back": [asdict(table) for table in done.tables],
        }
        sys.stdout.write(json.dumps(facts) + "\n")
        return
    for table in done.tables:
        text = (
            f"left at version {table.head}: {table.why}"
            if table.why
            else f"as of version {table.version}, of {table.head}"
        )
        sys.stdout.write(printable(f"{table.name} {text}") + "\n")
    moment = datetime.fromtimestamp(manifest.begin_us / 1_000_000, UTC).isoformat(" ", "seconds")
    tables = f"{len(manifest.heads)} tables"
    if not done.epoch:
        text = f"{tables}, {manifest.size_bytes} bytes of {moment}, history {manifest.epoch}: can be restored"
    else:
        text = f"restored {tables} of {moment} to {data}, history {done.epoch}; the purge waits"
    sys.stdout.write(text + "\n")


def check_backup(backup: Backup, data: Path | None) -> Manifest:
    """The manifest of a complete backup that fits on the disk. Raises BackupUnusable, MetaError."""
    manifest = backup.read_manifest()
    if data is None:
        return manifest
    if data.exists() and (not data.is_dir() or any(data.iterdir())):
        raise MetaError(ErrorKind.ALREADY_EXISTS, "DATA_EXISTS", "the target folder exists: name a new one", path=data)
    if _partial(data).exists():
        raise MetaError(ErrorKind.BLOCKED, "RESTORE_PARTIAL", path=_partial(data))
    if not data.absolute().parent.is_dir():
        raise MetaError(ErrorKind.NOT_FOUND, "FOLDER_MISSING", path=data.parent)
    needed, free = manifest.size_bytes + ROOM_TO_RESTORE_BYTES, folders.free_bytes(data.absolute().parent)
    if free < needed:
        raise MetaError(ErrorKind.EXHAUSTED, "RESTORE_NO_ROOM", needed_bytes=needed, free_bytes=free)
    return manifest


def restore(
    backup: Backup, data: Path, ident: str, now_us: int, *, check: bool = True, at_us: int | None = None
) -> Restored:
    """Fetches, checks, begins a new history; the folder gets its name at the end. The backup is not changed.

    With `at_us`, tables get the content that they had at that moment.
    """
    data = data.resolve()
    manifest = check_backup(backup, data)
    partial = _partial(data)
    tables: Sequence[RolledBack] = ()
    try:
        backup.fetch(partial)
        with opened(partial) as store:
            if check:
                _refuse_problems(backup, list_problems(store))
            history = begin_history(store, ident, now_us)
            state = State(store, WirePayloads())
            _refuse_problems(backup, list_differences(state, manifest.heads))
            if at_us is not None:
                tables = roll_back(state, RealClocks(), uuid7, at_us)
        if data.exists():
            data.rmdir()
        partial.rename(data)
        folders.sync_path(data.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    event(RESTORED, backup=backup, data=data, epoch_before=manifest.epoch, epoch=history.epoch)
    return Restored(manifest, history.epoch, tables)


def _refuse_problems(backup: Backup, problems: Iterable[str]) -> None:
    for problem in problems:
        raise BackupUnusable("BACKUP_DAMAGED", path=backup, found=problem)


def verify(backup: Backup, folder: Path) -> str:
    """Restores a backup into a new folder and removes it; what is wrong with it, or nothing."""
    try:
        manifest = check_backup(backup, folder)
        backup.fetch(folder)
        with opened(folder) as store:
            _refuse_problems(backup, list_problems(store))
            _refuse_problems(backup, list_differences(State(store, WirePayloads()), manifest.heads))
    except BackupUnusable as error:
        return str(error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return ""


def _partial(data: Path) -> Path:
    return data.with_name(data.name + folders.PARTIAL)
