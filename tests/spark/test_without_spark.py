"""Calls that need no Spark answer the same with a session and where Spark isn't installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import StructType

import laketx
from laketx.column_definitions import columns_of_words
from tests.house.tree import ROOT
from tests.spark import story_without_spark
from worker.spark.column_types import wire_columns

HERE = """
import json, sys
from pathlib import Path
from typing import Any
for name in ("pyspark", "py4j"):
    sys.modules[name] = None  # as if it weren't installed
import laketx
from tests.spark import story_without_spark
with laketx.connect(sys.argv[1]) as lake:
    found = [story_without_spark.play(lake, Path(sys.argv[1], "files")), story_without_spark.refusals(lake)]
print(json.dumps(found))
"""


def test_calls_without_spark_answer_as_with_it(spark: SparkSession, tmp_path: Path) -> None:
    command = [sys.executable, "-c", HERE, str(tmp_path / "without")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    without = json.loads(done.stdout)
    with laketx.connect(tmp_path / "with", spark) as lake:
        found = [story_without_spark.play(lake, tmp_path / "with" / "files"), story_without_spark.refusals(lake)]
        assert without == json.loads(json.dumps(found))
        assert "none" not in without[1]
        table = lake.table("shop.orders")
        for mode in ("latest", "changes", "log"):
            asked: dict[str, Any] = {"since": 2, "until": 5, "mode": mode}
            changed = table.changes(**asked).drop("_commit_time").collect()
            assert sorted_rows(changed) == story_without_spark.rows_of(table.to_arrow(**asked))
        with table.snapshot(version=2) as held:
            assert sorted_rows(held.read().collect()) == story_without_spark.rows_of(held.to_arrow())


def sorted_rows(rows: list[Row]) -> list[str]:
    return sorted(repr(row.asDict()) for row in rows)


WORDS = [
    "a boolean, b BYTE, c tinyint, d Short, e smallint, f INT, g integer, h long, i bigint, j float, k real, l double",
    "a string, b binary, c date, d timestamp, e timestamp_ltz, f timestamp_ntz, g decimal, h dec(7), i numeric(9, 2)",
    "a array<array<integer>>, b map<string,map<string,long>>, c struct<x: int, y byte not null, `z z`: array<short>>",
    "a: int, b : string not null comment 'it''s', `c``d` int comment \"say \"\"x\"\"\", e int comment 'a\\'b\\n\\\\'",
    "a struct<b: int comment 'nested', c: string collate utf8_binary>",
    "a int not null comment ''",
    *(
        "a",
        "a int b",
        "a int,",
        ", a int",
        "a decimal(x)",
        "a array<int",
        "a map<int>",
        "a int not",
        "a 'int'",
        "a text",
    ),
    *(
        "a char(3)",
        "a varchar(9)",
        "a interval day",
        "a variant",
        "a string collate unicode",
        "a void",
        "a bool",
        "a()",
    ),
]


@pytest.mark.parametrize("words", WORDS)
def test_columns_in_words_are_those_that_spark_reads(spark: SparkSession, words: str) -> None:
    try:
        read = StructType.fromDDL(words)
        assert isinstance(read, StructType)
        wanted = wire_columns(read, [])
    except (PySparkException, laketx.InputError):
        with pytest.raises(laketx.InputError, match=r"COLUMNS_INVALID|TYPE_NOT_SUPPORTED"):
            columns_of_words(words, [])
    else:
        assert columns_of_words(words, []) == wanted
