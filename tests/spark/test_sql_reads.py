"""SELECT on tables whose every version is known, of both kinds, through the Spark catalog."""

import hashlib
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from laketx import Lake
from metaservice.client import add_column, drop_column, rename_column, widen_column
from tests.spark.histories import grow
from tests.spark.lab_tables import COLUMNS, WIDE, Alike, SetsInFiles, WrongSizes, fill, row, rows
from tests.spark.reading import LabLake, Row, expected, open_lab, shown
from tests.spark.sql import SqlReads
from tests.spark.typed_rows import SCHEMA, frame, row_of, texts
from worker.dataframes import scan
from worker.spark.session import with_settings


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabLake]:
    with open_lab(tmp_path_factory.mktemp("a sql lake")) as made:
        yield made


@pytest.fixture(scope="module")
def sql(lab: LabLake) -> SqlReads:
    return SqlReads(lab)


@pytest.fixture(scope="module")
def lake_sql(lake: Lake) -> SqlReads:
    return SqlReads(lake)


# -- rows --------------------------------------------------------------------------------------------------------------


def test_an_append_table_shows_every_version(lab: LabLake, sql: SqlReads) -> None:
    table = lab.create("appended", COLUMNS)
    assert sql.rows("SELECT * FROM {lake}.appended") == []
    table.insert([row(number) for number in range(200)])
    table.insert([row(number) for number in range(200, 230)])
    table.delete(table.find(0, 63, 64, 127, 199, 229))
    five, other = table.find(5, 210)
    table.update({five: row(5, 7.5, "paid"), other: row(210, 2.5, "paid")})
    table.delete([five])
    table.insert([row(1000)])
    table.compact()
    table.delete([other])
    sql.check(table)


def test_a_primary_key_table_shows_every_version(lab: LabLake, sql: SqlReads) -> None:
    table = lab.create("keyed", COLUMNS, key=["id"])
    table.insert([row(number) for number in range(100)])
    table.insert([row(number, 2.0) for number in range(50, 60)])
    table.delete([(number,) for number in (1, 55, 99)])
    table.insert([row(99, 3.0), row(200), row(0, 4.0), row(-1, 4.0)])
    table.minor()
    before = table.head
    table.delete([(200,)])
    table.compact()
    table.insert([row(7, 9.0)])
    sql.check(table)
    for columns, where in [
        (["count(*) as n"], "true"),
        (["count(*) as n"], "id < 60 AND status = 'new'"),
        (["amount"], "id >= 50"),
        (["status", "id"], "amount > 1"),
        (["max(id) as m"], "id IN (1, 7, 55, 99)"),
    ]:
        for version in (before, table.head):
            said = f"SELECT {', '.join(columns)} FROM {{lake}}.keyed VERSION AS OF {version} WHERE {where}"
            wanted = scan.read(table.view, version=version).where(where).selectExpr(*columns)
            assert sql.rows(said) == shown(wanted), (said, version)
    assert sql("SELECT id FROM {lake}.keyed LIMIT 70").count() == 70


@pytest.mark.parametrize(
    ("seed", "keyed"),
    [
        (0, True),
        (1, False),
        *(pytest.param(*one, marks=pytest.mark.long) for one in [(0, False), (1, True), (2, False), (2, True)]),
    ],
)
def test_random_histories(lab: LabLake, sql: SqlReads, seed: int, keyed: bool) -> None:
    table = grow(lab, f"history_{seed}_{keyed}", seed, keyed=keyed)
    sql.check(table)
    sql.check(table, list(table.at)[::2])  # some now know the hidden rows


