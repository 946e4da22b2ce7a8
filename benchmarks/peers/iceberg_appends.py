"""Writers that append by pyiceberg for a while, each in a process of its own, whatever the catalog."""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException
from sqlalchemy.exc import OperationalError

ROWS: Final = 10  # of a commit
START_S: Final = 300


@dataclass(frozen=True, slots=True)
class Appended:
    """What writers did together."""

    commits: int
    lost: int  # appends that were given up after all retries
    seconds: float

    @property
    def rate(self) -> float:
        return self.commits / self.seconds


def append(catalog: Mapping[str, str], table: str, writers: int, seconds: float) -> Appended:
    """All begin at once, and each appends again and again, as pyiceberg's defaults have it."""
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(writers + 1), context.Queue()
    processes = [
        context.Process(target=_write, args=(dict(catalog), table, number, seconds, barrier, answers), daemon=True)
        for number in range(writers)
    ]
    for one in processes:
        one.start()
    barrier.wait(START_S)
    begin = time.perf_counter()
    counts = [answers.get(timeout=seconds + START_S) for _ in processes]
    took = time.perf_counter() - begin
    for one in processes:
        one.join()
    return Appended(sum(done for done, _ in counts), sum(lost for _, lost in counts), took)


def _write(catalog: Mapping[str, str], table: str, number: int, seconds: float, barrier: Any, answers: Any) -> None:
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)  # it warns of every retry
    rows = pa.table({"id": pa.array([number] * ROWS, pa.int64()), "note": ["x"] * ROWS})
    target = load_catalog("bench", **catalog).load_table(table)
    done = lost = 0
    barrier.wait(START_S)
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        try:
            target.append(rows)
            done += 1
        except (CommitFailedException, OperationalError):
            lost += 1
            target = load_catalog("bench", **catalog).load_table(table)
    answers.put((done, lost))
