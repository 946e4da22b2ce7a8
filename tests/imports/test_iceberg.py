"""Tables of Iceberg, taken in where they lie: the same rows, no file touched, and later runs that take in the rest."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform

from laketx import ConflictError, InputError, Lake, connect
from metaservice.cli import command_line
from metaservice.shared.column_types import Atomic, Field
from protos.laketx.v1 import common_pb2, transaction_pb2
from tests.arrow.tables import Reads, open_lake, texts
from tests.imports.icebergs import Icebergs, data_files
from tests.spark.histories import grow
from tests.spark.reading import LabTable
from worker.iceberg.export import export
from worker.imports import table_import
from worker.imports.iceberg_files import Entry
from worker.imports.iceberg_table import PartitionColumns, open_table, read_iceberg
from worker.imports.planning import Meter, plan_import
from worker.imports.table_import import Imported, import_table
from worker.imports.tables import known_files

NAME = "shop.orders"


@pytest.fixture
def bergs(tmp_path: Path) -> Icebergs:
    return Icebergs(tmp_path)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with connect(tmp_path / "lake") as made:
        yield made


def take_in(lake: Lake, bergs: Icebergs, name: str = "orders", **options: Any) -> Imported:
    return import_table(lake, read_iceberg(open_table(bergs.uri, f"shop.{name}", {}), Meter()), NAME, **options)


def rows_of(lake: Lake, **options: Any) -> list[str]:
    return texts(lake.table(NAME).to_arrow(**options))


def live_files(lake: Lake) -> list[common_pb2.DataFile]:
    listed = lake.client.list_files(lake.client.get_table(NAME).table_id)
    return [one.file for one in listed if one.HasField("file")]


def orders(first: int, count: int) -> pa.Table:
    ids = list(range(first, first + count))
    notes = [f"n{one}" if one % 3 else None for one in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "note": pa.array(notes, pa.string())})


# -- what comes along --------------------------------------------------------------------------------------------------


def test_all_types_are_the_same_rows(lake: Lake, bergs: Icebergs) -> None:
    inner, list_of, map_to = (
        ice.StructType(
            ice.NestedField(at, "b", ice.StringType(), required=False),
            ice.NestedField(at + 1, "a", ice.LongType(), required=True),
        )
        for at in (21, 31, 41)
    )
    schema = Schema(
        ice.NestedField(1, "flag", ice.BooleanType(), required=False),
        ice.NestedField(2, "few", ice.IntegerType(), required=True, doc="not many"),
        ice.NestedField(3, "many", ice.LongType(), required=False),
        ice.NestedField(4, "half", ice.FloatType(), required=False),
        ice.NestedField(5, "whole", ice.DoubleType(), required=False),
        ice.NestedField(6, "price", ice.DecimalType(20, 4), required=False),
        ice.NestedField(7, "day", ice.DateType(), required=False),
        ice.NestedField(8, "clock", ice.TimestampType(), required=False),
        ice.NestedField(9, "at", ice.TimestamptzType(), required=False),
        ice.NestedField(10, "note", ice.StringType(), required=False),
        ice.NestedField(11, "raw", ice.BinaryType(), required=False),
        ice.NestedField(12, "one", inner, required=False),
        ice.NestedField(13, "list", ice.ListType(14, list_of, element_required=False), required=False),
        ice.NestedField(15, "map", ice.MapType(16, ice.StringType(), 17, map_to, value_required=False), required=False),
    )
    table = bergs.create("orders", schema, properties={"owner": "ana", "comment": "all of them"})
    pair = {"b": "x", "a": 5}
    full = {
        "flag": True,
        "few": -3,
        "many": 1 << 40,
        "half": 0.5,
        "whole": float("nan"),
        "price": Decimal("-12.5000"),
        "day": date(1969, 12, 31),
        "clock": datetime(2026, 11, 1, 2, 30),  # noqa: DTZ001
        "at": datetime(1960, 1, 1, 0, 0, 1, 500, tzinfo=UTC),
        "note": "ü" * 40,
        "raw": b"\0\1",
        "one": pair,
        "list": [pair, None],
        "map": [("k", pair)],
    }
    written = pa.Table.from_pylist([full, dict.fromkeys(full) | {"few": 7}], table.schema().as_arrow())
    table.append(written)
    done = take_in(lake, bergs)
    assert (done.created, done.files_added, done.rows_added, done.version) == (True, 1, 2, 1)
    assert rows_of(lake) == texts(table.scan().to_arrow())
    meta = lake.client.get_table(NAME)
    assert [(one.name, one.nullable, one.comment) for one in meta.columns[:3]] == [
        ("flag", True, ""),
        ("few", False, "not many"),
        ("many", True, ""),
    ]
    assert meta.columns[12].type == "array<struct<b:string,a:bigint>>"
    assert (meta.comment, meta.properties["user.iceberg.owner"]) == ("all of them", "ana")
    [file] = live_files(lake)
    known = {one.column_id: one for one in file.stats}
    assert (known[2].min.integer, known[2].max.integer, known[2].nulls) == (-3, 7, 0)
    assert known[6].min.decimal == "-12.5000"
    assert known[7].max.date == -1
    assert known[10].truncated
    assert not known[5].HasField("min")
    assert lake.table(NAME).to_arrow(where="price < 0 AND note LIKE 'ü%'").num_rows == 1


def test_partitions_and_statistics_leave_files_out(lake: Lake, bergs: Icebergs) -> None:
    schema = Schema(
        ice.NestedField(1, "id", ice.LongType(), required=False),
        ice.NestedField(2, "day", ice.DateType(), required=False),
        ice.NestedField(3, "price", ice.DecimalType(10, 2), required=False),
        ice.NestedField(4, "at", ice.TimestamptzType(), required=False),
    )
    spec = PartitionSpec(
        PartitionField(2, 1001, IdentityTransform(), "the day"),
        PartitionField(3, 1002, IdentityTransform(), "price"),
        PartitionField(4, 1003, IdentityTransform(), "at"),
    )
    table = bergs.create("orders", schema, partition_spec=spec)
    moment = datetime(2026, 11, 1, tzinfo=UTC)
    found = [
        {"id": one, "day": date(2026, 11, 1 + one % 2) if one else None, "price": Decimal(one), "at": moment}
        for one in range(6)
    ]
    written = pa.Table.from_pylist(found, table.schema().as_arrow())
    table.append(written)
    take_in(lake, bergs)
    meta = lake.client.get_table(NAME)
    assert list(meta.partition_columns) == ["day", "price", "at"]
    assert rows_of(lake) == texts(written)
    assert rows_of(lake, where="day = '2026-11-02' AND id > 2") == texts(written.take([3, 5]))
    assert planned(lake, equals("price", common_pb2.Value(decimal="3"))) == 1
    assert planned(lake, equals("id", common_pb2.Value(integer=4))) == 1


def planned(lake: Lake, predicate: common_pb2.Predicate) -> int:
    plan = lake.client.plan_scan(lake.client.get_table(NAME).table_id, predicate=predicate)
    return sum(len(one.entries) for one in plan)


def test_only_values_that_are_kept_as_they_are_make_partitions() -> None:
    columns = {1: Field("id", Atomic("bigint")), 2: Field("day", Atomic("date")), 4: Field("ratio", Atomic("double"))}
    spec = PartitionSpec(
        PartitionField(1, 1000, BucketTransform(4), "some"),
        PartitionField(2, 1001, DayTransform(), "day_day"),
        PartitionField(2, 1002, IdentityTransform(), "day"),
        PartitionField(3, 1003, IdentityTransform(), "gone"),
        PartitionField(4, 1004, IdentityTransform(), "ratio"),
    )
    values = PartitionColumns(spec, columns)
    assert values.names == ["day"]
    entry = Entry({"partition": {"some": 3, "day_day": 9, "x": date(1970, 1, 3), "gone": 1, "ratio": 0.5}}, 1, 0)
    assert values.of(entry) == {"day": common_pb2.Value(date=2)}


def equals(column: str, value: common_pb2.Value) -> common_pb2.Predicate:
    compare = common_pb2.Compare(column=column, comparison=common_pb2.COMPARISON_EQUAL, value=value)
    return common_pb2.Predicate(compare=compare)


def test_a_table_without_rows(lake: Lake, bergs: Icebergs) -> None:
    bergs.create("orders", orders(0, 0).schema)
    done = take_in(lake, bergs)
    assert (done.created, done.snapshot, rows_of(lake)) == (True, "", [])
    assert not take_in(lake, bergs).changed
    bergs.load("orders").append(orders(1, 3))
    take_in(lake, bergs)
    assert rows_of(lake) == texts(orders(1, 3))


def test_a_table_of_format_1(lake: Lake, bergs: Icebergs) -> None:
    bergs.create("orders", orders(0, 0).schema, properties={"format-version": "1"}).append(orders(1, 3))
    take_in(lake, bergs)
    bergs.load("orders").append(orders(11, 3))
    bergs.load("orders").delete("id = 2")
    take_in(lake, bergs)
    assert bergs.load("orders").format_version == 1
    assert rows_of(lake) == texts(bergs.load("orders").scan().to_arrow())


@pytest.mark.parametrize("form", [2, 3])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_what_laketx_exports(tmp_path: Path, lake: Lake, form: int, seed: int) -> None:
    """Position deletes and deletion vectors of many files, files that keep row ids, partitions."""
    with open_lake(tmp_path / "other") as lab, pytest.MonkeyPatch.context() as patch:
        patch.setattr(LabTable, "inlined_each", 0)
        table = grow(lab, "t", seed, keyed=False, steps=9)
        table.refresh()
        made = export(table.view, table.meta.head_version, form=form)
        source = read_iceberg(open_table(made.metadata, "", {}), Meter())
        import_table(lake, source, NAME)
        wanted = texts(Reads(table).to_arrow())
        assert rows_of(lake) == wanted
        assert rows_of(lake, where="amount = 1.0") == texts(Reads(table).to_arrow(where="amount = 1.0"))


# -- later runs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 4))])
def test_runs_between_random_changes(lake: Lake, bergs: Icebergs, seed: int) -> None:
    chance = random.Random(seed)
    bergs.create("orders", orders(0, 0).schema)
    known: dict[int, str | None] = {}
    bytes_of: dict[str, bytes] = {}
    has_deletes = False  # pyiceberg's overwrite forgets them
    for step in range(10):
        table = bergs.load("orders")
        kind = chance.choice(["append", "append", "delete", "positions", "positions", "overwrite"][: 6 - has_deletes])
        if kind == "append" or not known:
            fresh = orders(step * 10, chance.randint(1, 8))
            table.append(fresh)
            known |= {one["id"]: one["note"] for one in fresh.to_pylist()}
        elif kind == "delete":
            gone = chance.choice(sorted(known))
            table.delete(f"id >= {gone} AND id < {gone + 3}")
            known = {one: note for one, note in known.items() if not gone <= one < gone + 3}
        elif kind == "overwrite":
            table.overwrite(orders(900 + 10 * step, 2), overwrite_filter="id < 15")
            known = {one: note for one, note in known.items() if one >= 15}
            known |= {one["id"]: one["note"] for one in orders(900 + 10 * step, 2).to_pylist()}
        else:
            wanted: dict[str, list[int]] = {}
            for path, rows in data_files(table).items():
                if places := [at for at, row in enumerate(rows) if row["id"] in known and chance.random() < 0.3]:
                    wanted[path] = places
                    known = {one: note for one, note in known.items() if one not in {rows[at]["id"] for at in places}}
            if wanted:
                bergs.hide("orders", wanted)
                has_deletes = True
        if chance.random() < 0.7:
            take_in(lake, bergs)
            assert rows_of(lake) == sorted(repr(pair) for pair in known.items())
            assert not take_in(lake, bergs).changed
            bytes_of |= {str(one): one.read_bytes() for one in bergs.folder.glob("warehouse/**/*.parquet")}
    take_in(lake, bergs)
    assert rows_of(lake) == sorted(repr(pair) for pair in known.items())
    assert rows_of(lake) == texts(bergs.load("orders").scan().to_arrow())
    assert all(Path(path).read_bytes() == held for path, held in bytes_of.items())
    assert all(one.external for one in live_files(lake))


def test_deletion_vectors_grow(lake: Lake, bergs: Icebergs) -> None:
    bergs.create("orders", orders(0, 0).schema).append(orders(1, 6))
    bergs.load("orders").append(orders(11, 6))
    first, second = sorted(data_files(bergs.load("orders")))
    take_in(lake, bergs)
    bergs.hide("orders", {first: [0, 3], second: [1]}, form=3)
    done = take_in(lake, bergs)
    assert (done.files_added, done.files_removed, done.rows_hidden) == (0, 0, 3)
    assert len(rows_of(lake)) == 9
    assert rows_of(lake, version=done.version - 1) == texts(pa.concat_tables([orders(1, 6), orders(11, 6)]))


def test_deletes_count_for_older_files_alone(lake: Lake, bergs: Icebergs) -> None:
    """A position delete that is older than the file of that name hides none of its rows."""
    bergs.create("orders", orders(0, 0).schema).append(orders(1, 3))
    source = read_iceberg(open_table(bergs.uri, NAME, {}), Meter())
    [path] = data_files(bergs.load("orders"))
    bergs.hide("orders", {path: [0], path + ".gone": [1]})
    assert [list(one.hidden) for one in read_iceberg(open_table(bergs.uri, NAME, {}), Meter()).files] == [[0]]
    assert not source.files[0].hidden


def test_a_file_whose_rows_are_all_hidden_goes(lake: Lake, bergs: Icebergs) -> None:
    bergs.create("orders", orders(0, 0).schema).append(orders(1, 3))
    take_in(lake, bergs)
    bergs.hide("orders", {path: [0, 1, 2] for path in data_files(bergs.load("orders"))})
    assert take_in(lake, bergs).files_removed == 1
    assert (rows_of(lake), live_files(lake)) == ([], [])


def test_properties_and_comments_follow(lake: Lake, bergs: Icebergs) -> None:
    table = bergs.create("orders", orders(0, 0).schema, properties={"a": "1", "b": "2", "comment": "old"})
    table.append(orders(1, 3))
    take_in(lake, bergs)
    with bergs.load("orders").transaction() as change:
        change.set_properties({"a": "3", "comment": "new"})
        change.remove_properties("b")
    done = take_in(lake, bergs)
    meta = lake.client.get_table(NAME)
    assert (done.changed, meta.comment, meta.properties["user.iceberg.a"]) == (True, "new", "3")
    assert "user.iceberg.b" not in meta.properties


# -- columns that change -----------------------------------------------------------------------------------------------


def evolve(bergs: Icebergs) -> None:
    with bergs.load("orders").update_schema() as change:
        change.rename_column("note", "remark")
        change.add_column("day", ice.DateType(), doc="of the order")
    bergs.load("orders").append(
        pa.table({"id": pa.array([11], pa.int64()), "remark": ["r"], "day": [date(2026, 11, 1)]})
    )
    with bergs.load("orders").update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("day")
    with bergs.load("orders").update_schema() as change:
        change.add_column("note", ice.IntegerType())  # the first files have another column of that name
        change.rename_column("id", "number")
        change.move_first("remark")
    bergs.load("orders").append(pa.table({"remark": ["s"], "number": [12], "note": pa.array([4], pa.int32())}))
    with bergs.load("orders").update_schema() as change:
        change.update_column("note", ice.LongType())


@pytest.mark.parametrize("is_first", [True, False])
def test_renamed_dropped_and_widened_columns(lake: Lake, bergs: Icebergs, is_first: bool) -> None:
    """Each file is read under the names that it was written with."""
    bergs.create("orders", orders(0, 0).schema).append(orders(1, 3))
    if not is_first:
        take_in(lake, bergs)
    evolve(bergs)
    take_in(lake, bergs)
    shown = bergs.load("orders").scan().to_arrow()
    found = lake.table(NAME).to_arrow()
    assert found.schema.names == shown.schema.names == ["remark", "number", "note"]
    assert texts(found) == texts(shown)
    assert rows_of(lake, where="note IS NULL") == texts(shown.filter(shown["note"].is_null()))
    bergs.load("orders").append(pa.table({"remark": ["t"], "number": [13], "note": pa.array([5], pa.int64())}))
    bergs.load("orders").delete("number = 1")
    take_in(lake, bergs)
    assert rows_of(lake) == texts(bergs.load("orders").scan().to_arrow())


def test_names_change_places(lake: Lake, bergs: Icebergs) -> None:
    bergs.create("orders", orders(0, 0).schema).append(orders(1, 3))
    take_in(lake, bergs)
    with bergs.load("orders").update_schema() as change:
        change.rename_column("id", "between")
    with bergs.load("orders").update_schema() as change:
        change.rename_column("note", "id")
    with bergs.load("orders").update_schema() as change:
        change.rename_column("between", "note")
    bergs.load("orders").append(pa.table({"note": [7], "id": ["seven"]}))
    take_in(lake, bergs)
    assert rows_of(lake) == texts(bergs.load("orders").scan().to_arrow())


def test_fields_of_structs_come_and_go(lake: Lake, bergs: Icebergs) -> None:
    kind = pa.struct([("x", pa.int32()), ("y", pa.string())])
    one = pa.table({"id": pa.array([1]), "at": pa.array([{"x": 1, "y": "a"}], kind)})
    bergs.create("orders", one.schema).append(one)
    take_in(lake, bergs)
    with bergs.load("orders").update_schema(allow_incompatible_changes=True) as change:
        change.add_column(("at", "z"), ice.DoubleType())
        change.update_column(("at", "x"), ice.LongType())
        change.delete_column(("at", "y"))
    now = pa.struct([("x", pa.int64()), ("z", pa.float64())])
    bergs.load("orders").append(pa.table({"id": pa.array([2]), "at": pa.array([{"x": 2, "z": 0.5}], now)}))
    take_in(lake, bergs)
    assert rows_of(lake) == texts(bergs.load("orders").scan().to_arrow())


def test_a_renamed_field_of_a_struct_is_refused(lake: Lake, bergs: Icebergs) -> None:
    one = pa.table({"id": pa.array([1]), "at": pa.array([{"x": 1}])})
    bergs.create("orders", one.schema).append(one)
    with bergs.load("orders").update_schema() as change:
        change.rename_column(("at", "x"), "z")
    with pytest.raises(InputError, match=r"IMPORT_SCHEMA: the field"):
        take_in(lake, bergs)


ODD = Schema(
    ice.NestedField(1, "id", ice.LongType()),
    ice.NestedField(2, "unit price", ice.LongType()),
    ice.NestedField(3, "a.b", ice.StringType()),
    ice.NestedField(4, "the day", ice.StringType()),
)


def odd_rows(table: Any, *rows: tuple[Any, ...]) -> pa.Table:
    names = [field.name for field in table.schema().as_arrow()]
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=table.schema().as_arrow())


@pytest.mark.parametrize("is_first", [True, False])
def test_names_that_are_others_in_files(lake: Lake, bergs: Icebergs, is_first: bool) -> None:
    """Iceberg's libraries change names that Avro doesn't allow, such as `unit price`."""
    spec = PartitionSpec(PartitionField(4, 1000, IdentityTransform(), "the day"))
    table = bergs.create("orders", ODD, partition_spec=spec)
    table.append(odd_rows(table, (1, 5, "x", "mon"), (2, None, "y", None)))
    assert "unit_x20price" in {name for rows in data_files(table).values() for row in rows for name in row}
    if not is_first:
        take_in(lake, bergs)
        assert rows_of(lake) == texts(table.scan().to_arrow())
    with bergs.load("orders").update_schema() as change:
        change.rename_column("a.b", "c d")
        change.add_column("e f", ice.IntegerType())
    table = bergs.load("orders")
    table.append(odd_rows(table, (3, 7, "z", "mon", 9)))
    take_in(lake, bergs)
    found = lake.table(NAME).to_arrow()
    assert found.schema.names == ["id", "unit price", "c d", "the day", "e f"]
    assert texts(found) == texts(bergs.load("orders").scan().to_arrow())
    for where, wanted in [("`unit price` = 7", [3]), ("`c d` = 'x'", [1]), ("`the day` IS NULL", [2])]:
        assert lake.table(NAME).to_arrow(where=where)["id"].to_pylist() == wanted
    assert not take_in(lake, bergs).changed


def test_a_field_of_a_struct_that_has_another_name_in_a_file_is_refused(lake: Lake, bergs: Icebergs) -> None:
    one = pa.table({"id": pa.array([1]), "at": pa.array([{"post code": 1}])})
    bergs.create("orders", one.schema).append(one)
    with pytest.raises(InputError, match=r"IMPORT_SCHEMA: the field post code of a struct is post_x20code"):
        take_in(lake, bergs)


def test_a_partitioning_that_changed(lake: Lake, bergs: Icebergs) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "note"))
    schema = Schema(
        ice.NestedField(1, "id", ice.LongType(), required=False),
        ice.NestedField(2, "note", ice.StringType(), required=False),
    )
    bergs.create("orders", schema, partition_spec=spec).append(orders(1, 3))
    take_in(lake, bergs)
    with bergs.load("orders").update_spec() as change:
        change.remove_field("note")
    bergs.load("orders").append(orders(11, 3))
    with pytest.raises(InputError, match=r"IMPORT_SCHEMA: shop.orders is partitioned by note"):
        take_in(lake, bergs)
    done = import_table(lake, read_iceberg(open_table(bergs.uri, NAME, {}), Meter()), "shop.anew")
    assert (done.created, lake.table("shop.anew").to_arrow().num_rows) == (True, 6)
    assert not lake.client.get_table("shop.anew").partition_columns


# -- others, and runs that were cut off --------------------------------------------------------------------------------


def test_a_table_that_was_changed_here_is_refused(lake: Lake, bergs: Icebergs) -> None:
    bergs.create("orders", orders(0, 0).schema).append(orders(1, 3))
    done = take_in(lake, bergs)
    lake.table(NAME).append([{"id": 99, "note": "mine"}])
    with pytest.raises(
        InputError,
        match=r"IMPORT_CHANGED: shop.orders was changed here since the last import, first by INSERT at version 2",
    ):
        take_in(lake, bergs)
    restored(lake, done.version)
    bergs.load("orders").append(orders(11, 2))
    take_in(lake, bergs)
    assert rows_of(lake) == texts(pa.concat_tables([orders(1, 3), orders(11, 2)]))


def restored(lake: Lake, version: int) -> None:
    table = lake.client.get_table(NAME)
    intent = transaction_pb2.TableIntent(table_id=table.table_id, operation=common_pb2.OPERATION_RESTORE)
    with lake.client.begin([intent]) as txn:
        scope = common_pb2.Scope(all=True)
        txn.commit([common_pb2.Change(table_id=table.table_id, scope=scope, restore_version=version)])


def test_names_of_others_are_refused(lake: Lake, bergs: Icebergs) -> None:
    bergs.create("orders", orders(0, 0).schema).append(orders(1, 3))
    bergs.create("others", orders(0, 0).schema).append(orders(1, 3))
    take_in(lake, bergs)
    with pytest.raises(InputError, match=r"IMPORT_NAME_TAKEN: shop.orders is an import of the table"):
        take_in(lake, bergs, "others")
    lake.create_table("shop.mine", "id bigint")
    source = read_iceberg(open_table(bergs.uri, NAME, {}), Meter())
    with pytest.raises(InputError, match=r"IMPORT_NAME_TAKEN: shop.mine is there"):
        import_table(lake, source, "shop.mine")


def test_manifests_that_are_broken_are_refused(lake: Lake, bergs: Icebergs) -> None:
    bergs.create("orders", orders(0, 0).schema).append(orders(1, 3))
    snapshot = bergs.load("orders").current_snapshot()
    assert snapshot is not None
    listed = Path(snapshot.manifest_list.removeprefix("file://"))
    [manifest] = [
        Path(one.manifest_path.removeprefix("file://")) for one in snapshot.manifests(bergs.load("orders").io)
    ]
    for broken, said in ((manifest, "no manifest"), (listed, "no list of manifests")):
        broken.write_bytes(broken.read_bytes()[:-20])
        with pytest.raises(InputError, match=f"FILE_UNREADABLE: .* is {said}"):
            take_in(lake, bergs)


def test_rows_that_are_back_are_refused(lake: Lake, bergs: Icebergs) -> None:
    bergs.create("orders", orders(0, 0).schema).append(orders(1, 3))
    before = bergs.load("orders").metadata_location
    bergs.hide("orders", {path: [0] for path in data_files(bergs.load("orders"))})
    take_in(lake, bergs)
    with pytest.raises(InputError, match=r"IMPORT_REWOUND: 1 rows of .* that were deleted are back"):
        import_table(lake, read_iceberg(open_table(before, "", {}), Meter()), NAME)


def test_a_run_that_is_cut_off_is_made_good(lake: Lake, bergs: Icebergs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its two commits: a new table is not there, one that is known gets the rest with the next run."""
    bergs.create("orders", orders(0, 0).schema).append(orders(1, 3))
    bergs.hide("orders", {path: [0] for path in data_files(bergs.load("orders"))})

    class CutOffError(Exception):
        pass

    def cut_off(*_: Any) -> Any:
        raise CutOffError

    with monkeypatch.context() as patch:
        patch.setattr(table_import, "known_files", cut_off)
        with pytest.raises(CutOffError):
            take_in(lake, bergs)
    assert list(lake) == []
    assert take_in(lake, bergs).rows_hidden == 1
    bergs.load("orders").append(orders(11, 3))
    fresh = [path for path, rows in data_files(bergs.load("orders")).items() if rows[0]["id"] == 11]
    bergs.hide("orders", {fresh[0]: [1, 2]})
    calls = iter([True, False])
    with monkeypatch.context() as patch:
        patch.setattr(table_import, "known_files", lambda *given: known_files(*given) if next(calls) else cut_off())
        with pytest.raises(CutOffError):
            take_in(lake, bergs)
    assert len(rows_of(lake)) == 5
    assert take_in(lake, bergs).rows_hidden == 2
    assert rows_of(lake) == texts(bergs.load("orders").scan().to_arrow())


