"""`laketx sql --remote`: the shell on a Spark Connect server that runs with the jar."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from laketx.commands.sql_session import check_reachable
from metaservice.cli.failures import CommandError, Exit
from metaservice.client import MetaClient
from protos.laketx.v1 import transaction_pb2 as wire
from tests.integration.service import free_address, service
from tests.spark.doors import connect_address, connect_server
from tests.spark.processes import ROOT, WAIT_S, wait_until
from tests.spark.terminal import PROMPT, on_a_terminal
from worker.spark.catalog_jar import catalog_settings

SETUP = """
CREATE NAMESPACE shop;
USE shop;
CREATE TABLE orders (id BIGINT, name STRING, PRIMARY KEY (id));
INSERT INTO orders VALUES (1, 'a,b'), (2, NULL);
MERGE INTO orders AS t USING (SELECT 2L AS id, 'two' AS name UNION ALL SELECT 3, '') AS s ON t.id = s.id
  WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *;
SELECT * FROM orders ORDER BY id;
"""
SLOW = "INSERT INTO slow SELECT id, java_method('java.lang.Thread', 'sleep', 600000L) FROM range(2)"


class Shell:
    """`laketx sql` on the server."""

    def __init__(self, remote: str, meta: str, state: Path) -> None:
        self.remote = remote
        self.meta = meta
        self._environment = {**os.environ, "XDG_STATE_HOME": str(state), "LAKETX_SERVER": "", "LAKETX_FOLDER": ""}

    def start(self, *options: str, place: tuple[str, ...] = (), remote: str = "") -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "metaservice.cli", *place, "sql", "--remote", remote or self.remote, *options]
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *options: str, script: str = "", place: tuple[str, ...] = (), remote: str = "") -> "Ended":
        process = self.start(*options, place=place, remote=remote)
        out, error = process.communicate(script, WAIT_S)
        return Ended(process.returncode, out, error)


class Ended:
    """What a command printed."""

    def __init__(self, code: int, out: str, error: str) -> None:
        self.code = code
        self.out = out
        self.error = error


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    folder = tmp_path_factory.mktemp("remote")
    with service(folder / "store") as (running, _):
        lake = catalog_settings("lake", f"laketx://{running.address}", str(folder / "files"), "server")
        with connect_server(lake, folder) as server:
            yield Shell(connect_address(server), running.address, folder)


@pytest.mark.long
def test_a_pipe_of_statements(shell: Shell) -> None:
    """The server knows the lake: nobody else has to name it."""
    ended = shell.run("--csv", script=SETUP)
    assert ended.out.splitlines() == ["id,name", '1,"a,b"', "2,two", '3,""'], ended.error
    assert ended.code == 0
    assert ended.error.count(" in ") == 6  # each with its time


def test_documents_and_failures(shell: Shell) -> None:
    statements = ("-e", "SELECT 1 AS a, X'00' AS b; SELECT * FROM nowhere.t")
    ended = shell.run(*statements, place=("-o", "json", "--quiet"))
    assert [json.loads(line) for line in ended.out.splitlines()] == [{"a": 1, "b": "AA=="}]
    failure = json.loads(ended.error)["error"]
    assert (failure["reason"], failure["exit_code"], ended.code) == ("TABLE_OR_VIEW_NOT_FOUND", 5, 5)


@pytest.mark.long
def test_refusals_of_the_catalog(shell: Shell) -> None:
    script = "CREATE NAMESPACE refused; CREATE TABLE refused.t (id BIGINT, PRIMARY KEY (id)); SELECT FORM;"
    ended = shell.run("--keep-going", script=script + "INSERT INTO refused.t VALUES (1), (1); SELECT 1 AS one;")
    assert "laketx: UNRESOLVED_COLUMN" in ended.error
    assert "laketx: KEY_TWICE" in ended.error
    assert "SQLSTATE" not in ended.error
    assert ended.out.split() == ["ONE", "1"]
    assert ended.code == 1


def test_another_lake_than_the_server_has(shell: Shell) -> None:
    ended = shell.run("-e", "SELECT 1", place=("--server", "127.0.0.1:7"))
    assert "laketx: CATALOG_NAME_TAKEN: the Spark session's catalog lake is the lake at laketx://" in ended.error
    ended = shell.run("-e", "SELECT 1 AS one", place=("--server", shell.meta))
    assert (ended.out.split(), ended.code) == (["ONE", "1"], 0), ended.error


@pytest.mark.parametrize("remote", ["http://spark:15002", "sc://", "sc://spark:x", "local[2]"])
def test_what_is_no_address(remote: str) -> None:
    with pytest.raises(CommandError, match="--remote is sc://HOST or sc://HOST:PORT") as refused:
        check_reachable(remote, 1.0)
    assert refused.value.code is Exit.USAGE


def test_nobody_answers() -> None:
    address = free_address()
    said = f"SPARK_UNREACHABLE: no Spark Connect server answers at sc://{address}"
    with pytest.raises(CommandError, match=said) as refused:
        check_reachable(f"sc://{address}/;user_id=ana", 1.0)
    assert refused.value.code is Exit.UNAVAILABLE


@pytest.mark.long
def test_ctrl_c_ends_the_statement_on_the_server(shell: Shell) -> None:
    with MetaClient(shell.meta) as client:

        def has_open() -> bool:
            return any(client.list_transactions(state=wire.TRANSACTION_STATE_OPEN))

        process = shell.start("-e", "CREATE TABLE slow (id BIGINT, slept STRING)", "-e", SLOW)
        wait_until(lambda: has_open() or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=WAIT_S)
        assert process.returncode == 130
        wait_until(lambda: not has_open())


@pytest.mark.long
def test_the_prompt_on_a_server(shell: Shell, tmp_path: Path) -> None:
    """Completion asks the server; Ctrl-C ends the statement, and the next one runs."""
    command = [sys.executable, "-m", "metaservice.cli", "sql", "--remote", shell.remote]
    with on_a_terminal(*command, state=tmp_path) as terminal:
        terminal.answers("CREATE NAMESPACE prompted; CREATE TABLE prompted.orders (id BIGINT);", "done in", "done in")
        terminal.wait_for(PROMPT)
        terminal.type("INSERT INTO prompted.ord\t")
        terminal.wait_for("ers")  # completed
        terminal.type(" VALUES (41 + 1);\r")
        terminal.wait_for("done in")
        terminal.wait_for(PROMPT)
        terminal.type("SELECT java_method('java.lang.Thread', 'sleep', 600000L) FROM range(1);\r")
        time.sleep(3)
        terminal.type("\x03")
        terminal.wait_for("cancelled")
        terminal.answers("SELECT * FROM prompted.orders;", "42", "1 row in")
        terminal.answers("exit")
        assert terminal.process.wait(WAIT_S) == 0
