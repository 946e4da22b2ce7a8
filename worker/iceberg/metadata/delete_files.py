"""Files with the hidden rows of data files. A written file is used again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from worker.iceberg.metadata.deletes import Place, position_deletes, puffin
from worker.iceberg.metadata.facts import MadeFile, ShownFile, TableFacts, named

Put = Callable[[MadeFile], None]


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """The file of a data file's hidden rows: a place in a Puffin file, or a separate Parquet file."""

    path: str
    size: int
    place: Place | None


class DeleteFiles:
    """The delete files of a table in one format."""

    def __init__(self, table: TableFacts, put: Put) -> None:
        """`put` is called with each new file."""
        self._table = table
        self._put = put
        self._written: dict[str, tuple[ShownFile, DeleteFile]] = {}  # by the path of the data file

    def of(self, dirty: Sequence[ShownFile]) -> list[DeleteFile]:
        """Return a delete file for each of these data files with hidden rows."""
        fresh = [shown for shown in dirty if not self._is_written(shown)]
        write = self._vectors if self._table.format >= 3 else self._positions
        for shown, written in write(fresh):
            self._written[shown.path] = shown, written
        return [self._written[shown.path][1] for shown in dirty]

    def written(self, shown: ShownFile) -> DeleteFile | None:
        """Return the file that a snapshot has listed for these hidden rows, if it is known."""
        return self._written[shown.path][1] if self._is_written(shown) else None

    def _is_written(self, shown: ShownFile) -> bool:
        cached = self._written.get(shown.path)
        return cached is not None and (cached[0] is shown or cached[0].hidden == shown.hidden)

    def _vectors(self, dirty: Sequence[ShownFile]) -> Iterator[tuple[ShownFile, DeleteFile]]:
        if not dirty:
            return
        content, places = puffin(dirty)
        path = self._write("puffin", content)
        for shown, place in zip(dirty, places, strict=True):
            yield shown, DeleteFile(path, len(content), place)

    def _positions(self, dirty: Sequence[ShownFile]) -> Iterator[tuple[ShownFile, DeleteFile]]:
        for shown in dirty:
            content = position_deletes(shown)
            yield shown, DeleteFile(self._write("parquet", content), len(content), None)

    def _write(self, ending: str, content: bytes) -> str:
        """Write a file and return its location."""
        made = named("deletes", ending, content)
        self._put(made)
        return f"{self._table.location}/{made.name}"
