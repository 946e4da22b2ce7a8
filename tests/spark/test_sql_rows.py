"""DELETE, UPDATE and MERGE through the Spark catalog, against plain dicts of rows."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from laketx import Lake, Table
from protos.laketx.v1 import common_pb2
from tests.spark.held import Held
from tests.spark.sql import SqlReads
from tests.spark.stored import live, row_ids, staged_folders, stored_rows

Names = Callable[[], str]
COLUMNS = "id bigint, amount bigint, day string"
DAYS = ("mon", "tue", None)
Rows = dict[int, tuple[int | None, str | None]]


@pytest.fixture(scope="module")
def sql(lake: Lake) -> SqlReads:
    return SqlReads(lake)


def make(lake: Lake, name: str, *, keyed: bool, parted: bool, profile: str = "") -> Table:
    return lake.create_table(
        name,
        COLUMNS,
        primary_key=["id"] if keyed else [],
        buckets=2 if keyed else None,
        partition_by=["day"] if parted else [],
        key_scope="partition" if keyed and parted else None,
        profile=profile,
    )


def content(table: Table, sql: SqlReads) -> Rows:
    """What is stored, once Spark and Python agree on it."""
    stored = stored_rows(table)
    found = {row["id"]: (row["amount"], row["day"]) for row in stored}
    assert len(found) == len(stored)
    names = [column.name for column in table.meta.columns]
    expected = sorted(repr(tuple(row[name] for name in names)) for row in stored)
    assert sorted(repr(tuple(row)) for row in table.refresh().read().collect()) == expected
    assert sorted(repr(tuple(row)) for row in sql(f"SELECT * FROM {{lake}}.{table.name}").collect()) == expected
    return found


def head(table: Table) -> int:
    return table.lake.client.get_table(table_id=table.table_id).head_version


def fill(table: Table, spark: SparkSession, rows: Rows) -> None:
    table.insert(spark.createDataFrame([(key, *values) for key, values in rows.items()], COLUMNS))


@pytest.mark.parametrize(
    ("keyed", "parted"),
    [
        (False, True),
        pytest.param(True, False, marks=pytest.mark.long),
        pytest.param(False, False, marks=pytest.mark.long),
        pytest.param(True, True, marks=pytest.mark.long),
    ],
)
def test_a_history_of_statements(
    lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names, keyed: bool, parted: bool
) -> None:
    table = make(lake, new_name(), keyed=keyed, parted=parted)
    name = f"{{lake}}.{table.name}"
    rows: Rows = {at: (at * 10, DAYS[at % 3]) for at in range(30)}
    fill(table, spark, rows)

    sql(f"DELETE FROM {name} WHERE id % 5 = 0")
    rows = {key: value for key, value in rows.items() if key % 5}
    assert content(table, sql) == rows

    before = {} if keyed else row_ids(table, "id")
    sql(f"UPDATE {name} SET amount = amount + id WHERE day = 'mon' OR id > 25")
    rows = {k: (a + k if d == "mon" or k > 25 else a, d) for k, (a, d) in rows.items() if a is not None}
    assert content(table, sql) == rows
    if not keyed:  # an image keeps the id of its row
        assert {key: row_ids(table, "id")[key] for key in rows} == {key: before[key] for key in rows}

    sql(f"DELETE FROM {name} WHERE id IN (SELECT id + 1 FROM {name} WHERE amount > 200) AND id < 28")
    gone = {key + 1 for key, (amount, _) in rows.items() if amount is not None and amount > 200}
    rows = {key: value for key, value in rows.items() if not (key in gone and key < 28)}
    assert content(table, sql) == rows

    if not (keyed and parted):
        sql(f"UPDATE {name} SET day = 'tue', amount = NULL WHERE id < 8")
        rows = {k: (None, "tue") if k < 8 else v for k, v in rows.items()}
        assert content(table, sql) == rows

    there = sorted(rows)
    first, second, third = there[:3]
    source: Rows = {first: (111, "mon"), second: (None, "tue"), 50: (5, "thu"), 51: (6, "mon")}
    spark.createDataFrame([(k, *v) for k, v in source.items()], COLUMNS).createOrReplaceTempView("changes")
    sql(
        f"MERGE INTO {name} AS t USING changes AS s ON t.id = s.id "
        "WHEN MATCHED AND s.amount IS NULL THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET amount = s.amount + coalesce(t.amount, 0) "
        "WHEN NOT MATCHED AND s.id <> 51 THEN INSERT * "
        f"WHEN NOT MATCHED BY SOURCE AND t.id = {third} THEN UPDATE SET amount = -1 "
        "WHEN NOT MATCHED BY SOURCE AND t.id >= 28 THEN DELETE"
    )
    rows = {k: v for k, v in rows.items() if k < 28 and k != second}
    rows[first] = (111 + (rows[first][0] or 0), rows[first][1])
    rows[third] = (-1, rows[third][1])
    rows[50] = (5, "thu")
    assert content(table, sql) == rows

    version = head(table)
    sql(f"DELETE FROM {name} WHERE id = 12345")
    sql(f"UPDATE {name} SET amount = 0 WHERE false")
    assert content(table, sql) == rows
    assert head(table) - version <= 2
    sql(f"DELETE FROM {name}")
    assert content(table, sql) == {}


def test_a_row_that_leaves_its_partition_gets_a_new_id(
    lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names
) -> None:
    table = make(lake, new_name(), keyed=False, parted=True)
    rows: Rows = {at: (at, DAYS[at % 3]) for at in range(6)}
    fill(table, spark, rows)
    before = row_ids(table, "id")
    sql(f"UPDATE {{lake}}.{table.name} SET day = 'tue' WHERE id < 3")
    assert content(table, sql) == {at: (at, "tue" if at < 3 else DAYS[at % 3]) for at in range(6)}
    after = row_ids(table, "id")
    assert {key for key in before if before[key] == after[key]} == {1, 3, 4, 5}
    sets = [entry.delete_set for entry in live(table) if entry.HasField("delete_set")]
    assert len({one.partition.SerializeToString() for one in sets}) == len(sets) == 3
    assert all(one.touches for one in sets)


def test_a_tombstone_has_what_the_table_asks_for(lake: Lake, sql: SqlReads, new_name: Names) -> None:
    table = lake.create_table(
        new_name(), "v string not null, b string, a int, o double", primary_key=["a", "b"], buckets=1
    )
    sql(f"INSERT INTO {{lake}}.{table.name} VALUES ('x', 'k', 1, 1.5), ('y', 'k', 2, 2.5)")
    sql(f"DELETE FROM {{lake}}.{table.name} WHERE o > 2")
    assert [tuple(row.values()) for row in stored_rows(table)] == [("x", "k", 1, 1.5)]
    (file,) = (e.file for e in live(table) if e.file.tombstones)
    assert (file.rows, file.tombstones, file.kind) == (1, 1, common_pb2.FILE_KIND_DELTA)
    sql(
        f"MERGE INTO {{lake}}.{table.name} t USING (SELECT 1 AS a) s ON t.a = s.a AND t.v = 'z' "
        "WHEN NOT MATCHED THEN INSERT (a, b, v) VALUES (1, 'k', 'new') WHEN NOT MATCHED BY SOURCE THEN DELETE"
    )  # the key goes and comes: what comes stands
    assert [tuple(row.values()) for row in stored_rows(table)] == [("new", "k", 1, None)]


def test_a_deletion_where_partitions_take_null(lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names) -> None:
    """A row's file tells its partition. Files of one bucket, in two partitions, some of them over others."""
    table = lake.create_table(
        new_name(), COLUMNS, primary_key=["id"], partition_by=["day"], key_scope="partition", buckets=1
    )
    rows: Rows = {at: (at, DAYS[at % 3]) for at in range(12)}
    fill(table, spark, rows)
    rows |= {at: (-at, DAYS[at % 3]) for at in range(6)}
    fill(table, spark, {at: rows[at] for at in range(6)})
    sql(f"DELETE FROM {{lake}}.{table.name} WHERE amount + 0 IN (-1, -2, 0, 7, 11)")
    rows = {key: value for key, value in rows.items() if value[0] not in (-1, -2, 0, 7, 11)}
    assert content(table, sql) == rows
    sql(f"DELETE FROM {{lake}}.{table.name} WHERE day IS NULL AND id > 6")
    assert content(table, sql) == {key: value for key, value in rows.items() if value[1] is not None or key <= 6}