def test_what_newer_files_hide_is_found_once(lab: LabLake, sql: SqlReads) -> None:
    """The next query of the same files reads no keys, and one of other files or rows shows what it should."""
    keys = [hashlib.md5(bytes([number % 256, number // 256])).hexdigest() for number in range(2_000)]
    table = lab.create("found_once", {"id": "string", "v": "int"}, key=["id"], buckets=2)
    table.insert([{"id": keys[number], "v": 0} for number in range(2_000)])
    table.insert([{"id": keys[number], "v": 1} for number in range(0, 2_000, 7)])
    table.delete([(keys[number],) for number in range(0, 2_000, 11)])
    added = "SELECT count(*), sum(v) FROM {lake}.found_once"
    narrow = added + " WHERE v = 1"
    wanted = [(2_000 - 182, 286 - 26)]
    first = sql.read_bytes(narrow)  # not all rows are read, so they aren't all found
    assert sql.rows(narrow) == [(260, 260)]
    assert sql.rows(added) == wanted
    assert sql.rows(added) == wanted
    assert sql.rows(narrow) == [(260, 260)]
    assert sql.read_bytes(narrow) < first / 2
    table.insert([{"id": keys[number], "v": 2} for number in range(0, 2_000, 5)])
    assert sql.rows("SELECT count(*), sum(v) FROM {lake}.found_once VERSION AS OF 3") == wanted
    sql.check(table)


KEYS: dict[str, tuple[str, list[Any]]] = {
    "a": ("string", ["", "a", "a\x00", "ä"]),
    "b": ("int", [0, -1, 1, 2]),
    "c": ("decimal(20,4)", [Decimal("0.0000"), Decimal("-1.5000"), Decimal("1.5000"), Decimal("9.0000")]),
    "d": ("timestamp", [datetime(2026, 11, 1, hour, tzinfo=UTC) for hour in range(4)]),
    "e": ("binary", [b"", b"\x00", b"\x00\x00", b"\xff"]),
    "f": ("boolean", [False, True, False, True]),
    "g": ("date", [date(2026, 11, day) for day in (1, 2, 3, 4)]),
}


@pytest.mark.parametrize(
    "names", ["cde", "bfg", *(pytest.param(one, marks=pytest.mark.long) for one in ("ab", "a", "g"))]
)
def test_keys_of_every_type(lab: LabLake, sql: SqlReads, names: str) -> None:
    """What is equal hides, what is not doesn't: of several columns each counts, and where one ends."""
    columns = {name: KEYS[name][0] for name in names} | {"v": "int"}
    table = lab.create(f"keys_{names}", columns, key=list(names))

    def made(value: int, step: int) -> list[Row]:
        found: dict[tuple[object, ...], Row] = {}
        for at in range(4 ** len(names)):
            places = [at // 4**digit % 4 for digit in range(len(names))]
            key = tuple(KEYS[name][1][place] for name, place in zip(names, places, strict=True))
            if at % step == 0:
                found[key] = {**dict(zip(names, key, strict=True)), "v": value}
        return list(found.values())

    table.insert(made(1, 1))
    table.insert(made(2, 3))
    table.delete(list(table.rows)[::5])
    table.insert(made(3, 7))
    table.minor()
    if "d" in names:  # as Python has them from Spark, in UTC
        for found in table.at.values():
            for key, known in found.items():
                found[key] = {**known, "d": known["d"].replace(tzinfo=None)}
    sql.check(table)


@pytest.mark.parametrize("keyed", [pytest.param(False, marks=pytest.mark.long), True])
def test_columns_are_told_by_id(lab: LabLake, sql: SqlReads, keyed: bool) -> None:
    table = lab.create(f"evolves_{keyed}", WIDE, key=["id"] if keyed else [], buckets=1)

    def old(number: int) -> Row:
        price = Decimal(number) / 4
        return {"id": number, "a": 1, "b": 2, "c": "old", "price": price, "part": 0.5, "day": date(2026, 11, 1)}

    table.insert([old(number) for number in range(4)])
    table.insert([old(3)] if keyed else [old(4)])
    before = table.head
    table.alter(
        rename_column("a", "x"),
        rename_column("b", "a"),
        rename_column("x", "b"),
        widen_column("a", "bigint"),
        drop_column("c"),
        add_column("c", "int"),
        widen_column("price", "decimal(20,4)"),
        widen_column("part", "double"),
        widen_column("day", "timestamp_ntz"),
        rows=lambda row: {
            "id": row["id"],
            "b": row["a"],
            "a": row["b"],
            "price": row["price"],
            "part": row["part"],
            "day": datetime(2026, 11, 1, tzinfo=UTC).replace(tzinfo=None),
            "c": None,
        },
    )
    image = {**table.rows[table.find(2)[0]], "a": 1 << 40, "c": 7}
    table.update({table.find(2)[0]: image})
    name = f"{{lake}}.evolves_{keyed}"
    assert sql.rows(f"SELECT * FROM {name}") == expected(table, table.head)
    assert sql.rows(f"SELECT * FROM {name} VERSION AS OF {before}") == expected(table, before, list(WIDE))
    for where, then in [("a = 2 AND c IS NULL", None), ("c = 7", None), ("b = 2", before), ("c = 'old'", before)]:
        at = "" if then is None else f"VERSION AS OF {then}"
        wanted = shown(scan.read(table.view, version=table.head if then is None else then).filter(where))
        assert sql.rows(f"SELECT * FROM {name} {at} WHERE {where}") == wanted != []
    assert sql.rows(f"SELECT * FROM {name} WHERE b = 2") == []
    assert sql.rows(f"SELECT price, c FROM {name} WHERE c = 7") == [(image["price"], 7)]


@pytest.mark.parametrize("keyed", [pytest.param(False, marks=pytest.mark.long), True])
def test_every_type(
    lake: Lake, lake_sql: SqlReads, spark: SparkSession, new_name: Callable[[], str], keyed: bool
) -> None:
    name = new_name()
    table = lake.create_table(name, SCHEMA, primary_key=["id"] if keyed else [])
    table.insert(frame(spark, [row_of(at, at) for at in range(5)]))
    table.insert(frame(spark, [row_of(at + 5, at, mark=1) for at in range(5)]))
    table.update({"mark": "2"}, where="id in (1, 4, 7)")
    table.delete("id in (0, 9)")
    wanted = table.read()  # which test_types holds against plain rows
    plain = wanted.toArrow().to_pylist()
    assert len(plain) == 8
    assert texts(lake_sql.table(name).toArrow().to_pylist()) == texts(plain)
    for one in ("i8", "f32", "d38", "text", "raw", "at", "deep", "pairs", "whole"):
        few = lake_sql(f"SELECT id, {one} FROM {{lake}}.{name} WHERE id > 2").toArrow().to_pylist()
        assert texts(few) == texts({"id": each["id"], one: each[one]} for each in plain if each["id"] > 2), one
    nested = lake_sql.rows(f"SELECT whole.x, whole.Y.at FROM {{lake}}.{name} WHERE whole.x > 1")
    assert nested == shown(wanted.where("whole.x > 1").selectExpr("whole.x", "whole.Y.at"))


def test_fields_of_structs_are_told_by_id(
    lake: Lake, lake_sql: SqlReads, spark: SparkSession, new_name: Callable[[], str]
) -> None:
    name = new_name()
    table = lake.create_table(name, "id int, s struct<a:int,b:string,`c.d`:array<struct<x:int,y:int>>>")
    table.insert(
        spark.sql("select 1 id, named_struct('a', 1, 'b', 'one', 'c.d', array(named_struct('x', 1, 'y', 2))) s")
    )
    for old, new in (("s.a", "z"), ("s.b", "a"), ("s.`c.d`.element.x", "w")):
        table.rename_column(old, new)
    table.add_columns("s.b int")
    table.insert(spark.sql("select 2 id, named_struct('z', 2, 'a', 'two', 'c.d', null, 'b', 5) s"))
    whole = [(1, (1, "one", [(2, 1)], None)), (2, (2, "two", None, 5))]
    for read in (table.read(), lake_sql.table(name)):
        found = read.selectExpr("id", "s.z", "s.a", "transform(s.`c.d`, x -> struct(x.y, x.w)) l", "s.b")
        assert [
            (one[0], (one[1], one[2], one[3] and [tuple(each) for each in one[3]], one[4]))
            for one in found.orderBy("id").collect()
        ] == whole
    for columns in ("s.a, s.b", "s.z", "s.`c.d`.w", "id"):
        statement = f"SELECT {columns} FROM {{lake}}.{name}"
        assert lake_sql.rows(statement) == shown(table.read().selectExpr(*columns.split(", "))), columns


def test_imported_files(
    lake: Lake, lake_sql: SqlReads, spark: SparkSession, new_name: Callable[[], str], tmp_path: Path
) -> None:
    made = spark.range(0, 40, 1, 4).selectExpr("id", "id * 1.5d as amount", "cast(id % 2 as int) as half")
    made.write.partitionBy("half").parquet(f"{tmp_path}/old files")
    name = new_name()
    table = lake.import_parquet(tmp_path / "old files", name)
    table.delete("id in (3, 8, 39)")
    table.update({"amount": "-1.0d"}, where="id = 20")
    wanted = {(at, -1.0 if at == 20 else at * 1.5, at % 2) for at in range(40) if at not in (3, 8, 39)}
    assert set(lake_sql.rows(f"SELECT id, amount, half FROM {{lake}}.{name}")) == wanted
    assert set(lake_sql.rows(f"SELECT half, id FROM {{lake}}.{name} WHERE half = 1 AND id > 30")) == {
        (1, at) for at in range(31, 38, 2)
    }


@pytest.mark.parametrize(
    ("kind", "keyed"),
    [
        (Alike, True),
        (WrongSizes, False),
        *(pytest.param(*one, marks=pytest.mark.long) for one in [(Alike, False), (WrongSizes, True)]),
    ],
)
def test_files_of_one_size(lab: LabLake, sql: SqlReads, keyed: bool, kind: type[Alike]) -> None:
    made = lab.create(
        f"alike_{keyed}_{kind.__name__}", {"id": "bigint", "amount": "double"}, key=["id"] if keyed else [], buckets=1
    )
    table = kind(lab, made.meta)
    fill(table, 6, "odd ü%20=.parquet")
    sql.check(table)


def test_delete_sets_in_files(lab: LabLake, sql: SqlReads) -> None:
    table = SetsInFiles(lab, lab.create("sets", {"id": "bigint", "amount": "double"}).meta)
    table.insert(rows(0))
    table.delete(table.find(3, 7))
    table.update({table.find(4)[0]: {"id": 4, "amount": 9.0}})
    sql.check(table)


def test_floats_are_compared_as_spark_does(
    lake: Lake, lake_sql: SqlReads, spark: SparkSession, new_name: Callable[[], str]
) -> None:
    """NaN is above every number and equal to itself, both zeros are one; no footer leaves out what matches."""
    name = new_name()
    lake.create_table(name, "id int, x double, s struct<y:float>").insert(
        spark.sql(
            "select id, x, named_struct('y', cast(x as float)) s "
            "from values (1, double('NaN')), (2, -0.0d), (3, 1.0d), (4, null) t(id, x)"
        )
    )
    for where, ids in [
        ("x > 5", [1]),
        ("x = 0", [2]),
        ("x = double('NaN')", [1]),
        ("s.y > 5", [1]),
        ("x < 5", [2, 3]),
        ("NOT x <= 1", [1]),
    ]:
        assert lake_sql.rows(f"SELECT id FROM {{lake}}.{name} WHERE {where}") == [(one,) for one in ids], where


# -- versions ----------------------------------------------------------------------------------------------------------


def test_a_version_a_time_and_a_tag(lab: LabLake, sql: SqlReads) -> None:
    table = lab.create("travels", COLUMNS)
    table.insert([row(1)])
    table.insert([row(2)])
    first = next(one for one in lab.client.list_versions(table.table_id) if one.version == 1)
    lab.client.create_tag(table.table_id, "first-one", version=1)
    moment = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=first.commit_time_us)
    said = moment.replace(tzinfo=None).isoformat(" ")
    for at in (
        "VERSION AS OF 1",
        "VERSION AS OF 'first-one'",
        f"TIMESTAMP AS OF '{said}'",
        "FOR SYSTEM_VERSION AS OF 1",
    ):
        assert sql.rows(f"SELECT * FROM {{lake}}.travels {at}") == expected(table, 1), at
    assert sql.rows("SELECT a.id, b.id FROM {lake}.travels VERSION AS OF 1 a CROSS JOIN {lake}.travels b") == [
        (1, 1),
        (1, 2),
    ]
    for at, reason in [
        ("VERSION AS OF 99", "VERSION_IN_FUTURE"),
        ("VERSION AS OF 'nothing'", "TAG_UNKNOWN"),
    ]:
        with pytest.raises(Exception, match=reason):
            sql(f"SELECT * FROM {{lake}}.travels {at}").collect()


def test_a_statement_reads_one_version(lab: LabLake, sql: SqlReads) -> None:
    table = lab.create("steady", COLUMNS)
    table.insert([row(1)])
    counts = sql("SELECT (SELECT count(*) FROM {lake}.steady) a, (SELECT max(id) FROM {lake}.steady) b")
    assert shown(counts) == [(1, 1)]
    table.insert([row(2)])
    assert shown(sql("SELECT count(*), max(id) FROM {lake}.steady")) == [(2, 2)]


# -- beside the rows ---------------------------------------------------------------------------------------------------


def test_rows_tell_where_they_come_from(lab: LabLake, sql: SqlReads) -> None:
    table = lab.create("origins", COLUMNS)
    table.insert([row(number) for number in range(2)])
    table.insert([row(number) for number in range(10, 13)], name="odd ü%20=.parquet")
    one, other = table.find(1, 11)
    table.update({one: row(1, 4.0)})
    table.delete([other])
    stored = {entry.file.path: entry for entry in lab.client.list_files(table.table_id) if entry.HasField("file")}
    found = sql("SELECT _row_id, id, _file, _version FROM {lake}.origins").collect()
    assert {(each["_row_id"],): each["id"] for each in found} == {key: each["id"] for key, each in table.rows.items()}
    assert {(each["_file"], each["_version"]) for each in found} == {
        (path, at.data_version) for path, at in stored.items()
    }
    assert sql.rows(f"SELECT id FROM {{lake}}.origins WHERE _row_id = {other[0]}") == []
    assert sql.rows(f"SELECT id FROM {{lake}}.origins WHERE _row_id = {table.find(12)[0][0]}") == [(12,)]


def test_what_is_not_needed_is_not_read(lab: LabLake, sql: SqlReads) -> None:
    table = lab.create("pruned", {"id": "bigint", "day": "string", "word": "string"}, partition_by=["day"])
    for day in "abc":
        table.insert([{"id": number, "day": day, "word": f"w{number}"} for number in range(5)])
    for where, tasks, count in [
        ("day = 'a'", 1, 5),
        ("day IN ('a', 'b') AND id = 3", 2, 2),
        ("day LIKE 'c%'", 1, 5),
        ("day > 'c'", 0, 0),
        ("day IS NULL", 0, 0),
        ("NOT (day = 'a' OR day = 'b')", 1, 5),
    ]:
        statement = f"SELECT word FROM {{lake}}.pruned WHERE {where}"
        assert sql.tasks(statement) == tasks, where
        assert sql(statement).count() == count, where
    assert sql("SELECT count(*) FROM {lake}.pruned").collect()[0][0] == 15
    assert sql("SELECT * FROM {lake}.pruned LIMIT 3").count() == 3
    assert "RelationV2[id" in str(sql("SELECT id FROM {lake}.pruned")._jdf.queryExecution().optimizedPlan().toString())


def test_a_join_prunes_partitions_while_it_runs(lab: LabLake, sql: SqlReads) -> None:
    table = lab.create("facts", {"id": "bigint", "day": "string"}, partition_by=["day"])
    for day in ("a", "b", "c", None):
        table.insert([{"id": number, "day": day} for number in range(4)])
    names = lab.create("names", {"day": "string", "name": "string"})
    names.insert([{"day": day, "name": day * 2} for day in "abc"])
    statement = "SELECT f.id FROM {lake}.facts f JOIN {lake}.names n ON f.day = n.day WHERE n.name = 'bb'"
    wanted = {
        "spark.sql.optimizer.dynamicPartitionPruning.fallbackFilterRatio": "100",
        "spark.sql.adaptive.enabled": "false",
    }
    with with_settings(lab.spark, wanted):
        found = sql(statement)
        assert shown(found) == [(number,) for number in range(4)]
        leaves = found._jdf.queryExecution().executedPlan().collectLeaves()
        scans = [leaves.apply(at) for at in range(leaves.size()) if "BatchScan" in leaves.apply(at).nodeName()]
        read = [one.metrics().apply("numOutputRows").value() for one in scans]
    assert max(read) == 4, "one partition of the large table, or all rows of the small one"


def test_both_zeros_are_one_partition_to_a_join(lab: LabLake, sql: SqlReads) -> None:
    """Other clients than ours may register a partition of -0.0."""
    facts = lab.create("zeros", {"id": "bigint", "x": "double"}, partition_by=["x"])
    for at, x in enumerate((-0.0, 1.5, None)):
        facts.insert([{"id": at, "x": x}])
    lab.create("of_zeros", {"x": "double", "name": "string"}).insert([{"x": 0.0, "name": "a"}, {"x": 1.5, "name": "b"}])
    statement = "SELECT f.id FROM {lake}.zeros f JOIN {lake}.of_zeros n ON f.x = n.x WHERE n.name = 'a'"
    wanted = {
        "spark.sql.optimizer.dynamicPartitionPruning.fallbackFilterRatio": "100",
        "spark.sql.adaptive.enabled": "false",
    }
    with with_settings(lab.spark, wanted):
        assert sql.rows(statement) == [(0,)]
    assert sql.rows("SELECT id FROM {lake}.zeros WHERE x = 0") == [(0,)]


def test_a_table_tells_how_large_it_is(lab: LabLake, sql: SqlReads) -> None:
    """So that a small one is broadcast."""
    table = lab.create("sized", COLUMNS)
    table.insert([row(number) for number in range(100)])
    table.delete(table.find(*range(40)))
    lab.spark.conf.set("spark.sql.cbo.enabled", "true")
    try:
        leaf = sql("SELECT * FROM {lake}.sized")._jdf.queryExecution().optimizedPlan().collectLeaves().head()
        assert leaf.stats().rowCount().get() == 60
        assert 0 < leaf.stats().sizeInBytes() < 100_000
    finally:
        lab.spark.conf.unset("spark.sql.cbo.enabled")
    plan = sql.text("SELECT a.id FROM {lake}.sized a JOIN {lake}.sized b ON a.id = b.id WHERE b.status = 'x'")
    assert "BroadcastHashJoin" in plan


def test_rows_come_in_batches_whatever_the_session_prefers(lab: LabLake, sql: SqlReads) -> None:
    table = lab.create("placed", COLUMNS)
    table.insert([row(number) for number in range(10)])
    table.delete(table.find(3))
    rows, compiled = "spark.sql.parquet.enableVectorizedReader", "spark.sql.codegen.wholeStage"
    for settings in ({rows: "false"}, {compiled: "true"}, {rows: "false", compiled: "true"}):
        with with_settings(lab.spark, settings):
            sql.check(table)
