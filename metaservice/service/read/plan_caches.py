"""Caches of plans: the statistics of recently planned partitions, and the entries of whole tables with inlined rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, NamedTuple

from cachetools import LRUCache

from metaservice.core import limits
from metaservice.service.read.file_blocks import Blocks, Entries, blocks_of

Part = tuple[bytes, str, Hashable]  # table, partition, what was read of the statistics


@dataclass(slots=True)
class SeenPartition:
    """The entries of a partition at a version, by bucket and path. Threads share it: the entries stay as they are."""

    version: int
    entries: Entries
    blocks: Blocks | None = field(default=None, compare=False)

    def make_blocks(self) -> None:
        """Puts the files into blocks: a partition that is planned again is planned often."""
        if self.blocks is None:
            self.blocks = blocks_of(self.entries)


class StatsMemory:
    """The statistics of recently planned partitions. Threads share it."""

    def __init__(self, files_max: int = limits.PLAN_FILES_REMEMBERED_MAX) -> None:
        self._parts: LRUCache[Part, SeenPartition] = LRUCache(files_max, getsizeof=_files)
        self._lock = Lock()

    def recall(self, part: Part) -> SeenPartition | None:
        with self._lock:
            return self._parts.get(part)

    def keep(self, part: Part, snapshot: SeenPartition) -> None:
        """Stores the newest snapshot of a partition."""
        with self._lock, suppress(ValueError):  # larger than all the room
            before = self._parts.get(part)
            if before is None or before.version < snapshot.version:
                self._parts[part] = snapshot


def _files(snapshot: SeenPartition) -> int:
    return max(1, len(snapshot.entries))  # an empty one takes room too


PIECE_BYTES: Final = 64 * 1024

AnswerKey = tuple[bytes, Hashable]  # a table, and the form of its entries
Join = Callable[[bytes, bool], bytes | None]  # a piece that is final, or goes on


class Answered(NamedTuple):
    """All entries at a version, in the order of their keys, as bytes. Immutable: threads share it."""

    version: int
    last: bytes  # the key of the last entry
    pieces: tuple[bytes, ...]

    def extended(self, version: int, last: bytes, entries: Iterable[bytes]) -> Answered:
        """With more entries behind these, at a later version."""
        pieces = list(self.pieces)
        end = [pieces.pop()] if pieces else []
        size = sum(map(len, end))
        for entry in entries:
            if size + len(entry) > PIECE_BYTES and end:
                pieces.append(b"".join(end))
                end, size = [], 0
            end.append(entry)
            size += len(entry)
        return Answered(version, last, (*pieces, b"".join(end)))


NOTHING: Final = Answered(0, b"", ())


class AnswerMemory:
    """The entries of whole tables with inlined rows, as plans answered them last. Threads share it.

    The rows of such entries are looked up one by one; a table that many commits wrote has thousands. What a plan
    answered at a version stays true, so it is kept with its version, and extended by the commits that only added
    entries behind it. It is made from the store alone, and can be dropped at any time.
    """

    def __init__(self, bytes_max: int = limits.PLAN_BYTES_REMEMBERED_MAX) -> None:
        self.bytes_max: Final = bytes_max
        self._answers: LRUCache[AnswerKey, Answered] = LRUCache(bytes_max, getsizeof=_bytes)
        self._joined: LRUCache[bytes, bytes] = LRUCache(bytes_max, getsizeof=len)  # by the piece
        self._lock = Lock()

    def recall(self, key: AnswerKey) -> Answered | None:
        with self._lock:
            return self._answers.get(key)

    def keep(self, key: AnswerKey, answered: Answered) -> None:
        """Stores an answer, unless a newer one is stored."""
        with self._lock, suppress(ValueError):  # larger than all the room
            before = self._answers.get(key)
            if before is None or before.version < answered.version:
                self._answers[key] = answered

    def joined(self, answered: Answered, join: Join) -> list[bytes] | None:
        """The pieces, each joined; None if one of them can't be. `join` is always the same.

        All pieces but the last one are final: they stay as they are, so they are joined once.
        """
        pieces = []
        for at, piece in enumerate(answered.pieces, 1):
            is_final = at < len(answered.pieces)
            with self._lock:
                joined = self._joined.get(piece) if is_final else None
            if joined is None:
                joined = join(piece, is_final)
                if joined is None:
                    return None
                if is_final:
                    with self._lock, suppress(ValueError):  # larger than all the room
                        self._joined[piece] = joined
            pieces.append(joined)
        return pieces


def _bytes(answered: Answered) -> int:
    return sum(map(len, answered.pieces)) + len(answered.last)