def test_what_sql_refuses(lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names) -> None:
    keyed = make(lake, new_name(), keyed=True, parted=True)
    loose = lake.create_table(
        new_name(), COLUMNS, primary_key=["id"], partition_by=["day"], key_scope="partition", buckets=1
    )
    for table in (keyed, loose):
        fill(table, spark, {1: (1, "mon"), 2: (2, "tue")})
    refused = [
        ("KEY_SET: id is a key column", f"UPDATE {{lake}}.{keyed.name} SET id = id + 1"),
        ("KEY_SET: id is a key column", f"UPDATE {{lake}}.{loose.name} SET day = 'wed', id = 7"),
        (
            "MERGE_CARDINALITY_VIOLATION",
            (
                f"MERGE INTO {{lake}}.{keyed.name} t USING (SELECT 1L AS id UNION ALL SELECT 1L) s ON t.id = s.id "
                "WHEN MATCHED THEN UPDATE SET amount = 7"
            ),
        ),
        (
            "KEY_TWICE",
            (
                f"MERGE INTO {{lake}}.{keyed.name} t USING (SELECT 9L AS id UNION ALL SELECT 9L) s ON t.id = s.id "
                "WHEN NOT MATCHED THEN INSERT (id, day) VALUES (s.id, 'mon')"
            ),
        ),
    ]
    folders = staged_folders(keyed) | staged_folders(loose)
    for said, statement in refused:
        with pytest.raises(PySparkException, match=said):
            sql(statement)
    assert staged_folders(keyed) | staged_folders(loose) == folders
    assert content(keyed, sql) == content(loose, sql) == {1: (1, "mon"), 2: (2, "tue")}
    sql(f"UPDATE {{lake}}.{loose.name} SET amount = 5 WHERE id = 2")
    assert content(loose, sql) == {1: (1, "mon"), 2: (5, "tue")}


UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
READS_ROWS = [  # each falls short of an insert by key, in its condition or in a clause
    ("t.id = s.id AND t.amount = 1", UPSERT),
    ("t.id = s.id AND s.amount > 0", UPSERT),
    ("t.id + 0 = s.id", UPSERT),
    ("t.id = s.id OR t.id IS NULL", UPSERT),
    ("t.id = s.id", "WHEN MATCHED AND t.amount = 1 THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"),
    ("t.id = s.id", "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED AND s.id > 0 THEN INSERT *"),
    ("t.id = s.id", "WHEN MATCHED THEN UPDATE SET amount = s.amount WHEN NOT MATCHED THEN INSERT *"),
    ("t.id = s.id", "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"),
    ("t.id = s.id", "WHEN MATCHED THEN UPDATE SET amount = t.amount, day = s.day WHEN NOT MATCHED THEN INSERT *"),
    ("t.id = s.id", f"{UPSERT} WHEN NOT MATCHED BY SOURCE AND t.id < 0 THEN DELETE"),
    ("t.id = s.id", "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"),
    ("t.id = s.id", "WHEN MATCHED THEN UPDATE SET *"),
]


@pytest.mark.parametrize("parted", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_merge_that_is_an_insert_by_key_reads_no_rows(
    lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names, parted: bool
) -> None:
    key = ["id", "day"] if parted else ["id"]
    table = lake.create_table(new_name(), COLUMNS, primary_key=key, partition_by=key[1:], buckets=2)
    fill(table, spark, {1: (1, "mon"), 2: (2, "tue")})
    on = "t.id = s.id AND s.day = t.day" if parted else "t.id = s.id"

    def merge(rows: str, on: str = on, clauses: str = UPSERT) -> str:
        source = f"(SELECT * FROM VALUES {rows} AS s (id, amount, day))"
        return f"MERGE INTO {{lake}}.{table.name} t USING {source} s ON {on} {clauses}"

    kept = "WHEN MATCHED THEN UPDATE SET amount = s.amount, day = s.day WHEN NOT MATCHED THEN INSERT *"
    assert sql.read_bytes(merge("(2L, 7, 'tue'), (3L, 8, 'wed')")) == 0
    assert sql.read_bytes(merge("(4L, 9, 'wed')", clauses=kept)) == 0
    wanted = {1: (1, "mon"), 2: (7, "tue"), 3: (8, "wed"), 4: (9, "wed")}
    assert content(table, sql) == wanted
    for said, rows in [
        ("MERGE_CARDINALITY_VIOLATION", "(2L, 1, 'tue'), (2L, 2, 'tue')"),
        ("KEY_TWICE", "(9L, 1, 'tue'), (9L, 2, 'tue')"),
    ]:
        with pytest.raises(PySparkException, match=said):
            sql(merge(rows))
    assert content(table, sql) == wanted
    if not parted:
        for on_, clauses in READS_ROWS:
            assert sql.read_bytes(merge("(1L, 1, 'mon')", on_, clauses)) > 0, (on_, clauses)


# -- races -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keyed", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_lost_race_says_to_whom(
    lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names, tmp_path: Path, keyed: bool
) -> None:
    table = make(lake, new_name(), keyed=keyed, parted=False)
    fill(table, spark, {1: (1, "mon"), 2: (2, "tue")})
    held = Held(spark, tmp_path, f"held_{keyed}")
    statement = f"UPDATE {{lake}}.{table.name} SET amount = held_{keyed}(amount) + 1 WHERE id = 1"
    error = held.run(lambda: sql(statement), lambda: lake.table(table.name).update({"amount": "7"}, where="id = 1"))
    for said in ("LOST_RACE: UPDATE on", "winner: UPDATE by tests", "rule:", "advice: run the statement again"):
        assert said in str(error)
    assert content(table, sql) == {1: (7, "mon"), 2: (2, "tue")}


