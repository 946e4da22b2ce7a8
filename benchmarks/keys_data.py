"""The rows of `benchmarks/keys.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa


@dataclass
class Rows:
    """The rows of a table: their keys are the numbers below `count`."""

    count: int
    partitions: int
    chance: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))

    def all(self) -> pa.Table:
        return self._of(self.chance.permutation(self.count), 0)

    def of_load(self, at: int, loads: int) -> pa.Table:
        """Those of one of so many loads, each of which has partitions of its own."""
        keys = np.arange(self.count)
        keys = keys[keys % self.partitions * loads // self.partitions == at]
        return self._of(self.chance.permutation(keys), 0)

    def some(self, count: int, *, moves: bool) -> pa.Table:
        """So many random ones, with new values; half of them move, if they may."""
        keys = self.chance.choice(self.count, min(count, self.count), replace=False)
        return self._of(keys, self.chance.integers(0, 2, len(keys)) if moves else 0)

    def new(self, count: int, after: int) -> pa.Table:
        """So many above all, and above those that were added before."""
        return self._of(np.arange(self.count + after, self.count + after + count), 0)

    def _of(self, keys: Any, moved: Any) -> pa.Table:
        days = pa.array((keys + moved) % self.partitions, pa.int32())
        return pa.table({"id": pa.array(keys, pa.int64()), "day": days, "amount": self.chance.random(len(keys))})
