"""The service of a folder: one at a time, whoever asks and however it ends, and nothing acknowledged is lost."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from laketx import InputError, connect
from metaservice.client import BlockedError, InvalidError, MetaClient, folder_service
from metaservice.client.folder_service import find_or_start, open_folder
from protos.laketx.v1 import catalog_pb2
from tests.conformance.server import ROOT
from tests.integration.service import TIMEOUT_S

PROCESSES = 6
KILLS = 6
WAIT = threading.Event()


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Path]:
    """A folder whose server doesn't outlive the test."""
    folder = tmp_path / "lake"
    yield folder
    end_server(folder, signal.SIGTERM)


def served(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "_laketx" / "server.json").read_text(encoding="utf-8"))
    return found


def servers(folder: Path) -> list[int]:
    """Processes that run on the folder's store; an ended one that nobody waited for has no command line."""
    store = os.fsencode(folder.resolve() / "_laketx" / "store")
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if store in words and b"metaservice" in words:
                found.append(int(process.name))
    return found


def end_server(folder: Path, how: signal.Signals) -> None:
    """And wait until it is gone: its lock is free."""
    for pid in servers(folder):
        os.kill(pid, how)
    wait_for_no_server(folder)
    until_s = time.monotonic() + TIMEOUT_S
    while (lock := folder_service._take_lock(folder / "_laketx")) is None:
        assert time.monotonic() < until_s, "somebody holds the folder's lock"
        WAIT.wait(0.01)
    folder_service._let_go(lock)


def wait_for_no_server(folder: Path) -> None:
    """One that doesn't end says what it did last."""
    until_s = time.monotonic() + 2 * TIMEOUT_S
    while found := servers(folder):
        said = (folder / "_laketx" / "server.log").read_text(encoding="utf-8")
        assert time.monotonic() < until_s, f"{found} still run: {said[-4_000:]}"
        WAIT.wait(0.01)


def create(client: MetaClient) -> str:
    table = catalog_pb2.Table(name="t", columns=[catalog_pb2.Column(name="id", type="bigint")])
    return client.create_table(table).table_id


def test_a_server_runs_the_code_of_its_client(lake: Path) -> None:
    """Not that of another installation: Python looks first where the process begins."""
    with open_folder(lake):
        [pid] = servers(lake)
        assert (Path(f"/proc/{pid}/cwd").resolve(), Path(folder_service.__file__).parents[2]) == (ROOT, ROOT)


def test_six_processes_race_and_servers_are_killed(lake: Path) -> None:
    command = [sys.executable, "-m", "tests.integration.embedded_writer", str(lake)]
    writers = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    chance = random.Random(7)
    most = 0
    for _ in range(KILLS):
        pause_s = chance.uniform(0.3, 1.2)
        for _ in range(10):
            WAIT.wait(pause_s / 10)
            most = max(most, len(servers(lake)))
        for pid in servers(lake):
            os.kill(pid, signal.SIGKILL)
    acked: dict[str, int] = {}
    for writer in writers:
        said, _ = writer.communicate(timeout=2 * TIMEOUT_S)
        assert writer.returncode == 0
        mine: dict[str, int] = json.loads(said)
        assert mine
        acked |= mine
    with open_folder(lake) as client:
        log = list(client.list_versions(client.get_table("t").table_id))
    by_txn = {version.txn_id: version.version for version in log}
    assert len(by_txn) == len(log)
    assert {txn_id: by_txn.get(txn_id) for txn_id in acked} == acked
    assert most == 1
    assert "STORE_LOCKED" not in (lake / "_laketx" / "server.log").read_text(encoding="utf-8")


def test_a_client_outlives_its_server(lake: Path) -> None:
    with open_folder(lake) as client:
        table_id = create(client)
        watch = client.watch(table_id, after_version=-1)
        assert next(watch).version == 0
        for number in range(1, 3):
            first = served(lake)["pid"]
            end_server(lake, signal.SIGKILL)
            assert client.append(table_id, []).tables[0].version == number
            assert next(watch).version == number
            assert served(lake)["pid"] != first
        assert os.getpid() not in servers(lake)


def test_a_server_that_nobody_needs_ends_and_the_next_caller_starts_another(lake: Path) -> None:
    pids = set()
    versions = []
    for number in range(4):
        with open_folder(lake, idle_exit_s=0.1) as client:
            table_id = client.get_table("t").table_id if number else create(client)
            versions.append(client.append(table_id, []).tables[0].version)
            pids.add(served(lake)["pid"])
        if number % 2:
            wait_for_no_server(lake)
        else:
            WAIT.wait(0.1)  # about when it ends
    assert versions == list(range(1, 5))
    assert len(pids) >= 2


