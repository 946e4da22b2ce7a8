"""Keys that are unique across partitions, against a dict with one row a key; races, and doors that are closed."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from laketx import ConflictError, InputError, Lake, Table, connect
from laketx.branch import MergeRefusedError
from laketx.input_rows import arrow_rows
from metaservice.client import BlockedError, InvalidError, KeyScope, uuid7
from protos.laketx.v1 import common_pb2, transaction_pb2
from worker.arrow.write.input_rows import fitted
from worker.arrow.write.staged_rows import with_op, write_keyed
from worker.base.schema import UPSERT
from worker.commit.conflict_policies import OnConflict
from worker.commit.transaction import run_writes
from worker.commit.writes import Write
from worker.services.fsck import Fsck

PROFILES = ["maxcompute", "row_level", "delta_serializable", "delta_write_serializable"]
DAYS = ["a", "b", "c", None]
KEYS = 14
Row = dict[str, Any]
Rows = dict[int, Row]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("across")) as made:
        yield made


def made(lake: Lake, name: str, profile: str, *, buckets: int = 2, inline_rows: int = 1_000) -> Table:
    return lake.create_table(
        name,
        "id bigint, day string, n int",
        primary_key=["id"],
        partition_by=["day"],
        key_scope="table",
        buckets=buckets,
        profile=profile,
        properties={"write.inline.rows": str(inline_rows)},
    )


def found(table: Table, version: int | None = None) -> Rows:
    """The rows by their keys; each key is there once."""
    rows = table.to_arrow(version=version).to_pylist()
    assert len({row["id"] for row in rows}) == len(rows), rows
    return {row["id"]: row for row in rows}


# -- histories ---------------------------------------------------------------------------------------------------------


class History:
    """Writes at the newest version, and in transactions that others overtake, against a dict."""

    def __init__(self, lake: Lake, table: Table, chance: random.Random, profile: str) -> None:
        self.lake = lake
        self.profile = profile
        self.table = table
        self.chance = chance
        self.rows: Rows = {}
        self.states: dict[int, Rows] = {0: {}}
        self.late: list[tuple[Any, Callable[[Rows], None]]] = []
        self.lost = 0

    def some_rows(self) -> list[Row]:
        ids = self.chance.sample(range(KEYS), self.chance.randint(1, 4))
        return [{"id": one, "day": self.chance.choice(DAYS), "n": self.chance.randint(0, 99)} for one in ids]

    def step(self) -> None:
        match self.chance.choice(
            ["now"] * 5 + ["begin"] * 3 + ["end"] * 3 + ["compact", "restore", "truncate", "scope", "stream"]
        ):
            case "now":
                change, effect, _ = self.change()
                change(self.table)
                effect(self.rows)
            case "begin":
                if len(self.late) < 3:
                    self.begin()
            case "stream":
                self.stream()
            case "end":
                if self.late:
                    self.end()
            case "compact":
                self.table.compact(self.chance.choice(["minor", "major"]))
            case "restore":
                version = self.chance.choice(sorted(self.states))
                self.table.restore(version=version)
                self.rows = dict(self.states[version])
            case "truncate":
                day = self.chance.choice(DAYS)
                self.table.truncate(partition={"day": day})
                self.rows = {key: row for key, row in self.rows.items() if row["day"] != day}
            case _:
                self.overwrite()
        assert found(self.table) == self.rows
        keys = self.chance.sample(range(KEYS), 3)
        looked_up = {row["id"]: row for row in self.table.get(keys).to_pylist()}
        assert looked_up == {key: self.rows[key] for key in keys if key in self.rows}
        self.states[self.table.refresh().meta.head_version] = dict(self.rows)

    def change(self) -> tuple[Callable[[Any], Any], Callable[[Rows], None], bool]:
        """A change by keys, what it does to the rows, and whether it does nothing to those of now."""
        rows = self.some_rows()
        keys = [row["id"] for row in rows]
        key, day = keys[0], self.chance.choice(DAYS)
        kind = self.chance.choice(["upsert", "upsert", "upsert", "delete", "move", "merge"])

        def write(table: Any) -> None:
            match kind:
                case "delete":
                    table.delete(keys=keys)
                case "move":
                    table.update({"day": day and f"'{day}'"}, where=f"id = {key}")
                case "merge":
                    table.merge(rows, on="id").when_matched_update().when_not_matched_insert().execute()
                case _:
                    table.upsert(rows)

        def effect(state: Rows) -> None:
            if kind == "delete":
                for one in keys:
                    state.pop(one, None)
            elif kind != "move":
                state.update({row["id"]: row for row in rows})
            elif key in state:
                state[key] = {**state[key], "day": day}

        changed = {"delete": keys, "move": [key]}.get(kind)
        return write, effect, changed is not None and self.rows.keys().isdisjoint(changed)

    def begin(self) -> None:
        txn = self.lake.transaction()
        txn.__enter__()
        change, effect, is_idle = self.change()
        change(txn.table(self.table.name))
        if is_idle and self.profile == "delta_serializable":  # it writes nothing, so it stands at its read version
            effect = leave
        self.late.append((txn, effect))

    def end(self) -> None:
        txn, effect = self.late.pop(self.chance.randrange(len(self.late)))
        try:
            txn.__exit__(None, None, None)
        except ConflictError:
            self.lost += 1
        else:
            effect(self.rows)

    def stream(self) -> None:
        """Changes of a stream, some of them deletes; `n` is their sequence, which the table stores."""
        changes = [{**row, "op": self.chance.choice("ud")} for row in self.some_rows() + self.some_rows()]
        self.table.apply_changes(changes, op="op", sequence="n")
        for change in sorted(changes, key=lambda change: int(change["n"])):
            key = change["id"]
            if key in self.rows and self.rows[key]["n"] > change["n"]:
                continue  # late
            if change["op"] == "d":
                self.rows.pop(key, None)
            else:
                self.rows[key] = bare(change)

    def overwrite(self) -> None:
        rows = self.some_rows()
        days = {row["day"] for row in rows}
        elsewhere = [row for row in rows if self.rows.get(row["id"], row)["day"] not in days]
        if elsewhere:
            with pytest.raises(InputError, match="KEY_EXISTS"):
                self.table.overwrite(rows, partition="dynamic")
            return
        self.table.overwrite(rows, partition="dynamic")
        self.rows = {key: row for key, row in self.rows.items() if row["day"] not in days}
        self.rows |= {row["id"]: row for row in rows}


def leave(_rows: Rows) -> None:
    """What a change does that found no row of its keys."""


def play(lake: Lake, profile: str, seed: int, steps: int) -> History:
    chance = random.Random(f"{profile} {seed}")
    inline_rows = chance.choice([0, 1_000])
    name = f"h_{profile}_{seed}"
    history = History(
        lake, made(lake, name, profile, buckets=chance.choice([1, 3]), inline_rows=inline_rows), chance, profile
    )
    for _ in range(steps):
        history.step()
    while history.late:
        history.end()
        assert found(history.table) == history.rows
    for version, rows in history.states.items():
        assert found(history.table, version) == rows
    return history


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_key_has_one_row_at_every_version(lake: Lake, profile: str, seed: int) -> None:
    history = play(lake, profile, seed, 40)
    assert told(history.table, history.states) == history.rows


@pytest.mark.long
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("seed", range(100, 120))
def test_a_key_has_one_row_at_every_version_of_many_histories(lake: Lake, profile: str, seed: int) -> None:
    history = play(lake, profile, seed, 90)
    assert told(history.table, history.states) == history.rows


def told(table: Table, states: dict[int, Rows]) -> Rows:
    """The rows by the whole history as increments, in which each change of a key is one, also where its row moves."""
    rows: Rows = {}
    by_version: dict[int, list[Row]] = {}
    for one in table.to_arrow(since=0, mode="log").to_pylist():
        by_version.setdefault(one["_commit_version"], []).append(one)
    for version, changes in sorted(by_version.items()):
        before = {one["id"]: bare(one) for one in changes if one["_change_type"] in ("delete", "update_preimage")}
        after = {one["id"]: bare(one) for one in changes if one["_change_type"] in ("insert", "update_postimage")}
        updated = {one["id"] for one in changes if one["_change_type"] == "update_postimage"}
        assert len(before) + len(after) == len(changes)
        assert {key: rows[key] for key in before} == before
        assert updated == before.keys() & after.keys()
        rows = {key: row for key, row in rows.items() if key not in before} | after
        if version in states:
            assert rows == states[version]
    return rows


def bare(row: Row) -> Row:
    return {name: row[name] for name in ("id", "day", "n")}


# -- races -------------------------------------------------------------------------------------------------------------


def overtaken(lake: Lake, table: Table, mine: Row, theirs: Row) -> ConflictError | None:
    """Two upserts that began at one version; the error of the second to commit."""
    txn = lake.transaction()
    txn.__enter__()
    txn.table(table.name).upsert([mine])
    table.upsert([theirs])
    try:
        txn.__exit__(None, None, None)
    except ConflictError as error:
        return error
    return None


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("is_there", [False, True])
def test_two_writers_of_one_key_never_put_it_into_two_partitions(lake: Lake, profile: str, *, is_there: bool) -> None:
    table = made(lake, f"race_{profile}_{is_there}", profile)
    table.upsert([{"id": 1, "day": "z", "n": 0}] if is_there else [{"id": 2, "day": "z", "n": 0}])
    lost = overtaken(lake, table, {"id": 1, "day": "a", "n": 1}, {"id": 1, "day": "b", "n": 2})
    assert lost is not None
    conflict = lost.conflict
    assert (conflict.winner_version, conflict.advice) == (2, common_pb2.ADVICE_RERUN)
    if not is_there:  # else both write a tombstone to one partition, which the rules of every table see
        assert conflict.rule == common_pb2.CONFLICT_RULE_CONCURRENT_KEY
        assert conflict.partition == "day=b"
        assert "unique across partitions" in str(lost)
        assert bool(conflict.rows) == (profile == "row_level")
    assert found(table)[1] == {"id": 1, "day": "b", "n": 2}


@pytest.mark.parametrize("profile", PROFILES)
def test_writers_of_different_buckets_both_commit(lake: Lake, profile: str) -> None:
    table = made(lake, f"apart_{profile}", profile, buckets=64)
    assert overtaken(lake, table, {"id": 1, "day": "a", "n": 1}, {"id": 2, "day": "b", "n": 2}) is None
    assert found(table).keys() == {1, 2}


@pytest.mark.parametrize("profile", PROFILES)
def test_different_keys_of_one_bucket_commute_where_changes_name_them(lake: Lake, profile: str) -> None:
    table = made(lake, f"bucket_{profile}", profile, buckets=1)
    lost = overtaken(lake, table, {"id": 1, "day": "a", "n": 1}, {"id": 2, "day": "b", "n": 2})
    assert (lost is None) == (profile == "row_level")


@pytest.mark.parametrize("profile", PROFILES)
def test_an_upsert_that_looked_up_before_a_restore_loses(lake: Lake, profile: str) -> None:
    table = made(lake, f"restored_{profile}", profile, buckets=1)
    table.upsert([{"id": 1, "day": "a", "n": 1}])
    table.delete(keys=[1])
    txn = lake.transaction()
    txn.__enter__()
    txn.table(table.name).upsert([{"id": 1, "day": "b", "n": 2}])
    table.restore(version=1)
    with pytest.raises(ConflictError):
        txn.__exit__(None, None, None)
    assert found(table) == {1: {"id": 1, "day": "a", "n": 1}}


@pytest.mark.parametrize("profile", PROFILES)
def test_writers_in_threads_leave_each_key_once(lake: Lake, profile: str) -> None:
    table = made(lake, f"threads_{profile}", profile)
    policies: list[OnConflict | None] = [None, "rerun"]
    errors: list[BaseException] = []

    def write(number: int) -> None:
        own, chance = lake.table(table.name), random.Random(number)
        for at in range(4):
            rows = [{"id": key, "day": chance.choice(DAYS), "n": number * 10 + at} for key in range(3)]
            try:
                own.upsert(rows, on_conflict=policies[number % 2])
            except ConflictError:
                continue  # too many others
            except BaseException as error:  # noqa: BLE001 - told below
                errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not errors
    for version in range(table.refresh().meta.head_version + 1):
        assert found(table, version).keys() <= {0, 1, 2}
    rows = found(table)
    assert rows.keys() == {0, 1, 2}
    assert len({row["n"] for row in rows.values()}) == 1  # all of the last writer


def test_the_writer_of_single_rows_keeps_the_last_of_a_key(lake: Lake) -> None:
    table = made(lake, "single", "maxcompute")
    with table.writer(flush_ms=500) as writer:
        for day in ("a", "b", "c"):
            writer.write({"id": 1, "day": day, "n": 1})
    assert found(table) == {1: {"id": 1, "day": "c", "n": 1}}


def test_one_write_has_a_key_once(lake: Lake) -> None:
    table = made(lake, "twice", "maxcompute")
    rows = [{"id": 1, "day": "a", "n": 1}, {"id": 1, "day": "b", "n": 2}]
    for write in (table.upsert, table.overwrite):
        with pytest.raises(InputError, match="KEY_TWICE"):
            write(rows)
    table.upsert([{"id": 1, "day": "a", "n": 7}])
    merge = table.merge([{"id": 2, "day": "b", "n": 7}], on="n").when_not_matched_insert()
    merge.execute()
    assert found(table) == {1: {"id": 1, "day": "a", "n": 7}}


def test_a_merge_that_inserts_a_key_of_another_partition_moves_it(lake: Lake) -> None:
    table = made(lake, "merged", "row_level")
    table.upsert([{"id": 1, "day": "a", "n": 1}, {"id": 2, "day": "a", "n": 2}])
    table.merge([{"id": 1, "day": "b", "n": 9}], on=["day", "id"]).when_not_matched_insert().execute()
    assert found(table) == {1: {"id": 1, "day": "b", "n": 9}, 2: {"id": 2, "day": "a", "n": 2}}


# -- doors -------------------------------------------------------------------------------------------------------------


def test_a_writer_that_looks_no_keys_up_is_refused(lake: Lake) -> None:
    table = made(lake, "closed", "delta_write_serializable")
    client = lake.client
    for operation in ("INSERT", "OVERWRITE", "UPDATE", "DELETE", "MERGE", "CUSTOM"):
        number = common_pb2.Operation.Value(f"OPERATION_{operation}")
        intent = transaction_pb2.TableIntent(table_id=table.table_id, operation=number)
        with pytest.raises(BlockedError, match="KEYS_NOT_LOOKED_UP"):
            client.begin([intent])
    txn_id = uuid7()
    file = common_pb2.DataFile(path=f"{txn_id}/x", rows=1, bytes=1, kind=common_pb2.FILE_KIND_DELTA)
    file.partition.values.add(column="day", value=common_pb2.Value(text="a"))
    with pytest.raises(BlockedError, match="KEYS_NOT_LOOKED_UP"):
        client.append(table.table_id, [file], txn_id=txn_id)
    [batched] = client.commit_batch(
        [transaction_pb2.AppendRequest(txn_id=txn_id, table_id=table.table_id, files=[file])]
    )
    assert "KEYS_NOT_LOOKED_UP" in str(batched)
    custom = transaction_pb2.TableIntent(table_id=table.table_id, operation=common_pb2.OPERATION_CUSTOM)
    with client.begin([custom], features=["key_lookups"]) as txn, pytest.raises(InvalidError, match="KEY_SPANS"):
        txn.commit([common_pb2.Change(table_id=table.table_id)])
    assert table.count() == 0


def test_files_of_a_lost_upsert_are_not_taken_over(lake: Lake) -> None:
    table = made(lake, "adopted", "maxcompute", buckets=1)
    lost = overtaken(lake, table, {"id": 1, "day": "a", "n": 1}, {"id": 1, "day": "b", "n": 2})
    assert lost is not None
    listed = lake.client.list_transactions(state=transaction_pb2.TRANSACTION_STATE_CONFLICT, table_id=table.table_id)
    [failed] = listed
    intent = transaction_pb2.TableIntent(table_id=table.table_id, operation=common_pb2.OPERATION_INSERT)
    with pytest.raises(BlockedError, match="KEYS_NOT_LOOKED_UP"):
        lake.client.begin([intent], adopt_from=failed.txn_id, features=["key_lookups"])


def test_partitions_are_not_restored_alone(lake: Lake) -> None:
    table = made(lake, "parts", "maxcompute")
    table.upsert([{"id": 1, "day": "a", "n": 1}])
    table.upsert([{"id": 1, "day": "b", "n": 2}])
    with pytest.raises(InvalidError, match="KEY_SPANS_PARTITIONS"):
        table.restore(version=1, partition={"day": "a"})
    assert found(table) == {1: {"id": 1, "day": "b", "n": 2}}


def test_fsck_finds_a_key_that_a_writer_wrote_twice(lake: Lake) -> None:
    table = made(lake, "lied", "maxcompute")
    table.upsert([{"id": one, "day": "a", "n": one} for one in range(3)])
    run_writes(lake, lambda: [careless(table.refresh(), [{"id": 1, "day": "b", "n": 5}])])
    words = [str(one) for one in Fsck(lake.client, lake.warehouse, table.refresh().meta, all_versions=True).run()]
    assert words == ["KEY_TWICE id=1 version=2 rows=2"]
    table.upsert([{"id": 1, "day": "c", "n": 6}])
    assert found(table)[1] == {"id": 1, "day": "c", "n": 6}
    assert not list(Fsck(lake.client, lake.warehouse, table.refresh().meta).run())


def careless(table: Table, rows: list[Row]) -> Write:
    """A write that says that it looks its keys up, and doesn't."""
    delta = with_op(fitted(arrow_rows(rows, table.meta), table.meta), UPSERT)
    return Write(
        table.view,
        common_pb2.OPERATION_INSERT,
        lambda stage: write_keyed(stage, delta, is_base=False),
        looks_keys_up=True,
    )


