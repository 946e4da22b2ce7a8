"""docs/quickstart.md does what it says: its SQL, and its Python on Spark. tests/arrow has its third way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import laketx
from tests.house.tree import ROOT

PAGE = (ROOT / "docs/quickstart.md").read_text(encoding="utf-8")
PYTHON = re.compile(r"^```python\n(import laketx\n.*?)^```.*?^```\n(.*?)^```", re.MULTILINE | re.DOTALL)
SQL = re.compile(r"^```sql\n(.*?)^```", re.MULTILINE | re.DOTALL)
ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.fixture
def sql(spark: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    """A session whose current catalog is a lake, as the shell's is."""
    session = spark.newSession()
    with laketx.connect(tmp_path / "sql-lake", session) as lake:
        session.sql(f"USE {lake.as_catalog('quickstart')}")
        yield session


def test_the_sql_does_what_it_says(sql: SparkSession) -> None:
    (block,) = SQL.findall(PAGE)
    statements = re.sub(r" +-- .*", "", block).split(";")
    answers = [[tuple(row) for row in sql.sql(each).collect()] for each in map(str.strip, statements) if each]
    newest, before, changes = answers[-3:]
    assert newest == [(2, 25.0), (3, 30.0)]
    assert before == [(1, 10.0), (2, 20.0)]
    assert sorted((row[0], row[1]) for row in changes) == [(2, 20.0), (2, 25.0), (3, 30.0)]


def test_the_lines_on_spark_do_what_they_say(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = PYTHON.search(PAGE)
    assert found is not None
    lines, says = found.groups()
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(lines, "quickstart.md", "exec"), names)
    lake, orders = names["lake"], names["orders"]
    assert isinstance(lake, laketx.Lake)
    assert isinstance(orders, laketx.Table)
    with lake:
        printed = capsys.readouterr().out
        assert ID.sub("ID", printed).endswith(ID.sub("ID", says))
        assert sorted(map(tuple, orders.read(version=1).collect())) == [(1, 10.0), (2, 20.0)]
        assert sorted(map(tuple, orders.read().collect())) == [(2, 25.0), (3, 30.0)]
        assert (tmp_path / "spark-lake").is_dir()
