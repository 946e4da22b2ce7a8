"""CREATE OR REPLACE TABLE by Iceberg's clients, and what they ask for and must not lose: formats, comments, keys."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from laketx import Lake
from tests.iceberg.servers import Server, catalog_of
from tests.iceberg.writers import Request, appended, error_of, head, ids, made, numbers, prepared

types = pytest.importorskip("pyiceberg.types", reason="pyiceberg is not installed")


def replaced(theirs: Any, fields: list[Any], rows: pa.Table | None, **properties: str) -> Request:
    """What Iceberg's Java library sends: the table loses its snapshots, and gets a schema and its first rows."""
    from pyiceberg.schema import Schema  # noqa: PLC0415 - the package may be missing

    schema = Schema(*fields, schema_id=theirs.schema().schema_id + 1)
    new = {"schemas": [schema], "current_schema_id": schema.schema_id, "snapshots": [], "refs": {}}
    before = theirs.metadata
    theirs.metadata = before.model_copy(update={**new, "current_snapshot_id": None})
    request = appended(theirs, rows) if rows is not None else prepared(theirs, lambda _: None)
    theirs.metadata = before
    snapshot = list(request.body["updates"])
    request.body["requirements"] = [
        {"type": "assert-table-uuid", "uuid": str(before.table_uuid)},
        {"type": "assert-last-assigned-field-id", "last-assigned-field-id": before.last_column_id},
    ]
    request.body["updates"] = [
        {"action": "remove-snapshot-ref", "ref-name": "main"},
        {"action": "add-schema", "schema": schema.model_dump(mode="json", by_alias=True)},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "set-default-spec", "spec-id": 0},
        {"action": "set-default-sort-order", "sort-order-id": 0},
        {"action": "set-properties", "updates": properties},
        *snapshot,
    ]
    return request


def field(number: int, name: str, kind: Any, **options: Any) -> Any:
    return types.NestedField(number, name, kind, **options)


def test_a_table_is_replaced_with_its_rows_once(lake: Lake, server: Server) -> None:
    theirs = made(server, "refreshed", properties={"owner": "ana"})
    theirs.append(numbers([1, 2]))
    fields = [field(1, "id", types.LongType()), field(3, "v", types.DoubleType(), doc="a number")]
    rows = pa.table({"id": pa.array([7, 8], pa.int64()), "v": [0.5, 1.5]})
    request = replaced(theirs.refresh(), fields, rows, note="new", comment="refreshed")
    theirs.append(numbers([3]))
    answer = request.send(server)
    assert answer.status_code == 200, answer.text  # whatever its rows are
    ours = lake.table("shop.refreshed")
    assert ours.to_arrow().sort_by("id").to_pylist() == rows.to_pylist()
    assert (ours.meta.comment, ours.meta.columns[1].comment) == ("refreshed", "a number")
    assert ours.meta.properties["user.iceberg.owner"] == "ana"
    assert ours.meta.properties["user.iceberg.note"] == "new"
    assert sorted(ours.to_arrow(version=2).column("id").to_pylist()) == [1, 2, 3]
    again = catalog_of(server, 2).load_table("shop.refreshed")
    again.append(pa.table({"id": pa.array([9], pa.int64()), "v": [2.5]}))
    assert request.send(server).status_code == 200, "a repeat gets the first answer"
    assert (ids(ours.refresh()), head(ours)) == ([7, 8, 9], 4)
    assert again.refresh().scan().to_arrow().num_rows == 3


def test_a_table_is_replaced_without_rows(lake: Lake, server: Server) -> None:
    theirs = made(server, "emptied")
    theirs.append(numbers([1, 2]))
    request = replaced(theirs.refresh(), [field(1, "id", types.LongType()), field(3, "w", types.StringType())], None)
    assert request.send(server).status_code == 200
    ours = lake.table("shop.emptied")
    assert ([one.name for one in ours.meta.columns], ids(ours)) == (["id", "w"], [])


def test_a_replacement_may_keep_the_schema(lake: Lake, server: Server) -> None:
    """Iceberg's Java library then sends the schema's number alone, as in each full refresh by dbt."""
    theirs = made(server, "kept_schema")
    theirs.append(numbers([1, 2]))
    fields = [field(1, "id", types.LongType()), field(2, "note", types.StringType())]
    request = replaced(theirs.refresh(), fields, numbers([5]))
    del request.body["updates"][1]
    request.body["updates"][1]["schema-id"] = theirs.schema().schema_id
    assert request.send(server).status_code == 200
    ours = lake.table("shop.kept_schema")
    assert (ids(ours), ours.to_arrow(version=1).num_rows) == ([5], 2)
    request.body["updates"][1]["schema-id"] = 77
    request.body["updates"] = request.body["updates"][:4]
    assert "has no schema 77" in error_of(request.send(server))[2]
    del request.body["updates"][0]
    assert "can't become the current one" in error_of(request.send(server))[2]


