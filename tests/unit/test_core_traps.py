"""The counterexamples that earlier wordings of the rules had, one test each."""

from collections.abc import Mapping

import pytest

from metaservice.core.clock import next_commit_time
from metaservice.core.errors import MetaError
from metaservice.core.table.meta import Alteration, Profile
from metaservice.core.table.model import (
    Advice,
    Conflict,
    FileKind,
    Group,
    Operation,
    Read,
    Ref,
    Rule,
    Scope,
    TableCommit,
)
from metaservice.core.table.partitions import Partitioning
from metaservice.core.table.predicates import (
    TRUE,
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
    partition_part,
    truth,
)
from tests.unit.by_hand import ONE, TWO, Table, lost, reading


def b_d5_d6_d7() -> Table:
    """b has data version 4, and so on."""
    table = Table()
    for number in range(3):
        table.insert(f"d{number + 1}", {0: number}, partition=TWO)
    base = table.file("b", {0: 40, 2: 41, 4: 42}, FileKind.BASE)
    table.expect_win(table.change(Operation.OVERWRITE, adds=[base], scope=Scope(frozenset({ONE}))))
    for version, rows in ((5, {0: 50}), (6, {2: None}), (7, {4: 70})):
        table.insert(f"d{version}", dict(rows))
    assert table.live() == {"b": 4, "d5": 5, "d6": 6, "d7": 7}
    return table


# ------------------------------------------------------------------------------------------------------- compactions


def test_a_minor_gets_its_inputs_highest_data_version() -> None:
    table = b_d5_d6_d7()
    before = table.read(table.head)
    table.expect_win(table.compact(Operation.MINOR_COMPACT, ["d5", "d6"], "m", {0: 50, 2: None}))
    assert table.live() == {"b": 4, "m": 6, "d7": 7}
    assert table.read(table.head) == before


@pytest.mark.parametrize("operation", [Operation.MINOR_COMPACT, Operation.CLUSTER])
def test_a_run_with_a_hole_is_refused(operation: Operation) -> None:
    table = b_d5_d6_d7()
    with pytest.raises(MetaError) as refused:
        table.decide(table.compact(operation, ["d5", "d7"], "m", {0: 50, 4: 70}))
    assert refused.value.reason == "COMPACTION_INCOMPLETE"


def test_a_run_that_leaves_out_a_second_file_of_its_last_version_is_refused() -> None:
    table = Table()
    table.insert("d1", {0: 1})
    two = [table.file("d2", {0: 2}), table.file("d2-too", {2: 2})]
    table.expect_win(table.change(Operation.INSERT, adds=two))
    with pytest.raises(MetaError) as refused:
        table.decide(table.compact(Operation.MINOR_COMPACT, ["d1", "d2"], "m", {0: 2}))
    assert refused.value.reason == "COMPACTION_INCOMPLETE"
    table.expect_win(table.compact(Operation.MINOR_COMPACT, ["d1", "d2", "d2-too"], "m", {0: 2, 2: 2}))
    assert table.live() == {"m": 2}


@pytest.mark.parametrize("keyed", [True, False])
def test_a_major_that_leaves_out_a_file_is_refused(keyed: bool) -> None:
    table = Table(keyed=keyed)
    table.insert("a", {0: 1})
    table.insert("b", {2: 2})
    with pytest.raises(MetaError) as refused:
        table.decide(table.compact(Operation.MAJOR_COMPACT, ["a"], "m", {0: 1}))
    assert refused.value.reason == "COMPACTION_INCOMPLETE"


def test_an_input_that_is_neither_live_nor_covered_loses() -> None:
    """The winner's minor took a file from beside my inputs along, so its output isn't mine to remove."""
    table = Table(keyed=False)
    table.insert("a", {1: 1})
    table.insert("b", {2: 2})
    read = table.head
    table.insert("c", {3: 3}, partition=TWO)
    mine = table.compact(Operation.MINOR_COMPACT, ["a"], "mine", {1: 1}, at=read)
    table.expect_win(table.compact(Operation.MINOR_COMPACT, ["a", "b"], "theirs", {1: 1, 2: 2}))
    assert lost(table.decide(mine)) is Rule.OUTCOME_TABLE
    table.meta = Table(Profile.DELTA_WRITE_SERIALIZABLE, keyed=False).meta
    assert isinstance(table.decide(mine), Conflict)
    assert table.live() == {"theirs": 3}


