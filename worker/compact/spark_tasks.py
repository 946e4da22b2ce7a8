"""One Spark task of a compaction: rewrites the files of a bucket, or some files of a partition, with both digests."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa
from pyroaring import BitMap64
from pyspark import TaskContext

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.base.arrow_shapes import arrow_schema
from worker.base.footers import data_file
from worker.base.schema import OP, ROW_ID
from worker.compact.digests import HASH, Digest, digest_of, named, row_hashes
from worker.compact.file_io import Output, WrittenFile, read_batches
from worker.compact.sorted_merge import NotSortedError, Run, blocks, hidden_rows, latest, rows_up_to, without_tombstones
from worker.read.file_rows import InputFile
from worker.read.position_blocks import blocks_of, has_bits, positions_of

SPILLED_ROWS: Final = 1 << 14
RESULTS_DDL: Final = "result binary"
MEMORY_BYTES: Final = 128 << 20  # of rows that wait for others, decoded
MEMORY_BYTES_LEAST: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings that the Spark tasks of a job share. `meta` is the table's message."""

    meta: bytes
    table_folder: str
    is_major: bool
    is_base: bool
    verify: bool
    file_bytes_target: int
    memory_bytes: int = MEMORY_BYTES

    @property
    def table(self) -> catalog_pb2.Table:
        return catalog_pb2.Table.FromString(self.meta)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Inputs that one Spark task turns into files that begin with `name`. A bucket's files are all in one chunk."""

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


def run_in_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for pickled in batch.column(0):
            settings, chunk = pickle.loads(pickled.as_py())  # noqa: S301 - made by the driver of this job
            result = pickle.dumps(run_chunk(settings, chunk, _attempt()))
            yield pa.RecordBatch.from_arrays([pa.array([result], pa.binary())], ["result"])


def _attempt() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.taskAttemptId()


def run_chunk(settings: Settings, chunk: Chunk, attempt: int = 0) -> Result:
    """Runs a chunk.

    Each attempt has its own files; files of a failed attempt are swept with the transaction's folder.
    """
    table = settings.table
    name = f"{chunk.name}-{attempt}"
    if not table.primary_key:
        return _Append(settings, table, chunk, name).run()
    try:
        return _Keyed(settings, table, chunk, name).run()
    except NotSortedError:
        with tempfile.TemporaryDirectory(prefix="laketx-") as folder:
            return _Keyed(settings, table, chunk, f"{name}-s", Path(folder)).run()


