"""Writes without Spark, against a dict; what they refuse, and that nothing is left behind."""

from __future__ import annotations

import random
import resource
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laketx import ConflictError, InputError, Lake, Table, connect
from metaservice.client import add_column, default_column
from worker.commit.conflict_policies import OnConflict

NAN = float("nan")
DAYS = [date(2026, 11, 1), date(2026, 11, 2), None]
COLUMNS = "id bigint, day date, amount double, note string"
ARROW = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("amount", pa.float64()), ("note", pa.string())])
Row = dict[str, Any]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("writes")) as made:
        yield made


# -- any order of writes -----------------------------------------------------------------------------------------------


def some_row(chance: random.Random) -> Row:
    return {
        "id": chance.randint(0, 12),
        "day": chance.choice(DAYS),
        "amount": chance.choice([0.0, -1.5, NAN, None]),
        "note": chance.choice(["", "ünï", None]),
    }


def given(rows: list[Row], chance: random.Random) -> Any:
    """The rows in one of the forms that people have."""
    table = pa.Table.from_pylist(rows, ARROW)
    match chance.choice(["dicts", "arrow", "polars", "stream"]):
        case "dicts":
            return rows or table
        case "polars":
            return pl.from_arrow(table)
        case "stream":
            return table.to_reader(max_chunksize=2)
        case _:
            return table


@pytest.mark.parametrize("seed", range(6))
def test_append_tables_hold_what_was_written(lake: Lake, seed: int) -> None:
    chance = random.Random(seed)
    table = lake.create_table(f"a{seed}", COLUMNS, partition_by=["day"] if seed % 2 else [])
    rows: list[Row] = []
    states = [list(rows)]
    for _ in range(8):
        match chance.choice(["append", "append", "delete", "overwrite", "partition"]):
            case "append":
                new = [some_row(chance) for _ in range(chance.randint(0, 6))]
                done = table.append(given(new, chance))
                rows = rows + new
            case "delete":
                number = chance.randint(0, 12)
                done = table.delete(f"id = {number} OR note IS NULL")
                rows = [row for row in rows if row["id"] != number and row["note"] is not None]
            case "partition" if table.meta.partition_columns:
                day = chance.choice(DAYS)
                new = [{**some_row(chance), "day": day} for _ in range(3)]
                without = pa.Table.from_pylist(new, ARROW).drop_columns(["day"])
                done = table.overwrite(chance.choice([without, without.to_reader()]), partition={"day": day})
                rows = [row for row in rows if row["day"] != day] + new
            case _:
                rows = [some_row(chance) for _ in range(3)]
                done = table.overwrite(given(rows, chance))
        assert done.version == len(states)
        states.append(list(rows))
    check(table, states)


@pytest.mark.parametrize("seed", range(6))
def test_keyed_tables_hold_what_was_written(lake: Lake, seed: int) -> None:
    chance = random.Random(100 + seed)
    table = lake.create_table(
        f"k{seed}",
        COLUMNS.replace("note string", "note string not null"),
        primary_key=["id"],
        buckets=3,
        partition_by=["day"] if seed % 2 else [],
        key_scope="partition" if seed % 2 else None,
    )
    parts = bool(seed % 2)
    rows: dict[tuple[Any, ...], Row] = {}
    states = [list(rows.values())]
    for _ in range(8):
        new = {key_of(row, parts): row for row in ({**some_row(chance), "note": "n"} for _ in range(5))}
        match chance.choice(["upsert", "upsert", "keys", "delete", "overwrite"]):
            case "upsert":
                table.upsert(given(list(new.values()), chance))
                rows = rows | new
            case "keys":
                keys = chance.sample(range(13), 4)
                table.delete(keys=keys)
                rows = {key: row for key, row in rows.items() if row["id"] not in keys}
            case "delete":
                table.delete("id BETWEEN 3 AND 6 OR amount > 0")
                rows = {key: row for key, row in rows.items() if not (3 <= row["id"] <= 6 or is_above(row["amount"]))}
            case _:
                table.overwrite(given(list(new.values()), chance))
                rows = new
        states.append(list(rows.values()))
    check(table, states)


def key_of(row: Row, parts: bool) -> tuple[Any, ...]:
    return (row["id"], row["day"]) if parts else (row["id"],)


def is_above(amount: float | None) -> bool:
    return amount is not None and not amount <= 0  # NaN is above every number


def check(table: Table, states: list[list[Row]]) -> None:
    for version, rows in enumerate(states):
        assert counted(table.to_arrow(version=version).to_pylist()) == counted(rows), version


