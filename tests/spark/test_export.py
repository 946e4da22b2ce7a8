"""Tables written out as plain Parquet, and read back by readers that know nothing of them."""

import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from laketx import InputError, Lake, LakeTXError, Table
from worker.dataframes.export import UNFINISHED

Names = Callable[[], str]
ONE, TWO = date(2026, 11, 1), date(2026, 11, 2)


def parquet_in(folder: Path) -> list[Path]:
    return sorted(path.relative_to(folder) for path in folder.rglob("*.parquet"))


def plain_rows(folder: Path) -> list[tuple[object, ...]]:
    """Read by pyarrow alone, folders and all."""
    table = ds.dataset(folder, format="parquet", partitioning="hive").to_table()
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=str)


def test_a_keyed_table_at_a_version_a_time_and_now(
    lake: Lake, spark: SparkSession, new_name: Names, tmp_path: Path
) -> None:
    table = lake.create_table(new_name(), "id bigint, at timestamp", primary_key=["id"], buckets=2)
    moment = datetime(1969, 7, 20, 20, 17, 40, 123456, tzinfo=UTC)
    table.insert(spark.range(4).withColumn("at", sf.lit(moment)))
    first = table.history(1)[0].time
    table.delete("id < 2")
    assert table.export(tmp_path / "now") == 2
    assert plain_rows(tmp_path / "now") == [(2, moment), (3, moment)]
    assert table.export(str(tmp_path / "then"), version=1) == 1
    assert table.export(tmp_path / "a" / "b", timestamp=first) == 1
    assert plain_rows(tmp_path / "then") == plain_rows(tmp_path / "a" / "b") == [(n, moment) for n in range(4)]
    assert table.export(tmp_path / "some", commits_ago=1, where="id IN (1, 3)") == 1
    assert [row[0] for row in plain_rows(tmp_path / "some")] == [1, 3]
    columns = pq.read_schema(tmp_path / "now" / parquet_in(tmp_path / "now")[0]).names
    assert columns == ["id", "at"]
    table.truncate()
    table.export(tmp_path / "none")
    assert (plain_rows(tmp_path / "none"), spark.read.parquet(f"{tmp_path}/none").columns) == ([], ["id", "at"])


def test_partitions_become_folders(lake: Lake, spark: SparkSession, new_name: Names, tmp_path: Path) -> None:
    rows = [(1, ONE, "a/b=c"), (2, TWO, None), (3, TWO, "ü")]
    table = lake.create_table(new_name(), "id bigint, day date, word string", partition_by=["day", "word"])
    table.insert(spark.createDataFrame(rows, "id bigint, day date, word string").coalesce(1))
    table.delete("id = 3")
    table.export(tmp_path / "out")
    folders = {path.parent.as_posix() for path in parquet_in(tmp_path / "out")}
    assert folders == {"day=2026-11-01/word=a%2Fb%3Dc", "day=2026-11-02/word=__HIVE_DEFAULT_PARTITION__"}
    back = lake.import_parquet(tmp_path / "out", new_name())
    assert sorted(tuple(row) for row in back.read().collect()) == rows[:2]
    assert sorted(tuple(row) for row in spark.read.parquet(f"{tmp_path}/out").collect()) == rows[:2]
    table.export(tmp_path / "flat", partitioned=False)
    assert plain_rows(tmp_path / "flat") == rows[:2]
    table.insert(spark.createDataFrame([(4, ONE, "")], "id bigint, day date, word string"))
    with pytest.raises(InputError, match="PARTITION_INVALID: an empty word"):
        table.export(tmp_path / "lossy")
    assert not (tmp_path / "lossy").exists()


def test_what_is_there_is_kept_until_it_can_be_replaced(
    lake: Lake, spark: SparkSession, new_name: Names, tmp_path: Path
) -> None:
    table = lake.create_table(new_name(), "id bigint, day date", partition_by=["day"])
    table.insert(spark.range(6).coalesce(1).withColumn("day", sf.lit(ONE) + (sf.col("id") % 2).cast("int")))
    out = tmp_path / "out"
    table.export(out)
    before = parquet_in(out)
    with pytest.raises(InputError, match=r"PATH_NOT_EMPTY.* overwrite=True"):
        table.export(out)
    in_one_task = f"day = '{TWO}' AND id / (id - 3) > 0"
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        table.export(out, where=in_one_task, overwrite=True)
    assert (parquet_in(out), list(out.glob(f"{UNFINISHED}*"))) == (before, [])
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        table.export(tmp_path / "new", where=in_one_task)
    assert parquet_in(tmp_path / "new") == []
    table.export(out, where=f"day = '{TWO}'", overwrite=True)
    assert plain_rows(out) == [(number, str(TWO)) for number in (1, 3, 5)]
    assert [path.name for path in out.iterdir() if path.is_dir()] == ["day=2026-11-02"]
    table.export(out, partitioned=False, overwrite=True)
    assert len(plain_rows(out)) == 6
    assert [path for path in out.iterdir() if path.is_dir()] == []


def test_where_an_export_must_not_go(lake: Lake, spark: SparkSession, new_name: Names, tmp_path: Path) -> None:
    table = lake.create_table(new_name(), "id bigint, day date", partition_by=["day"])
    table.insert(spark.range(2).withColumn("day", sf.lit(ONE)))
    table.export(tmp_path / "old", partitioned=False)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "letter.txt").write_text("dear")
    imported = lake.import_parquet(tmp_path / "old", new_name())
    (tmp_path / "link").symlink_to(Path(table.folder).parent)
    refused: list[tuple[Table, str | Path, str]] = [
        (table, f"{lake.warehouse}/out", "own files"),
        (table, Path(table.folder).parent.parent, "own files"),
        (table, f"{table.folder}/../x", "own files"),
        (table, f"{tmp_path}/link/x", "own files"),
        (table, tmp_path / "notes", "is not a Parquet file"),
        (table, tmp_path / "notes" / "letter.txt", "is a file"),
        (imported, tmp_path / "old", "belongs to the table itself"),
    ]
    for source, path, why in refused:
        with pytest.raises(InputError, match=f"PATH_INVALID.*{why}"):
            source.export(path, overwrite=True)
    assert (imported.read().count(), table.read().count()) == (2, 2)
    alone = lake.create_table(new_name(), "day date", partition_by=["day"])
    with pytest.raises(InputError, match=r"PARTITION_INVALID: .* no column beside"):
        alone.export(tmp_path / "alone")


def test_an_export_that_fails_leaves_the_folder_as_it_was(
    lake: Lake, spark: SparkSession, new_name: Names, tmp_path: Path
) -> None:
    """One task finds no file, while the others still make folders of partitions."""
    schema = "id bigint, p int"
    table = lake.create_table(
        new_name(),
        schema,
        primary_key=["id", "p"],
        partition_by=["p"],
        buckets=1,
        properties={"write.inline.rows": "0"},
    )
    table.insert(spark.range(1).selectExpr("id", "-1 AS p"))
    lost = next(Path(table.folder).rglob("*.parquet"))
    out = tmp_path / "out"
    table.export(out)
    before = sorted(out.rglob("*"))
    table.insert(spark.range(40).selectExpr("id", "cast(id AS int) AS p"))
    lost.unlink()
    slow = sf.expr("aggregate(sequence(1L, 500000L + id), 0L, (sum, x) -> sum + x) > 0")
    with pytest.raises((LakeTXError, PySparkException, Py4JJavaError)):
        table.export(out, where=slow, overwrite=True)
    for _ in range(10):
        assert sorted(out.rglob("*")) == before
        time.sleep(0.1)
