"""The order of rows in files, as Iceberg's readers and writers see it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from laketx import Lake
from metaservice.client import drop_column, rename_column
from protos.laketx.v1 import catalog_pb2, common_pb2
from tests.arrow.tables import texts
from tests.iceberg.imported import import_file
from tests.iceberg.servers import Server, by_duckdb, by_polars, by_pyiceberg, catalog_of
from tests.iceberg.writers import attached
from worker.iceberg.metadata.sort_orders import SortOrders, sort_orders

COLUMNS = {"a": "int", "b": "string", "x,`y": "decimal(10,2)", "f": "double", "day": "date"}
SCHEMA = catalog_pb2.SchemaVersion(
    schema_version=1,
    columns=[
        catalog_pb2.Column(name=name, type=kind, column_id=at) for at, (name, kind) in enumerate(COLUMNS.items(), 1)
    ],
)
SWAPPED = catalog_pb2.SchemaVersion(
    schema_version=2,
    columns=[
        catalog_pb2.Column(name="b", type="int", column_id=1),
        catalog_pb2.Column(name="a", type="string", column_id=2),
    ],
)


@pytest.mark.parametrize(
    ("text", "schema_version", "columns"),
    [
        ("", 1, ()),
        ("sort(a)", 1, (1,)),
        ("sort(a)", 0, (1,)),
        ("sort(a)", 2, (2,)),
        ("sort(day,b,a)", 1, (5, 2, 1)),
        ("sort(`x,``y`,a)", 1, (3, 1)),
        ("sort(a,f,b)", 1, (1,)),
        ("sort(f)", 1, ()),
        ("sort(gone)", 1, ()),
        ("zorder(a,b)", 1, ()),
        ("zorder(a)", 1, ()),
    ],
)
def test_an_order_is_told_by_the_columns_that_the_file_was_written_with(
    text: str, schema_version: int, columns: tuple[int, ...]
) -> None:
    found = SortOrders([SCHEMA, SWAPPED]).of(common_pb2.DataFile(row_order=text, schema_version=schema_version))
    assert (found.columns if found else ()) == columns


def test_orders_by_columns_that_are_gone_are_left_out() -> None:
    known = SortOrders([SCHEMA])
    orders = [known.of(common_pb2.DataFile(row_order=text, schema_version=1)) for text in ("sort(a)", "sort(day)")]
    found = sort_orders([one for one in orders if one is not None], SWAPPED.columns)
    assert [[each["source-id"] for each in one["fields"]] for one in found] == [[], [1]]
    assert [one["order-id"] > 0 for one in found] == [False, True]


@pytest.mark.parametrize("form", [2, 3])
def test_sorted_files_say_so(lake: Lake, server: Server, form: int, tmp_path: Path) -> None:
    name = f"sorted{form}"
    table = lake.create_table(name, "id bigint, note string, old int", properties={"write.inline.rows": "0"})
    rows = pa.table({"id": [1, 2, 3], "note": [None, "a", "b"], "old": pa.array([1, 2, 3], pa.int32())})
    import_file(table, tmp_path / "sorted.parquet", rows, row_order="sort(note,id)")
    import_file(table, tmp_path / "curve.parquet", rows, row_order="zorder(note,id)")
    import_file(table, tmp_path / "gone.parquet", rows, row_order="sort(old)")
    table.view.client.alter_columns(table.table_id, rename_column("note", "text"), drop_column("old"))
    shown = catalog_of(server, form).load_table(f"default.{name}")
    [order] = [one for one in shown.sort_orders().values() if not one.is_unsorted]
    assert [str(one) for one in order.fields] == ["2 ASC NULLS FIRST", "1 ASC NULLS FIRST"]
    assert shown.sort_order().is_unsorted
    snapshot = shown.current_snapshot()
    found = {
        Path(entry.data_file.file_path).stem: entry.data_file.sort_order_id
        for manifest in snapshot.manifests(shown.io)
        for entry in manifest.fetch_manifest_entry(shown.io)
    }
    assert (found["sorted"], found["curve"]) == (order.order_id, None)
    table.refresh()
    for read in (by_pyiceberg, by_polars, by_duckdb):
        assert texts(read(server, form, name)) == texts(table.to_arrow())


def test_other_programs_append_to_a_sorted_table(lake: Lake, server: Server, tmp_path: Path) -> None:
    """DuckDB writes to no table whose default order is one."""
    properties = {"compaction.cluster.order": "sort(id)", "write.inline.rows": "0"}
    table = lake.create_table("kept", "id bigint", properties=properties)
    import_file(table, tmp_path / "kept.parquet", pa.table({"id": [1, 2]}), row_order="sort(id)")
    catalog_of(server, 2).load_table("default.kept").append(pa.table({"id": [5, 4]}))
    with attached(server) as connection:
        connection.execute("INSERT INTO lake.default.kept VALUES (3)")
    assert sorted(table.refresh().to_arrow().column("id").to_pylist()) == [1, 2, 3, 4, 5]
