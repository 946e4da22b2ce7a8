"""A history of all verbs by both doors of Spark, and all that it shows, which no setting of a session changes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from laketx import Lake, Table
from tests.spark.sql import SqlReads
from tests.spark.stored import live
from tests.spark.typed_rows import text_of

Work = Callable[[], object]

CLOCK: Final = datetime(2026, 3, 29, 2, 30)  # noqa: DTZ001 - no clock of Berlin shows it
SPRING: Final = CLOCK.replace(tzinfo=UTC)
OLD: Final = datetime(1500, 2, 28, 12, tzinfo=UTC)  # of another calendar to some
COLUMNS: Final = (
    "id bigint, v int, day date, at timestamp_ltz, price decimal(6,2), word string, local timestamp_ntz, f double, "
    "raw binary, pairs map<string,int>, whole struct<a:int,b:array<timestamp_ltz>>"
)
REALS: Final = [0.0, -0.0, float("nan")]
PLACES: Final = ["day", "at", "price", "word"]
ASKED: Final = (
    "id > 3 and local is not null", "day < DATE'1501-01-01'", "price = 1.5", "word = ''", "f = 0 or raw = X'00FF'",
    "at < timestamp_ltz'2026-01-01 00:00:00Z'",
)  # fmt: skip
KINDS: Final = {
    "id": pa.int64(), "v": pa.int32(), "day": pa.date32(), "at": pa.timestamp("us", "UTC"),
    "price": pa.decimal128(6, 2), "word": pa.string(), "local": pa.timestamp("us"), "f": pa.float64(),
    "raw": pa.binary(), "pairs": pa.map_(pa.string(), pa.int32()),
    "whole": pa.struct([("a", pa.int32()), ("b", pa.list_(pa.timestamp("us", "UTC")))]),
}  # fmt: skip
STATEMENTS: Final = (
    (
        "INSERT INTO {t} ({columns}) SELECT id, CAST(id AS int), date_from_unix_date(-171500), "
        "timestamp_micros(-14825808000000000), 1.50BD, 'said', timestamp_ntz'2026-03-29 02:30:00', 0.5D, "
        "X'01', map('k', 1), named_struct('a', 1, 'b', array(timestamp_micros(0))) FROM range(50, 54)"
    ),
    "UPDATE {t} SET v = 7, whole.a = 9 WHERE id = 51L",
    "UPDATE {t} SET word = 'moved by it' WHERE id = 53L",
    "DELETE FROM {t} WHERE id = 52L",
    (
        "MERGE INTO {t} t USING (SELECT 50L AS id, 'said' AS word, 33 AS v UNION ALL SELECT 58L, 'said', 88) s "
        "ON t.id = s.id AND t.word = s.word WHEN MATCHED THEN UPDATE SET v = s.v "
        "WHEN NOT MATCHED THEN INSERT (id, v, word) VALUES (s.id, s.v, s.word)"
    ),
)
QUESTIONS: Final = (
    "SELECT * FROM {t}",
    "SELECT id FROM {t} WHERE day < DATE'1600-01-01' AND f = 0.5D AND price = 1.5BD",
    "SELECT count(*) AS n, min(day) AS least, max(at) AS latest FROM {t} VERSION AS OF 2",
    "SELECT * FROM {t}_seen",
    "DESCRIBE {t}_seen",
    "DESCRIBE {t}",
)
METADATA: Final = ("history", "snapshots", "transactions", "tags", "files", "partitions")


def rows_of(*numbers: int) -> pa.Table:
    listed = [
        {
            "id": one, "v": one, "day": date(1500 + one % 3, 2, 28), "at": SPRING if one % 2 else OLD,
            "price": Decimal("1.50"), "word": ["", None, "a/b"][one % 3], "local": CLOCK, "f": REALS[one % 3],
            "raw": b"\x00\xff", "pairs": [("k", one), ("none", None)], "whole": {"a": None, "b": [OLD, None]},
        }
        for one in numbers
    ]  # fmt: skip
    return pa.Table.from_pylist(listed, pa.schema(list(KINDS.items())))


def shown(frame: DataFrame) -> list[str]:
    """Its types, and its rows in any order."""
    rows = sorted(text_of(list(row.asDict(recursive=True).values())) for row in frame.collect())
    return [frame.schema.simpleString(), *rows]


def files_of(table: Table) -> list[str]:
    """What its files say of themselves, and what the service knows of each; not how the rows are spread."""
    found = set()
    for one in live(table.refresh()):
        if one.HasField("file") and not one.file.inlined:
            path = Path(table.folder, one.file.path)
            parquet = str(pq.read_metadata(path).schema).partition("\n")[2]
            known = sorted(each.column_id for each in one.file.stats if each.HasField("min"))
            found.add(f"{parquet} {pq.read_schema(path)} {one.file.partition} {known}")
    return sorted(found)


class Story:
    """What was seen at each step; of one that failed, how."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._sql = SqlReads(lake)
        self.seen: dict[str, object] = {}

    def tell(self) -> dict[str, object]:
        self._lake.client.create_namespace("told")
        for keyed in (False, True):
            self._verbs(f"told.{'keyed' if keyed else 'append'}", keyed=keyed)
        return self.seen

    def _see(self, name: str, work: Work) -> None:
        assert name not in self.seen
        try:
            self.seen[name] = work()
        except Exception as error:  # noqa: BLE001 - of any kind: it is compared
            self.seen[name] = f"{type(error).__name__}: {error}"[:400]

    def _look(self, name: str, table: Table) -> None:
        self._see(f"{name}: rows", lambda: shown(table.refresh().read()))
        self._see(f"{name}: files", lambda: files_of(table))

    def _verbs(self, name: str, *, keyed: bool) -> None:
        table = self._lake.create_table(
            name, COLUMNS, partition_by=PLACES, properties={"write.inline.rows": "0"},
            primary_key=["id"] if keyed else [], buckets=1 if keyed else None,
            key_scope="partition" if keyed else None,
        )  # fmt: skip
        spark = self._lake.spark
        place = {"day": date(1500, 2, 28), "at": OLD, "price": "1.5", "word": ""}
        few = rows_of(0).select([one for one in KINDS if one not in PLACES])
        merge = table.merge(rows_of(7, 8), on=["id", *PLACES]).when_matched_update({"v": "source.v + 70"})
        steps: dict[str, Callable[[], Any]] = {
            "insert": lambda: table.insert(rows_of(*range(6))).version,
            "insert a frame": lambda: table.insert(spark.createDataFrame(rows_of(6, 7))).version,
            "overwrite": lambda: table.overwrite(few, partition=place).version,
            "overwrite what comes": lambda: table.overwrite(rows_of(1), partition="dynamic").version,
            "move": lambda: table.update({"word": "'moved'", "v": "v + 1"}, where="id = 2").version,
            "set": lambda: table.update({"local": CLOCK, "f": 7.5}, where="id = 3").version,
            "delete": lambda: table.delete("id = 4 or word = 'nobody'").version,
            "merge": lambda: merge.when_not_matched_insert().execute().version,
            "look": lambda: self._look(f"{name} 1", table),
            "widen": lambda: table.widen_column("v", "bigint").meta.schema_version,
            "add": lambda: table.add_columns("note string, more struct<a:int,b:timestamp_ntz>").meta.schema_version,
            "default": lambda: table.set_default("note", "'none'").meta.schema_version,
            "rename": lambda: table.rename_column("f", "real").meta.schema_version,
        }
        steps |= {one: partial(self._said, one, name) for one in STATEMENTS}
        steps |= {
            "view": lambda: self._said("CREATE VIEW {t}_seen AS SELECT id, at, local, day FROM {t}", name),
            "minor": lambda: table.compact("minor") is not None,
            "major": lambda: table.compact("major") is not None,
            "cluster": lambda: table.compact("cluster", sort_by=["v", "id"]) is not None,
            "look again": lambda: self._look(f"{name} 2", table),
            "definition": lambda: [str(one) for one in table.refresh().meta.columns],
            "changes": lambda: shown(table.changes(since=1, mode="log").drop("_commit_time")),
            "no changes": lambda: str(table.changes(since=table.refresh().meta.head_version).dtypes),
        }
        steps |= {one: partial(self._asked, table, one.replace("f =", "real =")) for one in ASKED}
        steps |= {one: partial(self._answer, one.replace("f =", "real ="), name) for one in QUESTIONS}
        steps |= {one: partial(self._types, f"SELECT * FROM {{t}}.{one}", name) for one in METADATA}
        steps |= {
            "truncate": lambda: table.truncate(partition=place | {"word": "a/b", "day": date(1502, 2, 28)}).version,
            "restore": lambda: table.restore(version=2).version,
            "look at last": lambda: self._look(f"{name} 3", table),
        }
        for step, work in steps.items():
            self._see(f"{name}: {step}", work)

    @staticmethod
    def _asked(table: Table, where: str) -> list[str]:
        return shown(table.read(where=where))

    def _frame(self, statement: str, name: str) -> DataFrame:
        columns = ", ".join("real" if one == "f" else one for one in KINDS)
        return self._sql(statement.replace("{t}", f"{{lake}}.{name}").replace("{columns}", columns))

    def _said(self, statement: str, name: str) -> int:
        return len(self._frame(statement, name).collect())

    def _answer(self, statement: str, name: str) -> list[str]:
        return shown(self._frame(statement, name))

    def _types(self, statement: str, name: str) -> list[tuple[str, str]]:
        return self._frame(statement, name).dtypes
