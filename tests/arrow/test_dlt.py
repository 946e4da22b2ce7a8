"""Pipelines of dlt load into a lake what they load into DuckDB, once, and all tables of a load at one instant."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import dlt
import pyarrow as pa
import pytest
from dlt.pipeline.exceptions import PipelineStepFailed

import laketx as api
from laketx.dlt import laketx
from laketx.dlt.client import LakeClient, close_lakes
from laketx.lake import Lake
from laketx.table import Table
from tests.arrow.dlt_pipelines import Both, Load, comparable, environment, orphans, pipeline, random_loads, resource
from tests.house.tree import ROOT

KINDS = ("append", "delete-insert", "upsert", "insert-only", "scd2")
QUICK = ("delete-insert", "scd2")
ORDER = {"id": 1, "items": [{"n": 1}, {"n": 2}]}
BY_ID: dict[str, Any] = {"primary_key": "id"}


class Place:
    """A dataset of its own in a lake that the tests share."""

    numbers: ClassVar[Iterator[int]] = itertools.count()

    def __init__(self, lake: Lake, folder: Path) -> None:
        self.lake = lake
        self.folder = folder
        self.dataset = f"shop{next(self.numbers)}"
        self.pipeline = self.another("ours")

    def another(self, name: str) -> dlt.Pipeline:
        return pipeline(self.folder, laketx(self.lake.warehouse), name, self.dataset)

    def run(self, load: Load, **how: Any) -> None:
        self.pipeline.run(resource(load), **how)

    def table(self, name: str) -> Table:
        return self.lake.table(f"{self.dataset}.{name}")

    def values(self, name: str, column: str) -> list[Any]:
        return sorted(row[column] for row in self.table(name).to_arrow(columns=[column]).to_pylist())


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with api.connect(tmp_path_factory.mktemp("lake")) as lake:
        yield lake
    close_lakes()


@pytest.fixture(autouse=True)
def dlt_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(monkeypatch, tmp_path)


@pytest.fixture
def place(lake: Lake, tmp_path: Path) -> Place:
    return Place(lake, tmp_path)


@pytest.mark.parametrize(
    ("kind", "seed", "count"),
    [
        (kind, seed, 3)
        if seed == 0 and kind in ("delete-insert", "scd2")
        else pytest.param(kind, seed, 6, marks=pytest.mark.long)
        for kind in KINDS
        for seed in range(12)
    ],
)
def test_random_loads_give_the_rows_that_dlt_gives_in_duckdb(place: Place, kind: str, seed: int, count: int) -> None:
    both = Both(place.lake, place.dataset, place.folder)
    for number, load in enumerate(random_loads(seed, kind, count)):
        both.run(load)
        assert comparable(both.rows_of_lake()) == comparable(both.rows_of_peer()), (number, load)
        assert not orphans(both.rows_of_lake()), (number, load)


def test_a_table_and_its_nested_tables_change_in_one_transaction(place: Place) -> None:
    place.run(Load([ORDER], "merge", BY_ID))
    place.run(Load([{"id": 1, "items": [{"n": 3}]}], "merge", BY_ID))
    newest = [place.table(name).history(1)[0] for name in ("orders", "orders__items")]
    assert newest[0].txn_id == newest[1].txn_id
    assert place.values("orders__items", "n") == [3]


def test_a_row_of_a_slowly_changing_dimension_that_comes_back_is_active_again(place: Place) -> None:
    for rows in ([{"id": 1}, {"id": 2}], [{"id": 2}], [{"id": 1}, {"id": 2}]):
        place.run(Load(rows, {"disposition": "merge", "strategy": "scd2"}))
    rows = place.table("orders").to_arrow(columns=["id", "_dlt_valid_to"]).to_pylist()
    assert sorted((row["id"], row["_dlt_valid_to"] is None) for row in rows) == [(1, False), (1, True), (2, True)]


def test_what_is_committed_again_is_there_once(place: Place) -> None:
    place.pipeline.extract(resource(Load([ORDER], "append")))
    place.pipeline.normalize()
    (load_id,) = place.pipeline.list_normalized_load_packages()
    new_jobs = Path(place.pipeline.working_dir) / "load" / "normalized" / load_id / "new_jobs"
    with place.pipeline.destination_client() as client:
        assert isinstance(client, LakeClient)
        client.initialize_storage()
        client.update_stored_schema()
        files = sorted(str(one) for one in new_jobs.glob("orders*"))
        client.commit_files(load_id, "orders", files)
        client.commit_files(load_id, "orders", files)
    place.pipeline.load()
    assert place.table("orders").count() == 1
    assert place.values("orders__items", "n") == [1, 2]
    assert place.table("_dlt_committed").count() == 0
    with place.pipeline.destination_client() as client:
        client.complete_load(load_id)
    assert place.values("_dlt_loads", "load_id") == [load_id]


@pytest.mark.long
@pytest.mark.parametrize("kills", [1, 40])
def test_a_pipeline_that_is_killed_loads_each_row_once(tmp_path: Path, kills: int) -> None:
    rng = random.Random(kills)
    program = [sys.executable, "-m", "tests.arrow.dlt_follower", str(tmp_path)]
    for _ in range(kills):
        child = subprocess.Popen([*program, "1000"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(rng.uniform(0.1, 2.5))
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
    subprocess.run([*program, "2"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    with api.connect(tmp_path / "lake") as lake:
        numbers = sorted(row["n"] for row in lake.table("shop.numbers").to_arrow().to_pylist())
        parts = sorted(row["part"] for row in lake.table("shop.numbers__parts").to_arrow().to_pylist())
    assert numbers == list(range(len(numbers)))
    assert parts == numbers


def test_pipelines_that_load_one_table_at_a_time_lose_nothing(place: Place) -> None:
    place.run(Load([{"id": 100, "items": [{"n": 100}]}], "append"))
    failed: list[BaseException] = []

    def load(one: dlt.Pipeline, number: int) -> None:
        try:
            one.run(resource(Load([{"id": number, "items": [{"n": number}]}], "append")))
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failed.append(error)

    pipelines = [place.another(f"p{number}") for number in range(3)]
    threads = [threading.Thread(target=load, args=(one, number)) for number, one in enumerate(pipelines)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert place.values("orders", "id") == place.values("orders__items", "n") == [0, 1, 2, 100]


def test_each_kind_of_value_arrives(place: Place) -> None:
    row = {
        "id": 1,
        "at": datetime(2026, 11, 1, 8, tzinfo=UTC),
        "day": date(2026, 11, 1),
        "clock": time(8, 30, 1),
        "price": Decimal("1.50"),
        "raw": b"\x00\xff",
        "is_new": True,
        "ratio": 0.5,
        "words": "it's",
        "more": {"a": {"b": [1, 2]}},
    }
    place.run(Load([row], "append", {"columns": {"more": {"data_type": "json"}}}))
    (found,) = place.table("orders").to_arrow().to_pylist()
    visible = {name: value for name, value in found.items() if not name.startswith("_dlt")}
    assert visible == {**row, "clock": "08:30:01.000000", "more": '{"a":{"b":[1,2]}}'}


def test_arrow_tables_are_loaded_as_they_are(place: Place) -> None:
    given = pa.table({"id": pa.array([1, 2], pa.int32()), "tags": pa.array([["a"], None], pa.list_(pa.string()))})
    for rows in (given, given.slice(1)):
        place.pipeline.run(dlt.resource(rows, name="orders", write_disposition="merge", primary_key="id"))
    orders = place.table("orders")
    assert orders.to_arrow(columns=["id", "tags"]).sort_by("id").to_pylist() == given.to_pylist()
    assert list(orders.meta.primary_key) == ["id"]


def test_a_table_with_a_key_that_is_replaced_keeps_one_row_of_each_key(place: Place) -> None:
    place.run(Load([ORDER], "merge", BY_ID))
    place.run(Load([{"id": 1, "items": [{"n": 7}]}, {"id": 1, "items": [{"n": 8}]}], "replace", BY_ID))
    assert place.values("orders", "id") == [1]
    assert place.values("orders__items", "n") == [8]


def test_an_append_to_a_table_with_a_key_is_refused_and_leaves_nothing(place: Place) -> None:
    place.run(Load([ORDER], "merge", BY_ID))
    with pytest.raises(PipelineStepFailed, match="has a primary key"):
        place.run(Load([{"id": 1, "items": [{"n": 9}]}], "append"))
    assert place.values("orders", "id") == [1]
    assert place.values("orders__items", "n") == [1, 2]


def test_several_rows_of_a_key_in_a_table_that_has_it_are_refused(place: Place) -> None:
    place.run(Load([ORDER], "merge", BY_ID))
    with pytest.raises(PipelineStepFailed, match="drop the table"):
        place.run(Load([{"id": 1, "a": "b"}], {"disposition": "merge", "strategy": "scd2"}))
    assert place.values("orders", "id") == [1]


@pytest.mark.parametrize(
    "disposition",
    [
        {"disposition": "merge", "strategy": "delete-insert", "source_filter": "id > 1"},
        {"disposition": "merge", "strategy": "upsert", "skip_unchanged_rows": True},
    ],
)
def test_options_of_a_merge_that_are_not_followed_are_refused(place: Place, disposition: Any) -> None:
    with pytest.raises(PipelineStepFailed, match="does not support"):
        place.run(Load([ORDER], disposition, BY_ID))


def test_a_value_that_does_not_fit_is_refused_and_leaves_nothing(place: Place) -> None:
    columns: dict[str, Any] = {"columns": {"n": {"data_type": "bigint", "precision": 16}}}
    place.pipeline.run(dlt.resource(pa.table({"n": pa.array([1], pa.int16())}), name="small", **columns))
    with pytest.raises(PipelineStepFailed, match="70000"):
        place.pipeline.run(dlt.resource(pa.table({"n": pa.array([2, 70_000], pa.int64())}), name="small", **columns))
    assert place.values("small", "n") == [1]


def test_a_new_working_folder_finds_the_state_in_the_lake(place: Place) -> None:
    for folder in ("first", "second"):
        events = dlt.resource([{"id": n} for n in range(1, 4)], name="events", write_disposition="append")
        events.apply_hints(incremental=dlt.sources.incremental("id"))
        pipeline(place.folder / folder, laketx(place.lake.warehouse), "state", place.dataset).run(events)
    assert place.values("events", "id") == [1, 2, 3]


@pytest.mark.parametrize("refresh", ["drop_sources", "drop_data"])
def test_a_refresh_drops_or_empties_the_tables_of_the_source(place: Place, refresh: Any) -> None:
    place.run(Load([{"id": 1, "old": 1}], "append"))
    place.run(Load([{"id": 2}], "append"), refresh=refresh)
    assert place.values("orders", "id") == [2]
    assert ("old" in [one.name for one in place.table("orders").meta.columns]) == (refresh == "drop_data")


def test_a_lake_that_is_not_named_is_asked_for(place: Place) -> None:
    with pytest.raises(PipelineStepFailed, match="where"):
        pipeline(place.folder, laketx(), "nowhere").run([{"id": 1}], table_name="orders")


def test_settings_come_from_the_environment_too(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESTINATION__LAKETX__WHERE", place.lake.warehouse)
    monkeypatch.setenv("DESTINATION__LAKETX__USER", "ana")
    pipeline(place.folder, laketx(), "named", place.dataset).run([{"id": 1}], table_name="orders")
    assert place.table("orders").history(1)[0].user == "ana"