@pytest.mark.parametrize("keyed", [False, pytest.param(True, marks=pytest.mark.long)])
def test_rows_and_filters_decide_who_loses(
    lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names, tmp_path: Path, keyed: bool
) -> None:
    """Under `row_level` an UPDATE of other rows goes beside; the condition is what was read."""
    table = make(lake, new_name(), keyed=keyed, parted=False, profile="row_level")
    fill(table, spark, {at: (at, "mon") for at in range(4)})
    held = Held(spark, tmp_path, f"beside_{keyed}")
    statement = f"UPDATE {{lake}}.{table.name} SET amount = beside_{keyed}(amount) + 1 WHERE id = 1"
    error = held.run(lambda: sql(statement), lambda: lake.table(table.name).update({"amount": "7"}, where="id = 2"))
    assert error is None
    assert content(table, sql) == {0: (0, "mon"), 1: (2, "mon"), 2: (7, "mon"), 3: (3, "mon")}


@pytest.mark.parametrize("clauses", ["WHEN MATCHED THEN UPDATE SET amount = 3 ", ""], ids=["upsert", "insert"])
def test_a_merge_loses_to_rows_that_it_should_have_read(
    lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names, tmp_path: Path, clauses: str
) -> None:
    """It found no such row, changes none, and would insert it a second time."""
    table = make(lake, new_name(), keyed=False, parted=False, profile="delta_serializable")
    fill(table, spark, {1: (1, "mon")})
    name = f"merged_{bool(clauses)}"
    held = Held(spark, tmp_path, name)
    statement = (
        f"MERGE INTO {{lake}}.{table.name} t USING (SELECT 2L AS id) s ON t.id = s.id {clauses}"
        f"WHEN NOT MATCHED THEN INSERT (id, amount) VALUES (s.id, {name}(s.id))"
    )
    rows = spark.createDataFrame([(2, 2, "tue")], COLUMNS)
    error = held.run(lambda: sql(statement), lambda: lake.table(table.name).insert(rows))
    assert "LOST_RACE: MERGE on" in str(error)
    assert content(table, sql) == {1: (1, "mon"), 2: (2, "tue")}


