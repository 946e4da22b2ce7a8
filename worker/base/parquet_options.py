"""How pyarrow writes a table's files: codec, encodings, and which columns get bounds in the footer.

Only those do whose bounds hold under Spark's order.

Spark holds NaN above every number; the bounds that pyarrow writes leave NaN out. A reader that believes them misses the
rows with NaN. So a column of floats that holds NaN gets no bounds. A float inside a struct, an array or a map never has
some: it is not looked into.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import polars as pl
import pyarrow as pa

from protos.laketx.v1 import catalog_pb2

PYARROW_CODECS: Final = {"uncompressed": "none"}
ZSTD_LEVEL: Final = 1


def codec_of(meta: catalog_pb2.Table, words: Mapping[str, str] = PYARROW_CODECS) -> str:
    """The table's codec in the words of a writer."""
    codec = meta.properties.get("write.compression", "zstd")
    return words.get(codec, codec)


def options_of(meta: catalog_pb2.Table, schema: pa.Schema, nan: frozenset[str]) -> dict[str, Any]:
    """For pyarrow's writers; `nan` are the columns that hold NaN."""
    codec = codec_of(meta)
    return {
        "compression": codec,
        "compression_level": ZSTD_LEVEL if codec == "zstd" else None,
        "write_statistics": bounded(schema, nan),
        "store_decimal_as_integer": True,
        "store_schema": False,
    }


def with_nan(rows: pl.DataFrame) -> frozenset[str]:
    """The columns of floats in which a row is NaN."""
    return frozenset(one.name for one in rows.iter_columns() if one.dtype.is_float() and one.is_nan().any())


def table_with_nan(rows: pa.Table) -> frozenset[str]:
    """As `with_nan`."""
    floats = rows.select([one.name for one in rows.schema if pa.types.is_floating(one.type)])
    found = pl.from_arrow(floats)
    assert isinstance(found, pl.DataFrame)
    return with_nan(found)


def bounded(schema: pa.Schema, nan: frozenset[str]) -> list[str]:
    """The leaves that get bounds, as Parquet calls them; `nan` are the columns that hold NaN."""
    found: dict[str, bool] = {}
    for one in schema:
        for path, kind in leaves(one.name, one.type):
            holds = not pa.types.is_floating(kind) or not (pa.types.is_nested(one.type) or path in nan)
            found[path] = holds and found.get(path, True)  # `a.b` is a column's name, or a field's path
    return [path for path, holds in found.items() if holds]


def leaves(path: str, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
    """Of a column, as Parquet calls them."""
    if pa.types.is_list(kind):
        return leaves(f"{path}.list.element", kind.value_type)
    if pa.types.is_map(kind):
        return leaves(f"{path}.key_value.key", kind.key_type) + leaves(f"{path}.key_value.value", kind.item_type)
    if pa.types.is_struct(kind):
        return [leaf for one in kind for leaf in leaves(f"{path}.{one.name}", one.type)]
    return [(path, kind)]
