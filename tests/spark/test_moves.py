"""Keys that are unique within a partition: rows that move, and merges by partitions that are NULL."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from laketx import ConflictError, InputError, Lake, Table
from metaservice.client import InvalidError, key_scope, keys_checked
from tests.spark.held import Held
from tests.spark.sql import SqlReads
from tests.spark.stored import staged_folders, stored_rows

Names = Callable[[], str]
DAYS = ["mon", "tue", None]
SCHEMA = "id bigint, v bigint, day string"
Row = tuple[int, int | None, str | None]


def frame(spark: SparkSession, *rows: Row) -> DataFrame:
    return spark.createDataFrame(list(rows), SCHEMA)


def content(table: Table) -> list[Row]:
    return sorted(((row["id"], row["v"], row["day"]) for row in stored_rows(table)), key=repr)


def make(lake: Lake, name: str, *rows: Row, profile: str = "") -> Table:
    table = lake.create_table(
        name, SCHEMA, primary_key=["id"], buckets=2, partition_by=["day"], key_scope="partition", profile=profile
    )
    table.insert(frame(lake.spark, *rows))
    return table


def test_a_key_without_the_partition_is_refused_unless_asked_for(lake: Lake, new_name: Names) -> None:
    name = new_name()
    with pytest.raises(InvalidError, match="KEY_LACKS_PARTITION"):
        lake.create_table(name, SCHEMA, primary_key=["id"], partition_by=["day"])
    within = lake.create_table(name, SCHEMA, primary_key=["id"], partition_by=["day"], key_scope="partition")
    whole = lake.create_table(new_name(), SCHEMA, primary_key=["day", "id"], partition_by=["day"])
    assert [key_scope(one.meta) for one in (within, whole)] == ["partition", "table"]
    with pytest.raises(InputError, match="KEY_SET"):
        whole.update({"day": "'tue'"})


@pytest.mark.long
def test_no_row_moves_onto_a_key_that_is_there(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    rows: list[Row] = [(1, 1, "mon"), (1, 7, "tue"), (2, 2, "mon"), (3, 3, "mon"), (3, 3, None)]
    table = make(lake, new_name(), *rows)
    source = frame(spark, (1, 100, "tue"), (2, 200, "tue"))
    matched = "target.id = source.id and target.day = 'mon'"
    moves: list[Callable[[], Any]] = [
        lambda: table.update({"day": "'tue'"}, where="day = 'mon'"),
        lambda: table.update({"DAY": "null"}, where="v = 3 and day = 'mon'"),
        lambda: table.merge(source, on=matched).when_matched_update({"Day": "source.day"}).execute(),
        lambda: table.merge(source, on=matched).when_not_matched_by_source_update({"day": "null"}).execute(),
    ]
    for move in moves:
        folders = staged_folders(table)
        with pytest.raises(InputError) as refused:
            move()
        assert refused.value.reason == "KEY_EXISTS"
        assert (content(table), staged_folders(table)) == (sorted(rows, key=repr), folders)


def test_no_two_rows_move_onto_one_key(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    rows: list[Row] = [(1, 1, "mon"), (1, 2, "tue"), (2, 3, "mon")]
    table = make(lake, new_name(), *rows)
    moves: list[Callable[[], Any]] = [
        lambda: table.update({"day": "'wed'"}),
        lambda: table.merge(frame(spark, (1, 9, "wed")), on="id").when_matched_update().execute(),
    ]
    for move in moves:
        with pytest.raises(InputError) as refused:
            move()
        assert refused.value.reason == "KEY_EXISTS"
        assert content(table) == rows


@pytest.mark.long
def test_rows_move_to_keys_that_are_free_or_left(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    table = make(lake, new_name(), (1, 1, "mon"), (1, 2, "tue"), (2, 3, "mon"), (4, 4, None))
    table.update({"day": "if(day = 'mon', 'tue', 'mon')"}, where="id = 1")  # they swap
    assert content(table) == [(1, 1, "tue"), (1, 2, "mon"), (2, 3, "mon"), (4, 4, None)]
    table.delete("id = 1 and day = 'tue'")
    table.update({"day": "'tue'"}, where="id < 3")  # the key of a row that is gone is free
    assert content(table) == [(1, 2, "tue"), (2, 3, "tue"), (4, 4, None)]
    moved = frame(spark, (1, 5, "wed"), (4, 6, "wed"), (5, 7, "wed"))
    table.merge(moved, on="id").when_matched_update().when_not_matched_insert().execute()
    assert content(table) == [(1, 5, "wed"), (2, 3, "tue"), (4, 6, "wed"), (5, 7, "wed")]
    table.update({"day": "cast(null as string)", "v": "v + cast(rand() * 0 as bigint)"}, where="day = 'wed'")
    assert content(table) == [(1, 5, None), (2, 3, "tue"), (4, 6, None), (5, 7, None)]


@pytest.mark.parametrize("profile", ["row_level", pytest.param("delta_write_serializable", marks=pytest.mark.long)])
def test_a_key_that_comes_meanwhile_where_a_row_moves_to_is_a_conflict(
    lake: Lake, spark: SparkSession, new_name: Names, profile: str
) -> None:
    table = make(lake, new_name(), (1, 1, "mon"), profile=profile)
    txn = lake.transaction()
    txn.table(table.name).update({"day": "'tue'"}, where="day = 'mon'")
    table.insert(frame(spark, (1, 2, "tue")))
    with pytest.raises(ConflictError):
        txn.__exit__(None, None, None)
    assert content(table) == [(1, 1, "mon"), (1, 2, "tue")]


@pytest.mark.parametrize("upsert", [False, True])
def test_merges_by_partition_match_null_with_null(
    lake: Lake, spark: SparkSession, new_name: Names, upsert: bool
) -> None:
    table = make(lake, new_name(), (1, 1, None), (1, 1, "mon"), (2, 2, None), (3, 3, "mon"))
    source = frame(spark, (1, 10, None), (3, 30, "mon"), (4, 40, None), (3, 31, None))
    merge = table.merge(source, on=["day", "id"])
    if upsert:
        merge.when_matched_update().when_not_matched_insert().execute()
    else:
        merge = merge.when_matched_update({"v": "target.v + source.v"}).when_not_matched_insert()
        merge.when_not_matched_by_source_delete(condition="target.id = 2").execute()
    plus = 0 if upsert else 1
    rest: list[Row] = [(2, 2, None)] if upsert else []
    wanted: list[Row] = [(1, 1, "mon"), (1, 10 + plus, None), (3, 30 + 3 * plus, "mon"), (3, 31, None), (4, 40, None)]
    assert content(table) == sorted(wanted + rest, key=repr)
    table.merge(frame(spark, (4, 0, None)), on=["id", "day"]).when_matched_delete().execute()
    assert content(table) == sorted([one for one in wanted + rest if one[0] != 4], key=repr)


LATER = "(SELECT 1L AS id, 2L AS v, 'tue' AS day)"
UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
LOOSE = [
    ("t.id = s.id AND t.v > 1", UPSERT),
    ("t.day = s.day", UPSERT),
    ("t.id = s.id + 1", UPSERT),
    ("t.id = s.id", "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.v, s.v)"),
]


def test_spark_adds_no_keys_that_it_has_not_looked_up(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    name = new_name()
    table = lake.create_table(name, SCHEMA, primary_key=["id"], partition_by=["day"], key_scope="table")
    table.upsert([{"id": 1, "v": 1, "day": "mon"}])
    sql = SqlReads(lake)
    for on, clauses in LOOSE:
        merge = f"MERGE INTO {sql.name}.{name} t USING {LATER} s ON {on} {clauses}"
        for write in (sql, partial(_in_sql, lake)):
            with pytest.raises(Exception, match="KEYS_NOT_LOOKED_UP"):
                write(merge)
    assert content(table) == [(1, 1, "mon")]
    table.update({"day": "'wed'"}, where="id = 1")  # not by Spark, although it runs
    assert content(table) == [(1, 1, "wed")]
    assert [row["day"] for row in table.read().collect()] == ["wed"]


@pytest.mark.parametrize("profile", ["row_level", pytest.param("delta_write_serializable", marks=pytest.mark.long)])
def test_a_transaction_looks_up_the_keys_that_spark_writes(
    lake: Lake, spark: SparkSession, new_name: Names, profile: str
) -> None:
    name, sql = new_name(), SqlReads(lake)
    table = lake.create_table(
        name, SCHEMA, primary_key=["id"], partition_by=["day"], key_scope="table", profile=profile
    )
    table.upsert([{"id": 1, "v": 1, "day": "mon"}, {"id": 2, "v": 2, "day": "mon"}])
    beside = lake.create_table(new_name(), "n bigint")
    whole = f"{sql.name}.{name}"
    writes: list[Callable[[Any], Any]] = [
        lambda txn: txn.table(name).insert(frame(spark, (1, 2, "tue"), (3, 3, None))),
        lambda txn: txn.sql(f"INSERT INTO {whole} VALUES (1, 3, 'wed'), (3, 4, 'mon')"),
        lambda txn: txn.sql(f"UPDATE {whole} SET v = v + 1, day = 'tue' WHERE id < 3"),
        lambda txn: txn.table(name).merge(frame(spark, (1, 5, None)), on="id").when_matched_update().execute(),
        lambda txn: txn.sql(f"MERGE INTO {whole} t USING {LATER} s ON t.id = s.id {UPSERT}"),
        lambda txn: txn.sql(f"DELETE FROM {whole} WHERE v = 3 AND id = 2"),
    ]
    expected: list[list[Row]] = [
        [(1, 2, "tue"), (2, 2, "mon"), (3, 3, None)],
        [(1, 3, "wed"), (2, 2, "mon"), (3, 4, "mon")],
        [(1, 4, "tue"), (2, 3, "tue"), (3, 4, "mon")],
        [(1, 5, None), (2, 3, "tue"), (3, 4, "mon")],
        [(1, 2, "tue"), (2, 3, "tue"), (3, 4, "mon")],
        [(1, 2, "tue"), (3, 4, "mon")],
    ]
    for number, (write, rows) in enumerate(zip(writes, expected, strict=True)):
        with lake.transaction() as txn:
            txn.table(beside.name).append([{"n": number}])
            write(txn)
        assert content(table) == rows, number
    txn = lake.transaction()
    txn.__enter__()  # neither has found the key
    txn.sql(f"INSERT INTO {whole} VALUES (9, 1, 'mon')")
    table.upsert([{"id": 9, "v": 2, "day": "tue"}])
    with pytest.raises(ConflictError, match="key"):
        txn.__exit__(None, None, None)
    assert content(table)[2:] == [(9, 2, "tue")]
    assert beside.count() == len(writes)


def test_spark_overwrites_no_partition_with_a_key_of_another(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    name, sql = new_name(), SqlReads(lake)
    twice = frame(spark, (1, 1, "mon"), (2, 2, None), (1, 3, "tue"))
    twice.createOrReplaceTempView("twice")
    spanning = "PARTITIONED BY (day) TBLPROPERTIES ('primary_key' = 'id', 'key.scope' = 'table')"
    made = f"CREATE TABLE {{lake}}.{name} {spanning}"
    with pytest.raises(Exception, match="KEY_TWICE"):
        sql(f"{made} AS SELECT * FROM twice")
    sql(f"{made} AS SELECT * FROM twice WHERE v < 3")
    table = lake.table(name)
    with pytest.raises(Exception, match=r"KEY_EXISTS: .*day=NULL, id=2"):
        sql(f"INSERT OVERWRITE {{lake}}.{name} PARTITION (day = 'mon') VALUES (2L, 4L)")
    with pytest.raises(InputError, match="KEY_EXISTS"):
        table.overwrite(frame(spark, (2, 4, "mon"), (3, 3, "tue")), partition="dynamic")
    with pytest.raises(InputError, match="KEY_TWICE"):
        table.overwrite(twice)
    assert content(table) == [(1, 1, "mon"), (2, 2, None)]
    table.overwrite(frame(spark, (2, 4, "mon"), (5, 5, None)), partition="dynamic")
    assert content(table) == [(2, 4, "mon"), (5, 5, None)]
    table.overwrite(frame(spark, (5, 6, "mon")))
    assert content(table) == [(5, 6, "mon")]


def test_spark_only_inserts_while_keys_are_checked(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    table, sql = make(lake, new_name(), (1, 1, "mon"), (1, 2, "tue")), SqlReads(lake)
    name = f"{{lake}}.{table.name}"
    sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('key.scope' = 'table')")
    for fake in ("SET TBLPROPERTIES ('key.scope.checked' = '1:2')", "UNSET TBLPROPERTIES ('key.scope.checked')"):
        with pytest.raises(Exception, match="PROPERTY_FIXED"):
            sql(f"ALTER TABLE {name} {fake}")
    assert keys_checked(table.refresh().meta) == (1, 0)
    for statement in (
        f"UPDATE {name} SET v = 3 WHERE id = 1",
        f"DELETE FROM {name} WHERE v + 1 = 2",
        f"MERGE INTO {name} t USING {LATER} s ON t.id = s.id + 1 {UPSERT}",
    ):
        with pytest.raises(Exception, match="KEYS_NOT_LOOKED_UP"):
            sql(statement)
    assert content(table) == [(1, 1, "mon"), (1, 2, "tue")]
    sql(f"INSERT INTO {name} VALUES (1, 3, 'tue')")
    assert content(table) == [(1, 3, "tue")]
    sql(f"CREATE TABLE {name}_like LIKE {name}")
    assert dict(lake.table(f"{table.name}_like").meta.properties) == {"key.scope": "table"}


@pytest.mark.parametrize("profile", ["row_level", pytest.param("maxcompute", marks=pytest.mark.long)])
def test_spark_changes_rows_whose_keys_are_unique_across_partitions(
    lake: Lake, spark: SparkSession, new_name: Names, profile: str
) -> None:
    """Statements at random, beside a dict of the rows by their key."""
    chance = random.Random(profile)
    name, sql = new_name(), SqlReads(lake)
    table = lake.create_table(
        name, SCHEMA, primary_key=["id"], buckets=2, partition_by=["day"], key_scope="table", profile=profile
    )
    rows: dict[int, Row] = {at: (at, at, chance.choice(DAYS)) for at in range(8)}
    table.upsert([dict(zip(("id", "v", "day"), row, strict=True)) for row in rows.values()])
    for step in range(9):
        incoming = {at: (at, 100 + step, chance.choice(DAYS)) for at in chance.sample(range(16), 6)}
        frame(spark, *incoming.values()).createOrReplaceTempView("incoming")
        day, least = chance.choice(DAYS), chance.randrange(8)
        match step:
            case 0 | 3:
                sql(f"MERGE INTO {{lake}}.{name} t USING incoming s ON s.id = t.id {UPSERT}")
                rows |= incoming
            case 1:
                value = "NULL" if day is None else repr(day)
                sql(f"UPDATE {{lake}}.{name} SET v = v + 1, day = {value} WHERE id >= {least}")
                rows |= {at: (at, (v or 0) + 1, day) for at, (_, v, _) in rows.items() if at >= least}
            case 2:
                sql(f"DELETE FROM {{lake}}.{name} WHERE v % 2 = 0 AND id + 1 > {least}")
                rows = {at: row for at, row in rows.items() if (row[1] or 0) % 2 or at < least}
            case 4:
                table.merge(frame(spark, *incoming.values()), on="id").when_matched_update().execute()
                rows |= {at: row for at, row in incoming.items() if at in rows}
            case 5:
                sql(f"INSERT INTO {{lake}}.{name} SELECT * FROM incoming")
                rows |= incoming
            case 6:
                later = {at: (at, 200 + step, chance.choice(DAYS)) for at in chance.sample(sorted(incoming), 3)}
                both = frame(spark, *later.values(), *incoming.values())
                table.insert(both, order_by="v" if profile == "row_level" else sf.col("v") + 0, message="newest")
                rows |= incoming | later
            case 7:
                merge = f"MERGE INTO {{lake}}.{name} t USING incoming s ON t.id = s.id AND t.day = s.day"
                sql(f"{merge} WHEN NOT MATCHED THEN INSERT *")
                there = {at for at, row in incoming.items() if row[2] and at in rows and rows[at][2] == row[2]}
                rows |= {at: row for at, row in incoming.items() if at not in there}
            case _:
                gone = "WHEN NOT MATCHED BY SOURCE AND t.id > 3 THEN DELETE"
                matched = "WHEN MATCHED AND t.v > 100 THEN DELETE WHEN MATCHED THEN UPDATE SET day = s.day"
                sql(
                    f"MERGE INTO {{lake}}.{name} t USING incoming s ON t.id = s.id {matched} "
                    f"WHEN NOT MATCHED AND s.id > 2 THEN INSERT (id, day) VALUES (s.id, s.day) {gone}"
                )
                before = rows
                rows = {at: (at, row[1], incoming[at][2]) for at, row in before.items() if at in incoming}
                rows = {at: row for at, row in rows.items() if not (row[1] or 0) > 100}
                rows |= {at: row for at, row in before.items() if at not in incoming and at <= 3}
                rows |= {at: (at, None, row[2]) for at, row in incoming.items() if at not in before and at > 2}
        assert content(table) == sorted(rows.values(), key=repr), step
    assert sorted(map(tuple, table.read().collect()), key=repr) == sorted(rows.values(), key=repr)
    newest = [one for one in table.history() if one.message == "newest"]
    assert [one.operation for one in newest] == ["INSERT"]


def test_two_rows_of_one_key_do_not_come_into_two_partitions(
    lake: Lake, spark: SparkSession, new_name: Names, tmp_path: Path
) -> None:
    """Within a statement, and by one beside a writer that hasn't found the key either."""
    name, sql = new_name(), SqlReads(lake)
    table = lake.create_table(
        name, SCHEMA, primary_key=["id"], partition_by=["day"], key_scope="table", profile="row_level"
    )
    frame(spark, (1, 1, "mon"), (1, 2, "tue")).createOrReplaceTempView("twice")
    with pytest.raises(Exception, match="KEY_TWICE"):
        sql(f"MERGE INTO {{lake}}.{name} t USING twice s ON t.id = s.id {UPSERT}")
    with pytest.raises(InputError, match="KEY_TWICE"):
        table.insert(frame(spark, (1, 1, "mon"), (1, 2, "tue")))
    frame(spark, (1, 1, "mon"), (2, 2, "tue")).createOrReplaceTempView("once")
    merge = f"MERGE INTO {{lake}}.{name} t USING once s ON t.id = s.id {UPSERT}"
    held = Held(spark, tmp_path, "meets_an_upsert")
    error = held.run(
        lambda: sql(merge.replace("once s", "(SELECT id, meets_an_upsert(v) AS v, day FROM once) s")),
        lambda: table.upsert([{"id": 1, "v": 3, "day": "wed"}]),
    )
    assert "LOST_RACE" in str(error)
    assert content(table) == [(1, 3, "wed")]
    sql(merge)
    assert content(table) == [(1, 1, "mon"), (2, 2, "tue")]
    insert = f"INSERT INTO {{lake}}.{name} SELECT 7L, meets_an_upsert(7L), 'mon'"
    spark.conf.set("spark.laketx.on_conflict", "fail")
    try:
        error = held.run(lambda: sql(insert), lambda: sql(f"INSERT INTO {{lake}}.{name} VALUES (7, 8, 'tue')"))
    finally:
        spark.conf.unset("spark.laketx.on_conflict")
    assert "LOST_RACE" in str(error)
    assert content(table)[2:] == [(7, 8, "tue")]
    error = held.run(lambda: sql(insert), lambda: table.upsert([{"id": 7, "v": 9, "day": None}]))
    assert error is None, str(error)
    assert content(table)[2:] == [(7, 7, "mon")]  # done again, after the other one

    source = lake.create_table(new_name(), SCHEMA)
    source.append([{"id": 7, "v": 10, "day": "tue"}, {"id": 8, "v": 8, "day": None}])

    def stream() -> None:
        read = spark.readStream.table(f"{sql.name}.{source.name}").selectExpr("day", "id", "meets_an_upsert(v) AS v")
        writer = read.writeStream.option("checkpointLocation", str(tmp_path / "stream")).trigger(availableNow=True)
        writer.toTable(f"{sql.name}.{name}").awaitTermination()

    spark.conf.set("spark.sql.adaptive.enabled", "false")  # else its batch looks keys up after its rows are there
    try:
        error = held.run(stream, lambda: table.upsert([{"id": 7, "v": 11, "day": "wed"}]))
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
    assert "LOST_RACE" in str(error)
    assert content(table)[2:] == [(7, 11, "wed")]
    stream()
    version = table.refresh().meta.head_version
    stream()
    assert content(table)[2:] == [(7, 10, "tue"), (8, 8, None)]
    assert table.refresh().meta.head_version == version
    source.append([{"id": 8, "v": 9, "day": "mon"}])
    stream()
    assert content(table)[2:] == [(7, 10, "tue"), (8, 9, "mon")]


def _in_sql(lake: Lake, statement: str) -> None:
    with lake.transaction() as txn:
        txn.sql(statement)
