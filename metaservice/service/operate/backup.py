"""Backups: a copy of the store as of one moment, while commits go on, in a repository off the host or in a folder.

The decider pauses only while that moment is fixed: while the files of a store on a disk are hard-linked inside the data
folder. Digests, uploads and copies are made beside it, and the manifest last. A folder gets its name when it is
complete: until then, and forever if the service dies meanwhile, it is called `….partial`.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from metaservice.core import limits
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.shared.log import BACKUP_FAILED, BACKUP_MADE, event
from metaservice.store.backups import folders
from metaservice.store.backups.folders import BackupUnusable, Head, Manifest
from metaservice.store.backups.objects import folder_of, is_repository
from metaservice.store.backups.repository import Repository, Stored, backup_id_at, open_repository

SCRATCH = "backup.scratch"
REPEATS_LOOKED_AT = 3


@dataclass(frozen=True, slots=True)
class BackupPlace:
    """The folders of backups, and their names."""

    data: Path
    root: Path
    version: str
    reserve_bytes: int
    repository: str = ""  # the service's own, for backups without a place


@dataclass(frozen=True, slots=True)
class Done:
    """A backup that was made, or would be."""

    path: str
    size_bytes: int
    tables: int
    epoch: str
    begin_us: int = 0
    end_us: int = 0
    stalled_us: int = 0
    backup_id: str = ""  # in a repository
    uploaded_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Moment:
    """The decider's state at the pause."""

    heads: list[Head]
    epoch: str
    format: int
    stalled_us: int
    begin_us: int


@dataclass(slots=True)
class Transfer:
    """Bytes of the backup under way that are uploaded, of how many; all zero: none is under way."""

    done: int = 0
    total: int = 0


