"""Rows in Arrow in the shape of a table become its files: appended, or by key with an operation for each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa

from metaservice.client import key_spans_partitions
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.arrow.write.staged_files import by_part, write_parts
from worker.base.errors import InputError
from worker.base.schema import OP, PART, TOMBSTONE
from worker.base.values import PartitionKey, partition_key
from worker.commit.stages import Stage, Staged
from worker.connection.table_view import write_rules
from worker.files.arrow_types import arrow_schema, column_field
from worker.files.bucket_hash import row_buckets, row_hashes

GROUP: Final = "_laketx_group"
KEYS_MAX: Final = common_pb2.LIMIT_KEYS_NAMED  # more conflict by bucket


def write_rows(stage: Stage, rows: pa.Table, name: str, *, may_inline: bool) -> list[common_pb2.DataFile]:
    """Write rows of an append table, with `_row_id` if they keep their ids: a file for each partition."""
    placed = rows
    if stage.meta.partition_columns and len(rows):
        placed = rows.append_column(PART, pa.array(partition_groups(rows, stage.meta)))
    return write_parts(stage, placed, name, common_pb2.FILE_KIND_UNSPECIFIED, may_inline=may_inline)


def write_keyed(stage: Stage, rows: pa.Table, *, is_base: bool) -> Staged:
    """Write rows of a primary-key table, with `_op` unless they are base files: a file per partition and bucket."""
    meta = stage.meta
    if not len(rows):
        return Staged()
    buckets = row_buckets([rows.column(name) for name in meta.primary_key], meta.buckets)
    places = pa.array(buckets.astype(np.int32))
    if meta.partition_columns:
        groups = partition_groups(rows, meta)
        places = pa.array([f"{bucket}-{group}" for bucket, group in zip(buckets.tolist(), groups, strict=True)])
    kind = common_pb2.FILE_KIND_BASE if is_base else common_pb2.FILE_KIND_DELTA
    placed = rows.append_column(PART, places)
    files = write_parts(stage, placed, stage.next_name(), kind, may_inline=not is_base)
    if is_base or not write_rules(meta).wants_keys or len(rows) > KEYS_MAX:
        return Staged(files=files)
    key = list(meta.primary_key)
    return Staged(files=files, key_sets=key_sets(meta, files, [part for _, part in by_part(placed, key)]))


def tombstone_columns(meta: catalog_pb2.Table) -> set[str]:
    """Return the columns that a tombstone has: the key, the partition, and those that are NOT NULL."""
    return {
        *meta.primary_key,
        *meta.partition_columns,
        *[column.name for column in meta.columns if not column.nullable],
    }


def tombstones(meta: catalog_pb2.Table, rows: pa.Table) -> pa.Table:
    """Return the tombstones of these rows, which have at least the columns of a tombstone; others are NULL."""
    kept = tombstone_columns(meta)
    schema = arrow_schema(meta)
    columns = [
        rows.column(field.name).cast(field.type) if field.name in kept else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return with_op(pa.table(columns, schema=schema), TOMBSTONE)


def partition_groups(rows: pa.Table, meta: catalog_pb2.Table) -> list[str]:
    """Return a text for each row, the same for the rows of a partition."""
    keys = frame_of(rows.select(list(meta.partition_columns)))
    distinct = keys.unique(maintain_order=True).with_row_index(GROUP)
    numbered = keys.join(distinct, on=keys.columns, how="left", nulls_equal=True, maintain_order="left")
    return numbered[GROUP].cast(pl.String).to_list()


def check_keys(rows: pa.Table, meta: catalog_pb2.Table, if_twice: str = "give it once") -> None:
    """Check that each key appears once in the rows; the text of the error ends with the solution."""
    keys = frame_of(rows.select(identity_columns(meta)))
    twice = keys.filter(keys.is_duplicated())
    if len(twice):
        key = {name: twice[name][0] for name in meta.primary_key}
        raise InputError("KEY_TWICE", f"the key {key} appears twice in the rows written to {meta.name}; {if_twice}")


def refuse_twice(rows: pa.Table, meta: catalog_pb2.Table) -> None:
    """Refuse a change of rows of a table if one of their keys is in several partitions."""
    keys = frame_of(rows.select(list(meta.primary_key)))
    twice = keys.filter(keys.is_duplicated())
    if len(twice):
        key = {name: twice[name][0] for name in meta.primary_key}
        raise InputError(
            "KEY_TWICE", f"the key {key} stands in several partitions of {meta.name}: upsert or delete its row first"
        )


def identity_columns(meta: catalog_pb2.Table) -> list[str]:
    """Return the columns by which rows are unique: the key, and the partition unless the key spans partitions."""
    partition = [] if key_spans_partitions(meta) else meta.partition_columns
    return list(dict.fromkeys([*partition, *meta.primary_key]))


def with_op(rows: pa.Table, op: int) -> pa.Table:
    """Return the rows with an operation, such as UPSERT, in `_op`."""
    return rows.append_column(pa.field(OP, pa.int8()), pa.array(np.full(len(rows), op, np.int8)))


def frame_of(rows: pa.Table) -> pl.DataFrame:
    """Return the rows as a DataFrame of polars."""
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame


def key_sets(
    meta: catalog_pb2.Table, files: Sequence[common_pb2.DataFile], parts: Sequence[pa.Table]
) -> list[common_pb2.KeySet]:
    """Return the keys in files that were just written; `parts` are the rows of each file."""
    kinds = {column.name: column_field(column).type for column in meta.columns}
    sets: dict[tuple[PartitionKey, int], common_pb2.KeySet] = {}
    for file, rows in zip(files, parts, strict=True):
        hashes = row_hashes([rows.column(name).cast(kinds[name]) for name in meta.primary_key])
        place = (partition_key(file.partition), file.bucket)
        key_set = sets.setdefault(place, common_pb2.KeySet(partition=file.partition, bucket=file.bucket))
        key_set.hashes.extend(hashes.tolist())
    return list(sets.values())
