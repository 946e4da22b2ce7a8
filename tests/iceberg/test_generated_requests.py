"""Requests that schemathesis makes of the specification's OpenAPI file, as it has them and otherwise.

Each gets an answer that the specification has. None answers that a commit may have taken place: none that is made so
reaches one. Requests with bodies that the specification doesn't have are refused.
"""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from laketx import Lake
from metaservice.client import MetaServiceError
from protos.laketx.v1 import catalog_pb2
from tests.iceberg.servers import ANSWER_S, Server
from tests.iceberg.specification import DOCUMENT, check, document, validator
from worker.iceberg.rest.app import ENDPOINTS

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")

EXAMPLES: Final = 40  # of each operation and mode
SEED: Final = 31
METHODS: Final = ("get", "head", "post", "delete")
NAMES: Final = {"prefix": ["v2", "v3"], "namespace": ["shop", "nowhere"], "table": ["t", "none"], "view": ["v", "none"]}
OPERATIONS: Final = [
    (method.upper(), path)
    for path, operations in document()["paths"].items()
    for method in METHODS
    if method in operations and f"{method.upper()} {path}" in {"GET /v1/config", *ENDPOINTS}
]


def narrowed() -> dict[str, Any]:
    """The specification with names that are there, or are not: others would be 404 before anything is read."""
    found: dict[str, Any] = copy.deepcopy(dict(document()))
    for name, values in NAMES.items():
        found["components"]["parameters"][name]["schema"] = {"type": "string", "enum": values}
    return found


@pytest.fixture(scope="module")
def described() -> Any:
    return schemathesis.openapi.from_dict(narrowed())


@pytest.fixture(autouse=True)
def shown(lake: Lake) -> None:
    """A table with rows, and a view, whatever the requests before did to them."""
    for name in ("shop.t", "shop.v"):
        for drop in (lake.client.drop_view, lake.drop_table):
            with suppress(MetaServiceError):
                drop(name)
    lake.create_table("shop.t", "id bigint, note string").append([{"id": 1, "note": "n1"}])
    column = catalog_pb2.ViewColumn(name="c", type="INT")
    lake.client.put_view(catalog_pb2.View(name="shop.v", text="SELECT 1 AS c", columns=[column], namespace=["shop"]))


@pytest.mark.long
@pytest.mark.parametrize("mode", ["POSITIVE", "NEGATIVE"])
@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=lambda one: one)
def test_an_answer_is_one_of_the_specification(
    server: Server, described: Any, method: str, path: str, mode: str
) -> None:
    operation = described[path][method]
    cases = operation.as_strategy(generation_mode=schemathesis.GenerationMode[mode])

    @seed(SEED)
    @settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(cases)
    def run(case: Any) -> None:
        answer = case.call(base_url=server.url, timeout=ANSWER_S)
        said = f"{case.as_curl_command()}\n{answer.status_code} {answer.text[:500]}"
        assert answer.status_code < 500, said
        where = answer.request.path_url.partition("?")[0]
        check(method, where, answer.status_code, answer.content)
        if not is_specified(path, method, case.body):
            assert answer.status_code >= 400, said

    run()


def is_specified(path: str, method: str, body: Any) -> bool:
    """Whether the specification has such a body; what is null may as well be left out, as clients do."""
    asked = document()["paths"][path][method.lower()].get("requestBody")
    content = (asked or {}).get("content", {}).get("application/json")
    if content is None or not isinstance(body, dict | list | str | int | float | bool | None):
        return True
    schema = json.dumps(content["schema"]).replace('"$ref": "#/', f'"$ref": "{DOCUMENT}#/')
    if path.endswith("/metrics") and isinstance(body, dict):
        body = {**body, "filter": True}  # which nobody reads
    return bool(validator(schema).is_valid(without_null(body)))


def without_null(value: Any) -> Any:
    match value:
        case dict():
            return {name: without_null(one) for name, one in value.items() if one is not None}
        case list():
            return [without_null(one) for one in value]
        case _:
            return value