def test_an_input_that_was_never_live_is_refused() -> None:
    table = Table()
    table.insert("a", {0: 1})
    with pytest.raises(MetaError) as refused:
        table.decide(table.compact(Operation.MINOR_COMPACT, ["a", "ghost"], "m", {0: 1}))
    assert refused.value.reason == "INPUT_NOT_LIVE"


def test_a_major_follows_a_chain_of_minors() -> None:
    table = b_d5_d6_d7()
    before, read = table.read(table.head), table.head
    major = table.compact(Operation.MAJOR_COMPACT, ["b", "d5", "d6", "d7"], "M", {0: 50, 4: 70}, at=read)
    table.expect_win(table.compact(Operation.MINOR_COMPACT, ["d5", "d6"], "m", {0: 50, 2: None}))
    table.expect_win(table.compact(Operation.MINOR_COMPACT, ["m", "d7"], "n", {0: 50, 2: None, 4: 70}))
    table.expect_win(major)
    assert table.live() == {"M": 7}
    assert table.read(table.head) == before


def test_lineage_is_judged_by_group_and_not_by_commit() -> None:
    """One commit compacted two buckets; only the group of my bucket counts."""
    table = Table()
    one = [table.file("a0", {0: 1}), table.file("a1", {1: 1})]
    one[1].bucket = 1
    table.expect_win(table.change(Operation.INSERT, adds=one))
    read = table.head
    major = table.compact(Operation.MAJOR_COMPACT, ["a0"], "M0", {0: 1}, at=read)
    minor = table.change(Operation.MINOR_COMPACT, adds=[table.file("m0", {0: 1}), table.file("m1", {1: 1})])
    minor.adds[1].bucket = 1
    minor.groups = (Group(ONE, 0, ("a0",), ("m0",)), Group(ONE, 1, ("a1",), ("m1",)))
    table.expect_win(minor)
    table.expect_win(major)
    assert table.live() == {"M0": 1, "m1": 1}
    assert table.read(table.head) == {(ONE, 0): 1, (ONE, 1): 1}


def test_a_major_follows_a_minor_that_began_later() -> None:
    """It applied nothing that the major didn't: its output has a higher data version, and hides no less."""
    table = Table(keyed=False)
    table.insert("a", {1: 1, 2: 2})
    major = table.compact(Operation.MAJOR_COMPACT, ["a"], "M", {1: 1, 2: 2})
    table.insert("elsewhere", {9: 9}, partition=TWO)
    table.expect_win(table.compact(Operation.MINOR_COMPACT, ["a"], "m", {1: 1, 2: 2}))
    assert table.live()["m"] == 2
    table.expect_win(major)
    assert table.live() == {"M": 1}
    assert table.read(table.head) == {(ONE, 1): 1, (ONE, 2): 2, (TWO, 9): 9}


def test_an_output_that_applied_newer_deletes_is_not_removed() -> None:
    """The minor began later, after a delete: what it applied, the major never saw."""
    table = Table(keyed=False)
    table.insert("a", {1: 1, 2: 2})
    major = table.compact(Operation.MAJOR_COMPACT, ["a"], "M", {1: 1, 2: 2})
    hide = table.delete_set("gone", [1], ["a"])
    table.expect_win(table.change(Operation.DELETE, reads=reading(ONE), adds=[hide]))
    table.expect_win(table.compact(Operation.MINOR_COMPACT, ["a"], "m", {2: 2}))
    assert lost(table.decide(major)) is Rule.OUTCOME_TABLE
    assert table.read(table.head) == {(ONE, 2): 2}


@pytest.mark.parametrize("profile", list(Profile))
@pytest.mark.parametrize("operation", [Operation.MINOR_COMPACT, Operation.MAJOR_COMPACT, Operation.CLUSTER])
def test_a_compaction_after_a_truncate_loses(profile: Profile, operation: Operation) -> None:
    table = Table(profile)
    table.insert("a", {0: 1})
    mine = table.compact(operation, ["a"], "m", {0: 1})
    table.expect_win(table.change(Operation.TRUNCATE, scope=Scope(None)))
    answer = table.decide(mine)
    assert isinstance(answer, Conflict)
    assert answer.advice is Advice.PLAN_AGAIN
    assert table.read(table.head) == {}


