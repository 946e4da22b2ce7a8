"""Views of Spark SQL in the REST catalog: shown, made, replaced, renamed and dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.exceptions import NoSuchViewError, ViewAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, ListType, NestedField, StringType, StructType
from pyiceberg.view.metadata import ViewVersion

from laketx import InputError, Lake
from protos.laketx.v1 import catalog_pb2
from tests.iceberg.servers import Server, catalog_of, served
from tests.iceberg.writers import attached, error_of
from tests.integration.callers import create, guarded
from worker.iceberg.commits.views import new_view
from worker.iceberg.metadata.views import shown_query, view_metadata, view_schema

PATH = "/v1/v3/namespaces/shop/views"
SECOND_US = 1_000_000


def view(name: str, text: str, columns: dict[str, str], **more: Any) -> catalog_pb2.View:
    """As LakeTX's catalog of Spark keeps one; by default the query names its columns as the view does."""
    listed = [catalog_pb2.ViewColumn(name=one, type=kind, nullable=True) for one, kind in columns.items()]
    known: dict[str, Any] = {"query_columns": list(columns), "namespace": ["shop"], **more}
    return catalog_pb2.View(name=name, text=text, columns=listed, **known)


def shown(found: catalog_pb2.View) -> dict[str, Any]:
    return view_metadata(found, "file:///lake/_views/v", "default")


# -- the metadata ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("INT", "int"),
        ("TINYINT", "int"),
        ("BIGINT", "long"),
        ("DECIMAL(10,2)", "decimal(10, 2)"),
        ("TIMESTAMP", "timestamptz"),
        ("TIMESTAMP_NTZ", "timestamp"),
        ("ARRAY<DOUBLE>", {"type": "list", "element-id": 2, "element-required": False, "element": "double"}),
        (
            "MAP<STRING, DATE>",
            {
                "type": "map",
                "key-id": 2,
                "key": "string",
                "value-id": 3,
                "value-required": False,
                "value": "date",
            },
        ),
        (
            "STRUCT<INT: INT NOT NULL COMMENT 'it\\'s NOT NULL: INT', `a ``B`: STRING>",
            {
                "type": "struct",
                "fields": [
                    {"id": 2, "name": "INT", "required": True, "type": "int"},
                    {"id": 3, "name": "a `B", "required": False, "type": "string"},
                ],
            },
        ),
    ],
)
def test_types_are_those_of_spark_in_the_words_of_iceberg(kind: str, wanted: object) -> None:
    [field] = view_schema(view("v", "SELECT 1", {"c": kind}))["fields"]
    assert field == {"id": 1, "name": "c", "required": False, "type": wanted}


@pytest.mark.parametrize("kind", ["INTERVAL DAY TO SECOND", "VOID", "VARIANT", "STRING COLLATE UTF8_LCASE", "TIME(6)"])
def test_types_that_iceberg_lacks_are_refused(kind: str) -> None:
    with pytest.raises(InputError, match="ICEBERG_VIEW") as refused:
        view_schema(view("v", "SELECT 1", {"c": kind}))
    assert kind in str(refused.value)


@pytest.mark.parametrize(
    ("text", "names", "wanted"),
    [
        ("SELECT id, day FROM t", ["id", "day"], None),
        ("SELECT * FROM t", ["id", "a`b"], "SELECT `id`, `a``b`\nFROM (\nSELECT * FROM t\n)"),
        ("TABLE t -- whole", ["id", "day"], "SELECT `id`, `day`\nFROM (\nTABLE t -- whole\n)"),
        ("SELECT *, id FROM t", ["id", "ID"], None),
        ("SELECT * FROM t", [], None),
    ],
)
def test_columns_that_lake_finds_by_name_are_named(text: str, names: list[str], wanted: str | None) -> None:
    found = view("v", text, {"a": "INT", "b": "INT"}, query_columns=names)
    assert shown_query(found) == (wanted or text)