def test_what_a_replacement_cannot_change_is_refused(lake: Lake, server: Server) -> None:
    ours = lake.create_table("shop.laid_out", "id bigint, day date", partition_by=["day"])
    theirs = catalog_of(server, 2).load_table("shop.laid_out")
    fields = [field(1, "id", types.LongType()), field(2, "day", types.DateType())]
    for spec, said in (({"spec-id": 1, "fields": []}, "partitioned by (day)"),):
        request = replaced(theirs, fields, None)
        request.body["updates"][3:4] = [
            {"action": "add-spec", "spec": spec},
            {"action": "set-default-spec", "spec-id": -1},
        ]
        assert said in error_of(request.send(server))[2]
    request = replaced(theirs, [field(1, "id", types.StringType()), fields[1]], None)
    assert "keeps its type" in error_of(request.send(server))[2]
    lake.create_table("shop.keyed_replaced", "id bigint", primary_key=["id"])
    keyed = catalog_of(server, 2).load_table("shop.keyed_replaced")
    assert "primary key" in error_of(replaced(keyed, fields[:1], None).send(server))[2]
    assert head(ours) == 0


def test_another_format_is_refused_in_words(lake: Lake, server: Server) -> None:
    for name, form, asked in (("asks_3", 2, "3"), ("asks_1", 3, "1")):
        with pytest.raises(Exception, match="format-version is"):
            catalog_of(server, form).create_table(
                f"shop.{name}", numbers([0]).schema, properties={"format-version": asked}
            )
        assert f"shop.{name}" not in lake.tables()
    for name, asked in (("asks_its_own", "3"), ("asks_an_older", "2")):  # DuckDB always asks for 2
        catalog_of(server, 3).create_table(f"shop.{name}", numbers([0]).schema, properties={"format-version": asked})
        assert catalog_of(server, 2).load_table(f"shop.{name}").format_version == 2
    theirs = made(server, "upgraded")
    path = "/v1/v2/namespaces/shop/tables/upgraded"
    body = {"requirements": [], "updates": [{"action": "upgrade-format-version", "format-version": 3}]}
    assert "the warehouse v3" in error_of(Request(path, body).send(server))[2]
    body["updates"] = [{"action": "set-properties", "updates": {"format-version": "3"}}]
    assert "the warehouse v3" in error_of(Request(path, body).send(server))[2]
    assert theirs.refresh().format_version == 2


def test_a_change_of_comments_alone_is_made_or_refused(lake: Lake, server: Server) -> None:
    theirs = made(server, "commented", pa.schema([("id", pa.int64()), ("who", pa.struct([("name", pa.string())]))]))
    theirs.update_schema().update_column("id", doc="the number").commit()
    ours = lake.table("shop.commented")
    assert [one.comment for one in ours.meta.columns] == ["the number", ""]
    assert theirs.refresh().schema().find_field("id").doc == "the number"
    theirs.update_schema().update_column("id", doc="").commit()
    assert lake.table("shop.commented").meta.columns[0].comment == ""
    with pytest.raises(Exception, match="of fields within who"):
        theirs.refresh().update_schema().update_column(("who", "name"), doc="x").commit()
    with theirs.refresh().transaction() as transaction:
        transaction.set_properties({"comment": "all of it"})
    assert lake.table("shop.commented").meta.comment == "all of it"


def test_identifier_fields_are_not_dropped_in_silence(lake: Lake, server: Server) -> None:
    from pyiceberg.schema import Schema  # noqa: PLC0415 - the package may be missing

    schema = Schema(field(1, "id", types.LongType(), required=True))
    theirs = catalog_of(server, 2).create_table("shop.identified", schema)
    with pytest.raises(Exception, match="ICEBERG_WRITE"), theirs.update_schema() as update:
        update.set_identifier_fields("id")
    assert not lake.table("shop.identified").meta.primary_key


def registered(server: Server, name: str, place: str) -> Any:
    return server.post("/v1/v2/namespaces/shop/register", {"name": name, "metadata-location": place})


def test_a_dropped_table_is_registered_by_its_last_metadata(server: Server) -> None:
    theirs = made(server, "registered", pa.schema([("id", pa.int64())]))
    first = theirs.metadata_location
    theirs.append(pa.table({"id": [1, 2]}))
    last = theirs.refresh().metadata_location
    assert error_of(registered(server, "registered", last)) == (
        409,
        "AlreadyExistsException",
        "Table already exists: shop.registered",
    )
    catalog = catalog_of(server, 2)
    catalog.drop_table("shop.registered")
    for name, place, why in (
        ("registered", first, "changed after the snapshot"),
        ("under_another", last, "under its own name"),
        ("registered", "s3://bucket/t/metadata/v1.metadata.json", "laketx import iceberg"),
    ):
        status, kind, said = error_of(registered(server, name, place))
        assert (status, kind) == (400, "BadRequestException")
        assert why in said
    found = catalog.register_table("shop.registered", last)
    assert found.metadata.table_uuid == theirs.metadata.table_uuid
    assert sorted(found.scan().to_arrow()["id"].to_pylist()) == [1, 2]
