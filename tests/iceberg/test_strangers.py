"""Strangers take neither the memory nor the time of the catalog: it knows who calls before it reads what they send."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import uvicorn
from starlette.requests import Request

from metaservice.client import Credentials, MetaClient, UnauthenticatedError
from tests.iceberg.servers import Server, served
from tests.integration.callers import Guarded, guarded
from worker.iceberg.rest import bodies
from worker.iceberg.rest.bodies import BODY_BYTES_MAX, Bodies, json_of
from worker.iceberg.rest.problems import RestError
from worker.web import callers
from worker.web.callers import TOKEN_CHARS_MAX, CallerRefusedError, Callers
from worker.web.connections import TimedConnection
from worker.web.serving import bind

ANSWER_S: Final = 60
COMMIT: Final = "POST /v1/v3/namespaces/shop/tables/visits HTTP/1.1"


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("guarded") / "data") as made:
        yield made


@pytest.fixture(scope="module")
def asking(company: Guarded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A catalog over a service that asks who calls."""
    words = ["--server", company.service.address, "iceberg", "serve", "--listen", "127.0.0.1:0"]
    with served(*words, "--warehouse", str(tmp_path_factory.mktemp("lake"))) as server:
        yield server


def answer_to(url: str, *head: str, body: bytes = b"") -> str:
    """The answer to a request of which nothing more is sent."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), ANSWER_S) as connection:
        connection.sendall("\r\n".join([*head, f"host: {host}", "connection: close", "", ""]).encode() + body)
        with connection.makefile("rb") as answer:
            return answer.read().decode()


# -- who calls ---------------------------------------------------------------------------------------------------------


def test_a_stranger_is_refused_before_the_body_is_read(asking: Server) -> None:
    for token in ([], ["authorization: Bearer nobody"]):
        assert answer_to(asking.url, COMMIT, "content-length: 1000000", *token).startswith("HTTP/1.1 401")


def test_a_known_caller_sends_its_body(asking: Server, company: Guarded) -> None:
    shows = f"authorization: Bearer {company.token('ana')}"
    head = ["POST /v1/v3/namespaces HTTP/1.1", shows]
    body = b'{"namespace": ["ana"]}'
    assert answer_to(asking.url, *head, f"content-length: {len(body)}", body=body).startswith("HTTP/1.1 403")
    assert answer_to(asking.url, *head, f"content-length: {BODY_BYTES_MAX + 1}").startswith("HTTP/1.1 413")


def test_a_long_token_goes_to_nobody(asking: Server) -> None:
    said = answer_to(asking.url, "GET /v1/config HTTP/1.1", "authorization: Bearer " + "x" * 60_000)
    assert said.startswith("HTTP/1.1 401")
    assert f"at most {TOKEN_CHARS_MAX} characters" in said
    said = answer_to(asking.url, "GET /v1/config HTTP/1.1", "authorization: Bearer \xe9")
    assert said.startswith("HTTP/1.1 401")


def test_strangers_push_out_nobody_who_is_known(company: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "CALLERS_MAX", 2)
    asked: list[str] = []

    def connect(token: str) -> MetaClient:
        asked.append(token)
        return MetaClient(f"laketx://{company.service.address}", credentials=Credentials(token=token))

    found = Callers(connect, "/lake", now_s=time.monotonic)
    ana = f"Bearer {company.token('ana')}"
    lake = found.lake(ana)
    for at in range(5):
        for _ in range(2):
            with pytest.raises((UnauthenticatedError, CallerRefusedError)):
                found.lake(f"Bearer stranger{at}")
    assert asked[1:] == [f"stranger{at}" for at in range(5)], "one that was refused is asked for once in a while"
    assert found.recent(ana) is lake
    found.close()


# -- bodies ------------------------------------------------------------------------------------------------------------


def request_of(parts: Callable[[], AsyncIterator[bytes]]) -> Request:
    stream = parts()

    async def receive() -> dict[str, Any]:
        try:
            return {"type": "http.request", "body": await anext(stream), "more_body": True}
        except StopAsyncIteration:
            return {"type": "http.request", "body": b"", "more_body": False}

    return Request({"type": "http", "method": "POST", "headers": []}, receive)


async def zeros(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield bytes(1 << 20)


async def hanging() -> AsyncIterator[bytes]:
    yield b"{"
    await asyncio.sleep(ANSWER_S)


async def read(held: Bodies, parts: Callable[[], AsyncIterator[bytes]]) -> int:
    async with held.read(request_of(parts)) as body:
        return len(body)


def test_a_body_is_bounded_in_size_and_time() -> None:
    assert asyncio.run(read(Bodies(), lambda: zeros(16))) == BODY_BYTES_MAX
    for parts, status in ((lambda: zeros(17), 413), (hanging, 408)):
        with pytest.raises(RestError) as error:
            asyncio.run(read(Bodies(body_s=0.05), parts))
        assert error.value.status == status


def test_all_bodies_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODIES_BYTES_MAX", 20 << 20)

    async def two() -> None:
        held = Bodies()
        async with held.read(request_of(lambda: zeros(12))):
            with pytest.raises(RestError) as error:
                await read(held, lambda: zeros(12))
            assert error.value.status == 503
        assert await read(held, lambda: zeros(12)) == 12 << 20, "what was answered takes no room"

    asyncio.run(two())


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "no JSON"),
        (b"[]", "no JSON object"),
        (b"[" * 100_000, "nested deeper"),
        (b'{"a":' * 300 + b"1" + b"}" * 300, "nested deeper"),
        (b'{"a\\"}]":[' * 300, "nested deeper"),
        (b"[[" * 150 + b'"' + b'\\"' * 4_000_000, "nested deeper"),
        (b"[],[" * 150 + b'"' + b'\\"' * 4_000_000, "no JSON"),
        (b"[" + b"0," * 1_000_001 + b"0]", "more than 1000000"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "-Infinity"),
        (b'{"a": ' + b"9" * 5_000 + b"}", "no JSON"),
        (b'{"a": "\xff"}', "no JSON"),
    ],
)
def test_json_is_bounded_before_it_is_used(body: bytes, said: str) -> None:
    gc.disable()  # a collection so deep in the stack fails in destructors
    try:
        with pytest.raises(RestError) as error:
            json_of(bytearray(body))
    finally:
        gc.enable()
    assert error.value.status == 400
    assert said in error.value.message


def test_json_within_its_bounds_is_taken() -> None:
    deep: Any = 1
    for _ in range(190):
        deep = {"a": deep}
    assert json_of(bytearray(json.dumps(deep).encode())) == deep
    wide = {"a": ["[[[", '\\"{{{'] * 1_000, "b": [[{}]] * 1_000}
    assert json_of(bytearray(json.dumps(wide).encode())) == wide


# -- connections -------------------------------------------------------------------------------------------------------


class Hasty(TimedConnection):
    head_s = 0.1
    take_s = 0.1


class Patient(TimedConnection):
    head_s = 1.0


class Few(TimedConnection):
    connections_max = 2


async def answers(scope: Any, receive: Any, send: Any) -> None:
    """As many bytes as the path says, after a second and a half; without a look at the body."""
    size = int(scope["path"][1:])
    if size < 1 << 16:
        await asyncio.sleep(1.5)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
    for at in range(0, size, 1 << 16):
        await send({"type": "http.response.body", "body": bytes(min(1 << 16, size - at)), "more_body": True})
    await send({"type": "http.response.body"})


@contextmanager
def serving(kind: type[TimedConnection]) -> Iterator[int]:
    bound = bind("127.0.0.1:0", "ICEBERG_LISTEN")
    config = uvicorn.Config(answers, http=kind, ws="none", lifespan="off", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: server.run(sockets=[bound]))
    thread.start()
    try:
        yield bound.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


def taken(connection: socket.socket) -> int:
    """How many bytes come until the connection ends."""
    count = 0
    with suppress(ConnectionResetError):
        while part := connection.recv(1 << 20):
            count += len(part)
    return count


def drip(connection: socket.socket) -> None:
    for _ in range(ANSWER_S * 50):
        connection.sendall(b"G")
        time.sleep(0.02)


def test_half_sent_requests_end() -> None:
    with serving(Hasty) as port:
        for sent in (b"", b"GET /1 HT"):
            with socket.create_connection(("127.0.0.1", port), ANSWER_S) as connection:
                connection.sendall(sent)
                assert taken(connection) == 0
        with socket.create_connection(("127.0.0.1", port), ANSWER_S) as connection:
            connection.sendall(b"POST /70000 HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nabc")
            assert taken(connection) > 70_000, "the answer comes, and then the end"
        with socket.create_connection(("127.0.0.1", port), ANSWER_S) as connection, pytest.raises(OSError):
            drip(connection)


def test_connections_beyond_the_limit_are_refused() -> None:
    with serving(Few) as port:
        held = [socket.create_connection(("127.0.0.1", port), ANSWER_S) for _ in range(2)]
        try:
            with socket.create_connection(("127.0.0.1", port), ANSWER_S) as third:
                assert third.recv(1 << 16).startswith(b"HTTP/1.1 503 ")
        finally:
            for connection in held:
                connection.close()
        deadline = time.monotonic() + ANSWER_S
        while (answer := asked(port)) == 503 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert answer == 200


def asked(port: int) -> int:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/70000", timeout=ANSWER_S).status_code
    except httpx.TransportError:  # the refusal went with the connection
        return 503


def test_answers_that_nobody_takes_end() -> None:
    with serving(Hasty) as port, socket.create_connection(("127.0.0.1", port), ANSWER_S) as connection:
        connection.sendall(b"GET /100000000 HTTP/1.1\r\nhost: a\r\n\r\n")
        time.sleep(0.5)
        assert taken(connection) < 100_000_000


def test_answers_take_the_time_that_they_need() -> None:
    with serving(Patient) as port:
        answer = httpx.get(f"http://127.0.0.1:{port}/5", timeout=ANSWER_S)
    assert answer.content == bytes(5)


def test_folders_have_one_caller(tmp_path: Path) -> None:
    """Tokens mean nothing there, and cost no connection each."""
    made: list[str] = []

    def connect(token: str) -> MetaClient:
        made.append(token)
        return MetaClient(f"unix:{tmp_path}/nothing", retry_budget_s=0)

    found = Callers(connect, str(tmp_path), now_s=time.monotonic, has_tokens=False)
    assert found.lake("Bearer a") is found.lake("Bearer b") is found.lake("")
    assert made == [""]
    found.close()