class Backups:
    """The use case of AdminService.Backup; one at a time."""

    def __init__(self, decider: Decider, clocks: Clocks, place: BackupPlace) -> None:
        self._decider = decider
        self._clocks = clocks
        self._place = place
        self._scratch = place.data / SCRATCH
        self._backup_lock = threading.Lock()
        self.transfer = Transfer()

    def backup(self, path: str, request_id: str, *, validate_only: bool, full: bool = False) -> Done:
        """Makes a backup in a repository, or in a folder below the root; without a path, in the service's repository.

        The same request again returns the same answer.
        """
        if not self._backup_lock.acquire(blocking=False):
            raise MetaError(ErrorKind.EXHAUSTED, "BACKUP_RUNNING", "another backup is running: wait until it ends")
        try:
            if is_repository(path) or (not path and self._place.repository):
                return self._to_repository(path or self._place.repository, request_id, validate_only, full)
            return self._to_folder(path, request_id, validate_only)
        finally:
            self._backup_lock.release()

    # -- in a repository -------------------------------------------------------------------------------------------

    def _to_repository(self, name: str, request_id: str, validate_only: bool, full: bool) -> Done:
        self._check_repository(name)
        self._check_room(self._place.data)
        try:
            repository = open_repository(name)
            made = _made_in(repository, request_id)
        except OSError as error:
            raise self._failed(name, error) from error
        if made is not None:
            return self._done(f"{name}/{made.backup_id}", made.manifest, 0, made.backup_id)
        if validate_only:
            return self._would_be(name)
        try:
            moment = self._take()
            manifest = self._manifest(request_id, moment, self._scratch)
            backup_id = backup_id_at(moment.begin_us, f"{moment.epoch} {moment.begin_us} {request_id}")
            uploaded = repository.upload(backup_id, self._scratch, manifest, full=full, progress=self._note)
        except OSError as error:
            raise self._failed(name, error) from error
        except MetaError as error:
            event(BACKUP_FAILED, path=name, error=repr(error))
            raise
        finally:
            self.transfer = Transfer()
            shutil.rmtree(self._scratch, ignore_errors=True)
        done = self._done(f"{name}/{backup_id}", manifest, moment.stalled_us, backup_id, uploaded)
        event(BACKUP_MADE, path=done.path, bytes=done.size_bytes, uploaded=uploaded, stalled_us=done.stalled_us)
        return done

    def _check_repository(self, name: str) -> None:
        """A bucket is guarded by its keys; a folder of this machine only by where it may be."""
        if len(name) > limits.BACKUP_PATH_CHARS_MAX:
            raise invalid("BACKUP_PATH_INVALID", chars=len(name), most=limits.BACKUP_PATH_CHARS_MAX)
        folder, root = folder_of(name), self._place.root.resolve()
        if folder is None or folder == folder_of(self._place.repository):
            return
        if not folder.is_relative_to(root):
            raise invalid("BACKUP_PATH_OUTSIDE", path=folder, root=root)

    def _note(self, done: int, total: int) -> None:
        self.transfer = Transfer(done, total)

    def _failed(self, path: object, error: Exception) -> MetaError:
        event(BACKUP_FAILED, path=path, error=repr(error))
        return MetaError(ErrorKind.BLOCKED, "BACKUP_FAILED", path=path, error=error)

    # -- in a folder -----------------------------------------------------------------------------------------------

    def _to_folder(self, path: str, request_id: str, validate_only: bool) -> Done:
        target = self._target(path)
        try:
            made = self._made_before(target, request_id)
            if made is not None:
                return made
            self._check_place(target)
        except OSError as error:  # a name that the file system can't take
            raise invalid("BACKUP_PATH_INVALID", path=path, error=error) from error
        self._check_room(self._place.root)
        return self._would_be(str(target)) if validate_only else self._make(target, request_id)

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
        return self._done(str(target), manifest, 0) if manifest.request_id == request_id else None

    def _check_place(self, target: Path) -> None:
        if target.exists():
            raise MetaError(ErrorKind.ALREADY_EXISTS, "BACKUP_EXISTS", path=target)
        partial = _partial(target)
        if partial.exists():
            raise MetaError(ErrorKind.BLOCKED, "BACKUP_PARTIAL", path=partial)
        if target.parent != self._place.root.resolve() and not target.parent.is_dir():
            raise MetaError(ErrorKind.NOT_FOUND, "BACKUP_FOLDER_MISSING", path=target.parent)

    def _check_room(self, target: Path) -> None:
        target = next(folder for folder in (target, *target.resolve().parents) if folder.is_dir())
        store, data = self._decider.state.store, self._place.data
        copied = 0 if folders.same_file_system(data, target) else store.size_bytes()
        needed, free = copied + store.log_bytes() + self._place.reserve_bytes, folders.free_bytes(target)
        if free < needed:
            raise MetaError(ErrorKind.EXHAUSTED, "BACKUP_NO_ROOM", needed_bytes=needed, free_bytes=free)

    def _make(self, target: Path, request_id: str) -> Done:
        partial = _partial(target)
        try:
            self._place.root.mkdir(parents=True, exist_ok=True)
            moment = self._take()
            folders.move_in(self._scratch, partial)
            manifest = self._manifest(request_id, moment, partial)
            folders.write_manifest(partial, manifest)
            partial.rename(target)
            folders.sync_path(target.parent)
        except BaseException as error:
            shutil.rmtree(self._scratch, ignore_errors=True)
            shutil.rmtree(partial, ignore_errors=True)
            if isinstance(error, OSError):
                raise self._failed(target, error) from error
            event(BACKUP_FAILED, path=target, error=repr(error))
            raise
        done = self._done(str(target), manifest, moment.stalled_us)
        event(BACKUP_MADE, path=target, bytes=done.size_bytes, stalled_us=done.stalled_us)
        return done

    # -- a moment --------------------------------------------------------------------------------------------------

    def _take(self) -> _Moment:
        """Makes a copy in the data folder."""
        shutil.rmtree(self._scratch, ignore_errors=True)  # of a service that died
        begin_us = self._clocks.now_us()
        self._decider.state.store.write_out()
        moment, finish = self._decider.call(lambda: self._stand_still(begin_us))
        finish()
        return moment

    def _manifest(self, request_id: str, moment: _Moment, folder: Path) -> Manifest:
        return Manifest(
            request_id=request_id,
            version=self._place.version,
            store_format=moment.format,
            epoch=moment.epoch,
            begin_us=moment.begin_us,
            end_us=self._clocks.now_us(),
            heads=moment.heads,
            files=folders.list_digests(folder),
        )

    def _stand_still(self, begin_us: int) -> tuple[_Moment, Callable[[], None]]:
        """On the decider's thread: the store and the heads, as of one moment; and what completes the copy."""
        begun_ns = time.perf_counter_ns()
        state = self._decider.state
        state.flush()
        try:
            finish = state.store.checkpoint(self._scratch)
        except OSError as error:
            raise MetaError(ErrorKind.BLOCKED, "BACKUP_FAILED", path=self._scratch, error=error) from error
        heads = [
            Head(table.meta.table_id, table.meta.name, table.head, table.last_time_us)
            for table in state.tables.values()
        ]
        stalled_us = (time.perf_counter_ns() - begun_ns) // 1000
        return _Moment(heads, state.history.epoch, state.format, stalled_us, begin_us), finish

    def _would_be(self, path: str) -> Done:
        state = self._decider.state
        return Done(path, state.store.size_bytes(), len(state.views), state.history.epoch)

    def _done(
        self, path: str, manifest: Manifest, stalled_us: int, backup_id: str = "", uploaded_bytes: int = 0
    ) -> Done:
        return Done(
            path=path,
            size_bytes=manifest.size_bytes,
            tables=len(manifest.heads),
            epoch=manifest.epoch,
            begin_us=manifest.begin_us,
            end_us=manifest.end_us,
            stalled_us=stalled_us,
            backup_id=backup_id,
            uploaded_bytes=uploaded_bytes,
        )


def _made_in(repository: Repository, request_id: str) -> Stored | None:
    """Return the backup of a repeated request. A repeat follows soon, so its backup is among the newest."""
    for backup_id in reversed(repository.list_ids()[-REPEATS_LOOKED_AT:] if request_id else []):
        with contextlib.suppress(BackupUnusable):
            stored = repository.read(backup_id)
            if stored.manifest.request_id == request_id:
                return stored
    return None


def _partial(target: Path) -> Path:
    return target.with_name(target.name + folders.PARTIAL)
