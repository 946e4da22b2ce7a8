"""What a snapshot lists as removed, and files of inlined rows that stay: by these, clients can try a commit again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from laketx import Lake
from tests.iceberg.servers import Server, catalog_of, served_folder
from tests.iceberg.writers import SCHEMA, Ducks, ids, made, numbers
from tests.races.compactions import Compactions
from tests.races.statements import TARGETS, Kind
from tests.races.statements import statements as listed
from worker.iceberg.commits.properties import RETRIES, kept_properties, repeats_appends

exceptions = pytest.importorskip("pyiceberg.exceptions", reason="pyiceberg is not installed")
ADDED, DELETED = 1, 2
DATA: Final = 0
FEW: Final = {"write.inline.rows": "0"}
MINOR: Final = next(one for one in listed(TARGETS["same row"][0]) if one.kind is Kind.MINOR)


@pytest.fixture(scope="module")
def snapshots() -> int:
    return 100


def entries(table: Any, snapshot: Any) -> Iterator[tuple[Any, Any]]:
    """The entries of the manifests of a snapshot, with their manifest."""
    for manifest in snapshot.manifests(table.io):
        for one in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
            yield manifest, one


def live(table: Any, snapshot: Any) -> Mapping[str, int]:
    """The rows of the live files by their paths."""
    found = [one for _, one in entries(table, snapshot) if one.status != DELETED]
    paths = [one.data_file.file_path for one in found]
    assert len(paths) == len(set(paths))
    return {one.data_file.file_path: one.data_file.record_count for one in found}


def removed(table: Any, snapshot: Any) -> set[str]:
    """What the snapshot lists as removed, each with its own ids and numbers."""
    found = set()
    for manifest, one in entries(table, snapshot):
        if one.status == DELETED:
            assert manifest.added_snapshot_id == one.snapshot_id == snapshot.snapshot_id
            assert manifest.sequence_number == snapshot.sequence_number
            assert one.file_sequence_number < snapshot.sequence_number
            assert not manifest.has_added_files()
            assert not manifest.has_existing_files()
            found.add(one.data_file.file_path)
        else:
            assert manifest.deleted_files_count == 0
    return found


def check_history(table: Any) -> list[str]:
    """Each file of a snapshot is in the next one or listed there as removed, and added once. Returns the operations."""
    known = table.snapshots()
    manifests = {one.manifest_path: one for snapshot in known for one in snapshot.manifests(table.io)}.values()
    added = [
        (one.data_file.file_path, one.snapshot_id)
        for manifest in manifests
        for one in manifest.fetch_manifest_entry(table.io)
        if one.status == ADDED and one.data_file.content == DATA
    ]
    assert len(added) == len(set(added))
    for before, now in pairwise(known):
        assert now.parent_snapshot_id == before.snapshot_id
        old, new = live(table, before), live(table, now)
        assert removed(table, now) == old.keys() - new.keys()
        assert all(new[path] == rows for path, rows in old.items() if path in new)
        if old.keys() - new.keys():
            assert now.summary.operation.value != "append"
    return [one.summary.operation.value for one in known]


def compact(lake: Lake, name: str) -> None:
    Compactions(lake).run(MINOR, name, "fail")


@pytest.mark.parametrize(
    ("form", "properties"),
    [
        pytest.param(2, FEW, id="2-files", marks=pytest.mark.long),
        pytest.param(3, {}, id="3-inlined"),
        pytest.param(2, {}, id="2-inlined", marks=pytest.mark.long),
        pytest.param(3, FEW, id="3-files", marks=pytest.mark.long),
    ],
)
def test_what_goes_is_listed(
    lake: Lake, server: Server, ducks: Ducks, folder: Path, form: int, properties: Mapping[str, str]
) -> None:
    name = f"goes_{form}_{len(properties)}"
    ours = lake.create_table(f"shop.{name}", "id bigint, day string", partition_by=["day"], properties=properties)
    rows = [{"id": number, "day": "ab"[number % 2]} for number in range(8)]
    theirs = catalog_of(server, form).load_table(f"shop.{name}")
    for at in range(0, 8, 2):
        ours.append(rows[at : at + 2])
    ours.delete("id = 0")
    theirs.refresh()  # some snapshots are made as they come, and others later
    ours.delete("id = 2")
    ours.delete("id = 4")
    ours.truncate(partition={"day": "b"})
    ours.append([{"id": 9, "day": "b"}])
    compact(lake, f"shop.{name}")
    ours.refresh().overwrite([{"id": 10, "day": "a"}])
    ours.append([{"id": 11, "day": "c"}])
    operations = check_history(theirs.refresh())
    said = ["append"] * 5 + ["delete"] * 4 + ["append", "replace", "overwrite", "append"]
    assert operations == said
    assert ducks[form].execute(f"SELECT id FROM lake.shop.{name} ORDER BY id").fetchall() == [(10,), (11,)]
    ducks[form].execute(f"DELETE FROM lake.shop.{name} WHERE id = 10")
    ducks[form].execute(f"INSERT INTO lake.shop.{name} VALUES (12, 'a')")
    assert ids(ours.refresh()) == [11, 12]
    check_history(theirs.refresh())
    with served_folder(folder, "--snapshots", "100") as other:
        again = catalog_of(other, form).load_table(f"shop.{name}")
        check_history(again)
        assert [one.manifest_list for one in again.snapshots()] == [one.manifest_list for one in theirs.snapshots()]


def test_files_of_inlined_rows_stay(lake: Lake, server: Server) -> None:
    """Until so many have come that they become one."""
    ours = lake.create_table("shop.stays", "id bigint, note string")
    theirs = catalog_of(server, 2).load_table("shop.stays")
    for number in range(70):
        ours.append([{"id": number, "note": f"n{number}"}])
        if number % 10 == 5:
            ours.delete(f"id = {number - 2}")
    ours.delete("id = 1")  # in a file of many commits
    operations = check_history(theirs.refresh())
    data = [{path for path in live(theirs, one) if "/data/" in path} for one in theirs.snapshots()]
    assert max(map(len, data)) <= 32
    assert operations.count("overwrite") == 2
    assert data[-1] == data[-2], "a delete changes no file of rows"
    assert sorted(theirs.scan().to_arrow().column("id").to_pylist()) == ids(ours.refresh())


def test_the_oldest_snapshot_has_no_parent(lake: Lake, folder: Path) -> None:
    ours = lake.create_table("shop.oldest", "id bigint, note string")
    for number in range(4):
        ours.append([{"id": number, "note": "n"}])
    lake.client.create_tag(ours.table_id, "first", version=1)
    with served_folder(folder, "--snapshots", "1") as other:
        theirs = catalog_of(other, 2).load_table("shop.oldest")
        assert [(one.snapshot_id, one.parent_snapshot_id) for one in theirs.snapshots()] == [
            (2, None),
            (4, None),
            (5, 4),
        ]


# -- second tries ------------------------------------------------------------------------------------------------------


def test_a_truncate_is_not_undone(lake: Lake, server: Server) -> None:
    theirs = made(server, "truncated")
    theirs.append(numbers([1, 2]))
    assert "commit.retry.num-retries" not in theirs.refresh().properties
    rows = theirs.scan().to_arrow()
    lake.table("shop.truncated").truncate()
    with pytest.raises(exceptions.ValidationException, match="Deleted data files were found"):
        theirs.overwrite(rows)
    assert ids(lake.table("shop.truncated")) == []


@pytest.mark.parametrize("properties", [FEW, {}], ids=["files", "inlined"])
def test_rows_of_a_compacted_file_come_once(lake: Lake, server: Server, properties: Mapping[str, str]) -> None:
    name = f"shop.compacted_{len(properties)}"
    ours = lake.create_table(name, "id bigint, note string", properties=properties)
    for number in range(3):
        ours.append([{"id": number, "note": "n"}])
    job = catalog_of(server, 2).load_table(name).transaction()
    job.overwrite(numbers([1]).cast(SCHEMA), overwrite_filter="id = 1")
    ours.append([{"id": 7, "note": "n"}])
    compact(lake, name)
    with pytest.raises(exceptions.ValidationException):
        job.commit_transaction()
    assert ids(ours.refresh()) == [0, 1, 2, 7]


def test_rows_of_files_that_became_one_come_once(lake: Lake, server: Server) -> None:
    """So many commits of inlined rows are shown in one file, and with one less each has its own."""
    ours = lake.create_table("shop.became_one", "id bigint, note string")
    for number in range(30):
        ours.append([{"id": number, "note": "n"}])
    job = catalog_of(server, 2).load_table("shop.became_one").transaction()
    job.overwrite(numbers([1]), overwrite_filter="id = 1")
    ours.append([{"id": 30, "note": "n"}])
    with pytest.raises(exceptions.ValidationException):
        job.commit_transaction()
    theirs = catalog_of(server, 2).load_table("shop.became_one")
    assert len(live(theirs, theirs.current_snapshot())) == 1
    assert ids(ours.refresh()) == [*range(31)]


@pytest.mark.parametrize("properties", [FEW, {}], ids=["files", "inlined"])
def test_a_change_of_other_rows_is_tried_again(lake: Lake, server: Server, properties: Mapping[str, str]) -> None:
    """Statistics say that what came meanwhile has none of the rows."""
    name = f"shop.other_rows_{len(properties)}"
    ours = lake.create_table(name, "id bigint, note string", properties=properties)
    ours.append([{"id": 1, "note": "n"}])
    ours.append([{"id": 2, "note": "n"}, {"id": 3, "note": "n"}])
    catalog = catalog_of(server, 2)
    jobs = [catalog.load_table(name).transaction() for _ in range(2)]
    jobs[0].delete("id = 2")
    jobs[1].overwrite(numbers([1]), overwrite_filter="id = 1")
    ours.append([{"id": 20, "note": "n"}])
    for job in jobs:
        job.commit_transaction()
        ours.append([{"id": 21, "note": "n"}])
    assert ids(ours.refresh()) == [1, 3, 20, 21, 21]
    check_history(catalog.load_table(name))


@pytest.mark.parametrize("old", [[], [1]], ids=["all new", "some new"])
def test_new_rows_of_an_upsert_come_once(lake: Lake, server: Server, old: list[int]) -> None:
    """pyiceberg doesn't look for rows that came meanwhile when it tries again."""
    name = f"upserted_{len(old)}"
    theirs = made(server, name)
    theirs.append(numbers([0, *old]))
    jobs = [catalog_of(server, 2).load_table(f"shop.{name}").transaction() for _ in range(2)]
    for job in jobs:
        rows = numbers([1, 2])
        job.upsert(rows.set_column(1, "note", [["new", "new"]]), join_cols=["id"])
    jobs[0].commit_transaction()
    with pytest.raises((exceptions.ValidationException, exceptions.CommitFailedException)):
        jobs[1].commit_transaction()
    assert ids(lake.table(f"shop.{name}")) == [0, 1, 2]


def test_an_append_is_tried_again_where_the_table_says_so(lake: Lake, server: Server) -> None:
    theirs = made(server, "appended", properties={"commit.retry.num-retries": "3"})
    others = catalog_of(server, 2).load_table("shop.appended")
    theirs.append(numbers([1]))
    others.append(numbers([2]))
    assert ids(lake.table("shop.appended")) == [1, 2]


@pytest.mark.parametrize(("retries", "repeats"), [(None, False), ("0", False), ("4", True)])
def test_retries_of_a_table_allow_a_second_try(retries: str | None, repeats: bool) -> None:
    assert repeats_appends({} if retries is None else kept_properties({RETRIES: retries})) == repeats
