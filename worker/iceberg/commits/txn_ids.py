"""Transaction ids for commits of Iceberg's clients: a repeated commit has the same id.

A client writes files into a folder of the table that loadTable named: each answer has a new id. If all files of a
commit are in one such folder, its id is the transaction's. If not, or if another commit has used it, the id is derived
from the snapshot's id and time, and the files are linked into that folder.

The id of a folder also contains the version that its loadTable showed, so the files of a later commit show which
version its client had loaded.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Final

from metaservice.client import uuid7
from worker.iceberg.locations import ODD

UUID7: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")
LOADED: Final = 0x1CE  # the twelve bits after the time, in ids that hold a version
VERSION_BITS: Final = 40
CHANCE_BITS: Final = 62 - VERSION_BITS
NEAR_MS: Final = 86_400_000  # much less than outcomes are kept: a late repeat finds one, or is refused for its age
PATH_CHARS: Final = 1_000
NAME: Final = re.compile(r"[^A-Za-z0-9._=-]")
NAME_CHARS: Final = 100


def derived_id(table_id: str, snapshot_id: int, time_ms: int) -> str:
    """Return a UUIDv7 derived from the snapshot's time and identity."""
    chance = int.from_bytes(hashlib.sha256(f"{table_id}/{snapshot_id}".encode()).digest()[:10], "big") >> 6
    return _text(
        (time_ms & 0xFFFFFFFFFFFF) << 80 | 0x7 << 76 | (chance >> 62) << 64 | 0x2 << 62 | chance & (1 << 62) - 1
    )


def _text(number: int) -> str:
    digits = f"{number:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def folder_id(version: int) -> str:
    """Return a new UUIDv7 for the files of a client that loaded this version."""
    number = int(uuid7().replace("-", ""), 16)
    chance = number & ((1 << CHANCE_BITS) - 1)
    held = (version & ((1 << VERSION_BITS) - 1)) << CHANCE_BITS
    return _text(number >> 80 << 80 | 0x7 << 76 | LOADED << 64 | 0x2 << 62 | held | chance)


def loaded_version(paths: Iterable[str]) -> int | None:
    """Return the oldest version in the folders' ids; None if no folder has one."""
    versions = []
    for folder in {path.partition("/")[0] for path in paths}:
        number = int(folder.replace("-", ""), 16) if UUID7.match(folder) else 0
        if number >> 64 & 0xFFF == LOADED:
            versions.append(number >> CHANCE_BITS & ((1 << VERSION_BITS) - 1))
    return min(versions, default=None)


def folder_of(paths: Sequence[str], time_ms: int) -> str:
    """Return the id of the folder that contains all files of a snapshot; empty if no id can be its transaction's."""
    folders = {path.partition("/")[0] for path in paths}
    if len(folders) != 1 or any(ODD.search(path) or "\\" in path or len(path) > PATH_CHARS for path in paths):
        return ""
    [folder] = folders
    is_near = UUID7.match(folder) is not None and abs(int(folder[:8] + folder[9:13], 16) - time_ms) <= NEAR_MS
    return folder if is_near else ""


def paths_below(txn_id: str, paths: Sequence[str]) -> list[str]:
    """Return paths for the files in the folder of a transaction."""
    names = [NAME.sub("_", path.rpartition("/")[2])[-NAME_CHARS:] for path in paths]
    return [f"{txn_id}/{at:05d}-{name}" for at, name in enumerate(names)]
