"""Print the folder where `make test` keeps its files: in memory, where this machine has room for them.

Tests make files durable by the thousand, and each time a disk takes a millisecond or more. A process that is killed
leaves the same files in both. `make test TMPDIR=/var/tmp` keeps them on a disk.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

MEMORY: Final = Path("/dev/shm")
FREE_BYTES: Final = 4 << 30  # all tests write about 1 GB
AVAILABLE_BYTES: Final = 10 << 30  # of the machine's memory: up to three sessions of Spark run beside one another


def has_room(folder: Path, meminfo: Path = Path("/proc/meminfo")) -> bool:
    """Whether the folder, and the memory behind it, hold the files of a run; not if this can't be found out."""
    try:
        lines = meminfo.read_text(encoding="utf-8").splitlines()
        available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
        free = shutil.disk_usage(folder).free
    except (OSError, StopIteration):
        return False
    return os.access(folder, os.W_OK) and free >= FREE_BYTES and available >= AVAILABLE_BYTES


if __name__ == "__main__":
    print(MEMORY if has_room(MEMORY) else tempfile.gettempdir())