@pytest.mark.parametrize("profile", list(Profile))
@pytest.mark.parametrize("later", [Operation.MINOR_COMPACT, Operation.MAJOR_COMPACT])
def test_a_compaction_does_not_replace_a_newer_compaction(profile: Profile, later: Operation) -> None:
    table = Table(profile)
    table.insert("a", {0: 1})
    mine = table.compact(later, ["a"], "old", {0: 1})
    table.insert("b", {2: 2}, partition=TWO)
    table.expect_win(table.compact(Operation.MAJOR_COMPACT, ["a"], "new", {0: 1}))
    assert isinstance(table.decide(mine), Conflict)
    assert table.live() == {"new": 2}


# -------------------------------------------------------------------------------------------------------------- time


@pytest.mark.parametrize(
    ("now", "last", "answered", "expected"),
    [
        pytest.param(100, 50, 60, 100, id="the clock leads"),
        pytest.param(10, 50, 0, 51, id="the clock went back"),
        pytest.param(50, 50, 0, 51, id="twice in a microsecond"),
        pytest.param(55, 50, 60, 61, id="never at or below an answered time"),
        pytest.param(60, 50, 60, 61, id="nor at it"),
    ],
)
def test_commit_times_only_grow(now: int, last: int, answered: int, expected: int) -> None:
    assert next_commit_time(now, last, answered) == expected


# -------------------------------------------------------------------------------------------------------- predicates

P_IS_1 = Compare("p", "=", 1)
X_IS_1 = Compare("x", "=", 1)


@pytest.mark.parametrize(
    ("predicate", "row", "expected"),
    [
        (Compare("p", "<>", 1), {"p": None}, None),
        (Compare("p", "=", None), {"p": None}, None),
        (Not(P_IS_1), {"p": None}, None),
        (Not(Not(P_IS_1)), {"p": None}, None),
        (IsNull("p"), {"p": None}, True),
        (Not(IsNull("p")), {"p": None}, False),
        (Not(IsNull("p")), {"p": 1}, True),
        (InList("p", (1, None)), {"p": 1}, True),
        (InList("p", (1, None)), {"p": 2}, None),
        (Not(InList("p", (1, None))), {"p": 2}, None),
        (InList("p", ()), {"p": None}, False),
        (AllOf((P_IS_1, Literal(truth=False))), {"p": None}, False),
        (AllOf((P_IS_1, TRUE)), {"p": None}, None),
        (AnyOf((P_IS_1, TRUE)), {"p": None}, True),
        (AnyOf((P_IS_1, Literal(truth=False))), {"p": None}, None),
        (StartsWith("p", "a"), {"p": None}, None),
        (Not(StartsWith("p", "a")), {"p": "b"}, True),
    ],
)
def test_truth_is_sql(predicate: Predicate, row: Mapping[str, SqlValue], expected: bool | None) -> None:
    assert truth(predicate, row) is expected


def test_not_of_null_matches_no_partition() -> None:
    partitioning = Partitioning((("p", "int"),))
    assert not partitioning.matches(Not(P_IS_1), "p")
    assert partitioning.matches(IsNull("p"), "p")
    assert not partitioning.matches(Not(IsNull("p")), "p")
    assert partitioning.matches(Not(IsNull("p")), "p=1")


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        pytest.param(AnyOf((P_IS_1, X_IS_1)), TRUE, id="OR across partition and data columns"),
        pytest.param(X_IS_1, TRUE, id="a pure data predicate"),
        pytest.param(AllOf((P_IS_1, X_IS_1)), AllOf((P_IS_1,)), id="the partition conjunct stays"),
        pytest.param(AllOf((AllOf((P_IS_1, X_IS_1)), X_IS_1)), AllOf((AllOf((P_IS_1,)),)), id="nested conjuncts"),
        pytest.param(Not(AllOf((P_IS_1, X_IS_1))), TRUE, id="never a part under NOT"),
        pytest.param(AnyOf((P_IS_1, AllOf((P_IS_1, X_IS_1)))), TRUE, id="never a part under OR"),
        pytest.param(AnyOf((P_IS_1, IsNull("p"))), AnyOf((P_IS_1, IsNull("p"))), id="an OR of partitions alone"),
    ],
)
def test_only_partition_conjuncts_count(predicate: Predicate, expected: Predicate) -> None:
    assert partition_part(predicate, ("p",)) == expected


