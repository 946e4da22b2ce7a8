"""Tables of Iceberg and Delta that were taken in, read and written with Spark: through the catalog and without it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, IntegerType, ListType, LongType, NestedField, StringType, StructType
from pyspark.sql import SparkSession

from laketx import Lake, Table
from tests.arrow.tables import texts
from tests.imports.deltas import add_file, column, commit, hide, live_adds, metadata, protocol
from tests.imports.icebergs import Icebergs, data_files
from worker.imports.delta_table import read_delta
from worker.imports.facts import SourceTable
from worker.imports.iceberg_table import open_table, read_iceberg
from worker.imports.planning import Meter
from worker.imports.table_import import import_table

Names = Callable[[], str]


def taken_in(lake: Lake, source: SourceTable, name: str) -> Table:
    import_table(lake, source, name)
    return lake.table(name)


def through_every_door(table: Table, where: str | None = None) -> list[list[str]]:
    """The reader of the catalog and Arrow; both the same, or a list of what differs."""
    found = [texts(table.read(where=where).toArrow()), texts(table.to_arrow(where=where))]
    return [one for at, one in enumerate(found) if at == 0 or one != found[0]]


def berg(folder: Path) -> tuple[Icebergs, SourceTable]:
    """Renamed columns, a narrower type in old files, nested fields with foreign ids, deleted rows, odd partitions."""
    folder.mkdir()
    bergs = Icebergs(folder)
    inner = StructType(
        NestedField(11, "b", StringType(), required=False), NestedField(10, "a", LongType(), required=False)
    )
    schema = Schema(
        NestedField(1, "id", IntegerType(), required=False),
        NestedField(2, "note", StringType(), required=False),
        NestedField(3, "tag", StringType(), required=False),
        NestedField(4, "parts", ListType(5, inner, element_required=False), required=False),
    )
    spec = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "tag"))
    table = bergs.create("orders", schema, partition_spec=spec)
    rows = [
        {"id": at, "note": f"n{at}", "tag": ["a b", "c/d%", None][at % 3], "parts": [{"b": "x", "a": at}]}
        for at in range(12)
    ]
    table.append(pa.Table.from_pylist(rows, table.schema().as_arrow()))
    with bergs.load("orders").update_schema() as change:
        change.rename_column("note", "remark")
        change.update_column("id", LongType())
        change.add_column("day", DateType())
    table = bergs.load("orders")
    more = [{"id": 1 << 40, "remark": "new", "tag": "a b", "parts": [{"b": "y", "a": 1}], "day": date(2026, 11, 1)}]
    table.append(pa.Table.from_pylist(more, table.schema().as_arrow()))
    bergs.hide("orders", {path: [0] for path, rows in data_files(table).items() if len(rows) > 1})
    return bergs, read_iceberg(open_table(bergs.uri, "shop.orders", {}), Meter())


@pytest.mark.long
def test_a_table_of_iceberg(lake: Lake, spark: SparkSession, new_name: Names, tmp_path: Path) -> None:
    bergs, source = berg(tmp_path / "a berg")
    table = taken_in(lake, source, new_name())
    wanted = texts(bergs.load("orders").scan().to_arrow())
    assert len(wanted) == 10
    assert through_every_door(table) == [wanted]
    for where in ("tag = 'c/d%'", "remark = 'n7'", "day IS NULL AND id > 5", "id > 1000"):
        [found] = through_every_door(table, where)
        assert found
    assert [row.a for row in table.read().selectExpr("parts[0].a AS a").where("a > 9").collect()] == [10, 11]
    table.update({"remark": "upper(remark)"}, where="id < 6")
    table.delete("tag IS NULL")
    left = [row for row in bergs.load("orders").scan().to_arrow().to_pylist() if row["tag"] is not None]
    changed = [row | {"remark": row["remark"].upper()} if row["id"] < 6 else row for row in left]
    wanted = sorted(repr(tuple(row.values())) for row in changed)
    assert through_every_door(table.refresh()) == [wanted]
    table.compact("major")
    assert through_every_door(table.refresh()) == [wanted]


@pytest.mark.parametrize("form", ["i", "u"])
def test_a_table_of_delta(lake: Lake, spark: SparkSession, new_name: Names, tmp_path: Path, form: str) -> None:
    source = tmp_path / "some orders"
    source.mkdir()
    day, name = [date(2026, 11, 1 + at % 2) for at in range(8)], ["x y%20", None] * 4
    rows = pa.table({"id": pa.array(range(8), pa.int64()), "day": day, "name": name})
    write_deltalake(str(source), rows, partition_by=["day", "name"])
    hide(source, {path: [1] for path in live_adds(source)}, form)
    table = taken_in(lake, read_delta(str(source), Meter()), new_name())
    wanted = sorted(repr(one) for one in zip(range(8), day, name, strict=True) if one[0] not in (2, 3))
    assert through_every_door(table) == [wanted]
    assert through_every_door(table, "name IS NOT NULL AND id > 4") == [[repr((6, date(2026, 11, 1), "x y%20"))]]


def test_a_table_of_delta_with_other_names_in_files(
    lake: Lake, spark: SparkSession, new_name: Names, tmp_path: Path
) -> None:
    first = add_file(tmp_path, pa.table({"col-1": pa.array([1, 2], pa.int64()), "col-2": ["a", "b"]}))
    schema: list[Any] = [column("id", "long", "col-1", 1), column("note", "string", "col-2", 2)]
    commit(tmp_path, protocol("columnMapping"), metadata(schema, **{"delta.columnMapping.mode": "name"}), first)
    table = taken_in(lake, read_delta(str(tmp_path), Meter()), new_name())
    assert through_every_door(table) == [["(1, 'a')", "(2, 'b')"]]
    assert through_every_door(table, "note = 'b'") == [["(2, 'b')"]]
