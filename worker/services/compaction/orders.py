"""Orders of rows: by columns in sequence, or along a Z-order curve.

Rows are compared by helper columns, their places. None of them is NULL, so they compare by `<` and `==` alone: NULL
comes first, NaN last, -0.0 equals 0.0, and texts are in the order of their UTF-8 bytes, as in Spark.

A row's place on the curve is computed from its columns' ranks: the number of some thousand samples below the value. So
a column of any type and distribution has the same weight as the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import polars as pl

from metaservice.shared.column_types import quoted as quoted_if_odd
from protos.laketx.v1 import catalog_pb2, maintenance_pb2
from worker.base.errors import InputError
from worker.services.compaction.digests import named

SAMPLES: Final = 4_096
BITS_A_COLUMN: Final = 10
COLUMNS_MAX: Final = 6
PLACE: Final = "_laketx_place"
ORDERS: Final[Mapping[Literal["sort", "zorder"], maintenance_pb2.RowOrder.ValueType]] = {
    "sort": maintenance_pb2.ROW_ORDER_SORT,
    "zorder": maintenance_pb2.ROW_ORDER_ZORDER,
}

Ranks = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Order:
    """By the columns in sequence ("sort"), or by all of them equally ("zorder")."""

    kind: Literal["sort", "zorder"]
    columns: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind}({','.join(map(quoted_if_odd, self.columns))})"

    @property
    def is_curve(self) -> bool:
        """Whether places need samples of the rows."""
        return self.kind == "zorder" and len(self.columns) > 1


def check_order(meta: catalog_pb2.Table, order: Order) -> None:
    types = {column.name: column.type for column in meta.columns}
    if not order.columns or len(set(order.columns)) != len(order.columns):
        raise InputError("ORDER_INVALID", "an order needs columns, each once")
    if order.kind == "zorder" and len(order.columns) > COLUMNS_MAX:
        raise InputError("ORDER_INVALID", f"a Z-order takes {COLUMNS_MAX} columns at most")
    for name in order.columns:
        if name not in types:
            raise InputError("COLUMN_UNKNOWN", f"{meta.name} has no column {name}")
        if types[name].startswith(("array", "map", "struct")):
            raise InputError("ORDER_INVALID", f"{name} has no order: it is a {types[name].partition('<')[0]}")


class Places:
    """Gives rows their places. A curve needs samples of the rows: frames with the order's columns."""

    def __init__(self, order: Order, samples: Iterable[pl.DataFrame] = ()) -> None:
        self._order = order
        self._bounds: list[pl.Series] = []
        if order.is_curve:
            sampled = list(samples)
            self._bounds = [rank_bounds([_comparable(rows, name) for rows in sampled]) for name in order.columns]
        count = 1 if order.is_curve else 2 * len(order.columns)
        self.names = [f"{PLACE}{at}" for at in range(count)]

    def of(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return only the places, a frame as long as the rows."""
        columns = [_comparable(rows, name) for name in self._order.columns]
        if self._order.is_curve:
            ranks = [_ranks(values, bounds) for values, bounds in zip(columns, self._bounds, strict=True)]
            return pl.DataFrame([pl.Series(self.names[0], interleaved(ranks), pl.Int64)])
        places = []
        for values in columns:
            places += [values.is_not_null().cast(pl.UInt8), values.fill_null(_nothing(values.dtype))]
        return pl.DataFrame([place.alias(name) for place, name in zip(places, self.names, strict=True)])


def _comparable(rows: pl.DataFrame, name: str) -> pl.Series:
    """The column by values that compare as Spark's do."""
    values = rows.select(named(name).alias(PLACE)).to_series()
    if values.dtype.is_float():
        return values + 0.0  # of two zeros, one
    if values.dtype.is_temporal():
        return values.to_physical()
    return values.cast(pl.UInt8) if values.dtype == pl.Boolean else values


def _nothing(kind: pl.DataType) -> Any:
    """A value in the place of NULL, which another column tells from it."""
    value: Any = "" if kind == pl.String else b"" if kind == pl.Binary else 0
    return pl.select(pl.lit(value).cast(kind)).to_series().item()


# -- the curve ---------------------------------------------------------------------------------------------------------


def rank_bounds(samples: Sequence[pl.Series]) -> pl.Series:
    """Return the values that separate ranks of about equal size."""
    sample = _rankable(pl.concat(samples)).drop_nulls().sort() if samples else pl.Series(dtype=pl.Int64)
    ranks = (1 << BITS_A_COLUMN) - 1
    if not len(sample):
        return sample
    at = np.linspace(0, len(sample) - 1, ranks).astype(np.int64)
    return sample.gather(at).unique(maintain_order=True)


def _rankable(values: pl.Series) -> pl.Series:
    """A rank needs no more of a decimal than a double holds."""
    return values.cast(pl.Float64) if values.dtype.is_decimal() else values


def _ranks(values: pl.Series, bounds: pl.Series) -> Ranks:
    if not len(bounds):
        return np.zeros(len(values), np.int64)
    positions = bounds.search_sorted(_rankable(values).fill_null(bounds[0]), side="right")
    ranks: Ranks = np.where(values.is_null().to_numpy(), 0, positions.cast(pl.Int64).to_numpy())
    return ranks


def interleaved(ranks: Sequence[Ranks]) -> Ranks:
    """Interleave the bits of the ranks, the highest first."""
    curve = np.zeros(len(ranks[0]), np.int64)
    for bit in range(BITS_A_COLUMN - 1, -1, -1):
        for rank in ranks:
            curve = (curve << 1) | ((rank >> bit) & 1)
    return curve
