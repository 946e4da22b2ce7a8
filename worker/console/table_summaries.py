"""Figures of tables at a version, kept for the pages that show them next: a version's files never change."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final, Generic, TypeVar

from protos.laketx.v1 import catalog_pb2

SUMMARIES_MAX: Final = 100
MAKERS: Final = 4  # threads that make summaries

Summary = TypeVar("Summary")
Key = tuple[str, int, int, int]


class TableSummaries(Generic[Summary]):
    """The newest so many. Whoever asks has looked first whether the caller may read the table."""

    def __init__(self, most: int = SUMMARIES_MAX) -> None:
        self._most = most
        self._kept: OrderedDict[Key, Summary] = OrderedDict()
        self._under_way: dict[Key, Future[Summary]] = {}
        self._makers = ThreadPoolExecutor(MAKERS, "laketx-console-summary")
        self._mutex = threading.Lock()

    def of(
        self, table: catalog_pb2.Table, make: Callable[[], Summary], within_s: float, version: int | None = None
    ) -> Summary | None:
        """The summary of a version, by default the newest; None if it takes longer: ask again, it is being made.

        The time of the newest commit tells versions of a restored store apart.
        """
        number = table.head_version if version is None else version
        key = table.table_id, number, table.head_version, table.head_commit_time_us
        with self._mutex:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            making = self._under_way.get(key)
            is_own = making is None
            if making is None:
                making = self._under_way[key] = self._makers.submit(self._make, key, make)
        wait([making], within_s)
        if not making.done():
            return None
        if making.exception() is not None and not is_own:  # the call of another visitor, who has other rights
            return self.of(table, make, within_s, version)
        return making.result()

    def _make(self, key: Key, make: Callable[[], Summary]) -> Summary:
        try:
            made = make()
            with self._mutex:
                self._kept[key] = made
                while len(self._kept) > self._most:
                    self._kept.popitem(last=False)
            return made
        finally:
            with self._mutex:
                del self._under_way[key]
