"""Backups as folders: a store's files and, written last, a manifest that names each file with its size and digest.

A folder without a manifest is not a backup, whatever else it contains, so an interrupted backup can't be mistaken for
one.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Final

from metaservice.shared.foreign_bytes import ForeignUnusable, build, foreign

MANIFEST: Final = "laketx-backup.json"
MANIFEST_FORMAT: Final = 1
PARTIAL: Final = ".partial"
_CHUNK_BYTES: Final = 4 << 20


class BackupUnusable(Exception):  # noqa: N818 - says what it is
    """Not a backup, or not a complete one; the reason is a stable word."""

    def __init__(self, reason: str, **facts: object) -> None:
        super().__init__(" ".join([reason, *(f"{name}={fact}" for name, fact in facts.items())]))
        self.reason = reason
        self.facts = facts


@dataclass(frozen=True, slots=True)
class Head:
    """A table's head at the moment of the backup."""

    table_id: str
    name: str
    version: int
    time_us: int


@dataclass(frozen=True, slots=True)
class FileDigest:
    """A file of the backup."""

    name: str
    size_bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of a backup."""

    request_id: str
    version: str
    store_format: int
    epoch: str
    begin_us: int
    end_us: int
    heads: list[Head]
    files: list[FileDigest] = field(default_factory=list)
    format: int = MANIFEST_FORMAT

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def same_file_system(path: Path, other: Path) -> bool:
    return path.stat().st_dev == other.stat().st_dev


def free_bytes(folder: Path) -> int:
    room = os.statvfs(folder)
    return room.f_bavail * room.f_frsize


def list_digests(folder: Path) -> list[FileDigest]:
    """The digests of all files except the manifest, by name."""
    paths = sorted(path for path in folder.iterdir() if path.is_file() and path.name != MANIFEST)
    return [FileDigest(path.name, path.stat().st_size, digest_of(path)) for path in paths]


def move_in(source: Path, target: Path) -> None:
    """Moves the files of one folder to a new one: by rename on the same disk, otherwise by copy."""
    if same_file_system(source, target.parent):
        source.rename(target)
    else:
        copy_files(source, target)
        shutil.rmtree(source)


def copy_files(source: Path, target: Path) -> None:
    """Copies the plain files of a folder, durably."""
    target.mkdir()
    for path in sorted(source.iterdir()):
        if path.is_file() and path.name not in (MANIFEST, "LOCK"):
            shutil.copyfile(path, target / path.name)
            sync_path(target / path.name)
    sync_path(target)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    with (folder / MANIFEST).open("wb") as file:
        file.write(encode_manifest(manifest))
        file.flush()
        os.fsync(file.fileno())
    sync_path(folder)


def read_manifest(folder: Path) -> Manifest:
    """Raises BackupUnusable."""
    try:
        written = (folder / MANIFEST).read_bytes()
    except FileNotFoundError:
        raise BackupUnusable("BACKUP_INCOMPLETE", path=folder, found="no manifest") from None
    except OSError as error:
        raise BackupUnusable("BACKUP_DAMAGED", path=folder, found=error) from error
    return decode_manifest(written, folder)


def encode_manifest(manifest: Manifest) -> bytes:
    return json.dumps(asdict(manifest), indent=1).encode()


def decode_manifest(written: bytes, path: object) -> Manifest:
    """Raises BackupUnusable, which names the path."""
    try:
        with foreign("it"):
            raw = json.loads(written)  # as large as there are tables: its depth ends in an error, too
            number = int(raw["format"])
        if number > MANIFEST_FORMAT:
            raise BackupUnusable("FORMAT_TOO_NEW", path=path, found=number, supported=MANIFEST_FORMAT)
        with foreign("it"):
            heads = [build(Head, each) for each in raw.pop("heads")]
            files = [build(FileDigest, each) for each in raw.pop("files")]
            return build(Manifest, raw, heads=heads, files=files)
    except ForeignUnusable as error:
        raise BackupUnusable("BACKUP_DAMAGED", path=path, found=f"a manifest that can't be read: {error}") from error


def check_files(folder: Path, manifest: Manifest) -> None:
    """Checks that every file exists with its bytes, and no other. Raises BackupUnusable."""
    for wrong in _differences(folder, manifest):
        raise BackupUnusable("BACKUP_DAMAGED", path=folder, found=wrong)


def _differences(folder: Path, manifest: Manifest) -> Iterator[str]:
    named = {file.name: file for file in manifest.files}
    present = {path.name: path for path in folder.iterdir() if path.name != MANIFEST}
    for name in sorted(present.keys() - named.keys()):
        yield f"{name} is not of the backup"
    for name, file in sorted(named.items()):
        path = present.get(name)
        if path is None:
            yield f"{name} is missing"
        elif path.stat().st_size != file.size_bytes:
            yield f"{name} has {path.stat().st_size} bytes of {file.size_bytes}"
    for name, file in sorted(named.items()):
        if digest_of(present[name]) != file.digest:
            yield f"{name} holds other bytes than were written"


def sync_path(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest_of(path: Path) -> str:
    sums = blake2b(digest_size=16)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            sums.update(chunk)
    return sums.hexdigest()
