"""Calls of other systems' libraries say what to write here."""

import re

import pytest

from laketx.foreign_calls import OF_LAKES, OF_MERGES, OF_TABLES, Calls, by_name
from laketx.lake import Lake
from laketx.merge_builder import MergeBuilder
from laketx.table import Table
from protos.laketx.v1 import catalog_pb2

TABLE = Table.__new__(Table)
LAKE = Lake.__new__(Lake)
OURS = {"table": Table, "lake": Lake}


@pytest.mark.parametrize(
    ("owner", "name", "here"),
    [
        (TABLE, "optimize", "Table has no optimize, a word of another system; here: `table.compact()`, or "),
        (TABLE, "vacuum", "`laketx purge run` in a terminal"),
        (TABLE, "restoreToVersion", "`table.restore(version=12)`"),
        (TABLE, "toDF", "`table.read()`"),
        (Table, "forPath", 'Table has no forPath, a word of another system; here: `lake.table("shop.orders")`'),
        (Lake, "forName", 'Lake has no forName, a word of another system; here: `lake.table("shop.orders")`'),
        (Table, "isDeltaTable", '`"shop.orders" in lake.tables()`'),
        (LAKE, "forPath", 'Lake has no forPath, a word of another system; here: `lake.table("shop.orders")`'),
    ],
)
def test_a_call_of_another_library_says_what_to_write_here(owner: object, name: str, here: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(here)):
        getattr(owner, name)
    assert not hasattr(owner, name)


@pytest.mark.parametrize(("owner", "calls"), [(Table, OF_TABLES), (Lake, OF_LAKES), (MergeBuilder, OF_MERGES)])
def test_foreign_calls_hide_nothing_of_ours_and_point_at_what_there_is(owner: type, calls: Calls) -> None:
    names = by_name(calls)
    assert len(names) == sum(len(one.names) for one in calls), "a name stands twice"
    assert [name for name in names if name in dir(owner)] == []
    assert all(hasattr(MergeBuilder, word) for one in OF_MERGES for word in re.findall(r"`(\w+)\(", one.equivalent))
    meta = catalog_pb2.Table(name="shop.orders")
    for here in (one.equivalent for one in calls):
        for word, member in re.findall(r"\b(table|lake)\.([a-z_]+)", here):
            assert hasattr(OURS[word], member), here
        for field in re.findall(r"table\.meta\.([a-z_]+)", here):
            assert hasattr(meta, field), here


def test_other_attributes_fail_as_anywhere() -> None:
    with pytest.raises(AttributeError, match="'Table' object has no attribute 'optimise'"):
        getattr(TABLE, "optimise")  # noqa: B009 - mypy knows none
    with pytest.raises(AttributeError, match="'Table' object has no attribute 'view'"):  # of the property, not `meta`
        _ = TABLE.meta
    with pytest.raises(AttributeError, match="type object 'Table' has no attribute 'optimise'"):
        getattr(Table, "optimise")  # noqa: B009 - likewise
