"""Options for pyarrow's writer of a table's files: codec, encodings, and the columns with bounds in the footer.

Only columns whose bounds hold under Spark's order get them. Spark orders NaN above every number, and the bounds that
pyarrow writes ignore NaN, so a reader that uses them misses rows with NaN. A float column that contains NaN therefore
gets no bounds. A float inside a struct, an array or a map never gets bounds, because it is not checked for NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from metaservice.shared.column_lists import parse_column_list
from metaservice.shared.column_types import BLOOM_COLUMNS, may_have_bloom_filter
from protos.laketx.v1 import catalog_pb2

PYARROW_CODECS: Final = {"uncompressed": "none"}
ZSTD_LEVEL: Final = 1
DICTIONARY_BYTES: Final = 1 << 20  # beyond, pyarrow begins with a dictionary and goes on without
REPEATS: Final = 4
FALSE_POSITIVES: Final = 0.01
DIFFERENCES: Final = "DELTA_BINARY_PACKED"
DECIMAL64_DIGITS: Final = 18  # of decimals with more digits a value takes more than 64 bits


def codec_of(meta: catalog_pb2.Table, words: Mapping[str, str] = PYARROW_CODECS) -> str:
    """Return the table's codec, by the writer's name for it."""
    codec = meta.properties.get("write.compression", "zstd")
    return words.get(codec, codec)


def options_of(meta: catalog_pb2.Table, schema: pa.Schema, nan: frozenset[str]) -> dict[str, Any]:
    """Return options of pyarrow's writers. `nan` are the columns that contain NaN."""
    codec = codec_of(meta)
    return {
        "compression": codec,
        "compression_level": ZSTD_LEVEL if codec == "zstd" else None,
        "write_statistics": bounded(schema, nan),
        "store_decimal_as_integer": True,
        "store_schema": False,
        "write_page_checksum": True,
    }


def options_for(meta: catalog_pb2.Table, rows: pa.Table, group_rows: int) -> dict[str, Any]:
    """Return options of pyarrow's writer for a file of these rows, with row groups of a given size."""
    few = options_for_few(meta, rows)
    return few if few is not None else options_for_many(meta, rows, group_rows)


def options_for_few(meta: catalog_pb2.Table, rows: pa.Table) -> dict[str, Any] | None:
    """The same options without polars, which takes longer than a small file is written; None: they need it."""
    if len(rows) >= REPEATS or meta.properties.get(BLOOM_COLUMNS):
        return None
    schema = rows.schema
    nan = frozenset(name for name, values in zip(schema.names, rows.columns, strict=True) if has_nan(values))
    nested = [path for field in schema if pa.types.is_nested(field.type) for path, _ in leaves(field.name, field.type)]
    return options_of(meta, schema, nan) | encodings(nested, schema) | {"bloom_filter_options": {}}


def options_for_many(meta: catalog_pb2.Table, rows: pa.Table, group_rows: int) -> dict[str, Any]:
    flat, schema = flat_columns(rows), rows.schema
    return (
        options_of(meta, schema, with_nan(flat))
        | encodings(repeating(flat, schema), schema)
        | {"bloom_filter_options": bloom_filters(meta, flat[:group_rows])}
    )


def encodings(dictionaries: Sequence[str], schema: pa.Schema) -> dict[str, Any]:
    """The options of a file's encodings. Integers without a dictionary are stored as differences.

    They are smaller so, and decompressed several times faster, because the codec has less to do.
    """
    integers = [field.name for field in schema if is_stored_as_integer(field.type) and field.name not in dictionaries]
    return {"use_dictionary": dictionaries, "column_encoding": dict.fromkeys(integers, DIFFERENCES)}


def is_stored_as_integer(kind: pa.DataType) -> bool:
    """Whether Parquet stores the values of the type as integers of 32 or 64 bits."""
    if pa.types.is_decimal(kind):
        return bool(kind.precision <= DECIMAL64_DIGITS)
    return bool(pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def repeating(rows: pl.DataFrame, schema: pa.Schema) -> list[str]:
    """Return the columns that a dictionary makes smaller, by their Parquet names. It slows reads of others down."""
    paths: list[str] = []
    for field in schema:
        if pa.types.is_nested(field.type):
            paths += [path for path, _ in leaves(field.name, field.type)]  # not looked into
            continue
        column = rows[field.name]
        distinct = column.approx_n_unique()
        value_bytes = column.estimated_size() / len(column)
        if distinct * REPEATS <= len(column) and distinct * value_bytes <= DICTIONARY_BYTES:
            paths.append(field.name)
    return paths


def bloom_filters(meta: catalog_pb2.Table, rows: pl.DataFrame) -> dict[str, dict[str, float]]:
    """Return the Bloom filters of a row group like these rows, by column. Distinct values decide their sizes."""
    listed = {name.lower() for name in parse_column_list(meta.properties.get(BLOOM_COLUMNS, ""))}
    return {
        column.name: {"ndv": max(1, _distinct(rows[column.name])), "fpp": FALSE_POSITIVES}
        for column in (meta.columns if listed else ())
        if column.name.lower() in listed and column.name in rows.columns and may_have_bloom_filter(column.type)
    }


def _distinct(column: pl.Series) -> int:
    count = column.approx_n_unique()
    assert isinstance(count, int)
    return count


def has_nan(values: pa.ChunkedArray) -> bool:
    return pa.types.is_floating(values.type) and bool(pc.any(pc.is_nan(values)).as_py())


def with_nan(rows: pl.DataFrame) -> frozenset[str]:
    """Return the float columns that contain NaN."""
    return frozenset(column.name for column in rows.iter_columns() if column.dtype.is_float() and column.is_nan().any())


def flat_columns(rows: pa.Table) -> pl.DataFrame:
    """Return the columns without nesting."""
    frame = pl.from_arrow(rows.select([field.name for field in rows.schema if not pa.types.is_nested(field.type)]))
    assert isinstance(frame, pl.DataFrame)
    return frame


def bounded(schema: pa.Schema, nan: frozenset[str]) -> list[str]:
    """Return the leaves that get bounds, by their Parquet names. `nan` are the columns that contain NaN."""
    by_path: dict[str, bool] = {}
    for field in schema:
        for path, kind in leaves(field.name, field.type):
            holds = not pa.types.is_floating(kind) or not (pa.types.is_nested(field.type) or path in nan)
            by_path[path] = holds and by_path.get(path, True)  # `a.b` is a column's name, or a field's path
    return [path for path, holds in by_path.items() if holds]


def leaves(path: str, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
    """Return the leaves of a column, by their Parquet names."""
    if pa.types.is_list(kind):
        return leaves(f"{path}.list.element", kind.value_type)
    if pa.types.is_map(kind):
        return leaves(f"{path}.key_value.key", kind.key_type) + leaves(f"{path}.key_value.value", kind.item_type)
    if pa.types.is_struct(kind):
        return [leaf for field in kind for leaf in leaves(f"{path}.{field.name}", field.type)]
    return [(path, kind)]
