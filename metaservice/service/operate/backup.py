"""Backups: a copy of the store as of one moment, in a folder of its own, while commits go on.

The decider pauses only while the store's files are hard-linked inside the data folder. Digests, the copy to another
disk and the manifest are made beside it. The target gets its name when it is complete. Until then, and forever if the
service dies meanwhile, it is called `….partial` and has no manifest.
"""

from __future__ import annotations

import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from metaservice.core import limits
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.observe import BACKUP_FAILED, BACKUP_MADE, event
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.store import folders
from metaservice.store.folders import BackupUnusable, Head, Manifest

SCRATCH = "backup.scratch"


@dataclass(frozen=True, slots=True)
class BackupPlace:
    """The folders of backups, and their names."""

    data: Path
    root: Path
    version: str
    reserve_bytes: int


@dataclass(frozen=True, slots=True)
class Done:
    """A backup that was made, or would be."""

    path: Path
    size_bytes: int
    tables: int
    epoch: str
    begin_us: int = 0
    end_us: int = 0
    stalled_us: int = 0


@dataclass(frozen=True, slots=True)
class _Moment:
    """The decider's state at the pause."""

    heads: list[Head]
    epoch: str
    format: int
    stalled_us: int


class Backups:
    """The use case of AdminService.Backup; one at a time."""

    def __init__(self, decider: Decider, clocks: Clocks, place: BackupPlace) -> None:
        self._decider = decider
        self._clocks = clocks
        self._place = place
        self._scratch = place.data / SCRATCH
        self._one = threading.Lock()

    def backup(self, path: str, request_id: str, *, validate_only: bool) -> Done:
        """Makes a backup; the same request again returns the same answer."""
        if not self._one.acquire(blocking=False):
            raise MetaError(ErrorKind.EXHAUSTED, "BACKUP_RUNNING", "another backup is running: wait until it ends")
        try:
            target = self._target(path)
            try:
                made = self._made_before(target, request_id)
                if made is not None:
                    return made
                self._check_place(target)
            except OSError as error:  # a name that the file system can't take
                raise invalid("BACKUP_PATH_INVALID", path=path, error=error) from error
            self._check_room()
            if validate_only:
                state = self._decider.state
                return Done(target, state.store.size_bytes(), len(state.views), state.history.epoch)
            return self._make(target, request_id)
        finally:
            self._one.release()

    def _target(self, path: str) -> Path:
        """The target path below the root, after resolving links and dots."""
        if not path or len(path) > limits.BACKUP_PATH_CHARS_MAX or "\x00" in path:
            raise invalid("BACKUP_PATH_INVALID", chars=len(path), most=limits.BACKUP_PATH_CHARS_MAX)
        root = self._place.root.resolve()
        try:
            target = (root / path).resolve()
        except (OSError, RuntimeError) as error:
            raise invalid("BACKUP_PATH_INVALID", path=path, error=error) from error
        if target == root or not target.is_relative_to(root):
            raise invalid("BACKUP_PATH_OUTSIDE", path=path, root=root)
        if target.name.endswith(folders.PARTIAL):
            raise invalid(
                "BACKUP_PATH_INVALID", "the name is reserved for unfinished backups: choose another", path=path
            )
        return target

    def _made_before(self, target: Path, request_id: str) -> Done | None:
        if not request_id or not target.is_dir():
            return None
        try:
            manifest = folders.read_manifest(target)
        except BackupUnusable:
            return None
        return self._done(target, manifest, 0) if manifest.request_id == request_id else None

    def _check_place(self, target: Path) -> None:
        if target.exists():
            raise MetaError(ErrorKind.ALREADY_EXISTS, "BACKUP_EXISTS", path=target)
        partial = _partial(target)
        if partial.exists():
            raise MetaError(ErrorKind.BLOCKED, "BACKUP_PARTIAL", path=partial)
        if target.parent != self._place.root.resolve() and not target.parent.is_dir():
            raise MetaError(ErrorKind.NOT_FOUND, "BACKUP_FOLDER_MISSING", path=target.parent)

    def _check_room(self) -> None:
        root = next(folder for folder in (self._place.root, *self._place.root.resolve().parents) if folder.is_dir())
        store = self._decider.state.store
        copied = 0 if folders.same_file_system(self._place.data, root) else store.size_bytes()
        needed, free = copied + store.log_bytes() + self._place.reserve_bytes, folders.free_bytes(root)
        if free < needed:
            raise MetaError(ErrorKind.EXHAUSTED, "BACKUP_NO_ROOM", needed_bytes=needed, free_bytes=free)

    def _make(self, target: Path, request_id: str) -> Done:
        partial = _partial(target)
        try:
            self._place.root.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(self._scratch, ignore_errors=True)  # of a service that died
            begin_us = self._clocks.now_us()
            self._decider.state.store.write_out()
            moment = self._decider.call(self._stand_still)
            folders.move_in(self._scratch, partial)
            manifest = Manifest(
                request_id=request_id,
                version=self._place.version,
                store_format=moment.format,
                epoch=moment.epoch,
                begin_us=begin_us,
                end_us=self._clocks.now_us(),
                heads=moment.heads,
                files=folders.list_digests(partial),
            )
            folders.write_manifest(partial, manifest)
            partial.rename(target)
            folders.sync_path(target.parent)
        except BaseException as error:
            shutil.rmtree(self._scratch, ignore_errors=True)
            shutil.rmtree(partial, ignore_errors=True)
            event(BACKUP_FAILED, path=target, error=repr(error))
            if isinstance(error, OSError):
                raise MetaError(ErrorKind.EXHAUSTED, "BACKUP_FAILED", path=target, error=error) from error
            raise
        done = self._done(target, manifest, moment.stalled_us)
        event(BACKUP_MADE, path=target, bytes=done.size_bytes, stalled_us=done.stalled_us)
        return done

    def _stand_still(self) -> _Moment:
        """On the decider's thread: the store's files and the heads, as of one moment."""
        begun_ns = time.perf_counter_ns()
        state = self._decider.state
        state.flush()
        try:
            state.store.checkpoint(self._scratch)
        except OSError as error:
            raise MetaError(ErrorKind.EXHAUSTED, "BACKUP_FAILED", path=self._scratch, error=error) from error
        heads = [
            Head(table.meta.table_id, table.meta.name, table.head, table.last_time_us)
            for table in state.tables.values()
        ]
        return _Moment(heads, state.history.epoch, state.format, (time.perf_counter_ns() - begun_ns) // 1000)

    def _done(self, target: Path, manifest: Manifest, stalled_us: int) -> Done:
        return Done(
            path=target,
            size_bytes=manifest.size_bytes,
            tables=len(manifest.heads),
            epoch=manifest.epoch,
            begin_us=manifest.begin_us,
            end_us=manifest.end_us,
            stalled_us=stalled_us,
        )


def _partial(target: Path) -> Path:
    return target.with_name(target.name + folders.PARTIAL)
