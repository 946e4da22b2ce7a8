"""Backups in a repository: incremental, scheduled, verified, deleted, restored; killed and damaged on the way."""

from __future__ import annotations

import json
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from metaservice.client import MetaClient, MetaServiceError
from protos.laketx.v1 import common_pb2
from tests.forked_programs import run_forked
from tests.integration.bucket import BUCKET, bucket
from tests.integration.repositories import backup_status, laketx, leads, listed, scrape, wait_until
from tests.integration.service import TIMEOUT_S, Service, Stubs, free_address, service

REPOSITORY = f"s3://{BUCKET}/backups"


@pytest.fixture(scope="module")
def in_bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a server of S3 that every process of these tests finds."""
    folder = tmp_path_factory.mktemp("s3")
    with bucket(folder) as known, pytest.MonkeyPatch.context() as patch:
        for name, value in known.items():
            patch.setenv(name, value)
        yield folder / "objects" / BUCKET


def paths(stubs: Stubs, table: str, version: int | None = None) -> list[str]:
    return sorted(entry.file.path for entry in stubs.list_files(table, version))


def test_a_backup_uploads_what_is_new_and_is_restored_to_a_folder_and_a_bucket(in_bucket: Path, tmp_path: Path) -> None:
    with service(tmp_path / "live") as (running, stubs):
        table = stubs.create("t")
        for _ in range(20):
            stubs.append(table)
        server = ("--server", running.address)
        first = json.loads(laketx(*server, "-o", "json", "backup", REPOSITORY))
        stubs.append(table)
        second = json.loads(laketx(*server, "-o", "json", "backup", "make", REPOSITORY))
        expected, head = paths(stubs, table), stubs.list_versions(table)[-1].version
        assert "would copy" in laketx(*server, "backup", REPOSITORY, "--dry-run")
    assert 0 < int(second["uploaded_bytes"]) < int(first["uploaded_bytes"]) <= int(first["bytes"])
    one, two = listed(REPOSITORY)
    assert (one["backup"], two["backup"]) == (first["backup_id"], second["backup_id"])
    assert [one["tables"], one["verified"]] == [1, None]
    assert "1 tables can be restored" in laketx("backup", "verify", REPOSITORY)
    assert listed(REPOSITORY)[1]["verified"]["problem"] == ""  # type: ignore[index]
    assert str(one["backup"]) in laketx("backup", "prune", REPOSITORY, "--keep", "1", "--dry-run")
    laketx("backup", "prune", REPOSITORY, "--keep", "1")
    assert [each["backup"] for each in listed(REPOSITORY)] == [two["backup"]]

    place = f"s3://{BUCKET}/restored"
    assert "can be restored" in laketx("restore", REPOSITORY, "--data", str(tmp_path / "new"), "--dry-run")
    laketx("restore", REPOSITORY, "--backup", str(two["backup"]), "--data", str(tmp_path / "new"))
    assert json.loads(laketx("restore", REPOSITORY, "--data", place, "-o", "json"))["tables"] == 1
    assert "DATA_EXISTS" in laketx("restore", REPOSITORY, "--data", place, code=1)
    for where in (("--data", tmp_path / "new"), ("--data", tmp_path / "scratch", "--store", place)):
        _, data, *flags = map(str, where)
        with service(Path(data), *flags) as (running, restored):
            wait_until(lambda running=running: leads(running), "it leads")  # type: ignore[misc]
            assert paths(restored, table) == expected
            restored.append(table)
            assert restored.list_versions(table)[-1].version == head + 1
            with MetaClient(running.address) as client:
                whole, more = client.backup(REPOSITORY), client.backup(REPOSITORY)
            if flags:  # on a disk RocksDB may compact by then, so nearly all is new
                assert more.uploaded_bytes < whole.uploaded_bytes, "a store in a bucket uploads what is new, too"
    for one in listed(REPOSITORY)[1:]:
        laketx("backup", "delete", REPOSITORY, str(one["backup"]))
    laketx("backup", "delete", REPOSITORY, str(two["backup"]))
    assert listed(REPOSITORY) == []
    assert "BACKUP_MISSING" in laketx("restore", REPOSITORY, "--data", str(tmp_path / "other"), code=1)
    assert [path.name for path in (in_bucket / "backups").rglob("*") if path.is_file()] == ["verified.json"]


def test_a_restore_as_of_a_time_shows_the_tables_of_then(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    repository = f"file://{tmp_path}/root/repository"
    (tmp_path / "root" / "repository").mkdir()
    with service(tmp_path / "live", "--backup-root", str(tmp_path / "root")) as (running, stubs):
        table, other = stubs.create("t"), stubs.create("other")
        stubs.append(table)
        expected = paths(stubs, table)
        at_us = stubs.list_versions(table)[-1].commit_time_us
        stubs.append(table)
        late = stubs.create("late")
        with MetaClient(running.address) as client:
            client.backup(repository)
        head = stubs.list_versions(table)[-1].version
    text = f"{at_us // 1_000_000}.{at_us % 1_000_000:06}"
    when = subprocess.run(["date", "-u", "-d", f"@{text}", "+%Y-%m-%dT%H:%M:%S.%6NZ"], capture_output=True, text=True)  # noqa: PLW1510
    answer = json.loads(
        laketx("restore", repository, "--at", when.stdout.strip(), "--data", str(tmp_path / "new"), "-o", "json")
    )
    told = {one["name"]: (one["head"], one["version"], one["why"]) for one in answer["rolled_back"]}
    assert told == {"t": (head, head - 1, ""), "other": (0, 0, ""), "late": (0, -1, "VERSION_RETIRED")}
    with service(tmp_path / "new") as (_, restored):
        assert paths(restored, table) == expected
        assert len(paths(restored, table, head)) == 2, "what came after can still be read"
        assert restored.list_versions(table)[-1].operation == common_pb2.OPERATION_RESTORE
        assert paths(restored, other) == paths(restored, late) == []
        restored.append(table)


def test_scheduled_backups_are_kept_verified_and_mended(tmp_path: Path) -> None:
    repository, metrics = tmp_path / "repository", free_address()
    repository.mkdir()
    flags = ["--backup-to", f"file://{repository}", "--backup-every-s", "1", "--backup-keep", "2"]
    flags += ["--backup-verify-every-s", "1", "--metrics-listen", metrics]
    with service(tmp_path / "live", *flags) as (running, stubs):
        table = stubs.create("t")
        stubs.append(table)
        wait_until(lambda: backup_status(running).verify_time_us, "a backup is verified")
        assert backup_status(running).verify_problem == ""
        assert "backup" in laketx("--server", running.address, "status")
        first = backup_status(running).backup_id
        wait_until(lambda: not (repository / "backups" / f"{first}.json").exists(), "old ones are deleted")
        wait_until(lambda: _damage(repository), "a file that stays is damaged")
        wait_until(lambda: scrape(metrics)["laketx_backup_damaged"] == 1, "the damage is found")
        assert "DAMAGED" in laketx("--server", running.address, "status")
        wait_until(lambda: scrape(metrics)["laketx_backup_damaged"] == 0, "a full backup has mended it")
        found = scrape(metrics)
        assert found["laketx_backup_verify_failures_total"] >= 1
        assert found["laketx_backup_failures_total"] == 0
        assert 0 <= found["laketx_backup_age_seconds"] < TIMEOUT_S
        assert (found["laketx_backup_every_seconds"], found["laketx_backup_verify_every_seconds"]) == (1, 1)


def _damage(repository: Path) -> bool:
    """Changes a byte of a file of the newest backup."""
    manifest = max((repository / "backups").glob("*.json"))
    with suppress(FileNotFoundError):
        files = json.loads(manifest.read_text(encoding="utf-8"))["files"]
        digest = next(each["digest"] for each in files if each["name"].endswith(".sst"))
        path = repository / "files" / digest
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 2] ^= 1
        path.write_bytes(raw)
        return True
    return False


def test_a_schedule_outlives_a_storage_that_is_away(tmp_path: Path) -> None:
    repository, metrics = tmp_path / "repository", free_address()
    flags = ["--backup-to", f"file://{repository}", "--backup-every-s", "1", "--metrics-listen", metrics]
    with service(tmp_path / "live", *flags) as (running, stubs):
        stubs.create("t")
        wait_until(lambda: scrape(metrics)["laketx_backup_failures_total"] >= 1, "it fails")
        status = backup_status(running)
        assert "does not exist" in status.error
        assert "FAILED" in laketx("--server", running.address, "status")
        repository.mkdir()
        wait_until(lambda: backup_status(running).backup_id, "it is tried again")
        assert (backup_status(running).failures, backup_status(running).error) == (0, "")
        assert "backup_schedule_failed" in running.said()


@pytest.mark.long
def test_a_service_that_is_killed_leaves_no_half_backup(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "repository").mkdir(parents=True)
    repository = f"file://{root}/repository"
    running = Service(tmp_path / "live", "--backup-root", str(root))
    chance = random.Random(5)
    made = 0
    for number in range(4):
        address = running.start()
        stubs = Stubs(address)
        table = stubs.create(f"t{number}")
        for _ in range(20):
            stubs.append(table)
        with MetaClient(address, retry_budget_s=0.1) as client:
            ended = threading.Thread(target=_try_backup, args=(client, repository))
            ended.start()
            time.sleep(chance.uniform(0.005, 0.15))
            running.kill()
            ended.join(TIMEOUT_S)
        stubs.channel.close()
        for one in listed(repository):
            assert "problem" not in one
    for one in listed(repository):
        laketx("backup", "verify", repository, "--backup", str(one["backup"]))
        made += 1
    running.start()
    with MetaClient(running.address) as client:
        assert client.backup(repository).tables == 4
    running.kill()
    assert len(listed(repository)) == made + 1


def _try_backup(client: MetaClient, repository: str) -> None:
    with suppress(MetaServiceError):
        client.backup(repository)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("file:///tmp", "BACKUP_PATH_OUTSIDE"),
        ("file://host/tmp", "BACKUP_REPOSITORY_INVALID"),
        ("gs://bucket/path", "BACKUP_REPOSITORY_INVALID"),
        ("s3://bucket", "BACKUP_REPOSITORY_INVALID"),
        ("s3://" + "x" * 5000, "BACKUP_PATH_INVALID"),
        ("", "BACKUP_PATH_INVALID"),
    ],
)
def test_what_is_no_repository_is_refused(plain: Service, path: str, reason: str) -> None:
    with MetaClient(plain.address) as client:
        for dry_run in (True, False):
            with pytest.raises(MetaServiceError) as refused:
                client.backup(path, validate_only=dry_run)
            assert refused.value.reason == reason


def test_a_bucket_that_is_not_there_is_a_failure_with_its_cause(plain: Service, in_bucket: Path) -> None:
    del in_bucket
    with MetaClient(plain.address) as client, pytest.raises(MetaServiceError) as refused:
        client.backup("s3://nothing/backups")
    assert refused.value.reason == "BACKUP_FAILED"
    assert "NoSuchBucket" in str(refused.value.facts["error"])


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, in_bucket: Path) -> Iterator[Service]:
    del in_bucket  # its variables are the service's
    with service(tmp_path_factory.mktemp("plain") / "live") as (running, _):
        yield running


@pytest.mark.parametrize("flags", [("--backup-to", "gs://b/p"), ("--backup-to", "relative"), ("--backup-keep", "-1")])
def test_settings_that_make_no_sense(tmp_path: Path, flags: tuple[str, str]) -> None:
    refused = run_forked("metaservice", "--data", str(tmp_path / "live"), *flags, timeout=TIMEOUT_S)
    assert (refused.returncode, flags[0] in refused.stderr) == (2, True)
