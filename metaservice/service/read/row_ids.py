"""The row ids that some files may have: whether a delete set may hide one of their rows."""

from __future__ import annotations

from array import array
from bisect import bisect_right

from metaservice.core import limits
from metaservice.core.errors import BrokenInvariantError
from metaservice.store.records.plans import StoredEntry


class RowIds:
    """The row ids that the remaining files may have, and their lowest data version."""

    def __init__(self) -> None:
        self._lows, self._highs = array("q"), array("q")
        self._any_id = False
        self._data_version_min = limits.COUNT_MAX
        self._reach: list[int] | None = None

    def add(self, entry: StoredEntry) -> None:
        if self._reach is not None:
            raise BrokenInvariantError("asked before the files were through")
        self._data_version_min = min(self._data_version_min, entry.data_version)
        if entry.row_id_min < 0:
            self._any_id = True
        else:
            self._lows.append(entry.row_id_min)
            self._highs.append(entry.row_id_max)

    def may_be_hidden_by(self, entry: StoredEntry) -> bool:
        if entry.data_version <= self._data_version_min:
            return False
        if self._any_id or entry.row_id_min < 0:
            return True
        if self._reach is None:
            self._reach = self._sort()
        place = bisect_right(self._lows, entry.row_id_max)
        return place > 0 and self._reach[place - 1] >= entry.row_id_min

    def _sort(self) -> list[int]:
        """Sorts by the lowest id; computes the highest id of each file and all before it."""
        pairs = sorted(zip(self._lows, self._highs, strict=True))
        self._lows = array("q", (low for low, _ in pairs))
        reach, highest = [], -1
        for _, high in pairs:
            highest = max(highest, high)
            reach.append(highest)
        return reach
