"""`laketx serve --console`: the console in a process beside the service, which starts and ends it."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from metaservice.client import MetaClient
from metaservice.server.console_process import console_command, own_address
from metaservice.server.settings import Settings, read_settings
from tests.console.visitor import FORM_TOKEN
from tests.integration.bucket import BUCKET, bucket
from tests.integration.callers import Caller
from tests.integration.certificates import Authority
from tests.integration.service import free_address

WAIT_S = 60.0
LOCAL = ("--data", "d")


@dataclass(frozen=True)
class Pair:
    """A service with its console."""

    process: subprocess.Popen[str]
    address: str
    console: str
    log: Path

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = self.log.read_text(encoding="utf-8").splitlines()
        events = [json.loads(line[line.index("{") :]) for line in lines if "{" in line]
        return [event for event in events if event["event"] == name]

    def next_console(self) -> str:
        """The address that is printed next."""
        assert self.process.stdout is not None
        return next(line.split()[-1] for line in self.process.stdout if "ready at" in line)


@contextmanager
def beside(folder: Path, *options: str, environment: Mapping[str, str] | None = None) -> Iterator[Pair]:
    log = folder / "log"
    words = ["serve", "--data", str(folder / "data"), "--listen", "127.0.0.1:0", "--console", "127.0.0.1:0", *options]
    command = [sys.executable, "-m", "metaservice.cli", *words]
    known = {**os.environ, **(environment or {})}
    with (
        log.open("w", encoding="utf-8") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=known) as process,
    ):
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[-1]
            pair = Pair(process, address, "", log)
            yield Pair(process, address, pair.next_console(), log)
        finally:
            process.terminate()
            process.wait(WAIT_S)


def wait_for(condition: Callable[[], object]) -> None:
    until_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until_s, "it takes too long"
        time.sleep(0.05)


def is_gone(pid: int) -> bool:
    """Whether a process ended; its parent may not have looked yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_console_that_ends_is_started_again_and_ends_with_the_service(tmp_path: Path) -> None:
    with beside(tmp_path) as pair:
        (started,) = pair.events("console_started")
        os.kill(started["pid"], signal.SIGKILL)
        wait_for(lambda: pair.events("console_ended"))
        (ended,) = pair.events("console_ended")
        assert (ended["exit_code"], ended["again_s"]) == (-signal.SIGKILL, 1.0)
        with MetaClient(pair.address) as client:
            assert list(client.list_tables()) == [], "the service goes on"
        console = pair.next_console()
        with httpx.Client() as visitor:
            assert visitor.get(console).status_code == 200
            assert "Health" in visitor.get(console.partition("/open")[0]).text
        _, again = pair.events("console_started")
        pair.process.terminate()
        assert pair.process.wait(WAIT_S) == 0
        wait_for(lambda: is_gone(again["pid"]))
        assert len(pair.events("console_ended")) == 1


def test_the_console_ends_with_a_service_that_is_killed(tmp_path: Path) -> None:
    with beside(tmp_path) as pair:
        (started,) = pair.events("console_started")
        pair.process.kill()
        assert pair.process.wait(WAIT_S) == -signal.SIGKILL
        wait_for(lambda: is_gone(started["pid"]))


