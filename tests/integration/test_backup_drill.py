"""The drill: the machine is lost under load, and the service goes on from its repository, on a disk and in a bucket."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from metaservice.client import MetaClient
from tests.conformance.play import new_uuid7
from tests.integration.bucket import BUCKET, bucket
from tests.integration.repositories import backup_status, laketx, leads, listed, wait_until
from tests.integration.service import TIMEOUT_S, Service, Stubs, service

REPOSITORY = f"s3://{BUCKET}/backups"
WRITERS = 4
BACKUPS = 5


class Oracle:
    """Writers of one table each, and what was acknowledged when: for each table, its transactions in order."""

    def __init__(self, address: str) -> None:
        self.stubs = Stubs(address)
        self.acknowledged: dict[str, list[tuple[str, int]]] = {
            self.stubs.create(f"t{number}"): [] for number in range(WRITERS)
        }
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(each,)) for each in self.acknowledged]
        for each in self._threads:
            each.start()

    def _write(self, table: str) -> None:
        with suppress(grpc.RpcError):  # the machine is lost
            while not self._ended.is_set():
                txn_id = new_uuid7()
                self.stubs.append(table, txn_id)
                self.acknowledged[table].append((txn_id, time.time_ns() // 1000))
                time.sleep(0.002)

    def end(self) -> None:
        self._ended.set()
        for each in self._threads:
            each.join(TIMEOUT_S)


@pytest.fixture
def in_bucket(tmp_path: Path) -> Iterator[None]:
    with bucket(tmp_path / "s3") as known, pytest.MonkeyPatch.context() as patch:
        for name, value in known.items():
            patch.setenv(name, value)
        yield


@pytest.mark.long
@pytest.mark.usefixtures("in_bucket")
def test_a_lost_machine(tmp_path: Path) -> None:
    flags = ["--backup-to", REPOSITORY, "--backup-every-s", "1", "--backup-verify-every-s", "3"]
    running = Service(tmp_path / "live", *flags)
    oracle = Oracle(running.start())
    seen: set[str] = set()
    while len(seen) < BACKUPS:
        seen.add(backup_status(running).backup_id)
        time.sleep(0.2)
    wait_until(lambda: backup_status(running).verify_time_us, "a backup is verified")
    assert backup_status(running).verify_problem == ""
    running.kill()
    oracle.end()
    shutil.rmtree(tmp_path / "live")

    begun_s = time.monotonic()
    laketx("restore", REPOSITORY, "--data", str(tmp_path / "fresh"))
    print(f"restored to a folder in {time.monotonic() - begun_s:.1f} s")
    begun_s = time.monotonic()
    laketx("restore", REPOSITORY, "--data", f"s3://{BUCKET}/fresh")
    print(f"restored to a bucket in {time.monotonic() - begun_s:.1f} s")
    begin_us = listed(REPOSITORY)[-1]["begin_time_us"]
    assert isinstance(begin_us, int)
    for data, *store in ((tmp_path / "fresh",), (tmp_path / "scratch", "--store", f"s3://{BUCKET}/fresh")):
        with service(data, *store) as (again, stubs):
            wait_until(lambda again=again: leads(again), "it leads")  # type: ignore[misc]
            _compare(stubs, oracle, begin_us)
            with MetaClient(again.address) as client:
                assert client.get_status().history_epoch.startswith("2-")
                assert client.get_status().purge_hold_reason


def _compare(stubs: Stubs, oracle: Oracle, begin_us: int) -> None:
    """What is there are the first commits in the oracle's order, with all that was acknowledged before the begin."""
    for table, acknowledged in oracle.acknowledged.items():
        there = [version.txn_id for version in stubs.list_versions(table)[1:]]
        txns = [txn_id for txn_id, _ in acknowledged]
        assert there[: len(txns)] == txns[: len(there)], "the same commits, up to some version"
        assert len(there) >= sum(time_us < begin_us for _, time_us in acknowledged)
        assert len(stubs.list_files(table)) == len(there)
        stubs.append(table)
        assert len(stubs.list_versions(table)) == len(there) + 2
