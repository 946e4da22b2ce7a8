"""Where generated files lie, and how they get there: whole, or not at all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from metaservice.client import uuid7
from worker.files.storage import is_local, make_folder, storage
from worker.iceberg.metadata.facts import MadeFile

AT_ONCE: Final = 16  # files on their way: a bucket takes its time for each


class GeneratedFiles:
    """The generated files below a folder."""

    def __init__(self, folder: str) -> None:
        self._files, self._path = storage(folder)
        self._there: set[str] = set()
        self._waiting: dict[str, MadeFile] = {}

    def read(self, name: str) -> bytes:
        with self._files.open_input_stream(f"{self._path}/{name}") as stream:
            return bytes(stream.read())

    def put_once(self, one: MadeFile) -> None:
        """A file that is named by its content, unless this object has written it. It is there after `settle`."""
        if one.name not in self._there:
            self._waiting[one.name] = one
            if len(self._waiting) >= AT_ONCE:
                self.settle()

    def settle(self) -> None:
        """Writes what waits. What fails stays waiting."""
        if self._waiting:
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(self._put_waiting, [*self._waiting.values()]))

    def _put_waiting(self, one: MadeFile) -> None:
        self.put(one)
        self._there.add(one.name)
        del self._waiting[one.name]

    def put(self, one: MadeFile) -> None:
        """A file that has its name when it is complete."""
        path = f"{self._path}/{one.name}"
        make_folder(self._files, path.rpartition("/")[0])
        if is_local(self._files):
            _rename_into(Path(path), one.content)
        else:
            _upload(self._files, path, one.content)


def _rename_into(path: Path, content: bytes) -> None:
    unfinished = path.with_name(f".{uuid7()}.unfinished")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _upload(files: Any, path: str, content: bytes) -> None:
    with files.open_output_stream(path) as sink:
        sink.write(content)
