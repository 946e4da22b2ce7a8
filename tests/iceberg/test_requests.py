"""Requests that are not as the specification has them, and names of what isn't there, get an answer that says so."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import httpx
import pytest
from jsonschema import Draft202012Validator

from laketx import Lake
from tests.iceberg.servers import ANSWER_S, Server
from tests.iceberg.specification import DOCUMENT, validator
from tests.iceberg.writers import error_of
from worker.base.errors import InputError
from worker.iceberg.rest import shapes
from worker.iceberg.rest.shapes import Shape, check_shape

FIELD: Final = {"id": 1, "name": "id", "type": "long", "required": False}
NESTED: Final = {
    "id": 2,
    "name": "s",
    "required": False,
    "type": {
        "type": "struct",
        "fields": [
            {
                "id": 3,
                "name": "m",
                "required": False,
                "type": {
                    "type": "map",
                    "key-id": 4,
                    "key": "string",
                    "value-id": 5,
                    "value": {"type": "list", "element-id": 6, "element": "long", "element-required": False},
                    "value-required": False,
                },
            }
        ],
    },
}
SCHEMA: Final = {"type": "struct", "schema-id": 0, "fields": [FIELD, NESTED]}
SPEC: Final = {"spec-id": 0, "fields": [{"source-id": 1, "field-id": 1000, "transform": "identity", "name": "id"}]}
ORDER: Final = {
    "order-id": 1,
    "fields": [{"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}],
}
SNAPSHOT: Final = {
    "snapshot-id": 1,
    "timestamp-ms": 1,
    "manifest-list": "file:///a",
    "summary": {"operation": "append", "added-data-files": "1"},
}
VERSION: Final = {
    "version-id": 1,
    "timestamp-ms": 1,
    "schema-id": 0,
    "summary": {},
    "representations": [{"type": "sql", "sql": "SELECT 1", "dialect": "spark"}],
    "default-namespace": ["shop"],
}
IDENTIFIER: Final = {"namespace": ["shop"], "name": "t"}
REQUIREMENTS: Final = [
    {"type": "assert-create"},
    {"type": "assert-table-uuid", "uuid": "0192d3b0-0000-7000-8000-000000000000"},
    {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1},
    {"type": "assert-current-schema-id", "current-schema-id": 0},
]
UPDATES: Final = [
    {"action": "assign-uuid", "uuid": "0192d3b0-0000-7000-8000-000000000000"},
    {"action": "upgrade-format-version", "format-version": 2},
    {"action": "add-schema", "schema": SCHEMA},
    {"action": "set-current-schema", "schema-id": -1},
    {"action": "add-spec", "spec": SPEC},
    {"action": "set-default-spec", "spec-id": -1},
    {"action": "add-sort-order", "sort-order": ORDER},
    {"action": "set-default-sort-order", "sort-order-id": -1},
    {"action": "add-snapshot", "snapshot": SNAPSHOT},
    {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 1},
    {"action": "set-properties", "updates": {"a": "1"}},
    {"action": "remove-properties", "removals": ["a"]},
]
COMMIT: Final = {"identifier": IDENTIFIER, "requirements": REQUIREMENTS, "updates": UPDATES}
REQUESTS: Final[Mapping[str, tuple[Shape, Any]]] = {  # by the schema in the specification: a whole request
    "CreateNamespaceRequest": (shapes.CREATE_NAMESPACE, {"namespace": ["shop"], "properties": {"a": "1"}}),
    "UpdateNamespacePropertiesRequest": (shapes.NAMESPACE_PROPERTIES, {"removals": ["a"], "updates": {"b": "1"}}),
    "CreateTableRequest": (
        shapes.CREATE_TABLE,
        {
            "name": "t",
            "schema": SCHEMA,
            "partition-spec": SPEC,
            "write-order": ORDER,
            "stage-create": True,
            "properties": {"a": "1"},
        },
    ),
    "RegisterTableRequest": (
        shapes.REGISTER_TABLE,
        {"name": "t", "metadata-location": "file:///a", "overwrite": False},
    ),
    "CommitTableRequest": (shapes.COMMIT_TABLE, COMMIT),
    "CommitTransactionRequest": (shapes.COMMIT_TRANSACTION, {"table-changes": [COMMIT]}),
    "RenameTableRequest": (shapes.RENAMING, {"source": IDENTIFIER, "destination": IDENTIFIER}),
    "CreateViewRequest": (
        shapes.CREATE_VIEW,
        {"name": "v", "schema": SCHEMA, "view-version": VERSION, "properties": {"a": "1"}},
    ),
    "CommitViewRequest": (
        shapes.COMMIT_VIEW,
        {
            "identifier": IDENTIFIER,
            "requirements": [{"type": "assert-view-uuid", "uuid": "0192d3b0-0000-7000-8000-000000000000"}],
            "updates": [{"action": "add-view-version", "view-version": VERSION}],
        },
    ),
    "ReportMetricsRequest": (
        shapes.METRICS,
        {
            "report-type": "scan-report",
            "table-name": "shop.t",
            "snapshot-id": 1,
            "filter": True,
            "schema-id": 0,
            "projected-field-ids": [1],
            "projected-field-names": ["id"],
            "metrics": {
                "result-data-files": {"unit": "count", "value": 1},
                "total-planning-duration": {"time-unit": "nanoseconds", "count": 1, "total-duration": 7},
            },
        },
    ),
    "FetchScanTasksRequest": (shapes.TASK, {"plan-task": "t"}),
    "PlanTableScanRequest": (
        shapes.PLAN,
        {"snapshot-id": 1, "select": ["id"], "case-sensitive": True, "use-snapshot-schema": False},
    ),
}
LEFT_TO_OTHERS: Final = frozenset(  # who reads them says more
    {"action", "type", "uuid", "manifest-list", "operation", "filter"}
)
VALUES: Final[tuple[Any, ...]] = (None, 7, "x", True, [], {}, [["a", "b"]], 1.5, 1 << 70)


def parts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values in a request, itself included."""
    yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for at, one in pairs:
        yield from parts(one, (*path, at))


