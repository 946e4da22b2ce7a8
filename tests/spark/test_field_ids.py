"""Field ids in files that Spark wrote: on columns, fields, elements, keys and values, as in files of Arrow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from laketx import Lake, Table
from tests.iceberg.readers import read_duckdb, read_pyiceberg
from tests.spark.sql import SqlReads
from tests.spark.stored import live
from worker.base.schema import OP, ROW_ID
from worker.files.arrow_types import ARROW_ID, arrow_schema, file_schema
from worker.iceberg.export import export

Names = Callable[[], str]
COLUMNS = (
    "id bigint, tags array<string>, counts map<string,bigint>, "
    "`odd ``name``` array<struct<`a.b`:int,m:map<int,array<date>>>>, "
    "place struct<at:array<array<double>>,element:map<string,struct<key:int>>>"
)
VALUES = (
    "array('x', 'y') as tags",
    "map('k', id) as counts",
    "array(named_struct('a.b', 1, 'm', map(1, array(date'2020-01-01')))) as `odd ``name```",
    "named_struct('at', array(array(1.5D), null), 'element', map('e', named_struct('key', 7))) as place",
)


@pytest.fixture(scope="module")
def sql(lake: Lake) -> SqlReads:
    return SqlReads(lake)


def make(lake: Lake, name: str, *, keyed: bool, parted: bool = False) -> Table:
    return lake.create_table(
        name,
        f"{COLUMNS}, day string",
        primary_key=["id", "day"] if keyed else [],
        partition_by=["day"] if parted else [],
        properties={"write.inline.rows": "0"},
    )


def rows(spark: SparkSession, start: int, end: int) -> DataFrame:
    return spark.range(start, end).selectExpr("id", *VALUES, "concat('d', id % 2) as day")


def ids_in(kind: pa.DataType, path: str = "") -> dict[str, Any]:
    parts: list[pa.Field] = []
    if pa.types.is_map(kind):
        parts = [kind.key_field, kind.item_field]
    elif pa.types.is_nested(kind):
        parts = [kind.field(at) for at in range(kind.num_fields)]
    found: dict[str, Any] = {}
    for at, field in enumerate(parts):
        below = f"{path}/{at} {field.name}"
        found |= {below: (field.metadata or {}).get(ARROW_ID), **ids_in(field.type, below)}
    return found


def check_ids(table: Table) -> set[str]:
    """The files that are there now, once all ids in them are those that the Arrow writer gives."""
    files = [entry.file for entry in live(table.refresh()) if entry.HasField("file")]
    for file in files:
        stored = pq.read_schema(Path(table.folder) / file.path)
        wanted = file_schema(arrow_schema(table.meta, with_op=OP in stored.names, with_row_id=ROW_ID in stored.names))
        found = ids_in(pa.struct(list(stored)))
        assert None not in found.values()
        assert found == ids_in(pa.struct(list(wanted)))
    return {file.path for file in files}


def check_readers(table: Table, ids: list[int]) -> None:
    metadata = export(table.refresh().view, table.meta.head_version).metadata
    wanted = [row.asDict(recursive=True) for row in table.read().orderBy("id").collect()]
    assert [row["id"] for row in wanted] == ids
    assert wanted[0]["tags"] == ["x", "y"]
    for read in (read_duckdb, read_pyiceberg):
        found = sorted(read(metadata).to_pylist(), key=lambda row: row["id"])
        for row, one in zip(found, wanted, strict=True):
            assert [row["id"], row["tags"], dict(row["counts"])] == [one["id"], one["tags"], one["counts"]]
            assert row["place"]["at"] == one["place"]["at"]
            assert dict(row["place"]["element"]) == one["place"]["element"]
            assert row["odd `name`"][0]["a.b"] == 1
            assert dict(row["odd `name`"][0]["m"]) == one["odd `name`"][0]["m"]


LONG = pytest.mark.long


@pytest.mark.parametrize(
    ("keyed", "parted"),
    [*(pytest.param(*one, marks=LONG) for one in [(False, False), (False, True), (True, False)]), (True, True)],
)
def test_every_way_to_write_gives_them(
    lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names, keyed: bool, parted: bool
) -> None:
    table = make(lake, new_name(), keyed=keyed, parted=parted)
    seen = [set[str]()]

    def check(work: Callable[[], object]) -> None:
        work()
        seen.append(check_ids(table))
        assert seen[-1] - seen[-2]

    on = "target.id = source.id and target.day = source.day"
    merged = rows(spark, 8, 14)
    merged.createOrReplaceTempView("merged_in")
    check(lambda: table.insert(rows(spark, 0, 10)))
    check(lambda: sql(f"INSERT INTO {{lake}}.{table.name} SELECT * FROM merged_in WHERE id >= 10"))
    check(lambda: table.update({"counts": "map('u', id)"}, where="id = 2"))
    check(lambda: table.merge(merged, on).when_matched_update().when_not_matched_insert().execute())
    check(
        lambda: sql(
            f"MERGE INTO {{lake}}.{table.name} AS t USING merged_in AS s ON t.id = s.id AND t.day = s.day "
            "WHEN MATCHED AND s.id = 9 THEN UPDATE SET tags = array('x', 'y', 'z') WHEN MATCHED THEN UPDATE SET *"
        )
    )
    check_readers(table, list(range(14)))
    if keyed:
        check(lambda: table.compact("major"))
    check(lambda: table.compact("cluster", sort_by=["id"]))
    check_readers(table, list(range(14)))
    check(lambda: table.overwrite(rows(spark, 3, 5)))
    check_readers(table, [3, 4])
