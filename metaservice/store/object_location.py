"""Where a store on object storage is, `s3://bucket/path`, and its log. In tests a folder stands in for a bucket.

SlateDB doesn't sync what it writes to a disk, so nobody else is offered that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

S3: Final = "s3://"
CACHE_BYTES: Final = 256 << 20  # of memory, for what is read from a store there
_BUCKET: Final = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/?")
_PLACE: Final = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/([\w!.*'()/=-]*[\w!.*'()=-])/?")


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """A bucket, and the prefix of the store's objects in it; `folder` is the stand-in for the bucket."""

    bucket: str
    path: str
    folder: Path | None = None

    @classmethod
    def of(cls, text: str) -> Self | None:
        """Parse a place in a bucket; None if the text names no such place."""
        match = _PLACE.fullmatch(text)
        if match is None or "//" in match[2] or {".", ".."} & set(match[2].split("/")):
            return None
        return cls(match[1], match[2])

    @classmethod
    def in_folder(cls, folder: Path) -> Self:
        """For tests: it survives the process, not the machine."""
        return cls("", folder.name, folder.parent)

    def __str__(self) -> str:
        return f"{S3}{self.bucket}/{self.path}" if self.folder is None else str(self.folder / self.path)


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where a store has its log, if that isn't its own bucket. The log's objects have the store's path there."""

    bucket: str = ""  # empty: the one that is recorded
    endpoint: str = ""  # of its server; empty: the store's

    @classmethod
    def of(cls, text: str, endpoint: str) -> Self | None:
        """None: the text names no bucket."""
        named = _BUCKET.fullmatch(text)
        return cls(named[1], endpoint) if named is not None else None

    def __str__(self) -> str:
        return f"{S3}{self.bucket}"