# -- branches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES)
def test_a_merge_of_a_branch_doesnt_put_a_key_into_two_partitions(lake: Lake, profile: str) -> None:
    table = made(lake, f"forked_{profile}", profile, buckets=1)
    table.upsert([{"id": 1, "day": "a", "n": 1}])
    branch = lake.branch(f"b_{profile}")
    lake.table(f"{table.name}@b_{profile}").upsert([{"id": 2, "day": "b", "n": 2}, {"id": 1, "day": "b", "n": 2}])
    table.upsert([{"id": 2, "day": "c", "n": 3}])
    with pytest.raises(MergeRefusedError, match="unique across partitions"):
        branch.merge()
    assert found(table) == {1: {"id": 1, "day": "a", "n": 1}, 2: {"id": 2, "day": "c", "n": 3}}


# -- get ---------------------------------------------------------------------------------------------------------------


def test_rows_are_found_by_their_keys(lake: Lake) -> None:
    table = made(lake, "got", "maxcompute", inline_rows=0)
    table.upsert([{"id": one, "day": DAYS[one % 4], "n": one} for one in range(50)])
    table.upsert([{"id": one, "day": "moved", "n": -one} for one in range(0, 50, 7)])
    rows = found(table)
    days: list[list[Any]] = [
        [{"id": 3, "day": None}],
        [{"id": 8, "day": None}],
        [{"id": 7, "day": "moved"}, {"id": 8, "day": "moved"}],
    ]
    for keys in ([], [3], [7, 8, 99], range(60), [{"id": 7}], *days):
        wanted = [one if isinstance(one, dict) else {"id": one} for one in keys]
        expected = [row for row in rows.values() if any(one.items() <= row.items() for one in wanted)]
        answer = table.get(keys).to_pylist()
        assert sorted(answer, key=lambda row: row["id"]) == sorted(expected, key=lambda row: row["id"])
    assert table.get([7], columns=["N"]).to_pylist() == [{"n": -7}]