def changed(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    found = copy.deepcopy(body)
    place = found
    for at in path[:-1]:
        place = place[at]
    place[path[-1]] = value
    return found


def is_taken(shape: Shape, body: Any) -> bool:
    try:
        check_shape(body, shape)
    except InputError:
        return False
    return True


def specified(name: str) -> Draft202012Validator:
    return validator(json.dumps({"$ref": f"{DOCUMENT}#/components/schemas/{name}"}))


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_shapes_are_those_of_the_specification(name: str) -> None:
    """Each value of a whole request is replaced by others; what the specification refuses, the catalog does."""
    shape, whole = REQUESTS[name]
    theirs = specified(name)
    assert is_taken(shape, whole)
    assert theirs.is_valid(whole)
    for path in parts(whole):
        if path and path[-1] in LEFT_TO_OTHERS:
            continue
        for value in VALUES:
            body = changed(whole, path, value)
            if value is None and path:
                continue  # clients send null for what they leave out
            if is_taken(shape, body):
                assert theirs.is_valid(body), (path, value)
            elif theirs.is_valid(body):  # its file says of no requirement what it has besides its type
                assert value == 1 << 70 or "requirements" in path, (path, value)


@pytest.mark.long
def test_what_is_required_has_to_be_there() -> None:
    for name, (shape, whole) in REQUESTS.items():
        theirs = specified(name)
        for path in parts(whole):
            if not path or not isinstance(path[-1], str) or path[-1] in LEFT_TO_OTHERS:
                continue
            body = copy.deepcopy(whole)
            place = body
            for at in path[:-1]:
                place = place[at]
            del place[path[-1]]
            is_ours = path == ("properties",) or {"requirements", "identifier"} & {*path}  # not as its file
            assert is_taken(shape, body) == theirs.is_valid(body) or is_ours, (name, path)


def test_a_shape_says_where_it_is_not_met() -> None:
    body = changed(COMMIT, ("updates", 2, "schema", "fields", 0, "id"), "one")
    with pytest.raises(InputError) as error:
        check_shape(body, shapes.COMMIT_TABLE)
    assert str(error.value).startswith(
        "ICEBERG_REQUEST: updates[2].schema.fields[0].id is 'one'; the specification has"
    )


# -- over HTTP ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def asked(lake: Lake) -> None:
    lake.create_table("shop.asked", "id bigint")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/v3/namespaces", {}),
        ("/v1/v3/namespaces", {"namespace": "shop"}),
        ("/v1/v3/namespaces", {"namespace": ["b"], "properties": [["a", "b"]]}),
        ("/v1/v3/namespaces/shop/tables", {}),
        ("/v1/v3/namespaces/shop/tables", {"name": "t", "schema": "id bigint"}),
        ("/v1/v3/namespaces/shop/tables", {"name": "t", "schema": {"type": "struct", "fields": ["id"]}}),
        ("/v1/v3/namespaces/shop/tables/asked", {}),
        ("/v1/v3/namespaces/shop/tables/asked", {"requirements": "none", "updates": []}),
        ("/v1/v3/namespaces/shop/tables/asked", {"requirements": ["assert-create"], "updates": []}),
        (
            "/v1/v3/namespaces/shop/tables/asked",
            {"requirements": [], "updates": [{"action": "add-snapshot", "snapshot": [["snapshot-id", 1]]}]},
        ),
        (
            "/v1/v3/namespaces/shop/tables/asked",
            {
                "requirements": [],
                "updates": [
                    {
                        "action": "add-snapshot",
                        "snapshot": {"snapshot-id": 1, "timestamp-ms": 1, "manifests": ["a"], "summary": {}},
                    }
                ],
            },
        ),
        (
            "/v1/v3/namespaces/shop/tables/asked",
            {"requirements": [], "updates": [{"action": "upgrade-format-version", "format-version": 1}]},
        ),
        ("/v1/v3/namespaces/shop/tables/asked/plan", {"select": "id"}),
        ("/v1/v3/namespaces/shop/tables/asked/tasks", {}),
        ("/v1/v3/namespaces/shop/tables/asked/metrics", {}),
        ("/v1/v3/namespaces/shop/views", {"name": "v", "schema": {}, "view-version": {}, "properties": {}}),
        ("/v1/v3/tables/rename", {"source": "a", "destination": "b"}),
    ],
)
def test_a_malformed_request_is_400(lake: Lake, server: Server, path: str, body: object) -> None:
    for sent in (json.dumps(body).encode(), b"", b"[]", b"\xff", json.dumps([body]).encode()):
        status, kind, said = error_of(server.ask("POST", path, content=sent))
        assert (status, kind) == (400, "BadRequestException"), said


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v1/v3/namespaces/shop%1Fasked/tables/snapshots", "NoSuchTableException"),
        ("/v1/v3/namespaces/nowhere/tables/snapshots", "NoSuchTableException"),
        ("/v1/v3/namespaces/shop/tables/not-there", "NoSuchTableException"),
        ("/v1/v3/namespaces/shop/tables/a.b", "NoSuchTableException"),
        ("/v1/v3/namespaces/default/tables/shop.asked", "NoSuchTableException"),
        ("/v1/v3/namespaces/not-there/tables/t", "NoSuchTableException"),
        ("/v1/v3/namespaces/shop%1Fasked/views/top", "NoSuchViewException"),
        ("/v1/v3/namespaces/shop/views/not-there", "NoSuchViewException"),
        ("/v1/v3/namespaces/not-there", "NoSuchNamespaceException"),
        ("/v1/v3/namespaces/not-there/tables", "NoSuchNamespaceException"),
        ("/v1/v3/namespaces/shop%1Fasked/tables", "NoSuchNamespaceException"),
        ("/v1/v3/functions", "NotFoundException"),
    ],
)
def test_a_name_of_nothing_is_404(lake: Lake, server: Server, path: str, kind: str) -> None:
    for method in ("GET", "HEAD"):
        answer = server.ask(method, path)
        assert answer.status_code == 404 or (method == "HEAD" and answer.status_code == 406)
        if method == "GET":
            assert error_of(answer)[:2] == (404, kind)


