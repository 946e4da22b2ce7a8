"""The checks of a data folder before it is opened, and facts of its file system."""

from __future__ import annotations

import os
from pathlib import Path

from metaservice.store.backups.folders import MANIFEST
from metaservice.store.port import STORE_DAMAGED, STORE_IS_BACKUP, STORE_NO_ROOM, StoreUnusable

_ROOM_TO_OPEN_BYTES = 2 << 20


def refuse_a_backup(path: Path) -> None:
    """Refuses a backup: opening would write to it, and begin its history a second time."""
    if (path / MANIFEST).exists():
        how = f"laketx restore --backup {path} --data NEW_FOLDER"
        raise StoreUnusable(STORE_IS_BACKUP, path=str(path), found="a backup", restore_it_with=how)


def refuse_half_a_store(path: Path) -> None:
    """Refuses a folder without the file CURRENT: RocksDB would treat it as new and begin empty."""
    if not (path / "CURRENT").exists() and any(path.glob("*.sst")):
        raise StoreUnusable(STORE_DAMAGED, path=str(path), found="tables but no file CURRENT")


def refuse_without_room(path: Path) -> None:
    """Refuses to open if the disk is too full.

    Opening writes the contents of logs into tables. An attempt that runs out of room leaves tables behind that later
    attempts don't count, so a service that is restarted repeatedly would fill the disk.
    """
    logs_bytes = sum(log.stat().st_size for log in path.glob("*.log"))
    needed_bytes = logs_bytes + logs_bytes // 50 + _ROOM_TO_OPEN_BYTES
    free_bytes = file_system_free_bytes(path)
    if free_bytes < needed_bytes:
        raise StoreUnusable(STORE_NO_ROOM, path=str(path), needed_bytes=needed_bytes, free_bytes=free_bytes)


def file_system_free_bytes(path: Path) -> int:
    room = os.statvfs(path)
    return room.f_bavail * room.f_frsize


def sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
