"""Exported metadata, read by other people's readers, against what was written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from laketx import InputError, Lake, Table
from metaservice.cli import command_line
from metaservice.client import rename_column, widen_column
from tests.arrow.tables import texts
from tests.iceberg.imported import import_file
from tests.iceberg.readers import read_duckdb, read_pyiceberg
from tests.spark.histories import NESTED, grow, grow_many
from tests.spark.reading import LabLake, LabTable, Row
from worker.connection.table_view import TableView
from worker.iceberg.export import export

COLUMNS = "id bigint, day date, amount double, price decimal(10,2), at timestamp, note string"
Read = Callable[..., Any]
NAN = float("nan")
BOTH = pytest.mark.parametrize("form", [2, 3])
EACH = pytest.mark.parametrize(  # both forms and both kinds of table; every pair of them in the long run
    ("form", "keyed"),
    [
        pytest.param(2, False, id="2-append"),
        pytest.param(3, True, id="3-keyed"),
        pytest.param(2, True, id="2-keyed", marks=pytest.mark.long),
        pytest.param(3, False, id="3-append", marks=pytest.mark.long),
    ],
)
READERS = pytest.mark.parametrize("read", [read_pyiceberg, read_duckdb])


def metadata_of(table: Table | LabTable, version: int | None = None, **options: Any) -> str:
    view: TableView = table.view
    head = view.client.resolve_version(view.table_id, version=version).version
    return export(view, head, **options).metadata


def as_texts(rows: Iterator[Row] | list[Row], names: list[str]) -> list[str]:
    return sorted(repr(tuple(row[name] for name in names)) for row in rows)


# -- random histories --------------------------------------------------------------------------------------------------


@EACH
@pytest.mark.parametrize("seed", range(2))
def test_every_version_shows_its_rows(lab: LabLake, seed: int, keyed: bool, form: int, tmp_path: Path) -> None:
    table = grow(lab, f"h{seed}_{form}_{keyed}", seed, keyed=keyed, steps=8)
    check(table, read_pyiceberg, sorted(table.at), form=form, folder=str(tmp_path))


@EACH
@pytest.mark.parametrize("seed", range(2))
def test_every_version_shows_its_rows_under_its_columns(
    lab: LabLake, seed: int, keyed: bool, form: int, tmp_path: Path
) -> None:
    table = grow_many(lab, f"m{seed}_{form}_{keyed}", seed, keyed=keyed, cases=3, sites=2, steps=6, alters=3)
    check(table, read_pyiceberg, sorted(table.at), form=form, folder=str(tmp_path))


@EACH
def test_duckdb_reads_deleted_and_evolved_rows(lab: LabLake, keyed: bool, form: int) -> None:
    deleted = grow(lab, f"d{form}_{keyed}", 1, keyed=keyed, steps=8)
    evolved = grow_many(lab, f"e{form}_{keyed}", 1, keyed=keyed, cases=3, sites=2, steps=6, alters=3)
    for table in (deleted, evolved):
        check(table, read_duckdb, sorted(table.at)[-3:], form=form)


@EACH
@READERS
def test_parts_of_columns_keep_their_values(lab: LabLake, read: Read, keyed: bool, form: int, tmp_path: Path) -> None:
    name = f"n{form}_{keyed}_{read.__name__}"
    table = grow_many(lab, name, 3, keyed=keyed, cases=3, sites=2, steps=6, alters=3, more=NESTED)
    versions = sorted(table.at)
    check(table, read, versions if read is read_pyiceberg else versions[-2:], form=form, folder=str(tmp_path))


@pytest.fixture
def without_jar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are as Spark writes them without the jar of the catalog, and as it wrote them in releases before."""
    monkeypatch.setattr(LabTable, "marks_parts", False)


@EACH
@pytest.mark.usefixtures("without_jar")
def test_parts_of_columns_without_ids_keep_their_values(lab: LabLake, keyed: bool, form: int, tmp_path: Path) -> None:
    table = grow_many(lab, f"s{form}_{keyed}", 3, keyed=keyed, cases=3, sites=2, steps=6, alters=0, more=NESTED)
    check(table, read_pyiceberg, sorted(table.at), form=form, folder=str(tmp_path))


@pytest.mark.usefixtures("without_jar")
def test_duckdb_does_not_read_arrays_and_maps_without_ids(lab: LabLake) -> None:
    """It has no use for names where a file has some ids. docs/iceberg.md warns of it."""
    arrays = lab.create("spark_arrays", {"id": "bigint", "many": "array<int>"})
    arrays.insert([{"id": 1, "many": [1, 2]}])
    assert read_duckdb(metadata_of(arrays)).to_pylist() == [{"id": 1, "many": [None, None]}]
    maps = lab.create("spark_maps", {"id": "bigint", "counts": "map<string,bigint>"})
    maps.insert([{"id": 1, "counts": [("a", 1)]}])
    with pytest.raises(duckdb.InvalidInputException, match="MAP"):
        read_duckdb(metadata_of(maps))


