"""The way from the compose file to the first row, without containers: its programs, with its environment."""

import ctypes
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.house.tree import ROOT
from tests.iceberg.servers import catalog_of, served
from tests.integration.service import Service, free_address, service
from tools import deploy_check
from tools.deploy_tools import VERSITYGW, NotCheckedError, go_tool

FIRST_ROW = ROOT / "deploy" / "compose" / "first_row.py"
SAID = re.compile(r"row (\d+) of first\.rows is committed as version (\d+) and read back: [\d.]+ s\n")
WAIT_S = 120.0
PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN = 65, 1


def first_row(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The number of the row, and its version."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "LAKETX_"))}
    command = [sys.executable, str(FIRST_ROW)]
    more = {"PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        command, env=known | more, check=False, capture_output=True, text=True, timeout=WAIT_S, cwd=ROOT
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = SAID.fullmatch(done.stdout)
    assert found is not None, done.stdout
    return found.groups()


def test_each_run_commits_the_next_row(tmp_path: Path) -> None:
    with service(tmp_path / "db") as (server, _):
        where = {"LAKETX_SERVER": server.address, "LAKETX_WAREHOUSE": str(tmp_path / "lake")}
        assert first_row(where) == ("1", "1")
        assert first_row(where) == ("2", "2")
    assert len(list((tmp_path / "lake").rglob("*.parquet"))) == 2


def test_the_service_runs_where_memory_is_never_written_and_executed(tmp_path: Path) -> None:
    """As its unit asks: MemoryDenyWriteExecute."""
    prctl = ctypes.CDLL(None).prctl

    class Locked(Service):
        def spawn(self, listen: str) -> subprocess.Popen[str]:
            deny = f"import ctypes; ctypes.CDLL(None).prctl({PR_SET_MDWE}, {PR_MDWE_REFUSE_EXEC_GAIN}, 0, 0, 0)"
            run = "import runpy, sys; sys.argv[0] = 'metaservice'; runpy.run_module('metaservice', run_name='__main__')"
            words = ["--listen", listen, "--data", str(self.folder)]
            with self.errors.open("ab") as stderr:
                command = [sys.executable, "-c", f"{deny}; {run}", *words]
                return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=stderr, text=True)

    if prctl(PR_SET_MDWE + 1, 0, 0, 0, 0) < 0:
        pytest.skip("this kernel can't refuse such memory")
    locked = Locked(tmp_path / "db")
    try:
        address = locked.start()
        assert first_row({"LAKETX_SERVER": address, "LAKETX_WAREHOUSE": str(tmp_path / "lake")}) == ("1", "1")
    finally:
        locked.kill()


@pytest.mark.long
def test_compose_on_its_s3_server(tmp_path: Path) -> None:
    """Each program of the compose file runs with the words and variables that the file gives it."""
    try:
        model, versitygw = deploy_check.compose_model(), go_tool(VERSITYGW)
    except NotCheckedError as error:
        pytest.skip(f"not checked here: {error}")
    services: dict[str, Any] = model["services"]
    began_s = time.monotonic()
    lake = tmp_path / "objects" / "lake"
    lake.mkdir(parents=True)  # as `folders` does
    with running_s3(versitygw, services["s3"], tmp_path) as url:
        server = Service(tmp_path / "db")
        places = {"http://s3:9000": url, "meta:7070": server.start()}
        try:
            given = services["first-row"]["environment"]
            environment = {name: places.get(value, value) for name, value in given.items()}
            assert first_row(environment) == ("1", "1")
            here = ("--listen", "--client-config=s3.endpoint")  # addresses of the compose file
            words = [word for word in services["iceberg"]["command"] if not word.startswith(here)]
            with served(*words, "--listen", "127.0.0.1:0", environment=environment) as catalog:
                storage = {"s3.endpoint": url, "s3.access-key-id": given["AWS_ACCESS_KEY_ID"]}
                storage |= {"s3.secret-access-key": given["AWS_SECRET_ACCESS_KEY"]}
                shown = catalog_of(catalog, **storage)
                tables = [one for name in shown.list_namespaces() for one in shown.list_tables(name)]
                assert [shown.load_table(one).scan().to_arrow().num_rows for one in tables] == [1]
        finally:
            server.kill()
    assert list(lake.rglob("*.parquet"))
    assert time.monotonic() - began_s < WAIT_S


@pytest.mark.long
def test_two_services_of_compose_on_its_s3_server(tmp_path: Path) -> None:
    """One of them is killed between two rows."""
    try:
        model, versitygw = deploy_check.compose_model(deploy_check.COMPOSE_PAIR), go_tool(VERSITYGW)
    except NotCheckedError as error:
        pytest.skip(f"not checked here: {error}")
    services: dict[str, Any] = model["services"]
    (tmp_path / "objects" / "lake").mkdir(parents=True)
    places = {f"{name}:7070": free_address() for name in ("meta", "meta-2")}
    with running_s3(versitygw, services["s3"], tmp_path) as url, ExitStack() as ends:
        running = []
        for name in ("meta", "meta-2"):
            environment = deploy_check.variables_of(services[name]) | {"LAKETX_LISTEN": places[f"{name}:7070"]}
            known = here(environment | {"LAKETX_METRICS_LISTEN": ""}, {**places, "http://s3:9000": url})
            words = [sys.executable, "-m", "metaservice.cli", *services[name]["command"]]
            data = str(tmp_path / name)
            process = ends.enter_context(
                subprocess.Popen(words, env={**os.environ, **known, "LAKETX_DATA": data}, cwd=ROOT)
            )
            ends.callback(process.kill)
            running.append(process)
            health = [
                sys.executable,
                "-m",
                "metaservice.cli",
                *services[name]["healthcheck"]["test"][2:],
                "--wait",
                "60",
            ]
            asked = {**os.environ, **known, "LAKETX_SERVER": places["meta:7070"]}
            until_s = time.monotonic() + WAIT_S
            while subprocess.run(health, env=asked, cwd=ROOT, check=False).returncode:
                assert time.monotonic() < until_s
        known = here(deploy_check.variables_of(services["first-row"]), {**places, "http://s3:9000": url})
        assert first_row(known)[0] == "1"
        running[0].kill()
        assert first_row(known)[0] == "2"


def here(environment: Mapping[str, str], places: Mapping[str, str]) -> dict[str, str]:
    """The variables with the addresses of this machine."""
    found = dict(environment)
    for place, address in places.items():
        found = {name: value.replace(place, address) for name, value in found.items()}
    return found


@contextmanager
def running_s3(program: Path, described: dict[str, Any], folder: Path) -> Iterator[str]:
    address = free_address()
    places = {":9000": address, "/objects": str(folder / "objects")}
    command = [str(program), *(places.get(word, word) for word in described["command"])]
    environment = {**os.environ, **described["environment"]}
    with (
        (folder / "s3.log").open("wb") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log) as s3,
    ):
        try:
            until_s = time.monotonic() + WAIT_S
            while not answers(f"http://{address}/health"):
                assert s3.poll() is None, (folder / "s3.log").read_text(encoding="utf-8")
                assert time.monotonic() < until_s
                time.sleep(0.05)
            yield f"http://{address}"
        finally:
            s3.terminate()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1):
            return True
    except OSError:
        return False