def test_an_or_across_partition_and_data_columns_reads_every_partition() -> None:
    table = Table(Profile.DELTA_SERIALIZABLE, keyed=False)
    table.insert("a", {1: 1})
    whole = AnyOf((P_IS_1, X_IS_1))
    mine = table.change(Operation.UPDATE, reads=[Read(partition_part(whole, ("p",)))])
    mine.adds = [table.file("image", {1: 10})]
    table.insert("b", {2: 2}, partition=TWO)
    assert lost(table.decide(mine)) is Rule.CONCURRENT_APPEND


# ------------------------------------------------------------------------------------------- who conflicts with nobody


@pytest.mark.parametrize("profile", list(Profile))
@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("winner", [Operation.UPDATE, Operation.DELETE, Operation.MERGE])
def test_an_update_that_matched_no_row_conflicts_with_nobody(profile: Profile, keyed: bool, winner: Operation) -> None:
    table = Table(profile, keyed=keyed)
    table.insert("a", {2: 1})
    mine = [
        table.compact(Operation.MAJOR_COMPACT, ["a"], "m", {2: 1}),
        table.change(Operation.UPDATE, reads=reading(ONE), adds=[table.file("u", {4: 5})]),
        table.change(Operation.INSERT, adds=[table.file("i", {6: 5})]),
    ]
    for change in mine:
        world = Table(profile, keyed=keyed)
        world.insert("a", {2: 1})
        world.expect_win(world.change(winner, reads=[Read(TRUE)]))
        assert isinstance(world.decide(change), TableCommit)


@pytest.mark.parametrize(
    "alteration",
    [
        Alteration(comment="new"),
        Alteration(set_properties={"data.retain.hours": "48"}),
        Alteration(set_properties={"compaction.minor.files": "9"}),
    ],
)
def test_a_quiet_alter_conflicts_with_nobody(alteration: Alteration) -> None:
    for profile in Profile:
        table = Table(profile)
        table.insert("a", {0: 1})
        read = table.head
        mine = table.compact(Operation.MAJOR_COMPACT, ["a"], "m", {0: 1}, at=read)
        loud = table.change(Operation.ALTER, at=read, alteration=Alteration(profile=other_than(profile)))
        quiet = table.change(Operation.ALTER, at=read, alteration=alteration)
        altered = table.expect_win(table.change(Operation.ALTER, alteration=alteration))
        assert not altered.change.logical
        table.expect_win(mine)
        table.expect_win(loud)
        table.expect_win(quiet)


def test_an_alter_that_writers_look_at_ends_every_change() -> None:
    for profile in Profile:
        table = Table(profile)
        table.insert("a", {0: 1})
        mine = table.compact(Operation.MAJOR_COMPACT, ["a"], "m", {0: 1})
        other = table.change(Operation.ALTER, alteration=Alteration(profile=other_than(profile)))
        blind = table.change(Operation.INSERT, adds=[table.file("i", {2: 1})])
        table.expect_win(
            table.change(Operation.ALTER, alteration=Alteration(set_properties={"write.compression": "zstd"}))
        )
        assert [lost(table.decide(each)) for each in (mine, other, blind)] == [Rule.METADATA_CHANGED] * 3


def other_than(profile: Profile) -> Profile:
    return Profile.DELTA_SERIALIZABLE if profile is Profile.MAXCOMPUTE else Profile.MAXCOMPUTE