@pytest.mark.parametrize("inline_rows", [0, 10_000])
def test_many_keys_of_several_columns_are_looked_up(lake: Lake, inline_rows: int) -> None:
    table = lake.create_table(
        f"many_{inline_rows}",
        "a bigint, b string, day date, n int",
        primary_key=["a", "b"],
        partition_by=["day"],
        key_scope="table",
        buckets=3,
        profile="row_level",
        properties={"write.inline.rows": str(inline_rows)},
    )
    days = [date(2026, 11, 1), date(2026, 11, 2), None]
    rows: list[Row] = [{"a": at - 900, "b": f"ü{at % 7}", "day": days[at % 3], "n": at} for at in range(1_800)]
    table.upsert(rows)
    moved = [{**row, "day": days[(at + at % 2) % 3], "n": -at} for at, row in enumerate(rows) if at >= 300]
    moved.append({"a": 5_000, "b": "x", "day": None, "n": 1})
    table.upsert(moved)
    expected = {(row["a"], row["b"]): row for row in [*rows, *moved]}
    answer = table.to_arrow().to_pylist()
    assert len(answer) == len(expected)
    assert {(row["a"], row["b"]): row for row in answer} == expected
    keys = [{"a": a, "b": b} for a, b in expected][100:1_400]
    assert sorted(row["n"] for row in table.get(keys).to_pylist()) == sorted(
        expected[key["a"], key["b"]]["n"] for key in keys
    )


