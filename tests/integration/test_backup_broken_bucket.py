"""Backups to a bucket that is busy, slow, loses answers, or stops answering when the service is killed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from metaservice.client import MetaClient, MetaServiceError
from metaservice.store.backups.folders import Manifest, list_digests
from metaservice.store.backups.repository import backup_id_at, open_repository
from tests.integration.broken_network import Network, Way
from tests.integration.bucket import BUCKET, bucket, known_to
from tests.integration.repositories import PATIENCE_S, backup_status, laketx, listed, scrape, wait_until
from tests.integration.service import Service, Stubs, free_address, service

REPOSITORY = f"s3://{BUCKET}/backups"
FILES, MANIFESTS = b"/backups/files/", b"/backups/backups/"
LOST = 6
FAILURES, AGE = "laketx_backup_failures_total", "laketx_backup_age_seconds"


@dataclass
class Place:
    """A bucket: this process and its commands reach it directly, a service by a way that a test can break."""

    folder: Path
    way: Way
    broken: dict[str, str]  # the variables of a process that goes by the way


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    network = Network()
    with bucket(tmp_path / "s3") as known, pytest.MonkeyPatch.context() as patch:
        for name, value in known.items():
            patch.setenv(name, value)
        way = Way(network, known["AWS_ENDPOINT_URL"].removeprefix("http://"))
        broken = known_to({**known, "AWS_ENDPOINT_URL": f"http://{way.address}"})
        yield Place(tmp_path / "s3" / "objects" / BUCKET, way, broken)
        network.close()  # first: the server of S3 waits for connections to end


def verified() -> list[str]:
    """The backups that are there; each can be restored."""
    ids = [str(one["backup"]) for one in listed(REPOSITORY)]
    for one in ids:
        assert "can be restored" in laketx("backup", "verify", REPOSITORY, "--backup", one)
    return ids


def test_a_backup_is_whole_or_not_there_when_answers_are_lost(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client repeats its PUTs; if it gives up, the next backup uploads what is missing."""
    direct = open_repository(REPOSITORY)
    monkeypatch.setenv("AWS_ENDPOINT_URL", place.broken["AWS_ENDPOINT_URL"])
    repository = open_repository(REPOSITORY)
    source = tmp_path / "source"
    source.mkdir()
    for number in range(6):
        (source / f"{number}.sst").write_bytes(bytes([number]) * 100_000)
    files = list_digests(source)
    made: list[str] = []
    place.way.loses = True
    begin_us = 0
    while place.way.lost < LOST or not made:
        begin_us += 1_000_000
        backup_id = backup_id_at(begin_us, "facts")
        manifest = Manifest("", "1", 1, "1-epoch", begin_us, begin_us, [], files)
        with suppress(OSError):
            repository.upload(backup_id, source, manifest, full=True, progress=lambda done, total: None)
            made.append(backup_id)
    there = direct.list_ids()
    assert set(made) <= set(there)
    for backup_id in there:
        direct.fetch(direct.find(backup_id), tmp_path / backup_id, lambda done, total: None)
        assert list_digests(tmp_path / backup_id) == files


@pytest.mark.parametrize("held", [FILES, pytest.param(MANIFESTS, marks=pytest.mark.long)])
def test_a_service_that_is_killed_while_it_uploads_leaves_no_half_backup(
    place: Place, tmp_path: Path, held: bytes
) -> None:
    running = Service(tmp_path / "live", environment=place.broken)
    stubs = Stubs(running.start())
    stubs.append(stubs.create("t"))
    stubs.channel.close()
    place.way.holds = held
    uploading = start_backup(running)
    wait_until(lambda: place.way.has_held, "the upload waits for the bucket")
    running.kill()
    uploading.join(PATIENCE_S)
    assert listed(REPOSITORY) == []
    assert [path for path in (place.folder / "backups" / "running").iterdir() if path.is_file()]
    place.way.mend()
    running.start()
    with MetaClient(running.address) as client:
        made = client.backup(REPOSITORY)
    running.kill()
    assert made.backup_id in verified()


def start_backup(running: Service) -> threading.Thread:
    """Makes a backup beside the test, which may fail."""

    def make() -> None:
        with MetaClient(running.address, retry_budget_s=0.1) as client, suppress(MetaServiceError):
            client.backup(REPOSITORY)

    thread = threading.Thread(target=make)
    thread.start()
    return thread


@pytest.mark.long
def test_scheduled_backups_outlive_a_broken_bucket(place: Place, tmp_path: Path) -> None:
    metrics, way = free_address(), place.way
    flags = ["--backup-to", REPOSITORY, "--backup-every-s", "1", "--backup-keep", "3", "--metrics-listen", metrics]
    way.is_busy = True
    with service(tmp_path / "live", *flags, environment=place.broken) as (running, stubs):
        table = stubs.create("t")
        for _ in range(2):
            fails_and_is_said(running, metrics)
            way.mend()
            is_made_again(running)
            way.loses = True
            stubs.append(table)
            is_made_again(running)
            way.mend()
            way.delay_s = 0.2
            is_made_again(running)
            way.holds = MANIFESTS
            wait_until(lambda: way.has_held, "its manifest waits for the bucket")
            way.is_busy = True
            way.holds = b""
        fails_and_is_said(running, metrics)
        assert verified()
        way.mend()
        is_made_again(running)
    assert len(verified()) >= 3
    assert way.lost


def fails_and_is_said(running: Service, metrics: str) -> None:
    """It is tried again after each failure; meanwhile the newest backup grows old, which has an alarm."""
    before = scrape(metrics)
    wait_until(lambda: scrape(metrics)[FAILURES] >= before[FAILURES] + 2, "it fails, and fails again")
    status = backup_status(running)
    assert status.failures >= 2
    assert "503" in status.error
    assert "FAILED" in laketx("--server", running.address, "status")
    assert "backup_schedule_failed" in running.said()
    assert scrape(metrics)[AGE] > before[AGE]


def is_made_again(running: Service) -> None:
    before = backup_status(running).backup_id
    wait_until(lambda: backup_status(running).backup_id > before, "a newer backup is made")
    wait_until(lambda: backup_status(running).failures == 0, "nothing fails any more")