def test_a_merge_that_inserts_alone_reads_what_it_is_on(
    lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names, tmp_path: Path
) -> None:
    """A commit beside it lets it pass; after one into it the statement runs again, and finds the row."""
    table = make(lake, new_name(), keyed=False, parted=True, profile="delta_serializable")
    fill(table, spark, {1: (1, "mon")})
    for number, day, policy in ((2, "tue", "fail"), (3, "mon", "rerun")):
        table.set_properties(**{"write.on_conflict": policy})
        (folder := tmp_path / day).mkdir()
        held = Held(spark, folder, f"unmatched_{day}")
        statement = (
            f"MERGE INTO {{lake}}.{table.name} t USING (SELECT {number}L AS id) s ON t.id = s.id AND t.day = 'mon' "
            f"WHEN NOT MATCHED THEN INSERT (id, amount, day) VALUES (s.id, unmatched_{day}(7), 'mon')"
        )
        rows = spark.createDataFrame([(number, 5, day)], COLUMNS)
        assert held.run(lambda: sql(statement), lambda: lake.table(table.name).insert(rows)) is None  # noqa: B023
    found = sorted((row.id, row.amount, row.day) for row in lake.table(table.name).read().collect())
    assert found == [(1, 1, "mon"), (2, 5, "tue"), (2, 7, "mon"), (3, 5, "mon")]


RERUN = {
    "update": "UPDATE {table} SET amount = {held}(amount) + 1 WHERE id = 1",
    "merge": (
        "WITH s AS (SELECT 1L AS id UNION ALL SELECT 2L) MERGE INTO {table} t USING s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET amount = {held}(t.amount) + 1 "
        "WHEN NOT MATCHED THEN INSERT (id, amount) VALUES (s.id, 0)"
    ),
    "delete": "DELETE FROM {table} WHERE {held}(amount) < 5",
}


@pytest.mark.parametrize(
    ("statement", "keyed"),
    [
        pytest.param("update", False, marks=pytest.mark.long),
        ("update", True),
        ("merge", False),
        pytest.param("delete", True, marks=pytest.mark.long),
    ],
)
def test_a_statement_that_lost_runs_again(
    lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names, tmp_path: Path, statement: str, keyed: bool
) -> None:
    """It reads what the winner wrote, and leaves one commit and no files of the first try."""
    table = make(lake, new_name(), keyed=keyed, parted=False)
    table.set_properties(**{"write.on_conflict": "rerun"})
    fill(table, spark, {1: (1, "mon")})
    name = f"again_{statement}_{keyed}"
    text = RERUN[statement].format(table=f"{{lake}}.{table.name}", held=name)
    held = Held(spark, tmp_path, name)
    error = held.run(lambda: sql(text), lambda: lake.table(table.name).update({"amount": "7"}, where="id = 1"))
    assert error is None
    wanted: dict[int, tuple[int, str | None]] = {1: (7 if statement == "delete" else 8, "mon")}
    assert content(table, sql) == wanted | ({2: (0, None)} if statement == "merge" else {})
    assert staged_folders(table) == {one.txn_id for one in table.history() if one.files_added}


def test_a_statement_with_parameters_runs_again(
    lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names, tmp_path: Path
) -> None:
    table = make(lake, new_name(), keyed=False, parted=False)
    fill(table, spark, {1: (1, "mon")})
    held = Held(spark, tmp_path, "with_marker")
    text = f"UPDATE {sql.name}.{table.name} SET amount = with_marker(amount) + :more WHERE id = 1"
    spark.conf.set("spark.laketx.on_conflict", "rerun")
    try:
        error = held.run(
            lambda: spark.sql(text, {"more": 1}), lambda: lake.table(table.name).update({"amount": "7"}, where="id = 1")
        )
    finally:
        spark.conf.unset("spark.laketx.on_conflict")
    assert error is None
    assert content(table, sql) == {1: (8, "mon")}
