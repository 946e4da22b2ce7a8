"""Files with the hidden rows of data files. What was written once is used again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from worker.iceberg.metadata.deletes import Place, position_deletes, puffin
from worker.iceberg.metadata.facts import MadeFile, ShownFile, TableFacts, named

Put = Callable[[MadeFile], None]


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """Where the hidden rows of a data file are: a place in a Puffin file, or a Parquet file of their own."""

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
        """One for each data file, which has hidden rows."""
        fresh = [one for one in dirty if not self._is_written(one)]
        write = self._vectors if self._table.format >= 3 else self._positions
        for one, written in write(fresh):
            self._written[one.path] = one, written
        return [self._written[one.path][1] for one in dirty]

    def written(self, one: ShownFile) -> DeleteFile | None:
        """The file that a snapshot has listed for these hidden rows, if it is known."""
        return self._written[one.path][1] if self._is_written(one) else None

    def _is_written(self, one: ShownFile) -> bool:
        known = self._written.get(one.path)
        return known is not None and (known[0] is one or known[0].hidden == one.hidden)

    def _vectors(self, dirty: Sequence[ShownFile]) -> Iterator[tuple[ShownFile, DeleteFile]]:
        if not dirty:
            return
        content, places = puffin(dirty)
        path = self._write("puffin", content)
        for one, place in zip(dirty, places, strict=True):
            yield one, DeleteFile(path, len(content), place)

    def _positions(self, dirty: Sequence[ShownFile]) -> Iterator[tuple[ShownFile, DeleteFile]]:
        for one in dirty:
            content = position_deletes(one)
            yield one, DeleteFile(self._write("parquet", content), len(content), None)

    def _write(self, ending: str, content: bytes) -> str:
        """Writes a file and returns its location."""
        made = named("deletes", ending, content)
        self._put(made)
        return f"{self._table.location}/{made.name}"
