"""A repository of backups off the host: each file once, under its digest, and a manifest for each backup.

    files/DIGEST        bytes that one or several backups name; never written over with others
    backups/ID.json     a backup's manifest, written last: without it there is no backup
    running/ID.json     work under way: a prune and a backup exclude each other
    verified.json       the last verification

A backup uploads what is not there yet, so it costs what is new. It needs no earlier backup to be complete: a backup can
be deleted when nobody wants it, and `delete` then removes the files that no manifest names.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Final

from metaservice.core.errors import ErrorKind, MetaError
from metaservice.shared.foreign_bytes import ForeignUnusable, build, read_object
from metaservice.store.backups.folders import (
    BackupUnusable,
    FileDigest,
    Manifest,
    decode_manifest,
    digest_of,
    encode_manifest,
    sync_path,
)
from metaservice.store.backups.objects import Objects, objects_at

FILES: Final = "files/"
BACKUPS: Final = "backups/"
RUNNING: Final = "running/"
VERIFIED: Final = "verified.json"
STALE_S: Final = 600.0  # work whose mark is older has died
RENEWED_S: Final = 60.0
TRANSFERS: Final = 4
_ID: Final = re.compile(r"\d{8}T\d{6}\.\d{6}Z-[0-9a-f]{6}")
_DIGEST: Final = re.compile(r"[0-9a-f]{32}")

Progress = Callable[[int, int], None]  # bytes that are done, of how many


@dataclass(frozen=True, slots=True)
class Stored:
    """A backup in a repository."""

    backup_id: str
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Verification:
    """How a backup was verified; without a problem it can be restored."""

    backup_id: str
    time_us: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Freed:
    """What a deletion removes."""

    backup_ids: Sequence[str]
    files: int
    size_bytes: int


def open_repository(name: str) -> Repository:
    """Of s3://bucket/path or file:///folder. Raises MetaError, OSError."""
    return Repository(objects_at(name), name.rstrip("/"))


