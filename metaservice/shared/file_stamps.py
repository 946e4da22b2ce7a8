"""Whether a file was written or replaced; for all who take certificates, keys and tokens anew, service and clients."""

from __future__ import annotations

from pathlib import Path

Stamp = tuple[int, int, int]  # when it was written, which one it is, its size


def read_stamp(path: Path | str) -> Stamp | None:
    """It differs once the file was written or replaced, also by another target of a symbolic link; None: it is gone."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_ino, found.st_size)
