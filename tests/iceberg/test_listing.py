"""A listing leaves out tables that can't be shown, before anybody loads them, and costs little."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from laketx import InputError, Lake, Table
from metaservice.client import MetaClient, add_column, drop_column, rename_column, widen_column
from tests.iceberg.imported import import_file
from worker.iceberg.rest.catalog import Catalog
from worker.iceberg.rest.listing import LOOK_S, Listings
from worker.iceberg.rest.problems import RestError
from worker.iceberg.rest.tables import Showing, Tables
from worker.iceberg.rest.warehouses import IcebergWarehouse

Make = Callable[[Table, Path], None]


def widened(table: Table, _: Path) -> None:
    table.append([{"id": 1, "n": 2}])
    table.view.client.alter_columns(table.table_id, widen_column("n", "double"))


def own_ids(table: Table, folder: Path) -> None:
    fields = [pa.field(name, pa.int32(), metadata={"PARQUET:field_id": "9"}) for name in ("id", "n")]
    import_file(table, folder / "ids.parquet", pa.table({"id": [1], "n": [2]}, schema=pa.schema(fields)))


def odd_path(table: Table, folder: Path) -> None:
    import_file(table, folder / "a%20b.parquet", rows())


def other_meaning(table: Table, folder: Path) -> None:
    import_file(table, folder / "names.parquet", rows())
    table.view.client.alter_columns(table.table_id, drop_column("n"))
    table.view.client.alter_columns(table.table_id, add_column("n", "int"))


def plain(table: Table, _: Path) -> None:
    table.append([{"id": 1, "n": 2}])


def imported(table: Table, folder: Path) -> None:
    import_file(table, folder / "plain.parquet", rows())


def evolved(table: Table, _: Path) -> None:
    table.append([{"id": 1, "n": 2}])
    table.view.client.alter_columns(table.table_id, rename_column("n", "m"), widen_column("id", "bigint"))


def swapped(table: Table, _: Path) -> None:
    """Our own files have ids, so names may change hands."""
    table.append([{"id": 1, "n": 2}])
    steps = [rename_column("n", "x"), rename_column("id", "n"), rename_column("x", "id")]
    table.view.client.alter_columns(table.table_id, *steps)


def rows() -> pa.Table:
    return pa.table({"id": pa.array([1], pa.int32()), "n": pa.array([2], pa.int32())})


REFUSED: dict[Make, str] = {
    widened: "ICEBERG_TYPE",
    own_ids: "ICEBERG_NAMES",
    odd_path: "ICEBERG_PATH",
    other_meaning: "ICEBERG_NAMES",
}
SHOWN: list[Make] = [plain, imported, evolved, swapped]


def fill(lake: Lake, namespace: str, makes: list[Make], folder: Path) -> None:
    for make in makes:
        table = lake.create_table(
            f"{namespace}.{make.__name__}", "id int, n int", properties={"write.inline.rows": "0"}
        )
        make(table, folder)


class Clock:
    """Seconds that pass by hand."""

    def __init__(self, step_s: float = 0.0) -> None:
        self.at_s, self.step_s = 0.0, step_s

    def __call__(self) -> float:
        self.at_s += self.step_s
        return self.at_s


def catalog(lake: Lake, clock: Clock | None = None) -> Catalog:
    """A server's, which has loaded nothing."""
    clock = clock or Clock()
    tables = Tables(Showing(), clock)
    return Catalog(lake, tables, Listings(tables, clock), IcebergWarehouse(3), {})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests that clients send, but streams."""
    calls: list[str] = []
    real: Any = MetaClient._call

    def count(self: MetaClient, method: Any, request: Any, **options: Any) -> Any:
        calls.append(type(request).__name__)
        return real(self, method, request, **options)

    monkeypatch.setattr(MetaClient, "_call", count)
    return calls


def test_tables_that_cannot_be_shown_are_not_listed(lake: Lake, tmp_path: Path) -> None:
    fill(lake, "mixed", [*REFUSED, *SHOWN], tmp_path)
    wanted = sorted(make.__name__ for make in SHOWN)
    for server in (catalog(lake), catalog(lake)):
        for _ in range(2):
            assert server.tables("mixed") == wanted
        for make, reason in REFUSED.items():
            with pytest.raises((InputError, RestError), match=reason):
                server.load("mixed", make.__name__)
        assert server.tables("mixed") == wanted


def test_images_that_set_columns_are_shown_when_they_are_folded(lake: Lake) -> None:
    table = lake.create_table(
        "folding.t", "id int, a int, b int", primary_key=["id"], buckets=1, properties={"merge.engine": "partial"}
    )
    table.upsert([{"id": 1, "a": 1, "b": 1}])
    server = catalog(lake)
    assert server.tables("folding") == ["t"]
    server.load("folding", "t")
    table.upsert([{"id": 1, "b": None}])
    with pytest.raises((InputError, RestError), match="PARTIAL_IMAGES"):
        server.load("folding", "t")
    assert server.tables("folding") == catalog(lake).tables("folding") == []
    table.compact("major")
    server.load("folding", "t")
    assert server.tables("folding") == catalog(lake).tables("folding") == ["t"]


def test_plain_tables_cost_no_call_each(lake: Lake, asked: list[str]) -> None:
    names = [f"t{number:03}" for number in range(150)]
    for name in names:
        lake.create_table(f"many.{name}", "id int")
    server = catalog(lake)
    for _ in range(2):
        asked.clear()
        assert server.tables("many") == names
        assert asked == ["GetNamespaceRequest", "ListTablesRequest"]


def test_what_is_known_of_doubtful_tables_is_not_asked_again(lake: Lake, tmp_path: Path, asked: list[str]) -> None:
    fill(lake, "doubted", [*REFUSED, *SHOWN], tmp_path)
    server = catalog(lake)
    server.tables("doubted")
    asked.clear()
    server.tables("doubted")
    assert asked == ["GetNamespaceRequest", "ListTablesRequest"]


def test_a_listing_looks_at_tables_for_a_limited_time(lake: Lake, tmp_path: Path) -> None:
    """The rest is listed; the next listing goes on where it ended."""
    fill(lake, "slow", [widened, own_ids, odd_path], tmp_path)
    clock = Clock()
    server = catalog(lake, clock)
    found = []
    for _ in range(4):
        clock.step_s = LOOK_S * 0.4
        found.append(server.tables("slow"))
    assert found[0] != []
    assert found[-1] == []
    assert all(set(after) <= set(before) for before, after in pairwise(found))


def test_tables_with_external_files_are_told_where_it_is_asked(lake: Lake, tmp_path: Path) -> None:
    table = lake.create_table("told.t", "id int, n int")

    def told(**options: Any) -> list[bool]:
        return [one.has_imports for one in lake.client.list_tables(namespace="told", **options)]

    assert told(with_imports=True) == [False]
    imported(table, tmp_path)
    assert (told(with_imports=True), told()) == ([True], [False])
    table.refresh().overwrite([{"id": 1, "n": 3}])
    assert told(with_imports=True) == [False]