def test_one_of_two_runs_at_once_loses(lake: Lake, bergs: Icebergs, monkeypatch: pytest.MonkeyPatch) -> None:
    bergs.create("orders", orders(0, 0).schema).append(orders(1, 3))
    take_in(lake, bergs)
    bergs.load("orders").append(orders(11, 3))

    def in_between(*given: Any) -> Any:
        found = plan_import(*given)
        monkeypatch.setattr(table_import, "plan_import", plan_import)
        take_in(lake, bergs)
        return found

    monkeypatch.setattr(table_import, "plan_import", in_between)
    with pytest.raises(ConflictError, match="CONCURRENT"):
        take_in(lake, bergs)
    assert rows_of(lake) == texts(pa.concat_tables([orders(1, 3), orders(11, 3)]))
    assert not take_in(lake, bergs).changed


def test_a_dry_run_does_nothing(lake: Lake, bergs: Icebergs) -> None:
    bergs.create("orders", orders(0, 0).schema).append(orders(1, 3))
    done = take_in(lake, bergs, dry_run=True)
    assert (done.created, done.rows_added, list(lake)) == (True, 3, [])
    take_in(lake, bergs)
    bergs.load("orders").append(orders(11, 3))
    assert take_in(lake, bergs, dry_run=True).rows_added == 3
    assert len(rows_of(lake)) == 3


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_deletes_by_values_are_refused(lake: Lake, bergs: Icebergs) -> None:
    bergs.create("orders", orders(0, 0).schema).append(orders(1, 3))
    bergs.hide("orders", {path: [0] for path in data_files(bergs.load("orders"))}, content=2)
    with pytest.raises(InputError, match=r"IMPORT_FEATURE: .* deletes rows by their values"):
        take_in(lake, bergs)
    assert list(lake) == []


