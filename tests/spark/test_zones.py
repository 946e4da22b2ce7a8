"""Partitions by timestamp are instants, in whatever zone the session is and whatever its clocks do in autumn."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from laketx import InputError, Lake, Table
from tests.spark.stored import live

Names = Callable[[], str]
Zone = Callable[[str], None]
ZONE = "spark.sql.session.timeZone"
SCHEMA = "id bigint, v string, at timestamp"
FIRST = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)  # 02:30 in Berlin, and an hour later once more
AGAIN = datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
HOUR_US = 3_600_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
def zone(spark: SparkSession) -> Iterator[Zone]:
    before = spark.conf.get(ZONE)
    yield lambda name: spark.conf.set(ZONE, name)
    spark.conf.set(ZONE, str(before))


def us(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def insert(table: Table, *rows: tuple[int, datetime]) -> None:
    numbers = table.lake.spark.createDataFrame([(number, us(at)) for number, at in rows], "id bigint, us bigint")
    table.insert(numbers.selectExpr("id", "cast(id as string) as v", "timestamp_micros(us) as at"))


def shown(table: Table, **asked: Any) -> dict[int, tuple[str, int]]:
    rows = table.read(**asked).selectExpr("id", "v", "unix_micros(at) as us").collect()
    return {row["id"]: (row["v"], row["us"]) for row in rows}


def places(table: Table) -> list[int]:
    return sorted({entry.file.partition.values[0].value.timestamp_us for entry in live(table)})


def make(lake: Lake, name: str, *, keyed: bool) -> Table:
    return lake.create_table(
        name, SCHEMA, primary_key=["at", "id"] if keyed else [], buckets=1 if keyed else None, partition_by=["at"]
    )


@pytest.mark.long
@pytest.mark.parametrize("kind", ["append", "keyed"])
def test_the_hour_that_comes_twice_is_two_partitions(
    lake: Lake, spark: SparkSession, new_name: Names, zone: Zone, kind: str
) -> None:
    zone("Europe/Berlin")
    table = make(lake, new_name(), keyed=kind != "append")
    insert(table, (1, FIRST), (2, AGAIN), (3, FIRST), (4, AGAIN))
    assert places(table) == [us(FIRST), us(AGAIN)]
    table.update({"v": "'new'"}, where="id > 2")
    table.delete("id = 1")
    table.compact("major")
    wanted = {2: ("2", us(AGAIN)), 3: ("new", us(FIRST)), 4: ("new", us(AGAIN))}
    assert shown(table) == wanted
    clock = "2026-10-25 02:30:00"  # Spark reads it as the first of the two
    assert shown(table, where=f"at = '{clock}'") == {3: ("new", us(FIRST))}
    assert shown(table, where=f"at > '{clock}'").keys() == {2, 4}
    table.truncate(partition={"at": clock})
    assert shown(table).keys() == {2, 4}
    rows = spark.createDataFrame([(5, "5")], "id bigint, v string")
    table.overwrite(rows, partition={"at": "2026-10-25T02:30:00+01:00"})
    insert(table, (6, FIRST))
    assert shown(table) == {5: ("5", us(AGAIN)), 6: ("6", us(FIRST))}
    table.overwrite(
        rows.selectExpr("7L as id", "'7' as v", f"timestamp_micros({us(FIRST)}) as at"), partition="dynamic"
    )
    assert shown(table) == {5: ("5", us(AGAIN)), 7: ("7", us(FIRST))}
    changed = table.changes(since=table.refresh().meta.head_version - 1, mode="changes").collect()
    assert {row["id"] for row in changed} == {6, 7}


def test_a_time_without_a_zone_is_one_of_the_session_wherever_it_is_given(
    lake: Lake, spark: SparkSession, new_name: Names, zone: Zone
) -> None:
    zone("America/New_York")
    clock = datetime.fromisoformat("2026-11-22 10:00:00")
    at = datetime(2026, 11, 22, 15, tzinfo=UTC)
    forms = (clock, str(clock), clock.isoformat(), at, at.isoformat(), clock)
    rows = spark.createDataFrame([(1, "new")], "id bigint, v string")
    table = make(lake, new_name(), keyed=False)
    insert(table, (1, at), (2, at.replace(hour=10)))
    assert shown(table, where=f"at = '{clock}'") == {1: ("1", us(at))}
    for form, again in zip(forms[::2], forms[1::2], strict=True):
        table.overwrite(rows, partition={"at": form})
        assert shown(table) == {1: ("new", us(at)), 2: ("2", us(at) - 5 * HOUR_US)}
        table.restore(version=1, partition={"at": again})
        assert shown(table)[1] == ("1", us(at))
    table.merge(rows, on="id").when_matched_update({"at": clock.replace(hour=11)}).execute()
    table.update({"at": clock}, where="at = '2026-11-22 11:00:00'")
    assert shown(table)[1] == ("1", us(at))
    table.truncate(partition=[{"at": form} for form in forms])
    assert shown(table).keys() == {2}
    with pytest.raises(InputError, match="VALUE_INVALID"):
        table.truncate(partition={"at": "2026-11-22 10:00:00 nowhere"})


def test_a_partition_without_a_zone_is_what_its_clock_shows(
    lake: Lake, spark: SparkSession, new_name: Names, zone: Zone
) -> None:
    zone("America/New_York")
    table = lake.create_table(new_name(), "id bigint, at timestamp_ntz", partition_by=["at"])
    clocks = [datetime.fromisoformat(f"2026-11-01 0{hour}:30:00") for hour in (1, 6)]
    rows = spark.createDataFrame(list(enumerate(map(str, clocks))), "id bigint, at string")
    table.insert(rows.selectExpr("id", "cast(at as timestamp_ntz) as at"))
    table.overwrite(spark.range(9, 10), partition={"at": clocks[0]})
    assert sorted(map(tuple, table.read().collect())) == [(1, clocks[1]), (9, clocks[0])]
    table.truncate(partition={"at": str(clocks[1])})
    assert [row["id"] for row in table.read(where=f"at = '{clocks[0]}'").collect()] == [9]
    with pytest.raises(InputError, match="it takes no time zone"):
        table.truncate(partition={"at": clocks[0].replace(tzinfo=UTC)})


def test_exports_name_instants_in_utc_and_imports_read_them(
    lake: Lake, spark: SparkSession, new_name: Names, zone: Zone, tmp_path: Path
) -> None:
    zone("Europe/Berlin")
    table = make(lake, new_name(), keyed=False)
    insert(table, (1, FIRST), (2, AGAIN), (3, FIRST.replace(microsecond=250_000)))
    table.export(tmp_path / "out")
    folders = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert folders == [f"at=2026-10-25 {clock}Z" for clock in ("00%3A30%3A00.25", "00%3A30%3A00", "01%3A30%3A00")]
    again = make(lake, new_name(), keyed=False)
    lake.import_parquet(tmp_path / "out", again.name)
    zone("Asia/Tokyo")
    assert shown(again) == shown(table)
    assert places(again) == places(table)
    spark.range(1).selectExpr("9L as id", "'9' as v").write.parquet(f"{tmp_path}/more/at=2026-10-25 09%3A30%3A00")
    lake.import_parquet(tmp_path / "more", again.name)  # a folder without a zone: the session's, as Spark reads it
    assert shown(again, where="at = '2026-10-25 09:30:00'").keys() == {1, 9}
