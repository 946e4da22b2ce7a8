"""What the catalog generates of forks: in a folder of each, and gone with it. Files that a fork shows stay."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from protos.laketx.v1 import common_pb2
from tests.iceberg.readers import read_pyiceberg
from tests.integration.warehouse import GRACE_MS, HOUR_MS, INSERT, OVERWRITE, Warehouse, warehouse
from worker.connection.lake_connection import Connection
from worker.connection.table_view import TableView
from worker.iceberg.export import export
from worker.iceberg.rest.catalog import Catalog
from worker.iceberg.rest.listing import Listings
from worker.iceberg.rest.tables import Showing, Tables
from worker.iceberg.rest.warehouses import IcebergWarehouse as Shown
from worker.services.fsck import Fsck

FORKS = "_iceberg/forks"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Warehouse]:
    with warehouse(tmp_path) as made:
        yield made


class Reader:
    """A catalog's answers, in this process."""

    def __init__(self, lake: Warehouse) -> None:
        self.lake = Connection(lake.client, str(lake.folder), None)
        tables = Tables(Showing(), lambda: 0.0)
        self.main = Catalog(self.lake, tables, Listings(tables, lambda: 0.0), Shown(3), {})

    def metadata(self, branch: str = "", name: str = "days") -> Path:
        """The metadata file of a table, which is written by then."""
        _, loaded = self.main.of(Shown(3, branch)).load("default", name)
        return Path(loaded.location.removeprefix("file://"))

    def ids(self, branch: str = "", name: str = "days") -> list[int]:
        """The rows, as pyiceberg reads them by the metadata file and whatever that names."""
        return sorted(read_pyiceberg(f"file://{self.metadata(branch, name)}").column("id").to_pylist())


def generated(lake: Warehouse, below: str) -> set[str]:
    return {path for path in lake.stored() if path.startswith(below)}


def release(lake: Warehouse) -> None:
    """The time is over for which the catalog holds what it has given out."""
    for pin_id in {one.pin_id for one in lake.client.list_pins()}:
        lake.client.unpin(pin_id)


def insert_on(lake: Warehouse, branch: str, name: str) -> list[int]:
    """A commit on a branch; returns its rows."""
    fork = lake.client.get_table(f"days@{branch}")
    root, lake.table_id = lake.table_id, fork.table_id
    with lake.begin(INSERT) as txn:
        lake.table_id = root  # whose folder has the files
        file = lake.write_file(f"{txn.txn_id}/0/{name}.parquet")
        txn.register(fork.table_id, [file])
        txn.commit([common_pb2.Change(table_id=fork.table_id)])
    return lake.rows[file.path]


def rows_of(lake: Warehouse, *lists: list[int]) -> list[int]:
    return sorted(number for one in lists for number in one)


def test_each_fork_has_a_folder_of_its_own(lake: Warehouse) -> None:
    """Root and forks have the same versions with other rows, and none takes a file of another for its own."""
    [path] = lake.write(INSERT, "old")
    old, reader = lake.rows[path], Reader(lake)
    for name in ("a", "b"):
        lake.client.create_branch(name)
    fresh = {name: insert_on(lake, name, "same") for name in ("a", "b")}
    [path] = lake.write(INSERT, "same")
    fresh[""] = lake.rows[path]
    places = {name: reader.metadata(name) for name in fresh}
    forks = {name: lake.client.get_table(f"days@{name}").table_id for name in ("a", "b")}
    root = lake.folder / lake.table_id
    assert places[""].parent == root / "_iceberg/rest/metadata"
    for name, fork_id in forks.items():
        assert places[name].parent == root / FORKS / fork_id / "rest/metadata"
        named = {one["manifest-list"] for one in json.loads(places[name].read_text())["snapshots"]}
        assert all(f"/{FORKS}/{fork_id}/rest/metadata/" in one for one in named)
    for name, rows in fresh.items():
        assert reader.ids(name) == rows_of(lake, old, rows)
    assert len({json.loads(one.read_text())["table-uuid"] for one in places.values()}) == 3


