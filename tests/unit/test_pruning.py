"""Pruning by statistics against brute force over rows: whatever is left out has no row that matches."""

import math
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaservice.core.table.predicates import (
    COMPARISONS,
    AllOf,
    AnyOf,
    Compare,
    InList,
    IsNull,
    Literal,
    Not,
    Predicate,
    SqlValue,
    StartsWith,
    truth,
)
from metaservice.core.table.pruning import (
    UNKNOWN,
    Bounds,
    bounds,
    choose,
    conjuncts,
    exactly,
    leading_values,
    new_pruning,
    show,
)

TYPES = {"k": "bigint", "a": "int", "s": "string", "x": "double", "p": "int"}
VALUES: dict[str, st.SearchStrategy[SqlValue]] = {
    "k": st.integers(0, 5),
    "a": st.integers(-3, 3),
    "s": st.text("ab", max_size=3),
    "x": st.sampled_from([-math.inf, -1.0, -0.0, 0.0, 0.5, 2.0, math.inf]),
    "p": st.integers(0, 2),
}
NULLABLE = ("a", "s", "x")
Record = dict[str, SqlValue]


def leaves() -> st.SearchStrategy[Predicate]:
    def about(column: str) -> st.SearchStrategy[Predicate]:
        literal = VALUES[column] | st.none()
        kinds: list[st.SearchStrategy[Predicate]] = [
            st.builds(Compare, st.just(column), st.sampled_from(sorted(COMPARISONS)), literal),
            st.builds(InList, st.just(column), st.lists(literal, min_size=1, max_size=3).map(tuple)),
            st.builds(IsNull, st.just(column)),
        ]
        if column == "s":
            kinds.append(st.builds(StartsWith, st.just(column), st.text("ab", max_size=2)))
        return st.one_of(kinds)

    return st.one_of([about(column) for column in TYPES]) | st.builds(Literal, st.booleans())


PREDICATES: st.SearchStrategy[Predicate] = st.recursive(
    leaves(),
    lambda inner: (
        st.builds(Not, inner)
        | st.builds(AllOf, st.lists(inner, min_size=1, max_size=3).map(tuple))
        | st.builds(AnyOf, st.lists(inner, min_size=1, max_size=3).map(tuple))
    ),
    max_leaves=6,
)


def record(partition: int) -> st.SearchStrategy[Record]:
    columns = {name: values | st.none() if name in NULLABLE else values for name, values in VALUES.items()}
    return st.fixed_dictionaries(columns | {"x": columns["x"] | st.just(math.nan), "p": st.just(partition)})


RECORD = [record(partition) for partition in range(3)]


@st.composite
def statistics(draw: st.DrawFn, rows: list[Record], column: str) -> Bounds:
    """What a writer may have said of a column: all of it, some, cut, or nothing."""
    if draw(st.integers(0, 9)) == 0:
        return UNKNOWN
    known = [row[column] for row in rows if row[column] is not None and row[column] == row[column]]
    low: SqlValue = min(known, default=None)  # type: ignore[type-var]
    high: SqlValue = max(known, default=None)  # type: ignore[type-var]
    if isinstance(low, str) and isinstance(high, str) and draw(st.booleans()):
        low, high = low[:1], high[:1] + "\U0010ffff"
    if column == "x" and draw(st.integers(0, 4)) == 0 and any(row["x"] != row["x"] for row in rows):
        high = math.nan
    low = draw(st.sampled_from([low, low, low, None]))
    high = draw(st.sampled_from([high, high, high, None]))
    nulls = draw(st.sampled_from([sum(row[column] is None for row in rows)] * 3 + [None]))
    return bounds(low, high, nulls, len(rows))


def matches(predicate: Predicate, row: Record) -> bool:
    """By either way of comparing NaN: as equal to nothing, and as the largest value."""
    return truth(predicate, row) is True or truth(predicate, {**row, "x": _ranked(row["x"])}) is True


class Largest(float):
    """NaN as some engines see it."""

    __hash__ = float.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Largest)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: float) -> bool:
        return False

    def __le__(self, other: float) -> bool:
        return isinstance(other, Largest)

    def __gt__(self, other: float) -> bool:
        return not isinstance(other, Largest)

    def __ge__(self, other: float) -> bool:
        return True


def _ranked(value: SqlValue) -> SqlValue:
    return Largest("nan") if value != value else value


@settings(max_examples=250, deadline=None)
@given(st.data())
def test_a_file_left_out_has_no_row_that_matches(data: st.DataObject) -> None:
    partition = data.draw(st.integers(0, 2))
    rows = data.draw(st.lists(RECORD[partition], max_size=4))
    predicate = data.draw(PREDICATES)
    pruning = new_pruning(predicate, TYPES, ["p"], [])
    row = tuple(data.draw(statistics(rows, column)) for column in pruning.columns)
    test = pruning.failed((*row, exactly(partition)))
    if test is not None:
        assert test.conjunct in conjuncts(predicate)
        assert not any(matches(predicate, row) for row in rows)


