"""CALL lake.system.… on tables that have rows; tests/sql/procedures.test has what needs none."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from laketx import connect
from tests.integration.service import Service
from tests.spark.lab_tables import COLUMNS, row
from tests.spark.processes import wait_until
from tests.spark.reading import LabLake, open_lab, shown
from tests.spark.sql import SqlReads, catalog_of
from worker.files.purge import Purge


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabLake]:
    with open_lab(tmp_path_factory.mktemp("procedures")) as made:
        yield made


@pytest.fixture(scope="module")
def sql(lab: LabLake) -> SqlReads:
    return SqlReads(lab)


@pytest.mark.parametrize("keyed", [False, True])
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
