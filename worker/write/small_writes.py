"""Few rows of a primary-key table, written by the driver: a Spark job that writes them would cost more.

They arrive as Arrow, with the bucket that Spark computed for each, and go into files as Spark would have staged them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.base.arrow_shapes import arrow_schema, in_shape
from worker.base.parquet_options import options_of, table_with_nan
from worker.base.schema import OP, PART
from worker.base.storage import storage

ROWS_MAX: Final = 20_000
BYTES_MAX: Final = 8 << 20  # as the table's files have them, which are compressed


def few_of(files: Collection[common_pb2.DataFile]) -> int:
    """The number of rows, like those of these files, that the driver writes itself."""
    rows, size = sum(file.rows for file in files), sum(file.bytes for file in files)
    return min(ROWS_MAX, BYTES_MAX * rows // size) if size else ROWS_MAX


def collected(placed: DataFrame, few: int) -> pa.Table | None:
    """The rows; None if there are too many for the driver. Spark's own write then reports any other error."""
    try:
        found = placed.limit(few + 1).toArrow()
    except PySparkException:
        return None
    return found if len(found) <= few else None


def write_few(meta: catalog_pb2.Table, found: pa.Table, table_folder: str, name: str) -> None:
    """Writes a file for each value of PART, which is a folder or the number of a bucket, sorted by key."""
    files, root = storage(table_folder)
    schema = arrow_schema(meta, with_op=OP in found.column_names)
    names = {column.column_id: column.name for column in meta.columns}
    for part, rows in by_part(found, list(meta.primary_key)):
        where = f"{PART}={part}/part-0" if isinstance(part, str) else f"part-{part:05d}-0"
        path = f"{root}/{name}/{where}.parquet"
        files.create_dir(path.rpartition("/")[0], recursive=True)
        shaped = in_shape(rows, schema, names)
        pq.write_table(shaped, path, filesystem=files, **options_of(meta, schema, table_with_nan(shaped)))


def by_part(found: pa.Table, keys: Sequence[str]) -> Iterator[tuple[int | str, pa.Table]]:
    if not len(found):
        return
    rows = found.sort_by([(name, "ascending") for name in (PART, *keys)])
    counts = pc.value_counts(rows.column(PART))  # in the order of the rows
    begin = 0
    for part, count in zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True):
        yield part, rows.slice(begin, count).drop_columns(PART)
        begin += count
