"""Blocks of files against tests of each file: a block rules out what tests rule out one by one, and nothing else."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaservice.core.table.predicates import AllOf, Compare, InList, IsNull, Predicate
from metaservice.core.table.pruning import MAY_BE_TRUE, UNKNOWN, Bounds, bounds, joined, new_pruning
from metaservice.service.read.file_blocks import BLOCK_FILES, FILES_MIN, Entries, Key, Seen, blocks_of

BOTH_COLUMNS = (Compare("a", ">=", -1), Compare("s", ">=", "a"))  # rule no file out
TYPES = {"a": "bigint", "s": "string"}
CONDITIONS: tuple[Predicate, ...] = (
    Compare("a", "=", 500),
    Compare("a", ">", 900),
    InList("a", (3, 700)),
    IsNull("a"),
    Compare("s", "<", "b"),
)
INTEGERS = st.integers(-3, 3) | st.none()
ONE_BOUNDS = st.builds(bounds, INTEGERS, INTEGERS, st.sampled_from([0, 1, 2, None]), st.just(2)) | st.just(UNKNOWN)


@settings(max_examples=200, deadline=None)
@given(st.lists(ONE_BOUNDS, min_size=1, max_size=5), st.sampled_from(["=", "<>", "<", ">="]), st.integers(-3, 3))
def test_what_joined_bounds_rule_out_each_of_them_rules_out(parts: list[Bounds], comparison: str, value: int) -> None:
    for predicate in (Compare("a", comparison, value), InList("a", (value, 9)), IsNull("a")):
        [test] = new_pruning(predicate, TYPES, [], []).tests
        if not test.judge(joined([(part,) for part in parts])) & MAY_BE_TRUE:
            assert not any(test.judge((part,)) & MAY_BE_TRUE for part in parts)


def entry(rng: random.Random, number: int) -> tuple[Key, Seen]:
    low = rng.randrange(1000)
    column = rng.choice([bounds(low, low + 5, 0, 9), bounds(low, low + 5, 3, 9), bounds(None, None, 9, 9), UNKNOWN])
    text = rng.choice(["a", "b", "c"])
    row = (column if rng.random() < 0.1 else bounds(low, low + 5, 0, 9), bounds(text, text, 0, 9))
    is_set = rng.random() < 0.01
    return (0, f"{number}-{low}"), Seen(str(number).encode(), 0, is_set, () if is_set else row)


@pytest.mark.parametrize("seed", range(6))
def test_the_same_files_are_left_after_files_came_and_went(seed: int) -> None:
    rng = random.Random(seed)
    entries: Entries = dict(entry(rng, number) for number in range(2_000))
    blocks = blocks_of(entries)
    for step in range(4):
        assert blocks is not None
        for condition in CONDITIONS:
            pruning = new_pruning(AllOf((condition, *BOTH_COLUMNS)), TYPES, [], [])
            left, dropped = blocks.split(entries, lambda row: pruning.failed(row) is not None)  # noqa: B023
            assert len(left) + dropped == len(entries)
            kept = [
                [seen for _, seen in part if seen.is_delete_set or pruning.failed(seen.row) is None]
                for part in (left, entries.items())
            ]
            assert sorted(kept[0], key=repr) == sorted(kept[1], key=repr)
        gone = rng.sample(sorted(entries), 20)
        came = dict(entry(rng, 10_000 * (step + 1) + number) for number in range(20))
        entries = {key: seen for key, seen in entries.items() if key not in gone} | came
        blocks = blocks.after([*gone, *came], len(entries))


def test_a_point_tests_few_files_and_many_changes_make_new_blocks() -> None:
    def files(count: int) -> Entries:
        return {(0, f"{at}"): Seen(b"", 0, is_delete_set=False, row=((at, at, False, True),)) for at in range(count)}

    blocks = blocks_of(files(FILES_MIN))
    assert blocks is not None
    assert len(blocks.split(files(FILES_MIN), lambda row: row[0][1] < 500)[0]) == BLOCK_FILES
    assert blocks.after(list(files(65)), FILES_MIN) is None
    assert blocks_of(files(FILES_MIN - 1)) is None