class _Work:
    """What both kinds of table share: an output, the digests, and the entries of the files."""

    def __init__(self, settings: Settings, table: catalog_pb2.Table, chunk: Chunk, name: str) -> None:
        self.settings = settings
        self.table = table
        self.chunk = chunk
        self.keys = list(table.primary_key)
        with_op = bool(self.keys) and not settings.is_base
        stored = arrow_schema(table, with_op=with_op, with_row_id=not self.keys)
        self.output = Output(table, settings.table_folder, name, stored, settings.file_bytes_target)
        self.stored = stored
        by_id = sorted(table.columns, key=lambda column: column.column_id)
        extra = [one for one in (OP, ROW_ID) if one in stored.names]
        self.hashed = [*[column.name for column in by_id], *extra]
        self.input = Digest()

    def run(self) -> Result:
        try:
            self.write()
            written = self.output.close()
        except BaseException:
            self.output.abandon()
            raise
        found = Digest()
        if self.settings.verify:
            for one in written:
                found += self.read_again(one)
        files = tuple(self.entry(one).SerializeToString() for one in written)
        return Result(self.chunk.group, files, self.input, found)

    def write(self) -> None:
        raise NotImplementedError

    def entry(self, written: WrittenFile) -> common_pb2.DataFile:
        found = data_file(self.table, written.path, written.metadata, written.size)
        if self.keys:
            found.kind = common_pb2.FILE_KIND_BASE if self.settings.is_base else common_pb2.FILE_KIND_DELTA
        return found

    def read_again(self, written: WrittenFile) -> Digest:
        """The digest of the stored rows; keys that don't ascend are an error of this job."""
        found = Digest()
        last: pl.DataFrame | None = None
        path = f"{self.settings.table_folder}/{written.path}"
        file = InputFile(path, 0, written.metadata.num_rows, written.size, is_delta=True)
        for rows in read_batches(file, self.stored, self.settings.memory_bytes):
            if last is not None and rows_up_to(rows[:1], last, self.keys):
                raise AssertionError(f"{written.path} has a key twice")
            last = rows[-1].select(map(named, self.keys)) if self.keys else None
            found += digest_of(row_hashes(rows, self.hashed))
        return found

    def memory_of(self, file: InputFile) -> int:
        """The memory for each file."""
        whole = sum(one.bytes for one in self.chunk.files) or 1
        return max(MEMORY_BYTES_LEAST, self.settings.memory_bytes * file.bytes // whole)


class _Keyed(_Work):
    """A bucket of a primary-key table, merged by key. With a folder its files are sorted there first."""

    def __init__(
        self, settings: Settings, table: catalog_pb2.Table, chunk: Chunk, name: str, folder: Path | None = None
    ) -> None:
        super().__init__(settings, table, chunk, name)
        self.folder = folder
        self.read_as = arrow_schema(table, with_op=True)

    def write(self) -> None:
        runs = [run for at, file in enumerate(self.chunk.files) for run in self.runs(at, file)]
        versions = [run.data_version for run in runs]
        for block in blocks(runs, self.keys):
            if self.settings.verify:
                self.input += self.shown(block, versions)
            rows = latest(block, versions, self.keys)
            if self.settings.is_major:
                rows = without_tombstones(rows)
            self.output.write(rows.select(map(named, self.stored.names)))

    def runs(self, number: int, file: InputFile) -> list[Run]:
        batches = (self.hashed_rows(rows) for rows in read_batches(file, self.read_as, self.memory_of(file)))
        if self.folder is None:
            return [Run(file.data_version, batches)]
        paths: list[Path] = []
        for rows in batches:
            paths.append(self.folder / f"{number}-{len(paths)}.arrow")
            rows.sort(list(map(named, self.keys))).write_ipc(paths[-1], record_batch_size=SPILLED_ROWS)
        return [Run(file.data_version, _spilled(path)) for path in paths]

    def hashed_rows(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.with_columns(row_hashes(rows, self.hashed).alias(HASH)) if self.settings.verify else rows

    def shown(self, block: Sequence[pl.DataFrame], versions: Sequence[int]) -> Digest:
        """The rows that a reader of the inputs sees, by the reader's own rules."""
        hides = self.settings.is_major
        found = Digest()
        for rows, hidden in zip(block, hidden_rows(block, versions, self.keys, hides_tombstones=hides), strict=True):
            if len(rows):
                found += digest_of(rows[HASH]) - digest_of(rows[HASH].gather(hidden))
        return found


def _spilled(path: Path) -> Iterator[pl.DataFrame]:
    with pa.memory_map(str(path)) as source:
        opened = pa.ipc.open_file(source)
        for at in range(opened.num_record_batches):
            found = pl.from_arrow(opened.get_batch(at))
            assert isinstance(found, pl.DataFrame)
            yield found


class _Append(_Work):
    """Files of a partition of an append table, one after the other, without hidden rows."""

    def write(self) -> None:
        for file in self.chunk.files:
            hidden = file.hidden or BitMap64()
            if len(hidden) >= file.rows and not file.carries_row_ids:
                continue
            for rows in read_batches(file, self.stored, self.settings.memory_bytes):
                if self.settings.verify:
                    self.input += self.shown(rows, hidden)
                self.output.write(without_ids(rows, hidden).select(self.stored.names))

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
