"""The Spark catalog in a session: how it finds its lake, what it lists, what it holds, how it refuses."""

import gc
import json
import os
import signal
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from laketx import InputError, Lake, connect
from metaservice.client import add_column, drop_column
from metaservice.client.folder_service import open_folder
from tests.integration.service import service
from tests.spark.lab_tables import COLUMNS, row
from tests.spark.reading import LabLake, open_lab, shown
from tests.spark.sql import SqlReads, catalog_of
from worker.spark import session as sessions
from worker.spark.catalog_jar import CATALOG_CLASS, catalog_settings

WAIT_S = 60.0


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabLake]:
    with open_lab(tmp_path_factory.mktemp("an sql session")) as made:
        yield made


@pytest.fixture(scope="module")
def sql(lab: LabLake) -> SqlReads:
    return SqlReads(lab)


# -- where the lake is -------------------------------------------------------------------------------------------------


def test_a_service_by_its_address(spark: SparkSession, tmp_path: Path) -> None:
    with (
        service(tmp_path / "db") as (server, _),
        connect(f"laketx://{server.address}", spark, warehouse=str(tmp_path / "files"), user="ana") as lake,
    ):
        lake.create_table("shop.orders", "id bigint").insert(spark.range(5))
        name = catalog_of(lake)
        assert spark.sql(f"SELECT sum(id) FROM {name}.shop.orders").collect()[0][0] == 10


def test_a_folder_whose_service_was_killed(spark: SparkSession, tmp_path: Path) -> None:
    """The next statement starts another."""
    with open_lab(tmp_path / "lake", spark) as lab:
        lab.create("t", COLUMNS).insert([row(1)])
    name = f"killed{os.getpid()}"
    for key, value in catalog_settings(name, str(tmp_path / "lake"), str(tmp_path / "lake")).items():
        spark.conf.set(key, value)
    statement = f"SELECT id FROM {name}.t"
    assert spark.sql(statement).collect()[0][0] == 1
    pid = json.loads((tmp_path / "lake" / "_laketx" / "server.json").read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    assert spark.sql(statement).collect()[0][0] == 1
    with open_folder(tmp_path / "lake") as client:
        assert [table.name for table in client.list_tables()] == ["t"]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "ADDRESS_MISSING"),
        ({"uri": "meta:7070"}, "ADDRESS_INVALID"),
        ({"uri": "http://meta:7070"}, "ADDRESS_INVALID"),
        ({"uri": "laketx://meta:7070"}, "WAREHOUSE_MISSING"),
        ({"uri": "no/such/folder", "python": "python3"}, "FOLDER_UNUSABLE"),
    ],
)
def test_settings_that_lead_nowhere(spark: SparkSession, settings: dict[str, str], reason: str) -> None:
    name = f"nowhere{abs(hash(tuple(settings.items())))}"
    spark.conf.set(f"spark.sql.catalog.{name}", CATALOG_CLASS)
    for key, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.{name}.{key}", value)
    with pytest.raises(PySparkException, match=reason):
        spark.sql(f"SELECT * FROM {name}.t")


def test_a_folder_that_nobody_here_can_serve(spark: SparkSession, tmp_path: Path) -> None:
    name = f"unserved{os.getpid()}"
    spark.conf.set(f"spark.sql.catalog.{name}", CATALOG_CLASS)
    spark.conf.set(f"spark.sql.catalog.{name}.uri", str(tmp_path))
    with pytest.raises(PySparkException, match="SERVER_NOT_RUNNING: nobody serves the folder"):
        spark.sql(f"SELECT * FROM {name}.t")


def test_a_session_without_the_jar(lab: LabLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "CATALOG_CLASS", "io.laketx.NotThere")
    monkeypatch.setattr(sessions, "_with_jar", weakref.WeakKeyDictionary())  # what is known of the session
    with pytest.raises(InputError, match="JAR_MISSING: the Spark session was started without the jar"):
        lab.as_catalog("jarless")
    assert lab.spark.conf.get("spark.sql.catalog.jarless", None) is None


def test_a_session_without_the_extension_says_what_it_lacks(lab: LabLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "EXTENSIONS_CLASS", "io.laketx.NotThere")
    with pytest.warns(UserWarning, match="started without spark.sql.extensions=.* such as OPTIMIZE"):
        lab.as_catalog(f"plain{os.getpid()}")


def test_a_name_means_one_lake(lab: LabLake, lake: Lake) -> None:
    name = catalog_of(lab)
    assert lab.as_catalog(name) == name
    with pytest.raises(InputError, match="CATALOG_NAME_TAKEN"):
        lake.as_catalog(name)


# -- what it lists -----------------------------------------------------------------------------------------------------


