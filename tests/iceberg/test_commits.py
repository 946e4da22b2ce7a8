"""Commits of Iceberg's clients through the REST catalog: they are ordinary transactions, once each."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laketx import Lake, Table, connect
from metaservice.client import ConflictError
from protos.laketx.v1 import transaction_pb2
from tests.arrow.tables import texts
from tests.iceberg.servers import Server, catalog_of, served, served_folder
from tests.iceberg.writers import Request, appended, attached, error_of, numbers, prepared
from tests.integration.callers import create, guarded
from tests.integration.warehouse import GRACE_MS, Warehouse, warehouse

pyiceberg_types = pytest.importorskip("pyiceberg.types", reason="pyiceberg is not installed")
SCHEMA = numbers([0]).schema


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("commits")


@pytest.fixture(scope="module")
def lake(folder: Path) -> Iterator[Lake]:
    with connect(folder) as made:
        made.client.create_namespace("shop")
        yield made


@pytest.fixture(scope="module")
def server(folder: Path, lake: Lake) -> Iterator[Server]:
    with served_folder(folder) as found:
        yield found


def made(server: Server, name: str, schema: pa.Schema = SCHEMA, **options: Any) -> Any:
    return catalog_of(server, 2).create_table(f"shop.{name}", schema, **options)


def head(table: Table) -> int:
    return int(table.view.client.resolve_version(table.table_id).version)


def ids(table: Table) -> list[int]:
    return sorted(table.to_arrow().column("id").to_pylist())


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
    theirs.append(numbers([4]))
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
    theirs = made(server, "shared")
    requests = [appended(theirs, numbers([number])) for number in range(4)]
    folders = {one.partition("/_iceberg")[0] for one in [requests[0].snapshot["manifest-list"]]}
    assert len(folders) == 1
    for request in [*requests, *requests]:
        assert request.send(server).status_code == 200
    ours = lake.table("shop.shared")
    assert ids(ours) == [0, 1, 2, 3]
    assert head(ours) == 4
    assert by_duckdb_shop(server, "shared") == texts(ours.to_arrow())


def by_duckdb_shop(server: Server, name: str) -> list[str]:
    with attached(server) as connection:
        return texts(connection.execute(f"SELECT * FROM lake.shop.{name}").to_arrow_table())


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
        for statement in ("DELETE FROM lake.duck.made WHERE id = 1", "UPDATE lake.duck.made SET note = 'z'"):
            with pytest.raises(Exception, match="LakeTX"):
                connection.execute(statement)
        assert ids(ours) == [1, 2, 3, 4]
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


# -- once each ---------------------------------------------------------------------------------------------------------


def test_a_repeat_gets_the_first_answer(lake: Lake, server: Server, folder: Path) -> None:
    theirs = made(server, "again")
    request = appended(theirs, numbers([1, 2]))
    with served_folder(folder) as other, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(request.send, [server, other] * 4))
    assert {one.status_code for one in answers} == {200}
    ours = lake.table("shop.again")
    assert (ids(ours), head(ours)) == ([1, 2], 1)
    theirs.append(numbers([3]))
    assert request.send(server).status_code == 200, "also later"
    assert ids(lake.table("shop.again")) == [1, 2, 3]


def test_a_new_table_is_made_once(lake: Lake, server: Server, folder: Path) -> None:
    catalog = catalog_of(server, 2)
    transaction = catalog.create_table_transaction("shop.once", SCHEMA)
    transaction.append(numbers([1]))
    body = {
        "requirements": [{"type": "assert-create"}],
        "updates": [one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in transaction._updates],
    }
    request = Request("/v1/v2/namespaces/shop/tables/once", body)
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


def test_no_append_of_many_writers_is_lost(lake: Lake, server: Server, folder: Path) -> None:
    """Each by a client of its own, through two servers, while rows are deleted and columns come."""

    def serve(table: Table, round_: int) -> None:
        table.append([{"id": -1 - round_, "note": "ours"}])
        if round_ % 3 == 1:
            table.delete("id < 0")
        if round_ in (2, 6):
            table.add_columns(f"c{round_} string")

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
    made(server, name)
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

    with served_folder(folder) as other, ThreadPoolExecutor(5) as pool:
        helper = pool.submit(services)
        try:
            for one in [pool.submit(write, number, (server, other)[number % 2]) for number in range(4)]:
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


# -- schemas and properties --------------------------------------------------------------------------------------------


def test_columns_are_added_with_rows_that_have_them(lake: Lake, server: Server) -> None:
    theirs = made(server, "grown")
    theirs.append(numbers([1]))

    def change(transaction: Any) -> None:
        with transaction.update_schema() as update:
            update.add_column("v", pyiceberg_types.DoubleType(), "how much")
            update.add_column(
                "who",
                pyiceberg_types.StructType(
                    pyiceberg_types.NestedField(100, "name", pyiceberg_types.StringType(), required=False)
                ),
            )
        transaction.append(
            pa.table({"id": [2], "note": ["b"], "v": [0.5], "who": [{"name": "bo"}]}).cast(
                transaction.table_metadata.schema().as_arrow()
            )
        )

    request = prepared(theirs, change)
    assert [request.send(server).status_code for _ in range(2)] == [200, 200]
    ours = lake.table("shop.grown")
    assert (ids(ours), head(ours)) == ([1, 2], 3), "an ALTER and an INSERT"
    assert [(one.name, one.comment) for one in ours.meta.columns][2:] == [("v", "how much"), ("who", "")]
    assert ours.to_arrow(where="id = 2").to_pylist() == [{"id": 2, "note": "b", "v": 0.5, "who": {"name": "bo"}}]
    with theirs.refresh().update_schema() as update:
        update.add_column(("who", "age"), pyiceberg_types.IntegerType())
    assert [one.type for one in ours.refresh().meta.columns][3] == "struct<name:string,age:int>"


@pytest.mark.parametrize(
    "change",
    [
        lambda update: update.rename_column("note", "text"),
        lambda update: update.delete_column("note"),
        lambda update: update.update_column("id", required=False),
    ],
)
def test_other_changes_of_the_schema_are_refused(lake: Lake, server: Server, change: Any) -> None:
    theirs = catalog_of(server, 2).create_table_if_not_exists("shop.fixed", SCHEMA)
    request = prepared(theirs, lambda transaction: changed(transaction, change))
    if not request.body["updates"]:
        return
    status, _, said = error_of(request.send(server))
    assert status == 400
    assert "ALTER TABLE" in said
    assert head(lake.table("shop.fixed")) == 0


def changed(transaction: Any, change: Any) -> None:
    with transaction.update_schema() as update:
        change(update)


def test_properties_are_kept_and_shown(lake: Lake, server: Server) -> None:
    theirs = made(server, "props", properties={"a": "1"})
    with theirs.transaction() as transaction:
        transaction.set_properties({"b": "2", "write.data.path": "/elsewhere", "comment": "hello"})
        transaction.remove_properties("a")
    ours = lake.table("shop.props")
    assert dict(ours.meta.properties) == {"user.iceberg.b": "2"}
    assert ours.meta.comment == "hello"
    shown = theirs.refresh().properties
    assert (shown["b"], shown["comment"], "a" in shown) == ("2", "hello", False)
    assert "elsewhere" not in shown["write.data.path"]


def test_tables_and_namespaces_are_dropped_and_renamed(lake: Lake, server: Server) -> None:
    catalog = catalog_of(server, 2)
    catalog.create_namespace("gone", {"owner": "ana"})
    assert catalog.load_namespace_properties("gone")["owner"] == "ana"
    catalog.create_table("gone.one", SCHEMA)
    with pytest.raises(Exception, match="NAMESPACE_NOT_EMPTY"):
        catalog.drop_namespace("gone")
    catalog.rename_table("gone.one", "gone.two")
    catalog.drop_table("gone.two")
    assert lake.client.find_dropped_tables("gone.two"), "it can be undropped"
    catalog.drop_namespace("gone")
    assert not catalog.namespace_exists("gone")
    with pytest.raises(Exception, match="NAMESPACE_UNKNOWN"):
        catalog.create_table("gone.three", SCHEMA)


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_overwrites_and_deletes_are_refused(lake: Lake, server: Server) -> None:
    theirs = made(server, "kept")
    theirs.append(numbers([1, 2]))
    for change in (
        lambda transaction: transaction.overwrite(numbers([3])),
        lambda transaction: transaction.delete("id = 1"),
    ):
        status, kind, said = error_of(prepared(theirs, change).send(server))
        assert (status, kind) == (400, "BadRequestException")
        assert "LakeTX" in said
    ours = lake.table("shop.kept")
    assert (ids(ours), head(ours)) == ([1, 2], 1)


def test_tables_with_keys_say_how_to_write_them(lake: Lake, server: Server) -> None:
    keyed = lake.create_table("shop.keyed", "id bigint, note string", primary_key=["id"])
    theirs = catalog_of(server, 2).load_table("shop.keyed")
    status, _, said = error_of(appended(theirs, numbers([1]).cast(theirs.schema().as_arrow())).send(server))
    assert status == 400
    assert "upsert its rows with LakeTX" in said
    assert head(keyed) == 0


@pytest.mark.parametrize(
    ("requirement", "said"),
    [
        ({"type": "assert-table-uuid", "uuid": "0192d3b0-0000-7000-8000-000000000000"}, "its id is"),
        ({"type": "assert-current-schema-id", "current-schema-id": 7}, "its schema is 1"),
        ({"type": "assert-last-assigned-field-id", "last-assigned-field-id": 9}, "its last column id is 2"),
        ({"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 1}, "last partition id is 999"),
        ({"type": "assert-default-spec-id", "default-spec-id": 3}, "partition spec is 0"),
        ({"type": "assert-default-sort-order-id", "default-sort-order-id": 1}, "sort order is 0"),
        ({"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 99}, "snapshot of main is 1"),
        ({"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}, "snapshot of main is 1"),
        ({"type": "assert-ref-snapshot-id", "ref": "other", "snapshot-id": 1}, "snapshot of other is None"),
        ({"type": "assert-create"}, "exists"),
    ],
)
def test_requirements_are_judged(lake: Lake, server: Server, requirement: dict[str, Any], said: str) -> None:
    theirs = catalog_of(server, 2).create_table_if_not_exists("shop.judged", SCHEMA)
    request = prepared(theirs, lambda transaction: transaction.set_properties({"a": "1"}))
    request.body["requirements"] = [requirement]
    status, kind, words = error_of(request.send(server))
    assert (status, kind) in ((409, "CommitFailedException"), (400, "BadRequestException"))
    assert said in words or requirement["type"] == "assert-create"
    assert head(lake.table("shop.judged")) == 0


def test_a_lost_race_is_explained(lake: Lake, server: Server) -> None:
    theirs = made(server, "raced")
    request = appended(theirs, numbers([1]))
    ours = lake.table("shop.raced")
    ours.add_columns("v double")
    status, kind, said = error_of(request.send(server))
    assert (status, kind) == (409, "CommitFailedException")
    for word in ("lost a race", "winner: alter", "version 1", "metadata changed"):
        assert word in said.lower(), said
    assert request.send(server).status_code == 409, "the outcome stays"
    theirs.append(numbers([2]))  # its client loads the table anew, and appends once more
    assert ids(ours.refresh()) == [2]


def test_unknown_and_odd_requests(lake: Lake, server: Server) -> None:
    made(server, "odd")
    path = "/v1/v2/namespaces/shop/tables/odd"
    for body in (
        {"requirements": [], "updates": [{"action": "set-statistics", "statistics": {}}]},
        {"requirements": [], "updates": [{"action": "add-schema"}]},
        {"requirements": [], "updates": [{"action": "add-snapshot", "snapshot": 7}]},
        {"requirements": [{"type": "assert-nothing"}], "updates": []},
        {"updates": 7},
        {"requirements": [], "updates": [{"action": "upgrade-format-version", "format-version": 3}]},
        {"requirements": [], "updates": [{"action": "set-location", "location": "/elsewhere"}]},
        {"requirements": [], "updates": [{"action": "assign-uuid", "uuid": "0192d3b0-0000-7000-8000-000000000000"}]},
        {
            "requirements": [],
            "updates": [{"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 1}],
        },
    ):
        status, _, said = error_of(Request(path, body).send(server))
        assert status == 400, said
    assert server.ask("POST", path, content=b"no json").status_code == 400
    assert server.ask("POST", path, content=b"[]").status_code == 400
    assert head(lake.table("shop.odd")) == 0


def test_rights_are_those_of_the_caller(tmp_path: Path) -> None:
    with guarded(tmp_path / "data") as company:
        company.owner.call("CatalogService/CreateNamespace", name="sales")
        table_id = create(company.owner, "sales.seen")
        company.grant("user:ana", "reader", table_id=table_id)
        company.grant("user:bo", "writer", table_id=table_id)
        words = ["--server", company.service.address, "iceberg", "serve", "--listen", "127.0.0.1:0"]
        with served(*words, "--warehouse", str(tmp_path / "lake")) as server:
            columns = [
                pa.field(name, kind, nullable=False) for name, kind in (("id", pa.int64()), ("day", pa.string()))
            ]
            rows = pa.Table.from_pylist([{"id": 1, "day": "d"}], schema=pa.schema(columns))
            reader = catalog_of(server, 2, token=company.token("ana"))
            with pytest.raises(Exception, match="ForbiddenException"):
                reader.load_table("sales.seen").append(rows)
            with pytest.raises(Exception, match="ForbiddenException"):
                reader.create_table("sales.more", SCHEMA)
            with pytest.raises(Exception, match="ForbiddenException"):
                reader.drop_table("sales.seen")
            writer = catalog_of(server, 2, token=company.token("bo"))
            writer.load_table("sales.seen").append(rows)
            assert reader.load_table("sales.seen").scan().to_arrow().num_rows == 1


# -- files that are not as they say ------------------------------------------------------------------------------------


def test_files_have_to_be_what_the_manifest_says(lake: Lake, server: Server, tmp_path: Path) -> None:
    theirs = made(server, "lies")
    ours = lake.table("shop.lies")

    def written(request: Request) -> Path:
        from pyiceberg.io.pyarrow import PyArrowFileIO  # noqa: PLC0415 - the package may be missing
        from pyiceberg.manifest import read_manifest_list  # noqa: PLC0415

        io = PyArrowFileIO()
        [manifest] = read_manifest_list(io.new_input(request.snapshot["manifest-list"]))
        [entry] = manifest.fetch_manifest_entry(io)
        return Path(entry.data_file.file_path.removeprefix("file://"))

    def rows_fewer(path: Path) -> None:
        pq.write_table(pq.read_table(path).slice(1), path)

    def other_column(path: Path) -> None:
        found = pq.read_table(path)
        pq.write_table(found.rename_columns(["id", "text"]), path)

    def no_ids(path: Path) -> None:
        pq.write_table(pq.read_table(path).replace_schema_metadata().cast(SCHEMA), path)

    def other_type(path: Path) -> None:
        found = pq.read_table(path)
        pq.write_table(
            found.set_column(0, found.schema.field(0).with_type(pa.int32()), found["id"].cast("int32")), path
        )

    def link(path: Path) -> None:
        target = tmp_path / f"{path.name}"
        path.rename(target)
        path.symlink_to(target)

    for spoil in (rows_fewer, other_column, no_ids, other_type, link, Path.unlink, lambda path: path.write_bytes(b"x")):
        request = appended(theirs, numbers([1, 2]))
        spoil(written(request))
        status, kind, said = error_of(request.send(server))
        assert (status, kind) == (400, "BadRequestException"), said
        assert "ICEBERG_FILE" in said
        assert head(ours) == 0
    request = appended(theirs, numbers([1, 2]))
    for elsewhere in (f"file://{tmp_path}/snap.avro", "/etc/passwd", f"{ours.view.folder}/../x.avro", "s3://b/x.avro"):
        request.body["updates"][0]["snapshot"]["manifest-list"] = elsewhere
        status, _, said = error_of(request.send(server))
        assert (status, "ICEBERG_FILE" in said) == (400, True)


# -- what the purge deletes --------------------------------------------------------------------------------------------


def test_the_purge_sweeps_what_no_commit_took_and_nothing_else(tmp_path: Path) -> None:
    with warehouse(tmp_path) as found:
        words = ["--server", found.client_address, "iceberg", "serve", "--listen", "127.0.0.1:0"]
        with served(*words, "--warehouse", str(found.folder)) as server:
            theirs = catalog_of(server, 2).load_table("default.days")
            rows = pa.Table.from_pylist([{"id": 1}, {"id": 2}], schema=theirs.schema().as_arrow())
            theirs.append(rows)
            shared = [appended(theirs, rows) for _ in range(3)]
            assert [one.send(server).status_code for one in shared[:2]] == [200, 200]
            shared[2].body["updates"][0]["snapshot"]["summary"]["operation"] = "overwrite"
            assert shared[2].send(server).status_code == 400
            theirs.refresh()
            refused = appended(theirs, rows)
            refused.body["requirements"].append({"type": "assert-current-schema-id", "current-schema-id": 9})
            assert refused.send(server).status_code == 409
            swept_to(found, server, rows=6)


def swept_to(found: Warehouse, server: Server, rows: int) -> None:
    """After the grace only the files of commits are left."""
    before = {path for path in found.stored() if path.endswith(".parquet")}
    live = found.list_files(found.head)
    assert live < before
    found.pass_time(GRACE_MS, looks=20)
    report = found.purge()
    assert report.failed == 0
    assert {path for path in found.stored() if path.endswith(".parquet")} == live
    assert catalog_of(server, 2).load_table("default.days").scan().to_arrow().num_rows == rows
    states = {one.state for one in found.client.list_transactions(table_id=found.table_id)}
    assert transaction_pb2.TRANSACTION_STATE_OPEN not in states
