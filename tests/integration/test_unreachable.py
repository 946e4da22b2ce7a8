"""A wrong address is told soon and in words; a service that was there is waited for."""

import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from laketx import connect
from metaservice.client import MetaClient, UnavailableError
from tests.integration.service import Service
from worker.base.errors import InputError

BUDGET_S = 60.0
SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # an HTTP/2 frame without any
GOAWAY = bytes([0, 0, 8, 7, 0, 0, 0, 0, 0]) + struct.pack(">II", 0, 2)  # no stream was taken; an internal error


@pytest.fixture
def nobody() -> str:
    """An address where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def test_the_first_call_to_nobody_fails_soon_and_in_words(nobody: str) -> None:
    begun_s = time.monotonic()
    with MetaClient(nobody, retry_budget_s=BUDGET_S) as client, pytest.raises(UnavailableError) as caught:
        client.ping()
    assert time.monotonic() - begun_s < BUDGET_S / 2
    assert caught.value.reason == "SERVER_UNREACHABLE"
    assert f"no service answers at {nobody}" in str(caught.value)


def test_who_answers_in_another_language_is_no_service() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with MetaClient(address, retry_budget_s=BUDGET_S) as client, pytest.raises(UnavailableError) as caught:
            list(client.list_tables())
        assert caught.value.reason == "SERVER_UNREACHABLE"


def test_a_client_that_was_answered_waits_for_a_service_that_restarts(tmp_path: Path) -> None:
    service = Service(tmp_path / "db")
    address = service.start()
    try:
        with MetaClient(f"laketx://{address}", retry_budget_s=BUDGET_S) as client:
            client.ping()
            service.kill()
            service.start()
            assert client.ping() is not None
    finally:
        service.kill()


@pytest.mark.parametrize(
    "call", [MetaClient.ping, lambda client: list(client.list_tables())], ids=["over a session", "alone"]
)
def test_a_server_that_ends_fails_the_call_at_once(call: Callable[[MetaClient], object]) -> None:
    """It goes on to hold the connection, as one does that still writes."""
    with socket.socket() as ending:
        ending.bind(("127.0.0.1", 0))
        ending.listen()
        address = f"127.0.0.1:{ending.getsockname()[1]}"
        failed = threading.Event()

        def end() -> None:
            connection, _ = ending.accept()
            with connection:
                connection.sendall(SETTINGS + GOAWAY)
                failed.wait()

        threading.Thread(target=end).start()
        try:
            client = MetaClient(address, call_timeout_s=3.0, retry_budget_s=0.0, revive=lambda: None)
            with client, pytest.raises(UnavailableError, match="GOAWAY"):
                call(client)
        finally:
            failed.set()


def test_connect_says_at_once_that_nobody_answers(nobody: str, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="no service answers"):
        connect(f"laketx://{nobody}", warehouse=str(tmp_path))


def test_connect_asks_for_the_scheme_of_an_address(
    nobody: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=f"laketx://{nobody}"):
        connect(nobody)
    assert list(tmp_path.iterdir()) == []
