"""The tables of the matrix: each has one state, the rows that it must show in a dict, and a tag."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from metaservice.client import add_column, drop_column, rename_column, widen_column
from metaservice.core.table.branches import off_branch
from protos.laketx.v1 import common_pb2, transaction_pb2
from tests.spark.reading import ARROW, LabLake, LabTable, Row

COLUMNS: Final = {
    "id": "bigint",
    "day": "string",
    "n": "int",
    "amount": "double",
    "price": "decimal(10,2)",
    "born": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "flag": "boolean",
    "note": "string",
    "raw": "binary",
}
NESTED: Final = {
    "numbers": "array<int>",
    "counts": "map<string,bigint>",
    "place": "struct<x:int,tags:array<string>>",
}
TAG: Final = "kept"
MOMENTS: Final = ("head", "old snapshot", "tag")
KINDS: Final = ("append", "keyed")


@dataclass(frozen=True, slots=True)
class Case:
    """A table, and the versions that are read."""

    kind: str
    state: str
    table: LabTable
    old: int
    tagged: int

    @property
    def name(self) -> str:
        return off_branch(self.table.meta.name)

    def version(self, moment: str) -> int:
        return {"head": max(self.table.at), "old snapshot": self.old, "tag": self.tagged}[moment]

    def rows(self, moment: str) -> pa.Table:
        """What is to be read."""
        version = self.version(moment)
        meta = self.table.lake.client.get_table(table_id=self.table.table_id, version=version)
        schema = pa.schema([(one.name, ARROW[one.type]) for one in meta.columns])
        return pa.Table.from_pylist(list(self.table.at[version].values()), schema)


def cases(lake: LabLake, folder: Path, branch: str = "") -> list[Case]:
    """All tables. What is imported lies in the folder. On a branch the lake's tables are emptied after it left."""
    chosen = [(kind, state) for state in STATES for kind in KINDS if (kind, state) not in LEFT_OUT]
    begun = [begin(lake, *each) for each in chosen]
    if branch:
        lake.client.create_branch(branch)
        for table in begun:
            fork = lake.client.get_table(f"{table.meta.name}@{branch}")
            table.at.pop(table.truncate())
            table.rows, table.meta = dict(table.at[max(table.at)]), fork
    return [case_of(table, folder, *each) for table, each in zip(begun, chosen, strict=True)]


def begin(lake: LabLake, kind: str, state: str) -> LabTable:
    key = ["id"] if kind == "keyed" else []
    columns = COLUMNS | NESTED if state == "nested" else COLUMNS
    of = nested_row if state == "nested" else row
    table = lake.create(f"{kind}_{state}", columns, key=key, partition_by=["day"] if state == "partitioned" else [])
    table.inlined_each = 1 if state == "inlined" else 0
    table.insert([of(number) for number in range(12)])
    table.insert([of(number) for number in range(12, 20)])
    return table


def case_of(table: LabTable, folder: Path, kind: str, state: str) -> Case:
    of = nested_row if state == "nested" else row
    old = max(table.at)
    STATES[state](table, folder)
    tagged = max(table.at)
    table.lake.client.create_tag(table.table_id, TAG, version=tagged)
    table.insert([evolved_row(20) if state == "evolved" else of(20)])
    return Case(kind, state, table, old, tagged)


def row(number: int, **other: object) -> Row:
    """Values of all types; some rows hold nulls, and what is hard to compare."""
    empty = number % 5 == 4
    return {
        "id": number,
        "day": None if number % 7 == 6 else f"2026-11-0{1 + number % 2}",
        "n": None if empty else number - 5,
        "amount": [0.5, float("nan"), -0.0, float("inf"), None][number % 5],
        "price": None if empty else Decimal(number) - Decimal("2.25"),
        "born": None if empty else date(1969, 12, 20 + number % 12),
        "at": None if empty else datetime(2026, 11, 1, 12, 0, number, 250, UTC),
        "local": None if empty else datetime(1960, 1, 1, 0, 0, number, 1),  # noqa: DTZ001 - a type without a zone
        "flag": None if empty else number % 2 == 0,
        "note": None if empty else f"ünï {number}",
        "raw": None if empty else bytes([0, number, 255]),
        **other,
    }


def nested_row(number: int) -> Row:
    """Empty lists, and nulls at every level, among the rows."""
    return row(
        number,
        numbers=[[number, None, 7], [], None][number % 3],
        counts=[{"a": number, "ü": None}, {}, None][number % 3],
        place=[{"x": number, "tags": ["p", None]}, {"x": None, "tags": []}, {"x": 1, "tags": None}, None][number % 4],
    )


def evolved_row(number: int) -> Row:
    found = row(number, extra=number) | {"remark": f"r{number}"}
    return {name: value for name, value in found.items() if name not in ("flag", "note")}


# -- states


def clean(table: LabTable, _folder: Path) -> None:
    table.insert([row(number) for number in range(30, 33)])


def deleted(table: LabTable, _folder: Path) -> None:
    table.delete(table.find(3, 4, 13))
    table.delete(table.find(0))


def updated(table: LabTable, _folder: Path) -> None:
    table.update({one: {**table.rows[one], "note": "new", "n": None} for one in table.find(1, 2, 15)})
    table.update({one: {**table.rows[one], "note": "newer"} for one in table.find(2)})


def evolved(table: LabTable, _folder: Path) -> None:
    steps = (
        add_column("extra", "int"),
        rename_column("note", "remark"),
        drop_column("flag"),
        widen_column("n", "bigint"),
    )
    for step in steps:
        table.evolve(step)
    table.insert([evolved_row(30)])


def partitioned(table: LabTable, _folder: Path) -> None:
    table.delete(table.find(0, 6))
    table.overwrite([row(40, day="2026-11-02")], [{"day": "2026-11-02"}])


def nested(table: LabTable, folder: Path) -> None:
    deleted(table, folder)
    table.update({one: {**table.rows[one], "numbers": [None], "counts": {"b": 2}} for one in table.find(1, 2, 15)})
    table.insert([nested_row(number) for number in range(30, 36)])


def compacted(table: LabTable, folder: Path) -> None:
    deleted(table, folder)
    updated(table, folder)
    table.compact()


def imported(table: LabTable, folder: Path) -> None:
    """A file without field ids, where it lies."""
    rows = [row(number) for number in range(50, 55)]
    schema = pa.schema([(name, ARROW[kind]) for name, kind in reversed(COLUMNS.items())])
    path = folder / f"{table.meta.name}.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema), path)
    file = common_pb2.DataFile(path=str(path), rows=len(rows), bytes=path.stat().st_size, external=True)
    intent = transaction_pb2.TableIntent(table_id=table.table_id, operation=common_pb2.OPERATION_INSERT)
    client = table.lake.client
    with client.begin([intent]) as txn:
        version = txn.commit([common_pb2.Change(table_id=table.table_id, files=[file])]).tables[0].version
    listed = [one for one in client.list_files(table.table_id) if one.file.external]
    table.rows |= {(listed[0].file.first_row_id + at,): one for at, one in enumerate(rows)}
    table.at[version] = dict(table.rows)
    table.delete(table.find(51))


STATES: Final[Mapping[str, Callable[[LabTable, Path], None]]] = {
    "clean": clean,
    "deleted": deleted,
    "updated": updated,
    "evolved": evolved,
    "partitioned": partitioned,
    "imported": imported,
    "compacted": compacted,
    "inlined": deleted,
    "nested": nested,
}
LEFT_OUT: Final = frozenset({("keyed", "imported")})  # primary-key tables take in no files
