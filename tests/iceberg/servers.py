"""A REST catalog in a process of its own, and other people's readers over it: rows as a pyarrow.Table."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import polars as pl
import pytest

from tests.iceberg.checked_answers import CheckedAnswers
from tests.iceberg.readers import duckdb_of_iceberg
from tests.iceberg.specification import check

STOP_S: Final = 30
ANSWER_S: Final = 120
DEFAULT: Final = "default"
PLAIN: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # for http://: httpx would load all authorities at each request


class Server:
    """A process that serves a lake, and where."""

    def __init__(self, process: subprocess.Popen[str] | None, url: str, notes: str) -> None:
        self.process = process
        self.url = url
        self.notes = notes
        self._checked: CheckedAnswers | None = None

    @property
    def checked_url(self) -> str:
        """The same server for clients whose answers are checked on the way; `served` looks at what was found."""
        if self._checked is None:
            self._checked = CheckedAnswers(self.url)
        return self._checked.url

    def stop_checking(self) -> list[str]:
        """What was found."""
        if self._checked is None:
            return []
        self._checked.stop()
        return self._checked.problems

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.ask("GET", path, **options)

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """An answer, which is as the specification has it."""
        found = httpx.request(method, f"{self.url}{path}", timeout=ANSWER_S, verify=PLAIN, **options)
        check(method, found.url.path, found.status_code, found.content)
        return found

    def post(self, path: str, body: object, **options: Any) -> httpx.Response:
        return self.ask("POST", path, json=body, **options)

    def delete(self, path: str, **options: Any) -> httpx.Response:
        return self.ask("DELETE", path, **options)

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(STOP_S)


@contextmanager
def served(*words: str, environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    """`laketx … iceberg serve …` on a free port."""
    command = [sys.executable, "-m", "metaservice.cli", *words]
    known = {**os.environ, **(environment or {})}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=known) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "ready at" in line, line
        server = Server(process, line.split()[-1], line)
        try:
            yield server
        finally:
            process.terminate()
            process.wait(STOP_S)
            problems = server.stop_checking()
        assert problems == []


@contextmanager
def served_folder(folder: Path, *options: str) -> Iterator[Server]:
    with served("--folder", str(folder), "iceberg", "serve", "--listen", "127.0.0.1:0", *options) as server:
        yield server


def warehouse_of(form: int, branch: str = "") -> str:
    return f"v{form}@{branch}" if branch else f"v{form}"


def catalog_of(server: Server, form: int = 3, branch: str = "", **properties: str) -> Any:
    load = pytest.importorskip("pyiceberg.catalog", reason="pyiceberg is not installed").load_catalog
    found = load("lake", type="rest", uri=server.url, warehouse=warehouse_of(form, branch), **properties)
    found._session.hooks["response"].append(check_answer)
    return found


def check_answer(answer: Any, **_options: object) -> None:
    """What pyiceberg's client was answered is as the specification has it."""
    check(answer.request.method, urlsplit(answer.request.url).path, answer.status_code, answer.content)


def by_pyiceberg(server: Server, form: int, table: str, snapshot_id: int | None = None) -> Any:
    return catalog_of(server, form).load_table(f"{DEFAULT}.{table}").scan(snapshot_id=snapshot_id).to_arrow()


def by_polars(server: Server, form: int, table: str, snapshot_id: int | None = None) -> Any:
    found = catalog_of(server, form).load_table(f"{DEFAULT}.{table}")
    return pl.scan_iceberg(found, snapshot_id=snapshot_id).collect().to_arrow()


def by_duckdb(server: Server, form: int, table: str, snapshot_id: int | None = None) -> Any:
    with duckdb_of_iceberg() as connection:
        connection.execute(
            f"ATTACH 'v{form}' AS lake (TYPE iceberg, ENDPOINT '{server.checked_url}', AUTHORIZATION_TYPE 'none')"
        )
        at = f" AT (VERSION => {snapshot_id})" if snapshot_id is not None else ""
        return connection.execute(f'SELECT * FROM lake.{DEFAULT}."{table}"{at}').to_arrow_table()