def counted(rows: list[Row]) -> Counter[str]:
    return Counter(repr([row[name] for name in ARROW.names]) for row in rows)


# -- forms and types ---------------------------------------------------------------------------------------------------

WIDE = (
    "i int, d decimal(10,2), f float, t timestamp, n timestamp_ntz, b binary, l array<int>, s struct<a:int,b:string>, "
    "m map<string,bigint>"
)


def test_values_of_all_types_come_back(lake: Lake) -> None:
    table = lake.create_table("wide", WIDE)
    noon = datetime(2026, 11, 1, 12, 0, 0, 5, UTC)
    row = {
        "i": -5,
        "d": Decimal("-1.25"),
        "f": 0.5,
        "t": noon,
        "n": noon.replace(tzinfo=None),
        "b": b"\0\xff",
        "l": [1, None],
        "s": {"a": 1, "b": "x"},
        "m": [("k", 1 << 40)],
    }
    nothing = dict.fromkeys(row)
    table.append([row, nothing])
    assert table.to_arrow().to_pylist() == [row, nothing]
    table.overwrite(table.to_arrow())
    assert table.to_arrow().to_pylist() == [row, nothing]
    assert pd.isna(table.to_pandas()["i"][1])


def test_types_that_hold_the_values_fit(lake: Lake) -> None:
    table = lake.create_table("fits", "i int, x double, s string, d decimal(10,2), l array<struct<a:bigint>>")
    rows = pa.table(
        {
            "I": pa.array([1.0, 2.0]),
            "x": pa.array([1, 2], pa.int8()),
            "s": pa.array(["a", "b"]).dictionary_encode(),
            "d": pa.array([1.5, 19.99]),
            "l": pa.array([[{"A": 1}], None], pa.large_list(pa.struct([("A", pa.int32())]))),
        }
    )
    table.append(rows)
    assert table.to_arrow().to_pylist() == [
        {"i": 1, "x": 1.0, "s": "a", "d": Decimal("1.50"), "l": [{"a": 1}]},
        {"i": 2, "x": 2.0, "s": "b", "d": Decimal("19.99"), "l": None},
    ]


