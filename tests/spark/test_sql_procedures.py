"""CALL lake.system.… on tables that have rows; tests/sql/procedures.test has what needs none."""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from laketx import Lake, connect
from tests.integration.service import Service
from tests.spark.lab_tables import COLUMNS, row
from tests.spark.processes import wait_until
from tests.spark.reading import LabLake, open_lab, shown
from tests.spark.sql import SqlReads, catalog_of
from worker.services.purge import Purge
from worker.spark.catalog_jar import CATALOG_CLASS

Names = Callable[[], str]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabLake]:
    with open_lab(tmp_path_factory.mktemp("procedures")) as made:
        yield made


@pytest.fixture(scope="module")
def sql(lab: LabLake) -> SqlReads:
    return SqlReads(lab)


@pytest.mark.parametrize("keyed", [pytest.param(False, marks=pytest.mark.long), True])
def test_restore_and_rollback_bring_rows_back(lab: LabLake, sql: SqlReads, keyed: bool) -> None:
    name = f"restored_{keyed}"
    table = lab.create(name, COLUMNS, key=["id"] if keyed else [])
    table.insert([row(number) for number in range(3)])
    table.insert([row(number) for number in range(3, 5)])
    first, second = (shown(sql.table(name, version)) for version in (1, 2))
    assert len(first) == 3
    assert sql.rows(f"CALL {{lake}}.system.rollback('{name}')") == [(name, 3, 1)]
    assert shown(sql.table(name)) == first
    assert sql.rows(f"CALL {{lake}}.system.restore(table => '{name}', version => 2)") == [(name, 4, 2)]
    assert shown(sql.table(name)) == second
    (txn_id,) = sql.rows(f"SELECT txn_id FROM {{lake}}.{name}.history WHERE version = 4")[0]
    assert sql.rows(f"CALL {{lake}}.system.why('{txn_id}')")[0][:3] == (txn_id, "committed", [name])


def test_compact_queues_tasks(lab: LabLake, sql: SqlReads) -> None:
    table = lab.create("to_compact", COLUMNS, key=["id"], buckets=1)
    table.insert([row(number) for number in range(5)])
    table.insert([row(number, 2.0) for number in range(5)])
    found = sql.rows("CALL {lake}.system.compact(table => 'to_compact', operation => 'major')")
    assert [one[1:5] for one in found] == [("major", "queued", 2, 10)]
    assert [one[0] for one in sql.rows("CALL {lake}.system.tasks('to_compact')")] == [one[0] for one in found]


def test_every_procedure_describes_itself(sql: SqlReads) -> None:
    names = [one[-1] for one in sql.rows("SHOW PROCEDURES IN {lake}.system")]
    assert names
    for name in names:
        said = "\n".join(one[0] for one in sql.rows(f"DESCRIBE PROCEDURE {{lake}}.system.{name}"))
        assert "Description:" in said, said
        assert "Parameters:" in said, said


def test_a_purge_lists_what_no_version_needs(spark: SparkSession, tmp_path: Path) -> None:
    """The list is what the command deletes."""
    service = Service(tmp_path / "store", "--purge-delay-ms", "0")
    service.start()
    try:
        with connect(f"laketx://{service.address}", spark, warehouse=str(tmp_path / "files")) as lake:
            table = lake.create_table("shop.t", "id bigint", properties={"data.retain.hours": "0"})
            table.insert(spark.range(3).coalesce(1))
            table.overwrite(spark.range(5))
            call = f"CALL {catalog_of(lake)}.system.purge"
            wait_until(lambda: bool(spark.sql(f"{call}()").collect()))
            [(table_id, name, path)] = spark.sql(f"{call}('shop.t')").collect()
            assert (table_id, name, table.read().count()) == (table.table_id, "shop.t", 5)
            said: list[str] = []
            Purge(lake.client, str(tmp_path / "files"), say=lambda _, one: said.append(one)).run()
            assert said == [f"{table_id}/{path}"]
            assert not spark.sql(f"{call}()").collect()
    finally:
        service.kill()


SCHEMA = "id bigint, at timestamp, day date, name string, amount decimal(30,2)"


