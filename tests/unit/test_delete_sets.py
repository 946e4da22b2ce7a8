"""Under the delta profiles a delete set that names no files touches every older file of its partition."""

from collections.abc import Sequence

import pytest

from metaservice.core.errors import MetaError
from metaservice.core.table.meta import Profile
from metaservice.core.table.model import Change, Operation, Rule, Scope, TableCommit
from tests.unit.by_hand import ONE, TWO, Table, lost, reading

DELTA = [Profile.DELTA_SERIALIZABLE, Profile.DELTA_WRITE_SERIALIZABLE]
NAMED, UNNAMED = ("a",), ()


def table_with_rows(profile: Profile) -> Table:
    table = Table(profile, keyed=False)
    table.insert("a", {1: 1, 2: 2})
    table.insert("b", {3: 3})
    table.insert("other", {7: 7}, partition=TWO)
    return table


def delete(table: Table, path: str, touches: Sequence[str], partition: str = ONE, *, reads: bool = False) -> Change:
    hidden = table.delete_set(path, [1], touches, partition)
    return table.change(Operation.DELETE, reads=reading(partition) if reads else (), adds=[hidden])


@pytest.mark.parametrize("profile", DELTA)
@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize(("mine", "theirs"), [(UNNAMED, UNNAMED), (UNNAMED, NAMED), (NAMED, UNNAMED), (NAMED, NAMED)])
def test_of_two_deletes_of_one_row_one_loses(
    profile: Profile, reads: bool, mine: Sequence[str], theirs: Sequence[str]
) -> None:
    table = table_with_rows(profile)
    second = delete(table, "mine", mine, reads=reads)
    table.expect_win(delete(table, "theirs", theirs, reads=reads))
    assert lost(table.decide(second)) is (Rule.CONCURRENT_APPEND if reads else Rule.CONCURRENT_DELETE_DELETE)


@pytest.mark.parametrize("profile", DELTA)
def test_deletes_in_different_partitions_pass(profile: Profile) -> None:
    table = table_with_rows(profile)
    second = delete(table, "mine", UNNAMED, TWO, reads=True)
    table.expect_win(delete(table, "theirs", UNNAMED, reads=True))
    table.expect_win(second)


@pytest.mark.parametrize("profile", DELTA)
@pytest.mark.parametrize("operation", [Operation.MINOR_COMPACT, Operation.MAJOR_COMPACT, Operation.CLUSTER])
def test_a_compaction_passes_a_delete_that_names_no_files_in_either_order_unless_it_sorts(
    profile: Profile, operation: Operation
) -> None:
    rows = {1: 1, 2: 2, 3: 3}
    deleted = {(ONE, 2): 2, (ONE, 3): 3, (TWO, 7): 7}
    table = table_with_rows(profile)
    late = delete(table, "mine", UNNAMED)
    table.expect_win(table.compact(operation, ["a", "b"], "m", dict(rows)))
    if operation is Operation.CLUSTER:
        assert lost(table.decide(late)) is Rule.CONCURRENT_DELETE_DELETE
    else:
        table.expect_win(late)
        assert table.read(table.head) == deleted
    table = table_with_rows(profile)
    compaction = table.compact(operation, ["a", "b"], "m", dict(rows))
    for entry in compaction.adds:
        entry.data_change = False
    table.expect_win(delete(table, "theirs", UNNAMED))
    if operation is Operation.CLUSTER:
        assert lost(table.decide(compaction)) is Rule.CONCURRENT_DELETE_DELETE
    else:
        table.expect_win(compaction)
    assert table.read(table.head) == deleted


@pytest.mark.parametrize("profile", DELTA)
def test_an_overwrite_and_a_delete_that_names_no_files_conflict_in_either_order(profile: Profile) -> None:
    table = table_with_rows(profile)
    late = delete(table, "mine", UNNAMED)
    table.expect_win(table.change(Operation.TRUNCATE, scope=Scope(frozenset({ONE}))))
    assert lost(table.decide(late)) is Rule.CONCURRENT_DELETE_DELETE
    table = table_with_rows(profile)
    late = table.change(Operation.TRUNCATE, scope=Scope(frozenset({ONE})))
    table.expect_win(delete(table, "theirs", UNNAMED))
    assert lost(table.decide(late)) is Rule.CONCURRENT_APPEND


@pytest.mark.parametrize("profile", DELTA)
def test_who_read_the_partition_loses_to_a_delete_that_names_no_files(profile: Profile) -> None:
    table = table_with_rows(profile)
    insert = table.change(Operation.INSERT, reads=reading(ONE), adds=[table.file("new", {9: 9}, partition=TWO)])
    empty = table.change(Operation.UPDATE, reads=reading(ONE))
    table.expect_win(delete(table, "theirs", UNNAMED))
    assert lost(table.decide(insert)) is Rule.CONCURRENT_APPEND
    expected = {
        Profile.DELTA_SERIALIZABLE: Rule.CONCURRENT_DELETE_READ,  # an empty change is checked at snapshot level
        Profile.DELTA_WRITE_SERIALIZABLE: Rule.CONCURRENT_APPEND,
    }
    assert lost(table.decide(empty)) is expected[profile]


@pytest.mark.parametrize("profile", DELTA)
def test_a_blind_insert_follows_a_delete_that_names_no_files(profile: Profile) -> None:
    table = table_with_rows(profile)
    insert = table.change(Operation.INSERT, adds=[table.file("new", {9: 9})])
    table.expect_win(delete(table, "theirs", UNNAMED))
    table.expect_win(insert)


def test_files_that_came_later_are_not_touched() -> None:
    """What I hide I have read: an insert since then holds none of it."""
    table = table_with_rows(Profile.DELTA_SERIALIZABLE)
    mine = delete(table, "mine", UNNAMED)
    table.insert("later", {9: 9})
    assert isinstance(table.decide(mine), TableCommit)


def test_a_delete_set_touches_data_files_alone() -> None:
    table = table_with_rows(Profile.DELTA_SERIALIZABLE)
    table.expect_win(delete(table, "first", NAMED))
    with pytest.raises(MetaError) as refused:
        table.decide(delete(table, "second", ["first"]))
    assert refused.value.reason == "FILE_NOT_LIVE"
