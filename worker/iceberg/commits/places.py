"""A table's folder by the URIs of its clients, and links to files in the folder of a transaction."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metaservice.client import uuid7
from worker.base.errors import InputError
from worker.files.footers import in_threads
from worker.files.storage import crosses_link, is_local, make_folder, storage
from worker.iceberg.locations import location_of, uri_of


class Places:
    """The files below a table's folder."""

    def __init__(self, folder: str) -> None:
        self._location = location_of(folder).rstrip("/")
        self._files, self._root = storage(folder)
        self._root = self._root.rstrip("/")

    def inside(self, uri: str) -> str:
        """Return the path below the folder. Refuse a file elsewhere."""
        where = uri_of(uri)
        path = where.removeprefix(f"{self._location}/")
        if path == where or any(part in ("", ".", "..") for part in path.split("/")):
            raise InputError(
                "ICEBERG_FILE",
                f"{uri} lies outside the table's folder {self._location}: files elsewhere are taken in by "
                "`laketx import parquet`, or where they are a table, by `laketx import iceberg`",
            )
        return path

    def open(self, path: str) -> Any:
        """Open a file for random access."""
        whole = f"{self._root}/{path}"
        if link := crosses_link(self._files, self._root, whole):
            raise InputError("ICEBERG_FILE", f"{link} is a link: the files of a table lie in its folder")
        return self._files.open_input_file(whole)

    def put(self, paths: Sequence[str], targets: Sequence[str]) -> None:
        """Put the files under other paths: link them if the storage can, or else let the storage copy them."""
        for folder in {target.rpartition("/")[0] for target in targets}:
            make_folder(self._files, f"{self._root}/{folder}")
        pairs = list(zip(paths, targets, strict=True))
        if len(pairs) > 1:
            in_threads(self._put, pairs)
        else:
            self._put(pairs[0])

    def _put(self, pair: tuple[str, str]) -> None:
        source, target = (f"{self._root}/{path}" for path in pair)
        if not is_local(self._files):
            self._files.copy_file(source, target)
            return
        unfinished = Path(target).with_name(f".{uuid7()}.unfinished")
        try:
            _link(source, unfinished)
            unfinished.replace(target)
        except FileNotFoundError as error:
            raise InputError("ICEBERG_FILE", f"{pair[0]} is not there") from error
        finally:
            unfinished.unlink(missing_ok=True)  # a link to a file that is linked there already stays


def _link(source: str, target: Path) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:  # the file system has no links, or lets none be made of another user's files
        shutil.copyfile(source, target, follow_symlinks=False)