@pytest.mark.parametrize("profile", list(Profile))
def test_turning_on_a_feature_ends_every_change(profile: Profile) -> None:
    table = Table(profile, keyed=False)
    on = Alteration(add_features=("delete_sets",))
    mine = [table.change(Operation.INSERT, adds=[table.file(name, {at: 1})]) for at, name in enumerate(("i", "j"), 1)]
    altered = table.expect_win(table.change(Operation.ALTER, alteration=on))
    assert lost(table.decide(mine[0])) is Rule.METADATA_CHANGED
    assert altered.meta is not None
    table.meta = altered.meta
    late = table.change(Operation.INSERT, adds=mine[1].adds)
    table.expect_win(table.change(Operation.ALTER, alteration=on))  # it was on: nothing changed
    table.expect_win(late)


# ------------------------------------------------------------------------ delete sets and compactions

DELTA = [Profile.DELTA_SERIALIZABLE, Profile.DELTA_WRITE_SERIALIZABLE]
UNSORTED = [Operation.MINOR_COMPACT, Operation.MAJOR_COMPACT]


def by_ids(profile: Profile) -> Table:
    """One file of an append table."""
    table = Table(profile, keyed=False)
    table.insert("a", {1: 1, 2: 2, 3: 3})
    return table


@pytest.mark.parametrize("compaction", UNSORTED)
@pytest.mark.parametrize("profile", DELTA)
def test_a_change_of_rows_and_a_compaction_that_does_not_sort_follow_each_other(
    profile: Profile, compaction: Operation
) -> None:
    table = by_ids(profile)
    hide = table.change(Operation.DELETE, reads=reading(ONE), adds=[table.delete_set("s", [1], ["a"])])
    merged = table.compact(compaction, ["a"], "b", {1: 1, 2: 2, 3: 3})
    table.expect_win(hide)
    table.expect_win(merged)
    assert table.read(table.head) == {(ONE, 2): 2, (ONE, 3): 3}
    hide = table.change(Operation.DELETE, reads=reading(ONE), adds=[table.delete_set("t", [2], ["b"])])
    table.expect_win(table.compact(compaction, ["b"], "c", {2: 2, 3: 3}))
    table.expect_win(hide)
    assert table.read(table.head) == {(ONE, 3): 3}


@pytest.mark.parametrize("profile", DELTA)
def test_a_compaction_that_sorts_and_a_change_of_rows_conflict(profile: Profile) -> None:
    table = by_ids(profile)
    hide = table.change(Operation.DELETE, reads=reading(ONE), adds=[table.delete_set("s", [1], ["a"])])
    table.expect_win(table.compact(Operation.CLUSTER, ["a"], "b", {1: 1, 2: 2, 3: 3}))
    assert isinstance(table.decide(hide), Conflict)


@pytest.mark.parametrize("profile", DELTA)
def test_a_file_that_was_compacted_lives_on_in_the_output(profile: Profile) -> None:
    """Both delete row 1: the one by the name of the file, the other by that of the output."""
    table = by_ids(profile)
    mine = table.change(Operation.DELETE, reads=reading(ONE), adds=[table.delete_set("mine", [1], ["a"])])
    table.expect_win(table.compact(Operation.MINOR_COMPACT, ["a"], "b", {1: 1, 2: 2, 3: 3}))
    table.expect_win(table.compact(Operation.MAJOR_COMPACT, ["b"], "c", {1: 1, 2: 2, 3: 3}))
    theirs = table.delete_set("theirs", [1], ["c"])
    table.expect_win(table.change(Operation.DELETE, reads=reading(ONE), adds=[theirs]))
    assert lost(table.decide(mine)) is Rule.CONCURRENT_APPEND  # rows that are hidden count as a file added again
    blindly = table.change(Operation.DELETE, mine.read_version, adds=mine.adds)
    assert lost(table.decide(blindly)) is Rule.CONCURRENT_DELETE_DELETE


@pytest.mark.parametrize("profile", DELTA)
def test_a_delete_set_that_names_a_file_of_the_past_may_hide_rows_of_any(profile: Profile) -> None:
    table = by_ids(profile)
    hide = table.change(Operation.DELETE, reads=reading(ONE), adds=[table.delete_set("s", [1], ["a"])])
    table.expect_win(table.compact(Operation.MAJOR_COMPACT, ["a"], "b", {1: 1, 2: 2, 3: 3}))
    mine = table.change(Operation.DELETE, reads=reading(ONE), adds=[table.delete_set("t", [1], ["b"])])
    table.expect_win(hide)
    assert lost(table.decide(mine)) is Rule.CONCURRENT_APPEND
    blindly = table.change(Operation.DELETE, mine.read_version, adds=mine.adds)
    assert lost(table.decide(blindly)) is Rule.CONCURRENT_DELETE_DELETE


