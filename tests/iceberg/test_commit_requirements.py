"""What Iceberg's clients require of a table is decided together with their commit: nobody's rows come twice or go."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from laketx import Lake, Table
from metaservice.client import MetaServiceError, StaleError
from protos.laketx.v1 import common_pb2, transaction_pb2
from tests.iceberg.servers import Server, catalog_of, served_folder
from tests.iceberg.writers import Ducks, appended, error_of, head, ids, made, numbers, prepared

exceptions = pytest.importorskip("pyiceberg.exceptions", reason="pyiceberg is not installed")
MOVED: Final = (409, "CommitFailedException")
PATIENT: Final = {"commit.retry.num-retries": "100", "commit.retry.min-wait-ms": "5", "commit.retry.max-wait-ms": "50"}


# -- the snapshot that a client began at -------------------------------------------------------------------------------


def test_an_append_from_an_older_snapshot_lands_after_a_reload_alone(lake: Lake, server: Server) -> None:
    theirs = made(server, "older")
    request = appended(theirs, numbers([2]))
    theirs.append(numbers([1]))
    status, kind, said = error_of(request.send(server))
    assert (status, kind) == MOVED
    assert "load the table again" in said
    ours = lake.table("shop.older")
    assert (ids(ours), head(ours)) == ([1], 1)
    again = appended(theirs, numbers([2]))
    assert [again.send(server).status_code, again.send(server).status_code] == [200, 200]
    assert (ids(ours.refresh()), head(ours)) == ([1, 2], 2)


def test_a_repeat_of_an_append_gets_its_answer_after_the_table_moved(lake: Lake, server: Server, folder: Path) -> None:
    theirs = made(server, "moved_on")
    request = appended(theirs, numbers([1]))
    with served_folder(folder) as other:
        assert request.send(server).status_code == 200
        theirs.refresh().append(numbers([2]))
        lake.table("shop.moved_on").delete("id = 2")
        assert [request.send(each).status_code for each in (server, other)] == [200, 200]
    assert ids(lake.table("shop.moved_on")) == [1]


def compacted(table: Table) -> None:
    """A compaction that writes one file anew."""
    client, folder = table.view.client, Path(table.view.folder)
    before = next(one.file for one in client.list_files(table.table_id))
    intent = transaction_pb2.TableIntent(table_id=table.table_id, operation=common_pb2.OPERATION_MINOR_COMPACT)
    with client.begin([intent]) as txn:
        after = common_pb2.DataFile(path=f"{txn.txn_id}/whole.parquet", rows=before.rows, bytes=before.bytes)
        (folder / txn.txn_id).mkdir()
        shutil.copy(folder / before.path, folder / after.path)
        group = common_pb2.CompactionGroup(inputs=[before.path], outputs=[after.path])
        txn.commit([common_pb2.Change(table_id=table.table_id, files=[after], groups=[group])])


def commented(table: Table) -> None:
    table.view.client.alter_table(table.table_id, common_pb2.Alteration(comment="new"))


def nothing_updated(table: Table) -> None:
    table.delete("id = 99")


@pytest.mark.parametrize("between", [compacted, commented, nothing_updated])
@pytest.mark.parametrize("profile", ["maxcompute", "delta_serializable"])
def test_what_changed_no_row_moves_no_append(
    lake: Lake, server: Server, between: Callable[[Table], None], profile: str
) -> None:
    name = f"{between.__name__}_{profile}"
    ours = lake.create_table(f"shop.{name}", "id bigint, note string", profile=profile)
    theirs = catalog_of(server, 2).load_table(f"shop.{name}")
    for number in range(3):
        theirs.append(numbers([number]))
    request = appended(theirs.refresh(), numbers([7]))
    before = head(ours)
    between(ours.refresh())
    assert head(ours) > before
    assert request.send(server).status_code == 200
    assert ids(ours.refresh()) == [0, 1, 2, 7]


def test_a_requirement_of_a_snapshot_that_never_was(lake: Lake, server: Server) -> None:
    theirs = made(server, "never")
    for number in (None, 0, 99):
        request = appended(theirs, numbers([1]))
        [required] = [one for one in request.body["requirements"] if one["type"] == "assert-ref-snapshot-id"]
        required["snapshot-id"] = number
        assert error_of(request.send(server))[:2] == MOVED
    assert head(lake.table("shop.never")) == 0


@pytest.mark.long
def test_one_of_many_appends_from_one_snapshot_lands(lake: Lake, server: Server, folder: Path) -> None:
    """The snapshot is judged with the commit, and not before it."""
    made(server, "at_once")
    with served_folder(folder) as other, ThreadPoolExecutor(8) as pool:
        for round_ in range(4):
            theirs = [catalog_of(server, 2).load_table("shop.at_once") for _ in range(8)]
            requests = [appended(one, numbers([10 * round_ + at])) for at, one in enumerate(theirs)]
            answers = list(pool.map(lambda one: one[0].send(one[1]), zip(requests, [server, other] * 4, strict=True)))
            assert sorted(one.status_code for one in answers) == [200] + [409] * 7
    ours = lake.table("shop.at_once")
    assert (len(ids(ours)), head(ours)) == (4, 4)


def test_appends_are_rebased_where_the_table_says_so(lake: Lake, server: Server) -> None:
    theirs = made(server, "rebased", properties={"iceberg.append_rebase": "true"})
    assert theirs.properties["iceberg.append_rebase"] == "true"
    requests = [appended(theirs, numbers([number])) for number in range(3)]
    for request in [*requests, *requests]:
        assert request.send(server).status_code == 200
    ours = lake.table("shop.rebased")
    assert (ids(ours), head(ours), ours.meta.properties["iceberg.append_rebase"]) == ([0, 1, 2], 3, "true")
    request = appended(theirs.refresh(), numbers([4]))
    with theirs.transaction() as transaction:
        transaction.remove_properties("iceberg.append_rebase")
    ours.delete("id = 2")
    assert error_of(request.send(server))[:2] == MOVED


def test_the_service_refuses_what_depends_on_other_rows(lake: Lake) -> None:
    ours = lake.create_table("shop.plain_service", "id bigint, note string")
    ours.append([{"id": 1, "note": "a"}])
    client, files = ours.view.client, list[common_pb2.DataFile]()
    with pytest.raises(StaleError, match="ROWS_CHANGED") as refused:
        client.append(ours.table_id, files, unchanged_since=0)
    assert (refused.value.facts["since"], refused.value.facts["version"]) == ("0", "1")
    with pytest.raises(MetaServiceError, match="READ_VERSION_IN_FUTURE"):
        client.append(ours.table_id, files, unchanged_since=2)
    assert client.append(ours.table_id, files, unchanged_since=1).tables[0].version == 2
    intent = transaction_pb2.TableIntent(table_id=ours.table_id, operation=common_pb2.OPERATION_INSERT)
    with client.begin([intent]) as txn, pytest.raises(StaleError, match="ROWS_CHANGED"):
        txn.commit([common_pb2.Change(table_id=ours.table_id, unchanged_since=0)])
    assert head(ours) == 2


# -- clients that try again --------------------------------------------------------------------------------------------


def test_an_overwrite_that_matched_nothing_comes_once(lake: Lake, server: Server) -> None:
    """The usual daily job, run twice at once: pyiceberg sees the rows of the other when it tries again."""
    made(server, "daily", properties=PATIENT)
    writers = [catalog_of(server, 2).load_table("shop.daily") for _ in range(2)]
    jobs = []
    for theirs in writers:
        job = theirs.transaction()
        job.overwrite(numbers([1, 2]), overwrite_filter="id = 1")
        jobs.append(job)
    jobs[0].commit_transaction()
    with pytest.raises((exceptions.ValidationException, exceptions.CommitFailedException)):
        jobs[1].commit_transaction()
    assert ids(lake.table("shop.daily")) == [1, 2]


def test_appends_by_pyiceberg_try_again_and_none_is_lost(lake: Lake, server: Server, folder: Path) -> None:
    made(server, "patient", properties=PATIENT)

    def write(number: int, where: Server) -> None:
        table = catalog_of(where, 2).load_table("shop.patient")
        for at in range(4):
            table.append(numbers([100 * number + at]))

    with (
        served_folder(folder, "--snapshots", "50") as one_server,
        served_folder(folder, "--snapshots", "50") as other,
        ThreadPoolExecutor(4) as pool,
    ):
        for one in [pool.submit(write, number, (one_server, other)[number % 2]) for number in range(4)]:
            one.result()
    ours = lake.table("shop.patient")
    assert (ids(ours), head(ours)) == (sorted(100 * number + at for number in range(4) for at in range(4)), 16)
    paths = [one.file.path for one in ours.view.client.list_files(ours.table_id)]
    stored = [path for path in Path(ours.view.folder).rglob("*.parquet") if path.is_file()]
    assert len(stored) == len(paths), "a file that is sent again is not copied"


@pytest.mark.parametrize("by", ["laketx", "duckdb 2", "duckdb 3"])
def test_a_deleted_row_stays_deleted_beside_a_rewrite_of_its_file(
    lake: Lake, server: Server, ducks: Ducks, by: str
) -> None:
    """pyiceberg rewrites a file without one row; meanwhile somebody hides another row of it."""
    name = f"rewritten_{by.replace(' ', '_')}"
    theirs = made(server, name, properties=PATIENT)
    theirs.append(numbers([1, 2, 3]))
    job = theirs.refresh().transaction()
    job.delete("id = 2")
    if by == "laketx":
        lake.table(f"shop.{name}").delete("id = 3")
    else:
        ducks[int(by[-1])].execute(f"DELETE FROM lake.shop.{name} WHERE id = 3")
    with pytest.raises((exceptions.ValidationException, exceptions.CommitFailedException)):
        job.commit_transaction()
    assert ids(lake.table(f"shop.{name}")) == [1, 2]


def test_a_rewrite_of_a_file_that_was_dirty_before_is_taken(lake: Lake, server: Server, ducks: Ducks) -> None:
    theirs = made(server, "dirty_before")
    theirs.append(numbers([1, 2, 3, 4]))
    ducks[2].execute("DELETE FROM lake.shop.dirty_before WHERE id = 3")
    request = prepared(theirs.refresh(), lambda transaction: transaction.delete("id = 2"))
    assert request.send(server).status_code == 200
    assert ids(lake.table("shop.dirty_before")) == [1, 4]


def test_a_restored_row_stays_beside_a_rewrite_of_its_file(lake: Lake, server: Server) -> None:
    theirs = made(server, "brought_back", properties=PATIENT)
    theirs.append(numbers([1, 2, 3]))
    ours = lake.table("shop.brought_back")
    ours.delete("id = 3")
    job = theirs.refresh().transaction()
    job.delete("id = 2")
    restore(ours.refresh(), 1)
    with pytest.raises((exceptions.ValidationException, exceptions.CommitFailedException)):
        job.commit_transaction()
    assert ids(lake.table("shop.brought_back")) == [1, 2, 3]


def restore(table: Table, version: int) -> None:
    intent = transaction_pb2.TableIntent(table_id=table.table_id, operation=common_pb2.OPERATION_RESTORE)
    with table.view.client.begin([intent]) as txn:
        change = common_pb2.Change(table_id=table.table_id, restore_version=version)
        change.scope.all = True
        txn.commit([change])