def test_what_was_generated_of_a_fork_goes_with_it_and_nothing_else(lake: Warehouse) -> None:
    [path] = lake.write(INSERT, "old")
    reader = Reader(lake)
    for name in ("a", "b"):
        lake.client.create_branch(name)
        insert_on(lake, name, name)
    clone = lake.client.clone_table(lake.table_id, "copy")
    shown = {name: reader.ids(*name) for name in (("",), ("a",), ("b",), ("", "copy"))}
    fork = lake.client.get_table("days@a")
    place, place_of_a = f"{FORKS}/{fork.table_id}", reader.metadata("a")
    assert generated(lake, place)
    lake.client.drop_branch("a")
    for _ in range(2):
        lake.pass_time(HOUR_MS // 4, looks=20)
        assert lake.purge().failed == 0
    assert generated(lake, place), "the catalog holds what it has given out"
    assert read_pyiceberg(f"file://{place_of_a}").num_rows == len(shown["a",])
    release(lake)
    lake.pass_time(looks=20)
    before = lake.stored()
    lake.purge(dry_run=True)
    assert lake.stored() == before
    assert lake.purge().failed == 0
    gone = before - lake.stored()
    assert generated(lake, place) == set()
    assert not (lake.folder / lake.table_id / place).exists()
    assert {one for one in gone if not one.startswith(place)} == {one for one in before if one.endswith("/a.parquet")}
    del shown["a",]
    assert {name: reader.ids(*name) for name in shown} == shown
    assert generated(lake, f"{FORKS}/{clone.table_id}")
    assert path in lake.stored()


def test_what_was_generated_of_a_fork_long_ago_is_purged(lake: Warehouse) -> None:
    lake.write(INSERT, "old")
    lake.client.create_branch("a")
    fork, reader = lake.client.get_table("days@a"), Reader(lake)
    reader.metadata("a")
    files = sorted((lake.folder / lake.table_id / FORKS / fork.table_id / "rest/metadata").iterdir())
    for path in files[1:]:
        os.utime(path, (1, 1))
    lake.purge()
    assert [path for path in files if path.exists()] == files[:1]


def test_a_clone_s_files_are_purged_when_its_table_was_dropped(lake: Warehouse) -> None:
    """They lie in the folder of a table that is in no list any more."""
    lake.write(INSERT, "old")
    first, second = (lake.client.clone_table(lake.table_id, name) for name in ("first", "second"))
    reader, root = Reader(lake), lake.table_id
    rows = reader.ids(name="first")
    reader.metadata(name="second")
    lake.client.drop_table(root)
    for _ in range(2):
        lake.pass_time(GRACE_MS, looks=20)
        assert lake.purge().failed == 0
    assert reader.ids(name="first") == rows
    release(lake)
    lake.client.drop_table(second.table_id)
    lake.pass_time(GRACE_MS, looks=20)
    lake.purge()
    assert generated(lake, f"{FORKS}/{second.table_id}") == set()
    assert generated(lake, f"{FORKS}/{first.table_id}")
    assert reader.ids(name="first") == rows
    release(lake)
    lake.client.drop_table(first.table_id)
    for _ in range(3):
        lake.pass_time(GRACE_MS, looks=20)
        lake.purge()
    assert not (lake.folder / root).exists()


def test_files_of_a_fork_are_no_strays_and_no_damage(lake: Warehouse) -> None:
    lake.write(INSERT, "old")
    lake.client.create_branch("a")
    insert_on(lake, "a", "a")
    Reader(lake).metadata("a")
    for name in ("days", "days@a"):
        table = lake.client.get_table(name)
        assert [*map(str, Fsck(lake.client, str(lake.folder), table, all_versions=True).run())] == []


def test_exports_of_forks_have_folders_of_their_own(lake: Warehouse) -> None:
    [path] = lake.write(INSERT, "old")
    reader = Reader(lake)
    lake.client.create_branch("a")
    fresh = insert_on(lake, "a", "a")
    views = {name: TableView(reader.lake, lake.client.get_table(name)) for name in ("days", "days@a")}
    done = {name: export(view, view.meta.head_version).metadata for name, view in views.items()}
    assert f"/{FORKS}/{views['days@a'].table_id}/metadata/" in done["days@a"]
    rows = {name: sorted(read_pyiceberg(one).column("id").to_pylist()) for name, one in done.items()}
    assert rows == {"days": lake.rows[path], "days@a": rows_of(lake, lake.rows[path], fresh)}


def test_a_file_that_a_branch_shows_outlives_main_s(lake: Warehouse) -> None:
    [path] = lake.write(INSERT, "old")
    reader, rows = Reader(lake), lake.rows[path]
    lake.client.create_branch("a")
    assert reader.ids("a") == rows
    lake.write(OVERWRITE, "new")
    for _ in range(3):
        lake.pass_time(GRACE_MS, looks=20)
        assert lake.purge().failed == 0
    assert path in lake.stored()
    assert reader.ids("a") == rows
