"""The user's session is after writes, exports, reads and compactions what it was before."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from pyspark.sql import SparkSession

from laketx import Lake
from worker.base.session import GROUP_PROPERTIES, job_group, with_settings
from worker.read.file_scans import LISTED_IN_DRIVER, read_files
from worker.write.staging import MICROSECONDS, WRITE_SETTINGS

DAYS = "spark.sql.parquet.datetimeRebaseModeInWrite"


def test_writes_exports_and_reads_put_settings_back(
    lake: Lake, spark: SparkSession, new_name: Callable[[], str], tmp_path: Path
) -> None:
    """What the user had set, and what was not set at all."""
    (time_type,) = MICROSECONDS
    keys = [*WRITE_SETTINGS, LISTED_IN_DRIVER]
    spark.conf.set(DAYS, "LEGACY")
    spark.conf.unset(time_type)
    try:
        before = {key: spark.conf.get(key, None) for key in keys}
        assert (before[DAYS], before[time_type]) == ("LEGACY", None)
        table = lake.create_table(new_name(), "id bigint, at timestamp")
        table.insert(spark.range(3).selectExpr("id", "timestamp'2026-11-01 00:00:00' as at"))
        table.export(tmp_path / "out")
        paths = [str(path) for path in (tmp_path / "out").glob("*.parquet")]
        assert read_files(spark, table.schema, paths * 40).count() == 120
        assert {key: spark.conf.get(key, None) for key in keys} == before
    finally:
        spark.conf.unset(DAYS)


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
