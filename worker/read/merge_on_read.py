"""Hidden rows of a primary-key table, for Spark: one task per bucket finds them, or the driver does, if there are few
rows or no executors.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from worker.base.session import own_cores
from worker.read.hidden_rows import LONGS, WORDS, Form, HiddenRows, InArrays, Span, column, form_of, hidden_rows, lists
from worker.read.key_merge import BucketToMerge, hidden_in
from worker.read.position_blocks import BLOCK_WORDS, Blocks, blocks_of, together

FILE: Final = "_laketx_file"
NUMBER: Final = "_laketx_number"
FILES_HERE: Final = 64
ROWS_HERE: Final = 1 << 20
THREADS_HERE: Final = 16
_FOUND: Final = pa.schema([column(FILE, pa.int64()), column(NUMBER, pa.int64()), column(WORDS, LONGS)])


def hidden_by_key(spark: SparkSession, files: Sequence[Span], buckets: Sequence[BucketToMerge]) -> HiddenRows | None:
    """The rows hidden by newer images of their keys, and tombstones; None if there are known to be none."""
    threads = threads_here(spark, buckets)
    if threads:
        with ThreadPoolExecutor(min(len(buckets), threads)) as pool:
            found = pool.map(_blocks_in, buckets)
            blocks = together(part for parts in found for part in parts)
        return hidden_rows(spark, files, blocks) if len(blocks) else None
    form = form_of(files)
    work = pa.table({"bucket": pa.array([pickle.dumps(bucket) for bucket in buckets], pa.binary())})
    by_tasks = spark.createDataFrame(work).mapInArrow(_hidden_in_batches, from_arrow_schema(_FOUND))
    if isinstance(form, InArrays):
        by_tasks = by_tasks.repartition(1)
    return HiddenRows(by_tasks.mapInArrow(partial(_formed, form), from_arrow_schema(form.schema)), form.says_so)


def threads_here(spark: SparkSession, buckets: Sequence[BucketToMerge]) -> int:
    """The number of threads in which the driver itself finds hidden rows; 0 if Spark tasks should.

    Few rows are read in less time than it takes to begin a job. Without executors the driver always does it.
    """
    files = [file for bucket in buckets for file in bucket.files]
    if len(files) <= FILES_HERE and sum(file.rows for file in files) <= ROWS_HERE:
        return THREADS_HERE
    return own_cores(spark)


def _blocks_in(bucket: BucketToMerge) -> list[Blocks]:
    return [blocks_of(positions, at) for at, positions in hidden_in(bucket)]


def _hidden_in_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for pickled in batch.column(0):
            bucket: BucketToMerge = pickle.loads(pickled.as_py())  # noqa: S301 - made by the driver of this job
            found = together(_blocks_in(bucket))
            arrays = [pa.array(found.files), pa.array(found.numbers), lists(found.words.ravel(), BLOCK_WORDS)]
            yield pa.RecordBatch.from_arrays(arrays, schema=_FOUND)


def _formed(form: Form, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from form.table(together(map(_of_batch, batches))).to_batches()


def _of_batch(batch: pa.RecordBatch) -> Blocks:
    files, numbers = (batch.column(name).to_numpy() for name in (FILE, NUMBER))
    return Blocks(files, numbers, batch.column(WORDS).flatten().to_numpy().reshape(-1, BLOCK_WORDS))
