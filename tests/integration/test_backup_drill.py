"""The drill: the machine is lost under load, and the service goes on from its repository, on a disk and in a bucket."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from metaservice.client import MetaClient
from tests.integration.backup_oracle import Oracle
from tests.integration.bucket import BUCKET, bucket
from tests.integration.repositories import backup_status, laketx, leads, listed, wait_until
from tests.integration.service import Service, Stubs, service

REPOSITORY = f"s3://{BUCKET}/backups"
WRITERS = 4
BACKUPS = 5


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
    oracle = Oracle(running.start(), WRITERS)
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
    for table, head in oracle.compare(stubs, begin_us).items():
        stubs.append(table)
        assert len(stubs.list_versions(table)) == head + 2