def test_an_endpoint_that_is_not_there_says_so(server: Server) -> None:
    for method, path, status in (
        ("PATCH", "/v1/v3/namespaces/shop/tables/t", 406),
        ("POST", "/v1/v3/namespaces/shop/functions", 404),
    ):
        found, _, said = error_of(server.ask(method, path, content=b"{}"))
        assert (found, said) == (status, f"the catalog has no endpoint {method} {path}")


ROUTES: Final = {
    "CreateNamespaceRequest": "/v1/v3/namespaces",
    "CreateTableRequest": "/v1/v3/namespaces/shop/tables",
    "CommitTableRequest": "/v1/v3/namespaces/shop/tables/asked",
    "CommitTransactionRequest": "/v1/v3/transactions/commit",
    "RenameTableRequest": "/v1/v3/tables/rename",
    "CreateViewRequest": "/v1/v3/namespaces/shop/views",
    "CommitViewRequest": "/v1/v3/namespaces/shop/views/seen",
    "FetchScanTasksRequest": "/v1/v3/namespaces/shop/tables/asked/tasks",
    "PlanTableScanRequest": "/v1/v3/namespaces/shop/tables/asked/plan",
}


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(ROUTES))
def test_no_changed_request_ends_in_an_error_of_the_server(server: Server, name: str) -> None:
    """Each value is replaced by others, and left out. A commit whose outcome is unknown is one that was made."""
    _, whole = REQUESTS[name]
    server.post("/v1/v3/namespaces/shop/views", changed(REQUESTS["CreateViewRequest"][1], ("name",), "seen"))
    with httpx.Client(base_url=server.url, timeout=ANSWER_S) as client:
        for path in parts(whole):
            for value in (*VALUES, "\0", -1, 1 << 62, "x" * 10_000):
                answer = client.post(ROUTES[name], json=changed(whole, path, value))
                assert answer.status_code < 500, (path, value, answer.text)


def test_a_view_is_made_as_icebergs_java_asks_for_it() -> None:
    """It leaves out properties, which the specification requires."""
    _, whole = REQUESTS["CreateViewRequest"]
    check_shape({name: value for name, value in whole.items() if name != "properties"}, shapes.CREATE_VIEW)
