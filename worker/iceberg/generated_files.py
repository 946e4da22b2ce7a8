"""Generated files in a folder: each is written completely, or not at all."""

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
        self._written: set[str] = set()
        self._waiting: dict[str, MadeFile] = {}

    def read(self, name: str) -> bytes:
        with self._files.open_input_stream(f"{self._path}/{name}") as stream:
            return bytes(stream.read())

    def put_once(self, file: MadeFile) -> None:
        """Put a file that is named by its content, unless this object has written it. It exists after `settle`."""
        if file.name not in self._written:
            self._waiting[file.name] = file
            if len(self._waiting) >= AT_ONCE:
                self.settle()

    def settle(self) -> None:
        """Write the waiting files. A file that fails keeps waiting."""
        if self._waiting:
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(self._put_waiting, [*self._waiting.values()]))

    def _put_waiting(self, file: MadeFile) -> None:
        self.put(file)
        self._written.add(file.name)
        del self._waiting[file.name]

    def put(self, file: MadeFile) -> None:
        """Write a file that gets its name when it is complete."""
        put_whole(self._files, f"{self._path}/{file.name}", file.content)
