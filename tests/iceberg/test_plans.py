"""Scans that the catalog plans, read by pyiceberg, and the specification's forms."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import httpx
import pytest

from laketx import Lake, Table
from metaservice.client import rename_column
from tests.arrow.tables import texts
from tests.iceberg.servers import Server, catalog_of
from tests.spark.histories import grow, grow_many
from tests.spark.reading import LabLake, LabTable
from worker.iceberg.rest import plans
from worker.iceberg.rest.plans import Plans, Reader, scan_of_token
from worker.iceberg.rest.problems import NO_TASK, RestError

EACH = pytest.mark.parametrize(  # both forms and both kinds of table; every pair of them in the long run
    ("form", "keyed"),
    [
        pytest.param(2, False, id="2-append"),
        pytest.param(3, True, id="3-keyed"),
        pytest.param(2, True, id="2-keyed", marks=pytest.mark.long),
        pytest.param(3, False, id="3-append", marks=pytest.mark.long),
    ],
)
PATH = "/v1/v3/namespaces/default/tables"
Json = dict[str, Any]


@pytest.fixture(scope="module")
def snapshots() -> int:
    return 5


@pytest.fixture(scope="module")
def visits(lake: Lake) -> Table:
    """Three commits in two partitions, then deletes of version 4."""
    table = lake.create_table(
        "visits",
        "id bigint, day date, amount double, note string",
        partition_by=["day"],
        properties={"write.inline.rows": "0"},
    )
    table.append([visit(number, 1) for number in range(10)])
    table.append([visit(number, 2) for number in range(10, 20)] + [visit(20, 1) | {"note": None, "amount": -0.0}])
    table.append([visit(21, 2) | {"amount": float("nan")}, visit(22, 2)])
    table.delete("id IN (3, 4, 12)")
    return table


def visit(number: int, day: int) -> Json:
    return {"id": number, "day": date(2026, 11, day), "amount": float(number), "note": f"n{number}"}


def planned(server: Server, form: int, table: str) -> Any:
    """The table in a catalog that plans its scans."""
    catalog = catalog_of(server, form, **{"scan-planning-mode": "server"})
    assert catalog.supports_server_side_planning()
    return catalog.load_table(f"default.{table}")


def post(server: Server, table: str, body: object, path: str = "plan") -> tuple[int, Json]:
    answer = server.post(f"{PATH}/{table}/{path}", body)
    return answer.status_code, answer.json()


# -- rows --------------------------------------------------------------------------------------------------------------


@EACH
def test_planned_scans_show_the_rows_of_each_version(lab: LabLake, server: Server, keyed: bool, form: int) -> None:
    deleted = grow(lab, f"d_{form}_{keyed}", 3, keyed=keyed, steps=6)
    evolved = grow_many(lab, f"e_{form}_{keyed}", 1, keyed=keyed, cases=3, sites=2, steps=6, alters=3)
    for table in (deleted, evolved):
        check(server, form, table)


def check(server: Server, form: int, table: LabTable) -> None:
    shown = planned(server, form, table.meta.name)
    versions = [version for version in sorted(table.at) if version >= max(table.at) - 5]
    for version in versions:
        found = shown.scan(snapshot_id=version + 1).to_arrow()
        rows = table.at[version].values()
        assert texts(found) == sorted(repr(tuple(row[name] for name in found.schema.names)) for row in rows), version
    assert shown.scan().to_arrow().num_rows == len(table.at[versions[-1]])


@pytest.mark.parametrize(
    ("condition", "ids", "files"),
    [
        ("id >= 21", [21, 22], 1),
        ("day = '2026-11-01'", [0, 1, 2, 5, 6, 7, 8, 9, 20], 2),
        ("not day = '2026-11-02'", [0, 1, 2, 5, 6, 7, 8, 9, 20], 2),
        ("day in ('2026-11-01', '2026-11-03') and id < 2", [0, 1], 1),
        ("note is null", [20], 1),
        ("note like 'n22%'", [22], 2),
        ("amount <= -0.0", [0, 20], 3),
        ("amount is nan", [21], 4),
        ("id = 12", [], 1),
        ("id > 100", [], 0),
    ],
)
def test_files_that_cannot_match_are_left_out(
    visits: Table, server: Server, condition: str, ids: list[int], files: int
) -> None:
    scan = planned(server, 3, "visits").scan(row_filter=condition, selected_fields=("id",))
    assert sorted(scan.to_arrow().column("id").to_pylist()) == ids
    assert scan.count() == len(ids)
    assert len(list(scan.plan_files())) == files


def test_inlined_rows_and_older_names_are_planned(lake: Lake, server: Server) -> None:
    table = lake.create_table("small", "id bigint, n int")
    table.append([{"id": 1, "n": 1}])
    table.append([{"id": 2, "n": 2}])
    table.view.client.alter_columns(table.table_id, rename_column("n", "count"))
    table.refresh()
    table.delete("id = 1")
    shown = planned(server, 3, "small")
    assert shown.scan(row_filter="count = 2").to_arrow().to_pylist() == [{"id": 2, "count": 2}]
    assert len(shown.scan(snapshot_id=3).to_arrow()) == 2
    older = {"snapshot-id": 3, "filter": {"type": "eq", "term": "n", "value": 1}}
    assert post(server, "small", older)[0] == 400
    assert post(server, "small", older | {"use-snapshot-schema": True})[0] == 200


# -- the specification -------------------------------------------------------------------------------------------------


def test_a_plan_has_what_the_specification_names(visits: Table, server: Server) -> None:
    condition = {"type": "eq", "term": "day", "value": "2026-11-01"}
    status, found = post(server, "visits", {"filter": condition, "stats-fields": ["id", "amount"]})
    assert (status, found["status"], "plan-tasks" in found) == (200, "completed", False)
    first, second = sorted(found["file-scan-tasks"], key=lambda one: one["data-file"]["first-row-id"])
    (deletes,) = found["delete-files"]
    assert first["delete-file-references"] == [0]
    assert "delete-file-references" not in second
    assert first["residual-filter"] == condition
    path = first["data-file"].pop("file-path")
    assert path.startswith("file:///")
    number = {one.name: one.column_id for one in visits.meta.columns}
    assert first["data-file"] == {
        "content": "data",
        "spec-id": 0,
        "file-format": "parquet",
        "partition": ["2026-11-01"],
        "file-size-in-bytes": Path(path.removeprefix("file://")).stat().st_size,
        "record-count": 10,
        "first-row-id": 1,
        "value-counts": {"keys": [number["id"], number["amount"]], "values": [10, 10]},
        "null-value-counts": {"keys": [number["id"], number["amount"]], "values": [0, 0]},
        "lower-bounds": {"keys": [number["id"], number["amount"]], "values": [0, -0.0]},
        "upper-bounds": {"keys": [number["id"]], "values": [9]},
    }
    vectors = Path(deletes.pop("file-path").removeprefix("file://"))
    assert deletes["content-offset"] + deletes["content-size-in-bytes"] <= vectors.stat().st_size
    assert {name: deletes[name] for name in ("content", "file-format", "record-count", "referenced-data-file")} == {
        "content": "position-deletes",
        "file-format": "puffin",
        "record-count": 2,
        "referenced-data-file": path,
    }


def test_a_plan_is_answered_again_and_cancelled(visits: Table, server: Server) -> None:
    _, first = post(server, "visits", {})
    path = f"{PATH}/visits/plan/{first['plan-id']}"
    assert server.get(path).json() == first
    assert server.delete(path).status_code == 204


def test_planning_is_among_the_endpoints(server: Server) -> None:
    table = "/v1/{prefix}/namespaces/{namespace}/tables/{table}"
    assert {
        f"POST {table}/plan",
        f"GET {table}/plan/{{plan-id}}",
        f"DELETE {table}/plan/{{plan-id}}",
        f"POST {table}/tasks",
    } <= {*server.get("/v1/config").json()["endpoints"]}


@pytest.mark.parametrize(
    ("body", "status", "kind", "said"),
    [
        ({"snapshot-id": 99}, 400, "BadRequestException", "its newest is 5"),
        ({"snapshot-id": 0}, 400, "BadRequestException", "no snapshot 0"),
        ({"snapshot-id": "1"}, 400, "BadRequestException", "a whole number"),
        ({"start-snapshot-id": 1, "end-snapshot-id": 2}, 406, "UnsupportedOperationException", "two snapshots"),
        ({"filter": {"type": "eq", "term": "nowhere", "value": 1}}, 400, "BadRequestException", "no column nowhere"),
        ({"filter": {"type": "eq", "term": "ID", "value": 1}}, 400, "BadRequestException", "no column ID"),
        ({"filter": 1}, 400, "BadRequestException", "no expression"),
        ({"stats-fields": ["nowhere"]}, 400, "BadRequestException", "no column nowhere"),
        ([], 400, "BadRequestException", "no JSON object"),
    ],
)
def test_requests_that_cannot_be_planned_are_refused(
    visits: Table, server: Server, body: object, status: int, kind: str, said: str
) -> None:
    found, answer = post(server, "visits", body)
    assert (found, answer["error"]["code"], answer["error"]["type"]) == (status, status, kind)
    assert said in answer["error"]["message"]


def test_null_in_a_partition_is_left_out_for_pyiceberg_alone(lake: Lake, server: Server) -> None:
    table = lake.create_table("nulls", "id bigint, day date", partition_by=["day"])
    table.append([{"id": 1, "day": None}])
    partitions = []
    for headers in ({}, {"user-agent": "PyIceberg/0.12.0"}):
        found = httpx.post(f"{server.url}{PATH}/nulls/plan", json={}, headers=headers)  # the specification has no NULL
        partitions.append(found.json()["file-scan-tasks"][0]["data-file"]["partition"])
    assert partitions == [[None], []]
    assert planned(server, 3, "nulls").scan().to_arrow().to_pylist() == [{"id": 1, "day": None}]


def test_names_in_any_case_if_asked_for(visits: Table, server: Server) -> None:
    body = {"filter": {"type": "gt-eq", "term": "ID", "value": 21}, "case-sensitive": False}
    assert len(post(server, "visits", body)[1]["file-scan-tasks"]) == 1


def test_unknown_plans_and_tasks_are_not_found(visits: Table, server: Server) -> None:
    plan_id = post(server, "visits", {})[1]["plan-id"]
    for path, kind in (
        (f"{PATH}/visits/plan/x", "NoSuchPlanIdException"),
        (f"{PATH}/nothing/plan/{plan_id}", "NoSuchTableException"),
    ):
        for answer in (server.get(path), server.delete(path)):
            assert (answer.status_code, answer.json()["error"]["type"]) == (404, kind)
    for token in ("x", "", plan_id[:-4]):
        status, found = post(server, "visits", {"plan-task": token}, "tasks")
        assert (status, found["error"]["type"]) == (404, "NoSuchPlanTaskException")
    assert post(server, "visits", {}, "tasks")[0] == 400
    assert post(server, "nothing", {})[1]["error"]["type"] == "NoSuchTableException"


# -- pages -------------------------------------------------------------------------------------------------------------


def paths_in(found: Mapping[str, Any]) -> list[str]:
    return [one["data-file"]["file-path"] for one in found["file-scan-tasks"]]


def test_pages_are_the_same_from_every_server(visits: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Plans(60, time.monotonic).plan(visits.view, Reader(3), {})
    monkeypatch.setattr(plans, "FILES_A_PAGE", 2)
    first = Plans(60, time.monotonic)
    found = first.plan(visits.view, Reader(3), {})
    others = [scan_of_token(token, visits.table_id, NO_TASK) for token in found["plan-tasks"]]
    for each in (first, Plans(60, time.monotonic)):
        pages = [found, *(each.page(visits.view, Reader(3), one) for one in others)]
        assert [paths_in(page) for page in pages] == [paths_in(whole)[:2], paths_in(whole)[2:]]
        for page in pages:
            references = [at for one in page["file-scan-tasks"] for at in one.get("delete-file-references", ())]
            assert references == list(range(len(page.get("delete-files", ()))))
    first.forget(others[0])
    assert paths_in(first.page(visits.view, Reader(3), replace(others[0], page=9))) == []
    with pytest.raises(RestError):
        scan_of_token(found["plan-tasks"][0], "another table", NO_TASK)


def test_planned_versions_are_held(lake: Lake, server: Server) -> None:
    table = lake.create_table("planned", "id bigint")
    table.append([{"id": 1}])
    post(server, "planned", {"snapshot-id": 2})
    pins = [one for one in table.view.client.list_pins() if one.table_id == table.table_id]
    assert {one.version for one in pins if one.principal.client == "laketx-iceberg"} == {1}