def test_names_are_found_where_the_view_says() -> None:
    def version(**more: Any) -> dict[str, Any]:
        [found] = shown(view("v", "SELECT 1", {"c": "INT"}, **more))["versions"]
        return {name: found[name] for name in ("default-catalog", "default-namespace") if name in found}

    assert version() == {"default-namespace": ["shop"]}
    assert version(namespace=[]) == {"default-namespace": ["default"]}
    assert version(catalog="other", namespace=["a", "b"]) == {
        "default-catalog": "other",
        "default-namespace": ["a", "b"],
    }


def test_each_replacement_has_a_higher_version() -> None:
    made = view("v", "SELECT 1", {"c": "INT"}, create_time_us=7)
    numbers, found = [], shown(made)
    for replaced_us in (0, 8, SECOND_US + 8, 40 * 365 * 86_400 * SECOND_US):
        made.replace_time_us = replaced_us
        found = shown(made)
        numbers.append(found["current-version-id"])
        assert [one["version-id"] for one in found["version-log"]] == numbers[-1:]
    assert numbers == sorted({*numbers})
    assert numbers[-1] < 1 << 31
    assert found["view-uuid"] == shown(view("v", "SELECT 2", {"c": "INT"}, create_time_us=7))["view-uuid"]
    assert found["view-uuid"] != shown(view("v", "SELECT 1", {"c": "INT"}, create_time_us=8))["view-uuid"]


@given(
    name=st.text("abXY_`,", min_size=1, max_size=5),
    catalog=st.sampled_from(["", "other"]),
    namespace=st.lists(st.sampled_from(["shop", "default"]), max_size=2),
    comment=st.text(max_size=3),
)
def test_a_view_that_is_shown_can_be_made_again(name: str, catalog: str, namespace: list[str], comment: str) -> None:
    known = view("v", "SELECT 1", {name: "array<int>"}, catalog=catalog, namespace=namespace, comment=comment)
    known.properties["k"] = "v"
    found = shown(known)
    body = {"schema": found["schemas"][0], "view-version": found["versions"][0], "properties": found["properties"]}
    again = new_view("v", body, "default")
    assert shown(again) == found


# -- the catalog -------------------------------------------------------------------------------------------------------


def test_views_are_listed_in_pages_and_loaded(lake: Lake, server: Server) -> None:
    client = lake.client
    client.create_namespace("paged")
    for name in ("paged.b", "paged.a", "paged.c", "bare"):
        client.put_view(view(name, "SELECT id FROM orders", {"id": "INT"}, comment="all", properties={"k": "v"}))
    catalog = catalog_of(server)
    assert catalog.list_views("paged") == [("paged", "a"), ("paged", "b"), ("paged", "c")]
    assert ("default", "bare") in catalog.list_views("default")
    path = "/v1/v3/namespaces/paged/views"
    first = server.get(path, params={"pageSize": "2", "pageToken": ""}).json()
    assert [one["name"] for one in first["identifiers"]] == ["a", "b"]
    rest = server.get(path, params={"pageSize": "2", "pageToken": first["next-page-token"]}).json()
    assert rest == {"identifiers": [{"namespace": ["paged"], "name": "c"}]}
    loaded = catalog.load_view("paged.a").metadata
    assert loaded.versions[0].representations[0].root.sql == "SELECT id FROM orders"
    assert loaded.properties == {"k": "v", "comment": "all", "spark.query-column-names": "id"}
    assert catalog.load_view("default.bare").metadata.view_uuid != loaded.view_uuid
    assert [catalog.view_exists(f"paged.{name}") for name in ("a", "z")] == [True, False]
    with pytest.raises(NoSuchViewError):
        catalog.load_view("paged.z")
    assert server.get("/v1/v3/namespaces/nowhere/views").status_code == 404
    assert catalog.list_tables("paged") == []
    assert not catalog.table_exists("paged.a")


def test_a_view_that_cannot_be_shown_says_why_and_is_not_listed(lake: Lake, server: Server) -> None:
    lake.client.put_view(view("shop.odd", "SELECT INTERVAL 1 DAY AS i", {"i": "INTERVAL DAY"}))
    assert ("shop", "odd") not in catalog_of(server).list_views("shop")
    status, kind, said = error_of(server.get(f"{PATH}/odd"))
    assert (status, kind) == (400, "BadRequestException")
    assert said.startswith("ICEBERG_VIEW: the view shop.odd has the column i of type INTERVAL DAY")