@pytest.mark.parametrize("kind", [ice.TimeType(), ice.UUIDType(), ice.FixedType(4)])
def test_types_that_tables_lack_are_refused(lake: Lake, bergs: Icebergs, kind: ice.IcebergType) -> None:
    field = ice.NestedField(1, "odd", ice.ListType(2, kind, element_required=False), required=False)
    bergs.create("orders", Schema(field))
    with pytest.raises(InputError, match=f"TYPE_NOT_SUPPORTED: odd.element is of Iceberg's type {str(kind)[:4]}"):
        take_in(lake, bergs)


def test_a_source_that_is_not_there(lake: Lake, bergs: Icebergs) -> None:
    with pytest.raises(InputError, match=r"IMPORT_SOURCE: .* has no table shop.nothing"):
        open_table(bergs.uri, "shop.nothing", {})
    with pytest.raises(InputError, match=r"IMPORT_SOURCE"):
        open_table(str(bergs.folder / "none.metadata.json"), "", {})


def test_a_table_of_the_lake_itself_is_refused(tmp_path: Path, lake: Lake) -> None:
    table = lake.create_table("shop.mine", "id bigint")
    table.append([{"id": one} for one in range(2_000)])
    made = export(table.refresh().view, 1, folder=str(tmp_path / "shown"))
    with pytest.raises(InputError, match="PATH_IN_LAKE"):
        import_table(lake, read_iceberg(open_table(made.metadata, "", {}), Meter()), "shop.again")


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command(tmp_path: Path, bergs: Icebergs, capsys: pytest.CaptureFixture[str]) -> None:
    bergs.create("orders", orders(0, 0).schema).append(orders(1, 3))
    environment = {"LAKETX_FOLDER": str(tmp_path / "lake"), "LAKETX_USER": "ana", "LAKETX_PROGRESS": "off"}

    def run(*words: str) -> tuple[int, str]:
        code = command_line.run(["import", "iceberg", bergs.uri, NAME, *words], environment)
        shown = capsys.readouterr()
        return code, shown.out + shown.err

    (tmp_path / "lake").mkdir()
    code, said = run("--dry-run")
    assert (code, "would create table shop.orders: 1 files with 3 rows added" in said) == (0, True)
    code, said = run()
    assert (code, "version 1: 1 files with 3 rows added, 0 removed, 0 rows hidden" in said) == (0, True)
    code, said = run("-o", "json", "-m", "nightly")
    assert (code, json.loads(said)["changed"], json.loads(said)["version"]) == (0, False, 1)
    code, said = run("--as", "old.orders", "--option", "echo=false")
    assert (code, "into old.orders, version" in said) == (0, True)
    bergs.hide("orders", {path: [0] for path in data_files(bergs.load("orders"))}, content=2)
    code, said = run()
    assert (code, "IMPORT_FEATURE" in said) == (1, True)
    metadata = bergs.load("orders").metadata_location
    assert command_line.run(["import", "iceberg", metadata, "shop.third"], environment) == 1
    with connect(tmp_path / "lake") as lake:
        assert sorted(lake) == ["old.orders", NAME]
        assert lake.table("old.orders").to_arrow().num_rows == 3


def test_a_path_is_still_one_of_parquet_files(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["import", "/a", "--help"], ["import", "parquet", "--help"]):
        assert command_line.run(words, {}) == 0
        assert "laketx import parquet [OPTIONS] PATH TABLE" in capsys.readouterr().out
    assert command_line.run(["import", "--help"], {}) == 0
    assert "iceberg" in capsys.readouterr().out