# ------------------------------------------------------------------------------------------------------------- others


@pytest.mark.parametrize(("operation", "loses"), [(Operation.INSERT, True), (Operation.OVERWRITE, False)])
def test_an_insert_is_judged_by_what_it_read_too(operation: Operation, loses: bool) -> None:
    """As an UPDATE is: it may have computed its rows from others. An overwrite wins, as the outcome table says."""
    table = Table()
    table.insert("a", {0: 1}, partition=TWO)
    kind, scope = (FileKind.DELTA, None) if loses else (FileKind.BASE, Scope(frozenset({ONE})))
    mine = table.change(operation, reads=reading(TWO), adds=[table.file("i", {0: 1}, kind)], scope=scope)
    table.insert("b", {0: 2}, partition=TWO)
    answer = table.decide(mine)
    assert isinstance(answer, Conflict) is loses
    assert not isinstance(answer, Conflict) or answer.advice is Advice.RERUN


def test_the_destination_of_a_moved_row_is_in_an_updates_scope() -> None:
    table = Table()
    table.insert("a", {0: 1})
    moved = [table.file("out", {0: None}), table.file("in", {0: 2}, partition=TWO)]
    mine = table.change(Operation.UPDATE, reads=reading(ONE), adds=moved)
    table.insert("b", {0: 3}, partition=TWO)
    answer = table.decide(mine)
    assert isinstance(answer, Conflict)
    assert (answer.rule, answer.partition) == (Rule.OUTCOME_TABLE, TWO)


def test_a_delete_set_stays_while_an_older_file_may_hold_its_ids() -> None:
    table = Table(keyed=False)
    table.insert("a", {1: 1, 2: 2})
    table.insert("b", {3: 3})
    hide = table.delete_set("s", [1], ["a"])
    table.expect_win(table.change(Operation.DELETE, reads=reading(ONE), adds=[hide]))
    table.expect_win(table.compact(Operation.MINOR_COMPACT, ["b"], "b2", {3: 3}))
    assert "s" in table.live()
    table.expect_win(table.compact(Operation.MAJOR_COMPACT, ["a", "b2"], "m", {2: 2, 3: 3}))
    assert table.live() == {"m": 4}
    assert table.read(3) == table.read(table.head) == {(ONE, 2): 2, (ONE, 3): 3}


def test_a_delete_set_is_no_file_to_remove() -> None:
    """Else a compaction that drops the set meanwhile would leave the service with an entry that isn't there."""
    table = Table(Profile.DELTA_WRITE_SERIALIZABLE, keyed=False)
    table.insert("a", {1: 1, 2: 2})
    hide = table.delete_set("s", [1], ["a"])
    table.expect_win(table.change(Operation.DELETE, reads=reading(ONE), adds=[hide]))
    mine = table.change(Operation.CUSTOM)
    mine.removes = (Ref("s", ONE, 0),)
    table.expect_win(table.compact(Operation.MAJOR_COMPACT, ["a"], "m", {2: 2}))
    with pytest.raises(MetaError) as refused:
        table.decide(mine)
    assert refused.value.reason == "FILE_NOT_LIVE"


@pytest.mark.parametrize(("looked_up", "conflicts"), [(("app",), True), (("other",), False), ((), False)])
def test_an_app_id_that_was_looked_up_and_written_meanwhile(looked_up: tuple[str, ...], conflicts: bool) -> None:
    table = Table(Profile.DELTA_WRITE_SERIALIZABLE, keyed=False)
    mine = table.change(Operation.INSERT, adds=[table.file("i", {1: 1})])
    mine.app_ids_read = looked_up
    winner = table.change(Operation.INSERT, adds=[table.file("w", {2: 2})])
    winner.app_versions = (("app", 7),)
    table.expect_win(winner)
    answer = table.decide(mine)
    assert isinstance(answer, Conflict) is conflicts
    if isinstance(answer, Conflict):
        assert answer.rule is Rule.CONCURRENT_TRANSACTION
