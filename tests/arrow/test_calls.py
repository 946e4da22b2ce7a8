"""How many calls reads without Spark send to the service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import polars as pl
import pytest

from laketx import InputError, Lake, Table, connect
from metaservice.client import add_column, rename_column
from metaservice.client.calling import Caller
from protos.laketx.v1 import read_pb2

ROWS = [{"id": number, "v": str(number)} for number in range(5)]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("calls")) as made:
        yield made


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of all threads, but for the pins in the background."""
    found: list[str] = []

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Caller, method: object, request: object, **more: Any) -> Any:
            name = type(request).__name__.removesuffix("Request")
            if name not in ("RenewPin", "Unpin"):
                found.append(name)
            return real(self, method, request, **more)

        return call

    for name in ("_call", "_stream"):
        monkeypatch.setattr(Caller, name, counted(getattr(Caller, name)))
    return found


def keyed(lake: Lake, name: str) -> Table:
    table = lake.create_table(name, "id bigint, v string", primary_key=["id"], buckets=2)
    table.upsert(ROWS)
    table.upsert([{"id": 1, "v": "new"}])
    return table


READS: dict[str, Callable[[Table], Any]] = {
    "to_arrow": lambda table: len(table.to_arrow()),
    "a condition": lambda table: len(table.to_arrow(where="id >= 0")),
    "to_batches": lambda table: len(table.to_batches().read_all()),
    "to_polars": lambda table: len(table.to_polars()),
    "count": lambda table: table.count(),
    "scanner": lambda table: len(table.scanner().to_arrow()),
    "to_lazy_polars": lambda table: len(table.to_lazy_polars().filter(pl.col("id") >= 0).collect()),
    "to_duckdb": lambda table: len(table.to_duckdb(duckdb.connect()).filter("id >= 0").fetchall()),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("is_keyed", [False, True])
def test_a_read_is_one_call(lake: Lake, asked: list[str], is_keyed: bool, read: str) -> None:
    name = f"one_{is_keyed}_{read}".replace(" ", "_")
    table = keyed(lake, name) if is_keyed else lake.create_table(name, "id bigint, v string")
    if not is_keyed:
        table.append(ROWS)
    asked.clear()
    assert READS[read](table) == len(ROWS)
    assert asked == ["PlanScan"]
    assert READS[read](table) == len(ROWS)
    assert asked == ["PlanScan", "PlanScan"], "the pin before ends in the background"


def test_a_version_is_one_call_and_a_scan_that_is_read_twice_plans_twice(lake: Lake, asked: list[str]) -> None:
    table = keyed(lake, "versions")
    lake.client.offers("views")  # asked once for each session
    asked.clear()
    assert table.to_arrow(version=1, where="id = 1").to_pylist() == [{"id": 1, "v": "1"}]
    assert asked == ["PlanScan"]
    asked.clear()
    scan = table.scanner()
    assert len(scan.to_arrow()) == len(ROWS)
    assert asked == ["PlanScan"]
    assert scan.count() == len(ROWS)
    assert asked == ["PlanScan", "PlanScan"]


def test_a_plan_serves_the_narrower_condition_of_a_query(lake: Lake, asked: list[str]) -> None:
    table = keyed(lake, "narrower")
    asked.clear()
    rows = table.to_lazy_polars(where="id >= 2").filter(pl.col("v") == "3").collect()
    assert rows["id"].to_list() == [3]
    assert asked == ["PlanScan"]


def test_a_scanner_of_a_large_table_has_no_plan(lake: Lake, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its plan comes in parts; a query's condition may leave out most of them."""
    table = keyed(lake, "parts")
    plan_scan = lake.client.plan_scan

    def in_parts(table_id: str, **given: Any) -> Any:
        for part in plan_scan(table_id, **given):
            entries = list(part.entries)
            del part.entries[1:]
            yield part
            for entry in entries[1:]:
                yield read_pb2.PlanScanResponse(version=part.version, entries=[entry])

    monkeypatch.setattr(lake.client, "plan_scan", in_parts)
    asked.clear()
    scan = table.scanner()
    assert len(scan.to_arrow()) == len(ROWS)
    assert asked == ["PlanScan", "PlanScan"]
    assert len(table.to_arrow()) == len(ROWS)
    assert asked == ["PlanScan"] * 3


def test_columns_that_changed_since_the_table_was_opened_are_planned_again(lake: Lake, asked: list[str]) -> None:
    table = lake.create_table("columns", "id bigint, v string")
    other = lake.table("columns")
    table.append(ROWS)
    lake.client.alter_columns(table.table_id, rename_column("v", "w"), add_column("v", "bigint"))
    asked.clear()
    assert other.to_arrow(where="w = '3'").to_pylist() == [{"id": 3, "w": "3", "v": None}]
    assert other.to_arrow(where="v IS NULL").num_rows == len(ROWS)
    with pytest.raises(InputError, match="CONDITION_INVALID"):
        other.to_arrow(where="nothing = 3")


def test_get_is_one_call_and_asks_again_after_a_change_of_columns(lake: Lake, asked: list[str]) -> None:
    table = keyed(lake, "got")
    other = lake.table("got")
    asked.clear()
    assert other.get([1, 2]).num_rows == 2
    assert asked == ["PlanScan"]
    lake.client.alter_columns(table.table_id, rename_column("v", "w"), add_column("v", "bigint"))
    assert other.get([1]).to_pylist() == [{"id": 1, "w": "new", "v": None}]
    asked.clear()
    assert other.get([2]).num_rows == 1
    assert asked == ["PlanScan"], "the table knows its new columns"
    assert other.get([1], columns=["w"]).to_pylist() == [{"w": "new"}]
    lake.client.alter_columns(table.table_id, rename_column("id", "number"))
    assert other.get([{"number": 1}], columns=["number"]).to_pylist() == [{"number": 1}]
    with pytest.raises(InputError, match="COLUMN_UNKNOWN"):
        other.get([{"id": 1}])
    with pytest.raises(InputError, match="COLUMN_UNKNOWN"):
        other.get([1], columns=["nothing"])


def test_a_read_ends_its_pin(lake: Lake) -> None:
    table = keyed(lake, "pins")
    held = {one.pin_id for one in lake.client.list_pins()}
    scan = table.to_batches()
    (pin,) = {one.pin_id for one in lake.client.list_pins()} - held
    assert len(scan.read_all()) == len(ROWS)
    del scan
    lake.pins.end_released()
    assert pin not in {one.pin_id for one in lake.client.list_pins()}


def test_a_service_of_the_release_before_gets_the_calls_that_it_knows(lake: Lake, asked: list[str]) -> None:
    table = keyed(lake, "before")
    plan_scan = lake.client.plan_scan

    def before(table_id: str, **given: Any) -> Any:
        known = {name: given[name] for name in ("version", "predicate", "partitions", "without_stats") if name in given}
        return plan_scan(table_id, **known)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lake.client, "plan_scan", before)
        for calls in (["PlanScan"], []):
            asked.clear()
            assert len(table.to_arrow()) == len(ROWS)
            rest = ["PinVersions", "GetTable", "PlanScan", "ReadInlined"]
            assert asked == [*calls, *rest]
    lake.pins._scans_pin = True
