"""The file systems of tables. No Spark here.

Deleting, and listing files to delete, follows no link: `walk` skips links, and `crosses_link` finds the first link on
the way to a file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from metaservice.client import uuid7

READ_BUFFER_BYTES: Final = 1 << 20
WHOLE_BYTES_MAX: Final = 1 << 20
DELAYED: Final = "allow_delayed_open=true"
_IN_BUCKET: Final = re.compile(r"s3://(?P<path>(?P<bucket>[\w.-]+)(/[^/?]+)*)/?(?P<options>\?.*)?")
OBJECT_STORES: Final = (fs.S3FileSystem, fs.GcsFileSystem, fs.AzureFileSystem)

_LOCAL: Final = fs.LocalFileSystem()

T = TypeVar("T")


_opened: dict[str, Callable[[str], Any]] = {}  # by the URI of a warehouse: what opens the files of a table


def open_tables_by(warehouse: str, opener: Callable[[str], Any]) -> Callable[[], None]:
    """Open the files of the warehouse's tables with a file system for each table: `opener` gets its id.

    Return a function that ends this.
    """
    root = s3_uri(warehouse).rstrip("/") + "/"
    _opened[root] = opener

    def end() -> None:
        if _opened.get(root) is opener:
            del _opened[root]

    return end


def has_opener(path: str) -> bool:
    """Return whether the files below a path are opened by an opener of this process."""
    return any(s3_uri(path).startswith(root) for root in list(_opened))


def s3_uri(path: str) -> str:
    """Return an S3 URI in its standard spelling; other paths unchanged."""
    scheme, colon, rest = path.partition(":")
    return f"s3{colon}{rest}" if scheme in {"s3a", "s3n"} else path


def storage(path: str) -> tuple[Any, str]:
    """Return the file system of a path or URI, and the path in it."""
    for root, opener in list(_opened.items()):
        if s3_uri(path).startswith(root):
            inside = s3_uri(path)
            return opener(inside.removeprefix(root).partition("/")[0]), inside.removeprefix("s3://").rstrip("/")
    if path.startswith("/"):
        return _LOCAL, _plain(path)
    if (in_bucket := _on_s3(path)) is not None:
        return in_bucket
    if "://" in path or path.startswith("file:"):
        scheme, colon, rest = path.partition(":")
        place, query, options = rest.partition("?")
        if scheme != "file":  # there %20 stands for itself, as for Spark
            place = quote(place, safe="/:@!$&'()*+,;=[]")
        plain_scheme = {"s3a": "s3", "s3n": "s3"}.get(scheme, scheme)
        other: tuple[Any, str] = fs.FileSystem.from_uri(f"{plain_scheme}{colon}{place}{query}{options}")
        return other
    return _LOCAL, str(Path(path).absolute())


@lru_cache(maxsize=1 << 10)  # a read of one row asks for the same ones again and again
def _plain(path: str) -> str:
    return str(Path(path))


def _on_s3(path: str) -> tuple[Any, str] | None:
    """Return the file system of a bucket and its settings. It is kept: it has its connections, and is slow to make."""
    matched = _IN_BUCKET.fullmatch(s3_uri(path))
    if matched is None:
        return None
    settings = tuple(sorted(variable for variable in os.environ.items() if variable[0].startswith("AWS_")))
    return _s3(matched["bucket"], matched["options"] or "", settings, os.getpid()), matched["path"]


@lru_cache(maxsize=64)
def _s3(bucket: str, options: str, settings: tuple[tuple[str, str], ...], process: int) -> Any:  # noqa: ARG001 - the key
    """Return a new file system of a bucket. It writes a file below 5 MiB by one request."""
    delayed_options = options if DELAYED in options else f"{options}&{DELAYED}" if options else f"?{DELAYED}"
    files, _ = fs.FileSystem.from_uri(f"s3://{bucket}{delayed_options}")
    return files


@contextmanager
def open_to_read(files: Any, path: str) -> Iterator[Any]:
    """Open a file for random access. A small one in an object store is read whole, by one request."""
    with files.open_input_file(path) as stream:
        if is_local(files) or stream.size() > WHOLE_BYTES_MAX:
            yield stream
        else:
            yield pa.BufferReader(stream.read_at(stream.size(), 0))


def in_pages(source: Any, files: Any = None, *, checks_pages: bool = False) -> Any:
    """Open a Parquet file that is read page by page, and if asked, each page compared with its checksum.

    By default pyarrow keeps every row group that it has read to the end.
    """
    return pq.ParquetFile(
        source,
        filesystem=files,
        coerce_int96_timestamp_unit="us",
        buffer_size=READ_BUFFER_BYTES,
        pre_buffer=False,
        page_checksum_verification=checks_pages,
    )


def make_folder(files: Any, path: str) -> None:
    """Create a folder and its parents. Object stores need no folders, and may refuse them."""
    if not isinstance(files, OBJECT_STORES):
        files.create_dir(path, recursive=True)


def put_whole(files: Any, path: str, content: bytes | bytearray) -> None:
    """Write a file that gets its name when it is complete."""
    make_folder(files, path.rpartition("/")[0])
    if not is_local(files):
        with files.open_output_stream(path) as sink:
            sink.write(content)
        return
    unfinished = Path(path).with_name(f".{uuid7()}.unfinished")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def is_local(files: Any) -> bool:
    return isinstance(files, fs.LocalFileSystem)


def walk(files: Any, folder: str) -> Iterator[tuple[str, int]]:
    """Yield paths and sizes of the files below a folder, without links and the files behind them."""
    if not is_local(files):
        for info in files.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True)):
            if info.type == fs.FileType.File:
                yield info.path, int(info.size)
        return
    left = [] if Path(folder).is_symlink() else [folder]
    while left:
        try:
            entries = os.scandir(left.pop())
        except (FileNotFoundError, NotADirectoryError):
            continue
        with entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    with suppress(FileNotFoundError):
                        yield entry.path, entry.stat(follow_symlinks=False).st_size


def crosses_link(files: Any, root: str, path: str) -> str:
    """Return the first link between a root and a path below it, the path included; empty if there is none."""
    if not is_local(files):
        return ""
    way = root
    for part in path.removeprefix(root).strip("/").split("/"):
        way = f"{way}/{part}"
        if Path(way).is_symlink():
            return way
    return ""


def remove_empty_folders(files: Any, folder: str) -> bool:
    """Remove a folder and its subfolders, from the bottom, if they contain no files. Return whether all are gone."""
    if not is_local(files):  # what an object store calls a folder is an empty object
        if any(True for _ in walk(files, folder)):
            return False
        if files.get_file_info(folder).type == fs.FileType.Directory:
            files.delete_dir(folder)
        return True
    if Path(folder).is_symlink():
        return False
    try:
        for way, _, _ in os.walk(folder, topdown=False, followlinks=False):
            Path(way).rmdir()
    except OSError:  # a file or link lies there
        return False
    return True


def remove_folder(folder: str) -> None:
    """Remove a folder. A missing folder is no error, and a link stays."""
    files, path = storage(folder)
    if files.get_file_info(path).type == fs.FileType.Directory and not (is_local(files) and Path(path).is_symlink()):
        files.delete_dir(path)


def pages(items: Iterable[T], count: int) -> Iterator[list[T]]:
    """Split items into pages of the given size."""
    remaining = iter(items)
    while page := list(islice(remaining, count)):
        yield page
