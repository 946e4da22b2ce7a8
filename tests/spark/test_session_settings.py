"""No setting of a session changes what a table is, or what a read answers."""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from laketx import InputError, Lake, connect
from tests.spark.sql import SqlReads
from tests.spark.stored import live

OLD_DAY = date(1500, 2, 28)  # ten days from the day of that name in the older calendar
OLD = datetime(1500, 2, 28, 12, tzinfo=UTC)
NO_CLOCK_SHOWS = datetime(2026, 3, 29, 2, 30)  # noqa: DTZ001 - in Berlin clocks go forward then
PARQUET = "spark.sql.parquet."
FILES = "spark.sql.files."
OTHERWISE = {
    f"{PARQUET}datetimeRebaseModeInRead": "LEGACY",
    f"{PARQUET}int96RebaseModeInRead": "LEGACY",
    f"{PARQUET}int96TimestampConversion": "true",
    f"{FILES}ignoreMissingFiles": "true",
    f"{FILES}ignoreCorruptFiles": "true",
    f"{FILES}ignoredPathSegmentRegex": "part|^[._]",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.session.timeZone": "Europe/Berlin",
    "spark.sql.ansi.enforceReservedKeywords": "true",
}


@pytest.fixture
def otherwise(spark: SparkSession, tmp_path: Path) -> Iterator[Lake]:
    """A lake in a session that is set otherwise."""
    session = spark.newSession()
    for key, value in OTHERWISE.items():
        session.conf.set(key, value)
    with connect(tmp_path / "lake", session) as found:
        yield found


@pytest.mark.parametrize("keyed", [pytest.param(False, marks=pytest.mark.long), True])
def test_old_days_are_the_same_in_files_of_every_writer(otherwise: Lake, keyed: bool) -> None:
    """Files that Spark did not write don't say which calendar they have."""
    table = otherwise.create_table(
        "old", "id bigint, day date, at timestamp_ltz, note string",
        primary_key=["id"] if keyed else [], buckets=1 if keyed else None,
    )  # fmt: skip
    rows = {"id": [1, 2], "day": [OLD_DAY, OLD_DAY], "at": pa.array([OLD, OLD], pa.timestamp("us", "UTC"))}
    table.insert(pa.table(rows))
    table.insert(pa.table(rows | {"id": [3, 4]}))
    table.update({"note": "'kept'"}, where="id = 1")
    table.delete("id = 2")
    assert table.compact("major")
    assert table.compact("cluster", sort_by=["note"])
    sql = SqlReads(otherwise)
    there = "SELECT id, unix_date(day), unix_micros(at) FROM"
    days, micros = (OLD_DAY - date(1970, 1, 1)).days, int(OLD.timestamp()) * 1_000_000
    assert sorted(sql.rows(f"{there} {{lake}}.old")) == [(one, days, micros) for one in (1, 3, 4)]
    log = table.changes(since=0, mode="log").where(f"unix_date(day) = {days} and unix_micros(at) = {micros}")
    assert log.count() == 4 + 2 + 1


def test_a_file_that_is_missing_is_missed(otherwise: Lake) -> None:
    table = otherwise.create_table("lost", "id bigint", properties={"write.inline.rows": "0"})
    table.insert(otherwise.spark.range(5).coalesce(1))
    table.insert(otherwise.spark.range(5, 9).coalesce(1))
    assert [one.count() for one in (table.read(), table.changes(since=0))] == [9, 9]
    Path(table.folder, live(table)[0].file.path).unlink()
    reads: list[Callable[[], DataFrame]] = [table.read, lambda: table.changes(since=0)]
    for read in reads:
        with pytest.raises((PySparkException, Py4JJavaError), match=r"FAILED_READ_FILE|PATH_NOT_FOUND|does not exist"):
            read().collect()
    with pytest.raises((PySparkException, Py4JJavaError, InputError, OSError)):
        table.update({"id": "id + 1"})
    assert table.refresh().meta.head_version == 2


def test_times_are_of_the_types_that_the_lake_has(otherwise: Lake, lake: Lake, new_name: Callable[[], str]) -> None:
    sql = SqlReads(otherwise)
    otherwise.client.create_namespace("shop")
    table = otherwise.create_table("shop.t", "id bigint, at timestamp_ltz, local timestamp_ntz")
    table.insert(otherwise.spark.sql("SELECT 1L id, timestamp_micros(0) at, timestamp_ntz'2026-03-29 02:30:00' local"))
    sql("CREATE VIEW {lake}.shop.v AS SELECT at, local FROM {lake}.shop.t")
    types = [("at", "timestamp"), ("local", "timestamp_ntz")]
    assert sql("SELECT * FROM {lake}.shop.v").dtypes == types
    assert [one[:2] for one in sql.rows("DESCRIBE {lake}.shop.v")] == types
    assert dict(sql("SELECT * FROM {lake}.shop.t.history").dtypes)["commit_time"] == "timestamp"
    assert dict(sql("CALL {lake}.system.tags('shop.t')").dtypes)["create_time"] == "timestamp"
    none = table.changes(since=1)
    assert dict(none.dtypes)["_commit_time"] == dict(table.changes(since=0).dtypes)["_commit_time"] == "timestamp"
    table.set_default("at", "timestamp_micros(7)")
    table.merge(otherwise.spark.sql("SELECT 2L id"), on="id").when_not_matched_insert({"id": "source.id"}).execute()
    assert table.read(where="unix_micros(at) = 7").count() == 1


def test_a_clock_time_that_the_zone_leaves_out_is_kept(otherwise: Lake) -> None:
    table = otherwise.create_table("clock", "id bigint, local timestamp_ntz", primary_key=["id"], buckets=1)
    for kind in ("TIMESTAMP_LTZ", "TIMESTAMP_NTZ"):
        otherwise.spark.conf.set("spark.sql.timestampType", kind)
        rows = pa.table({"id": [1], "local": pa.array([NO_CLOCK_SHOWS], pa.timestamp("us"))})
        table.merge(rows, on="id").when_matched_update().when_not_matched_insert().execute()
        assert [row["local"] for row in table.read().collect()] == [NO_CLOCK_SHOWS]


def test_keys_keep_what_they_are(otherwise: Lake) -> None:
    """Casts there and back are of the table's types, not of the session's."""
    table = otherwise.create_table("keys", "at timestamp_ltz, v int", primary_key=["at"], buckets=1)
    sql = SqlReads(otherwise)
    sql("INSERT INTO {lake}.keys SELECT timestamp_ntz'2026-11-01 10:00:00', 1")
    table.insert(otherwise.spark.sql("SELECT timestamp_ntz'2026-11-01 11:00:00' AS at, 2 AS v"))
    assert table.read().count() == 2
    with pytest.raises(InputError, match="CAST_LOSSY"):
        table.insert(otherwise.spark.sql("SELECT timestamp_ntz'2026-03-29 02:30:00' AS at, 3 AS v"))
