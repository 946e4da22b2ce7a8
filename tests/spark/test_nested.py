"""Fields of structs: added by words and by rows, set by their paths, in both kinds of table and in a merge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from laketx import InputError, Lake, Table

Names = Callable[[], str]
SCHEMA = "id int, s struct<a:int,in:struct<x:string>>, l array<struct<k:int>>"


def rows(table: Table) -> list[Any]:
    return [row.asDict(recursive=True) for row in table.read().orderBy("id").collect()]


@pytest.mark.parametrize("keyed", [False, pytest.param(True, marks=pytest.mark.long)])
def test_fields_of_structs_are_added_and_set(lake: Lake, spark: SparkSession, new_name: Names, keyed: bool) -> None:
    table = lake.create_table(new_name(), SCHEMA, primary_key=["id"] if keyed else [])
    old = "named_struct('a', 1, 'in', named_struct('x', 'y')) as s"
    table.insert(spark.range(1).selectExpr("0 as id", old, "array(named_struct('k', 1)) as l"))
    table.add_columns("S.b int comment 'of b', s.in.`p q` decimal(4,1), note string, l.element.v int")
    more = "named_struct('a', 2, 'in', named_struct('x', 'z', 'w', 1.5D), 'c', 'new') as s"
    table.insert(spark.range(1).selectExpr("1 as id", more), merge_schema=True)
    table.insert(spark.range(1).selectExpr("2 as id"))
    table.update({"s.B": "id + 10", "s.in.`P Q`": "s.a"}, where="id <> 1")
    shown = rows(table)
    assert [one["s"] and one["s"]["b"] for one in shown] == [10, None, 12]
    assert shown[0]["s"]["in"] == {"x": "y", "p q": 1, "w": None}
    assert shown[1]["s"] == {"a": 2, "in": {"x": "z", "p q": None, "w": 1.5}, "b": None, "c": "new"}
    assert shown[0]["l"] == [{"k": 1, "v": None}]
    source = spark.range(2).selectExpr("cast(id + 2 as int) as id", "'m' as m")
    merge = table.merge(source, on="id").when_matched_update({"s.in.x": "source.m"})
    merge.when_not_matched_insert({"id": "source.id", "s.in.x": "source.m"}).execute()
    assert [one["s"]["in"]["x"] for one in rows(table)] == ["y", "z", "m", "m"]
    assert rows(table)[2]["s"]["b"] == 12


def test_what_is_no_field_to_set_or_add(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    table = lake.create_table(new_name(), SCHEMA + ", `s.a` int", primary_key=["id"])
    bad: list[tuple[Callable[[], Any], str]] = [
        (lambda: table.update({"s.nope": "1"}), "COLUMN_UNKNOWN"),
        (lambda: table.update({"l.k": "1"}), "COLUMN_UNKNOWN"),
        (lambda: table.update({"id.x": "1"}), "COLUMN_UNKNOWN"),
        (lambda: table.update({"s": "s", "s.in": "s.in"}), "COLUMN_TWICE"),
        (lambda: table.update({"s.in.x": "'a'", "s.in": "s.in"}), "COLUMN_TWICE"),
        (lambda: table.update({"s.in.x": "array(1)"}), "VALUE_INVALID"),
        (lambda: table.update({"s": "explode(array(s, s))"}), "VALUE_INVALID"),
        (lambda: table.add_columns("s.b int not null"), "COLUMN_NOT_NULLABLE"),
        (lambda: table.add_columns(" "), "COLUMNS_INVALID"),
        (lambda: table.add_columns("id.b int"), "COLUMN_UNKNOWN"),
        (lambda: table.add_columns("s.A int"), "COLUMN_EXISTS"),
    ]
    for call, reason in bad:
        with pytest.raises(Exception, match=reason):
            call()
    table.insert(spark.range(1).selectExpr("1 as id", "5 as `s.a`"))
    table.update({"s.a": "6"})  # the column of that name
    assert table.read().select("`s.a`").collect()[0][0] == 6
    assert table.refresh().meta.schema_version == 1


@pytest.mark.parametrize("keyed", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_struct_that_is_set_has_every_field(lake: Lake, spark: SparkSession, new_name: Names, keyed: bool) -> None:
    table = lake.create_table(new_name(), SCHEMA, primary_key=["id"] if keyed else [])
    inner = "named_struct('x', 'y')"
    table.insert(spark.range(1).selectExpr("1 as id", f"named_struct('a', 1, 'in', {inner}) as s", "null as l"))
    source = spark.range(1).selectExpr("1 as id", "named_struct('a', 2) as s")
    refused: list[Callable[[], Any]] = [
        lambda: table.update({"s": "named_struct('a', 2)"}),
        lambda: table.update({"s.in": "struct()"}),
        lambda: table.update({"l": "array(struct())"}),
        lambda: table.merge(source, "id").when_matched_update().execute(),
        lambda: table.merge(source, "id").when_matched_update({"S": "source.s"}).execute(),
    ]
    for call in refused:
        with pytest.raises(InputError, match="COLUMN_MISSING: the value of"):
            call()
    table.update({"s": f"named_struct('in', {inner}, 'a', 3)"})
    table.update({"l": "null"})
    assert rows(table) == [{"id": 1, "s": {"a": 3, "in": {"x": "y"}}, "l": None}]


def test_comments_are_seen(lake: Lake, new_name: Names) -> None:
    words = "id int comment 'who', `a b` string comment 'it''s'"
    table = lake.create_table(new_name(), words, primary_key=["id"], comment="all of them")
    assert [column.comment for column in table.schema] == ["who", "it's"]
    assert table.describe()["comment"].to_pylist() == ["who", "it's", "all of them"]
    assert table.ddl() == (
        f"CREATE TABLE {table.name} (\n  id int NOT NULL COMMENT 'who',\n  `a b` string COMMENT 'it\\'s',\n"
        "  PRIMARY KEY (id)\n)\nCOMMENT 'all of them'"
    )


def test_a_table_is_renamed(lake: Lake, new_name: Names) -> None:
    old, new = new_name(), new_name()
    table = lake.create_table(old, "id int")
    assert lake.rename_table(old.upper(), new).name == new
    assert table.refresh().name == new
    assert lake.table(new.upper()).table_id == table.table_id
    with lake.transaction() as txn:
        assert txn.table(new) is txn.table(new.upper())  # one change a table, however it is called
