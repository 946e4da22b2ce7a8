"""The service is stopped and started while clients work: they notice nothing but a pause."""

import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from metaservice.client import MetaClient, uuid7
from tests.conformance.server import ROOT, wait_for_address
from tests.integration.service import TIMEOUT_S, Service, data_file, service

WRITERS = 8
STOPS = 2
APPENDS_BETWEEN = 30
GRACE_S = "600"  # never used up: a stop that waits for clients to go fails


class Counter:
    """How many appends were answered; wakes who waits for a number of them."""

    def __init__(self) -> None:
        self.acked: dict[str, int] = {}
        self._changed = threading.Condition()

    def add(self, txn_id: str, version: int) -> None:
        with self._changed:
            self.acked[txn_id] = version
            self._changed.notify_all()

    def wait_for(self, number: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.acked) >= number, TIMEOUT_S)


def stop_and_start(server: Service) -> None:
    process = server.running()
    process.send_signal(signal.SIGTERM)
    assert process.wait(TIMEOUT_S) == 0, server.said()
    server.start()


EXIT_HANGS = """
import atexit, runpy, sys, threading
atexit.register(threading.Event().wait)
threading.Thread(target=threading.Event().wait).start()
sys.argv = ["metaservice", *sys.argv[1:]]
runpy.run_module("metaservice", run_name="__main__", alter_sys=True)
"""


def test_a_process_that_is_done_ends_whatever_its_libraries_still_do(tmp_path: Path) -> None:
    """One that hangs while it exits would hold its folder's lock for ever."""
    said = tmp_path / "said"
    command = [sys.executable, "-c", EXIT_HANGS, "--listen", "127.0.0.1:0", "--data", str(tmp_path / "db")]
    with said.open("wb") as errors:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        address = wait_for_address(process, said)
        with MetaClient(address) as client:
            client.ping()
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0
    finally:
        process.kill()
        process.communicate()
    assert '"event": "stopped"' in said.read_text(encoding="utf-8")


@pytest.mark.parametrize("use_session", [True, False], ids=["session", "single-calls"])
def test_clients_outlive_a_graceful_stop(tmp_path: Path, use_session: bool) -> None:
    with service(tmp_path / "db", "--grace-s", GRACE_S) as (server, stubs), MetaClient(server.address) as idle:
        table_id = stubs.create("t")
        assert idle.ping(b"and no more") == b"and no more"
        counter, stopped = Counter(), threading.Event()
        with MetaClient(server.address, use_session=use_session, retry_budget_s=TIMEOUT_S) as client:

            def write() -> None:
                while not stopped.is_set():
                    txn_id = uuid7()
                    committed = client.append(table_id, [data_file(txn_id)], txn_id=txn_id)
                    counter.add(txn_id, committed.tables[0].version)

            with ThreadPoolExecutor(WRITERS) as pool:
                writers = [pool.submit(write) for _ in range(WRITERS)]
                try:
                    for _ in range(STOPS):
                        counter.wait_for(len(counter.acked) + APPENDS_BETWEEN)
                        stop_and_start(server)
                    counter.wait_for(len(counter.acked) + APPENDS_BETWEEN)
                finally:
                    stopped.set()
                for writer in writers:
                    writer.result(TIMEOUT_S)
            log = {each.txn_id: each.version for each in client.list_versions(table_id) if each.version}
    assert log == counter.acked, "each append that was answered is in the log once, under its own id, and no other"
