"""Files that are sorted by key, merged in blocks that fit into memory; of each key the latest entry.

    file of version 4   1 3 5 | 7 9     a batch of each file is there; the smallest of the batches' last keys is 5,
    file of version 6   2 3 8 | 11      so rows up to 5 are complete: 1 2 3 3 5 are a block, 8 waits for the next

Blocks come in the order of their keys, and no key lies in two of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import polars as pl

from worker.base.schema import OP, TOMBSTONE
from worker.compact.digests import named
from worker.read.key_merge import is_first, places_among


class NotSortedError(Exception):
    """A file isn't sorted by key."""


@dataclass(slots=True)
class Run:
    """Rows sorted by key, all of one data version."""

    data_version: int
    batches: Iterator[pl.DataFrame]


def blocks(runs: Sequence[Run], keys: Sequence[str]) -> Iterator[list[pl.DataFrame]]:
    """For each block a frame of each run, possibly empty, in the order of the runs."""
    waiting = [next(run.batches, None) for run in runs]
    for rows in waiting:
        _check_sorted(rows, None, keys)
    while any(rows is not None for rows in waiting):
        bound = _smallest([rows[-1] for rows in waiting if rows is not None], keys)
        block = []
        for at, rows in enumerate(waiting):
            if rows is None:
                block.append(pl.DataFrame())
                continue
            count = rows_up_to(rows, bound, keys)
            block.append(rows[:count])
            rest: pl.DataFrame | None = rows[count:]
            if count == len(rows):
                rest = next(runs[at].batches, None)
                _check_sorted(rest, rows[-1], keys)
            waiting[at] = rest
        yield block


def rows_up_to(rows: pl.DataFrame, bound: pl.DataFrame, keys: Sequence[str]) -> int:
    """The number of sorted rows with a key not above the bound's."""
    if len(keys) == 1:
        value = bound[keys[0]]
        return int(rows[keys[0]].search_sorted(value, side="right")[0])
    return int(rows.select(_not_above([named(name) for name in keys], [bound[name] for name in keys]).sum()).item())


def _not_above(left: Sequence[pl.Expr], right: Sequence[Any]) -> pl.Expr:
    """Left at or below right, column by column."""
    found = pl.lit(True)
    for mine, value in reversed(list(zip(left, right, strict=True))):
        one = pl.lit(value) if isinstance(value, pl.Series) else value
        found = (mine < one) | ((mine == one) & found)
    return found


def _smallest(rows: Sequence[pl.DataFrame], keys: Sequence[str]) -> pl.DataFrame:
    return pl.concat([one.select(map(named, keys)) for one in rows]).sort(list(map(named, keys)))[:1]


def _check_sorted(rows: pl.DataFrame | None, before: pl.DataFrame | None, keys: Sequence[str]) -> None:
    if rows is None:
        return
    if before is not None:
        rows = pl.concat([before.select(map(named, keys)), rows.select(map(named, keys))])
    if len(keys) == 1:
        is_sorted = rows[keys[0]].is_sorted()
    else:
        earlier = [named(name).shift(1) for name in keys]
        is_sorted = bool(rows.select(_not_above(earlier, [named(name) for name in keys]).fill_null(True).all()).item())
    if not is_sorted:
        raise NotSortedError


# -- what is left of a block -------------------------------------------------------------------------------------------


def latest(block: Sequence[pl.DataFrame], versions: Sequence[int], keys: Sequence[str]) -> pl.DataFrame:
    """For each key the entry of the highest data version, sorted by key."""
    there = [(version, rows) for version, rows in zip(versions, block, strict=True) if len(rows)]
    if len({version for version, _ in there}) == 1 and len(there) == 1:
        return there[0][1]
    newest_first = [rows for _, rows in sorted(there, key=lambda one: -one[0])]
    rows = pl.concat(newest_first, rechunk=False).sort(list(map(named, keys)), maintain_order=True)
    is_new = reduce(lambda a, b: a | b, [named(name) != named(name).shift(1) for name in keys])
    return rows.filter(is_new.fill_null(True))


def without_tombstones(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter(pl.col(OP) != TOMBSTONE)


def _gone(rows: pl.DataFrame, *, hides_tombstones: bool) -> np.ndarray[Any, np.dtype[np.bool_]]:
    if hides_tombstones and OP in rows.columns:
        return (rows[OP] == TOMBSTONE).to_numpy().copy()
    return np.zeros(len(rows), bool)


def _keys_alone(rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """A frame of an ended run has no columns."""
    return rows.select(named(name).alias(f"k{at}") for at, name in enumerate(keys)) if len(rows) else rows


def hidden_rows(
    block: Sequence[pl.DataFrame], versions: Sequence[int], keys: Sequence[str], *, hides_tombstones: bool
) -> list[pl.Series]:
    """The positions of the rows in each frame that a reader leaves out, by the reader's own rules."""
    lowest = min(versions)
    frames = [_keys_alone(rows, keys) for rows in block]
    flags = [_gone(rows, hides_tombstones=hides_tombstones) for rows in block]
    newer = sorted(
        (at for at, version in enumerate(versions) if version > lowest and len(frames[at])),
        key=lambda at: -versions[at],
    )
    if newer:
        together = pl.concat([frames[at] for at in newer])
        first = is_first(together)
        latest_keys, begin = together.filter(first), 0
        for at in newer:
            end = begin + len(frames[at])
            flags[at] |= ~first[begin:end].to_numpy()
            begin = end
        for at, version in enumerate(versions):
            if version == lowest and len(frames[at]):
                flags[at][places_among(frames[at], latest_keys)] = True
    return [pl.Series(np.flatnonzero(one), dtype=pl.UInt32) for one in flags]
