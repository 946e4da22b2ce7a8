"""The mark of a warehouse: nothing is deleted, moved or confirmed as gone where it is not the service's."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from metaservice.cli import command_line
from metaservice.store.history import Warehouse as Noted
from metaservice.store.history import put_warehouse
from metaservice.store.port import Batch
from tests.integration.terminal import Ended
from tests.integration.warehouse import GRACE_MS, INSERT, OVERWRITE, Warehouse, warehouse
from worker.base.errors import InputError
from worker.files.warehouse import WarehouseMark, adopt, mark_where_proven, read_mark, write_mark
from worker.services.fsck import Fsck
from worker.services.purge import Purge

Run = Callable[..., Ended]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Warehouse]:
    with warehouse(tmp_path) as found:
        yield found


@pytest.fixture
def here(lake: Warehouse, capfd: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str, folder: Path = lake.folder) -> Ended:
        capfd.readouterr()
        environment = {"LAKETX_SERVER": lake.client_address, "LAKETX_WAREHOUSE": str(folder)}
        code = command_line.run(words, environment)
        said = capfd.readouterr()
        return Ended(code, said.out, said.err)

    return run


def mark_file(folder: Path) -> Path:
    return folder / "_laketx" / "warehouse.json"


def forget(lake: Warehouse) -> None:
    """As data of an earlier release is: no mark, and nothing noted."""
    mark_file(lake.folder).unlink()
    batch = Batch()
    put_warehouse(batch, Noted())
    lake.service.decider.call(lambda: lake.service.decider.state.batch.ops.extend(batch.ops))
    assert not lake.client.get_warehouse().location


def dead_and_swept(lake: Warehouse) -> list[str]:
    dead = lake.write(OVERWRITE, "a", "b")
    left = lake.abort()
    lake.write(OVERWRITE, "c")
    lake.pass_time(GRACE_MS, looks=20)
    return dead + left


def refused(lake: Warehouse, folder: Path, reason: str) -> None:
    dead = sorted(lake.client.list_purgeable(lake.table_id))
    before = lake.stored()
    table = lake.client.get_table("days")
    for job in (
        lambda: Purge(lake.client, str(folder)).run(),
        lambda: Purge(lake.client, str(folder), dry_run=True).run(),
        lambda: Purge(lake.client, str(folder)).run(lake.table_id),
        lambda: list(Fsck(lake.client, str(folder), table, quarantine=True).run()),
    ):
        with pytest.raises(InputError, match=reason):
            job()
    assert sorted(lake.client.list_purgeable(lake.table_id)) == dead, "nothing was confirmed as gone"
    assert any(page.folders for page in lake.client.list_sweepable())
    assert lake.stored() == before


def test_a_wrong_warehouse_is_refused_and_nothing_is_confirmed(lake: Warehouse, tmp_path: Path, here: Run) -> None:
    dead_and_swept(lake)
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "nowhere"):
        refused(lake, folder, "WAREHOUSE_UNMARKED")
        ended = here("purge", "run", "--yes", folder=folder)
        assert ended.code == 1
        assert "WAREHOUSE_UNMARKED" in ended.err
        assert str(lake.folder) in ended.err, "it says where the warehouse is"
    assert lake.purge().files == 2


def test_a_warehouse_without_its_mark_is_refused_until_an_operator_adopts_it(lake: Warehouse, here: Run) -> None:
    dead_and_swept(lake)
    mark_file(lake.folder).unlink()
    refused(lake, lake.folder, "WAREHOUSE_UNMARKED")
    mark_where_proven(lake.client, str(lake.folder))
    refused(lake, lake.folder, "WAREHOUSE_UNMARKED")
    assert here("warehouse", "show").code == 1
    assert here("warehouse", "adopt", "--dry-run").code == 0
    refused(lake, lake.folder, "WAREHOUSE_UNMARKED")
    assert here("warehouse", "adopt").code == 2, "nobody is there to be asked"
    assert here("warehouse", "adopt", "--yes").code == 0
    shown = here("-o", "json", "warehouse", "show")
    assert shown.code == 0
    said = json.loads(shown.out)
    assert said["reason"] == ""
    assert said["service"]["location"] == str(lake.folder)
    assert lake.purge().files == 2


def test_another_services_warehouse_is_refused(lake: Warehouse, tmp_path: Path, here: Run) -> None:
    dead_and_swept(lake)
    with warehouse(tmp_path / "other") as other:
        refused(lake, other.folder, "WAREHOUSE_FOREIGN")
        mark_where_proven(lake.client, str(other.folder))
        assert other.purge().failures == []
    for broken in ("", "[]", "{}", '{"service_id": 1', "\\x00"):
        mark_file(lake.folder).write_text(broken)
        refused(lake, lake.folder, "WAREHOUSE_FOREIGN")
    assert here("warehouse", "show").code == 1
    assert here("warehouse", "adopt", "--yes").code == 0
    assert lake.purge().files == 2


def test_a_history_that_was_restored_is_another_one(lake: Warehouse) -> None:
    """The one before may still be in use: only an operator knows."""
    dead_and_swept(lake)
    known = lake.client.get_warehouse()
    write_mark(str(lake.folder), WarehouseMark(known.service_id, "7-abc"))
    refused(lake, lake.folder, "WAREHOUSE_OF_OTHER_HISTORY")
    adopt(lake.client, str(lake.folder))
    assert lake.purge().files == 2


def test_the_first_writer_marks_a_warehouse_that_is_new(tmp_path: Path) -> None:
    with warehouse(tmp_path) as lake:
        forget(lake)
        mark_where_proven(lake.client, str(lake.folder))
        known = lake.client.get_warehouse()
        assert read_mark(str(lake.folder)) == WarehouseMark(known.service_id, known.history_epoch)
        assert (known.location, known.marked) == (str(lake.folder), True)
        mark_where_proven(lake.client, str(tmp_path / "second"))
        assert read_mark(str(tmp_path / "second")) is None, "a service has one warehouse"


def test_a_writer_marks_an_old_warehouse_where_all_that_it_looks_for_is_there(lake: Warehouse, tmp_path: Path) -> None:
    lake.write(INSERT, "a")
    lake.table_id = lake.create("more")
    lake.write(INSERT, "b")
    forget(lake)
    mark_where_proven(lake.client, str(tmp_path / "wrong"))
    assert read_mark(str(tmp_path / "wrong")) is None
    (tmp_path / "mixed").mkdir()
    (tmp_path / "mixed" / lake.table_id).symlink_to(lake.folder / lake.table_id)
    mark_where_proven(lake.client, str(tmp_path / "mixed"))
    assert read_mark(str(tmp_path / "mixed")) is None, "the other table's file is missing"
    assert not lake.client.get_warehouse().location
    mark_where_proven(lake.client, str(lake.folder))
    assert read_mark(str(lake.folder)) is not None
    assert lake.client.get_warehouse().marked


def test_a_writer_that_was_cut_off_is_followed_by_the_next(lake: Warehouse, tmp_path: Path) -> None:
    """Noted, and not marked yet; marked, and not noted."""
    lake.write(INSERT, "a")
    forget(lake)
    lake.client.set_warehouse(str(lake.folder))
    mark_where_proven(lake.client, str(tmp_path / "second"))
    assert read_mark(str(tmp_path / "second")) is None
    mark_where_proven(lake.client, str(lake.folder))
    assert lake.purge().failures == []
    mark = read_mark(str(lake.folder))
    assert mark is not None
    forget(lake)
    write_mark(str(lake.folder), mark)
    mark_where_proven(lake.client, str(lake.folder))
    assert lake.client.get_warehouse().marked


def test_a_warehouse_that_vanishes_under_a_purge_confirms_nothing(lake: Warehouse, tmp_path: Path) -> None:
    lake.write(OVERWRITE, "a")
    lake.write(OVERWRITE, "b")
    lake.pass_time()
    (dead,) = lake.client.list_purgeable(lake.table_id)
    purge = Purge(lake.client, str(lake.folder))
    listed = lake.client.list_purgeable_tables

    def unmount() -> Iterator[str]:
        found = list(listed())
        lake.folder.rename(tmp_path / "unmounted")
        yield from found

    lake.client.list_purgeable_tables = unmount  # type: ignore[method-assign,assignment]
    with pytest.raises(InputError, match="WAREHOUSE_UNMARKED"):
        purge.run()
    assert list(lake.client.list_purgeable(lake.table_id)) == [dead]
