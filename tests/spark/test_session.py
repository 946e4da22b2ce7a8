"""The user's session is after writes, exports, reads and compactions what it was before."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from laketx import Lake, connect
from tests.spark.sql import SqlReads
from tests.spark.stored import live
from worker.dataframes.catalog_writes import OWN_SETTINGS
from worker.dataframes.export import MICROSECONDS
from worker.spark.jobs import GROUP_PROPERTIES, job_group
from worker.spark.session import with_settings

DAYS = "spark.sql.parquet.datetimeRebaseModeInWrite"
COLUMNS = "id bigint, price decimal(9,2), day date, at timestamp, tags array<string>"
OLD = (
    "SELECT 1L AS id, 1.50BD AS price, DATE'1500-03-01' AS day, "
    "timestamp_micros(-14825808000000000) AS at, array('a') AS tags"
)
OTHERWISE = {
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.parquet.fieldId.write.enabled": "false",
    "spark.sql.parquet.writeLegacyFormat": "true",
    "spark.sql.parquet.compression.codec": "gzip",
    DAYS: "LEGACY",
}


def test_writes_exports_and_reads_put_settings_back(
    lake: Lake, spark: SparkSession, new_name: Callable[[], str], tmp_path: Path
) -> None:
    """What the user had set, and what was not set at all."""
    (time_type,) = MICROSECONDS
    keys = [time_type, DAYS, *OWN_SETTINGS]
    spark.conf.set(DAYS, "LEGACY")
    spark.conf.unset(time_type)
    try:
        before = {key: spark.conf.get(key, None) for key in keys}
        assert (before[DAYS], before[time_type]) == ("LEGACY", None)
        table = lake.create_table(new_name(), "id bigint, at timestamp")
        table.insert(spark.range(3).selectExpr("id", "timestamp'2026-11-01 00:00:00' as at"))
        table.update({"id": "id + 1"}, where="id = 2")
        table.export(tmp_path / "out")
        assert table.read().count() == 3
        assert {key: spark.conf.get(key, None) for key in keys} == before
    finally:
        spark.conf.unset(DAYS)


@pytest.mark.parametrize(
    ("key", "door"),
    [
        ("at", "python"),
        ("id", "sql"),
        pytest.param("at", "sql", marks=pytest.mark.long),
        pytest.param("id", "python", marks=pytest.mark.long),
    ],
)
def test_files_are_the_same_whatever_the_session_says_of_parquet(
    spark: SparkSession, tmp_path: Path, door: str, key: str
) -> None:
    """Such files have bounds, field ids and days of one calendar, which all readers rely on."""
    files = []
    for number, settings in enumerate([{}, OTHERWISE]):
        session = spark.newSession()
        for name, value in settings.items():
            session.conf.set(name, value)
        with connect(tmp_path / str(number), session) as lake:
            made = lake.create_table("t", COLUMNS, partition_by=[key], properties={"write.inline.rows": "0"})
            if door == "python":
                made.insert(session.sql(OLD))
            else:
                SqlReads(lake)(f"INSERT INTO {{lake}}.t {OLD}")
            [entry] = live(made.refresh())
            footer = pq.read_metadata(Path(made.folder) / entry.file.path)
            columns = [footer.row_group(0).column(at) for at in range(footer.num_columns)]
            ids = str(pq.read_schema(Path(made.folder) / entry.file.path))
            stats = sorted(one.SerializeToString() for one in entry.file.stats)
            codecs = {one.compression for one in columns}
            files.append((str(footer.schema).partition("\n")[2], ids, stats, codecs, entry.file.partition))
            assert [(row.id, str(row.price), str(row.day), row.tags) for row in made.read().collect()] == [
                (1, "1.50", "1500-03-01", ["a"])
            ]
    assert files[0] == files[1]
    assert files[0][3] == {"ZSTD"}


def test_a_setting_stays_until_the_last_who_needs_it_is_done(spark: SparkSession) -> None:
    before = spark.conf.get(DAYS, None)
    with ExitStack() as first:
        first.enter_context(with_settings(spark, {DAYS: "LEGACY"}))
        with ExitStack() as second:
            second.enter_context(with_settings(spark, {DAYS: "LEGACY"}))
            first.close()
            assert spark.conf.get(DAYS) == "LEGACY"
    assert spark.conf.get(DAYS, None) == before


def test_a_group_of_jobs_ends_with_its_block(spark: SparkSession) -> None:
    context = spark.sparkContext

    def now() -> list[str | None]:
        return [context.getLocalProperty(key) for key in GROUP_PROPERTIES]

    before = now()
    with job_group(spark, "outer", "of the user"):
        outer = now()
        with job_group(spark, "inner", "of the worker"):
            assert now() == ["inner", "of the worker", "false"]
        assert now() == outer
    assert now() == before
