"""Default values from Python; tests/sql/defaults.test has those of SQL."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, StructType

from laketx import Lake
from tests.spark.sql import catalog_of
from worker.base.errors import InputError

Names = Callable[[], str]


@pytest.mark.parametrize("keyed", [pytest.param(False, marks=pytest.mark.long), True])
def test_rows_that_leave_a_column_out_have_its_default(
    lake: Lake, spark: SparkSession, new_name: Names, keyed: bool
) -> None:
    schema = "id bigint, day date, v string comment 'a word', n int"
    key = ["id", "day"] if keyed else []
    table = lake.create_table(new_name(), schema, primary_key=key, partition_by=["day"])
    table.set_default("day", "DATE'2026-11-01'").set_default("v", "concat('n', 'ew')").insert(spark.range(2))
    table.insert(spark.sql("SELECT 2L id, DATE'2026-11-02' day, CAST(NULL AS STRING) v, 5 n"))
    table = table.set_default("V", "'later'").set_default("n", "40 + 2").set_default("day", None)
    source = spark.sql("SELECT explode(array(2L, 3L)) id, DATE'2026-11-02' day")
    merge = table.merge(source, on=["id", "day"])
    merge.when_matched_update({"n": "6"}).when_not_matched_insert(
        {"id": "source.id", "day": "source.day", "n": "7"}
    ).execute()
    table.overwrite(spark.sql("SELECT 9L id"), partition={"day": "2026-11-03"})
    found = sorted((row.id, str(row.day), row.v, row.n) for row in table.read().collect())
    assert found == [
        (0, "2026-11-01", "new", None),
        (1, "2026-11-01", "new", None),
        (2, "2026-11-02", None, 6),
        (3, "2026-11-02", "later", 7),
        (9, "2026-11-03", "later", 42),
    ]
    assert "v string DEFAULT 'later' COMMENT 'a word'" in lake.table(table.name).ddl()


def test_a_default_is_a_value_of_its_column(lake: Lake, new_name: Names) -> None:
    name = new_name()
    number = StructType().add("v", IntegerType(), metadata={"CURRENT_DEFAULT": "'no number'"})
    with pytest.raises(InputError, match="DEFAULT_INVALID"):
        lake.create_table(name, number)
    table = lake.create_table(name, "id bigint, v int")
    for default in ("'no number'", "id", "max(1)", "(SELECT", "1) -- "):
        with pytest.raises(InputError, match="DEFAULT_INVALID"):
            table.set_default("v", default)
    assert table.refresh().meta.head_version == 0
    assert lake.create_table(new_name(), table.set_default("v", "5").schema).meta.columns[1].default_sql == "5"


def test_a_stream_writes_null_where_it_lacks_a_column(
    lake: Lake, spark: SparkSession, new_name: Names, tmp_path: Path
) -> None:
    catalog = catalog_of(lake)
    source, table = (lake.create_table(new_name(), schema) for schema in ("id bigint", "id bigint, v string"))
    source.insert(spark.range(1))
    table.set_default("v", "'new'")
    writer = spark.readStream.table(f"{catalog}.{source.name}").writeStream.trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path)).toTable(f"{catalog}.{table.name}").awaitTermination()
    assert table.read().collect() == [(0, None)]
