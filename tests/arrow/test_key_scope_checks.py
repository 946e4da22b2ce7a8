"""A table that exists gets a key across partitions: while it is written to, checked, restored, and branched."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from laketx import ConflictError, InputError, Lake, Table, connect
from laketx.branch import MergeRefusedError
from laketx.input_rows import arrow_rows
from metaservice.client import BlockedError, InvalidError, StaleError, key_scope, keys_checked
from protos.laketx.v1 import common_pb2
from worker.arrow.write.input_rows import fitted
from worker.arrow.write.staged_rows import with_op, write_keyed
from worker.base.schema import UPSERT
from worker.commit.stages import Stage, Staged
from worker.commit.transaction import run_writes
from worker.commit.writes import Write
from worker.services.fsck import Fsck
from worker.services.key_scope_checks import KeyScopeChecker

PROFILES = ["maxcompute", "row_level", "delta_serializable"]
DAYS = ["a", "b", None]
Row = dict[str, Any]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("scopes")) as made:
        yield made


def made(lake: Lake, name: str, *, profile: str = "row_level", buckets: int = 4) -> Table:
    return lake.create_table(
        name,
        "id bigint, day string, n int",
        primary_key=["id"],
        partition_by=["day"],
        key_scope="partition",
        buckets=buckets,
        profile=profile,
    )


def set_scope(table: Table, scope: str = "table") -> Table:
    wanted = common_pb2.Alteration(set_properties={"key.scope": scope})
    table.view.client.alter_table(table.table_id, wanted)
    return table.refresh()


def advance(table: Table, check: int, begin: int, end: int, version: int | None = None) -> None:
    """What a worker does that has checked these bucket numbers at a version."""
    at = table.refresh().meta.head_version if version is None else version
    table.view.client.advance_key_check(table.table_id, check, begin, end, version=at)


def check(lake: Lake, table: Table) -> Table:
    """One pass of a worker that has just started."""
    KeyScopeChecker(lake, now_s=lambda: 0.0).run_once()
    return table.refresh()


def is_promised(table: Table) -> bool:
    return key_scope(table.refresh().meta) == "table"


def rows_of(table: Table, version: int | None = None) -> list[Row]:
    rows: list[Row] = table.to_arrow(version=version).to_pylist()
    return sorted(rows, key=lambda row: (row["id"], str(row["day"])))


def twice(table: Table, version: int | None = None) -> set[int]:
    counts = Counter(row["id"] for row in rows_of(table, version))
    return {key for key, count in counts.items() if count > 1}


def row(key: int, day: str | None, n: int = 0) -> Row:
    return {"id": key, "day": day, "n": n}


# -- histories ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES)
def test_after_the_promise_no_version_has_a_key_twice(lake: Lake, profile: str) -> None:
    chance = random.Random(f"scope {profile}")
    table = made(lake, f"history_{profile}", profile=profile)
    partitions: dict[tuple[int, str | None], int] = {}
    for at in range(8):
        rows = {(chance.randrange(12), chance.choice(DAYS)): at for _ in range(3)}
        table.upsert([row(key, day, n) for (key, day), n in rows.items()])
        partitions |= rows
    assert twice(table)
    set_scope(table)
    for at in range(100, 200):
        key, day = chance.randrange(12), chance.choice(DAYS)
        if chance.random() < 0.3:
            table.delete(keys=[key])
            partitions = {place: n for place, n in partitions.items() if place[0] != key}
        elif chance.random() < 0.3:
            table.update({"n": at}, where=f"id = {key}") if key not in twice(table) else table.upsert([row(key, day)])
            partitions = {place: n for place, n in partitions.items() if place[0] != key} | {
                (one["id"], one["day"]): one["n"] for one in rows_of(table) if one["id"] == key
            }
        else:
            table.upsert([row(key, day, at)])
            partitions = {place: n for place, n in partitions.items() if place[0] != key} | {(key, day): at}
        if at % 5 == 0:
            table = check(lake, table)
        assert {(one["id"], one["day"]): one["n"] for one in rows_of(table)} == partitions
        if is_promised(table):
            break
    assert is_promised(table)
    begin = table.refresh().meta.head_version
    table.upsert([row(key, chance.choice(DAYS), 1) for key in range(12)])
    assert [twice(table, version) for version in range(begin, table.refresh().meta.head_version + 1)] == [set()] * 2
    assert not list(Fsck(lake.client, lake.warehouse, table.meta, all_versions=True).run())


def test_a_check_waits_for_keys_in_two_partitions_and_goes_on(lake: Lake) -> None:
    table = made(lake, "waits")
    table.upsert([row(key, "a") for key in range(40)] + [row(7, "b"), row(8, "b")])
    checked = [keys_checked(set_scope(table).meta)]
    for keys in ([7], [8]):
        table = check(lake, table)
        checked.append(keys_checked(table.meta))
        assert not is_promised(table)
        table.delete(f"id = {keys[0]} AND day = 'b'")
    table = check(lake, table)
    assert is_promised(table)
    assert keys_checked(table.meta) is None
    known = [one[1] for one in checked if one is not None]
    assert known == sorted(known)
    assert known[0] == 0
    assert check(lake, table).meta.head_version == table.meta.head_version


def test_a_worker_that_ends_leaves_what_it_has_checked(lake: Lake) -> None:
    table = made(lake, "ended", buckets=6)
    table.upsert([row(key, "a") for key in range(60)])
    table = set_scope(table)

    class Ended(KeyScopeChecker):
        @property
        def is_stopping(self) -> bool:
            return (keys_checked(table.refresh().meta) or (1, 0))[1] >= 3

    Ended(lake, stored_each_s=0.0).run_once()
    assert keys_checked(table.refresh().meta) == (1, 3)
    before = table.refresh().meta.head_version
    assert is_promised(check(lake, table))
    assert table.meta.head_version == before + 1


@pytest.mark.long
def test_a_worker_is_killed_in_mid_check_while_a_writer_writes(tmp_path: Path) -> None:
    """A kill at each stage; the next worker goes on after the last bucket number that is stored."""
    with connect(tmp_path / "lake") as lake:
        table = made(lake, "killed", buckets=64)
        table.upsert([row(key, DAYS[key % 3]) for key in range(5_000)])
        table.upsert([row(key, DAYS[(key + 1) % 3]) for key in range(0, 5_000, 1_000)])
        set_scope(table)
        reached = [0]
        for _ in range(5):
            worker = subprocess.Popen([sys.executable, "-c", CHECKS, str(tmp_path / "lake")])
            deadline = time.monotonic() + 60.0
            while (
                checked_buckets(table) < min(reached[-1] + 4, 64) and not twice(table) and time.monotonic() < deadline
            ):
                table.upsert([row(reached[-1] * 10 + at, DAYS[at % 3], at) for at in range(20)])
            worker.kill()
            worker.wait()
            reached.append(checked_buckets(table))
            table.upsert([row(key, "c") for key in twice(table)])
        assert reached == sorted(reached)
        assert reached[-1] > 0
        assert is_promised(check(lake, table))
        assert not twice(table)


def checked_buckets(table: Table) -> int:
    meta = table.refresh().meta
    checked = keys_checked(meta)
    return meta.buckets if checked is None else checked[1]


CHECKS = """
import sys
from laketx import connect
from worker.services.key_scope_checks import KeyScopeChecker
with connect(sys.argv[1]) as lake:
    while True:
        KeyScopeChecker(lake, now_s=lambda: 0.0, stored_each_s=0.0).run_once()
