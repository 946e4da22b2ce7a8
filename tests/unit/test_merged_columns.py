"""Columns that were changed on a branch and in its parent: what a merge makes of them, and what it refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaservice.core.errors import MetaError
from metaservice.core.table.merged_columns import check_given_once, merged_schema, new_ids
from metaservice.core.table.meta import Profile, TableMeta
from metaservice.core.table.partitions import Partitioning
from metaservice.core.table.replayed_alterations import alteration_between, changes_columns_alone
from metaservice.core.table.schema import Column, Schema, evolve, make_schema
from metaservice.core.table.schema_changes import (
    Add,
    ColumnPlace,
    Comment,
    Default,
    Drop,
    Move,
    Relax,
    Rename,
    SchemaChange,
    Widen,
)

Changes = Sequence[SchemaChange]
PARTITIONED = ("day",)
NONE: Mapping[str, str] = MappingProxyType({})
BASE = make_schema(
    [
        Column("id", "int", nullable=False),
        Column("day", "date", nullable=True),
        Column("pay", "int", nullable=False),
        Column("to", "struct<street:string>", nullable=True),
    ],
    PARTITIONED,
    ("id",),
)
FIRST_FREE = BASE.last_id + 1
NOTE, MARK = Add("note", "string"), Add("mark", "int")
FIRST, LAST = ColumnPlace(), ColumnPlace("to")


def evolved(changes: Changes, last_id: int = BASE.last_id) -> Schema:
    return evolve(replace(BASE, last_id=last_id), changes)


def merged(mine: Changes, theirs: Changes) -> Schema:
    """The branch gets ids that the parent has not given."""
    onto = evolved(theirs)
    return merged_schema(BASE, evolved(mine, onto.last_id), onto)


def names(schema: Schema) -> list[str]:
    return [column.name for column in schema.columns]


@pytest.mark.parametrize(
    ("mine", "theirs", "found"),
    [
        ([], [MARK], ["id", "day", "pay", "to", "mark"]),
        ([NOTE], [], ["id", "day", "pay", "to", "note"]),
        ([NOTE], [MARK], ["id", "day", "pay", "to", "mark", "note"]),
        ([Add("note", "string", place=ColumnPlace("id"))], [MARK], ["id", "note", "day", "pay", "to", "mark"]),
        ([Rename("pay", "salary")], [MARK, Drop("to")], ["id", "day", "salary", "mark"]),
        ([Drop("pay")], [Drop("pay")], ["id", "day", "to"]),
        ([Rename("pay", "x")], [Rename("pay", "x"), Widen("x", "bigint")], None),
        ([Rename("pay", "x")], [Rename("pay", "x")], ["id", "day", "x", "to"]),
        ([Rename("id", "number")], [MARK], ["number", "day", "pay", "to", "mark"]),
        ([Drop("pay"), Add("pay", "string")], [MARK], ["id", "day", "to", "mark", "pay"]),
        ([Move("to", FIRST)], [MARK], ["to", "id", "day", "pay", "mark"]),
        ([NOTE], [Move("to", FIRST)], ["to", "id", "day", "pay", "note"]),
        ([Move("to", FIRST)], [Move("to", FIRST), MARK], ["to", "id", "day", "pay", "mark"]),
        ([Add("note", "string", place=FIRST)], [MARK], ["note", "id", "day", "pay", "to", "mark"]),
        ([Comment("pay", "gross")], [Rename("pay", "salary")], ["id", "day", "salary", "to"]),
    ],
)
def test_what_one_side_changed_is_changed(mine: Changes, theirs: Changes, found: list[str] | None) -> None:
    if found is None:
        with pytest.raises(MetaError, match="MERGE_COLUMN_CHANGED"):
            merged(mine, theirs)
        return
    assert names(merged(mine, theirs)) == found


@pytest.mark.parametrize(
    ("mine", "theirs", "reason", "column"),
    [
        ([Rename("pay", "x")], [Rename("pay", "y")], "MERGE_COLUMN_CHANGED", "pay"),
        ([Rename("pay", "x")], [Widen("pay", "bigint")], "MERGE_COLUMN_CHANGED", "pay"),
        ([Drop("pay")], [Widen("pay", "bigint")], "MERGE_COLUMN_CHANGED", "pay"),
        ([Relax("pay")], [Drop("pay")], "MERGE_COLUMN_CHANGED", "pay"),
        ([Add("to.zip", "int")], [Add("to.town", "string")], "MERGE_COLUMN_CHANGED", "to"),
        ([Comment("pay", "gross")], [Comment("pay", "net")], "MERGE_COLUMN_CHANGED", "pay"),
        ([Default("pay", "1")], [Default("pay", "2")], "MERGE_COLUMN_CHANGED", "pay"),
        ([Move("to", FIRST)], [Move("id", LAST)], "MERGE_COLUMN_CHANGED", "to"),
        ([Add("mark", "int")], [MARK], "MERGE_COLUMN_EXISTS", "mark"),
        ([Rename("pay", "Mark")], [MARK], "MERGE_COLUMN_EXISTS", "mark"),
    ],
)
def test_what_both_changed_in_two_ways_is_refused(mine: Changes, theirs: Changes, reason: str, column: str) -> None:
    with pytest.raises(MetaError) as refused:
        merged(mine, theirs)
    assert (refused.value.reason, refused.value.facts["column"]) == (reason, column)


def test_keys_and_partitions_follow_their_columns() -> None:
    found = merged([Rename("id", "number"), NOTE], [Move("day", FIRST)])
    assert (found.primary_key, found.partition_columns) == (("number",), ("day",))
    assert found.last_id == FIRST_FREE


# -- a law -----------------------------------------------------------------------------------------------------------


ADDED = st.integers(1, 4).map(lambda number: Add(f"new{number}", "int"))
OF_BASE = st.sampled_from(
    [
        Drop("pay"),
        Drop("to"),
        Rename("pay", "salary"),
        Rename("id", "number"),
        Widen("pay", "bigint"),
        Relax("pay"),
        Comment("to", "address"),
        Move("to", FIRST),
        Move("id", LAST),
        Add("to.zip", "int"),
    ]
)


def possible(changes: Changes, last_id: int) -> list[Schema]:
    """The schema after each of the changes that can be made."""
    found = [replace(BASE, last_id=last_id)]
    for change in changes:
        try:
            found.append(evolve(found[-1], [change]))
        except MetaError:
            continue
    return found


@settings(max_examples=300, deadline=None)
@given(st.lists(ADDED | OF_BASE, max_size=4), st.lists(ADDED | OF_BASE, max_size=4))
def test_merged_columns_are_the_union(mine: Changes, theirs: Changes) -> None:
    """One ALTER after the other, as a merge does: each id that a side has is there, unless the other dropped it."""
    onto = possible(theirs, BASE.last_id)[-1]
    steps = possible(mine, onto.last_id)
    steps[0] = BASE
    merged = onto
    refusal = ""
    for before, after in pairwise(steps):
        try:
            merged = merged_schema(before, after, merged)
        except MetaError as refused:
            refusal = refused.reason
            break
    if refusal:
        assert refusal in ("MERGE_COLUMN_CHANGED", "MERGE_COLUMN_EXISTS")
        return
    old, branch, parent, found = (
        {column.column_id: column for column in each.columns} for each in (BASE, steps[-1], onto, merged)
    )
    dropped = {number for number in old if number not in branch or number not in parent}
    assert found.keys() == (branch.keys() | parent.keys()) - dropped
    for number, column in found.items():
        sides = [side[number] for side in (branch, parent) if number in side]
        for place, value in enumerate(column):
            changed = [side[place] for side in sides if number not in old or side[place] != old[number][place]]
            assert value in (changed or [old[number][place]])
    assert len({column.name for column in merged.columns}) == len(merged.columns)
    assert merged.last_id == max(onto.last_id, steps[-1].last_id)


# -- definitions -----------------------------------------------------------------------------------------------------


def definition(schema: Schema, version: int = 1, properties: Mapping[str, str] = NONE) -> TableMeta:
    bare = TableMeta(
        "t", "t", Partitioning(()), (), 1, Profile.MAXCOMPUTE, version - 1, properties, frozenset(), "", (), 0
    )
    return bare.with_schema(schema)


def test_a_list_of_bloom_columns_follows_renames_of_both_sides() -> None:
    bloom = {"index.bloom.columns": "pay, id"}
    before, after = definition(BASE, 1, bloom), definition(evolved([Rename("id", "number")]), 2)
    after = replace(after, properties={"index.bloom.columns": "pay, number"})
    onto = definition(evolved([Rename("pay", "salary")]), 2, {"index.bloom.columns": "salary, id", "user.a": "1"})
    found = onto.altered(alteration_between(before, after, onto))
    assert found.properties == {"index.bloom.columns": "salary, number", "user.a": "1"}
    listed = replace(before, properties={"index.bloom.columns": "pay"})
    onto = replace(onto, properties={"index.bloom.columns": "id"})
    assert onto.altered(alteration_between(listed, before, onto)).properties == {"index.bloom.columns": "salary, id"}
    assert (found.schema_version, found.primary_key) == (3, ("number",))


@pytest.mark.parametrize(
    ("after", "alone"),
    [
        (definition(evolved([NOTE, Drop("to")]), 2), True),
        (definition(evolved([Rename("pay", "salary")]), 2, {"user.a": "1"}), False),
        (replace(definition(evolved([NOTE]), 2), profile=Profile.ROW_LEVEL), False),
        (replace(definition(evolved([NOTE]), 2), features=frozenset({"row_ids"})), False),
    ],
)
def test_whether_an_alter_changed_columns_alone(after: TableMeta, *, alone: bool) -> None:
    assert changes_columns_alone(definition(BASE), after) is alone


def test_an_id_that_both_sides_gave_is_refused() -> None:
    mine, theirs = (new_ids(definition(evolved([add]), 2), definition(BASE)) for add in (NOTE, MARK))
    assert mine == {FIRST_FREE: "note"}
    with pytest.raises(MetaError, match="MERGE_COLUMN_ID_TWICE") as refused:
        check_given_once(mine, theirs)
    assert refused.value.facts == {"column_id": str(FIRST_FREE), "of_parent": "mark", "of_branch": "note"}
    with pytest.raises(MetaError, match="MERGE_COLUMN_ID_TWICE"):
        merged_schema(BASE, evolved([NOTE]), evolved([MARK]))
    check_given_once(mine, {FIRST_FREE + 1: "mark"})
