"""Where a store on object storage is: `s3://bucket/path`. A folder on a disk stands in for a bucket in tests.

SlateDB doesn't sync what it writes to a disk, so nobody else is offered that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

S3: Final = "s3://"
CACHE_BYTES: Final = 256 << 20  # of memory, for what is read from a store there
_PLACE: Final = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/([\w!.*'()/=-]*[\w!.*'()=-])/?")


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """A bucket, and the prefix of the store's objects in it; `folder` is the stand-in for the bucket."""

    bucket: str
    path: str
    folder: Path | None = None

    @classmethod
    def of(cls, text: str) -> Self | None:
        """None: the text names no place that keeps what is written."""
        found = _PLACE.fullmatch(text)
        if found is None or "//" in found[2] or {".", ".."} & set(found[2].split("/")):
            return None
        return cls(found[1], found[2])

    @classmethod
    def in_folder(cls, folder: Path) -> Self:
        """For tests: it survives the process, not the machine."""
        return cls("", folder.name, folder.parent)

    def __str__(self) -> str:
        return f"{S3}{self.bucket}/{self.path}" if self.folder is None else str(self.folder / self.path)
