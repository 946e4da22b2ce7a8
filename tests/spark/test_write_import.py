"""Parquet files that were there before the table."""

from collections.abc import Callable
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from laketx import InputError, Lake
from metaservice.client import InvalidError
from tests.spark.stored import live
from worker.files.warehouse import read_mark
from worker.imports.parquet_files import folder_type, folder_values

Names = Callable[[], str]


def test_folders_become_partitions(lake: Lake, spark: SparkSession, new_name: Names, tmp_path: Path) -> None:
    rows = [(1, "x", date(2026, 11, 1)), (2, None, date(2026, 11, 2)), (3, "y", None)]
    spark.createDataFrame(rows, "id bigint, word string, day date").write.partitionBy("day").parquet(f"{tmp_path}/old")
    before = {path: path.read_bytes() for path in (tmp_path / "old").rglob("*.parquet")}
    table = lake.import_parquet(tmp_path / "old", new_name())
    assert [(c.name, c.type) for c in table.meta.columns] == [("id", "bigint"), ("word", "string"), ("day", "date")]
    entries = live(table)
    assert {entry.file.path for entry in entries} == {str(path) for path in before}
    assert all(entry.file.external for entry in entries)
    assert all(entry.file.stats[0].min.integer in (1, 2, 3) for entry in entries)
    assert sorted(tuple(row) for row in table.read().collect()) == sorted(rows)
    table.insert(spark.createDataFrame([(4, "z", date(2026, 11, 2))], "id bigint, word string, day date"))
    assert sorted(row.id for row in table.read(where="day = '2026-11-02'").collect()) == [2, 4]
    assert {path: path.read_bytes() for path in before} == before


def test_what_does_not_fit_is_refused(lake: Lake, new_name: Names, tmp_path: Path) -> None:
    name = new_name()
    pq.write_table(pa.table({"id": pa.array([1], pa.int64())}), tmp_path / "a.parquet")
    lake.import_parquet(tmp_path / "a.parquet", name)
    bad = {
        "PATH_UNKNOWN": tmp_path / "nowhere",
        "FILES_MISSING": tmp_path / "empty",
        "SCHEMA_MISMATCH": tmp_path / "other.parquet",
        "COLUMN_UNKNOWN": tmp_path / "more.parquet",
        "TYPE_NOT_SUPPORTED": tmp_path / "time.parquet",
        "FILE_UNREADABLE": tmp_path / "text.parquet",
    }
    (tmp_path / "empty").mkdir()
    pq.write_table(pa.table({"id": ["x"]}), tmp_path / "other.parquet")
    pq.write_table(pa.table({"id": [1], "more": [1]}), tmp_path / "more.parquet")
    pq.write_table(pa.table({"id": pa.array([1], pa.timestamp("ns"))}), tmp_path / "time.parquet")
    (tmp_path / "text.parquet").write_text("no parquet")
    for reason, path in bad.items():
        with pytest.raises(InputError, match=reason):
            lake.import_parquet(path, name)
    keyed = lake.create_table(new_name(), "id bigint", primary_key=["id"])
    with pytest.raises(InputError, match="TABLE_KEYED"):
        lake.import_parquet(tmp_path / "a.parquet", keyed.name)
    assert lake.table(name).meta.head_version == 1


def test_a_file_of_the_lake_is_not_imported_by_any_way_to_it(
    lake: Lake, spark: SparkSession, new_name: Names, tmp_path: Path
) -> None:
    source = lake.create_table(new_name(), "id bigint")
    assert read_mark(lake.warehouse) is not None, "the first table marks the warehouse"
    source.insert(spark.createDataFrame([(1,)], "id bigint"))
    folder = Path(source.folder)
    (tmp_path / "link").symlink_to(folder)
    file = next(folder.rglob("*.parquet"))
    (tmp_path / "file.parquet").symlink_to(file)
    name = new_name()
    ways: list[str | Path] = [
        folder,
        folder.parent,
        f"file:{folder}",
        f"file://{file}",
        tmp_path / "link",
        tmp_path / "file.parquet",
    ]
    for path in [*ways, tmp_path]:
        with pytest.raises(InputError, match="PATH_IN_LAKE"):
            lake.import_parquet(path, name)
    lake.drop_table(source.name)
    with pytest.raises(InputError, match="PATH_IN_LAKE"):
        lake.import_parquet(file, name)
    assert name not in lake.tables(), "nothing was made for what is refused"


def test_a_file_is_imported_once_whatever_way_leads_to_it(
    lake: Lake, new_name: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tmp_path / "real"
    real.mkdir()
    pq.write_table(pa.table({"id": pa.array([1], pa.int64())}), real / "a b.parquet")
    (tmp_path / "link").symlink_to(real)
    monkeypatch.chdir(tmp_path)
    table = lake.import_parquet("link/a b.parquet", new_name())
    assert [entry.file.path for entry in live(table)] == [str(real / "a b.parquet")]
    for path in (real, f"file:{real}/a%20b.parquet", f"{tmp_path}/link/../link", "real/./a b.parquet"):
        with pytest.raises(InvalidError, match="PATH_LIVE"):
            lake.import_parquet(path, table.name)
    (real / "again.parquet").symlink_to(real / "a b.parquet")
    with pytest.raises(InputError, match="PATH_TWICE"):
        lake.import_parquet(real, new_name())
    assert table.read().count() == 1


def test_a_path_with_a_secret_or_of_the_web_is_refused(lake: Lake, new_name: Names) -> None:
    for path in (
        "s3://key:SECRET@bucket/a.parquet",
        "s3a://bucket/a.parquet?X-Amz-Signature=SECRET",
        "https://host/a.parquet?sig=SECRET",
        "http://host/a.parquet",
    ):
        with pytest.raises(InputError, match="PATH_INVALID") as caught:
            lake.import_parquet(path, new_name())
        assert "SECRET" not in str(caught.value)


def test_what_folders_say() -> None:
    assert folder_values("day=2026-11-01/r=a%2Fb/n=__HIVE_DEFAULT_PARTITION__/x.parquet") == {
        "day": "2026-11-01",
        "r": "a/b",
        "n": None,
    }
    assert [folder_type(values) for values in (["1", None], ["007"], ["2026-11-01"], [None], ["1", "x"])] == [
        "bigint",
        "string",
        "date",
        "string",
        "string",
    ]