def backup_id_at(begin_us: int, facts: str) -> str:
    """Ids are in the order of time; the facts tell apart what two histories began at one time."""
    digest = blake2b(facts.encode(), digest_size=3).hexdigest()
    begin = datetime.fromtimestamp(begin_us // 1_000_000, UTC)
    return f"{begin:%Y%m%dT%H%M%S}.{begin_us % 1_000_000:06}Z-{digest}"


def plan_prune(stored: Iterable[str], keep: int) -> list[str]:
    """The ids of all but the newest backups."""
    ordered = sorted(stored)
    return ordered[: max(len(ordered) - keep, 0)]


def first_with_all_of(stored: Iterable[Stored], at_us: int) -> Stored | None:
    """Return the first backup that began at a time or later, so it contains all of it; otherwise the newest before."""
    ordered = sorted(stored, key=lambda backup: (backup.manifest.begin_us, backup.backup_id))
    after = [backup for backup in ordered if backup.manifest.begin_us >= at_us]
    return after[0] if after else ordered[-1] if ordered else None


class Repository:
    """One repository. Raises BackupUnusable for what is damaged, OSError if the storage doesn't answer."""

    def __init__(self, objects: Objects, name: str) -> None:
        self.name = name
        self._objects = objects

    # -- look ------------------------------------------------------------------------------------------------------

    def list_ids(self) -> list[str]:
        names = (document.name[len(BACKUPS) :].removesuffix(".json") for document in self._objects.list(BACKUPS))
        return sorted(name for name in names if _ID.fullmatch(name))

    def read(self, backup_id: str) -> Stored:
        name = _manifest_name(backup_id)
        try:
            raw = self._objects.get(name)
        except FileNotFoundError:
            raise BackupUnusable("BACKUP_MISSING", repository=self.name, backup=backup_id) from None
        manifest = decode_manifest(raw, f"{self.name}/{name}")
        if not all(_DIGEST.fullmatch(file.digest) and file.name == Path(file.name).name for file in manifest.files):
            raise BackupUnusable("BACKUP_DAMAGED", path=f"{self.name}/{name}", found="a file without a plain name")
        return Stored(backup_id, manifest)

    def read_all(self) -> list[Stored]:
        """All backups, oldest first."""
        return [self.read(backup_id) for backup_id in self.list_ids()]

    def find(self, backup_id: str = "", at_us: int | None = None) -> Stored:
        """Finds a backup by id or time; by default the newest. Raises BackupUnusable if there is none."""
        if backup_id and not _ID.fullmatch(backup_id):
            raise BackupUnusable("BACKUP_MISSING", repository=self.name, backup=backup_id)
        if at_us is None:
            ids = [backup_id] if backup_id else self.list_ids()[-1:]
            stored = self.read(ids[0]) if ids else None
        else:
            stored = first_with_all_of(self.read_all(), at_us)
        if stored is None:
            raise BackupUnusable("BACKUP_MISSING", repository=self.name)
        return stored

    # -- upload and download ---------------------------------------------------------------------------------------

    def upload(self, backup_id: str, folder: Path, manifest: Manifest, *, full: bool, progress: Progress) -> int:
        """Makes a backup of a folder's files; returns the bytes that were new. With `full`, all are uploaded again."""
        with self._under_way(backup_id, "backup"):
            present = {} if full else self._sizes()
            missing = {file.digest: file for file in manifest.files if present.get(file.digest) != file.size_bytes}
            total = sum(file.size_bytes for file in missing.values())
            self._each(
                list(missing.values()),
                lambda file: self._objects.put(FILES + file.digest, folder / file.name),
                lambda done: progress(done, total),
            )
            self._objects.put(_manifest_name(backup_id), encode_manifest(manifest))
        return total

    def fetch(self, stored: Stored, target: Path, progress: Progress) -> None:
        """Downloads a backup's files into a new folder, durably; each has the bytes that were written."""
        files = stored.manifest.files
        total = sum(file.size_bytes for file in files)
        target.mkdir()
        self._each(files, lambda file: self._fetch(file, target / file.name), lambda done: progress(done, total))
        sync_path(target)

    def _fetch(self, file: FileDigest, path: Path) -> None:
        try:
            self._objects.fetch(FILES + file.digest, path)
        except FileNotFoundError:
            raise self._damaged(f"{file.name} is missing", file) from None
        size = path.stat().st_size
        if size != file.size_bytes:
            raise self._damaged(f"{file.name} has {size} bytes of {file.size_bytes}", file)
        if digest_of(path) != file.digest:
            raise self._damaged(f"{file.name} holds other bytes than were written", file)
        sync_path(path)

    def _damaged(self, problem: str, file: FileDigest) -> BackupUnusable:
        return BackupUnusable("BACKUP_DAMAGED", path=f"{self.name}/{FILES}{file.digest}", found=problem)

    def _each(
        self, files: Sequence[FileDigest], work: Callable[[FileDigest], None], progress: Callable[[int], None]
    ) -> None:
        """Transfers several files at a time; the first failure ends all."""
        lock, done = threading.Lock(), 0

        def transfer(file: FileDigest) -> None:
            nonlocal done
            work(file)
            with lock:
                done += file.size_bytes
                progress(done)

        progress(0)
        with ThreadPoolExecutor(TRANSFERS, "transfer") as pool:
            waiting = [pool.submit(transfer, file) for file in files]
            try:
                for transferred in waiting:
                    transferred.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    # -- delete ----------------------------------------------------------------------------------------------------

    def delete(self, mark: str, backup_ids: Iterable[str], *, dry_run: bool) -> Freed:
        """Deletes backups, and files that no other backup names. A dry run only says what it would delete."""
        with self._under_way(mark, "prune", dry_run=dry_run):
            present, gone = self.list_ids(), sorted(set(backup_ids))
            for backup_id in gone:
                if backup_id not in present:
                    raise BackupUnusable("BACKUP_MISSING", repository=self.name, backup=backup_id)
            kept = self._named_by(backup_id for backup_id in present if backup_id not in gone)
            unnamed = [file for file in self._objects.list(FILES) if file.name[len(FILES) :] not in kept]
            if not dry_run:
                self._objects.delete(map(_manifest_name, gone))  # first: a backup without its files is none
                self._objects.delete(unused.name for unused in unnamed)
            return Freed(gone, len(unnamed), sum(unused.size_bytes for unused in unnamed))

    def _named_by(self, backup_ids: Iterable[str]) -> set[str]:
        """Raises for a manifest that can't be read: what it names is not known, so nothing may be deleted."""
        return {file.digest for backup_id in backup_ids for file in self.read(backup_id).manifest.files}

    def _sizes(self) -> dict[str, int]:
        return {file.name[len(FILES) :]: file.size_bytes for file in self._objects.list(FILES)}

    # -- verification ----------------------------------------------------------------------------------------------

    def put_verification(self, verification: Verification) -> None:
        self._objects.put(VERIFIED, json.dumps(asdict(verification)).encode())

    def find_verification(self) -> Verification | None:
        try:
            return build(Verification, read_object(self._objects.get(VERIFIED)))
        except (FileNotFoundError, ForeignUnusable):
            return None

    # -- work under way --------------------------------------------------------------------------------------------

    @contextmanager
    def _under_way(self, mark: str, kind: str, *, dry_run: bool = False) -> Iterator[None]:
        """Marks work while it lasts. Each marks first and looks then, so of two at least one sees the other."""
        if dry_run:
            yield
            return
        name = f"{RUNNING}{kind}-{mark}"
        ended = threading.Event()

        def renew() -> None:
            while not ended.wait(RENEWED_S):
                try:
                    self._objects.put(name, kind.encode())
                except OSError:
                    continue  # the work itself asks the same storage, and fails where it matters

        renewing = threading.Thread(target=renew, name="backup-mark", daemon=True)
        renewing.start()
        try:
            self._objects.put(name, kind.encode())
            self._refuse_others(name, kind)
            yield
        finally:
            ended.set()
            renewing.join()
            with suppress(OSError):  # a mark that stays is soon too old to count; what was done is done
                self._objects.delete([name])

    def _refuse_others(self, own_name: str, kind: str) -> None:
        running = list(self._objects.list(RUNNING))
        now_s = max((run.written_s for run in running if run.name == own_name), default=0.0)  # by the storage's clock
        for run in running:
            is_alive = now_s - run.written_s < STALE_S
            excluded = (f"{RUNNING}prune-",) if kind == "backup" else (f"{RUNNING}prune-", f"{RUNNING}backup-")
            if run.name != own_name and is_alive and run.name.startswith(excluded):
                message = f"{run.name.removeprefix(RUNNING)} is under way in this repository: wait until it ends"
                raise MetaError(ErrorKind.EXHAUSTED, "BACKUP_RUNNING", message, repository=self.name)


def _manifest_name(backup_id: str) -> str:
    return f"{BACKUPS}{backup_id}.json"
