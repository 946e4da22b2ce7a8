"""A service whose data is taken away: a log that is gone, a folder that is removed, a backup in the folder's place."""

import shutil
from pathlib import Path

import grpc
import pytest

from metaservice.server.process import EXIT_BROKEN, EXIT_UNUSABLE
from tests.forked_programs import run_forked
from tests.integration.service import TIMEOUT_S, Service, service


def end_of(running: Service) -> tuple[int, str]:
    """Of a service that doesn't start."""
    process = running.spawn("127.0.0.1:0")
    process.communicate(timeout=TIMEOUT_S)
    return process.returncode, running.said()


@pytest.mark.parametrize("emptied", [False, True])
def test_a_log_that_is_gone_after_a_kill_is_refused_by_serve_and_check(tmp_path: Path, emptied: bool) -> None:
    with service(tmp_path / "data") as (running, stubs):
        table = stubs.create("t")
        stubs.append(table)
        running.kill()
        log = max(running.folder.glob("*.log"))
        kept = log.read_bytes()
        log.write_bytes(b"") if emptied else log.unlink()
        code, said = end_of(running)
        assert (code, "STORE_DAMAGED" in said) == (EXIT_UNUSABLE, True)
        checked = run_forked("metaservice", "check", "--data", str(running.folder), timeout=TIMEOUT_S)
        assert (checked.returncode, "STORE_DAMAGED" in checked.stderr) == (EXIT_UNUSABLE, True)
        log.write_bytes(kept)
        running.start()
        assert len(stubs.list_versions(table)) == 2


def test_a_folder_that_is_removed_stops_the_service_before_it_acknowledges(tmp_path: Path) -> None:
    with service(tmp_path / "data") as (running, stubs):
        table = stubs.create("t")
        stubs.append(table)
        shutil.rmtree(running.folder)
        with pytest.raises(grpc.RpcError):
            stubs.append(table)
        assert running.process is not None
        assert running.process.wait(TIMEOUT_S) == EXIT_BROKEN
        assert "was removed or replaced" in running.said()
        assert not running.folder.exists(), "no other store takes its place"


def test_a_backup_is_not_served(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    with service(tmp_path / "data") as (running, stubs):
        stubs.create("t")
    shutil.copytree(running.folder, backup)
    (backup / "laketx-backup.json").write_text("{}")
    code, said = end_of(Service(backup))
    assert code == EXIT_UNUSABLE
    assert f"laketx restore --backup {backup} --data" in said
    (backup / "laketx-backup.json").unlink()
    backup.rename(tmp_path / "backup.partial")
    code, said = end_of(Service(tmp_path / "backup.partial"))
    assert (code, "unfinished backup" in said) == (EXIT_UNUSABLE, True)
