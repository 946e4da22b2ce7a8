"""Whether a file was written or replaced; for all who take certificates, keys and tokens anew, service and clients."""

from __future__ import annotations

from pathlib import Path

Stamp = tuple[int, int, int]  # when it was written, which one it is, its size


def read_stamp(path: Path | str) -> Stamp | None:
    """Return a stamp that changes when the file or a link's target is written or replaced; None for a missing file."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_ino, status.st_size)