def with_id(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
    return pa.field(name, kind, True, {b"PARQUET:field_id": str(field_id).encode()})


@pytest.mark.parametrize(("number", "names"), [(pa.int32(), "ab"), (pa.int64(), "ba")])
def test_fields_with_ids_of_another_table_are_matched_by_name(lake: Lake, number: pa.DataType, names: str) -> None:
    table = lake.create_table(
        f"ids_{names}", "s struct<a:int,b:int>, l array<struct<a:int,b:int>>, m map<string,struct<a:int,b:int>>"
    )
    pair = pa.struct([with_id(name, number, 77 + at) for at, name in enumerate(names)])
    values = [{"b": 2, "a": 1}, None]
    rows = pa.table(
        {
            "s": pa.array([*values, {"b": 3, "a": None}], pair).slice(0, 2),
            "l": pa.array([values, None], pa.list_(with_id("element", pair, 79))),
            "m": pa.array([None, [("x", values[0]), ("y", None)]], pa.map_(pa.string(), pair)),
        }
    )
    table.append(rows)
    known = {"a": 1, "b": 2}
    assert table.to_arrow().to_pylist() == [
        {"s": known, "l": [known, None], "m": None},
        {"s": None, "l": None, "m": [("x", known), ("y", None)]},
    ]


def test_missing_columns_get_plain_defaults(lake: Lake) -> None:
    table = lake.create_table("defaults", "id bigint, word string, n int")
    lake.client.alter_columns(table.table_id, default_column("word", "'new'"), default_column("n", "1 + 1"))
    table.append([{"id": 1, "n": None}])
    assert table.to_arrow().to_pylist() == [{"id": 1, "word": "new", "n": None}]
    with pytest.raises(InputError, match="computed by Spark"):
        table.append([{"id": 2}])


NAIVE = datetime(2026, 11, 1, tzinfo=UTC).replace(tzinfo=None)
NUMBER: Any = 7
REFUSED: list[tuple[Callable[[Table], Any], str]] = [
    (lambda table: table.append([{"id": 1}]), "KEY_PRESENT"),
    (lambda table: table.upsert([{"id": 1}, {"id": 1}]), "KEY_TWICE"),
    (lambda table: table.upsert([{"x": 1}]), "COLUMN_UNKNOWN"),
    (lambda table: table.upsert([{"at": None}]), "COLUMN_MISSING"),
    (lambda table: table.upsert([{"id": None}]), "NULL_NOT_ALLOWED"),
    (lambda table: table.upsert([{"id": "1"}]), "SCHEMA_MISMATCH"),
    (lambda table: table.upsert([{"id": 1, "at": NAIVE}]), "SCHEMA_MISMATCH"),
    (lambda table: table.upsert(pa.table({"id": ["1"]})), "SCHEMA_MISMATCH"),
    (lambda table: table.upsert(pa.table({"id": [1.5]})), "CAST_LOSSY"),
    (lambda table: table.upsert(pa.table({"id": [1], "at": [NAIVE]})), "SCHEMA_MISMATCH"),
    (lambda table: table.upsert(pa.table({"id": [1], "s": [{"z": 1}]})), "COLUMN_UNKNOWN"),
    (lambda table: table.upsert(pa.table({"id": [1], "s": [{"b": 1}]})), "NULL_NOT_ALLOWED"),
    (lambda table: table.upsert(NUMBER), "ROWS_INVALID"),
    (lambda table: table.delete(), "CONDITION_INVALID"),
    (lambda table: table.delete(keys=[{"at": 1}]), "SCHEMA_MISMATCH"),
    (lambda table: table.overwrite([{"id": 1}], partition={"day": 1}), "PARTITION_INVALID"),
]


@pytest.mark.parametrize("at", range(len(REFUSED)))
def test_what_is_wrong_is_refused_and_leaves_nothing(lake: Lake, at: int) -> None:
    write, reason = REFUSED[at]
    table = lake.create_table(f"r{at}", "id bigint, at timestamp, s struct<a:int not null,b:int>", primary_key=["id"])
    with pytest.raises(InputError, match=reason):
        write(table)
    assert table.refresh().meta.head_version == 0
    assert not Path(table.folder).exists()


def test_a_partition_is_named_by_its_value(lake: Lake) -> None:
    table = lake.create_table("prices", "id int, price decimal(5,2)", partition_by=["price"])
    table.append([{"id": 1, "price": Decimal("1.5")}, {"id": 2, "price": Decimal(2)}])
    table.overwrite([{"id": 3}], partition={"price": "1.5"})
    table.overwrite([{"id": 4, "price": Decimal(2)}], partition={"price": 2})
    assert sorted(table.to_arrow()["id"].to_pylist()) == [3, 4]


# -- commits -----------------------------------------------------------------------------------------------------------


def test_a_write_that_failed_in_between_leaves_no_file(lake: Lake) -> None:
    table = lake.create_table("broken", "id bigint")

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [1]})
        raise OSError("the source ended")

    with pytest.raises(OSError, match="the source ended"):
        table.append(pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), batches()))
    assert table.count() == 0
    assert not list(Path(table.folder).rglob("*.parquet"))


def test_a_full_disk_is_told_and_leaves_nothing(lake: Lake) -> None:
    """With a limit on the size of files the system refuses bytes in the middle of a write, too."""
    table = lake.create_table("writes.full_disk", "id bigint, note string", properties={"write.inline.rows": "0"})
    rows = pa.table({"id": range(50_000), "note": [str(at * 7919) for at in range(50_000)]})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            table.append(rows)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(Path(table.folder).rglob("*.parquet"))
    table.append(rows)
    assert table.count() == len(rows)


def stream(rows: pa.Table, before: Callable[[], Any], *, begins_first: bool = False) -> pa.RecordBatchReader:
    """Somebody else does something before the first rows come. `begins_first`: after a first batch."""

    def batches() -> Iterator[pa.RecordBatch]:
        if begins_first:
            yield from rows.slice(0, 0).to_batches() or [pa.RecordBatch.from_pylist([], schema=rows.schema)]
        before()
        yield from rows.to_batches()

    return pa.RecordBatchReader.from_batches(rows.schema, batches())


@pytest.mark.parametrize("policy", ["rerun", None])
def test_a_stream_that_lost_a_race_is_not_committed_without_its_rows(lake: Lake, policy: OnConflict | None) -> None:
    table = lake.create_table(f"lost_{policy}", "id bigint", properties={"write.on_conflict": "rerun"})
    rows = pa.table({"id": [1, 2]})
    other = lake.table(table.name)
    with pytest.raises(ConflictError):
        table.append(stream(rows, lambda: other.overwrite([{"id": 7}])), on_conflict=policy)
    with pytest.raises(ConflictError):
        table.overwrite(stream(rows, lambda: altered(table, "v"), begins_first=True), on_conflict=policy)
    assert table.refresh().to_arrow(columns=["id"]).to_pylist() == [{"id": 7}]
    table.append(stream(rows, lambda: other.overwrite([{"id": 8}])), on_conflict="resubmit")
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 8]


