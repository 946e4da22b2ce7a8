"""Schemas, properties, tables and namespaces that Iceberg's clients change through the REST catalog."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from laketx import Lake
from tests.iceberg.servers import Server, catalog_of
from tests.iceberg.writers import (
    SCHEMA,
    error_of,
    head,
    ids,
    made,
    numbers,
    prepared,
)

pyiceberg_types = pytest.importorskip("pyiceberg.types", reason="pyiceberg is not installed")

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
    with pytest.raises(Exception, match="Namespace does not exist"):
        catalog.create_table("gone.three", SCHEMA)
