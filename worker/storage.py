"""The file systems that tables lie on. Knows nothing of Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from pyarrow import fs

READ_BUFFER_BYTES: Final = 1 << 20


def storage(path: str) -> tuple[Any, str]:
    """The file system of a path or URI, and the path in it."""
    if "://" in path or path.startswith("file:"):
        scheme, colon, rest = path.partition(":")
        found: tuple[Any, str] = fs.FileSystem.from_uri({"s3a": "s3", "s3n": "s3"}.get(scheme, scheme) + colon + rest)
        return found
    return fs.LocalFileSystem(), str(Path(path).absolute())


def in_pages(source: Any, files: Any = None) -> Any:
    """A Parquet file that is read page by page. By default pyarrow keeps every row group that it read, to the end."""
    return pq.ParquetFile(
        source, filesystem=files, coerce_int96_timestamp_unit="us", buffer_size=READ_BUFFER_BYTES, pre_buffer=False
    )


def remove_folder(folder: str) -> None:
    """One that isn't there is no error."""
    files, path = storage(folder)
    if files.get_file_info(path).type == fs.FileType.Directory:
        files.delete_dir(path)
