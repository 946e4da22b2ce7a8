"""Several iterators read at once by threads, in bounded memory; their items come in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from queue import Full, Queue
from typing import Final, Generic, TypeVar

LOOK_EVERY_S: Final = 0.1

T = TypeVar("T")
Source = Callable[[], Iterable[T]]


@dataclass(frozen=True, slots=True)
class _End:
    """After the last item of a source; with the error that ended it."""

    error: BaseException | None = None


class _Ahead(Generic[T]):
    """One source, read by a thread, and its items that wait."""

    def __init__(self, source: Source[T], items_ahead: int, stopped: threading.Event) -> None:
        self._source = source
        self._items: Queue[T | _End] = Queue(items_ahead)
        self._stopped = stopped

    def read(self) -> None:
        end = _End()
        try:
            for item in self._source():
                if not self._put(item):
                    return
        except BaseException as error:  # noqa: BLE001 - raised where the items are used
            end = _End(error)
        self._put(end)

    def _put(self, item: T | _End) -> bool:
        while not self._stopped.is_set():
            try:
                self._items.put(item, timeout=LOOK_EVERY_S)
            except Full:
                continue
            return True
        return False

    def items(self) -> Iterator[T]:
        while not isinstance(item := self._items.get(), _End):
            yield item
        if item.error is not None:
            raise item.error


def in_parallel(sources: Sequence[Source[T]], threads: int, items_ahead: int) -> Iterator[T]:
    """Yield all items of the first source, of the second, and so on; an error is raised where its item would be.

    At most `threads` sources are read at once, each at most `items_ahead` items before its turn.
    """
    if min(len(sources), threads) <= 1:
        for source in sources:
            yield from source()
        return
    stopped = threading.Event()
    waiting = (_Ahead(source, items_ahead, stopped) for source in sources)
    with ThreadPoolExecutor(threads, thread_name_prefix="laketx-read") as pool:
        begun: list[_Ahead[T]] = []
        try:
            while True:
                for ahead in islice(waiting, threads - len(begun)):
                    pool.submit(ahead.read)
                    begun.append(ahead)
                if not begun:
                    return
                yield from begun[0].items()
                del begun[0]
        finally:
            stopped.set()