def test_tokens_and_tls_are_those_of_the_service(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    flags = authority.issue("meta").flags
    trusted = ssl.create_default_context(cafile=str(authority.file))
    environment = {"LAKETX_CA_FILE": str(authority.file), "LAKETX_TOKEN": "is not used"}
    with beside(tmp_path, *flags, "--tokens", "true", environment=environment) as pair:
        assert pair.console.startswith("https://127.0.0.1:")
        owner = Caller(f"unix:{tmp_path}/data/owner.sock")
        token = owner.call("AccessService/CreateToken", principal="ana").secret
        owner.close()
        with httpx.Client(base_url=pair.console, verify=trusted, timeout=WAIT_S) as visitor:
            assert visitor.get("/tables").status_code == 303
            match = FORM_TOKEN.search(visitor.get("/login").text)
            assert match is not None
            visitor.post("/login", data={"token": token, "next": "/", "form_token": match[1]})
            assert "ana" in visitor.get("/tables").text


def test_a_console_that_can_not_start_is_said(tmp_path: Path) -> None:
    """Its address is in use. The service goes on."""
    log = tmp_path / "log"
    with socket.create_server(("127.0.0.1", 0)) as other, log.open("w", encoding="utf-8") as errors:
        console = f"127.0.0.1:{other.getsockname()[1]}"
        words = ["--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--console", console]
        command = [sys.executable, "-m", "metaservice", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
            assert process.stdout is not None
            address = process.stdout.readline().split()[-1]
            wait_for(lambda: "console_ended" in log.read_text(encoding="utf-8"))
            assert "CONSOLE_LISTEN" in log.read_text(encoding="utf-8")
            with MetaClient(address) as client:
                assert list(client.list_tables()) == []
            process.terminate()
            assert process.wait(WAIT_S) == 0


@pytest.mark.long
def test_the_console_of_a_standby_follows_the_leader(tmp_path: Path) -> None:
    with bucket(tmp_path) as variables:
        first, second = free_address(), free_address()
        options = ("--store", f"s3://{BUCKET}/meta", "--console-server", f"{first},{second}")
        folders = [tmp_path / "first", tmp_path / "second"]
        for folder in folders:
            folder.mkdir()
        with (
            beside(folders[0], *options, "--listen", first, environment=variables) as leader,
            beside(folders[1], *options, "--listen", second, environment=variables) as standby,
            httpx.Client(timeout=WAIT_S) as visitor,
        ):
            assert visitor.get(standby.console).status_code == 200
            home = standby.console.partition("/open")[0]
            assert "Health" in visitor.get(home).text
            assert standby.events("started") == [], "it stands by"
            leader.process.kill()
            wait_for(lambda: standby.events("started"))
            wait_for(lambda: "Health" in visitor.get(home).text)


# -- settings


def settings(*options: str, environment: Mapping[str, str] | None = None) -> Settings:
    return read_settings([*LOCAL, *options], environment or {})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--console", "8480"), "host:port"),
        (("--console-server", "a:7070"), "needs --console"),
        (("--console", "0.0.0.0:8480"), "needs TLS"),
        (("--console", "0.0.0.0:8480", "--tokens", "true"), "needs TLS"),
        (("--console", "0.0.0.0:8480", "--tls-cert", "c", "--tls-key", "k"), "a way to know who calls"),
        (("--console", "127.0.0.1:0", "--tls-cert", "c", "--tls-key", "k", "--tls-client-ca", "a"), "--tls-client-ca"),
    ],
)
def test_a_console_for_everybody_is_refused(
    options: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        settings(*options)
    assert words in capsys.readouterr().err


def test_the_console_gets_the_settings_of_the_service() -> None:
    environment = {
        "LAKETX_CONSOLE": "127.0.0.1:8480",
        "LAKETX_OIDC_ISSUER": "https://i",
        "LAKETX_OIDC_AUDIENCE": "laketx",
    }
    words = console_command(settings(environment=environment), "127.0.0.1:7070")[3:]
    assert words == [
        *("--server", "laketx://127.0.0.1:7070", "console", "--beside-service", "--listen", "127.0.0.1:8480"),
        *("--oidc-issuer", "https://i"),
    ]
    several = settings("--console", "127.0.0.1:0", "--console-server", "laketxs://a:7070,b:7070")
    assert console_command(several, "127.0.0.1:7070")[4] == "laketxs://a:7070,b:7070"


@pytest.mark.parametrize(
    ("options", "listening", "address"),
    [
        ((), "127.0.0.1:7070", "laketx://127.0.0.1:7070"),
        ((), "0.0.0.0:7070", "laketx://127.0.0.1:7070"),
        ((), "[::]:7070", "laketx://[::1]:7070"),
        ((), "unix:/run/s", "unix:/run/s"),
        (("--tls-cert", "c", "--tls-key", "k"), "meta.example:7070", "laketxs://meta.example:7070"),
        (("--store", "s3://lake/p", "--advertise", "a:7070"), "0.0.0.0:7070", "laketx://a:7070"),
    ],
)
def test_the_console_reaches_the_service_where_it_listens(
    options: tuple[str, ...], listening: str, address: str
) -> None:
    assert own_address(settings(*options), listening) == address