@pytest.mark.parametrize("count", [2, 1_200])
@pytest.mark.parametrize("scope", ["table", "partition"])
def test_keys_in_the_partition_of_null_are_looked_up(lake: Lake, scope: KeyScope, count: int) -> None:
    name = f"s.null_{scope}_{count}"
    table = lake.create_table(name, "id int, day string", primary_key=["id"], partition_by=["day"], key_scope=scope)
    rows = [{"id": at, "day": "a" if at % 3 else None} for at in range(count)]
    table.upsert(rows)
    assert sorted(table.get(rows).to_pylist(), key=lambda row: int(row["id"])) == rows
    assert not len(table.get([{"id": 0, "day": "a"}, {"id": 1, "day": None}]))
    table.delete(keys=rows)
    assert not table.count()


@pytest.mark.parametrize("scope", ["table", "partition"])
def test_keys_longer_than_a_condition_takes_are_looked_up(lake: Lake, scope: KeyScope) -> None:
    columns, longest = "id string, day string, n int", "x" * 5_000
    table = lake.create_table(
        f"s.long_{scope}", columns, primary_key=["id"], partition_by=["day"], key_scope=scope, buckets=1
    )
    table.upsert([{"id": longest, "day": "a", "n": 1}, {"id": f"{longest}y", "day": "a", "n": 1}])
    table.upsert([{"id": longest, "day": "a", "n": 2}, {"id": "z", "day": "a", "n": 2}])
    assert table.get([{"id": longest}]).to_pylist() == [{"id": longest, "day": "a", "n": 2}]
    table.merge([{"id": "z", "n": 3}, {"id": longest, "n": 3}], on="id").when_matched_update().execute()
    table.apply_changes([{"op": "u", "id": f"{longest}y", "day": "a", "n": 4}], sequence="n")
    assert {row["id"]: row["n"] for row in table.to_arrow().to_pylist()} == {longest: 3, f"{longest}y": 4, "z": 3}
    table.delete(keys=[longest])
    assert {row["id"] for row in table.to_arrow().to_pylist()} == {f"{longest}y", "z"}


