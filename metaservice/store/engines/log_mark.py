"""The mark: a small file beside the database that records the synced log file and how far it was synced.

It is written after every sync of the log and not synced itself, except at openings and closings. It is memory-mapped: a
write needs no system call, and changes no file time that the next sync of the log would have to wait for. Its content
was durable before it was written, so it can lag behind the log, but is never ahead of it:

    after kill -9      the kernel has it: it is exact
    after a power cut  it is a little behind

An opening that finds less than the mark says has lost acknowledged writes. RocksDB itself detects a missing closed log
(its manifest names these); the mark is for the log being written, whose loss leaves no other trace.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from metaservice.store.port import STORE_DAMAGED, StoreGone, StoreUnusable

NAME: Final = "laketx-synced"
_FORMAT: Final = struct.Struct("<8sIQQQ")
_MAGIC: Final = b"laketx-1"
_CHECK: Final = struct.Struct("<I")
_SIZE: Final = _FORMAT.size + _CHECK.size
_LOOKS_MAX: Final = 100  # for the newest log


@dataclass(frozen=True, slots=True)
class SyncedMark:
    """`sequence` is RocksDB's number of the last write; log 0 means that the tables contain everything."""

    identity: int
    sequence: int
    log: int
    log_bytes: int


def read_mark(folder: Path) -> SyncedMark | None:
    """The mark; None if there is none or it can't be read: then it proves nothing."""
    try:
        raw = (folder / NAME).read_bytes()
    except OSError:
        return None
    body, check = raw[: _FORMAT.size], raw[_FORMAT.size :]
    if len(body) != _FORMAT.size or check != _check(body):
        return None
    magic, identity, sequence, log, log_bytes = _FORMAT.unpack(body)
    return SyncedMark(identity, sequence, log, log_bytes) if magic == _MAGIC else None


def refuse_a_lost_log(folder: Path) -> None:
    """Checks, before an opening changes anything, that the last written log or a later one exists with its bytes."""
    mark = read_mark(folder)
    if mark is None or not mark.log or mark.identity != _identity(folder):
        return
    newest = _newest_log(folder)
    if newest < mark.log:
        raise _lost(folder, f"the write-ahead log {_log_name(mark.log)} is gone")
    if newest == mark.log:
        size_bytes = (folder / _log_name(newest)).stat().st_size
        if size_bytes < mark.log_bytes:
            raise _lost(folder, f"{_log_name(newest)} has {size_bytes} bytes of {mark.log_bytes}")


def refuse_lost_writes(folder: Path, sequence: int) -> None:
    """Checks, after an opening, that no synced write is missing."""
    mark = read_mark(folder)
    if mark is not None and mark.identity == _identity(folder) and sequence < mark.sequence:
        raise _lost(folder, f"write {sequence} is the last of {mark.sequence} that were synced")


class LogMark:
    """Writes the mark of an open store; used by the thread that syncs."""

    def __init__(self, folder: Path, sequence: int) -> None:
        self._folder = folder
        self._identity = _identity(folder)
        self._log = 0
        self._log_path = str(folder)
        self._inode = 0
        self._sequence = self._log_bytes = -1
        self._file = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._text: mmap.mmap | None = None
        try:
            os.ftruncate(self._file, _SIZE)
            os.posix_fallocate(self._file, 0, _SIZE)  # a full disk is an error here, and a signal behind the mapping
            self._text = mmap.mmap(self._file, _SIZE)
            self.note(sequence)
            self._sync()
        except BaseException:
            self.close()
            raise

    def note(self, sequence: int) -> None:
        """Records that all writes up to this one are synced.

        Raises StoreGone if the log's file is not the one in the folder.
        """
        log_bytes = self._size()
        if log_bytes < 0 or (sequence != self._sequence and log_bytes == self._log_bytes):
            log_bytes = self._find_log()  # a write that didn't lengthen it went to the next one
        self._sequence, self._log_bytes = sequence, log_bytes
        self._write(sequence, self._log, log_bytes)

    def note_closed(self, sequence: int) -> None:
        """Records that the tables contain everything: the log is not needed."""
        self._write(sequence, 0, 0)
        self._sync()

    def refuse_if_gone(self) -> None:
        if self._size() < 0:
            self._find_log()

    def close(self) -> None:
        text, self._text = self._text, None
        if text is not None:
            text.close()
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _size(self) -> int:
        """Return the size of the current log; negative if another file has replaced it."""
        try:
            status = os.stat(self._log_path)  # noqa: PTH116 - at each sync: a Path takes longer
        except OSError:
            return -1
        return status.st_size if status.st_ino == self._inode else -1

    def _find_log(self) -> int:
        """Find the newest log. RocksDB may begin a log and delete an older one during the listing: then list again."""
        for _ in range(_LOOKS_MAX):
            newest = _newest_log(self._folder)
            path = self._folder / _log_name(newest)
            if not self._is_in_folder():
                break
            try:
                status = path.stat()
            except OSError:
                continue
            if newest >= self._log:
                self._log, self._log_path, self._inode = newest, str(path), status.st_ino
                return status.st_size
        raise self._gone()

    def _is_in_folder(self) -> bool:
        """Whether the mark in the folder is the open one: the inode number of an open file never changes."""
        try:
            return os.path.samestat(os.fstat(self._file), (self._folder / NAME).stat())
        except OSError:
            return False

    def _gone(self) -> StoreGone:
        return StoreGone(
            f"the data folder {self._folder} was removed or replaced while the service ran: "
            "nothing more is acknowledged; put it back or restore a backup, then start again"
        )

    def _write(self, sequence: int, log: int, log_bytes: int) -> None:
        body = _FORMAT.pack(_MAGIC, self._identity, sequence, log, log_bytes)
        assert self._text is not None
        self._text[:] = body + _check(body)

    def _sync(self) -> None:
        assert self._text is not None
        self._text.flush()
        os.fsync(self._file)


def _check(body: bytes) -> bytes:
    return _CHECK.pack(zlib.crc32(body))


def _identity(folder: Path) -> int:
    """Distinguishes databases: a mark from another folder means nothing for this one."""
    try:
        return zlib.crc32((folder / "IDENTITY").read_bytes())
    except OSError:
        return 0


def _newest_log(folder: Path) -> int:
    """The number of the newest log; negative if there is none."""
    return max((int(log.stem) for log in folder.glob("*.log") if log.stem.isdecimal()), default=-1)


def _log_name(number: int) -> str:
    return f"{number:06d}.log"


def _lost(folder: Path, problem: str) -> StoreUnusable:
    return StoreUnusable(
        STORE_DAMAGED, path=str(folder), found=f"{problem}: acknowledged writes are lost; put the file back, or restore"
    )
