"""Files that are sorted by key, merged in blocks that fit into memory; of each key the latest entry.

    file of version 4   1 3 5 | 7 9     a batch of each file is there; the smallest of the batches' last keys is 5,
    file of version 6   2 3 8 | 11      so rows up to 5 are complete: 1 2 3 3 5 are a block, 8 waits for the next

Blocks come in the order of their keys, and no key lies in two of them. A file that is in memory to its end bounds no
block: many small files are a single one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import polars as pl

from worker.arrow.scan.key_merge import is_first, places_among
from worker.base.schema import OP, TOMBSTONE
from worker.services.compaction.digests import named

Flags = np.ndarray[Any, np.dtype[np.bool_]]


class NotSortedError(Exception):
    """A file isn't sorted by key."""


@dataclass(slots=True)
class Run:
    """Rows sorted by key, all of one data version; `rows` is their number, where it is known."""

    data_version: int
    batches: Iterator[pl.DataFrame]
    rows: int | None = None
    _read: int = 0

    def next(self) -> pl.DataFrame | None:
        rows = next(self.batches, None)
        self._read += 0 if rows is None else len(rows)
        return rows

    @property
    def is_read(self) -> bool:
        """Whether nothing follows what was read, as far as is known."""
        return self._read == self.rows


def blocks(runs: Sequence[Run], keys: Sequence[str]) -> Iterator[list[pl.DataFrame]]:
    """For each block a frame of each run, possibly empty, in the order of the runs."""
    waiting = [run.next() for run in runs]
    for rows in waiting:
        _check_sorted(rows, None, keys)
    while any(rows is not None for rows in waiting):
        ends = [rows[-1] for rows, run in zip(waiting, runs, strict=True) if rows is not None and not run.is_read]
        bound = _smallest(ends, keys) if ends else None
        block = []
        for at, rows in enumerate(waiting):
            if rows is None:
                block.append(pl.DataFrame())
                continue
            count = len(rows) if bound is None else rows_up_to(rows, bound, keys)
            block.append(rows[:count])
            rest: pl.DataFrame | None = rows[count:]
            if count == len(rows):
                rest = runs[at].next()
                _check_sorted(rest, rows, keys)
            waiting[at] = rest
        yield block


def rows_up_to(rows: pl.DataFrame, bound: pl.DataFrame, keys: Sequence[str]) -> int:
    """The number of sorted rows with a key not above the bound's."""
    if len(keys) == 1:
        value = bound[keys[0]]
        return int(rows[keys[0]].search_sorted(value, side="right")[0])
    return int(rows.select(_not_above([named(name) for name in keys], [bound[name] for name in keys]).sum()).item())


def _not_above(left: Sequence[pl.Expr], right: Sequence[Any]) -> pl.Expr:
    """Return whether left is at or below right, compared column by column."""
    is_not_above = pl.lit(True)
    for column, value in reversed(list(zip(left, right, strict=True))):
        limit = pl.lit(value) if isinstance(value, pl.Series) else value
        is_not_above = (column < limit) | ((column == limit) & is_not_above)
    return is_not_above


def _smallest(rows: Sequence[pl.DataFrame], keys: Sequence[str]) -> pl.DataFrame:
    return pl.concat([part.select(map(named, keys)) for part in rows]).sort(list(map(named, keys)))[:1]


def _check_sorted(rows: pl.DataFrame | None, before: pl.DataFrame | None, keys: Sequence[str]) -> None:
    if rows is None:
        return
    if before is not None:
        rows = pl.concat([before[-1].select(map(named, keys)), rows.select(map(named, keys))])
    if len(keys) == 1:
        is_sorted = rows[keys[0]].is_sorted()
    else:
        earlier = [named(name).shift(1) for name in keys]
        is_sorted = bool(rows.select(_not_above(earlier, [named(name) for name in keys]).fill_null(True).all()).item())
    if not is_sorted:
        raise NotSortedError


# -- what is left of a block -------------------------------------------------------------------------------------------


def latest(block: Sequence[pl.DataFrame], versions: Sequence[int], keys: Sequence[str]) -> pl.DataFrame:
    """Return the entry of the highest data version of each key, sorted by key."""
    present = [(version, rows) for version, rows in zip(versions, block, strict=True) if len(rows)]
    if len({version for version, _ in present}) == 1 and len(present) == 1:
        return present[0][1]
    newest_first = [rows for _, rows in sorted(present, key=lambda versioned: -versioned[0])]
    rows = pl.concat(newest_first, rechunk=False).sort(list(map(named, keys)), maintain_order=True)
    is_new = reduce(lambda a, b: a | b, [named(name) != named(name).shift(1) for name in keys])
    return rows.filter(is_new.fill_null(True))


def without_tombstones(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter(pl.col(OP) != TOMBSTONE)


def with_hidden(
    block: Sequence[pl.DataFrame], versions: Sequence[int], keys: Sequence[str], *, hides_tombstones: bool
) -> Iterator[tuple[pl.DataFrame, Flags]]:
    """Yield all rows of a block, and which of them a reader leaves out, by the reader's own rules."""
    lowest = min(versions)
    present = [(version, rows) for version, rows in zip(versions, block, strict=True) if len(rows)]
    newer = sorted((versioned for versioned in present if versioned[0] > lowest), key=lambda versioned: -versioned[0])
    latest_keys = None
    if newer:
        together = pl.concat([rows for _, rows in newer])
        names = _keys_alone(together, keys)
        first = is_first(names)
        latest_keys = names.filter(first)
        yield together, ~first.to_numpy() | _gone(together, hides_tombstones=hides_tombstones)
    for version, rows in present:
        if version == lowest:
            hidden = _gone(rows, hides_tombstones=hides_tombstones)
            if latest_keys is not None:
                hidden[places_among(_keys_alone(rows, keys), latest_keys)] = True
            yield rows, hidden


def _gone(rows: pl.DataFrame, *, hides_tombstones: bool) -> Flags:
    if hides_tombstones and OP in rows.columns:
        return (rows[OP] == TOMBSTONE).to_numpy().copy()
    return np.zeros(len(rows), bool)


def _keys_alone(rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    return rows.select(named(name).alias(f"k{at}") for at, name in enumerate(keys))
