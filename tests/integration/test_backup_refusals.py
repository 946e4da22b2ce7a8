"""What a backup and a restore refuse, in words; nothing is left behind."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from metaservice.client import MetaClient, MetaServiceError
from metaservice.offline.restore import FolderBackup, restore
from metaservice.store.backups import folders
from metaservice.store.backups.folders import BackupUnusable
from protos.laketx.v1 import admin_pb2, catalog_pb2
from protos.laketx.v1.admin_pb2_grpc import AdminServiceStub
from tests.conformance.play import new_uuid7
from tests.integration.repositories import offline, refused
from tests.integration.service import TIMEOUT_S, Service, service


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of two tables."""
    folder = tmp_path_factory.mktemp("made")
    with service(folder / "live") as (running, stubs):
        for name in ("one", "two"):
            table = stubs.create(name)
            for _ in range(20):
                stubs.append(table)
        with MetaClient(running.address) as client:
            return Path(client.backup("b").path)


# -- what a restore refuses --------------------------------------------------------------------------------------------


@pytest.fixture
def backup(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "backup"))


def largest(backup: Path) -> Path:
    return max(backup.glob("*.sst"), key=lambda path: path.stat().st_size)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def rewrite(backup: Path, change: Callable[[dict[str, object]], object]) -> None:
    path = backup / folders.MANIFEST
    manifest = json.loads(path.read_text(encoding="utf-8"))
    change(manifest)
    path.write_text(json.dumps(manifest), encoding="utf-8")


def move_head(manifest: dict[str, object]) -> None:
    heads = manifest["heads"]
    assert isinstance(heads, list)
    heads[0]["version"] += 1


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda b: truncate(largest(b)), "BACKUP_DAMAGED"),
        (lambda b: flip(largest(b)), "BACKUP_DAMAGED"),
        (lambda b: largest(b).unlink(), "BACKUP_DAMAGED"),
        (lambda b: (b / "000099.sst").write_bytes(b"x"), "BACKUP_DAMAGED"),
        (lambda b: truncate(b / folders.MANIFEST), "BACKUP_DAMAGED"),
        (lambda b: (b / folders.MANIFEST).write_text("[]"), "BACKUP_DAMAGED"),
        (lambda b: (b / folders.MANIFEST).write_bytes(b"\xff"), "BACKUP_DAMAGED"),
        (lambda b: (b / folders.MANIFEST).unlink(), "BACKUP_INCOMPLETE"),
        (lambda b: rewrite(b, lambda m: m.update(format=2)), "FORMAT_TOO_NEW"),
        (lambda b: rewrite(b, move_head), "BACKUP_DAMAGED"),
        (lambda b: rewrite(b, lambda m: m.update(heads=[])), "BACKUP_DAMAGED"),
    ],
)
def test_a_backup_that_is_not_whole_is_refused(
    backup: Path, tmp_path: Path, damage: Callable[[Path], object], reason: str
) -> None:
    damage(backup)
    with pytest.raises(BackupUnusable) as caught:
        restore(FolderBackup(backup), tmp_path / "data", "aa", 1)
    assert caught.value.reason == reason
    assert [path.name for path in tmp_path.iterdir()] == ["backup"], "nothing is left behind"


def test_a_restore_never_writes_over_anything(backup: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "mine").write_text("x")
    run = offline("restore", "--backup", str(backup), "--data", str(data))
    assert (run.returncode, "DATA_EXISTS" in run.stderr) == (1, True)
    (data / "mine").unlink()
    dry = offline("restore", "--backup", str(backup), "--data", str(data), "--dry-run")
    assert (dry.returncode, list(data.iterdir())) == (0, [])
    assert restore(FolderBackup(backup), data, "aa", 1).epoch == "2-aa"
    assert restore(FolderBackup(backup), tmp_path / "again", "cc", 1).epoch == "2-cc", "the backup stays as it was"


