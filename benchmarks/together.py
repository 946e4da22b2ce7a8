"""Workers that begin at the same moment: threads, or processes of their own."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing.synchronize import Barrier as ProcessBarrier
from typing import TypeVar

START_SECONDS = 200.0
Answer = TypeVar("Answer")


def run_together(work: Callable[[int], Answer], workers: int, mode: str) -> list[Answer]:
    """Call `work` with each worker's number, in "threads" or "processes"; it calls `wait_for_all` when it is ready."""
    with _executor(workers, mode) as executor:
        return list(executor.map(partial(_run, work), range(workers)))


def wait_for_all() -> None:
    """Wait until every worker is ready."""
    _start.wait(START_SECONDS)


def _run(work: Callable[[int], Answer], worker: int) -> Answer:
    """Let nobody wait for a worker that failed before it was ready."""
    try:
        return work(worker)
    except BaseException:
        _start.abort()
        raise


def _executor(workers: int, mode: str) -> Executor:
    if mode == "threads":
        return ThreadPoolExecutor(workers, initializer=_set_start, initargs=(threading.Barrier(workers),))
    context = multiprocessing.get_context("spawn")  # a fork would take along the locks of other libraries' threads
    return ProcessPoolExecutor(workers, context, initializer=_set_start, initargs=(context.Barrier(workers),))


_start: threading.Barrier | ProcessBarrier


def _set_start(barrier: threading.Barrier | ProcessBarrier) -> None:
    global _start  # noqa: PLW0603  (how an executor hands something to all of its workers)
    _start = barrier
