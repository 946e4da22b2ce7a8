"""Commits of Iceberg's clients through the REST catalog: they are ordinary transactions, once each."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from laketx import Lake, Table
from metaservice.client import ConflictError, add_column
from tests.arrow.tables import texts
from tests.iceberg.forged import Forged
from tests.iceberg.servers import Server, catalog_of, served_folder
from tests.iceberg.writers import (
    REBASED,
    SCHEMA,
    Request,
    appended,
    attached,
    by_duckdb_shop,
    created,
    head,
    ids,
    made,
    numbers,
)

pyiceberg_types = pytest.importorskip("pyiceberg.types", reason="pyiceberg is not installed")

# -- rows and tables ---------------------------------------------------------------------------------------------------


def test_an_append_is_an_ordinary_commit(lake: Lake, server: Server) -> None:
    theirs = made(server, "plain")
    assert theirs.current_snapshot().snapshot_id == 1
    request = appended(theirs, numbers([1, 2, 3]))
    answer = request.send(server).json()
    ours = lake.table("shop.plain")
    assert ids(ours) == [1, 2, 3]
    [commit] = ours.history(1)
    assert (commit.version, commit.operation, commit.rows_added) == (1, "INSERT", 3)
    shown = answer["metadata"]["snapshots"][-1]
    assert shown["snapshot-id"] == answer["metadata"]["current-snapshot-id"] == 2
    assert shown["summary"]["laketx.iceberg-snapshot-id"] == str(request.snapshot["snapshot-id"])
    theirs.refresh().append(numbers([4]))
    assert theirs.refresh().scan().to_arrow().num_rows == 4
    assert [one.snapshot_id for one in theirs.snapshots()] == [1, 2, 3]


def test_files_stay_where_their_client_wrote_them(lake: Lake, server: Server) -> None:
    theirs = made(server, "stay")
    for number in range(3):
        theirs.append(numbers([number]))
    ours = lake.table("shop.stay")
    entries = list(ours.view.client.list_files(ours.table_id))
    assert len({one.file.path.partition("/")[0] for one in entries}) == 3, "each answer names another folder"
    stored = [path for path in Path(ours.view.folder).rglob("*.parquet") if path.is_file()]
    assert sorted(map(str, stored)) == sorted(f"{ours.view.folder}/{one.file.path}" for one in entries)
    versions = {one.txn_id for one in ours.view.client.list_versions(ours.table_id)}
    assert {one.file.path.partition("/")[0] for one in entries} < versions


def test_several_commits_may_share_a_folder(lake: Lake, server: Server) -> None:
    theirs = made(server, "shared", properties=REBASED)
    requests = [appended(theirs, numbers([number])) for number in range(4)]
    folders = {one.partition("/_iceberg")[0] for one in [requests[0].snapshot["manifest-list"]]}
    assert len(folders) == 1
    for request in [*requests, *requests]:
        assert request.send(server).status_code == 200
    ours = lake.table("shop.shared")
    assert ids(ours) == [0, 1, 2, 3]
    assert head(ours) == 4
    assert by_duckdb_shop(server, "shared") == texts(ours.to_arrow())


@pytest.mark.parametrize("form", [2, 3])
def test_tables_of_every_type_and_partition(lake: Lake, server: Server, form: int) -> None:
    from pyiceberg.partitioning import PartitionField, PartitionSpec  # noqa: PLC0415 - the package may be missing
    from pyiceberg.schema import Schema  # noqa: PLC0415
    from pyiceberg.transforms import IdentityTransform  # noqa: PLC0415

    ice = pyiceberg_types
    schema = Schema(
        ice.NestedField(1, "id", ice.LongType(), required=True),
        ice.NestedField(2, "day", ice.DateType(), doc="when"),
        ice.NestedField(3, "ok", ice.BooleanType()),
        ice.NestedField(4, "small", ice.IntegerType()),
        ice.NestedField(5, "v", ice.DoubleType()),
        ice.NestedField(6, "price", ice.DecimalType(10, 2)),
        ice.NestedField(7, "at", ice.TimestamptzType()),
        ice.NestedField(8, "local", ice.TimestampType()),
        ice.NestedField(9, "raw", ice.BinaryType()),
        ice.NestedField(10, "who", ice.StructType(ice.NestedField(11, "name", ice.StringType()))),
        ice.NestedField(12, "tags", ice.ListType(13, ice.StringType(), element_required=False)),
        ice.NestedField(14, "sizes", ice.MapType(15, ice.StringType(), 16, ice.LongType(), value_required=False)),
    )
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "day"))
    catalog_of(server, form).create_table(
        f"shop.typed{form}", schema, partition_spec=spec, properties={"owner": "ana", "comment": "all types"}
    )
    theirs = catalog_of(server, 2).load_table(f"shop.typed{form}")
    assert theirs.properties["owner"] == "ana"
    row = {
        "id": 1,
        "day": date(2026, 11, 1),
        "ok": True,
        "small": 7,
        "v": float("nan"),
        "price": "1.25",
        "at": 1_700_000_000_000_000,
        "local": 1_700_000_000_000_000,
        "raw": b"\x00",
        "who": {"name": "bo"},
        "tags": ["a", None],
        "sizes": [("a", 1)],
    }
    later = row | {"id": 2, "day": None, "v": 1.5, "who": None, "tags": None}
    wanted = theirs.schema().as_arrow()
    rows = pa.Table.from_pylist([row | {"price": None}, later | {"price": None}], schema=wanted)
    theirs.append(rows)
    ours = lake.table(f"shop.typed{form}")
    assert ours.meta.comment == "all types"
    assert ours.meta.properties["user.iceberg.owner"] == "ana"
    assert list(ours.meta.partition_columns) == ["day"]
    assert sorted(ours.to_arrow().column("id").to_pylist()) == [1, 2]
    assert ours.to_arrow(where="day = DATE '2026-11-01'").column("id").to_pylist() == [1]
    shown = theirs.refresh().scan().to_arrow()
    assert texts(shown.select(["id", "day", "at", "who", "tags"])) == texts(
        ours.to_arrow().select(["id", "day", "at", "who", "tags"])
    )
    [found] = [one.file for one in ours.view.client.list_files(ours.table_id) if one.file.rows and nan_in(one.file)]
    assert found.partition.values[0].value.WhichOneof("kind") == "date"
    assert not [one for one in found.stats if one.HasField("min") and one.column_id == 5]


def nan_in(file: Any) -> bool:
    return bool(file.partition.values[0].value.WhichOneof("kind") == "date")


def test_a_table_and_its_rows_come_in_one_commit(lake: Lake, server: Server) -> None:
    catalog = catalog_of(server, 2)
    with catalog.create_table_transaction("shop.whole", SCHEMA) as transaction:
        transaction.append(numbers([1, 2]))
        assert not catalog.table_exists("shop.whole")
    ours = lake.table("shop.whole")
    assert ids(ours) == [1, 2]
    assert head(ours) == 1
    assert catalog.load_table("shop.whole").scan().to_arrow().num_rows == 2
    with pytest.raises(Exception, match="TABLE_EXISTS"):
        catalog.create_table("shop.whole", SCHEMA)


def test_duckdb_creates_and_inserts(lake: Lake, server: Server) -> None:
    with attached(server) as connection:
        connection.execute("CREATE SCHEMA IF NOT EXISTS lake.duck")
        connection.execute("CREATE TABLE lake.duck.made AS SELECT 1::BIGINT AS id, 'a' AS note")
        connection.execute("INSERT INTO lake.duck.made VALUES (2, 'b')")
        connection.execute("BEGIN")
        connection.execute("INSERT INTO lake.duck.made VALUES (3, 'c')")
        connection.execute("INSERT INTO lake.duck.made VALUES (4, 'd')")
        connection.execute("COMMIT")
        ours = lake.table("duck.made")
        assert (ids(ours), head(ours)) == ([1, 2, 3, 4], 3)
        connection.execute("DELETE FROM lake.duck.made WHERE id = 1")
        connection.execute("UPDATE lake.duck.made SET id = 6 WHERE id = 2")
        assert ids(ours.refresh()) == [3, 4, 6]
        connection.execute("ALTER TABLE lake.duck.made ADD COLUMN v DOUBLE")
        connection.execute("INSERT INTO lake.duck.made VALUES (5, 'e', 0.5)")
        assert lake.table("duck.made").to_arrow(where="v = 0.5").column("id").to_pylist() == [5]
        connection.execute("DROP TABLE lake.duck.made")
        connection.execute("DROP SCHEMA lake.duck")
        assert "duck" not in [one.name for one in lake.client.list_namespaces()]


def test_partitions_with_odd_values(lake: Lake, server: Server) -> None:
    """Clients escape them in paths, which readers would take for a part of a URI."""
    from pyiceberg.transforms import IdentityTransform  # noqa: PLC0415 - the package may be missing

    lake.create_table("shop.by_note", "id bigint, note string", partition_by=["note"])
    theirs = catalog_of(server, 2).load_table("shop.by_note")
    assert isinstance(theirs.spec().fields[0].transform, IdentityTransform)
    notes = ["a b", "c:d", "50%", "x/y?#", "é", None, "plain"]
    theirs.append(pa.table({"id": pa.array(range(len(notes)), pa.int64()), "note": notes}))
    ours = lake.table("shop.by_note")
    assert ours.to_arrow().num_rows == len(notes)
    for number, note in enumerate(notes):
        if note is not None:
            assert ours.to_arrow(where=f"note = '{note}'").column("id").to_pylist() == [number]
    assert by_duckdb_shop(server, "by_note") == texts(ours.to_arrow())


def test_names_that_are_others_in_files_of_clients(lake: Lake, server: Server) -> None:
    """Iceberg's libraries change names that Avro doesn't allow; their files have ids."""
    equal: Any = pytest.importorskip("pyiceberg.expressions", reason="pyiceberg is not installed").EqualTo
    columns = "id bigint, `unit price` int, `the day` string, `2nd` string, `a.b` struct<`it's`:int,plain:int>"
    ours = lake.create_table("shop.odd_names", columns, partition_by=["the day"])
    ours.append([{"id": 1, "unit price": 5, "the day": "a b", "2nd": "x", "a.b": {"it's": 1, "plain": 2}}])
    theirs = catalog_of(server, 2).load_table("shop.odd_names")
    shape = theirs.schema().as_arrow()
    more = [
        {"id": 2, "unit price": 6, "the day": "a b", "2nd": "y" * 100, "a.b": {"it's": 3, "plain": None}},
        {"id": 3, "unit price": 7, "the day": None, "2nd": None, "a.b": None},
        {"id": 4, "unit price": 7, "the day": "z" * 100, "2nd": "z", "a.b": {"it's": None, "plain": 4}},
    ]
    theirs.append(pa.Table.from_pylist(more, schema=shape))
    theirs.delete(equal("unit price", 5))
    rows = ours.refresh().to_arrow().sort_by("id").to_pylist()
    assert rows == more
    for where, wanted in [("`unit price` = 7", [3, 4]), ("`the day` IS NULL", [3]), ("`2nd` > 'y'", [2, 4])]:
        assert sorted(ours.to_arrow(where=where).column("id").to_pylist()) == wanted
    assert by_duckdb_shop(server, "odd_names") == texts(ours.to_arrow())
    [price] = [one.column_id for one in ours.meta.columns if one.name == "unit price"]
    found = [one.file for one in ours.view.client.list_files(ours.table_id) if one.file.rows]
    assert all(price in {one.column_id for one in file.stats} for file in found)


def test_the_partition_of_a_file_is_that_of_its_rows_whatever_the_names(lake: Lake, server: Server) -> None:
    lake.create_table("shop.odd_parts", "id bigint, `the day` string", partition_by=["the day"])
    theirs = catalog_of(server, 2).load_table("shop.odd_parts")
    rows = pa.Table.from_pylist([{"id": 1, "the day": "z" * 100}], schema=theirs.schema().as_arrow())
    forged = Forged(server, appended(theirs, rows))

    def moved(entries: list[Any]) -> None:
        entries[0]["data_file"]["partition"] = {"the_x20day": "b"}

    forged.entries(moved)
    assert "rows of another partition than the day = 'b'" in forged.refusal()


# -- once each ---------------------------------------------------------------------------------------------------------


def test_a_repeat_gets_the_first_answer(lake: Lake, server: Server, folder: Path) -> None:
    theirs = made(server, "again")
    request = appended(theirs, numbers([1, 2]))
    with served_folder(folder) as other, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(request.send, [server, other] * 4))
    assert {one.status_code for one in answers} == {200}
    ours = lake.table("shop.again")
    assert (ids(ours), head(ours)) == ([1, 2], 1)
    theirs.refresh().append(numbers([3]))
    assert request.send(server).status_code == 200, "also later"
    assert ids(lake.table("shop.again")) == [1, 2, 3]


def test_a_new_table_is_made_once(lake: Lake, server: Server, folder: Path) -> None:
    catalog = catalog_of(server, 2)
    transaction = catalog.create_table_transaction("shop.once", SCHEMA)
    transaction.append(numbers([1]))
    request = created(transaction, "shop.once")
    with served_folder(folder) as other:
        answers = [request.send(each) for each in (server, other, server)]
    assert [one.status_code for one in answers] == [200, 200, 200]
    assert (ids(lake.table("shop.once")), head(lake.table("shop.once"))) == ([1], 1)
    other_table = catalog.create_table_transaction("shop.late", SCHEMA)
    lake.create_table("shop.late", "id bigint")
    other_table.append(numbers([1]))
    with pytest.raises(Exception, match="late"):
        other_table.commit_transaction()
    assert ids(lake.table("shop.late")) == []


def test_a_server_that_is_killed_between_commit_and_answer(lake: Lake, server: Server, folder: Path) -> None:
    theirs = made(server, "killed")
    ours = lake.table("shop.killed")
    chance = random.Random(7)
    for number in range(4):
        request = appended(theirs, numbers([number]))
        with served_folder(folder) as doomed:
            sender = threading.Thread(target=lambda one=doomed, it=request: send_and_lose(it, one))
            sender.start()
            if number % 2:
                time.sleep(chance.random() * 0.05)
            else:
                while head(ours) == number:  # it has committed, and may have answered
                    time.sleep(0.001)
            doomed.kill()
            sender.join()
        assert request.send(server).status_code == 200
        assert (ids(ours.refresh()), head(ours)) == ([*range(number + 1)], number + 1)
        theirs.refresh()


def send_and_lose(request: Request, server: Server) -> None:
    with suppress(httpx.HTTPError):
        request.send(server)


# -- many at once ------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_no_append_of_many_writers_is_lost(lake: Lake, server: Server, folder: Path) -> None:
    """Each by a client of its own, through two servers, while rows are deleted and columns come."""

    def serve(table: Table, round_: int) -> None:
        table.append([{"id": -1 - round_, "note": "ours"}])
        if round_ % 3 == 1:
            with suppress(ConflictError):  # to appends; the rows go at the end
                table.delete("id < 0")
        if round_ in (2, 6):
            lake.client.alter_columns(table.table_id, add_column(f"c{round_}", "string"))

    assert play(lake, server, folder, "many", serve) == 60


@pytest.mark.long
def test_no_append_is_lost_to_compactions(lake: Lake, server: Server, folder: Path) -> None:
    made(server, "warm")
    lake.table("shop.warm").compact("minor")  # Spark starts

    def serve(table: Table, round_: int) -> None:
        with suppress(ConflictError):
            table.compact("minor" if round_ % 3 else "major")

    assert play(lake, server, folder, "compacted", serve, appends=15) == 180


def play(
    lake: Lake, server: Server, folder: Path, name: str, serve: Callable[[Table, int], None], appends: int = 5
) -> int:
    """Returns the number of rows, which LakeTX and other readers see as they were acknowledged."""
    made(server, name, properties=REBASED | {"commit.retry.num-retries": "10"})  # after new columns
    written: Counter[int] = Counter()
    stopped = threading.Event()

    def services() -> int:
        rounds = 0
        while not stopped.is_set():
            serve(lake.table(f"shop.{name}"), rounds)
            rounds += 1
            time.sleep(0.1)
        return rounds

    def write(number: int, where: Server) -> None:
        table = catalog_of(where, 2).load_table(f"shop.{name}")
        for at in range(appends):
            first = 1_000 * number + 10 * at
            table.append(numbers([*range(first, first + 3)]))
            written.update(range(first, first + 3))

    shown = "100"  # snapshots: pyiceberg repeats a lost commit only while the one it began at is shown
    with (
        served_folder(folder, "--snapshots", shown) as one_server,
        served_folder(folder, "--snapshots", shown) as other,
        ThreadPoolExecutor(5) as pool,
    ):
        helper = pool.submit(services)
        try:
            for one in [pool.submit(write, number, (one_server, other)[number % 2]) for number in range(4)]:
                one.result()
        finally:
            stopped.set()
        assert helper.result() > 0
    lake.table(f"shop.{name}").delete("id < 0")
    ours = lake.table(f"shop.{name}").to_arrow()
    assert sorted(ours.column("id").to_pylist()) == sorted(written.elements())
    assert by_duckdb_shop(server, name) == texts(ours)
    assert texts(catalog_of(server, 3).load_table(f"shop.{name}").scan().to_arrow()) == texts(ours)
    assert texts(catalog_of(server, 2).load_table(f"shop.{name}").scan().to_arrow()) == texts(ours)
    return len(written)
