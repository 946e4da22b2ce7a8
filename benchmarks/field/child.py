"""The process that one system runs in. It answers requests, a line of JSON each, and times its own calls.

`python -m benchmarks.field.child SYSTEM FOLDER POSTGRES`
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.arrow_data import rows
from benchmarks.field.digest import digest
from benchmarks.field.model import amounts, update, whole
from benchmarks.field.system import PART, Kind, Place, System, open_system
from benchmarks.field.writers import ROWS_A_COMMIT, Work, write
from benchmarks.peers.port import Refused

ROWS_A_PART: Final = 10


@dataclass(frozen=True)
class Child:
    """The methods that a request may name."""

    place: Place
    system: System

    def fill(self, table: str, kind: Kind, count: int) -> None:
        """Make a table of so many rows, in one commit."""
        self.system.create(table, kind)
        write = self.system.upsert if kind == "keyed" else self.system.append
        write(table, whole(count))

    def fill_by_commits(self, table: str, count: int, patience_s: float) -> int:
        """Make a table by so many commits of ten rows; return how many were made in time."""
        self.system.create(table, "commits")
        begin = time.monotonic()
        for number in range(count):
            if time.monotonic() - begin > patience_s:
                return number
            ids = np.arange(number * ROWS_A_COMMIT, (number + 1) * ROWS_A_COMMIT)
            self.system.append(table, pa.Table.from_batches([rows(ids)]))
        return count

    def fill_parts(self, table: str, commits: int, parts: int) -> None:
        """Make a table by so many commits, each with a file for each part."""
        self.system.create(table, "parts")
        rows_a_commit = parts * ROWS_A_PART
        for number in range(commits):
            ids = np.arange(number * rows_a_commit, (number + 1) * rows_a_commit)
            part = pa.array(ids // ROWS_A_PART % parts, pa.int64())
            self.system.append(table, pa.Table.from_batches([rows(ids)]).append_column(PART, part))

    def upsert(self, table: str, count: int, number: int) -> float:
        """Replace a hundredth of so many rows."""
        source = update(count, number)
        return timed(lambda: self.system.upsert(table, source))

    def delete(self, table: str, number: int) -> float:
        """Delete another hundredth for each number."""
        return timed(lambda: self.system.delete(table, *amounts(number)))

    def head(self, table: str) -> int:
        return self.system.head(table)

    def read(
        self, table: str, columns: Sequence[str] | None = None, version: int | None = None, row_id: int | None = None
    ) -> float:
        return timed(lambda: self.system.read(table, columns, version, row_id))

    def digest(
        self, table: str, columns: Sequence[str] | None = None, version: int | None = None, row_id: int | None = None
    ) -> str:
        return digest(self.system.read(table, columns, version, row_id))

    def plan(self, table: str) -> float:
        return timed(lambda: self.system.count_files(table))

    def files(self, table: str) -> int:
        return self.system.count_files(table)

    def write(self, table: str, work: Work, writers: int, warm_up_s: float, window_s: float) -> dict[str, object]:
        return write(self.place, self.system, table, work, writers, warm_up_s, window_s).as_json()


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no answer
    place = Place(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
    child = Child(place, open_system(place))
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any]
        try:
            answer = {"answer": getattr(child, request["method"])(**request["arguments"])}
        except Refused as refusal:
            answer = {"error": f"{refusal.reason}: {refusal.__cause__}"}
        except Exception as error:  # noqa: BLE001 - whatever a system raises, the others go on
            answer = {"error": f"{type(error).__name__}: {error}"}
        pa.default_memory_pool().release_unused()  # the others need it now
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