def test_duckdb_shows_tables_beside_views(lake: Lake, server: Server) -> None:
    lake.create_table("beside.orders", "id int").append([{"id": 1}])
    lake.client.put_view(view("beside.v", "SELECT * FROM orders", {"id": "INT"}, namespace=["beside"]))
    with attached(server) as connection:
        listed = connection.execute("SELECT name FROM (SHOW ALL TABLES) WHERE schema = 'beside'").fetchall()
        assert listed == [("orders",)]
        assert connection.execute("FROM lake.beside.orders").fetchall() == [(1,)]
        with pytest.raises(duckdb.Error, match="v does not exist"):
            connection.execute("FROM lake.beside.v")


def test_rights_are_those_of_the_caller(tmp_path: Path) -> None:
    with guarded(tmp_path / "data") as company:
        company.owner.call("CatalogService/CreateNamespace", name="sales")
        table = create(company.owner, "sales.orders")
        made = catalog_pb2.PutViewRequest(
            view=view("sales.v", "SELECT id FROM orders", {"id": "INT"}),
            request_id="0192d3b0-0000-7000-8000-000000000000",
        )
        company.owner.call("CatalogService/PutView", made)
        company.grant("user:ana", "reader", namespace="sales")
        company.grant("user:bo", "reader", table_id=table)
        words = ["--server", company.service.address, "iceberg", "serve", "--listen", "127.0.0.1:0"]
        with served(*words, "--warehouse", str(tmp_path)) as server:
            ana, bo = (catalog_of(server, token=company.token(name)) for name in ("ana", "bo"))
            assert ana.list_views("sales") == [("sales", "v")]
            assert ana.load_view("sales.v").metadata.versions[0].default_namespace == ("shop",)
            assert bo.list_views("sales") == []
            assert not bo.view_exists("sales.v")
            headers = {"authorization": f"Bearer {company.token('ana')}"}
            path = "/v1/v3/namespaces/sales/views/v"
            assert server.delete(path, headers=headers).status_code == 403
            assert ana.view_exists("sales.v")


# -- changes by clients ------------------------------------------------------------------------------------------------

SCHEMA = Schema(
    NestedField(1, "id", IntegerType(), required=True, doc="of the order"),
    NestedField(2, "tags", ListType(4, StructType(NestedField(5, "A b", StringType())), element_required=False)),
)


def version(sql: str, dialect: str = "spark", namespace: str = "shop") -> ViewVersion:
    found: ViewVersion = ViewVersion.model_validate(
        {
            "schema-id": 1,
            "representations": [{"type": "sql", "sql": sql, "dialect": dialect}],
            "default-namespace": [namespace],
        }
    )
    return found


def test_clients_make_rename_and_drop_views(lake: Lake, server: Server) -> None:
    catalog = catalog_of(server)
    made = catalog.create_view("shop.made", SCHEMA, version("SELECT id, tags FROM orders"), properties={"comment": "c"})
    kept = lake.client.get_view("shop.made")
    assert (kept.text, kept.comment, list(kept.namespace), kept.catalog) == (
        "SELECT id, tags FROM orders",
        "c",
        ["shop"],
        "",
    )
    assert [(one.name, one.type, one.nullable, one.comment) for one in kept.columns] == [
        ("id", "int", False, "of the order"),
        ("tags", "array<struct<`A b`:string>>", True, ""),
    ]
    assert catalog.load_view("shop.made").metadata == made.metadata
    with pytest.raises(ViewAlreadyExistsError):
        catalog.create_view("shop.made", SCHEMA, version("SELECT 1"))
    lake.client.create_namespace("other", if_not_exists=True)
    body = {
        one: {"namespace": [space], "name": "made"} for one, space in (("source", "shop"), ("destination", "other"))
    }
    assert server.post("/v1/v3/views/rename", body).status_code == 204
    assert lake.client.get_view("other.made").text == kept.text
    catalog.drop_view("other.made")
    assert not catalog.view_exists("other.made")
    with pytest.raises(NoSuchViewError):
        catalog.drop_view("other.made")


