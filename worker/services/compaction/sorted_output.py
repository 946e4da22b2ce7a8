"""Rows in any order, written in order, in bounded memory.

Rows that fit into memory are sorted there. More become runs: sorted parts, each an Arrow file on local disk. The runs
are merged range by range:

    run 0   1 3 | 5 8 | 9        the last rows of the batches, in order: 3 6 8 9 9
    run 1   2 6 | 7 7 | 9 9      every so many bytes one of them ends a range: up to 6, up to 9

The rows of a range below its end are sorted together; those that equal the end follow as they are. So a value that
fills the table is no more work than others.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import polars as pl
import pyarrow as pa

from worker.services.compaction.file_io import Output, WrittenFile
from worker.services.compaction.orders import Places

BATCHES_A_RUN: Final = 256
BATCH_BYTES_LEAST: Final = 1 << 16
_BYTES: Final = "_laketx_bytes"


class SortedOutput:
    """Takes rows as an output does, and gives them to it in order when it is closed."""

    def __init__(self, output: Output, places: Places, folder: Path, memory_bytes: int) -> None:
        self._output = output
        self._places = places
        self._folder = folder
        self._memory_bytes = memory_bytes
        self._waiting: list[pl.DataFrame] = []
        self._waiting_bytes = 0
        self._runs: list[_Run] = []
        self._ends: list[pl.DataFrame] = []  # of batches: the last row's places, and the batch's bytes

    def write(self, rows: pl.DataFrame) -> None:
        if not len(rows):
            return
        rows = pl.concat([rows, self._places.of(rows)], how="horizontal")
        self._waiting.append(rows)
        self._waiting_bytes += int(rows.estimated_size())
        if self._waiting_bytes >= self._memory_bytes:
            self._spill()

    def close(self) -> list[WrittenFile]:
        if self._runs:
            self._spill()
            for rows in self._merged():
                self._write(rows)
        elif self._waiting:
            self._write(self._sorted())
        return self._output.close()

    def abandon(self) -> None:
        self._waiting, self._runs = [], []
        self._output.abandon()

    def _write(self, rows: pl.DataFrame) -> None:
        self._output.write(rows.drop(self._places.names))

    def _sorted(self) -> pl.DataFrame:
        rows = pl.concat(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        return rows.sort(self._places.names, maintain_order=True)

    def _spill(self) -> None:
        if not self._waiting:
            return
        rows = self._sorted()
        row_bytes = max(1.0, rows.estimated_size() / len(rows))
        count = max(1, int(max(BATCH_BYTES_LEAST, self._memory_bytes / BATCHES_A_RUN) / row_bytes))
        path = self._folder / f"run-{len(self._runs)}.arrow"
        rows.write_ipc(path, record_batch_size=count)
        self._runs.append(_Run(path, self._places.names))
        last = [min(at + count, len(rows)) - 1 for at in range(0, len(rows), count)]
        sizes = pl.lit(int(count * row_bytes), pl.Int64).alias(_BYTES)
        self._ends.append(rows.select(self._places.names)[last].with_columns(sizes))

    # -- the merge

    def _merged(self) -> Iterator[pl.DataFrame]:
        for end in self._range_ends():
            below = [rows for run in self._runs for rows in run.up_to(end, with_equal=False)]
            if below:
                yield pl.concat(below).sort(self._places.names, maintain_order=True)
            for run in self._runs:
                yield from run.up_to(end, with_equal=True)

    def _range_ends(self) -> Iterator[dict[str, Any]]:
        names = self._places.names
        ends = pl.concat(self._ends).sort(names)
        number = ends[_BYTES].cum_sum() // self._memory_bytes
        is_end = (number != number.shift(-1)).fill_null(True)  # the last row of all ends the last range
        yield from ends.filter(is_end).select(names).unique(maintain_order=True).iter_rows(named=True)


class _Run:
    """A sorted part on local disk, read from its begin to its end. Its file goes as soon as it is open."""

    def __init__(self, path: Path, names: list[str]) -> None:
        self._names = names
        self._source = pa.memory_map(str(path))
        path.unlink()  # a process that is killed leaves nothing behind
        self._file = pa.ipc.open_file(self._source)
        self._next = 0
        self._rows: pl.DataFrame | None = None  # those of a batch that are still to come

    def up_to(self, end: dict[str, Any], *, with_equal: bool) -> Iterator[pl.DataFrame]:
        """The next rows below the end, or up to it."""
        while (rows := self._batch()) is not None:
            count = int(rows.select(_precedes(rows, self._names, end, with_equal=with_equal).sum()).item())
            if count:
                yield rows[:count]
            if count < len(rows):
                self._rows = rows[count:]
                return
            self._rows = None

    def _batch(self) -> pl.DataFrame | None:
        if self._rows is None and self._next < self._file.num_record_batches:
            rows = pl.from_arrow(self._file.get_batch(self._next))
            assert isinstance(rows, pl.DataFrame)
            self._rows, self._next = rows, self._next + 1
        return self._rows


def _precedes(rows: pl.DataFrame, names: list[str], end: dict[str, Any], *, with_equal: bool) -> pl.Expr:
    precedes = pl.lit(with_equal)
    for name in reversed(names):
        value = pl.lit(end[name]).cast(rows.schema[name])
        precedes = (pl.col(name) < value) | ((pl.col(name) == value) & precedes)
    return precedes


def is_ordered(places: pl.DataFrame) -> bool:
    """Return whether no row precedes the row before it."""
    follows = pl.lit(True)
    for name in reversed(places.columns):
        earlier = pl.col(name).shift(1)
        follows = (earlier < pl.col(name)) | ((earlier == pl.col(name)) & follows)
    return bool(places.select(follows.fill_null(True).all()).item())
