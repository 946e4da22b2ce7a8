"""What commits of Iceberg's clients are refused for, and that refusals leave nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laketx import Lake
from metaservice.client import add_column, uuid7
from protos.laketx.v1 import transaction_pb2
from tests.iceberg.foreign_avro import NULLS, RECURSIVE, avro
from tests.iceberg.forged import Forged, path_of
from tests.iceberg.servers import Server, catalog_of, served
from tests.iceberg.writers import (
    SCHEMA,
    Request,
    appended,
    attached,
    error_of,
    head,
    ids,
    made,
    numbers,
    prepared,
)
from tests.integration.callers import create, guarded
from tests.integration.warehouse import GRACE_MS, Warehouse, warehouse
from worker.iceberg.metadata.avro_bytes import whole
from worker.services.generated_files import FOLDER

pyiceberg_types = pytest.importorskip("pyiceberg.types", reason="pyiceberg is not installed")

# -- refusals ----------------------------------------------------------------------------------------------------------


def test_tables_with_keys_say_how_to_write_them(lake: Lake, server: Server) -> None:
    keyed = lake.create_table("shop.keyed", "id bigint, note string", primary_key=["id"])
    theirs = catalog_of(server, 2).load_table("shop.keyed")
    keyed.upsert([{"id": 7, "note": "n7"}])
    new = numbers([1]).cast(theirs.refresh().schema().as_arrow())
    for request in (appended(theirs, new), prepared(theirs, lambda transaction: transaction.delete("id = 7"))):
        status, _, said = error_of(request.send(server))
        assert status == 400
        assert "upsert its rows with LakeTX" in said
    assert (ids(keyed.refresh()), head(keyed)) == ([7], 1)


@pytest.mark.parametrize(
    ("requirement", "said"),
    [
        (
            {"type": "assert-table-uuid", "uuid": "0192d3b0-0000-7000-8000-000000000000"},
            "UUID does not match: expected 0192d3b0",
        ),
        ({"type": "assert-current-schema-id", "current-schema-id": 7}, "schema changed: expected 7 != 1"),
        (
            {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 9},
            "field id changed: expected 9 != 2",
        ),
        (
            {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 1},
            "partition id changed: expected 1 != 999",
        ),
        ({"type": "assert-default-spec-id", "default-spec-id": 3}, "spec changed: expected 3 != 0"),
        (
            {"type": "assert-default-sort-order-id", "default-sort-order-id": 1},
            "order changed: expected 1 != 0",
        ),
        ({"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 99}, "main has changed: expected 99 != 1"),
        (
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None},
            "main has changed: expected none != 1",
        ),
        ({"type": "assert-ref-snapshot-id", "ref": "other", "snapshot-id": 1}, "other has changed: expected 1 != none"),
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
    lake.client.alter_columns(ours.table_id, add_column("v", "double"))
    status, kind, said = error_of(request.send(server))
    assert (status, kind) == (409, "CommitFailedException")
    for word in ("lost a race", "winner: alter", "version 1", "metadata changed"):
        assert word in said.lower(), said
    assert "load the table and append the same rows again" in said
    assert "refresh()" not in said, "which is LakeTX's"
    assert request.send(server).status_code == 409, "the outcome stays"
    theirs.refresh().append(numbers([2]))
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


def test_manifests_that_attack_their_reader_are_refused(lake: Lake, server: Server) -> None:
    theirs = made(server, "attacked")
    head_before = head(lake.table("shop.attacked"))
    for attack in (
        avro(RECURSIVE, (1, b"\0" + b"\2" * 100_000 + b"\0")),
        avro(NULLS, (1, b"\0" + whole(1 << 40) + b"\0")),
    ):
        of_list, of_entries = (Forged(server, appended(theirs, numbers([1]))) for _ in range(2))
        of_list.list_path.write_bytes(attack)
        path_of(of_entries.own()[0]["manifest_path"]).write_bytes(attack)
        for one in (of_list, of_entries):
            assert "is no manifest" in one.refusal()
    theirs.append(numbers([2]))
    assert (ids(lake.table("shop.attacked")), head(lake.table("shop.attacked"))) == ([2], head_before + 1)


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
            with theirs.transaction() as transaction:
                transaction.set_properties({"iceberg.append_rebase": "true"})
            theirs.refresh()
            shared = [appended(theirs, rows) for _ in range(3)]
            assert [one.send(server).status_code for one in shared[:2]] == [200, 200]
            shared[2].body["updates"][0]["snapshot"]["summary"]["operation"] = "replace"
            assert shared[2].send(server).status_code == 400
            theirs.refresh()
            refused = appended(theirs, rows)
            refused.body["requirements"].append({"type": "assert-current-schema-id", "current-schema-id": 9})
            assert refused.send(server).status_code == 409
            swept_to(found, server, rows=6)


@pytest.mark.parametrize("form", [pytest.param(2, marks=pytest.mark.long), 3])
def test_the_purge_sweeps_the_files_of_deletes(tmp_path: Path, form: int) -> None:
    """A commit made delete sets of them."""
    with warehouse(tmp_path) as found:
        words = ["--server", found.client_address, "iceberg", "serve", "--listen", "127.0.0.1:0"]
        with served(*words, "--warehouse", str(found.folder)) as server:
            theirs = catalog_of(server, 2).load_table("default.days")
            for first in (0, 10):
                rows = [{"id": one} for one in range(first, first + 9)]
                theirs.append(pa.Table.from_pylist(rows, schema=theirs.schema().as_arrow()))
            with attached(server, form) as connection:
                connection.execute("DELETE FROM lake.default.days WHERE id = 1")
                connection.execute("UPDATE lake.default.days SET id = 20 WHERE id = 2")
                connection.execute("DELETE FROM lake.default.days WHERE id = 20")
            theirs.refresh()
            alone = Forged(server, prepared(theirs, lambda transaction: transaction.delete("id = 3")))
            [second] = [one.file.file_path for one in theirs.scan("id = 15").plan_files()]
            alone.hide(second, [5], folder=path_of(theirs.properties["write.data.path"]).with_name(uuid7()))
            assert alone.request.send(server).status_code == 200
            swept_to(found, server, rows=14)


def swept_to(found: Warehouse, server: Server, rows: int) -> None:
    """After the grace only the files of commits are left."""
    before = written_by_clients(found)
    live = found.list_files(found.head) - {""}  # of delete sets
    assert live < before
    found.pass_time(GRACE_MS, looks=20)
    report = found.purge()
    assert report.failed == 0
    assert written_by_clients(found) == live
    assert catalog_of(server, 2).load_table("default.days").scan().to_arrow().num_rows == rows
    states = {one.state for one in found.client.list_transactions(table_id=found.table_id)}
    assert transaction_pb2.TRANSACTION_STATE_OPEN not in states


def written_by_clients(found: Warehouse) -> set[str]:
    """All but what the catalog generates."""
    return {path for path in found.stored() if f"/{FOLDER}/" not in f"/{path}"}