@EACH
def test_older_files_lack_ids_on_some_columns(lab: LabLake, keyed: bool, form: int, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LabTable, "marks_own", False)
        table = grow(lab, f"o{form}_{keyed}", 2, keyed=keyed, steps=6)
    check(table, read_pyiceberg, sorted(table.at), form=form, folder=str(tmp_path))


def check(table: LabTable, read: Read, versions: list[int], **options: Any) -> None:
    for version in versions:
        found = read(metadata_of(table, version, **options))
        assert texts(found) == as_texts(list(table.at[version].values()), found.schema.names), version


# -- tables that the worker writes: with bounds ------------------------------------------------------------------------


def visit(number: int, day: int, **other: object) -> Row:
    return {
        "id": number,
        "day": date(2026, 11, day),
        "amount": float(number),
        "price": Decimal(number) - Decimal("0.25"),
        "at": datetime(2026, 11, day, 12, 0, number, 250, UTC),
        "note": f"n{number}",
        **other,
    }


@pytest.fixture(scope="module")
def visits(lake: Lake) -> Table:
    """Three commits in two partitions, then deletes of version 4."""
    table = lake.create_table("visits", COLUMNS, partition_by=["day"], properties={"write.inline.rows": "0"})
    table.append([visit(number, 1) for number in range(10)])
    table.append([visit(number, 2) for number in range(10, 20)] + [visit(20, 1, note=None, amount=-0.0)])
    table.append([visit(21, 2, amount=NAN), visit(22, 2, amount=1.0)])
    table.delete("id IN (3, 4, 12)")
    return table


@BOTH
@READERS
def test_rows_are_as_here(visits: Table, read: Read, form: int, tmp_path: Path) -> None:
    for version in range(5):
        wanted = texts(visits.to_arrow(version=version))
        metadata = metadata_of(visits, version, form=form, folder=str(tmp_path))
        assert texts(read(metadata)) == wanted, version


@pytest.mark.parametrize(
    ("condition", "ids", "files"),
    [
        ("id >= 21", [21, 22], 1),
        ("day = '2026-11-01'", [0, 1, 2, 5, 6, 7, 8, 9, 20], 2),
        ("price < 0", [0], 1),
        ("note IS NULL", [20], 1),
        ("at < '2026-11-01T12:00:01+00:00'", [0], 1),
        ("amount <= -0.0", [0, 20], 3),
    ],
)
def test_bounds_leave_out_files_that_cannot_match(visits: Table, condition: str, ids: list[int], files: int) -> None:
    static = pytest.importorskip("pyiceberg.table", reason="pyiceberg is not installed").StaticTable
    scan = static.from_metadata(metadata_of(visits)).scan(row_filter=condition)
    assert sorted(scan.to_arrow().column("id").to_pylist()) == ids
    assert len(list(scan.plan_files())) == files


def test_an_upper_bound_of_floats_is_left_out(visits: Table) -> None:
    static = pytest.importorskip("pyiceberg.table", reason="pyiceberg is not installed").StaticTable
    number = next(one.column_id for one in visits.meta.columns if one.name == "amount")
    files = [one.file for one in static.from_metadata(metadata_of(visits)).scan().plan_files()]
    assert [one.upper_bounds for one in files if number in one.upper_bounds] == []
    assert [one for one in files if number in one.lower_bounds] != []


def test_row_ids_and_sequence_numbers_are_those_of_the_table(visits: Table) -> None:
    static = pytest.importorskip("pyiceberg.table", reason="pyiceberg is not installed").StaticTable
    table = static.from_metadata(metadata_of(visits))
    snapshot = table.current_snapshot()
    entries = [
        entry
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
        if entry.data_file.content == 0
    ]
    found = {(one.data_file.record_count, one.sequence_number, one.snapshot_id) for one in entries}
    listed = [one for one in visits.view.client.list_files(visits.table_id) if one.HasField("file")]
    assert found == {(one.file.rows, one.data_version + 1, one.added_version + 1) for one in listed}
    assert (snapshot.snapshot_id, snapshot.summary["laketx.version"]) == (5, "4")


def test_tags_are_refs(visits: Table, tmp_path: Path) -> None:
    static = pytest.importorskip("pyiceberg.table", reason="pyiceberg is not installed").StaticTable
    visits.view.client.create_tag(visits.table_id, "early", version=1)
    table = static.from_metadata(metadata_of(visits, 3, folder=str(tmp_path)))
    assert sorted(one.snapshot_id for one in table.snapshots()) == [2, 4]
    assert table.scan().use_ref("early").to_arrow().num_rows == 10


