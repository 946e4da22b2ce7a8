"""Deletes, updates, merges and overwrites by Iceberg's clients: they change the rows that they mean, and no others."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laketx import Lake
from tests.iceberg.forged import Forged, path_of, read_avro, rewrite, write_avro
from tests.iceberg.servers import Server, catalog_of, served_folder
from tests.iceberg.writers import Ducks, Request, appended, attached, error_of, head, ids, made, numbers, prepared

exceptions = pytest.importorskip("pyiceberg.exceptions", reason="pyiceberg is not installed")


# -- what a change is --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["maxcompute", "delta_serializable", "delta_write_serializable", "row_level"])
def test_a_delete_is_an_ordinary_commit(lake: Lake, server: Server, profile: str) -> None:
    ours = lake.create_table(f"shop.as_{profile}", "id bigint, note string", profile=profile)
    theirs = catalog_of(server, 2).load_table(f"shop.as_{profile}")
    theirs.append(numbers([1, 2, 3]))
    theirs.delete("id = 2")
    theirs.delete("id > 0")
    kinds = [(one.operation, one.rows_added) for one in ours.history(4)]
    assert kinds == [("DELETE", 0), ("MERGE", 2), ("INSERT", 3), ("CREATE", 0)]
    assert ids(ours.refresh()) == []
    assert ids_at(ours, 1) == [1, 2, 3]


def ids_at(table: Any, version: int) -> list[int]:
    return sorted(table.to_arrow(version=version).column("id").to_pylist())


def test_updated_rows_keep_their_ids(lake: Lake, ducks: Ducks) -> None:
    """In format 3, where clients say which row is which."""
    ours = lake.create_table("shop.lineage", "id bigint, note string")
    ducks[3].execute("INSERT INTO lake.shop.lineage VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    before = row_ids(ours)
    ducks[3].execute("UPDATE lake.shop.lineage SET note = 'z' WHERE id = 2")
    ducks[3].execute("DELETE FROM lake.shop.lineage WHERE id = 1")
    ducks[3].execute("UPDATE lake.shop.lineage SET note = 'y'")
    after = row_ids(ours)
    assert after == {one: before[one] for one in (2, 3)}
    assert ours.refresh().to_arrow().column("note").to_pylist() == ["y", "y"]


def row_ids(table: Any) -> dict[int, int]:
    """By the column `id`, from the files themselves."""
    view, found = table.refresh().view, {}
    for one in view.client.list_files(view.table_id):
        if one.file.rows:
            rows = pq.read_table(f"{view.folder}/{one.file.path}").to_pylist()
            for at, row in enumerate(rows):
                kept = row.get("_row_id") if one.file.carries_row_ids else None
                found[row["id"]] = one.file.first_row_id + at if kept is None else kept
    return {one: found[one] for one in ids(table)}


def test_a_row_that_moves_to_another_partition(lake: Lake, ducks: Ducks) -> None:
    ours = lake.create_table("shop.moved", "id bigint, part int", partition_by=["part"])
    ours.append([{"id": 1, "part": 1}, {"id": 2, "part": 2}])
    with pytest.raises(duckdb.Error, match="in format 2"):
        ducks[3].execute("UPDATE lake.shop.moved SET part = 2 WHERE id = 1")
    assert sorted(ours.refresh().to_arrow(where="part = 2").column("id").to_pylist()) == [2]
    ducks[2].execute("UPDATE lake.shop.moved SET part = 2 WHERE id = 1")
    assert sorted(ours.refresh().to_arrow(where="part = 2").column("id").to_pylist()) == [1, 2]


def test_partitions_by_decimals(lake: Lake, ducks: Ducks) -> None:
    """1.50 is 1.5, whoever writes it."""
    ours = lake.create_table("shop.priced", "id bigint, note string, price decimal(4,2)", partition_by=["price"])
    ours.append([{"id": one, "note": "a", "price": Decimal("1.50")} for one in (1, 2, 3)])
    ducks[3].execute("UPDATE lake.shop.priced SET note = 'b' WHERE id = 2")
    ducks[3].execute("UPDATE lake.shop.priced SET note = 'c' WHERE id > 1")
    ducks[2].execute("DELETE FROM lake.shop.priced WHERE id = 1")
    rows = ours.refresh().to_arrow(where="price = 1.5")
    assert sorted(zip(rows["id"].to_pylist(), rows["note"].to_pylist(), strict=True)) == [(2, "c"), (3, "c")]


def test_imported_rows(lake: Lake, server: Server, ducks: Ducks, tmp_path: Path) -> None:
    """Their files stay as they are, and nothing is left beside them."""
    pq.write_table(numbers(list(range(9))), tmp_path / "a.parquet")
    lake.import_parquet(tmp_path, "shop.imported")
    catalog_of(server, 2).load_table("shop.imported").delete("id = 3")
    ours = lake.table("shop.imported")
    ours.delete("id = 4")
    assert ids(ours.refresh()) == [0, 1, 2, 5, 6, 7, 8]
    lake.import_parquet(tmp_path, "shop.taken_in")
    for form in (2, 3):
        with pytest.raises(duckdb.Error, match="as imported files do"):
            ducks[form].execute("DELETE FROM lake.shop.taken_in WHERE id = 5")
    assert ids(lake.table("shop.taken_in")) == list(range(9))
    assert [one.name for one in tmp_path.iterdir()] == ["a.parquet"]


def test_many_deletes_go_to_a_file(lake: Lake, server: Server) -> None:
    """A delete set beyond what a commit holds; every second row of many, and then all."""
    count = 2_500_000
    ours = lake.create_table("shop.many_gone", "id bigint")
    ours.append(pa.table({"id": pa.array(range(count), pa.int64())}))
    with attached(server, 3) as connection:
        connection.execute("DELETE FROM lake.shop.many_gone WHERE hash(id) % 2 = 0")
        left = connection.execute("SELECT count(*) FROM lake.shop.many_gone").fetchall()[0][0]
    assert 0 < left < count
    assert ours.refresh().to_arrow().num_rows == left
    sets = [one.delete_set for one in ours.view.client.list_files(ours.table_id) if one.HasField("delete_set")]
    assert [bool(one.bytes) for one in sets] == [True]
    catalog_of(server, 2).load_table("shop.many_gone").delete()
    assert ours.refresh().to_arrow().num_rows == 0


# -- once each, and from the newest snapshot ---------------------------------------------------------------------------


def test_a_repeated_change_gets_the_first_answer(lake: Lake, server: Server, folder: Path) -> None:
    theirs = made(server, "changed_again")
    theirs.append(numbers([1, 2, 3]))
    request = prepared(theirs.refresh(), lambda transaction: transaction.delete("id = 2"))
    with served_folder(folder) as other, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(request.send, [server, other] * 4))
    assert {one.status_code for one in answers} <= {200, 409}, "who comes at the same moment may be told to try again"
    assert request.send(server).status_code == 200
    ours = lake.table("shop.changed_again")
    assert (ids(ours), head(ours)) == ([1, 3], 2)
    theirs.refresh().append(numbers([2]))
    assert request.send(server).status_code == 200, "also later"
    assert ids(lake.table("shop.changed_again")) == [1, 2, 3]


def test_a_change_of_an_older_snapshot_is_refused(lake: Lake, server: Server) -> None:
    theirs = made(server, "older")
    theirs.append(numbers([1, 2]))
    request = prepared(theirs.refresh(), lambda transaction: transaction.delete("id = 2"))
    ours = lake.table("shop.older")
    ours.append([{"id": 3, "note": "n3"}])
    status, kind, said = error_of(request.send(server))
    assert (status, kind) == (409, "CommitFailedException")
    assert "load shop." in said
    request.body["requirements"] = []
    assert request.send(server).status_code == 409, "its parent says so too"
    assert ids(ours.refresh()) == [1, 2, 3]


@pytest.mark.parametrize("condition", ["id = 2", "id < 10"])
def test_pyiceberg_tries_again_where_the_table_says_so(lake: Lake, server: Server, condition: str) -> None:
    """From the newest snapshot, with what it has written."""
    name = f"again_{len(condition)}"
    theirs = made(server, name, properties={"commit.retry.num-retries": "4"})
    theirs.append(numbers([1, 2]))
    theirs.refresh()
    ours = lake.table(f"shop.{name}")
    ours.append([{"id": 13, "note": "n13"}])
    theirs.delete(condition)
    assert ids(ours.refresh()) == ([1, 13] if condition == "id = 2" else [13])


def test_writers_of_one_table_lose_nothing(lake: Lake, server: Server, folder: Path) -> None:
    """Each changes rows of its own, as often as it is told to try again."""
    theirs = made(server, "crowd")
    theirs.append(numbers(list(range(40))))
    lost = (exceptions.CommitFailedException, exceptions.ValidationException)

    def write(number: int, where: Server) -> None:
        for at in range(number, 40, 4)[:5]:
            for _ in range(100):
                table = catalog_of(where, 2).load_table("shop.crowd")
                try:
                    if at % 2:
                        table.delete(f"id = {at}")
                    else:
                        table.overwrite(numbers([100 + at]), overwrite_filter=f"id = {at}")
                    break
                except lost:
                    continue
            else:
                raise AssertionError("it was never its turn")

    with served_folder(folder) as other, ThreadPoolExecutor(4) as pool:
        for one in [pool.submit(write, number, (server, other)[number % 2]) for number in range(4)]:
            one.result()
    changed = [at for number in range(4) for at in range(number, 40, 4)[:5]]
    left = [one for one in range(40) if one not in changed] + [100 + one for one in changed if one % 2 == 0]
    ours = lake.table("shop.crowd")
    assert ids(ours) == sorted(left)
    assert head(ours) == 1 + len(changed)


# -- refusals ----------------------------------------------------------------------------------------------------------


def of_another_file(entries: list[Any]) -> None:
    for one in entries:
        if one["status"] == 2:
            one["data_file"]["file_path"] += ".other"


def encrypted(entries: list[Any]) -> None:
    for one in entries:
        one["data_file"]["key_metadata"] = b"k"


def say_replace(request: Request) -> None:
    for one in request.body["updates"]:
        if one["action"] == "add-snapshot":
            one["snapshot"]["summary"]["operation"] = "replace"


def add_property(request: Request) -> None:
    request.body["updates"].append({"action": "set-properties", "updates": {"a": "b"}})


@pytest.mark.parametrize(
    ("forge", "said"),
    [
        (Forged.leave_out, "by what it adds"),
        (lambda one: one.entries(of_another_file), "no file of the newest snapshot"),
        (lambda one: one.entries(encrypted), "is encrypted"),
        (lambda one: one.hide("file:///elsewhere.parquet", [0]), "no file of the newest snapshot"),
        (lambda one: one.hide(one.kept_file(), [0, 7]), "its row 7 is deleted"),
        (lambda one: one.hide(one.kept_file(), [0], content=2), "deletes rows by their values"),
        (lambda one: say_replace(one.request), "the operation replace"),
        (lambda one: add_property(one.request), "make two commits"),
    ],
    ids=["a file left out", "another file", "encrypted", "elsewhere", "beyond the end", "by values", "replace", "more"],
)  # fmt: skip
def test_what_does_not_follow_is_refused(
    lake: Lake, server: Server, request: pytest.FixtureRequest, forge: Callable[[Forged], None], said: str
) -> None:
    name = "forged_" + request.node.callspec.id.replace(" ", "_")
    theirs = made(server, name)
    theirs.append(numbers([1, 2, 3]))
    theirs.append(numbers([4, 5]))
    forged = Forged(server, prepared(theirs.refresh(), lambda transaction: transaction.delete("id = 2")))
    forge(forged)
    assert said in forged.refusal()
    ours = lake.table(f"shop.{name}")
    assert (ids(ours), head(ours)) == ([1, 2, 3, 4, 5], 2)
    theirs.refresh().delete("id = 2")
    assert ids(ours.refresh()) == [1, 3, 4, 5], "the client's next change is not in the way of the refused one"


def test_hidden_rows_stay_hidden(lake: Lake, server: Server, ducks: Ducks) -> None:
    """A snapshot may not lose a file of deleted rows."""
    theirs = made(server, "hidden_stay")
    theirs.append(numbers([1, 2, 3]))
    theirs.append(numbers([4, 5]))
    lake.table("shop.hidden_stay").delete("id = 4")
    forged = Forged(server, prepared(theirs.refresh(), lambda transaction: transaction.delete("id = 2")))

    def drop(listed: list[Any]) -> None:
        own = next(one for one in listed if one["content"] == 0)
        hides = next(one for one in listed if one["content"] == 1)
        path = path_of(hides["manifest_path"])
        entries, schema, metadata = read_avro(path)
        number = forged.request.snapshot["snapshot-id"]
        for one in entries:
            one["status"], one["snapshot_id"] = 2, number
        manifest = path_of(own["manifest_path"]).with_name("dropped.avro")
        write_avro(manifest, entries, schema, metadata)
        hides["manifest_path"], hides["added_snapshot_id"] = f"file://{manifest}", number

    forged.listed(drop)
    assert "again that were deleted" in forged.refusal()
    assert ids(lake.table("shop.hidden_stay")) == [1, 2, 3, 5]


def test_rows_with_ids_of_others_are_refused(lake: Lake, server: Server) -> None:
    theirs = made(server, "stolen_ids")
    theirs.append(numbers([1, 2]))
    request = appended(theirs.refresh(), numbers([3]))
    [manifest] = Forged(server, request).own()

    def with_id(entries: list[Any]) -> None:
        [entry] = entries
        path = path_of(entry["data_file"]["file_path"])
        rows = pq.read_table(path)
        field = pa.field("_row_id", pa.int64(), metadata={"PARQUET:field_id": "2147483540"})
        pq.write_table(rows.append_column(field, pa.array([0], pa.int64())), path)
        entry["data_file"]["file_size_in_bytes"] = path.stat().st_size

    rewrite(path_of(manifest["manifest_path"]), with_id)
    assert "rows with ids" in Forged(server, request).refusal()
    assert ids(lake.table("shop.stolen_ids")) == [1, 2]
