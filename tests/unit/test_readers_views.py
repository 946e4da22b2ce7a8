"""What readers find of tables that came, were renamed and went: by id, by name in any case, in lists."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from metaservice.core import limits
from metaservice.core.table.meta import Profile, TableMeta
from metaservice.core.table.partitions import Partitioning
from metaservice.service.decider.views import TableView, Views

NAMES = ("a", "A", "b@x", "B@x")
META = TableMeta("", "", Partitioning(()), (), 0, Profile.MAXCOMPUTE, 1, {}, frozenset(), "", (), 0, "")


@dataclass
class Table:
    table_id: str
    name: str
    head: int = 0

    def view(self) -> TableView:
        meta = replace(META, table_id=self.table_id, name=self.name)
        return TableView(self.table_id.encode(), meta, self.head, self.head, 0, 0)


steps = st.lists(
    st.tuples(st.sampled_from(["create", "drop", "rename"]), st.sampled_from(NAMES), st.sampled_from(NAMES))
)


@given(steps)
@example([("create", "b@x", ""), ("drop", "b@x", ""), ("create", "B@x", "")])
@example([("create", "a", ""), ("create", "b@x", ""), ("drop", "a", ""), ("rename", "b@x", "A")])
def test_readers_find_the_tables_that_are_there(steps: list[tuple[str, str, str]]) -> None:
    with pytest.MonkeyPatch.context() as few:
        few.setattr(limits, "NAMES_FREED", 0)
        views, tables = Views(), dict[str, Table]()
        for number, (step, name, other) in enumerate(steps):
            there = {table.name.lower(): table for table in tables.values()}
            table = there.get(name.lower())
            if step == "create" and table is None:
                table = tables[f"t{number}"] = Table(f"t{number}", name)
            elif step == "drop" and table is not None:
                del tables[table.table_id]
            elif step == "rename" and table is not None and there.get(other.lower()) in (None, table):
                table.name = other
            else:
                continue
            views.follow(tables, [table.table_id])
            names = {each.name for each in tables.values()}
            assert sorted(views.names()) == sorted(names)
            assert sorted(views.name_index().find("", "", "")) == sorted(names)
            for asked in NAMES:
                found = views.find_by_name(asked)
                expected = [table.table_id for table in tables.values() if table.name.lower() == asked.lower()]
                assert ([found.meta.table_id] if found else []) == expected


def test_names_of_tables_that_went_are_freed_little_by_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NAMES_FREED", 2)
    views, tables = Views(), {f"t{number}": Table(f"t{number}", f"name{number}") for number in range(5)}
    lost = list(tables)
    views.follow(tables, lost)
    tables.clear()
    left = []
    for changed in (lost, [], [], [], []):
        views.follow(tables, changed)
        assert views.names() == []
        left.append(len(views._names))
    assert left == [5, 3, 1, 0, 0]


def test_views_that_were_made_ahead_are_shown_with_the_rest() -> None:
    views, tables = Views(), {"t1": Table("t1", "one"), "t2": Table("t2", "two")}
    views.follow(tables, tables)
    tables["t1"].head, tables["t2"].head = 1, 2
    views.lay_ahead({"t1": tables["t1"].view()})
    views.lay_ahead({})  # of another merge in the same group
    assert [view.head for view in map(views.find, tables) if view] == [0, 0]
    assert views.follow(tables, ["t2"]) == 2
    assert [view.head for view in map(views.find, tables) if view] == [1, 2]
    views.lay_ahead({"t1": tables["t1"].view()})
    tables["t1"].head = 3  # after the view was made: then it is told as changed, too
    assert views.follow(tables, ["t1"]) == 3
    assert [view.head for view in map(views.find, tables) if view] == [3, 2]
    assert views.follow(tables, []) == 0
    assert [view.head for view in map(views.find, tables) if view] == [3, 2]
