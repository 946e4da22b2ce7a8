"""Threads for calls, in a lane for each kind: a crowded lane takes nothing from the others.

gRPC gives every call a thread for as long as it lasts, a stream for hours. So streams have lanes of their own, with a
slot per thread, and a stream without a slot is refused at once. Calls that end by themselves may wait for a thread. The
check for room runs on gRPC's one accepting thread, right before the call is passed on.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, Final, TypeVar

T = TypeVar("T")
STOP_S: Final = 1.0  # for each thread; what is under way was cancelled before


class Lane(ThreadPoolExecutor):
    """A bounded number of threads, started when needed. A started thread stays.

    gRPC accepts only Python's pool, but that one fails permanently if the system gives no thread: a call is queued that
    no thread serves, and gRPC's own thread ends. A lane continues with the threads that it has.
    """

    def __init__(self, name: str, threads: int, *, waiting: int = 0, ready: int = 0) -> None:
        """`waiting`: calls that may wait for a thread. `ready`: threads that are started at once."""
        super().__init__(max(threads, 1), thread_name_prefix=name)
        self.name = name
        self.threads = threads
        self.most = threads + waiting
        self.taken = 0  # calls that run or wait
        self.held: Counter[str] = Counter()  # of them, by principal, where it is counted
        self._started = 0
        self._mutex = threading.Lock()
        self._threads_started: list[threading.Thread] = []
        self._queue: SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]] | None]
        self._queue = SimpleQueue()
        for _ in range(min(ready, threads)):
            self._start()

    @property
    def is_crowded(self) -> bool:
        """Whether no thread is free."""
        return self.taken >= self.threads

    def is_full(self) -> bool:
        return self.taken >= self.most

    def has_thread(self) -> bool:
        """Whether the next call can be served; starts a thread if that is needed."""
        if self.taken >= self._started < self.threads:
            try:
                self._start()
            except RuntimeError:  # the system gives none
                return self.most > self.threads and self._started > 0
        return self.taken < self._started or (self.most > self.threads and self._started > 0)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        with self._mutex:
            self.taken += 1
        self._queue.put((future, fn, args, kwargs))
        return future

    def seat(self, principal: str) -> Seat:
        """This lane for one call, which counts for the principal as long as it lasts."""
        return Seat(self, principal)

    def hold(self, principal: str, step: int) -> None:
        with self._mutex:
            self.held[principal] += step
            if not self.held[principal]:
                del self.held[principal]

    def use(self) -> tuple[int, dict[str, int]]:
        """The calls that run or wait, in total and by principal."""
        with self._mutex:
            return self.taken, dict(self.held)

    def stop(self) -> None:
        """Ends idle threads: a process that exits must not leave one inside gRPC."""
        for _ in self._threads_started:
            self._queue.put(None)
        for thread in self._threads_started:
            thread.join(STOP_S)

    def _start(self) -> None:
        thread = threading.Thread(target=self._work, name=f"{self.name}-{self._started}", daemon=True)
        thread.start()
        self._threads_started.append(thread)
        self._started += 1

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            self._do(*job)

    def _do(self, future: Future[T], fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            result = fn(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - the future carries it, as every pool's does
            self._ended()
            future.set_exception(error)
        else:
            self._ended()
            future.set_result(result)

    def _ended(self) -> None:
        with self._mutex:
            self.taken -= 1


class Seat(ThreadPoolExecutor):
    """A lane for one call, with the part of a pool that gRPC uses: `submit`."""

    def __init__(self, lane: Lane, principal: str) -> None:  # no threads of its own
        self._lane = lane
        self._principal = principal

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        self._lane.hold(self._principal, 1)
        future = self._lane.submit(fn, *args, **kwargs)
        future.add_done_callback(lambda _: self._lane.hold(self._principal, -1))
        return future
