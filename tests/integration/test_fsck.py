"""`laketx fsck`: metadata and storage compared both ways, over real files."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyroaring import BitMap64

from laketx import connect
from metaservice.cli import command_line
from metaservice.client import MetaClient
from protos.laketx.v1 import common_pb2, transaction_pb2
from tests.integration.bucket import BUCKET, bucket
from tests.integration.service import Service
from tests.integration.terminal import Ended
from tests.integration.warehouse import GRACE_MS, INSERT, OVERWRITE, Warehouse, warehouse
from worker.services.fsck import Finding, Fsck

ATTEMPT = "part-00003-3f6d-1.zstd.parquet"  # of a task whose executor died

Run = Callable[..., Ended]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Warehouse]:
    with warehouse(tmp_path) as found:
        yield found


@pytest.fixture
def here(lake: Warehouse, capfd: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str) -> Ended:
        capfd.readouterr()
        environment = {"LAKETX_SERVER": lake.client_address, "LAKETX_WAREHOUSE": str(lake.folder)}
        code = command_line.run(words, environment)
        said = capfd.readouterr()
        return Ended(code, said.out, said.err)

    return run


def look(lake: Warehouse, *, footers: bool = True, all_versions: bool = False, quarantine: bool = False) -> list[str]:
    """Words and paths."""
    table = lake.client.get_table("days")
    fsck = Fsck(lake.client, str(lake.folder), table, footers=footers, all_versions=all_versions, quarantine=quarantine)
    return [f"{one.word} {one.path}" for one in fsck.run()]


def test_a_sound_table_has_no_findings(lake: Warehouse, tmp_path: Path) -> None:
    lake.write(INSERT, "a", "b")
    lake.register_external(tmp_path / "outside" / "x.parquet")
    lake.lose()
    txn = lake.begin(INSERT)
    lake.register(txn, "open")
    lake.abort()  # its grace is not over
    hidden = lake.folder / lake.table_id / txn.txn_id / "0"
    for marker in ("_SUCCESS", ".open.parquet.crc"):
        (hidden / marker).touch()
    assert look(lake) == []
    assert list(lake.client.list_pins()) == []


def test_every_kind_of_finding(lake: Warehouse, tmp_path: Path) -> None:
    missing, short, broken = lake.write(INSERT, "a", "b", "c")
    rows = write_miscounted(lake)
    external = lake.register_external(tmp_path / "outside" / "x.parquet")
    left = lake.abort()
    lake.pass_time(GRACE_MS, looks=20)
    stray = lake.write_file("not/ours.parquet").path
    lake.whole(missing).unlink()
    lake.whole(short).write_bytes(b"short")
    size = lake.whole(broken).stat().st_size
    lake.whole(broken).write_bytes(b"x" * size)
    lake.whole(external).unlink()
    wanted = [f"MISSING {missing}", f"SIZE_WRONG {short}", f"FOOTER_UNREADABLE {broken}", f"ROWS_WRONG {rows}"]
    wanted += [f"MISSING {external}", *(f"STRAY {path}" for path in (*left, stray))]
    assert sorted(look(lake)) == sorted(wanted)
    assert f"ROWS_WRONG {rows}" not in look(lake, footers=False)


def write_miscounted(lake: Warehouse) -> str:
    """Registered with a row more than it has."""
    with lake.begin(INSERT) as txn:
        file = lake.write_file(f"{txn.txn_id}/0/d.parquet")
        file.rows += 1
        txn.register(lake.table_id, [file])
        txn.commit([lake.change()])
    return file.path


def test_old_versions_are_looked_at_where_tags_name_them_or_all_are(lake: Warehouse) -> None:
    (old,) = lake.write(OVERWRITE, "a")
    lake.client.create_tag(lake.table_id, "first")
    (middle,) = lake.write(OVERWRITE, "b")
    lake.write(OVERWRITE, "c")
    lake.whole(old).unlink()
    lake.whole(middle).unlink()
    assert look(lake) == [f"MISSING {old}"]


def test_strays_are_set_aside_and_not_deleted(lake: Warehouse, here: Run) -> None:
    lake.write(INSERT, "a")
    stray = lake.write_file("not/ours.parquet").path
    looked = here("fsck", "days")
    assert looked.code == 7
    assert looked.lines() == [f"STRAY {stray} bytes={lake.whole(stray).stat().st_size}", LAST.format(1, 1, 0)]
    moved = here("-o", "json", "fsck", "days", "--quarantine")
    assert moved.code == 7
    first, last = (json.loads(line) for line in moved.out.splitlines())
    assert first["finding"] == "STRAY"
    assert first["facts"]["moved_to"] == f"_quarantine/{stray}"
    assert last == {"files": 1, "findings": 1, "quarantined": 1}
    assert not lake.whole(stray).exists()
    assert lake.whole(f"_quarantine/{stray}").exists()
    assert here("fsck", "days").code == 0, "what was set aside is no finding"


LAST = "checked {} files: {} findings, {} quarantined"


def test_delete_sets_in_files_are_read(lake: Warehouse) -> None:
    (path,) = lake.write(INSERT, "a")
    entry = next(iter(lake.client.list_files(lake.table_id))).file
    hidden = BitMap64([entry.first_row_id])
    for number, raw in enumerate((hidden.serialize(), b"no bitmap")):
        client: MetaClient = lake.client
        intent = transaction_pb2.TableIntent(table_id=lake.table_id, operation=common_pb2.OPERATION_DELETE)
        with client.begin([intent]) as txn:
            name = f"{txn.txn_id}/0/set-{number}"
            lake.whole(name).parent.mkdir(parents=True)
            lake.whole(name).write_bytes(raw)
            row = entry.first_row_id
            kept = common_pb2.DeleteSet(
                path=name, rows=1, bytes=len(raw), row_id_min=row, row_id_max=row, touches=[path]
            )
            txn.register(lake.table_id, [], [kept])
            txn.commit([common_pb2.Change(table_id=lake.table_id)])
    (found,) = look(lake)
    assert found.startswith("FOOTER_UNREADABLE")
    assert found.endswith("set-1")


def test_a_finding_reads_as_a_line() -> None:
    assert str(Finding("SIZE_WRONG", "a/b", {"registered": 1, "found": 2})) == "SIZE_WRONG a/b registered=1 found=2"


def test_files_that_a_dead_executor_left_are_strays_once_they_can_not_be_adopted(lake: Warehouse, here: Run) -> None:
    (kept,) = lake.write(INSERT, "a")
    left = lake.write_file(f"{kept.partition('/')[0]}/0/{ATTEMPT}").path
    assert look(lake) == [], "the transaction has just ended"
    lake.pass_time(GRACE_MS, looks=20)
    assert look(lake) == [f"STRAY {left}"]
    assert here("fsck", "days", "--quarantine").code == 7
    assert lake.whole(f"_quarantine/{left}").exists()
    assert here("fsck", "days").code == 0
    assert lake.is_whole(kept)


def test_files_that_a_dead_executor_left_on_s3_are_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(tmp_path / "data", "--adopt-grace-ms", "0")
    with bucket(tmp_path / "s3") as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        try:
            with connect(f"laketx://{service.start()}", user="ana", warehouse=f"s3://{BUCKET}/files") as there:
                table = there.create_table("days", "id bigint", properties={"write.inline.rows": "0"})
                table.append([{"id": 1}])
                with MetaClient(service.address) as client:
                    found = client.get_table("days")
                    (entry,) = client.list_files(found.table_id)
                    folder = tmp_path / "s3" / "objects" / BUCKET / "files" / found.table_id
                    left = f"{entry.file.path.rpartition('/')[0]}/{ATTEMPT}"
                    shutil.copyfile(folder / entry.file.path, folder / left)
                    for set_aside in (False, True):
                        fsck = Fsck(client, f"s3://{BUCKET}/files", found, quarantine=set_aside)
                        assert [f"{one.word} {one.path}" for one in fsck.run()] == [f"STRAY {left}"]
                    assert list(Fsck(client, f"s3://{BUCKET}/files", found).run()) == []
                assert (folder / "_quarantine" / left).exists()
                assert table.to_arrow().to_pylist() == [{"id": 1}]
        finally:
            service.kill()