def test_names(lake: Lake, spark: SparkSession, new_name: Callable[[], str]) -> None:
    sql = SqlReads(lake)
    name = new_name()
    lake.create_table(
        name,
        "id bigint, day date, `odd ``name.x` string",
        primary_key=["id", "day"],
        partition_by=["day"],
        comment="of the shop",
    )
    lake.create_table("nowhere_in_particular", "id bigint", if_not_exists=True)
    namespace, _, short = name.partition(".")
    assert (namespace,) in sql.rows("SHOW NAMESPACES IN {lake}")
    assert (namespace, short, False) in sql.rows(f"SHOW TABLES IN {{lake}}.{namespace}")
    assert [one[1] for one in sql.rows("SHOW TABLES IN {lake}")] == ["nowhere_in_particular"]
    said = {one[0]: one[1] for one in sql.rows(f"DESCRIBE EXTENDED {{lake}}.{name}")}
    assert (said["id"], said["odd `name.x"], said["Comment"]) == ("bigint", "string", "of the shop")
    assert sql.rows(f"SHOW COLUMNS IN {{lake}}.{name}") == [("day",), ("id",), ("odd `name.x",)]
    assert sql.rows(f"SELECT `odd ``name.x` FROM {{lake}}.{name} WHERE `odd ``name.x` = 'a'") == []
    assert spark.catalog.tableExists(f"{sql.name}.{name}")
    assert not spark.catalog.tableExists(f"{sql.name}.{namespace}.no_such_table")
    for missing in (f"{namespace}.no_such_table", "no_such_namespace.t", "a.b.c.d", f"{name}.nothing"):
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            sql(f"SELECT * FROM {{lake}}.{missing}")
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        sql("SHOW TABLES IN {lake}.no_such_namespace").collect()


def test_metadata_tables(lab: LabLake, sql: SqlReads) -> None:
    table = lab.create("told", {"id": "bigint", "day": "string"}, partition_by=["day"])
    table.insert([{"id": number, "day": day} for number in range(3) for day in "ab"])
    table.delete(table.find(1))
    lab.client.create_tag(table.table_id, "good", version=1)
    assert sql.rows("SELECT version, operation, rows_added FROM {lake}.told.history ORDER BY version") == [
        (0, "create", 0),
        (1, "insert", 6),
        (2, "delete", 0),
    ]
    assert sql.rows("SELECT name, version FROM {lake}.told.tags") == [("good", 1)]
    assert sql.rows("SELECT version, tags FROM {lake}.told.snapshots WHERE size(tags) > 0") == [(1, ["good"])]
    assert sql.rows("SELECT operation, state, version FROM {lake}.told.transactions") == [
        ("delete", "committed", 2),
        ("insert", "committed", 1),
    ]
    files = sql.rows("SELECT content, partition['day'], rows FROM {lake}.told.files")
    assert files[:2] == [("data", "a", 3), ("data", "b", 3)]
    assert {one[0] for one in files[2:]} == {"delete set"}
    assert sql.rows("SELECT content FROM {lake}.told.files VERSION AS OF 1") == [("data",)] * 2
    assert sql.rows("SELECT partition['day'], files, rows FROM {lake}.told.partitions") == [("a", 1, 3), ("b", 1, 3)]


# -- what it holds -----------------------------------------------------------------------------------------------------


def test_a_query_reads_the_newest_version_under_the_columns_of_its_analysis(lab: LabLake, sql: SqlReads) -> None:
    """Rows, and columns, that others commit between the two."""
    table = lab.create("moving", {"id": "bigint", "v": "bigint", "w": "bigint"})
    table.insert([{"id": 1, "v": 1, "w": 1}])
    both, narrow, whole = (
        sql("SELECT * FROM {lake}.moving a JOIN {lake}.moving b USING (id)"),
        *(sql(f"SELECT {columns} FROM {{lake}}.moving") for columns in ("id, v", "*")),
    )
    table.insert([{"id": 2, "v": 2, "w": 2}])
    assert len(both.collect()) == 2
    table.alter(add_column("x", "string"), rows=lambda one: {**one, "x": None})
    table.insert([{"id": 3, "v": 3, "w": 3, "x": "new"}])
    assert shown(narrow) == [(1, 1), (2, 2), (3, 3)]
    table.alter(drop_column("w"), rows=lambda one: {name: one[name] for name in ("id", "v", "x")})
    with pytest.raises(AnalysisException, match="w"):
        whole.collect()
    assert len(sql("SELECT * FROM {lake}.moving").columns) == 3


def test_a_version_is_pinned_while_a_plan_reads_it(lab: LabLake, sql: SqlReads) -> None:
    table = lab.create("pinned", COLUMNS)
    table.insert([row(1)])

    def held() -> list[int]:
        return sorted(pin.version for pin in lab.client.list_pins() if pin.table_id == table.table_id)

    first = sql("SELECT * FROM {lake}.pinned")
    again = sql("SELECT id FROM {lake}.pinned")
    assert held() == []  # until the read is planned, or for 10 seconds
    assert len(first.collect()) == len(again.collect()) == 1
    assert held() == [1]
    table.insert([row(2)])
    old = sql("SELECT * FROM {lake}.pinned VERSION AS OF 1")
    assert shown(old) == shown(sql("SELECT * FROM {lake}.pinned WHERE id = 1"))
    assert held() == [1, 2]
    del first, again, old
    jvm: Any = lab.spark._jvm
    deadline_s = time.monotonic() + WAIT_S
    while held() and time.monotonic() < deadline_s:
        gc.collect()
        jvm.System.gc()
        time.sleep(0.05)
    assert held() == []