@pytest.mark.parametrize("partitioned", [True, pytest.param(False, marks=pytest.mark.long)])
def test_what_is_exported_can_be_imported(
    lake: Lake, spark: SparkSession, new_name: Names, tmp_path: Path, partitioned: bool
) -> None:
    table = lake.create_table(new_name(), SCHEMA, partition_by=["day", "at"])
    table.insert(
        spark.sql(
            "SELECT id, timestampadd(MINUTE, 20 * id, timestamp'2026-10-25 00:30:00Z') at, nullif(DATE'2026-11-01', "
            "if(id = 3, DATE'2026-11-01', NULL)) day, concat('a ', id) name, cast(id AS decimal(30,2)) / 7 amount "
            "FROM range(9)"
        )
    )
    wanted = shown(table.read())
    table.delete("id > 4")
    again = lake.create_table(new_name(), SCHEMA, partition_by=["day", "at"] if partitioned else [])
    out, call = tmp_path / "out", f"CALL {catalog_of(lake)}.system"
    options = f"version => 1, partitioned => {partitioned}"
    [(name, version, path)] = spark.sql(f"{call}.export('{table.name}', '{out}', {options})").collect()
    assert (name, version, Path(path.removeprefix("file:"))) == (table.name, 1, out)
    assert any(out.glob("day=2026-11-01/at=*")) == partitioned
    assert {one.suffix for one in out.rglob("[!.]*") if one.is_file()} == {".parquet"}
    [made] = spark.sql(f"{call}.import_parquet('{out}', '{again.name}', message => 'back again')").collect()
    assert made == (again.name, 1, 9)
    assert shown(again.read()) == wanted
    assert again.history()[0].message == "back again"


def test_an_export_goes_into_a_new_folder_outside_of_the_lake(
    lake: Lake, spark: SparkSession, new_name: Names, tmp_path: Path
) -> None:
    table = lake.create_table(new_name(), "id bigint, name string, raw binary", partition_by=["name"])
    table.insert(spark.sql("SELECT 1L id, '' name, X'00' raw"))
    call = f"CALL {catalog_of(lake)}.system.export('{table.name}'"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    refused = {
        "": "PATH_INVALID: say where",
        str(tmp_path / "full"): "PATH_NOT_EMPTY",
        lake.warehouse: "PATH_INVALID.* overlaps",
        str(Path(lake.warehouse).parent): "PATH_INVALID.* overlaps",
        f"{lake.warehouse}/{table.table_id}/x": "PATH_INVALID.* overlaps",
        "gopher://x/y": "PATH_INVALID",
        str(tmp_path / "new"): "PARTITION_INVALID: an empty name",
    }
    for path, reason in refused.items():
        with pytest.raises(IllegalArgumentException, match=reason):
            spark.sql(f"{call}, '{path}')")
    assert [one.name for one in tmp_path.iterdir()] == ["full"]
    spark.sql(f"{call}, '{tmp_path / 'new'}', partitioned => false)")
    assert spark.read.parquet(str(tmp_path / "new")).collect() == [(1, "", b"\0")]


def test_an_export_that_fails_leaves_no_file(lake: Lake, spark: SparkSession, new_name: Names, tmp_path: Path) -> None:
    table = lake.create_table(new_name(), "id bigint")
    for first in range(2):
        table.insert(spark.range(first, first + 1).coalesce(1))
    next(Path(table.folder).rglob("*.parquet")).unlink()
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        spark.sql(f"CALL {catalog_of(lake)}.system.export('{table.name}', '{tmp_path / 'out'}')")
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_fails_waits_for_tasks_that_go_on(
    lake: Lake, spark: SparkSession, new_name: Names, tmp_path: Path
) -> None:
    """One task finds no file; the other one still makes a folder for each partition."""
    table = lake.create_table(new_name(), "id bigint, p int", partition_by=["p"])
    table.insert(spark.range(1).selectExpr("id", "-1 AS p"))
    lost = next(Path(table.folder).rglob("*.parquet"))
    table.insert(spark.range(100).selectExpr("id", "cast(id AS int) AS p").coalesce(1))
    lost.unlink()
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        spark.sql(f"CALL {catalog_of(lake)}.system.export('{table.name}', '{tmp_path / 'out'}')")
    for _ in range(20):
        assert list(tmp_path.iterdir()) == []
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("python", "reason"),
    [("", "PYTHON_MISSING"), ("/no/such/python", "PYTHON_FAILED"), (sys.executable, "PATH_UNKNOWN")],
)
def test_an_import_needs_files_and_a_python(
    lake: Lake, spark: SparkSession, new_name: Names, tmp_path: Path, python: str, reason: str
) -> None:
    catalog, name = f"python_{reason.lower()}", new_name()
    spark.conf.set(f"spark.sql.catalog.{catalog}", CATALOG_CLASS)
    for key, value in {**lake.address, "python": python}.items():
        spark.conf.set(f"spark.sql.catalog.{catalog}.{key}", value)
    with pytest.raises(IllegalArgumentException, match=reason):
        spark.sql(f"CALL {catalog}.system.import_parquet('{tmp_path / 'nothing'}', '{name}')")
    assert name not in lake.tables()