def test_a_check_of_a_folder_says_what_it_found_by_its_exit_code(backup: Path, tmp_path: Path) -> None:
    restore(FolderBackup(backup), tmp_path / "data", "aa", 1)
    run = offline("check", "--data", str(tmp_path / "data"))
    assert (run.returncode, run.stdout.split(",")[0]) == (0, "checked 2 tables")
    missing = offline("check", "--data", str(tmp_path / "nothing"))
    assert (missing.returncode, "STORE_MISSING" in missing.stderr) == (1, True)
    assert not (tmp_path / "nothing").exists()


# -- what a backup refuses ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, AdminServiceStub, Path]]:
    folder = tmp_path_factory.mktemp("small")
    with service(folder / "db", "--backup-root", str(folder / "root")) as (running, stubs):
        stubs.create("t")
        yield running, AdminServiceStub(stubs.channel), folder / "root"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "BACKUP_PATH_INVALID"),
        (".", "BACKUP_PATH_OUTSIDE"),
        ("..", "BACKUP_PATH_OUTSIDE"),
        ("../other", "BACKUP_PATH_OUTSIDE"),
        ("a/../../other", "BACKUP_PATH_OUTSIDE"),
        ("/tmp/elsewhere", "BACKUP_PATH_OUTSIDE"),
        ("link/inside", "BACKUP_PATH_OUTSIDE"),
        ("a\x00b", "BACKUP_PATH_INVALID"),
        ("x" * 300, "BACKUP_PATH_INVALID"),
        ("x" * 5000, "BACKUP_PATH_INVALID"),
        ("x.partial", "BACKUP_PATH_INVALID"),
        ("no/such/folder", "BACKUP_FOLDER_MISSING"),
        ("taken", "BACKUP_EXISTS"),
        ("half", "BACKUP_PARTIAL"),
    ],
)
def test_where_no_backup_can_be(
    small: tuple[Service, AdminServiceStub, Path], tmp_path: Path, path: str, reason: str
) -> None:
    running, admin, root = small
    (root / "taken").mkdir(parents=True, exist_ok=True)
    (root / "half.partial").mkdir(exist_ok=True)
    (root / "link").unlink(missing_ok=True)  # to the folder of the test before
    (root / "link").symlink_to(tmp_path)
    before = sorted(root.rglob("*"))
    for dry in (True, False):
        request = admin_pb2.BackupRequest(path=path, validate_only=dry)
        assert refused(lambda: admin.Backup(request, timeout=TIMEOUT_S))[1] == reason  # noqa: B023 - called at once
    assert sorted(root.rglob("*")) == before
    running.running()


def test_a_validation_makes_nothing(small: tuple[Service, AdminServiceStub, Path]) -> None:
    _, admin, root = small
    answer = admin.Backup(admin_pb2.BackupRequest(path="wished", validate_only=True), timeout=TIMEOUT_S)
    assert answer.bytes > 0
    assert not (root / "wished").exists()


def test_the_same_request_gets_the_same_backup(small: tuple[Service, AdminServiceStub, Path]) -> None:
    running, _, root = small
    with MetaClient(running.address) as client:
        name, request_id = "mine", new_uuid7()
        first = client.backup(name, request_id=request_id)
        again = client.backup(str(root / name), request_id=request_id)
        first.stalled_us = 0
        assert again == first
        with pytest.raises(MetaServiceError) as caught:
            client.backup(name)
        assert caught.value.reason == "BACKUP_EXISTS"
        assert [part.done for part in client.check()][-1:] == [True]
        assert client.release_purge() == ""


def test_a_name_of_many_pages_goes_on_where_it_was(small: tuple[Service, AdminServiceStub, Path]) -> None:
    running, _, _ = small
    with MetaClient(running.address) as client:
        for number in range(3):
            client.create_table(
                catalog_pb2.Table(name=f"p{number}", columns=[catalog_pb2.Column(name="i", type="int")])
            )
        assert [table.name for table in client.list_tables(page_size=1)] == ["p0", "p1", "p2", "t"]
