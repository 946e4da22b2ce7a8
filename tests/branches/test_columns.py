"""Changes of columns on a branch and in its parent: a merge takes both, and every version reads its own columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from laketx import Lake, MergeRefusedError, connect
from laketx.table import Table
from metaservice.client import BlockedError, InvalidError
from protos.laketx.v1 import catalog_pb2, common_pb2, transaction_pb2

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


def columns_of(**types: str) -> list[catalog_pb2.Column]:
    return [catalog_pb2.Column(name=name, type=kind, nullable=True) for name, kind in types.items()]


def replace(
    lake: Lake, wanted: catalog_pb2.Table, meanwhile: Callable[[], object] = lambda: None, **sent: int
) -> dict[str, int]:
    """A statement that asks for the ids of its columns and commits later, as CREATE OR REPLACE ... AS SELECT does."""
    client = lake.client
    after = client.create_table(wanted, or_replace=True, validate_only=True)
    meanwhile()
    new, change = catalog_pb2.Table(), common_pb2.Change(table_id=after.table_id)
    new.CopyFrom(wanted)
    new.table_id, new.last_column_id = after.table_id, sent.get("last", after.last_column_id)
    change.scope.all = True
    intent = transaction_pb2.TableIntent(table_id=after.table_id, operation=common_pb2.OPERATION_OVERWRITE)
    with client.begin([intent]) as txn:
        txn.commit([change], replacements=[new])
    return {column.name: column.column_id for column in after.columns}


def test_tables_that_are_replaced_on_both_sides_merge(lake: Lake) -> None:
    table = lake.create_table("replaced.t", "id bigint, pay int")
    put(table, [{"id": 1, "pay": 10}])
    branch = lake.branch("replaced")
    fork = branch.table("replaced.t")
    wanted = catalog_pb2.Table(name="replaced.t@replaced", columns=columns_of(id="bigint", note="string"))
    told = replace(lake, wanted, lambda: table.add_columns("mark string"))
    assert ids_of(fork) == told, "the files have the ids that the statement was told"
    put(fork, [{"id": 2, "note": "mine"}])
    del wanted.columns[:]
    wanted.columns.extend(columns_of(id="bigint", other="int", last="string"))
    wanted.name = "replaced.t"
    lake.client.create_table(wanted, or_replace=True)  # without rows
    given = ids_of(table)
    assert given["other"] > max(told.values())
    branch.merge()
    merged = lake.table("replaced.t")
    assert ids_of(merged) == {**given, **told}
    assert rows_of(merged) == [{"id": 2, "note": "mine", "other": None, "last": None}]


def test_a_replacement_has_only_ids_that_its_client_was_told(lake: Lake) -> None:
    table = lake.create_table("told.t", "id bigint")
    wanted = catalog_pb2.Table(name="told.t", columns=columns_of(id="bigint", note="string"))
    assert replace(lake, wanted, last=0) == ids_of(table), "a client of before, without branches"
    lake.branch("told").table("told.t").add_columns("mark string")
    wanted.columns.extend(columns_of(more="string"))
    with pytest.raises(BlockedError, match="CLIENT_TOO_OLD"):
        replace(lake, wanted, last=0)
    with pytest.raises(InvalidError, match="CHANGES_MISMATCH"):
        replace(lake, wanted, last=99)
    assert replace(lake, wanted) == ids_of(table)