def test_views_in_no_namespace_find_tables_in_none(lake: Lake, server: Server) -> None:
    catalog_of(server).create_view("default.plain", SCHEMA, version("SELECT id, tags FROM t", namespace="default"))
    assert list(lake.client.get_view("plain").namespace) == []


def replacement(*updates: dict[str, Any], **requirement: str) -> dict[str, Any]:
    listed = [{"type": "assert-view-uuid", **requirement}] if requirement else []
    return {"requirements": listed, "updates": list(updates)}


def new_version(sql: str, schema: int = 0) -> dict[str, Any]:
    found = version(sql).model_dump(mode="json", by_alias=True, exclude_none=True)
    return {"action": "add-view-version", "view-version": found | {"schema-id": schema}}


UUID_FIELD = {"id": 1, "name": "c", "type": "uuid", "required": False}
CURRENT = {"action": "set-current-view-version", "view-version-id": -1}


def test_a_replacement_keeps_what_it_does_not_name(lake: Lake, server: Server) -> None:
    lake.client.put_view(
        view("shop.kept", "SELECT * FROM orders", {"c": "INT"}, comment="first", properties={"a": "1", "b": "2"})
    )
    first = server.get(f"{PATH}/kept").json()["metadata"]
    properties = {"action": "set-properties", "updates": {"a": "9"}}
    removed = {"action": "remove-properties", "removals": ["b"]}
    body = replacement(properties, removed, uuid=first["view-uuid"])
    assert server.post(f"{PATH}/kept", body).status_code == 200
    kept = lake.client.get_view("shop.kept")
    assert (kept.text, kept.comment, dict(kept.properties)) == ("SELECT * FROM orders", "first", {"a": "9"})
    answer = server.post(f"{PATH}/kept", replacement(new_version("SELECT 7 AS c"), CURRENT))
    second = answer.json()["metadata"]
    assert second["view-uuid"] == first["view-uuid"]
    assert second["current-version-id"] > first["current-version-id"]
    kept = lake.client.get_view("shop.kept")
    assert (kept.text, [one.name for one in kept.columns]) == ("SELECT 7 AS c", ["c"])
    schema = {"action": "add-schema", "schema": SCHEMA.model_dump(mode="json", by_alias=True)}
    answer = server.post(f"{PATH}/kept", replacement(schema, new_version("SELECT 1, 2", schema=-1), CURRENT))
    assert [one["name"] for one in answer.json()["metadata"]["schemas"][0]["fields"]] == ["id", "tags"]


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (replacement(uuid="0192d3b0-0000-7000-8000-000000000000"), 409, "load it again"),
        (replacement({"action": "set-location", "location": "s3://b/v"}), 400, "kind set-location"),
        (replacement({"action": "set-current-view-version", "view-version-id": 99}), 400, "its newest version alone"),
        (replacement(new_version("SELECT 1", schema=7), CURRENT), 400, "the schema 7"),
        (replacement({"action": "assign-uuid", "uuid": "0192d3b0-0000-7000-8000-000000000000"}), 400, "assign-uuid"),
        (replacement({"action": "upgrade-format-version", "format-version": 2}), 400, "upgrade-format-version"),
        ({"updates": [{"no": "action"}]}, 400, "ICEBERG_REQUEST"),
        ({"updates": 7}, 400, "ICEBERG_REQUEST"),
    ],
)
def test_replacements_that_are_refused_change_nothing(
    lake: Lake, server: Server, body: dict[str, Any], status: int, said: str
) -> None:
    before = lake.client.put_view(view("shop.fixed", "SELECT 1 AS c", {"c": "INT"}), if_not_exists=True)
    found, _, message = error_of(server.post(f"{PATH}/fixed", body))
    assert found == status
    assert said in message
    assert lake.client.get_view("shop.fixed") == before


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({"location": "s3://bucket/v"}, 400, "no place of its own"),
        ({"name": "a.b"}, 400, "has a dot"),
        ({"name": None}, 400, "name is None"),
        ({"view-version": {"representations": []}}, 400, "ICEBERG_REQUEST"),
        ({"schema": {"type": "struct", "fields": []}}, 400, "VIEW_INVALID"),
        (
            {"schema": {"type": "struct", "fields": [{"id": 1, "name": "c", "type": "uuid", "required": False}]}},
            400,
            "uuid",
        ),
        ({"view-version": version("SELECT 1", "trino").model_dump(mode="json", by_alias=True)}, 400, "has trino"),
        ({"view-version": version("x" * 70_000).model_dump(mode="json", by_alias=True)}, 400, "VIEW_TOO_LARGE"),
    ],
)
def test_views_that_are_refused_are_not_made(
    lake: Lake, server: Server, change: dict[str, Any], status: int, said: str
) -> None:
    body = {
        "name": "refused",
        "schema": SCHEMA.model_dump(mode="json", by_alias=True),
        "view-version": version("SELECT 1").model_dump(mode="json", by_alias=True),
        "properties": {},
    }
    found, _, message = error_of(server.post(PATH, body | change))
    assert found == status
    assert said in message
    assert not catalog_of(server).view_exists("shop.refused")


