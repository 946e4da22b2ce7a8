"""A leader whose bucket doesn't answer: it says so, answers nothing that isn't durable, and ends when it is told to."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from metaservice.client import MetaClient
from metaservice.server.process import EXIT_UNUSABLE
from tests.conformance.play import new_uuid7
from tests.conformance.server import ROOT
from tests.integration.broken_network import Network
from tests.integration.bucket import bucket, known_to
from tests.integration.high_availability import (
    LEADS_NO_MORE,
    PATIENCE_S,
    Pair,
    Process,
    create_table,
    list_committed,
    running,
    version_of,
)
from tests.integration.service import data_file
from tests.integration.take_over_rounds import to_bucket


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Pair]:
    network = Network()
    with bucket(tmp_path) as variables:
        known = known_to(variables)
        two = Pair([Process(tmp_path, name, known, network) for name in ("one", "two")], known)
        with running(two):
            yield two
        network.close()  # first: the server of S3 waits for connections to end


class Asked:
    """One append that is asked for until it is answered."""

    def __init__(self, both: Pair, table_id: str) -> None:
        self.txn_id = new_uuid7()
        self.versions: list[int] = []
        self._both = both
        self._table_id = table_id
        self._thread = threading.Thread(target=self._append)
        self._thread.start()

    def _append(self) -> None:
        with MetaClient(self._both.address, retry_budget_s=2 * PATIENCE_S) as client:
            for _ in range(2):
                done = client.append(self._table_id, [data_file(self.txn_id)], txn_id=self.txn_id)
                self.versions.append(version_of(done))

    def wait(self) -> None:
        self._thread.join(2 * PATIENCE_S)


def wait_until(holds: Callable[[], bool]) -> bool:
    until_s = time.monotonic() + PATIENCE_S
    while not holds() and time.monotonic() < until_s:
        time.sleep(0.05)
    return holds()


@pytest.mark.long
def test_a_write_that_the_bucket_does_not_take_is_said(both: Pair) -> None:
    """The lease is renewed all the while."""
    table_id, leader = create_table(both), both.leader()
    to_bucket(leader).holds = b"/wal/"
    asked = Asked(both, table_id)
    assert wait_until(lambda: "store_silent" in leader.said())
    assert asked.versions == []
    to_bucket(leader).mend()
    asked.wait()
    assert wait_until(lambda: "store_answers" in leader.said())
    assert list_committed(both.address, table_id) == {asked.txn_id: asked.versions[0]}
    assert len(set(asked.versions)) == 1


def test_a_bucket_that_does_not_answer_hangs_no_stop(both: Pair) -> None:
    """What waits for the bucket is not answered, and the next leader answers it."""
    table_id, leader = create_table(both), both.leader()
    to_bucket(leader).holds = b"/wal/"
    asked = Asked(both, table_id)
    assert wait_until(lambda: "store_silent" in leader.said())
    leader.send(signal.SIGTERM)
    assert leader.wait() == EXIT_UNUSABLE
    assert both.leader() is both.other(leader)
    asked.wait()
    assert list_committed(both.other(leader).address, table_id) == {asked.txn_id: asked.versions[0]}
    assert len(set(asked.versions)) == 1


@pytest.mark.long
def test_a_leader_without_a_bucket_says_so_and_ends(both: Pair) -> None:
    create_table(both)
    leader = both.leader()
    to_bucket(leader).is_cut = True
    assert leader.wait() == LEADS_NO_MORE
    assert "lease_unreachable" in leader.said()
    assert "lease_lost" in leader.said()
    assert both.leader() is both.other(leader)


@pytest.mark.long
def test_a_stop_ends_a_process_that_waits_for_its_store_to_open(both: Pair) -> None:
    """It has the lease, so nobody else leads meanwhile; then another does at once."""
    table_id, leader = create_table(both), both.leader()
    standby = both.other(leader)
    to_bucket(standby).holds = b"manifest"
    leader.send(signal.SIGKILL)
    leader.wait()
    assert wait_until(lambda: "store_silent" in standby.said())
    leader.start()
    standby.send(signal.SIGTERM)
    assert standby.wait() == 0
    assert "lease_released" in standby.said()
    assert both.leader() is leader
    assert list_committed(leader.address, table_id) == {}


def test_a_request_without_an_answer_is_repeated_after_the_time_that_is_set() -> None:
    """AWS_TIMEOUT: without it the second connection comes after half a minute."""
    opening = (
        "from metaservice.store.engines.slate import ObjectPlace, SlateStore\nSlateStore(ObjectPlace('lake', 'meta'))"
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(PATIENCE_S / 4)
        variables = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "AWS_ACCESS_KEY_ID": "nobody",
            "AWS_SECRET_ACCESS_KEY": "nothing",
            "AWS_TIMEOUT": "500ms",
        }
        with subprocess.Popen([sys.executable, "-c", opening], cwd=ROOT, env=os.environ | variables) as process:
            try:
                connections = [silent.accept()[0] for _ in range(3)]
            finally:
                process.kill()
        assert len({each.getpeername() for each in connections}) == 3
        for each in connections:
            each.close()
