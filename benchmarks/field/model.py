"""The rows that a table should have after each work, and which rows a work changes."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.arrow_data import batches, is_hundredth, rows

AMOUNTS: Final = 100.0  # the width of a hundredth of all amounts


def whole(count: int) -> pa.Table:
    """So many rows as they were first."""
    return pa.Table.from_batches(batches(count))


def amounts(number: int) -> tuple[float, float]:
    """The bounds of the amounts that a delete takes, another hundredth for each number."""
    return number * AMOUNTS, (number + 1) * AMOUNTS


def update(count: int, number: int) -> pa.Table:
    """The rows that an upsert replaces, another hundredth for each number."""
    ids = np.arange(count)
    return pa.Table.from_batches([rows(ids[is_hundredth(number)(ids)], number + 1)])


def without_deleted(table: pa.Table, deletes: int) -> pa.Table:
    """The rows that the first deletes leave."""
    _, high = amounts(deletes - 1)
    return table.filter(pc.greater_equal(table.column("amount"), high))


def with_upserted(count: int, upserts: int) -> pa.Table:
    """So many rows after the first upserts."""
    ids = np.arange(count)
    replaced = np.logical_or.reduce([is_hundredth(number)(ids) for number in range(upserts)])
    kept = pa.Table.from_batches([rows(ids[~replaced])])
    return pa.concat_tables([kept, *(update(count, number) for number in range(upserts))])
