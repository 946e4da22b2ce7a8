"""Changes of columns on a branch and in its parent: a merge takes both, and every version reads its own columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from laketx import Lake, MergeRefusedError, connect
from laketx.table import Table
from protos.laketx.v1 import common_pb2

PROFILES = ("maxcompute", "row_level", "delta_serializable", "delta_write_serializable")
QUICK = (("maxcompute", "refresh"), ("row_level", "merge"))
EACH = [
    pytest.param(profile, back, marks=() if (profile, back) in QUICK else pytest.mark.long)
    for profile in PROFILES
    for back in ("merge", "refresh")
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("lake")) as lake:
        yield lake


def put(table: Table, rows: list[dict[str, Any]]) -> None:
    table.insert(rows)  # type: ignore[arg-type]


def rows_of(table: Table, version: int | None = None) -> list[dict[str, Any]]:
    return sorted(table.to_arrow(version=version).to_pylist(), key=lambda row: int(row["id"]))


def ids_of(table: Table) -> dict[str, int]:
    return {column.name: column.column_id for column in table.refresh().meta.columns}


def reasons(lake: Lake, branch: str) -> list[tuple[str, str]]:
    with pytest.raises(MergeRefusedError) as caught:
        lake.branch(branch).merge()
    return [(one.name, one.reason) for one in caught.value.tables]


@pytest.mark.parametrize(("profile", "back"), EACH)
def test_rows_written_under_columns_of_both_sides_read_right(lake: Lake, profile: Any, back: str) -> None:
    key = {"primary_key": ["id"], "buckets": 1} if back == "merge" else {}
    name = f"{profile}_{back}.t"
    table = lake.create_table(name, "id bigint, pay int, gone string", profile=profile, **key)  # type: ignore[arg-type]
    put(table, [{"id": 1, "pay": 10, "gone": "x"}])
    branch = lake.branch(f"{profile}-{back}")
    fork = branch.table(name)
    fork.add_columns("note string")
    put(fork, [{"id": 2, "pay": 20, "gone": "y", "note": "mine"}])
    fork.rename_column("pay", "salary")
    put(fork, [{"id": 3, "salary": 30, "note": "again"}])
    table.add_columns("mark string")
    table.drop_column("gone")
    put(table, [{"id": 4, "pay": 40, "mark": "theirs"}])
    branch.merge() if back == "merge" else branch.refresh()
    merged = (lake if back == "merge" else branch).table(name)
    assert [column.name for column in merged.meta.columns] == ["id", "salary", "mark", "note"]
    assert rows_of(merged) == [
        {"id": 1, "salary": 10, "note": None, "mark": None},
        {"id": 2, "salary": 20, "note": "mine", "mark": None},
        {"id": 3, "salary": 30, "note": "again", "mark": None},
        {"id": 4, "salary": 40, "note": None, "mark": "theirs"},
    ]
    head = merged.meta.head_version
    assert rows_of(merged, head - 4)[1:] == [{"id": 4, "pay": 40, "mark": "theirs"}]
    assert rows_of(merged, head - 2)[1] == {"id": 2, "pay": 20, "note": "mine", "mark": None}
    assert rows_of(merged, 1) == [{"id": 1, "pay": 10, "gone": "x"}]
    merged.add_columns("late string")
    assert len(set(ids_of(merged).values())) == len(ids_of(merged))
    put(merged, [{"id": 5, "late": "z"}])
    merged.compact("major")
    assert [(row["id"], row["note"], row["late"]) for row in rows_of(merged)] == [
        (1, None, None), (2, "mine", None), (3, "again", None), (4, None, None), (5, None, "z"),
    ]  # fmt: skip


def test_what_both_sides_changed_is_listed(lake: Lake) -> None:
    table = lake.create_table("both.t", "id bigint, a int, b int")
    plain = lake.create_table("both.u", "id bigint")
    branch = lake.branch("both")
    fork, other = branch.table("both.t"), branch.table("both.u")
    fork.rename_column("a", "x")
    other.add_columns("mark int")
    plain.add_columns("Mark int")
    table.rename_column("a", "y")
    assert reasons(lake, "both") == [("both.t", "MERGE_COLUMN_CHANGED"), ("both.u", "MERGE_COLUMN_EXISTS")]
    plain.rename_column("Mark", "sign")
    table.rename_column("y", "a")
    branch.merge()
    assert [list(ids_of(lake.table(name))) for name in ("both.t", "both.u")] == [
        ["id", "x", "b"],
        ["id", "sign", "mark"],
    ]


def test_a_change_of_a_profile_is_no_change_of_columns_alone(lake: Lake) -> None:
    table = lake.create_table("profile.t", "id bigint")
    branch = lake.branch("profile")
    branch.table("profile.t").append([{"id": 1}])
    lake.client.alter_table(table.table_id, common_pb2.Alteration(profile="row_level"))
    assert reasons(lake, "profile") == [("profile.t", "METADATA_CHANGED")]


def kept(table: Table) -> list[int]:
    return [row["id"] for row in rows_of(table)]


def test_reads_on_a_branch_mean_their_columns_whatever_the_names(lake: Lake) -> None:
    """Under `row_level` a branch's DELETE is judged by what it read: columns by their ids, on both sides' names."""
    schema, rows = "id bigint, a int, b int", [{"id": 1, "a": 1, "b": 9}, {"id": 2, "a": 9, "b": 1}]
    tables = [
        lake.create_table(f"reads.{name}", schema, primary_key=["id"], buckets=1, profile="row_level")
        for name in ("mine", "still", "swapped", "gone")
    ]
    for table in tables:
        put(table, rows)
    branch = lake.branch("reads")
    mine, still, swapped, gone = (branch.table(table.name) for table in tables)
    mine.rename_column("a", "x")
    mine.delete("x > 5")
    still.rename_column("a", "x")
    still.delete("x > 5 AND id < 9")
    swapped.delete("a > 5")
    gone.delete("a > 5")
    for table in tables[1:]:
        table.rename_column("a", "c")
        table.rename_column("b", "a")
    put(tables[2], [{"id": 3, "c": 1, "a": 9}])
    tables[3].drop_column("c")
    tables[1].rename_column("c", "x")
    branch.merge()
    assert [kept(lake.table(table.name)) for table in tables] == [[1], [1], [1, 3], [1]]
    late = lake.branch("late")
    late.table("reads.swapped").delete("a > 5")
    tables[2].rename_column("a", "d")
    tables[2].rename_column("c", "a")
    put(tables[2], [{"id": 4, "a": 1, "d": 9}])
    assert reasons(lake, "late") == [("reads.swapped", "CONCURRENT_APPEND")]
