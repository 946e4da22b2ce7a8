"""Roles by an external policy: what it says holds, what it doesn't say doesn't, and without it nothing is allowed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from protos.laketx.v1 import access_pb2
from tests.conformance.play import new_uuid7
from tests.integration.callers import Guarded, append, create, guarded


class PolicyServer(ThreadingHTTPServer):
    """Speaks the Data API of Open Policy Agent; its rules are a dict."""

    def __init__(self) -> None:
        self.rules: dict[tuple[str, str], object] = {}  # by principal or group, and table, namespace or nothing
        self.asked: list[dict[str, Any]] = []
        super().__init__(("127.0.0.1", 0), _Answers)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1/data/laketx/role"

    def answer(self, asked: dict[str, Any]) -> object:
        self.asked.append(asked)
        place = asked["table"] or asked["namespace"]
        names = (asked["principal"], *asked["groups"])
        return next((self.rules[name, place] for name in names if (name, place) in self.rules), None)


class _Answers(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, PolicyServer)
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))["input"]
        result = self.server.answer(asked)
        body = json.dumps({} if result is None else {"result": result}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def policy() -> Iterator[PolicyServer]:
    server = PolicyServer()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def lake(policy: PolicyServer, tmp_path: Path) -> Iterator[Guarded]:
    with guarded(tmp_path / "data", "--policy-url", policy.url, "--policy-keep-s", "0") as made:
        made.owner.call("CatalogService/CreateNamespace", name="shop", request_id=new_uuid7())
        yield made


def test_the_policy_decides(lake: Guarded, policy: PolicyServer) -> None:
    table_id = create(lake.owner, "shop.orders")
    append(lake.owner, table_id)
    ana, bo = lake.named("ana"), lake.named("bo", "analysts")
    asked = {"table_id": table_id}
    assert ana.outcome("ReadService/ListVersions", **asked) == "TABLE_UNKNOWN"
    policy.rules["ana", "shop.orders"] = "writer"
    policy.rules["analysts", "shop.orders"] = "reader"
    assert ana.outcome("ReadService/ListVersions", **asked) == "ok"
    assert bo.outcome("ReadService/ListVersions", **asked) == "ok"
    assert bo.outcome("CatalogService/DropTable", **asked) == "ROLE_MISSING"
    assert [one.name for one in bo.call("CatalogService/ListTables").tables] == ["shop.orders"]
    assert ana.call("AccessService/Can", role=access_pb2.ROLE_WRITER, place=asked).allowed
    assert not ana.call("AccessService/Can", role=access_pb2.ROLE_ADMIN, place=asked).allowed
    assert {"principal": "bo", "groups": ["analysts"], "namespace": "shop", "table": "shop.orders"} in policy.asked


def test_grants_say_nothing_then(lake: Guarded) -> None:
    place = access_pb2.Place(namespace="shop")
    grant = access_pb2.Grant(place=place, grantee="user:ana", role=access_pb2.ROLE_ADMIN)
    assert lake.owner.outcome("AccessService/Grant", grant=grant) == "POLICY_DECIDES"


@pytest.mark.parametrize("answer", ["king", 4, ["reader"], {"role": "reader"}])
def test_an_answer_that_is_no_role_allows_nothing(lake: Guarded, policy: PolicyServer, answer: object) -> None:
    table_id = create(lake.owner, "shop.orders")
    policy.rules["ana", "shop.orders"] = answer
    assert lake.named("ana").outcome("ReadService/ListVersions", table_id=table_id) == "POLICY_UNREACHABLE"


def test_without_the_policy_nothing_is_allowed(lake: Guarded, policy: PolicyServer) -> None:
    table_id = create(lake.owner, "shop.orders")
    policy.rules["ana", "shop.orders"] = "reader"
    ana = lake.named("ana")
    policy.socket.close()
    policy.shutdown()
    assert ana.outcome("ReadService/ListVersions", table_id=table_id) == "POLICY_UNREACHABLE"
    assert lake.owner.outcome("ReadService/ListVersions", table_id=table_id) == "ok"
