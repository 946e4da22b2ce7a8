"""The file systems that tables lie on. Knows nothing of Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyarrow import fs


def storage(path: str) -> tuple[Any, str]:
    """The file system of a path or URI, and the path in it."""
    if "://" in path or path.startswith("file:"):
        scheme, colon, rest = path.partition(":")
        found: tuple[Any, str] = fs.FileSystem.from_uri({"s3a": "s3", "s3n": "s3"}.get(scheme, scheme) + colon + rest)
        return found
    return fs.LocalFileSystem(), str(Path(path).absolute())


def remove_folder(folder: str) -> None:
    """One that isn't there is no error."""
    files, path = storage(folder)
    if files.get_file_info(path).type == fs.FileType.Directory:
        files.delete_dir(path)