def test_tables_and_views_share_their_names(lake: Lake, server: Server) -> None:
    lake.create_table("shop.taken", "id int")
    with pytest.raises(ViewAlreadyExistsError):
        catalog_of(server).create_view("shop.taken", SCHEMA, version("SELECT 1"))
    lake.client.put_view(view("shop.named", "SELECT 1 AS c", {"c": "INT"}))
    body = {"name": "named", "schema": SCHEMA.model_dump(mode="json", by_alias=True)}
    assert error_of(server.post("/v1/v3/namespaces/shop/tables", body))[:2] == (409, "AlreadyExistsException")


def test_a_taken_name_is_told_in_the_words_of_iceberg_s_java(lake: Lake, server: Server) -> None:
    for name in ("a_table", "b_table"):
        lake.create_table(f"shop.{name}", "id int")
    for name in ("a_view", "b_view"):
        lake.client.put_view(view(f"shop.{name}", "SELECT 1 AS c", {"c": "INT"}))

    def created(kind: str, name: str) -> str:
        body = {"name": name, "schema": SCHEMA.model_dump(mode="json", by_alias=True)}
        query = version("SELECT 1").model_dump(mode="json", by_alias=True)
        more = {"view-version": query, "properties": {}} if kind == "views" else {}
        return error_of(server.post(f"/v1/v3/namespaces/shop/{kind}", body | more))[2]

    def renamed(kind: str, name: str, new_name: str) -> str:
        places = {"source": name, "destination": new_name}
        body = {at: {"namespace": ["shop"], "name": one} for at, one in places.items()}
        return error_of(server.post(f"/v1/v3/{kind}/rename", body))[2]

    assert created("tables", "a_table").startswith("Table already exists: shop.a_table")
    assert created("tables", "a_view").startswith("View with same name already exists: shop.a_view")
    assert created("views", "a_table").startswith("Table with same name already exists: shop.a_table")
    assert created("views", "a_view").startswith("View already exists: shop.a_view")
    for kind, name, new_name, thing in (
        ("tables", "a_table", "b_table", "Table"),
        ("tables", "a_table", "b_view", "View"),
        ("views", "a_view", "b_table", "Table"),
        ("views", "a_view", "b_view", "View"),
    ):
        said = f"Cannot rename shop.{name} to shop.{new_name}. {thing} already exists"
        assert renamed(kind, name, new_name).startswith(said)


def test_the_config_lists_what_is_served(server: Server) -> None:
    endpoints = server.get("/v1/config").json()["endpoints"]
    prefix = "/v1/{prefix}/namespaces/{namespace}/views"
    views = {f"{method} {prefix}" for method in ("GET", "POST")} | {"POST /v1/{prefix}/views/rename"}
    views |= {f"{method} {prefix}/{{view}}" for method in ("GET", "HEAD", "POST", "DELETE")}
    assert {one for one in endpoints if "view" in one} == views