def test_keys_of_many_columns_are_looked_up(lake: Lake) -> None:
    names = [f"k{at}" for at in range(12)]
    table = lake.create_table(
        "s.wide",
        ", ".join(f"{name} int" for name in names) + ", day string",
        primary_key=names,
        partition_by=["day"],
        key_scope="table",
    )
    keys = [{name: at * place for place, name in enumerate(names, 1)} for at in range(900)]
    for day in "ab":
        table.upsert([{**key, "day": day} for key in keys])
    assert {row["day"] for row in table.get(keys).to_pylist()} == {"b"}
    assert table.count() == len(keys)
    table.delete(keys=keys[1:])
    assert table.to_arrow().to_pylist() == [{**keys[0], "day": "b"}]


ONE_KEY: dict[str, list[Any]] = {
    "bigint": [0, 7, -(2**63)],
    "string": ["", "ä", "a'"],
    "binary": [b"", b"\0", b"a"],
    "date": [date(1969, 12, 31), date(2026, 11, 1)],
    "timestamp": [datetime(2026, 11, 1, microsecond=at, tzinfo=UTC) for at in range(3)],
    "decimal(10,2)": [Decimal("-0.01"), Decimal("0.00"), Decimal("1.10")],
    "boolean": [True, False],
}


def test_one_key_is_found_whatever_its_types(lake: Lake) -> None:
    for at, (kind, values) in enumerate(ONE_KEY.items()):
        table = lake.create_table(f"one_{at}", f"a {kind}, b int, n int", primary_key=["a", "b"], buckets=1)
        rows = [{"a": value, "b": b, "n": at} for at, value in enumerate(values) for b in (1, 2)]
        table.upsert(rows)
        for row in rows:
            assert table.get([{"a": row["a"], "b": row["b"]}]).to_pylist() == [row]


def test_other_keyed_tables_find_rows_too(lake: Lake) -> None:
    plain = lake.create_table("plain", "a bigint, b string, n int", primary_key=["a", "b"], buckets=4)
    plain.upsert([{"a": one, "b": str(one % 3), "n": one} for one in range(20)])
    assert plain.get([{"a": 4, "b": "1"}, {"a": 4, "b": "2"}]).to_pylist() == [{"a": 4, "b": "1", "n": 4}]
    days = lake.create_table(
        "days", "id bigint, day string", primary_key=["id"], partition_by=["day"], key_scope="partition"
    )
    days.upsert([{"id": 1, "day": "a"}, {"id": 1, "day": "b"}])
    assert sorted(row["day"] for row in days.get([1]).to_pylist()) == ["a", "b"]
    log = lake.create_table("log", "id bigint")
    with pytest.raises(InputError, match="KEY_MISSING"):
        log.get([1])
    with pytest.raises(InputError, match="COLUMN_UNKNOWN"):
        days.get([1], columns=["hour"])
