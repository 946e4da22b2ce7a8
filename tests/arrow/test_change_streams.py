"""Changes with operations and sequences, applied by key, beside a dict that applies them one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from laketx import ConflictError, InputError, Lake, Table, connect
from worker.arrow.write.change_streams import ChangeColumns, plan_changes
from worker.commit.transaction import run_writes
from worker.commit.writes import Write

Row = dict[str, Any]
OUTCOMES = ("upserted", "deleted", "absent", "late", "repeated")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("change-streams")) as made:
        yield made


def made(lake: Lake, name: str, columns: str = "id bigint, name string, ts bigint", **options: Any) -> Table:
    return lake.create_table(f"cdc.{name}", columns, **{"primary_key": ["id"], "buckets": 2, **options})


def rows_of(table: Table) -> list[Row]:
    return sorted(table.to_arrow().to_pylist(), key=lambda row: str(list(row.values())))


# -- any history -------------------------------------------------------------------------------------------------------


@dataclass
class Oracle:
    """A dict to which changes are applied in the order of their sequences, batch by batch."""

    is_stored: bool
    keeps_deleted: bool
    rows: dict[tuple[Any, ...], Row] = field(default_factory=dict)

    def apply(self, changes: list[Row]) -> dict[str, int]:
        counts = dict.fromkeys(OUTCOMES, 0)
        newest: dict[tuple[Any, ...], Row] = {}
        for change in changes:
            key = (change["part"], change["id"])
            if key in newest:
                counts["repeated"] += 1
            if key not in newest or change["ts"] >= newest[key]["ts"]:
                newest[key] = change
        for key, change in newest.items():
            counts[self._outcome(key, change)] += 1
        return counts

    def _outcome(self, key: tuple[Any, ...], change: Row) -> str:
        old = self.rows.get(key)
        if self.is_stored and old is not None and old["ts"] > change["ts"]:
            return "late"
        is_delete = change["op"] == "d"
        if is_delete and not self.keeps_deleted:
            return "absent" if self.rows.pop(key, None) is None else "deleted"
        row = {name: value for name, value in change.items() if name != "op"}
        if not self.is_stored:
            del row["ts"]
        self.rows[key] = row | ({"gone": is_delete} if self.keeps_deleted else {})
        return "deleted" if is_delete else "upserted"


def some_changes(chance: random.Random) -> list[Row]:
    return [
        {
            "part": chance.choice(["a", "b", None]),
            "id": chance.randint(0, 9),
            "name": chance.choice(["", "ü", None]),
            "op": chance.choice("ccud"),
            "ts": chance.randint(0, 30),
        }
        for _ in range(chance.choice([0, 1, 5, 20]))
    ]


def given(changes: list[Row], chance: random.Random) -> Any:
    fields = [("part", pa.string()), ("id", pa.int32()), ("name", pa.string()), ("op", pa.string()), ("ts", pa.int64())]
    table = pa.Table.from_pylist(changes, pa.schema(fields))
    match chance.choice(["dicts", "arrow", "polars", "stream"]):
        case "dicts":
            return changes or table
        case "polars":
            return pl.from_arrow(table)
        case "stream":
            return table.to_reader(max_chunksize=3)
        case _:
            return table


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 60))])
def test_any_history_gives_the_rows_and_counts_of_a_dict(lake: Lake, seed: int) -> None:
    chance = random.Random(seed)
    oracle = Oracle(is_stored=seed % 2 == 0, keeps_deleted=seed % 3 == 0)
    columns = ["part string", "id bigint", "name string"]
    columns += ["ts bigint"] * oracle.is_stored + ["gone boolean"] * oracle.keeps_deleted
    table = made(
        lake,
        f"history_{seed}",
        ", ".join(columns),
        partition_by=["part"],
        key_scope="partition",
        properties={"write.inline.rows": chance.choice(["0", "1000"])},
    )
    for _ in range(8):
        changes = some_changes(chance)
        applied = table.apply_changes(
            given(changes, chance), sequence="ts", soft_delete="gone" if oracle.keeps_deleted else None
        )
        assert {name: getattr(applied, name) for name in OUTCOMES} == oracle.apply(changes)
        assert rows_of(table) == sorted(oracle.rows.values(), key=lambda row: str(list(row.values())))
        if chance.random() < 0.2:
            table.compact("major")


# -- one by one --------------------------------------------------------------------------------------------------------


def test_more_keys_than_a_condition_names(lake: Lake) -> None:
    table = made(lake, "many")
    table.apply_changes([{"id": at, "name": "old", "ts": 10, "op": "c"} for at in range(3_000)])
    changes: list[Row] = [{"id": at, "name": "new", "ts": at % 20, "op": "du"[at % 2]} for at in range(500, 2_500)]
    applied = table.apply_changes(pa.Table.from_pylist(changes))
    assert (applied.late, applied.deleted, applied.upserted) == (1_000, 500, 500)
    names = {row["id"]: row["name"] for row in table.to_arrow().to_pylist()}
    assert names == {
        at: "new" if 500 <= at < 2_500 and at % 20 >= 10 else "old"
        for at in range(3_000)
        if not (500 <= at < 2_500 and at % 20 >= 10 and at % 2 == 0)
    }


def test_deletes_name_the_key_alone(lake: Lake) -> None:
    table = made(lake, "by_key", "id bigint, name string NOT NULL, ts bigint NOT NULL")
    table.apply_changes([{"id": 1, "name": "a", "ts": 1, "op": "insert"}, {"id": 2, "name": "b", "ts": 1, "op": "c"}])
    applied = table.apply_changes([{"id": 1, "op": "DELETE", "ts": 2}, {"id": 3, "name": "c", "op": "r", "ts": 2}])
    assert (applied.upserted, applied.deleted) == (1, 1)
    assert [row["id"] for row in rows_of(table)] == [2, 3]


@pytest.mark.parametrize("engine", ["whole", "partial"])
def test_deletes_alone_need_no_other_column(lake: Lake, engine: str) -> None:
    columns = "id bigint, name string NOT NULL, ts bigint"
    table = made(lake, f"alone_{engine}", columns, properties={"merge.engine": engine} if engine == "partial" else {})
    table.upsert([{"id": 1, "name": "a", "ts": 1}, {"id": 2, "name": "b", "ts": 9}])
    applied = table.apply_changes([{"op": "d", "id": 1, "ts": 5}, {"op": "d", "id": 2, "ts": 5}])
    assert (applied.deleted, applied.late) == (1, 1)
    assert table.apply_debezium([{"op": "d", "before": {"id": 2}, "after": None}]).deleted == 1
    assert not rows_of(table)
    with pytest.raises(InputError, match="COLUMN_UNKNOWN"):
        table.apply_changes([{"op": "d", "id": 1, "ts": 5, "nothing": 1}])
    assert table.apply_changes([], app_id="stream", app_version=1).upserted == 0
    assert table.app_version("stream") == 1
    across = made(
        lake, f"alone_across_{engine}", "id bigint, day date, ts bigint", partition_by=["day"], key_scope="table"
    )
    across.upsert([{"id": 1, "day": None, "ts": 1}])
    assert across.apply_changes([{"op": "d", "id": 1, "ts": 5}]).deleted == 1


def test_a_late_upsert_of_a_deleted_row_needs_soft_deletes(lake: Lake) -> None:
    columns = "id bigint, ts bigint, gone boolean"
    hard, soft = made(lake, "hard", columns), made(lake, "soft", columns)
    late = []
    for change in ({"id": 1, "ts": 1, "op": "c"}, {"id": 1, "ts": 5, "op": "d"}, {"id": 1, "ts": 3, "op": "u"}):
        hard.apply_changes([change])
        late.append(soft.apply_changes([change], soft_delete="gone").late)
    assert [row["ts"] for row in rows_of(hard)] == [3]
    assert rows_of(soft) == [{"id": 1, "ts": 5, "gone": True}]
    assert late == [0, 0, 1]


def test_a_repeated_batch_changes_nothing(lake: Lake) -> None:
    table = made(lake, "once")
    rows = [{"id": 1, "name": "a", "ts": 1, "op": "c"}]
    first = table.apply_changes(rows, app_id="cdc", app_version=4)
    again = table.apply_changes([{**rows[0], "name": "b"}], app_id="cdc", app_version=4)
    assert (first.upserted, again.upserted, again.commit.already_applied) == (1, 0, True)
    assert rows_of(table) == [{"id": 1, "name": "a", "ts": 1}]


def test_a_batch_of_late_rows_keeps_its_application_version(lake: Lake) -> None:
    table = made(lake, "all_late")
    table.apply_changes([{"id": 1, "name": "a", "ts": 9, "op": "c"}])
    applied = table.apply_changes([{"id": 1, "name": "b", "ts": 2, "op": "u"}], app_id="late", app_version=7)
    assert (applied.late, table.app_version("late")) == (1, 7)


def test_changes_of_several_tables_are_one_commit(lake: Lake) -> None:
    orders, items = made(lake, "txn_orders"), made(lake, "txn_items")
    orders.apply_changes([{"id": 1, "name": "old", "ts": 5, "op": "c"}, {"id": 2, "name": "old", "ts": 5, "op": "c"}])
    already_applied = []
    for _ in range(2):
        with lake.transaction("cdc", app_id="cdc", app_version=9) as txn:
            late = {"id": 1, "name": "late", "ts": 4, "op": "u"}
            txn.table(orders.name).apply_changes([late, {"id": 2, "ts": 6, "op": "d"}])
            txn.table(items.name).apply_debezium([b'{"op": "c", "after": {"id": 7, "name": "new", "ts": 1}}'])
        already_applied.append({commit.already_applied for commit in txn.commits})
    assert already_applied == [{False}, {True}]
    assert rows_of(orders) == [{"id": 1, "name": "old", "ts": 5}]
    assert rows_of(items) == [{"id": 7, "name": "new", "ts": 1}]
    assert orders.history(1)[0].txn_id == items.history(1)[0].txn_id


def test_changes_in_a_transaction_lose_to_what_came_meanwhile(lake: Lake) -> None:
    orders, items = made(lake, "lost_orders"), made(lake, "lost_items")
    orders.apply_changes([{"id": 1, "name": "a", "ts": 1, "op": "c"}])

    def change() -> None:
        with lake.transaction("cdc") as txn:
            txn.table(items.name).apply_changes([{"id": 1, "name": "b", "ts": 2, "op": "c"}])
            txn.table(orders.name).apply_changes([{"id": 1, "name": "b", "ts": 2, "op": "u"}])
            orders.apply_changes([{"id": 1, "name": "c", "ts": 3, "op": "u"}])

    with pytest.raises(ConflictError):
        change()
    assert rows_of(orders) == [{"id": 1, "name": "c", "ts": 3}]
    assert rows_of(items) == []


def test_a_message_with_a_new_column_in_a_transaction_is_refused(lake: Lake) -> None:
    orders = made(lake, "txn_columns")
    schema = b'{"schema": {"fields": [{"field": "after", "fields": [{"field": "id", "type": "int64"},'
    schema += b'{"field": "extra", "type": "string"}]}]}, "payload": {"op": "c", "after": {"id": 1, "extra": "x"}}}'
    with pytest.raises(InputError, match=r"COLUMN_MISSING.*extra"), lake.transaction() as txn:
        txn.table(orders.name).apply_debezium([schema], merge_schema=True)
    assert rows_of(orders) == []


def test_own_words_and_times_and_texts(lake: Lake) -> None:
    table = made(lake, "words", "id bigint, at timestamp, lsn string")
    times = [datetime(2026, 11, day, tzinfo=UTC) for day in (3, 1)]
    frame = pd.DataFrame({"id": [1, 1], "at": times, "gone": [False, True], "lsn": ["b", "a"]})
    applied = table.apply_changes(frame, op="gone", sequence="AT", upserts=[False], deletes=[True])
    assert (applied.upserted, applied.repeated) == (1, 1)
    applied = table.apply_changes(frame[1:], op="gone", sequence="lsn", upserts=[False], deletes=[True])
    assert (applied.late, len(rows_of(table))) == (1, 1)


@pytest.mark.parametrize("profile", ["row_level", "delta_serializable"])
@pytest.mark.parametrize(("op", "at"), [("u", 1), ("d", 1), ("d", 3)])  # the table has no row 3 at first
def test_a_row_that_changed_meanwhile_is_a_lost_race(lake: Lake, op: str, at: int, profile: str) -> None:
    table = made(lake, f"race_{op}_{at}_{profile}", profile=profile)
    first = table.apply_changes([{"id": id_, "name": "a", "ts": 1, "op": "c"} for id_ in (1, 2)])
    table.apply_changes([{"id": at, "name": "b", "ts": 7, "op": "u"}])
    before = rows_of(table)
    rows = pa.table({"id": [at], "name": ["c"], "ts": [9], "op": [op]})

    def plan() -> list[Write]:
        return [plan_changes(table.refresh().view, rows, ChangeColumns("op", "ts")).write.at(first.commit.version)]

    with pytest.raises(ConflictError) as error:
        run_writes(lake, plan, on_conflict="fail")
    assert error.value.conflict.winner_version == table.refresh().meta.head_version
    assert rows_of(table) == before


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        ({"op": "x"}, "OPERATION_UNKNOWN", "row 2 of the changes has the operation 'x': upserts are c, r, u"),
        ({"op": None}, "OPERATION_UNKNOWN", "row 2 of the changes has the operation NULL"),
        ({"ts": None}, "SEQUENCE_INVALID", "row 2 of the changes has NULL in the sequence ts"),
        ({"id": None}, "NULL_NOT_ALLOWED", "row 2 of the changes has NULL in the key column id"),
        ({"note": "?"}, "COLUMN_UNKNOWN", "has no column note"),
        ({"name": 5}, "SCHEMA_MISMATCH", "name"),
    ],
)
def test_what_is_refused(lake: Lake, change: Row, reason: str, words: str) -> None:
    name = f"refused_{reason}_{len(words)}"
    table = made(lake, name)
    rows = [{"id": 1, "name": "a", "ts": 1, "op": "c"}, {"id": 2, "ts": 2, "op": "u", "name": "b", **change}]
    with pytest.raises(InputError, match=words) as error:
        table.apply_changes(rows)
    assert error.value.reason == reason
    assert not rows_of(table)


def test_what_is_refused_of_the_call(lake: Lake) -> None:
    table = made(lake, "calls")
    row = {"id": 1, "name": "a", "ts": 1, "op": "c"}
    for options, reason in (
        ({"op": "kind"}, "COLUMN_MISSING"),
        ({"sequence": "lsn"}, "COLUMN_MISSING"),
        ({"soft_delete": "name"}, "COLUMN_UNKNOWN"),
        ({"app_id": "a"}, "APP_VERSION_INVALID"),
    ):
        with pytest.raises(InputError) as error:
            table.apply_changes([row], **options)  # type: ignore[arg-type]
        assert error.value.reason == reason
    with pytest.raises(InputError, match="a sequence is a column of integers"):
        table.apply_changes([{**row, "lsn": 1.5}], sequence="lsn")
    with pytest.raises(InputError, match="row 1 of the changes has the operation NULL"):
        table.apply_changes([{**row, "op": None}])
    lake.create_table("cdc.no_key", "id bigint, ts bigint")
    with pytest.raises(InputError, match="has no primary key"):
        lake.table("cdc.no_key").apply_changes([{"id": 1, "ts": 1, "op": "c"}])
    assert not rows_of(table)
