"""A table that moves on, forgets its old versions at once, and is purged, while it is read without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from laketx import Lake, Table
from tests.integration.service import service, wait_until
from tests.races.doors import connect_without_spark
from tests.races.gate import Boundary, Gate
from worker.services.purge import Purge

FORGETS: Final = {"data.retain.hours": "0", "write.inline.rows": "0"}
READS: Final[dict[str, Callable[[Table], pa.Table]]] = {
    "rows": lambda table: table.to_arrow(),
    "scanner": lambda table: table.scanner(where="id >= 1").to_arrow(),
    "batches": lambda table: table.to_batches().read_all(),
}


class Purged:
    """A lake behind a gate, and one past it, which purges."""

    def __init__(self, lake: Lake, gate: Gate, other: Lake) -> None:
        self.lake, self.gate, self._other = lake, gate, other

    def table(self, name: str, key: Sequence[str] = ()) -> Table:
        """With rows 1 and 2, each in a file."""
        made = self._other.create_table(f"shop.{name}", "id bigint", primary_key=key, properties=FORGETS)
        for number in (1, 2):
            (made.upsert if key else made.append)([{"id": number}])
        return self.lake.table(made.name)

    def replace(self, table: Table) -> None:
        """Its rows give way to another one, and what nobody reads is deleted."""
        unread = self._other.create_table(f"{table.name}_unread", "id bigint", properties=FORGETS)
        unread.append([{"id": 1}])
        for one in (self._other.table(table.name), unread):
            one.overwrite([{"id": 3}])
        wait_until(lambda: self._purge() and len(files_of(unread)) == 1)

    def _purge(self) -> bool:
        return not Purge(self._other.client, self._other.warehouse).run().failed

    def while_planned(
        self, read: Callable[[Table], pa.Table], table: Table, boundary: Boundary = Boundary.SCAN
    ) -> list[int]:
        """What a read finds whose plan was made before the rows gave way, and is answered after it."""
        hold = self.gate.hold(boundary)
        with ThreadPool(1) as pool:
            running = pool.apply_async(read, (table,))
            try:
                assert hold.reached.wait(60)
                self.replace(table)
            finally:
                self.gate.open()
            return sorted(running.get(60)["id"].to_pylist())


def files_of(table: Table) -> list[Path]:
    return list(Path(table.folder).rglob("*.parquet"))


@pytest.fixture(scope="module")
def purged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Purged]:
    folder = tmp_path_factory.mktemp("retired")
    warehouse = folder / "warehouse"
    warehouse.mkdir()
    with (
        service(folder / "service", "--purge-delay-ms", "0") as (running, _),
        Gate(running.address) as gate,
        connect_without_spark(f"laketx://{gate.address}", str(warehouse)) as lake,
        connect_without_spark(f"laketx://{running.address}", str(warehouse)) as other,
    ):
        other.client.create_namespace("shop")
        other.mark_warehouse()
        yield Purged(lake, gate, other)


@pytest.mark.parametrize("read", READS)
def test_a_read_after_a_look_finds_the_newest_version(purged: Purged, read: str) -> None:
    table = purged.table(f"looked_{read}")
    purged.replace(table)
    assert READS[read](table)["id"].to_pylist() == [3]


@pytest.mark.parametrize("read", READS)
def test_what_is_planned_stays(purged: Purged, read: str) -> None:
    assert purged.while_planned(READS[read], purged.table(f"planned_{read}")) == [1, 2]


def test_a_look_up_whose_files_are_gone_reads_the_newest_version(purged: Purged) -> None:
    assert purged.while_planned(lambda table: table.get([1, 2, 3]), purged.table("keyed", ["id"])) == [3]


def test_the_changes_after_a_cursor_stay(purged: Purged) -> None:
    table = purged.table("cursor")
    cursor = table.cursor("reader", version=2)
    table.append([{"id": 4}])
    assert purged.while_planned(lambda _: cursor.to_arrow(), table, Boundary.ANALYSIS) == [4]
    assert len(files_of(table)) > 1, "the cursor keeps what it may read again"
