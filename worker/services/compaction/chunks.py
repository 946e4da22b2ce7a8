"""A chunk of a compaction: rewrites the files of a bucket, or some files of a partition, with both digests.

It needs nothing but its arguments, so that it runs in any process that reads and writes the table's files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa
from pyroaring import BitMap64

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.arrow.scan.file_rows import InputFile, read_tables
from worker.arrow.scan.image_folds import folded
from worker.arrow.scan.polars_frames import frame
from worker.base.schema import OP, ROW_ID, SET
from worker.files.arrow_types import arrow_schema
from worker.files.footers import data_file, name_set_columns
from worker.files.position_blocks import blocks_of, has_bits, positions_of
from worker.services.compaction.digests import HASH, Digest, digest_of, named, row_hashes
from worker.services.compaction.file_io import Output, WrittenFile, read_batches
from worker.services.compaction.orders import SAMPLES, Order, Places
from worker.services.compaction.sorted_merge import (
    NotSortedError,
    Run,
    blocks,
    latest,
    rows_up_to,
    with_hidden,
    without_tombstones,
)
from worker.services.compaction.sorted_output import SortedOutput, is_ordered

SPILLED_ROWS: Final = 1 << 14
MEMORY_BYTES: Final = 128 << 20  # of rows that wait for others, decoded
MEMORY_BYTES_LEAST: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings that the chunks of a job share. `meta` is the table's message; an order is for clustering."""

    meta: bytes
    table_folder: str
    is_major: bool
    is_base: bool
    verify: bool
    file_bytes_target: int
    memory_bytes: int = MEMORY_BYTES
    order: Order | None = None

    @property
    def table(self) -> catalog_pb2.Table:
        return catalog_pb2.Table.FromString(self.meta)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Inputs that one process turns into files that begin with `name`. A bucket's files are all in one chunk."""

    group: int
    name: str
    files: tuple[InputFile, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a chunk; `files` are entries without partition and bucket."""

    group: int
    files: tuple[bytes, ...]
    input: Digest
    output: Digest


def go_on() -> None:
    """What a chunk calls between its parts, if nobody can stop it."""


def run_chunk(settings: Settings, chunk: Chunk, attempt: int = 0, check: Callable[[], None] = go_on) -> Result:
    """Runs a chunk. `check` is called often, and raises what stops the work.

    Each attempt has its own files; files of a failed attempt are swept with the transaction's folder.
    """
    table = settings.table
    name = f"{chunk.name}-{attempt}"
    with tempfile.TemporaryDirectory(prefix="laketx-") as made:
        folder = Path(made)
        if not table.primary_key:
            return _Append(settings, table, chunk, name, folder, check).run()
        try:
            return _Keyed(settings, table, chunk, name, folder, check).run()
        except NotSortedError:
            return _Keyed(settings, table, chunk, f"{name}-s", folder, check, sorts_first=True).run()


class _Work:
    """What both kinds of table share: an output, the digests, and the entries of the files."""

    def __init__(
        self,
        settings: Settings,
        table: catalog_pb2.Table,
        chunk: Chunk,
        name: str,
        folder: Path,
        check: Callable[[], None],
    ) -> None:
        self.folder = folder  # on local disk, for what doesn't fit into memory
        self.check = check
        self.settings = settings
        self.table = table
        self.chunk = chunk
        self.keys = list(table.primary_key)
        with_op = bool(self.keys) and not settings.is_base
        self.folds = any(file.is_partial for file in chunk.files)
        stored = arrow_schema(table, with_op=with_op, with_row_id=not self.keys, with_set=with_op and self.folds)
        self.stored = stored
        self.places = None if settings.order is None else Places(settings.order, self.samples(settings.order))
        plain = Output(table, settings.table_folder, name, stored, settings.file_bytes_target)
        ordered = self.places and SortedOutput(plain, self.places, folder, settings.memory_bytes)
        self.output: Output | SortedOutput = ordered or plain
        by_id = sorted(table.columns, key=lambda column: column.column_id)
        extra = [column for column in (OP, ROW_ID, SET) if column in stored.names]
        self.hashed = [*[column.name for column in by_id], *extra]
        self.input = Digest()
        self.bytes = sum(file.bytes for file in chunk.files) or 1

    def run(self) -> Result:
        try:
            self.write()
            written = self.output.close()
        except BaseException:
            self.output.abandon()
            raise
        output = Digest()
        if self.settings.verify:
            for file in written:
                output += self.read_again(file)
        files = tuple(self.entry(file).SerializeToString() for file in written)
        return Result(self.chunk.group, files, self.input, output)

    def write(self) -> None:
        raise NotImplementedError

    def batches(self, file: InputFile, schema: pa.Schema, memory_bytes: int) -> Iterator[pl.DataFrame]:
        for rows in read_batches(file, schema, memory_bytes):
            self.check()
            yield rows

    def samples(self, order: Order) -> Iterator[pl.DataFrame]:
        """Yield some thousand rows from all files, with the columns of the order."""
        schema = pa.schema([self.stored.field(name) for name in order.columns])
        step = max(1, sum(file.rows for file in self.chunk.files) // SAMPLES)
        at = 0  # of all rows
        for file in self.chunk.files:
            for rows in self.batches(file, schema, self.settings.memory_bytes):
                yield rows.gather_every(step, -at % step)
                at += len(rows)

    def entry(self, written: WrittenFile) -> common_pb2.DataFile:
        entry = data_file(self.table, written.path, written.metadata, written.size)
        if self.keys:
            entry.kind = common_pb2.FILE_KIND_BASE if self.settings.is_base else common_pb2.FILE_KIND_DELTA
            if SET in self.stored.names:
                name_set_columns(self.table, entry, [column.column_id for column in self.table.columns])
        if self.settings.order is not None:
            entry.row_order = str(self.settings.order)
        return entry

    def read_again(self, written: WrittenFile) -> Digest:
        """Return the digest of the stored rows; rows that aren't in order are an error of this job."""
        digest = Digest()
        last: pl.DataFrame | None = None
        path = f"{self.settings.table_folder}/{written.path}"
        file = InputFile(path, 0, written.metadata.num_rows, written.size, is_delta=True)
        for rows in self.batches(file, self.stored, self.settings.memory_bytes):
            last = self.checked(written, rows, last)
            digest += digest_of(row_hashes(rows, self.hashed))
        return digest

    def checked(self, written: WrittenFile, rows: pl.DataFrame, last: pl.DataFrame | None) -> pl.DataFrame | None:
        """What the next rows of the file follow: a key, or the places of an order."""
        if self.places is not None:
            places = self.places.of(rows)
            if not is_ordered(places if last is None else pl.concat([last, places])):
                raise AssertionError(f"{written.path} is not in the order {self.settings.order}")
            return places[-1]
        if last is not None and rows_up_to(rows[:1], last, self.keys):
            raise AssertionError(f"{written.path} has a key twice")
        return rows[-1].select(map(named, self.keys)) if self.keys else None

    def memory_of(self, file: InputFile) -> int:
        """The memory for each file."""
        return max(MEMORY_BYTES_LEAST, self.settings.memory_bytes * file.bytes // self.bytes)


class _Keyed(_Work):
    """A bucket of a primary-key table, merged by key."""

    def __init__(
        self,
        settings: Settings,
        table: catalog_pb2.Table,
        chunk: Chunk,
        name: str,
        folder: Path,
        check: Callable[[], None],
        *,
        sorts_first: bool = False,
    ) -> None:
        """`sorts_first`: its files are sorted in the folder first."""
        super().__init__(settings, table, chunk, name, folder, check)
        self.sorts_first = sorts_first
        self.read_as = arrow_schema(table, with_op=True, with_set=self.folds)

    def write(self) -> None:
        runs = list(self.inlined_runs())
        for at, file in enumerate(self.chunk.files):
            if not self.is_together(file):
                runs += self.runs(at, file)
        versions = [run.data_version for run in runs]
        for block in blocks(runs, self.keys):
            if self.folds:
                self.write_folded(block, versions)
                continue
            if self.settings.verify:
                self.input += self.shown(block, versions)
            rows = latest(block, versions, self.keys)
            if self.settings.is_major:
                rows = without_tombstones(rows)
            self.output.write(rows.select(map(named, self.stored.names)))

    def write_folded(self, block: Sequence[pl.DataFrame], versions: Sequence[int]) -> None:
        """Writes what a reader sees of images that set single columns, or what it can still fold with older ones."""
        of_rows = np.repeat(versions, [len(rows) for rows in block])
        images = pl.concat([rows for rows in block if len(rows)], rechunk=False)
        arrow = images.to_arrow(compat_level=pl.CompatLevel.oldest())
        rows = frame(folded(arrow, self.table, self.keys, of_rows)).sort(list(map(named, self.keys)))
        if self.settings.is_major:
            rows = without_tombstones(rows)
        rows = rows.select(map(named, self.stored.names))
        if self.settings.verify:
            self.input += digest_of(row_hashes(rows, self.hashed))
        self.output.write(rows)

    def is_together(self, file: InputFile) -> bool:
        return bool(file.content) and not self.sorts_first

    def inlined_runs(self) -> Iterator[Run]:
        """Those of inlined files, which are so small that each step costs less for many at once."""
        files = [file for file in self.chunk.files if self.is_together(file)]
        if not files:
            return
        self.check()
        tables = [rows for file in files for _, rows in read_tables(file, self.read_as)]
        whole, begin = self.hashed_rows(frame(pa.concat_tables(tables))), 0
        for file, table in zip(files, tables, strict=True):
            rows = whole[begin : begin + len(table)]
            begin += len(table)
            yield Run(file.data_version, iter([rows]), len(rows))

    def runs(self, number: int, file: InputFile) -> list[Run]:
        batches = (self.hashed_rows(rows) for rows in self.batches(file, self.read_as, self.memory_of(file)))
        if not self.sorts_first:
            return [Run(file.data_version, batches, file.rows)]
        paths: list[Path] = []
        for rows in batches:
            paths.append(self.folder / f"{number}-{len(paths)}.arrow")
            rows.sort(list(map(named, self.keys))).write_ipc(paths[-1], record_batch_size=SPILLED_ROWS)
        return [Run(file.data_version, _spilled(path)) for path in paths]

    def hashed_rows(self, rows: pl.DataFrame) -> pl.DataFrame:
        is_needed = self.settings.verify and not self.folds
        return rows.with_columns(row_hashes(rows, self.hashed).alias(HASH)) if is_needed else rows

    def shown(self, block: Sequence[pl.DataFrame], versions: Sequence[int]) -> Digest:
        """Return the digest of the rows that a reader of the inputs sees, by the reader's own rules."""
        digest = Digest()
        for rows, hidden in with_hidden(block, versions, self.keys, hides_tombstones=self.settings.is_major):
            digest += digest_of(rows[HASH]) - digest_of(rows[HASH].filter(pl.Series(hidden)))
        return digest


def _spilled(path: Path) -> Iterator[pl.DataFrame]:
    with pa.memory_map(str(path)) as source:
        opened = pa.ipc.open_file(source)
        for at in range(opened.num_record_batches):
            batch = pl.from_arrow(opened.get_batch(at))
            assert isinstance(batch, pl.DataFrame)
            yield batch


class _Append(_Work):
    """Files of a partition of an append table, one after the other, without hidden rows."""

    def write(self) -> None:
        for file in self.chunk.files:
            hidden = file.hidden or BitMap64()
            if len(hidden) >= file.rows and not file.carries_row_ids:
                continue
            for rows in self.batches(file, self.stored, self.settings.memory_bytes):
                if self.settings.verify:
                    self.input += self.shown(rows, hidden)
                self.output.write(without_ids(rows, hidden).select(map(named, self.stored.names)))

    def shown(self, rows: pl.DataFrame, hidden: BitMap64) -> Digest:
        """The rows that a reader of the inputs sees, by the reader's own blocks of hidden rows."""
        hashes = row_hashes(rows, self.hashed)
        if not len(hidden):
            return digest_of(hashes)
        gone = has_bits(blocks_of(positions_of(hidden)), rows[ROW_ID].to_numpy().view(np.uint64))
        return digest_of(hashes.filter(pl.Series(~gone)))


def without_ids(rows: pl.DataFrame, hidden: BitMap64) -> pl.DataFrame:
    """The rows whose id isn't in the set."""
    if not len(hidden):
        return rows
    ids = pl.DataFrame({ROW_ID: pl.Series(positions_of(hidden)).cast(pl.Int64)})
    return rows.join(ids, on=ROW_ID, how="anti", maintain_order="left")
