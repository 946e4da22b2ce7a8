"""Tables of Delta Lake, taken in where they lie: written by deltalake, and by hand where it can't."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from laketx import InputError, Lake, connect
from metaservice.cli import command_line
from protos.laketx.v1 import common_pb2
from tests.arrow.tables import texts
from tests.imports.deltas import add_file, column, commit, hide, live_adds, metadata, protocol
from worker.files.deletion_vectors import read_bitmap
from worker.imports.delta_log import newest_checkpoint
from worker.imports.delta_table import read_delta
from worker.imports.delta_values import vector_file, z85_bytes
from worker.imports.planning import Meter
from worker.imports.table_import import Imported, import_table

NAME = "shop.orders"
FORMS = pytest.mark.parametrize("form", ["i", "u", "p"])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "a table" / "orders"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with connect(tmp_path / "lake") as made:
        yield made


def take_in(lake: Lake, source: Path, **options: Any) -> Imported:
    return import_table(lake, read_delta(str(source), Meter()), NAME, **options)


def rows_of(lake: Lake, **options: Any) -> list[str]:
    return texts(lake.table(NAME).to_arrow(**options))


def shown(source: Path) -> list[str]:
    return texts(pa.table(DeltaTable(str(source)).to_pyarrow_table()))


def orders(first: int, count: int, day: int = 1) -> pa.Table:
    ids = list(range(first, first + count))
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "note": pa.array([f"n{one}" if one % 3 else None for one in ids], pa.string()),
            "day": pa.array([date(2026, 11, day)] * count),
        }
    )


def test_all_types_are_the_same_rows(lake: Lake, source: Path) -> None:
    inner = pa.struct([("b", pa.string()), ("a", pa.int64())])
    schema = pa.schema(
        [
            ("flag", pa.bool_()),
            ("tiny", pa.int8()),
            ("small", pa.int16()),
            ("few", pa.int32()),
            ("many", pa.int64()),
            ("half", pa.float32()),
            ("whole", pa.float64()),
            ("price", pa.decimal128(20, 4)),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("note", pa.string()),
            ("raw", pa.binary()),
            ("one", inner),
            ("list", pa.list_(inner)),
            ("map", pa.map_(pa.string(), inner)),
        ]
    )
    pair = {"b": "x", "a": 5}
    full = {
        "flag": True,
        "tiny": -1,
        "small": 300,
        "few": -3,
        "many": 1 << 40,
        "half": 0.5,
        "whole": float("nan"),
        "price": Decimal("-12.5000"),
        "day": date(1969, 12, 31),
        "at": datetime(2026, 1, 1, 0, 0, 1, 999_999, tzinfo=UTC),
        "note": "ü" * 40,
        "raw": b"\0\1",
        "one": pair,
        "list": [pair, None],
        "map": [("k", pair)],
    }
    written = pa.Table.from_pylist([full, dict.fromkeys(full)], schema)
    write_deltalake(
        str(source), written, name="orders", description="all of them", configuration={"delta.appendOnly": "false"}
    )
    done = take_in(lake, source)
    assert (done.created, done.files_added, done.rows_added, done.snapshot) == (True, 1, 2, "0")
    assert rows_of(lake) == shown(source) == texts(written)
    meta = lake.client.get_table(NAME)
    assert [one.type for one in meta.columns] == [
        "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(20,4)", "date", "timestamp",
        "string", "binary", "struct<b:string,a:bigint>", "array<struct<b:string,a:bigint>>",
        "map<string,struct<b:string,a:bigint>>",
    ]  # fmt: skip
    assert (meta.comment, meta.properties["user.delta.delta.appendOnly"]) == ("all of them", "false")
    [file] = [one.file for one in lake.client.list_files(meta.table_id)]
    stats = {one.column_id: one for one in file.stats}
    assert (stats[4].min.integer, stats[4].max.integer, stats[4].nulls) == (-3, -3, 1)
    assert (stats[8].min.decimal, stats[9].min.date) == ("-12.5000", -1)
    assert stats[10].max.timestamp_us >= 1_767_225_601_999_999
    assert not stats[7].HasField("max")
    assert lake.table(NAME).to_arrow(where="at > '2026-01-01 00:00:01.9999Z' AND price < 0").num_rows == 1


def test_values_of_partitions_come_from_the_log(lake: Lake, source: Path) -> None:
    """The files lack these columns, and their names are encoded."""
    written = pa.table(
        {
            "id": pa.array(range(5), pa.int64()),
            "name": ["a b", "c/d", "é%20", None, "x=y"],
            "day": [date(2026, 11, 1), None, date(2026, 11, 2), date(2026, 11, 2), date(2026, 11, 1)],
            "at": pa.array([datetime(2026, 11, 1, 2, 3, 4, 5, tzinfo=UTC)] * 5, pa.timestamp("us", "UTC")),
            "price": pa.array([Decimal("1.50")] * 5, pa.decimal128(10, 2)),
            "flag": [True, False, None, True, False],
        }
    )
    write_deltalake(str(source), written, partition_by=["name", "day", "at", "price", "flag"])
    take_in(lake, source)
    meta = lake.client.get_table(NAME)
    assert list(meta.partition_columns) == ["name", "day", "at", "price", "flag"]
    assert rows_of(lake) == texts(written)
    assert rows_of(lake, where="day = '2026-11-02' AND name IS NULL") == texts(written.take([3]))
    compare = common_pb2.Compare(
        column="name", comparison=common_pb2.COMPARISON_EQUAL, value=common_pb2.Value(text="c/d")
    )
    plan = lake.client.plan_scan(meta.table_id, predicate=common_pb2.Predicate(compare=compare))
    assert sum(len(one.entries) for one in plan) == 1


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 4))])
def test_runs_between_random_changes(lake: Lake, source: Path, seed: int) -> None:
    chance = random.Random(seed)
    write_deltalake(str(source), orders(0, 3), partition_by=["day"])
    held: dict[Path, bytes] = {}
    for step in range(1, 11):
        table = DeltaTable(str(source))
        kind = chance.choice(["append", "append", "append", "delete", "update", "optimize", "checkpoint", "overwrite"])
        if kind == "append":
            write_deltalake(str(source), orders(step * 10, chance.randint(1, 9), chance.randint(1, 3)), mode="append")
        elif kind == "delete":
            table.delete(f"id % 4 = {chance.randint(0, 3)}")
        elif kind == "update":
            table.update(new_values={"note": f"u{step}"}, predicate=f"id % 5 = {chance.randint(0, 4)}")
        elif kind == "optimize":
            table.optimize.compact()
        elif kind == "checkpoint":
            table.create_checkpoint()
        elif chance.random() < 0.5:
            write_deltalake(str(source), orders(step * 10, 2, 2), mode="overwrite", predicate="day = '2026-11-02'")
        if chance.random() < 0.6:
            take_in(lake, source)
            assert rows_of(lake) == shown(source)
            assert not take_in(lake, source).changed
        held |= {one: one.read_bytes() for one in source.glob("**/*.parquet")}
    take_in(lake, source)
    assert rows_of(lake) == shown(source)
    assert all(path.read_bytes() == content for path, content in held.items())


@FORMS
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_deletion_vectors_between_runs(lake: Lake, source: Path, form: str, seed: int) -> None:
    """deltalake refuses such tables: what must be shown is in a dict."""
    chance = random.Random(seed)
    first = orders(0, 6)
    write_deltalake(str(source), first.drop_columns("day"))
    rows = {0: first.drop_columns("day").to_pylist()}
    files: dict[str, list[dict[str, Any]]] = dict(zip(live_adds(source), rows.values(), strict=True))
    gone: dict[str, set[int]] = {path: set() for path in files}
    for step in range(1, 7):
        if chance.random() < 0.5:
            fresh = orders(step * 10, chance.randint(2, 5)).drop_columns("day")
            action = add_file(source, fresh)
            commit(source, action)
            files[action["add"]["path"]], gone[action["add"]["path"]] = fresh.to_pylist(), set()
        else:
            path = chance.choice(sorted(files))
            gone[path].update(at for at in range(len(files[path])) if chance.random() < 0.4)
            if gone[path]:
                hide(source, {path: sorted(gone[path])}, form)
        if chance.random() < 0.6:
            take_in(lake, source)
            assert rows_of(lake) == expected(files, gone)
            assert not take_in(lake, source).changed
    take_in(lake, source)
    assert rows_of(lake) == expected(files, gone)


def expected(files: dict[str, list[dict[str, Any]]], gone: dict[str, set[int]]) -> list[str]:
    return sorted(
        repr(tuple(row.values())) for path, rows in files.items() for at, row in enumerate(rows) if at not in gone[path]
    )


def test_files_without_statistics(lake: Lake, source: Path) -> None:
    """Their footers tell the rows; floats and dates of a hand-written log are read like any."""
    action = add_file(source, pa.table({"id": pa.array([1, 2], pa.int64())}))
    del action["add"]["stats"]
    commit(source, protocol(), metadata([column("id", "long"), column("later", "integer")]), action)
    assert take_in(lake, source).rows_added == 2
    assert rows_of(lake) == ["(1, None)", "(2, None)"]


def test_columns_come(lake: Lake, source: Path) -> None:
    write_deltalake(str(source), orders(1, 3))
    take_in(lake, source)
    more = orders(11, 2).append_column("price", pa.array([0.5, None]))
    write_deltalake(str(source), more, mode="append", schema_mode="merge")
    take_in(lake, source)
    assert lake.table(NAME).to_arrow().schema.names == ["id", "note", "day", "price"]
    assert rows_of(lake) == shown(source)
    write_deltalake(str(source), orders(20, 2).select(["note", "id"]), mode="overwrite", schema_mode="overwrite")
    take_in(lake, source)
    assert rows_of(lake) == shown(source)
    assert lake.table(NAME).to_arrow().schema.names == ["note", "id"]


def test_columns_with_other_names_in_files(lake: Lake, source: Path) -> None:
    mapping = {"delta.columnMapping.mode": "name"}
    first = add_file(source, pa.table({"col-1": pa.array([1, 2], pa.int64()), "col-2": ["a", "b"]}))
    schema = [column("id", "long", "col-1", 1), column("note", "string", "col-2", 2)]
    commit(source, protocol("columnMapping"), metadata(schema, **mapping), first)
    take_in(lake, source)
    assert rows_of(lake) == ["(1, 'a')", "(2, 'b')"]
    schema = [column("note", "long", "col-1", 1), column("remark", "string", "col-2", 2)]
    commit(source, metadata(schema, **mapping))
    take_in(lake, source)
    assert lake.table(NAME).to_arrow().to_pylist() == [{"note": 1, "remark": "a"}, {"note": 2, "remark": "b"}]
    schema = [column("note", "long", "col-1", 1), column("more", "integer", "col-3", 3)]
    added = add_file(source, pa.table({"col-1": pa.array([3], pa.int64()), "col-3": pa.array([7], pa.int32())}))
    commit(source, metadata(schema, **mapping), added)
    take_in(lake, source)
    assert rows_of(lake) == ["(1, None)", "(2, None)", "(3, 7)"]
    assert rows_of(lake, where="more = 7") == ["(3, 7)"]


def test_a_table_that_gets_column_mapping_later(lake: Lake, source: Path) -> None:
    """Its columns keep the names that they had as those in files."""
    plain = add_file(source, pa.table({"id": pa.array([1], pa.int64()), "note": ["a"]}))
    commit(source, protocol(), metadata([column("id", "long"), column("note", "string")]), plain)
    take_in(lake, source)
    schema = [column("number", "long", "id", 1), column("id", "string", "note", 2)]
    later = add_file(source, pa.table({"id": pa.array([2], pa.int64()), "note": ["b"]}))
    commit(source, protocol("columnMapping"), metadata(schema, **{"delta.columnMapping.mode": "name"}), later)
    take_in(lake, source)
    assert lake.table(NAME).to_arrow().schema.names == ["number", "id"]
    assert rows_of(lake) == ["(1, 'a')", "(2, 'b')"]


def test_checkpoints_of_every_kind(lake: Lake, source: Path) -> None:
    write_deltalake(str(source), orders(0, 3), partition_by=["day"])
    for step in range(1, 4):
        write_deltalake(str(source), orders(step * 10, 2, step), mode="append")
    wanted = shown(source)
    table = DeltaTable(str(source))
    table.create_checkpoint()
    log = source / "_delta_log"
    [whole] = log.glob("*.checkpoint.parquet")
    rows = pq.read_table(whole)
    for one in log.glob("*.json"):
        one.unlink()
    assert texts_of(source) == wanted
    whole.unlink()
    prefix = whole.name[:20]
    half = len(rows) // 2
    pq.write_table(rows.slice(0, half), log / f"{prefix}.checkpoint.{1:010}.{2:010}.parquet")
    with pytest.raises(InputError, match="IMPORT_SOURCE"):
        read_delta(str(source), Meter())
    pq.write_table(rows.slice(half), log / f"{prefix}.checkpoint.{2:010}.{2:010}.parquet")
    assert texts_of(source) == wanted
    for one in log.glob("*.parquet"):
        one.unlink()
    (log / "_sidecars").mkdir()
    pq.write_table(rows, log / "_sidecars" / "one.parquet")
    sidecar = {"sidecar": {"path": "one.parquet", "sizeInBytes": 1, "modificationTime": 0}}
    heads = rows.select(["protocol", "metaData"]).to_pylist(maps_as_pydicts="strict")
    named = [{key: value for key, value in one.items() if value is not None} for one in heads]
    (log / f"{prefix}.checkpoint.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json").write_text(
        "\n".join(json.dumps(one) for one in [*filter(None, named), sidecar])
    )
    assert texts_of(source) == wanted
    take_in(lake, source)
    assert rows_of(lake) == wanted


def texts_of(source: Path) -> list[str]:
    """The rows of the files that the log names."""
    found = []
    for one in read_delta(str(source), Meter()).files:
        for row in pq.read_table(one.path, partitioning=None).to_pylist():
            values = {**row, "day": date.fromordinal(one.partition["day"].date + date(1970, 1, 1).toordinal())}
            found.append(repr(tuple(values.values())))
    return sorted(found)


def test_vectors_that_others_wrote() -> None:
    """An encoded path of the specification, and a vector in a log."""
    assert vector_file("ab^-aqEH.-t@S}K{vb[*k^") == "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    inline = z85_bytes("^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L")
    assert list(read_bitmap(inline, "the log")) == [3, 4, 7, 11, 18, 29]


def test_the_newest_checkpoint() -> None:
    names = ["00000000000000000003.checkpoint.parquet", "00000000000000000005.checkpoint.0000000001.0000000002.parquet"]
    assert newest_checkpoint(names) == (3, names[:1])
    both = [*names, "00000000000000000005.checkpoint.0000000002.0000000002.parquet"]
    assert newest_checkpoint(both) == (5, both[1:])
    assert newest_checkpoint(["00000000000000000003.json"]) == (-1, [])


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actions", "reason"),
    [
        ([protocol("variantType"), metadata([column("id", "long")])], "IMPORT_FEATURE: .* variantType"),
        ([{"protocol": {"minReaderVersion": 9}}, metadata([column("id", "long")])], "IMPORT_FEATURE: .* version 9"),
        ([protocol(), metadata([column("id", "interval day")])], "TYPE_NOT_SUPPORTED: id is of Delta's type"),
        (
            [protocol(), metadata([column("s", {"type": "struct", "fields": [column("a", "long", "b", 2)]}, "s", 1)])],
            "IMPORT_SCHEMA: the field s.a",
        ),
        ([metadata([column("id", "long")])], "IMPORT_SOURCE: the log of"),
    ],
)
def test_what_is_refused(lake: Lake, source: Path, actions: list[Any], reason: str) -> None:
    commit(source, *actions)
    with pytest.raises(InputError, match=reason):
        take_in(lake, source)
    assert list(lake) == []


def test_a_log_with_a_gap_is_refused(lake: Lake, source: Path) -> None:
    for step in range(3):
        write_deltalake(str(source), orders(step, 1), mode="append")
    (source / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(InputError, match=r"IMPORT_SOURCE: the log of .* lacks commits after version -1"):
        take_in(lake, source)
    with pytest.raises(InputError, match=r"IMPORT_SOURCE: .* is no Delta table"):
        read_delta(str(source.parent), Meter())


@FORMS
def test_a_broken_vector_is_refused(lake: Lake, source: Path, form: str) -> None:
    write_deltalake(str(source), orders(0, 6))
    hide(source, {path: [1] for path in live_adds(source)}, form)
    newest = max((source / "_delta_log").glob("*.json"))
    if form == "i":
        newest.write_text(newest.read_text().replace('"pathOrInlineDv": "', '"pathOrInlineDv": "00000'))
    else:
        [vectors] = source.glob("**/deletion_vector_*.bin")
        content = bytearray(vectors.read_bytes())
        content[-1] ^= 1
        vectors.write_bytes(content)
    with pytest.raises(InputError, match="FILE_UNREADABLE"):
        take_in(lake, source)


def test_the_command(tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_deltalake(str(source), orders(1, 3))
    (tmp_path / "lake").mkdir()
    environment = {"LAKETX_FOLDER": str(tmp_path / "lake"), "LAKETX_USER": "ana", "LAKETX_PROGRESS": "off"}

    def run(*words: str) -> tuple[int, str]:
        code = command_line.run(["import", "delta", str(source), *words], environment)
        shown = capsys.readouterr()
        return code, shown.out + shown.err

    assert run("--dry-run")[0] == 0
    code, said = run()
    assert (code, "imported snapshot 0 into orders, version 1: 1 files with 3 rows added" in said) == (0, True)
    write_deltalake(str(source), orders(11, 2), mode="append")
    code, said = run("-o", "json")
    assert (code, json.loads(said)["rows_added"], json.loads(said)["table"]) == (0, 2, "orders")
    code, said = run("--as", NAME)
    assert (code, "imported snapshot 1 into shop.orders" in said) == (0, True)


def test_paths_are_decoded_once(source: Path) -> None:
    write_deltalake(str(source), pa.table({"id": [1], "name": ["a%2Fb c"]}), partition_by=["name"])
    [one] = read_delta(str(source), Meter()).files
    [path] = live_adds(source)
    assert one.path == str(source.resolve() / unquote(path))
    assert Path(one.path).is_file()
