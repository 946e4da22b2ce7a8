"""The buckets that a condition on the key leaves over."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.arrow.expressions.conditions import Predicate, conjuncts, value_of
from worker.base.lazy_modules import LazyModule
from worker.files.arrow_types import column_field

if TYPE_CHECKING:
    from worker.files import bucket_hash
else:
    bucket_hash = LazyModule("worker.files.bucket_hash")

KEYS_MAX: Final = 4_096


def buckets_of(meta: catalog_pb2.Table, where: Predicate) -> set[int] | None:
    """Return the buckets of all keys for which the condition may be true; None if these can be any."""
    named: dict[str, list[common_pb2.Value]] = {}
    for part in conjuncts(where):
        kind = part.WhichOneof("kind")
        if kind == "compare" and part.compare.comparison == common_pb2.COMPARISON_EQUAL:
            named[part.compare.column] = [part.compare.value]
        elif kind == "in_list":
            named.setdefault(part.in_list.column, list(part.in_list.values))
    columns = {column.name: column for column in meta.columns}
    count = 1
    for name in meta.primary_key:
        count *= len(named.get(name, ())) if name in named else KEYS_MAX + 1
    if count > KEYS_MAX:
        return None
    kinds = [column_field(columns[name]).type for name in meta.primary_key]
    values = [
        [key_value for key_value in (value_of(value, kind) for value in named[name]) if key_value is not None]
        for name, kind in zip(meta.primary_key, kinds, strict=True)
    ]
    keys = list(product(*values))
    if not keys:
        return set()
    try:
        arrays = [pa.array([key[at] for key in keys], kind) for at, kind in enumerate(kinds)]
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return None  # a value that the column's type can't hold
    return set(bucket_hash.row_buckets(arrays, meta.buckets).tolist())
