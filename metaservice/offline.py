"""Work on a store while no service runs on it: restore it from a backup, check it, copy it.

    python -m metaservice restore --backup BACKUP --data DATA
    python -m metaservice check --data DATA
    python -m metaservice copy FROM TO

All exit with 0, with 1 if they refuse or find something, and with 74 if a folder can't be used.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.lease import LOOK_MS, TAKE_MS, VALID_MS
from metaservice.observe import RESTORED, Logging, event, set_up_logging
from metaservice.service.decider.state import State
from metaservice.service.operate.check import StoreCheck
from metaservice.service.operate.restoring import begin_history, list_differences
from metaservice.store import folders
from metaservice.store.copying import AFTER_ALL, FIRST_KEY, copy_entries, copy_to_folder
from metaservice.store.folders import BackupUnusable, Manifest
from metaservice.store.object_place import ObjectPlace
from metaservice.store.port import Store, StoreFailed, StoreGone, StoreUnusable
from metaservice.store.rocks import RocksStore
from metaservice.terminal import printable
from metaservice.wiring import EXIT_UNUSABLE, RealClocks, fresh_history_id, lead_store, open_in_bucket

ROOM_TO_RESTORE_BYTES = 64 << 20
EXIT_REFUSED = 1


@dataclass(frozen=True, slots=True)
class Restored:
    """A data folder restored from a backup."""

    manifest: Manifest
    epoch: str


def main(command: str, arguments: Sequence[str]) -> int:
    set_up_logging(Logging())
    try:
        return COMMANDS[command](arguments)
    except (MetaError, BackupUnusable) as error:
        sys.stderr.write(f"laketx {command}: {printable(str(error))}\n")
        return EXIT_REFUSED
    except (StoreUnusable, StoreFailed, StoreGone, OSError) as error:
        sys.stderr.write(f"laketx {command}: {printable(str(error))}\n")
        return EXIT_UNUSABLE


def run_restore(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="laketx restore", description="Makes a data folder from a backup.")
    parser.add_argument("--backup", type=Path, required=True, help="folder of the backup")
    parser.add_argument("--data", type=Path, required=True, help="folder to make: not there yet, or empty")
    parser.add_argument("--no-check", action="store_true", help="don't check the restored store, take it as it is")
    parser.add_argument("--dry-run", action="store_true", help="only check the backup and the room")
    found = parser.parse_args(arguments)
    if found.dry_run:
        manifest = check_backup(found.backup, found.data)
        said = f"{len(manifest.heads)} tables, {manifest.size_bytes} bytes, history {manifest.epoch}: can be restored"
    else:
        now_us = RealClocks().now_us()
        done = restore(found.backup, found.data, fresh_history_id(), now_us, check=not found.no_check)
        said = f"{len(done.manifest.heads)} tables restored to {found.data}, history {done.epoch}; the purge waits"
    sys.stdout.write(said + "\n")
    return 0


def run_check(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="laketx check", description="Checks a data folder that no service runs on.")
    parser.add_argument("--data", required=True, help="the data folder, or s3://bucket/path")
    found = parser.parse_args(arguments)
    with _opened_alone(found.data) as store:
        problems, last = 0, None
        for last in StoreCheck(store.cursor(), _no_pause).run():
            problems += len(last.problems)
            sys.stdout.writelines(f"{printable(str(problem))}\n" for problem in last.problems)
    assert last is not None
    sys.stdout.write(f"{last.tables} tables, {last.entries} entries, {problems} problems\n")
    return EXIT_REFUSED if problems else 0


def run_copy(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="laketx store copy", description="Copies a store to another place.")
    parser.add_argument("source", help="a data folder, or s3://bucket/path")
    parser.add_argument("target", help="a place where there is no store yet")
    found = parser.parse_args(arguments)
    copied = copy_store(found.source, found.target)
    sys.stdout.write(f"{copied} entries copied from {found.source} to {found.target}\n")
    return 0


def copy_store(source: str, target: str) -> int:
    """Copies a store that no service runs on, as it is: the history goes on there. Returns the number of entries."""
    with _opened_alone(source) as store:
        place = ObjectPlace.of(target)
        if place is None:
            _refuse_what_is_there(Path(target))
            return copy_to_folder(store.cursor(), Path(target))
        with _leading(place):
            copy = open_in_bucket(place)
            try:
                if next(copy.cursor().scan(FIRST_KEY, AFTER_ALL), None) is not None:
                    raise MetaError(ErrorKind.ALREADY_EXISTS, "DATA_EXISTS", "a store is there already", path=target)
                return copy_entries(store.cursor(), copy)
            finally:
                copy.close()


def _refuse_what_is_there(data: Path) -> None:
    if str(data).startswith("s3:"):
        raise MetaError(ErrorKind.INVALID, "STORE_PLACE_INVALID", path=data)
    if data.exists() and (not data.is_dir() or any(data.iterdir())):
        raise MetaError(ErrorKind.ALREADY_EXISTS, "DATA_EXISTS", "the target folder exists: name a new one", path=data)
    if data.exists():
        data.rmdir()
    if not data.resolve().parent.is_dir():
        raise MetaError(ErrorKind.NOT_FOUND, "FOLDER_MISSING", path=data.resolve().parent)


@contextmanager
def _opened_alone(where: str) -> Iterator[Store]:
    """A store that is there, and that no service runs on: a folder has a lock, a bucket a lease."""
    place = ObjectPlace.of(where)
    if place is None:
        if not (Path(where) / "CURRENT").exists():
            raise MetaError(ErrorKind.NOT_FOUND, "STORE_MISSING", path=where)
        with _opened(Path(where)) as store:
            yield store
        return
    with _leading(place):
        store = open_in_bucket(place)
        try:
            yield store
        finally:
            store.close()


@contextmanager
def _leading(place: ObjectPlace) -> Iterator[None]:
    """Leads, so that no service does; waits for a lease to run out, and refuses one that is renewed."""
    leads = lead_store(place)
    leads.address = "an offline command"
    until_s = time.monotonic() + (TAKE_MS + VALID_MS) / 1000
    while not leads.try_take():
        if time.monotonic() > until_s:
            raise MetaError(ErrorKind.BLOCKED, "STORE_IN_USE", path=place, leader=leads.leader)
        time.sleep(LOOK_MS / 1000)
    leads.start()
    try:
        yield
    finally:
        leads.release()


def check_backup(backup: Path, data: Path) -> Manifest:
    """The manifest of a complete backup that fits on the disk. Raises BackupUnusable, MetaError."""
    manifest = folders.read_manifest(backup)
    folders.check_files(backup, manifest)
    if data.exists() and (not data.is_dir() or any(data.iterdir())):
        raise MetaError(ErrorKind.ALREADY_EXISTS, "DATA_EXISTS", "the target folder exists: name a new one", path=data)
    if _partial(data).exists():
        raise MetaError(ErrorKind.BLOCKED, "RESTORE_PARTIAL", path=_partial(data))
    if not data.parent.is_dir():
        raise MetaError(ErrorKind.NOT_FOUND, "FOLDER_MISSING", path=data.parent)
    needed, free = manifest.size_bytes + ROOM_TO_RESTORE_BYTES, folders.free_bytes(data.parent)
    if free < needed:
        raise MetaError(ErrorKind.EXHAUSTED, "RESTORE_NO_ROOM", needed_bytes=needed, free_bytes=free)
    return manifest


def restore(backup: Path, data: Path, ident: str, now_us: int, *, check: bool = True) -> Restored:
    """Copies, begins a new history, and checks; the folder gets its name at the end. The backup is not changed."""
    data = data.resolve()
    manifest = check_backup(backup, data)
    partial = _partial(data)
    try:
        folders.copy_files(backup, partial)
        with _opened(partial) as store:
            if check:
                _refuse_problems(
                    backup, (each for one in StoreCheck(store.cursor(), _no_pause).run() for each in one.problems)
                )
            history = begin_history(store, ident, now_us)
            _refuse_problems(backup, list_differences(State(store), manifest.heads))
        if data.exists():
            data.rmdir()
        partial.rename(data)
        folders.sync_path(data.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    event(RESTORED, backup=backup, data=data, epoch_before=manifest.epoch, epoch=history.epoch)
    return Restored(manifest, history.epoch)


def _refuse_problems(backup: Path, problems: Iterator[str]) -> None:
    for problem in problems:
        raise BackupUnusable("BACKUP_DAMAGED", path=backup, found=problem)


def _list_problems(store: Store) -> Iterator[str]:
    for progress in StoreCheck(store.cursor(), _no_pause).run():
        yield from progress.problems


@contextmanager
def _opened(path: Path) -> Iterator[Store]:
    store = RocksStore(path)
    try:
        yield store
    finally:
        store.close()


def _partial(data: Path) -> Path:
    return data.with_name(data.name + folders.PARTIAL)


def _no_pause() -> None:
    """Nothing else uses the folder, so there is nothing to yield to."""


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {"restore": run_restore, "check": run_check, "copy": run_copy}
