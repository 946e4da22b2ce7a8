"""Figures of tables at a version, kept for the pages that show them next: a version's files never change."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from protos.laketx.v1 import catalog_pb2

SUMMARIES_MAX: Final = 100

Summary = TypeVar("Summary")
Key = tuple[str, int, int]


class TableSummaries(Generic[Summary]):
    """The newest so many. Whoever asks has looked first whether the caller may read the table."""

    def __init__(self, most: int = SUMMARIES_MAX) -> None:
        self._most = most
        self._kept: OrderedDict[Key, Summary] = OrderedDict()
        self._mutex = threading.Lock()

    def of(self, table: catalog_pb2.Table, make: Callable[[], Summary]) -> Summary:
        """The summary of a table's newest version. The commit's time tells versions of a restored store apart."""
        key = table.table_id, table.head_version, table.head_commit_time_us
        with self._mutex:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = make()
        with self._mutex:
            self._kept[key] = made
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return made
