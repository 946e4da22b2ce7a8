"""Spark with Iceberg's jar writes one table in several processes at once, beside compactions of LakeTX.

A statement that succeeded took place once, one that failed didn't. Only a MERGE that inserts alone may come twice:
Iceberg's library loads the table again before it commits one, and looks at nothing (apache/iceberg#12653).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any, Final, Self

import pytest

from laketx import Lake
from metaservice.client import LakeTXError
from tests.iceberg.engines.environment import run_statements, spark_or_skip
from tests.iceberg.servers import Server
from tests.iceberg.writers import made, numbers
from tests.races.compactions import Compactions
from tests.races.statements import TARGETS, Kind
from tests.races.statements import statements as listed

ROUNDS: Final = 12
INSERT: Final = "INSERT INTO lake.shop.{0} VALUES ({1}, 'a')"
DELETE: Final = "DELETE FROM lake.shop.{0} WHERE id = {1}"
MERGE: Final = """
    MERGE INTO lake.shop.{0} AS t USING (SELECT {1} AS id, 'm' AS note) AS s ON t.id = s.id
    WHEN NOT MATCHED THEN INSERT (id, note) VALUES (s.id, s.note)
"""
MINOR: Final = next(one for one in listed(TARGETS["same row"][0]) if one.kind is Kind.MINOR)
WRITERS: Final = ((INSERT, 1_000), (MERGE, 2_000), (MERGE, 2_000), (DELETE, 0))  # and its first id


@pytest.mark.long
@pytest.mark.parametrize("retries", ["0", "20"])
def test_what_succeeds_takes_place_once(lake: Lake, server: Server, tmp_path: Path, retries: str) -> None:
    spark_or_skip()
    name = f"raced_{retries}"
    made(server, name, properties={"commit.retry.num-retries": retries}).append(numbers([*range(2 * ROUNDS)]))
    statements = [[form.format(name, first + one) for one in range(ROUNDS)] for form, first in WRITERS]
    with Compacting(lake, f"shop.{name}") as compacting, ThreadPoolExecutor(len(WRITERS)) as pool:
        folders = [tmp_path / str(number) for number in range(len(WRITERS))]
        for folder in folders:
            folder.mkdir()
        run_statements(server.url, tmp_path, "v2", [])  # fetches Iceberg's jar, which one session does at a time
        done = list(pool.map(run_statements, repeat(server.url), folders, repeat("v2"), statements))
    added, merged, again, deleted = (succeeded(answers) for answers in done)
    found = Counter(lake.table(f"shop.{name}").to_arrow().column("id").to_pylist())
    inserted = {1_000 + one for one in added} | {2_000 + one for one in merged | again}
    assert {*found} == {*range(2 * ROUNDS)} - deleted | inserted
    twice = {number for number, count in found.items() if count > 1}
    assert {one for one in twice if one < 2_000} == set()
    assert min(len(added), len(merged), len(deleted), compacting.count) > 0


class Compacting:
    """Compacts a table again and again, until it ends."""

    def __init__(self, lake: Lake, name: str) -> None:
        self._door, self._name = Compactions(lake), name
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.count = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(0.5):
            try:
                self._door.run(MINOR, self._name, "fail")
                self.count += 1
            except LakeTXError:
                continue


def succeeded(answers: Sequence[dict[str, Any]]) -> set[int]:
    """Which statements did; the others say that the table changed."""
    failed = [one["error"] for one in answers if "error" in one]
    assert [one for one in failed if "CommitFailed" not in one and "ValidationException" not in one] == []
    return {at for at, one in enumerate(answers) if "error" not in one}
