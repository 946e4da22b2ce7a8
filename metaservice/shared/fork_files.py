"""Files that are generated of a fork, such as metadata for Iceberg's clients.

The files of a fork lie in the folder of its root, and so do those of the root and of all its other forks. What is
generated of a fork has a folder of its own there, which is named by the fork's id and goes with the fork:

    <root's folder>/_iceberg/forks/<id of the fork>/
"""

from __future__ import annotations

import re
from typing import Final

FOLDER: Final = "_iceberg/forks"
_PATH: Final = re.compile(rf"{FOLDER}/([0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}})/.")


def folder_of_fork(fork_id: str) -> str:
    """The folder of what is generated of a fork, below the root's folder."""
    return f"{FOLDER}/{fork_id}"


def fork_of(path: str) -> str:
    """The fork that a file below a root's folder was generated of; empty: of none."""
    match = _PATH.match(path)
    return match[1] if match is not None else ""
