"""Images that set single columns, as writers make them: for tables with merge.engine=partial."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import pyarrow as pa

from metaservice.client import is_partial
from protos.laketx.v1 import catalog_pb2
from worker.arrow.scan.image_folds import bits_of
from worker.base.errors import InputError
from worker.base.schema import SET


def setting(images: pa.Table, meta: catalog_pb2.Table, given: Sequence[Collection[str]]) -> pa.Table:
    """Return whole images as images that set these columns: a list for each image, or one list for all.

    What an image leaves as it is stays in it for a key that isn't there yet. An image that sets every column is whole.
    """
    names = [frozenset(map(str.lower, columns)) for columns in given]
    bits = {columns: _bits(meta, columns) for columns in dict.fromkeys(names)}
    if len(names) == 1:
        values = pa.repeat(pa.scalar(bits[names[0]], pa.binary()), len(images))
    else:
        values = pa.array([bits[columns] for columns in names], pa.binary())
    return images if values.null_count == len(values) else images.append_column(pa.field(SET, pa.binary()), values)


def _bits(meta: catalog_pb2.Table, names: frozenset[str]) -> bytes | None:
    everywhere = {*meta.primary_key, *meta.partition_columns}
    for name in everywhere:
        if name.lower() not in names:
            raise InputError("COLUMN_MISSING", f"a row lacks {name}, which {meta.name} requires")
    others = [column for column in meta.columns if column.name not in everywhere]
    columns_set = [column.column_id for column in others if column.name.lower() in names]
    return None if len(columns_set) == len(others) else bits_of(columns_set)


def updating(images: pa.Table, meta: catalog_pb2.Table, names: Collection[str]) -> pa.Table:
    """Return whole images of existing rows as images that set these columns; others are NULL unless NOT NULL."""
    kept = {*meta.primary_key, *meta.partition_columns, *names}
    kept |= {column.name for column in meta.columns if not column.nullable}
    columns = {column.name for column in meta.columns}
    columns_set = [
        pa.nulls(len(images), field.type) if field.name in columns - kept else images.column(field.name)
        for field in images.schema
    ]
    given = [*meta.primary_key, *meta.partition_columns, *names]
    return setting(pa.table(columns_set, schema=images.schema), meta, [given])


def check_alike(meta: catalog_pb2.Table, rows: Iterable[Collection[str]]) -> None:
    """Checks that changes of a stream set the same columns: of several of one key the newest alone counts."""
    if is_partial(meta) and len({frozenset(map(str.lower, names)) for names in rows}) > 1:
        raise InputError(
            "COLUMNS_DIFFER",
            f"changes of {meta.name}, whose images set single columns, have the same columns: apply those of each kind "
            "by themselves",
        )


def columns_used(meta: catalog_pb2.Table, names: Iterable[str]) -> list[int]:
    """Return the ids of columns whose values a write uses, for its reads to declare; the key's ids are always included.

    Empty, which says any, of a table whose images are whole.
    """
    if not is_partial(meta):
        return []
    used = {*names, *meta.primary_key}
    return [column.column_id for column in meta.columns if column.name in used]
