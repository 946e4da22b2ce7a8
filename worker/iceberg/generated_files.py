"""Where generated files lie, and how they get there: whole, or not at all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from worker.files.storage import put_whole, storage
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
        put_whole(self._files, f"{self._path}/{one.name}", one.content)