"""


# -- writers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES)
def test_a_writer_from_before_the_change_begins_again(lake: Lake, profile: str) -> None:
    table = made(lake, f"older_{profile}", profile=profile)
    table.upsert([row(1, "a")])
    table = table.refresh()
    overtaken = lake.transaction()
    overtaken.__enter__()
    overtaken.table(table.name).upsert([row(1, "b")])
    delta = with_op(fitted(arrow_rows([row(1, "b")], table.meta), table.meta), UPSERT)

    def stage(stage: Stage) -> Staged:
        set_scope(table)
        return write_keyed(stage, delta, is_base=False)

    older = Write(table.view, common_pb2.OPERATION_INSERT, stage)
    with pytest.raises(ConflictError, match="settings that writers rely on"):
        run_writes(lake, lambda: [older], on_conflict="fail")
    with pytest.raises(BlockedError, match="KEYS_NOT_LOOKED_UP"):
        overtaken.__exit__(None, None, None)
    assert rows_of(table) == [row(1, "a")]
    table.upsert([row(1, "b")])
    assert rows_of(table) == [row(1, "b")]


def test_writes_of_keys_that_stand_twice(lake: Lake) -> None:
    table = made(lake, "doubles")
    table.upsert([row(1, "a"), row(1, "b"), row(2, "a"), row(2, "b"), row(3, "a"), row(3, "b")])
    table = set_scope(table)
    before = rows_of(table)
    with pytest.raises(InputError, match="KEY_EXISTS"):
        table.update({"day": "'c'"}, where="id = 1")
    with pytest.raises(InputError, match="KEY_EXISTS"):
        table.update({"day": "'b'"}, where="id = 1 AND day = 'a'")
    with pytest.raises(InputError, match="KEY_TWICE"):
        table.apply_changes([{**row(1, "c"), "op": "u", "at": 1}, {**row(9, "c"), "op": "d", "at": 2}], sequence="at")
    assert rows_of(table) == before
    assert len(table.get([1])) == 2
    table.upsert([row(1, "c")])
    table.delete(keys=[2])
    assert rows_of(table) == [row(1, "c"), row(3, "a"), row(3, "b")]


# -- what the service refuses ------------------------------------------------------------------------------------------


def test_the_scope_changes_only_to_the_table(lake: Lake) -> None:
    table = made(lake, "steps", buckets=2)
    table.upsert([row(1, "a")])
    with pytest.raises(StaleError, match="KEY_CHECK_ENDED"):
        advance(table, 1, 0, 2)
    table = set_scope(set_scope(table))
    assert keys_checked(table.meta) == (1, 0)
    table = set_scope(table, "partition")  # given up
    table.upsert([row(1, "b")])
    table = set_scope(table)
    begun = table.meta.head_version
    for check_number, first, end, version in (
        (1, 0, 2, begun),  # an older check
        (3, 0, 2, begun),
        (2, 0, 3, begun),  # more buckets than there are
        (2, 0, 0, begun),
        (2, 1, 2, begun),  # not the next bucket
        (2, -1, 1, begun),
        (2, 0, 2, begun - 1),  # rows of before this check
        (2, 0, 2, begun + 1),  # rows of nobody
        (2, 0, 2, -1),
    ):
        with pytest.raises(StaleError, match="KEY_CHECK_ENDED"):
            advance(table, check_number, first, end, version)
    assert table.refresh().meta.head_version == begun
    assert keys_checked(check(lake, table).meta) is not None
    table.upsert([row(1, "c")])
    table = check(lake, table)
    assert is_promised(set_scope(table))
    with pytest.raises(BlockedError, match="PROPERTY_FIXED"):
        set_scope(table, "partition")


def test_no_restore_brings_keys_back_twice(lake: Lake) -> None:
    table = made(lake, "restored", buckets=1)
    table.upsert([row(1, "a")])
    table.upsert([row(1, "b")])
    table = set_scope(table)
    table.upsert([row(1, "c")])
    table = check(lake, table)
    promised = table.meta.head_version
    table.upsert([row(1, "d")])
    for version in range(promised):
        with pytest.raises(InvalidError, match="KEY_SPANS_PARTITIONS"):
            table.restore(version=version)
    table.restore(version=promised)
    assert rows_of(table) == [row(1, "c")]


def test_a_branch_from_before_the_change_isnt_merged_after_it(lake: Lake) -> None:
    table = made(lake, "branched", buckets=1)
    table.upsert([row(1, "a")])
    branch = lake.branch("early")
    early = lake.table("branched@early")
    early.upsert([row(1, "b")])
    with pytest.raises(BlockedError, match="KEY_SCOPE_ON_BRANCH"):
        set_scope(early)
    table = set_scope(table)
    later = lake.branch("later")
    with pytest.raises(BlockedError, match="KEY_SCOPE_ON_BRANCH"):
        advance(lake.table("branched@later"), 1, 0, 1)
    lake.table("branched@later").upsert([row(1, "d")])
    assert is_promised(check(lake, table))
    with pytest.raises(MergeRefusedError):
        branch.merge()
    later.merge()
    assert rows_of(table.refresh()) == [row(1, "d")]


def test_increments_over_the_promise(lake: Lake) -> None:
    table = made(lake, "increments", buckets=1)
    table.upsert([row(1, "a"), row(1, "b")])
    begin = table.refresh().meta.head_version
    table = set_scope(table)
    table.delete("id = 1 AND day = 'a'")
    table = check(lake, table)
    promised = table.meta.head_version
    table.upsert([row(1, "c", 5)])
    end = table.refresh().meta.head_version
    whole = table.to_arrow(since=begin, until=end, mode="changes").to_pylist()
    assert sorted((one["_change_type"], one["day"]) for one in whole) == [
        ("delete", "a"),
        ("delete", "b"),
        ("insert", "c"),
    ]
    since = table.to_arrow(since=promised, until=end, mode="changes").to_pylist()
    assert [(one["_change_type"], one["day"]) for one in since] == [("update_preimage", "b"), ("update_postimage", "c")]