def altered(table: Table, name: str) -> None:
    table.lake.client.alter_columns(table.table_id, add_column(name, "int"))


def test_a_stream_whose_rows_are_held_is_written_again(lake: Lake) -> None:
    table = lake.create_table("held", "id bigint", primary_key=["id"])
    rows = pa.table({"id": [1, 2]})
    done = table.upsert(stream(rows, lambda: altered(table, "v")))
    assert (done.rows_staged, table.count()) == (2, 2)
    done = table.overwrite(stream(rows, lambda: altered(table, "w")), on_conflict="rerun")
    assert (done.rows_staged, table.count()) == (2, 2)
    with lake.transaction() as txn:
        txn.table("held").upsert(stream(pa.table({"id": [4, 5, 6]}), list))
    assert table.count() == 5
    with lake.transaction() as txn:
        txn.table("held").delete(keys=stream(pa.table({"id": [4, 5]}), list))
    assert table.count() == 3


def test_a_delete_loses_to_one_that_came_first(lake: Lake) -> None:
    table = lake.create_table("race", "id bigint, v int", primary_key=["id"])
    table.upsert([{"id": 1, "v": 1}])
    with pytest.raises(ConflictError, match="DELETE"), lake.transaction() as txn:  # noqa: PT012 - its end raises
        txn.table("race").delete("id = 1")
        table.delete(keys=[1])
    assert table.count() == 0


def test_a_repeated_batch_is_written_once(lake: Lake) -> None:
    table = lake.create_table("once", "id bigint")
    first = table.append([{"id": 1}], app_id="loader", app_version=1)
    again = table.append([{"id": 1}], app_id="loader", app_version=1)
    assert (first.already_applied, again.already_applied, table.count()) == (False, True, 1)


def test_a_transaction_takes_writes_of_both_tables_or_none(lake: Lake) -> None:
    events, orders = (
        lake.create_table("t.events", "id bigint"),
        lake.create_table("t.orders", "id bigint", primary_key=["id"]),
    )
    with lake.transaction() as txn:
        txn.table("t.events").append([{"id": 1}])
        txn.table("t.orders").upsert([{"id": 1}])
    with pytest.raises(ZeroDivisionError), lake.transaction() as txn:  # noqa: PT012
        txn.table("t.events").append([{"id": 2}])
        raise ZeroDivisionError
    assert (events.count(), orders.count()) == (1, 1)


def test_only_values_that_repeat_have_a_dictionary_and_row_groups_are_small(lake: Lake) -> None:
    """Readers take longer for a dictionary of values that all differ; a row group is what one thread reads."""
    count = 300_000
    table = lake.create_table("layout", "id bigint, word string, `a.b` double, pair struct<x: bigint>")
    numbers = pa.array(range(count))
    words = [f"w{number % 100}" for number in range(count)]
    pairs = pa.StructArray.from_arrays([numbers], ["x"])
    table.append(pa.table({"id": numbers, "word": words, "a.b": numbers.cast(pa.float64()), "pair": pairs}))
    [entry] = table.view.client.list_files(table.table_id)
    footer = pq.read_metadata(table.view.path(entry.file.path))
    assert [footer.row_group(at).num_rows for at in range(footer.num_row_groups)] == [262_144, count - 262_144]
    columns = [footer.row_group(0).column(at) for at in range(footer.num_columns)]
    assert {one.path_in_schema: one.has_dictionary_page for one in columns} == {
        "id": False,
        "word": True,
        "a.b": False,
        "pair.x": True,
    }
    assert [one.path_in_schema for one in columns if "DELTA_BINARY_PACKED" in one.encodings] == ["id"]
    assert table.count(where="id >= 262144") == count - 262_144


def test_a_slow_query_holds_up_no_other_write(lake: Lake) -> None:
    begun, go = threading.Event(), threading.Event()

    class Slow:
        """Rows of a query that waits."""

        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            begun.set()
            assert go.wait(30)
            return pa.table({"id": [1]}).__arrow_c_stream__(requested_schema)

    table = lake.create_table("writes.slow_query", "id bigint", primary_key=["id"])
    slow = threading.Thread(target=table.upsert, args=[Slow()], kwargs={"on_conflict": "resubmit"})
    slow.start()
    try:
        assert begun.wait(30)
        other = threading.Thread(target=lake.table(table.name).upsert, args=[pa.table({"id": [2]})])
        other.start()
        other.join(20)
        assert not other.is_alive()
    finally:
        go.set()
        slow.join()
    assert table.count() == 2