# -- what is refused ---------------------------------------------------------------------------------------------------


def refusal(table: Table | LabTable, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        metadata_of(table, **options)
    return caught.value.reason


def test_what_iceberg_cannot_show_is_refused(lake: Lake, visits: Table, tmp_path: Path) -> None:
    wide = lake.create_table("wide", "id int, n int", properties={"write.inline.rows": "0"})
    wide.append([{"id": 1, "n": 2}])
    wide.view.client.alter_columns(wide.table_id, widen_column("n", "double"))
    wide.refresh()
    assert refusal(wide) == "ICEBERG_TYPE"
    metadata_of(visits, folder=str(tmp_path))
    other = lake.create_table("other", "id int")
    assert refusal(other, folder=str(tmp_path)) == "ICEBERG_FOLDER"


@READERS
def test_a_renamed_column_keeps_its_values(lake: Lake, read: Read) -> None:
    table = lake.create_table(f"renamed_{read.__name__}", "id int, n int", properties={"write.inline.rows": "0"})
    table.append([{"id": 1, "n": 2}])
    table.view.client.alter_columns(table.table_id, rename_column("n", "count"), widen_column("id", "bigint"))
    table.refresh()
    table.append([{"id": 1 << 40, "count": 3}])
    wanted = [{"id": 1, "count": 2}, {"id": 1 << 40, "count": 3}]
    metadata = metadata_of(table)
    assert sorted(read(metadata).to_pylist(), key=repr) == wanted


# -- imported files, and parts of columns ------------------------------------------------------------------------------


@BOTH
@READERS
def test_imported_files_are_read_by_name(lake: Lake, read: Read, form: int, tmp_path: Path) -> None:
    table = lake.create_table(
        f"imported{form}_{read.__name__}",
        "id bigint, shop int, note string",
        partition_by=["shop"],
        properties={"write.inline.rows": "0"},
    )
    import_file(table, tmp_path / "a.parquet", pa.table({"note": ["a", "b"], "id": [1, 2]}), shop=7)
    table.view.client.alter_columns(table.table_id, rename_column("note", "text"))
    table.refresh()
    table.append([{"id": 3, "shop": 8, "text": "c"}])
    table.delete("id = 1")
    wanted = [{"id": 2, "shop": 7, "text": "b"}, {"id": 3, "shop": 8, "text": "c"}]
    metadata = metadata_of(table, form=form)
    assert sorted(read(metadata).to_pylist(), key=repr) == wanted


def test_an_imported_file_with_ids_of_its_own_is_refused(lake: Lake, tmp_path: Path) -> None:
    table = lake.create_table("foreign", "id bigint")
    field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "9"})
    import_file(table, tmp_path / "a.parquet", pa.table({"id": [1]}, schema=pa.schema([field])))
    assert refusal(table) == "ICEBERG_NAMES"


@BOTH
def test_nested_and_odd_columns_keep_their_values(lake: Lake, form: int) -> None:
    columns = "`a b` tinyint, place struct<zip:string,tags:array<int>>, counts map<string,bigint>, raw binary"
    table = lake.create_table(f"nested{form}", columns, partition_by=["a b"], properties={"write.inline.rows": "0"})
    rows: list[Row] = [
        {"a b": 1, "place": {"zip": "1", "tags": [1, None]}, "counts": [("x", 1)], "raw": b"\0"},
        {"a b": None, "place": None, "counts": None, "raw": None},
    ]
    table.append(rows)
    table.view.client.alter_columns(table.table_id, rename_column("place.zip", "code"), rename_column("raw", "bytes"))
    rows[0]["place"] = {"code": "1", "tags": [1, None]}
    rows = [{name.replace("raw", "bytes"): value for name, value in row.items()} for row in rows]
    metadata = metadata_of(table, form=form)
    assert sorted(read_pyiceberg(metadata).to_pylist(), key=repr) == sorted(rows, key=repr)


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_prints_where_the_metadata_is(
    folder: Path, visits: Table, capfd: pytest.CaptureFixture[str]
) -> None:
    environment = {"LAKETX_FOLDER": str(folder)}
    assert command_line.run(["iceberg", "export", "visits", "--format", "2"], environment) == 0
    place = capfd.readouterr().out.strip()
    path = Path(place.removeprefix("file://"))
    assert (path.parent / "version-hint.text").read_text() == "5"
    assert json.loads(path.read_text())["format-version"] == 2
    assert texts(read_pyiceberg(place)) == texts(visits.to_arrow())
    assert command_line.run(["fsck", "visits"], environment) == 0
