"""Rows chosen together in small files, and alone in large ones: in order, and none twice."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from worker.arrow.scan.small_files import chosen_together, in_runs

WHOLE = float("inf")
LARGE = 100  # rows


def rows(first: int, count: int) -> pa.Table:
    return pa.table({"n": pa.array(range(first, first + count), pa.int64())})


def odd(table: pa.Table) -> pa.Table:
    return table.filter(pc.equal(pc.bit_wise_and(table.column("n"), 1), 1))


@pytest.mark.parametrize(
    ("sizes", "memory_bytes", "parts"),
    [
        ([], WHOLE, 0),
        ([3, 4, 5], WHOLE, 1),
        ([3, 0, 5], 1, 2),  # a part when there is something in memory
        ([3, LARGE, 4, 5], WHOLE, 3),
        ([LARGE, LARGE], WHOLE, 2),
        ([4, 4, 4, 4], 64, 2),
    ],
)
def test_rows_come_in_the_order_of_their_files(sizes: list[int], memory_bytes: float, parts: int) -> None:
    files = [rows(sum(sizes[:at]), size) for at, size in enumerate(sizes)]

    def whole(file: pa.Table) -> list[pa.Table] | None:
        return None if len(file) >= LARGE else [file.slice(0, 2), file.slice(2)]

    found = list(chosen_together(files, whole, lambda file: [odd(file)], odd, memory_bytes))
    assert [value for part in found for value in part.column("n").to_pylist()] == list(range(1, sum(sizes), 2))
    assert len(found) == parts


@pytest.mark.parametrize("count", [0, 1, 31, 64, 65, 3_000])
def test_runs_have_every_source_once(count: int) -> None:
    def items(number: int) -> Iterator[int]:
        yield from (number, -number)

    runs = in_runs([partial(items, number) for number in range(count)], threads=2)
    assert [each for run in runs for each in run()] == [each for number in range(count) for each in (number, -number)]
    assert len(runs) == {64: 32, 65: 33, 3_000: 47}.get(count, count)