def test_an_open_client_keeps_its_server(lake: Path) -> None:
    with open_folder(lake, idle_exit_s=0.1) as client:
        pid = served(lake)["pid"]
        assert list(client.list_tables()) == []
        WAIT.wait(0.5)
        assert list(client.list_tables()) == []
        assert servers(lake) == [pid]


@pytest.mark.parametrize("name", ["x" * 150, "Ö l %20?#&"])
def test_a_path_that_no_socket_can_have(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    try:
        with open_folder(folder) as client:
            create(client)
        address = find_or_start(folder)
        assert not address.startswith(f"unix:{tmp_path}")
        with MetaClient(address) as client:
            assert client.get_table("t").head_version == 0
    finally:
        end_server(folder, signal.SIGTERM)


def refusal(folder: Path) -> tuple[str, str]:
    with pytest.raises(BlockedError) as caught:
        find_or_start(folder)
    return caught.value.reason, caught.value.message


@pytest.mark.parametrize("temporary", ["x" * 70, "a b"])
def test_a_path_that_no_socket_can_have_in_a_folder_for_temporary_files_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, temporary: str
) -> None:
    (tmp_path / temporary).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / temporary))
    folder = tmp_path / ("y" * 70)
    try:
        with open_folder(folder) as client:
            create(client)
        address = find_or_start(folder)
        assert len(address.removeprefix("unix:")) <= folder_service.SOCKET_PATH_BYTES_MAX
        assert " " not in address
    finally:
        end_server(folder, signal.SIGTERM)


def test_what_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert refusal(tmp_path / "file" / "lake")[0] == "FOLDER_UNUSABLE"
    assert refusal(Path("/proc/lake"))[0] == "FOLDER_UNUSABLE"
    assert refusal(tmp_path / ("long" * 99))[0] == refusal(tmp_path / "a\0b")[0] == "FOLDER_UNUSABLE"
    with pytest.raises(InputError, match="ADDRESS_INVALID"):
        connect("")


def test_a_store_that_was_served_by_hand_is_not_shadowed(tmp_path: Path) -> None:
    for name in ("CURRENT", "IDENTITY"):
        (tmp_path / name).write_text("", encoding="utf-8")
    assert refusal(tmp_path)[0] == "FOLDER_IS_A_STORE"


def test_a_server_that_fails_says_why(lake: Path) -> None:
    (lake / "_laketx").mkdir(parents=True)
    (lake / "_laketx" / "store").write_text("in its place", encoding="utf-8")
    for _ in range(2):
        reason, message = refusal(lake)
        assert reason == "SERVER_FAILED"
        assert "STORE_UNREACHABLE" in message


def test_a_server_of_another_wire_is_not_spoken_to(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_or_start(lake)
    monkeypatch.setattr(folder_service, "WIRE", folder_service.WIRE + 1)
    assert refusal(lake)[0] == "SERVER_OTHER_RELEASE"
    end_server(lake, signal.SIGKILL)
    find_or_start(lake)


def test_what_a_folder_holds_is_the_users_alone_whatever_the_umask(lake: Path) -> None:
    before = os.umask(0)
    try:
        with open_folder(lake) as client:
            client.create_table(catalog_pb2.Table(name="t", columns=[catalog_pb2.Column(name="id", type="bigint")]))
            found = [lake, *(lake / "_laketx").rglob("*"), lake / "_laketx"]
            modes = {path: path.stat().st_mode & 0o777 for path in found if path.exists()}
    finally:
        os.umask(before)
    assert len(modes) > 8
    assert {path: oct(mode) for path, mode in modes.items() if mode & 0o077} == {}


def test_a_folder_made_before_is_closed_to_others(lake: Path) -> None:
    home = lake / "_laketx"
    home.mkdir(parents=True)
    home.chmod(0o755)
    with open_folder(lake):
        assert home.stat().st_mode & 0o777 == 0o700


def test_a_socket_that_was_removed_is_made_anew_and_nothing_is_lost(lake: Path) -> None:
    with open_folder(lake) as client:
        table = client.create_table(catalog_pb2.Table(name="t", columns=[catalog_pb2.Column(name="id", type="bigint")]))
        first = served(lake)["pid"]
        Path(str(served(lake)["address"]).removeprefix("unix:")).unlink()
        with open_folder(lake) as other:
            assert other.get_table("t").table_id == table.table_id
        assert served(lake)["pid"] != first
        assert client.get_table("t").table_id == table.table_id


@pytest.mark.parametrize("address", ["127.0.0.1:7199", "meta:7070", "[::1]:7070"])
def test_an_address_without_its_scheme_makes_no_folder(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidError, match="laketx://"):
        open_folder(address)
    assert list(tmp_path.iterdir()) == []
