"""Changes of cells commute only where a serial order gives the same rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaservice.core.table.meta import Profile
from metaservice.core.table.model import Change, Conflict, KeySet, Operation, Read, Rule
from metaservice.core.table.predicates import TRUE
from tests.unit.by_hand import ONE, Table

KEY = 1
COLUMNS = (2, 3, 4)  # ids
ALL = frozenset((KEY, *COLUMNS))
Row = dict[int, int]
Rows = dict[int, Row]


@dataclass(frozen=True)
class Program:
    """Sets a column of the rows of some keys, to a number or to what another column has; a MERGE may make the others.

    They are whole, or their images set the column alone ("cells"), as those of an INSERT do.
    """

    operation: Operation
    keys: frozenset[int]
    sets: int
    number: int = 1
    uses: int | None = None
    makes: str = ""

    def writes(self, rows: Rows) -> tuple[dict[int, int], Rows]:
        """The column's values of rows that it finds, or an INSERT may make; and new rows."""
        its = self.keys if self.operation is Operation.INSERT else self.keys & rows.keys()
        values = {key: self.number if self.uses is None else rows[key][self.uses] + 1 for key in its}
        new = {key: dict.fromkeys(COLUMNS, 0) | {self.sets: self.number} for key in self.keys - rows.keys()}
        if self.makes == "cells":
            return values | dict.fromkeys(new, self.number), {}
        return values, new if self.makes else {}

    def reads(self) -> tuple[Read, ...]:
        if self.operation is Operation.INSERT:
            return ()
        used = frozenset({KEY} if self.uses is None else {KEY, self.uses})
        return (Read(TRUE, changes_all=self.operation is Operation.UPDATE, columns=used),)


class History:
    """A table with programs that begin at any version; what readers fold against the programs run again one by one."""

    def __init__(self, rows: Rows) -> None:
        self.table = Table(Profile.ROW_LEVEL)
        self.table.meta = replace(self.table.meta, properties={"merge.engine": "partial"})
        self.table.insert("begin", dict.fromkeys(rows, 1))
        self.folded: list[Rows] = [{}, rows]
        self.one_by_one: list[Rows] = [{}, rows]  # after each program, had it begun after all commits before it

    def commit(self, program: Program, at: int) -> Conflict | None:
        values, new = program.writes(self.folded[at])
        path = f"f{len(self.folded)}"
        entries = []
        if values or new:
            entries = [self.table.file(path, dict.fromkeys([*values, *new], 1))]
            content = self.table.contents[path]
            content.sets = ALL if new else frozenset({program.sets})
            is_found = not new and values.keys() <= self.folded[at].keys()
            content.no_new_rows = program.operation is Operation.MERGE and is_found
        change = Change("t", program.operation, at, program.reads(), adds=entries)
        change.key_sets = (KeySet(ONE, 0, [*values, *new]),) if entries else ()
        answer = self.table.decide(change)
        if isinstance(answer, Conflict):
            return answer
        rows = {key: dict(row) for key, row in self.folded[-1].items()} | new
        for key, value in values.items():
            rows[key] = {**dict.fromkeys(COLUMNS, 0), **rows.get(key, {}), program.sets: value}
        again, made = program.writes(self.folded[-1])
        expected = {key: dict(row) for key, row in self.folded[-1].items()} | made
        for key, value in again.items():
            expected[key] = {**dict.fromkeys(COLUMNS, 0), **expected.get(key, {}), program.sets: value}
        self.folded.append(rows)
        self.one_by_one.append(expected)
        return None


@st.composite
def programs(draw: st.DrawFn) -> Program:
    operation = draw(st.sampled_from([Operation.MERGE, Operation.MERGE, Operation.UPDATE, Operation.INSERT]))
    keys = draw(st.frozensets(st.integers(0, 3), min_size=1, max_size=3))
    sets, number = draw(st.sampled_from(COLUMNS)), draw(st.integers(10, 99))
    reads = operation is not Operation.INSERT
    uses = draw(st.sampled_from([None, None, *COLUMNS])) if reads else None
    makes = draw(st.sampled_from(["", "whole", "cells"])) if operation is Operation.MERGE else ""
    return Program(operation, keys, sets, number, uses, makes)


@given(
    st.frozensets(st.integers(0, 3), min_size=1, max_size=3),
    st.lists(st.tuples(programs(), st.integers(0, 3)), max_size=6),
)
@settings(max_examples=300, deadline=None)
def test_what_commits_gives_what_a_serial_order_gives(keys: frozenset[int], steps: list[tuple[Program, int]]) -> None:
    history = History({key: dict.fromkeys(COLUMNS, key) for key in keys})
    for program, behind in steps:
        history.commit(program, max(1, history.table.head - behind))
        assert history.folded == history.one_by_one


def merging(*keys: int, sets: int = 2, uses: int | None = None, makes: str = "") -> Program:
    return Program(Operation.MERGE, frozenset(keys), sets, uses=uses, makes=makes)


def updating(*keys: int, sets: int = 2) -> Program:
    return Program(Operation.UPDATE, frozenset(keys), sets)


def upserting(*keys: int, sets: int = 2) -> Program:
    return Program(Operation.INSERT, frozenset(keys), sets)


@pytest.mark.parametrize(
    ("mine", "theirs", "rule"),
    [
        (merging(0, 1), merging(1, 2, sets=3), None),
        (merging(0), merging(2, sets=3, makes="whole"), None),
        (merging(0, makes="whole"), updating(0, 1, 2, sets=3), None),
        (merging(0, 1), upserting(1, sets=3), None),
        (updating(0), merging(2, sets=3, makes="whole"), None),
        (upserting(0, 8), merging(0, sets=3), None),
        (merging(0), merging(0), Rule.CONCURRENT_ROW_CHANGE),
        (merging(0, uses=3), merging(2, sets=3), Rule.CONCURRENT_APPEND),
        (merging(0, 8), upserting(8, sets=3), Rule.CONCURRENT_APPEND),
        (merging(0), upserting(1, sets=3), Rule.CONCURRENT_APPEND),
        (merging(0), merging(8, sets=3, makes="whole"), Rule.CONCURRENT_APPEND),
        (updating(0), merging(8, sets=3, makes="whole"), Rule.CONCURRENT_APPEND),
        (merging(0), merging(8, sets=3, makes="cells"), Rule.CONCURRENT_APPEND),
        (updating(0), merging(8, sets=3, makes="cells"), Rule.CONCURRENT_APPEND),
        (merging(8, uses=4, makes="cells"), upserting(8, sets=3), Rule.CONCURRENT_APPEND),
        (merging(0, 8, makes="cells"), merging(0, sets=3), None),
        (merging(8, makes="whole"), merging(8, sets=3, makes="whole"), Rule.CONCURRENT_ROW_CHANGE),
        (merging(8, makes="whole"), upserting(8, sets=3), Rule.CONCURRENT_ROW_CHANGE),
    ],
)
def test_a_merge_passes_what_sets_other_cells_of_rows_that_were_there(
    mine: Program, theirs: Program, rule: Rule | None
) -> None:
    history = History({key: dict.fromkeys(COLUMNS, key) for key in range(3)})
    assert history.commit(theirs, 1) is None
    lost = history.commit(mine, 1)
    assert (lost and lost.rule) == rule