@pytest.mark.parametrize(
    ("predicate", "kept"),
    [
        (Compare("a", "=", 5), False),
        (Compare("a", "=", 4), True),
        (Compare("a", "<", 1), False),
        (Compare("a", ">=", 4), True),
        (Compare("a", ">", 4), False),
        (Compare("a", "=", None), False),
        (Not(Compare("a", "<=", 4)), False),
        (Not(Compare("a", "<=", 3)), True),
        (IsNull("a"), False),
        (Not(IsNull("a")), True),
        (InList("a", (0, 5)), False),
        (InList("a", (0, 2)), True),
        (Not(InList("a", (7, None))), False),
        (StartsWith("s", "b"), True),
        (StartsWith("s", "d"), False),
        (AnyOf((Compare("a", ">", 4), StartsWith("s", "d"))), False),
        (AnyOf((Compare("a", ">", 4), Compare("x", ">", 100.0))), True),  # NaN may be larger
        (Compare("x", "=", 100.0), False),
        (Compare("x", "<", 0.0), False),
    ],
    ids=lambda value: show(value) if not isinstance(value, bool) else "",
)
def test_statistics_rule_out_what_they_can(predicate: Predicate, kept: bool) -> None:
    """A file with a from 1 to 4, s from a to c, x from 0 to 1; nothing is NULL."""
    said = {"a": (1, 4, False, True), "s": ("a", "c", False, True), "x": (0.0, 1.0, False, True)}
    pruning = new_pruning(predicate, TYPES, [], [])
    assert (pruning.failed(tuple(said[column] for column in pruning.columns)) is None) is kept


def test_what_is_not_known_may_be() -> None:
    assert bounds(1, 2, None, 3) == (1, 2, True, True)
    assert bounds(1, 2, 0, 3) == (1, 2, False, True)
    assert bounds(None, None, 3, 3) == (None, None, True, False)
    assert bounds(None, None, None, 3) == UNKNOWN
    assert bounds(math.nan, 2.0, 0, 3) == bounds(2.0, 1.0, 0, 3) == (None, None, False, True)


# -- primary-key tables ------------------------------------------------------------------------------------------------


@dataclass
class KeyedFile:
    data_version: int
    images: dict[int, Record | None]  # None is a tombstone

    def rows(self) -> list[Record]:
        return [image for image in self.images.values() if image is not None]


@st.composite
def buckets(draw: st.DrawFn) -> list[KeyedFile]:
    """A base whose files share a data version and no key, and deltas above it."""
    files: list[KeyedFile] = []
    for data_version in sorted(draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))):
        taken = {key for file in files if file.data_version == data_version for key in file.images}
        keys = draw(st.sets(st.integers(0, 5), max_size=3)) - taken
        images: dict[int, Record | None] = {}
        for key in sorted(keys):
            images[key] = None if draw(st.integers(0, 2)) == 0 else {**draw(RECORD[1]), "k": key}
        files.append(KeyedFile(data_version, images))
    return files


def newest(files: list[KeyedFile]) -> dict[int, Record]:
    found: dict[int, Record | None] = {}
    for file in sorted(files, key=lambda file: file.data_version):
        found |= file.images
    return {key: row for key, row in found.items() if row is not None}


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_row_appears_that_a_file_left_out_had_hidden(data: st.DataObject) -> None:
    files = data.draw(buckets())
    predicate = data.draw(PREDICATES)
    pruning = new_pruning(predicate, TYPES, ["p"], ["k"])
    said = []
    for file in files:
        keys: list[Record] = [{"k": key} for key in file.images]  # of keys, tombstones included
        row = [data.draw(statistics(keys if column == "k" else file.rows(), column)) for column in pruning.columns]
        said.append((file.data_version, (*row, exactly(1))))
    tests = choose(pruning, said)
    kept = [file for file, test in zip(files, tests, strict=True) if test is None]
    shown = {key: row for key, row in newest(kept).items() if matches(predicate, row)}
    right = {key: row for key, row in newest(files).items() if matches(predicate, row)}
    assert shown.keys() == right.keys()
    assert all(shown[key] is right[key] for key in right)


def test_a_delta_stays_where_it_hides_a_row_of_a_file_kept() -> None:
    pruning = new_pruning(Compare("a", ">", 2), TYPES, [], ["k"])
    a, k = pruning.columns
    assert (a, k) == ("a", "k")
    base = (1, ((0, 3, False, True), (0, 9, False, True)))
    hiding = (2, ((0, 1, False, True), (4, 5, False, True)))
    elsewhere = (3, ((0, 1, False, True), (10, 11, False, True)))
    assert [test is None for test in choose(pruning, [elsewhere, base, hiding])] == [False, True, True]


# -- partitions --------------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(PREDICATES, st.integers(1, 4))
def test_seeks_reach_every_partition_that_matches(predicate: Predicate, most: int) -> None:
    columns = ["a", "s"]
    found = leading_values(predicate, columns, most)
    assert len(found) <= most
    for a in (None, *range(-3, 4)):
        for s in (None, "", "a", "ab", "b"):
            row: Record = {"a": a, "s": s, "k": 1, "x": 0.5, "p": 1}
            if truth(predicate, row) is True:
                assert any((a, s)[: len(values)] == values for values in found)
