"""UPDATE and MERGE without Spark, against a list of dicts; what they refuse, and what they declare to have read."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from laketx import ConflictError, InputError, Lake, Table, connect

NAN = float("nan")
DAYS = [date(2026, 11, 1), date(2026, 11, 2), None]
COLUMNS = "id bigint, day date, n int, amount double, note string"
ARROW = pa.schema(
    [("id", pa.int64()), ("day", pa.date32()), ("n", pa.int32()), ("amount", pa.float64()), ("note", pa.string())]
)
Row = dict[str, Any]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("changes")) as made:
        yield made


def some_row(chance: random.Random) -> Row:
    return {
        "id": chance.randint(0, 12),
        "day": chance.choice(DAYS),
        "n": chance.choice([1, 5, None]),
        "amount": chance.choice([0.5, -0.0, NAN, None]),
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


def texts(rows: list[Row]) -> Counter[str]:
    return Counter(repr(tuple(row[name] for name in ARROW.names)) for row in rows)


def check(table: Table, rows: list[Row]) -> None:
    assert texts(table.to_arrow().to_pylist()) == texts(rows)


# -- any order of writes -----------------------------------------------------------------------------------------------


def updated(row: Row) -> Row:
    """What SET n = n + 1, note = coalesce(note, '') || '!', day = DATE '2026-11-02' makes of a row."""
    n = None if row["n"] is None else row["n"] + 1
    return row | {"n": n, "note": (row["note"] or "") + "!", "day": DAYS[1]}


SET = {"n": "n + 1", "note": "coalesce(note, '') || '!'", "day": "DATE '2026-11-02'"}


@pytest.mark.parametrize("seed", range(8))
def test_append_tables_hold_what_was_changed(lake: Lake, seed: int) -> None:
    chance = random.Random(seed)
    table = lake.create_table(f"a{seed}", COLUMNS, partition_by=["day"] if seed % 2 else [])
    rows = [some_row(chance) for _ in range(12)]
    table.append(rows)
    for _ in range(5):
        number = chance.randint(0, 12)
        match chance.choice(["update", "merge", "by source", "append"]):
            case "update":
                table.update(SET, where=f"id < {number} AND n IS NOT NULL")
                rows = [updated(row) if row["id"] < number and row["n"] is not None else row for row in rows]
            case "append":
                new = [some_row(chance) for _ in range(3)]
                table.append(new)
                rows = rows + new
            case "merge":
                new = list({row["id"]: row for row in (some_row(chance) for _ in range(6))}.values())
                merge = table.merge(given(new, chance), on="target.id = source.id AND target.id <> 3")
                merge = merge.when_matched_delete(condition="source.n = 5").when_matched_update({"n": "source.n"})
                merge.when_not_matched_insert(condition="source.note IS NOT NULL").execute()
                rows = merged(rows, new)
            case _:
                new = [some_row(chance)]
                merge = table.merge(given(new, chance), on="id")
                merge = merge.when_not_matched_by_source_delete(condition="target.n > 6")
                merge.when_not_matched_by_source_update({"amount": 0.5}).execute()
                known = {row["id"] for row in new}
                kept = [row for row in rows if row["id"] in known or not (row["n"] or 0) > 6]
                rows = [row if row["id"] in known else row | {"amount": 0.5} for row in kept]
        check(table, rows)
    assert table.count(since=0, mode="changes") == len(rows)


def merged(rows: list[Row], new: list[Row]) -> list[Row]:
    by_id = {row["id"]: row for row in new if row["id"] != 3}
    found = []
    for row in rows:
        match = by_id.get(row["id"])
        if match is None:
            found.append(row)
        elif match["n"] != 5:
            found.append(row | {"n": match["n"]})
    known = {row["id"] for row in rows} - {3}
    return found + [row for row in new if row["id"] not in known and row["note"] is not None]


@pytest.mark.parametrize("seed", range(8))
def test_keyed_tables_hold_what_was_changed(lake: Lake, seed: int) -> None:
    chance = random.Random(100 + seed)
    parts = bool(seed % 2)
    table = lake.create_table(
        f"k{seed}",
        COLUMNS,
        primary_key=["id"],
        buckets=3,
        partition_by=["day"] if parts else [],
        key_scope="partition" if parts else None,
    )
    rows: dict[tuple[Any, ...], Row] = {}
    for _ in range(7):
        new = {key_of(row, parts): row for row in (some_row(chance) for _ in range(6))}
        number = chance.randint(0, 12)
        match chance.choice(["upsert", "update", "merge", "merge all"]):
            case "upsert":
                table.upsert(list(new.values()))
                rows = rows | new
            case "update":
                table.update({"n": "n * 2", "note": "'x'"}, where=f"id >= {number}")
                rows = {
                    key: row | {"n": row["n"] and row["n"] * 2, "note": "x"} if row["id"] >= number else row
                    for key, row in rows.items()
                }
            case "merge all":
                on = ["day", "id"] if parts else "id"
                merge = table.merge(given(list(new.values()), chance), on=on)
                merge.when_matched_update().when_not_matched_insert().execute()
                rows = rows | new
            case _:
                merge = table.merge(given(list(new.values()), chance), on=["id", "day"] if parts else ["id"])
                merge = merge.when_matched_delete(condition="target.n IS NULL OR target.n = source.n")
                merge = merge.when_matched_update({"amount": "source.amount", "note": "target.note || source.note"})
                merge.when_not_matched_insert({"id": "source.id", "day": "source.day", "n": 7}).execute()
                rows = keyed_merge(rows, new)
        check(table, list(rows.values()))


def keyed_merge(rows: dict[tuple[Any, ...], Row], new: dict[tuple[Any, ...], Row]) -> dict[tuple[Any, ...], Row]:
    found = dict(rows)
    for key, one in new.items():
        old = rows.get(key)
        if old is None:
            found[key] = {"id": one["id"], "day": one["day"], "n": 7, "amount": None, "note": None}
        elif old["n"] is None or old["n"] == one["n"]:
            del found[key]
        else:
            both = None if old["note"] is None or one["note"] is None else old["note"] + one["note"]
            found[key] = old | {"amount": one["amount"], "note": both}
    return found


def key_of(row: Row, parts: bool) -> tuple[Any, ...]:
    return (row["id"], row["day"]) if parts else (row["id"],)


# -- expressions -------------------------------------------------------------------------------------------------------

OLD = {"id": 1, "n": 3, "amount": 0.5, "price": Decimal("1.50"), "note": "a", "at": None, "small": 100, "flag": True}
KINDS = "id bigint, n int, amount double, price decimal(10,2), note string, at timestamp, small tinyint, flag boolean"
VALUES: list[tuple[str, str, Any]] = [
    ("n", "n * n - 1", 8),
    ("n", "-n", -3),
    ("n", "small + n", 103),
    ("n", "1.0", 1),
    ("amount", "amount * 3 + 0.1", 0.5 * 3 + 0.1),
    ("amount", "n", 3.0),
    ("price", "price + 1", Decimal("2.50")),
    ("price", "price * 1.5 * 2", Decimal("4.50")),
    ("price", "7", Decimal("7.00")),
    ("note", "note || '-' || 'it''s'", "a-it's"),
    ("note", "coalesce(note, 'x')", "a"),
    ("at", "TIMESTAMP '2026-11-01 10:00:00Z'", datetime(2026, 11, 1, 10, tzinfo=UTC)),
    ("flag", "n = 3 AND NOT note LIKE 'b%' AND amount BETWEEN 0 AND 1", True),
    ("flag", "n IN (1, NULL)", None),
    ("flag", "at IS NULL OR n > 5", True),
]


def test_values_are_computed_as_spark_computes_them(lake: Lake) -> None:
    table = lake.create_table("v", KINDS)
    for at, (name, text, wanted) in enumerate(VALUES):
        table.append([OLD | {"id": at}])
        table.update({name: text}, where=f"id = {at}")
        [row] = table.to_arrow(where=f"id = {at}").to_pylist()
        assert row == OLD | {"id": at, name: wanted}, text


def test_values_of_python_are_values(lake: Lake) -> None:
    table = lake.create_table("p", KINDS + ", tags array<string>")
    table.append([OLD | {"tags": None}])
    table.update({"at": datetime(2026, 11, 1, tzinfo=UTC), "tags": ["a"], "price": 2, "note": None})
    [row] = table.to_arrow().to_pylist()
    wanted = {"at": datetime(2026, 11, 1, tzinfo=UTC), "tags": ["a"], "price": Decimal("2.00"), "note": None}
    assert row == OLD | wanted


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "SETTINGS_EMPTY"),
    ({"id": "2"}, "KEY_SET"),
    ({"x": "2"}, "COLUMN_UNKNOWN"),
    ({"n": "1", "N": "2"}, "COLUMN_TWICE"),
    ({"n": "1.5"}, "CAST_LOSSY"),
    ({"n": 1.5}, "CAST_LOSSY"),
    ({"n": "2147483647 + n"}, "VALUE_INVALID"),
    ({"n": "'5'"}, "SCHEMA_MISMATCH"),
    ({"note": "5"}, "SCHEMA_MISMATCH"),
    ({"small": "small + 100"}, "CAST_LOSSY"),
    ({"price": "price * 0.001"}, "CAST_LOSSY"),
    ({"flag": None}, "NULL_NOT_ALLOWED"),
    ({"flag": "NULL"}, "NULL_NOT_ALLOWED"),
]


@pytest.mark.parametrize("at", range(len(WRONG)))
def test_what_is_wrong_is_refused_and_changes_nothing(lake: Lake, at: int) -> None:
    settings, reason = WRONG[at]
    table = lake.create_table(f"w{at}", KINDS.replace("flag boolean", "flag boolean not null"), primary_key=["id"])
    table.upsert([OLD])
    with pytest.raises(InputError) as refused:
        table.update(settings)
    assert refused.value.reason == reason
    of_target = {
        name: re.sub(r"\b(n|small|price)\b", r"target.\1", value) if isinstance(value, str) else value
        for name, value in settings.items()
    }
    with pytest.raises(InputError) as refused:
        table.merge([{"id": 1}], on="id").when_matched_update(of_target).execute()
    assert refused.value.reason == reason
    assert table.to_arrow().to_pylist() == [OLD]


def test_dicts_with_an_expression_that_needs_spark_say_so(lake: Lake) -> None:
    table = lake.create_table("needs", KINDS, primary_key=["id"])
    for text in ("n / 2", "upper(note)", "amount + price", "CASE WHEN flag THEN 1 END", "nn"):
        with pytest.raises(InputError) as refused:
            table.merge([{"id": 1}], on="id").when_matched_update({"n": f"target.{text}"}).execute()
        assert str(refused.value).endswith("^")


# -- merges ------------------------------------------------------------------------------------------------------------


def test_a_merge_takes_columns_that_the_table_lacks_and_pandas(lake: Lake) -> None:
    table = lake.create_table("ops", "id bigint, n int", primary_key=["id"])
    table.upsert([{"id": 1, "n": 1}, {"id": 2, "n": 2}])
    source = pd.DataFrame({"id": [1, 2, 3], "n": [10, 20, 30], "op": ["delete", "add", "add"]})
    merge = table.merge(source, on="id").when_matched_delete(condition="source.op = 'delete'")
    merge = merge.when_matched_update({"n": "target.n + source.n"})
    done = merge.when_not_matched_insert().execute(message="ops", app_id="ops", app_version=1)
    assert done.rows_staged == 3
    assert merge.execute(app_id="ops", app_version=1).already_applied
    assert table.history()[0].message == "ops"
    assert sorted(map(tuple, (row.values() for row in table.to_arrow().to_pylist()))) == [(2, 22), (3, 30)]


def test_two_source_rows_for_one_row_are_refused_but_by_a_bare_delete(lake: Lake) -> None:
    for key in ([], ["id"]):
        table = lake.create_table(f"twice{len(key)}", "id bigint, n int", primary_key=key)
        (table.upsert if key else table.append)([{"id": 1, "n": 1}])
        merge = table.merge([{"id": 1, "n": 2}, {"id": 1, "n": 3}], on="id")
        with pytest.raises(InputError, match="MERGE_AMBIGUOUS: 2 source rows match one row"):
            merge.when_matched_update().when_not_matched_insert().execute()
        merge.when_matched_update(condition="source.n = 3").execute()
        assert table.to_arrow().to_pylist() == [{"id": 1, "n": 3}]
        merge.when_matched_delete().execute()
        assert table.count() == 0


def test_two_new_rows_of_one_key_are_refused(lake: Lake) -> None:
    table = lake.create_table("new_twice", "id bigint, n int", primary_key=["id"])
    merge = table.merge([{"id": 1, "n": 2}, {"id": 1, "n": 3}], on="id")
    with pytest.raises(InputError, match="KEY_TWICE"):
        merge.when_matched_update().when_not_matched_insert().execute()


def test_defaults_fill_the_rows_that_a_merge_inserts(lake: Lake) -> None:
    table = lake.create_table("defaults", "id bigint, n int default 7, note string", primary_key=["id"])
    table.merge([{"id": 1}], on="id").when_not_matched_insert().execute()
    assert table.to_arrow().to_pylist() == [{"id": 1, "n": 7, "note": None}]


def test_rows_that_move_to_another_partition_land_on_no_other(lake: Lake) -> None:
    table = lake.create_table(
        "moves", "id bigint, day string, n int", primary_key=["id"], partition_by=["day"], key_scope="partition"
    )
    table.upsert([{"id": 1, "day": "a", "n": 1}, {"id": 1, "day": "b", "n": 2}, {"id": 2, "day": "a", "n": 3}])
    with pytest.raises(InputError, match="KEY_EXISTS: no row of moves can move to day=b, id=1: another row"):
        table.update({"day": "'b'"}, where="day = 'a'")
    with pytest.raises(InputError, match=r"KEY_EXISTS.*2 rows would have that key"):
        table.update({"day": "'c'"}, where="id = 1")
    table.update({"day": "'b'"}, where="id = 2")
    found = sorted((row["day"], row["id"], row["n"]) for row in table.to_arrow().to_pylist())
    assert found == [("a", 1, 1), ("b", 1, 2), ("b", 2, 3)]
    assert table.to_arrow(where="day = 'a'").num_rows == 1


# -- what is declared --------------------------------------------------------------------------------------------------

PROFILES = ("maxcompute", "delta_serializable", "delta_write_serializable", "row_level")


@pytest.mark.parametrize("profile", PROFILES)
def test_a_merge_computed_from_its_table_loses_to_a_change_of_it(lake: Lake, profile: str) -> None:
    table = lake.create_table(f"own_{profile}", "id bigint, n int", profile=profile)
    table.append([{"id": 1, "n": 1}])
    rows = table.scanner()
    lake.table(table.name).update({"n": "n + 5"})
    with pytest.raises(ConflictError):
        table.merge(rows, on="id").when_matched_update({"n": "source.n + 1"}).execute()
    merge = table.merge(table.scanner(), on="id").when_matched_update({"n": "source.n + 1"})
    merge.execute(on_conflict="rerun")
    assert table.to_arrow().to_pylist() == [{"id": 1, "n": 7}]


def change_late(lake: Lake, table: Table, change: str) -> None:
    """Changes row 1 in a transaction, while another update of it commits."""
    with lake.transaction() as txn:
        one = txn.table(table.name)
        if change == "update":
            one.update({"n": "n * 10"}, where="id = 1")
        else:
            one.merge([{"id": 1, "n": 0}], on="id").when_matched_update({"n": "target.n * 10"}).execute()
        table.update({"n": "n + 1"}, where="id = 1")


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("keyed", [False, True])
def test_an_update_and_a_merge_lose_to_an_update_of_their_rows(lake: Lake, profile: str, keyed: bool) -> None:
    name = f"races_{profile}_{keyed}"
    table = lake.create_table(name, "id bigint, n int", primary_key=["id"] if keyed else [], profile=profile)
    (table.upsert if keyed else table.append)([{"id": 1, "n": 1}, {"id": 2, "n": 1}])
    for change in ("update", "merge"):
        with pytest.raises(ConflictError):
            change_late(lake, table, change)
    found = sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())
    assert found == [(1, 3), (2, 1)]


def test_a_merge_of_few_keys_commits_beside_changes_of_other_partitions(lake: Lake) -> None:
    columns = "id bigint, day string, n int"
    table = lake.create_table("apart", columns, partition_by=["day"], profile="delta_serializable")
    table.append([{"id": 1, "day": "a", "n": 1}, {"id": 1, "day": "b", "n": 1}])
    with lake.transaction() as txn:
        merge = txn.table("apart").merge([{"id": 1, "day": "a", "n": 5}], on=["day", "id"])
        merge.when_matched_update().when_not_matched_insert().execute()
        table.update({"n": "n + 1"}, where="day = 'b'")
    found = sorted((row["day"], row["n"]) for row in table.to_arrow().to_pylist())
    assert found == [("a", 5), ("b", 2)]
