"""The traps of row_level, one test each, and what a compaction's digests refuse."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from metaservice.core.commit.row_level import CHECKS, MEETINGS, Meeting
from metaservice.core.errors import MetaError
from metaservice.core.table.meta import Profile
from metaservice.core.table.model import (
    Change,
    Conflict,
    FileKind,
    Group,
    KeySet,
    Operation,
    Read,
    Rule,
    Scope,
    TableCommit,
)
from metaservice.core.table.predicates import TRUE, Compare
from metaservice.core.table.rows import Hidden
from metaservice.rpc.convert.payloads import Bitmap
from tests.unit.by_hand import ONE, TWO, Table, lost

COMPACTIONS = [Operation.MINOR_COMPACT, Operation.MAJOR_COMPACT, Operation.CLUSTER]
SCOPED = [Operation.OVERWRITE, Operation.TRUNCATE, Operation.RESTORE]


def above(value: int, *, changes_all: bool = True) -> Read:
    return Read(TRUE, None, True, Compare("v", ">", value), changes_all)


def below(value: int, *, changes_all: bool = True) -> Read:
    return Read(TRUE, None, True, Compare("v", "<", value), changes_all)


def append_table() -> Table:
    """f: ids 1 to 4 with small values, g: ids 11 and 12 with large ones."""
    table = Table(Profile.ROW_LEVEL, keyed=False)
    table.insert("f", {1: 1, 2: 2, 3: 3, 4: 4})
    table.insert("g", {11: 101, 12: 102})
    return table


def hiding(table: Table, path: str, *ids: int, touches: str = "f", reads: tuple[Read, ...] = ()) -> Change:
    hides = table.delete_set(path, ids, [touches])
    return table.change(Operation.DELETE, adds=[hides], reads=reads or (below(50),))


def updating(table: Table, path: str, row: int, value: int, reads: tuple[Read, ...] = ()) -> Change:
    adds = [table.delete_set(f"{path}-hides", [row], ["f"]), table.file(path, {row: value})]
    return table.change(Operation.UPDATE, adds=adds, reads=reads or (below(0),))


def keyed_table() -> Table:
    table = Table(Profile.ROW_LEVEL)
    table.insert("b", {0: 1, 2: 2, 4: 4})
    return table


def upserting(table: Table, path: str, key: int, value: int | None, *, says_keys: bool = True) -> Change:
    change = table.change(Operation.UPDATE, adds=[table.file(path, {key: value})])
    change.key_sets = (KeySet(ONE, 0, [key]),) if says_keys else ()
    return change


# ------------------------------------------------------------------------------------------------------------ same row


def test_two_who_hide_one_row_conflict_and_the_row_is_named() -> None:
    table = append_table()
    mine = hiding(table, "mine", 2, 3)
    table.expect_win(hiding(table, "theirs", 3, 4))
    answer = table.decide(mine)
    assert isinstance(answer, Conflict)
    assert (answer.rule, answer.rows, answer.partition) == (Rule.CONCURRENT_ROW_CHANGE, (3,), ONE)


def test_two_who_hide_different_rows_of_one_file_both_commit() -> None:
    table = append_table()
    mine = hiding(table, "mine", 1, 2)
    table.expect_win(hiding(table, "theirs", 3, 4))
    table.expect_win(mine)
    assert table.read(table.head) == {(ONE, 11): 101, (ONE, 12): 102}


@pytest.mark.parametrize("in_file", [("mine",), ("theirs",), ("mine", "theirs")], ids=str)
@pytest.mark.parametrize(("ids", "meets"), [((1, 2), True), ((3, 4), False)])
def test_a_set_kept_in_a_file_is_judged_by_its_ranges(
    in_file: tuple[str, ...], ids: tuple[int, ...], meets: bool
) -> None:
    table = append_table()
    table.payloads.kept_in_files.update(in_file)
    mine = hiding(table, "mine", 2)
    table.expect_win(hiding(table, "theirs", *ids))
    answer = table.decide(mine)
    assert isinstance(answer, Conflict) == meets
    assert not isinstance(answer, Conflict) or answer.rule is Rule.CONCURRENT_ROW_CHANGE


def hidden(ids: frozenset[int], merged: int | None) -> Hidden:
    """`merged`: kept in a file, with ranges that bridge gaps up to this."""
    if merged is None:
        return Hidden("set", ONE, Bitmap(BitMap64(ids).serialize()), (), ())
    spans: list[tuple[int, int]] = []
    for one in sorted(ids):
        if spans and one - spans[-1][1] <= merged:
            spans[-1] = (spans[-1][0], one)
        else:
            spans.append((one, one))
    return Hidden("set", ONE, None, tuple(spans), ())


@given(
    st.frozensets(st.integers(0, 60), min_size=1),
    st.frozensets(st.integers(0, 60), min_size=1),
    st.sampled_from([None, 1, 5]),
    st.sampled_from([None, 1, 5]),
)
def test_sets_that_share_an_id_are_never_taken_for_apart(
    some: frozenset[int], others: frozenset[int], merged: int | None, others_merged: int | None
) -> None:
    found = hidden(some, merged).common(hidden(others, others_merged), 3)
    if merged is None and others_merged is None:
        assert found == (tuple(sorted(some & others)[:3]) or None)
    elif some & others:
        assert found == ()
    elif {merged, others_merged} <= {None, 1}:
        assert found is None, "ranges without gaps are exact"


@pytest.mark.parametrize(
    ("mine_says", "theirs_say", "key", "stands"),
    [
        (True, True, 0, False),
        (True, True, 2, True),
        (False, True, 2, False),
        (True, False, 2, False),
    ],
)
def test_keys_are_exact_where_both_say_them_else_the_bucket_counts(
    mine_says: bool, theirs_say: bool, key: int, stands: bool
) -> None:
    table = keyed_table()
    mine = upserting(table, "mine", 0, 9, says_keys=mine_says)
    table.expect_win(upserting(table, "theirs", key, 8, says_keys=theirs_say))
    answer = table.decide(mine)
    assert isinstance(answer, TableCommit) == stands
    assert stands or lost(answer) is Rule.CONCURRENT_ROW_CHANGE


def test_who_has_not_said_his_keys_yet_is_not_doomed() -> None:
    table = keyed_table()
    mine = upserting(table, "mine", 0, 9)
    mine.key_sets = None
    table.expect_win(upserting(table, "theirs", 2, 8))
    table.expect_win(mine)


def test_a_key_set_has_a_key_for_each_row() -> None:
    table = keyed_table()
    mine = upserting(table, "mine", 0, 9)
    mine.key_sets = (KeySet(ONE, 0, [0, 2]),)
    with pytest.raises(MetaError) as refused:
        table.decide(mine)
    assert refused.value.reason == "KEY_SET_INCOMPLETE"


def test_an_upsert_meets_an_update_of_its_key() -> None:
    table = keyed_table()
    mine = table.change(Operation.INSERT, adds=[table.file("mine", {2: 9})])
    mine.key_sets = (KeySet(ONE, 0, [2]),)
    table.expect_win(upserting(table, "theirs", 2, None))
    assert lost(table.decide(mine)) is Rule.CONCURRENT_ROW_CHANGE


# ------------------------------------------------------------------------------------------------------------ new rows


def test_an_image_that_i_should_have_changed_is_never_skipped() -> None:
    """x = 15 set by the winner, x > 10 deleted by me."""
    table = append_table()
    mine = table.change(Operation.DELETE, adds=[table.delete_set("mine", [11, 12], ["g"])], reads=[above(10)])
    table.expect_win(updating(table, "image", 1, 15))
    answer = table.decide(mine)
    assert isinstance(answer, Conflict)
    assert (answer.rule, answer.path) == (Rule.CONCURRENT_APPEND, "image")


def test_an_image_that_statistics_rule_out_is_no_conflict() -> None:
    table = append_table()
    mine = table.change(Operation.DELETE, adds=[table.delete_set("mine", [11, 12], ["g"])], reads=[above(10)])
    table.expect_win(updating(table, "image", 1, 5))
    table.expect_win(mine)


def test_without_statistics_an_image_may_match() -> None:
    table = append_table()
    mine = table.change(Operation.DELETE, adds=[table.delete_set("mine", [11], ["g"])], reads=[above(10)])
    theirs = updating(table, "image", 1, 5)
    theirs.adds[1].payload = b""
    table.expect_win(theirs)
    assert lost(table.decide(mine)) is Rule.CONCURRENT_APPEND


def blind_insert(table: Table, path: str, row: int, value: int) -> Change:
    return table.change(Operation.INSERT, adds=[table.file(path, {row: value})])


def test_a_blind_append_may_count_as_having_come_after_me() -> None:
    table = append_table()
    mine = hiding(table, "mine", 11, 12, touches="g", reads=(above(10),))
    table.expect_win(blind_insert(table, "new", 21, 15))
    table.expect_win(table.compact(Operation.CLUSTER, ["f"], "f2", {1: 1, 2: 2, 3: 3, 4: 4}))
    table.expect_win(table.change(Operation.UPDATE, reads=[above(0)]))  # matched no row
    table.expect_win(blind_insert(table, "newer", 22, 16))
    table.expect_win(mine)


def test_a_blind_append_that_others_built_on_came_before_me() -> None:
    """INSERT y; then somebody counts rows, y and one that I hide among them: he came before me, and y before him."""
    table = append_table()
    mine = hiding(table, "mine", 11, 12, touches="g", reads=(above(10),))
    table.expect_win(blind_insert(table, "new", 21, 15))
    counts = table.change(Operation.INSERT, adds=[table.file("count", {22: 3})], reads=[above(10, changes_all=False)])
    table.expect_win(counts)
    answer = table.decide(mine)
    assert isinstance(answer, Conflict)
    assert (answer.rule, answer.path) == (Rule.CONCURRENT_APPEND, "new")


def test_an_append_that_is_part_of_a_larger_transaction_is_not_blind() -> None:
    """What it read of other tables may be what I change there."""
    table = append_table()
    mine = hiding(table, "mine", 11, 12, touches="g", reads=(above(10),))
    table.expect_win(blind_insert(table, "new", 21, 15)).footprint.shared = True
    assert lost(table.decide(mine)) is Rule.CONCURRENT_APPEND


def test_who_wrote_an_id_that_an_append_may_have_looked_up_came_after_it() -> None:
    table = append_table()
    mine = hiding(table, "mine", 11, touches="g", reads=(above(10),))
    mine.app_versions = (("etl", 7),)
    table.expect_win(blind_insert(table, "new", 21, 15))
    assert lost(table.decide(mine)) is Rule.CONCURRENT_APPEND


# ----------------------------------------------------------------------------------------------------------- read rows


def test_write_skew_is_a_conflict() -> None:
    """Each hides a row while the other's is there."""
    table = append_table()
    mine = hiding(table, "mine", 1, reads=(below(2), above(100, changes_all=False)))
    table.expect_win(hiding(table, "theirs", 11, touches="g", reads=(above(100), below(2, changes_all=False))))
    answer = table.decide(mine)
    assert isinstance(answer, Conflict)
    assert (answer.rule, answer.path) == (Rule.CONCURRENT_DELETE_READ, "g")


def test_rows_hidden_in_files_that_my_read_can_not_match_are_no_conflict() -> None:
    table = append_table()
    mine = hiding(table, "mine", 1, reads=(below(2), above(100, changes_all=False)))
    table.expect_win(hiding(table, "theirs", 3, reads=(below(4),)))
    table.expect_win(mine)


def test_a_file_that_nobody_can_find_any_more_may_match() -> None:
    table = append_table()
    theirs = hiding(table, "theirs", 3)
    table.expect_win(table.compact(Operation.CLUSTER, ["f"], "f2", {1: 1, 2: 2, 3: 3, 4: 4}))
    mine = hiding(table, "mine", 1, touches="f2", reads=(above(100, changes_all=False),))
    table.expect_win(theirs)
    assert lost(table.decide(mine)) is Rule.CONCURRENT_DELETE_READ


def test_an_insert_from_the_table_itself_loses_to_a_delete_of_what_it_read() -> None:
    table = keyed_table()
    reads = [above(3, changes_all=False)]
    mine = table.change(Operation.INSERT, adds=[table.file("mine", {6: 4})], reads=reads)
    mine.key_sets = (KeySet(ONE, 0, [6]),)
    table.expect_win(upserting(table, "theirs", 4, None))
    assert lost(table.decide(mine)) is Rule.CONCURRENT_DELETE_READ


def test_what_the_read_says_of_the_key_spares_it_other_keys() -> None:
    table = keyed_table()
    only_zero = Read(TRUE, None, True, Compare("id", "=", 0), changes_all=False)
    mine = table.change(Operation.INSERT, adds=[table.file("mine", {6: 4})], reads=[only_zero])
    mine.key_sets = (KeySet(ONE, 0, [6]),)
    table.expect_win(upserting(table, "theirs", 4, None))
    table.expect_win(mine)


@pytest.mark.parametrize(("others", "stands"), [({}, True), ({2: 9}, False)])
def test_tombstones_are_no_new_rows_and_a_file_that_holds_rows_too_is_one(others: dict[int, int], stands: bool) -> None:
    """Any row may match the condition, whatever statistics say; a tombstone is none."""
    table = keyed_table()
    mine = upserting(table, "mine", 0, 9)
    mine.reads = (Read(TRUE, None, True, TRUE, changes_all=True),)
    theirs = table.change(Operation.MERGE, adds=[table.file("theirs", {4: None, **others})])
    theirs.key_sets = (KeySet(ONE, 0, [4, *others]),)
    table.expect_win(theirs)
    answer = table.decide(mine)
    assert isinstance(answer, TableCommit) == stands
    assert stands or lost(answer) is Rule.CONCURRENT_APPEND


def test_a_tombstone_of_a_row_that_was_read_is_still_a_conflict() -> None:
    table = keyed_table()
    mine = upserting(table, "mine", 0, 9)
    mine.reads = (Read(TRUE, None, True, TRUE, changes_all=False),)
    table.expect_win(upserting(table, "theirs", 4, None))
    assert lost(table.decide(mine)) is Rule.CONCURRENT_DELETE_READ


# --------------------------------------------------------------------------------------------------------- whole scope


def scoped(table: Table, operation: Operation, partition: str = ONE) -> Change:
    change = table.change(operation, scope=Scope(frozenset({partition})))
    if operation is Operation.OVERWRITE:
        change.adds = [table.file("over", {31: 1}, FileKind.BASE, partition)]
    change.restore_version = 0
    return change


@pytest.mark.parametrize("operation", SCOPED)
def test_who_read_or_hides_rows_in_a_scope_loses_and_a_blind_append_passes(operation: Operation) -> None:
    table = append_table()
    reads = table.change(Operation.INSERT, adds=[table.file("x", {41: 1}, partition=TWO)], reads=[above(500)])
    hides = table.change(Operation.DELETE, adds=[table.delete_set("y", [1], ["f"])])
    blind = blind_insert(table, "z", 42, 1)
    table.expect_win(scoped(table, operation))
    assert lost(table.decide(reads)) is Rule.CONCURRENT_DELETE_READ
    assert lost(table.decide(hides)) is Rule.CONCURRENT_ROW_CHANGE
    table.expect_win(blind)


@pytest.mark.parametrize("operation", SCOPED)
def test_an_overwrite_that_read_nothing_is_recomputed(operation: Operation) -> None:
    table = append_table()
    mine = scoped(table, operation)
    table.expect_win(updating(table, "image", 1, 15))
    table.expect_win(blind_insert(table, "new", 21, 15))
    table.expect_win(mine)
    assert set(table.read(table.head)) == ({(ONE, 31)} if operation is Operation.OVERWRITE else set())


@pytest.mark.parametrize("theirs", ["image", "insert", "delete"])
def test_an_overwrite_that_read_its_table_conflicts_with_every_change_in_its_scope(theirs: str) -> None:
    table = append_table()
    mine = replace(scoped(table, Operation.OVERWRITE), reads=(above(1_000, changes_all=False),))
    match theirs:
        case "image":
            table.expect_win(updating(table, "image", 1, 15))
        case "insert":
            table.expect_win(blind_insert(table, "new", 21, 15))
        case _:
            table.expect_win(hiding(table, "theirs", 3))
    rule = Rule.CONCURRENT_DELETE_READ if theirs == "delete" else Rule.CONCURRENT_APPEND
    assert lost(table.decide(mine)) is rule


# --------------------------------------------------------------------------------------------------------- compactions


def compacting(table: Table, operation: Operation) -> Change:
    live = [one for one in table.snapshots.live(table.head, ONE) if not one.entry.is_delete_set]
    rows = {identity: value for (partition, identity), value in table.read(table.head).items() if partition == ONE}
    return table.compact(operation, [one.entry.path for one in live], "out", dict(rows))


@pytest.mark.parametrize("compaction", COMPACTIONS)
@pytest.mark.parametrize("dml", [Operation.INSERT, Operation.UPDATE, Operation.DELETE])
@pytest.mark.parametrize("compaction_first", [True, False])
def test_compactions_and_changes_of_rows_pass_each_other(
    compaction: Operation, dml: Operation, compaction_first: bool
) -> None:
    table = append_table()
    both = [compacting(table, compaction)]
    match dml:
        case Operation.INSERT:
            both.append(blind_insert(table, "new", 21, 15))
            after = {1: 1, 2: 2, 3: 3, 4: 4, 11: 101, 12: 102, 21: 15}
        case Operation.UPDATE:
            both.append(updating(table, "image", 1, 15, (above(0, changes_all=False),)))
            after = {1: 15, 2: 2, 3: 3, 4: 4, 11: 101, 12: 102}
        case _:
            both.append(hiding(table, "hides", 1, 2, reads=(above(0, changes_all=False),)))
            after = {3: 3, 4: 4, 11: 101, 12: 102}
    for change in both if compaction_first else reversed(both):
        table.expect_win(change)
    assert table.read(table.head) == {(ONE, row): value for row, value in after.items()}


@pytest.mark.parametrize("compaction", COMPACTIONS)
@pytest.mark.parametrize("operation", SCOPED)
def test_a_compaction_loses_to_who_replaced_its_scope(compaction: Operation, operation: Operation) -> None:
    table = append_table()
    mine = compacting(table, compaction)
    table.expect_win(scoped(table, operation))
    assert lost(table.decide(mine)) is Rule.CONCURRENT_DELETE_READ


def test_two_compactions_that_share_an_input_conflict() -> None:
    table = append_table()
    mine = compacting(table, Operation.MAJOR_COMPACT)
    table.expect_win(table.compact(Operation.MINOR_COMPACT, ["f"], "f2", {1: 1, 2: 2, 3: 3, 4: 4}))
    assert lost(table.decide(mine)) is Rule.LINEAGE


def test_the_table_of_meetings_lets_compactions_and_rows_pass() -> None:
    passes = {
        (mine.name, theirs.name) for mine, row in MEETINGS.items() for theirs in row if row[theirs] is Meeting.PASSES
    }
    compactions, rows = {"MINOR_COMPACT", "MAJOR_COMPACT"}, {"INSERT_INTO", "UPDATE_DELETE"}
    assert {(a, b) for a in compactions for b in rows} | {(b, a) for a in compactions for b in rows} <= passes
    assert [check.rule.name for check in CHECKS] == [
        "CONCURRENT_ROW_CHANGE",
        "CONCURRENT_APPEND",
        "CONCURRENT_DELETE_READ",
    ]


def test_custom_changes_are_refused() -> None:
    table = append_table()
    with pytest.raises(MetaError) as refused:
        table.decide(table.change(Operation.CUSTOM))
    assert refused.value.reason == "CUSTOM_NOT_ALLOWED"


# ------------------------------------------------------------------------------------------------------------- digests


def digest_of(rows: dict[int, int | None]) -> bytes:
    """Free of order; a tombstone is a row as well."""
    return sum(hash((identity, value)) & (2**64 - 1) for identity, value in rows.items()).to_bytes(16, "big")


INPUT: dict[int, int | None] = {1: 1, 2: 2, 3: None, 4: 4}


def compaction_of(table: Table, output: dict[int, int | None], **said: object) -> Change:
    change = table.compact(Operation.MINOR_COMPACT, ["d1", "d2"], "m", output)
    (group,) = change.groups
    change.groups = (replace(group, **said),)  # type: ignore[arg-type]
    return change


def two_deltas(**properties: str) -> Table:
    table = Table(Profile.ROW_LEVEL)
    table.meta = replace(table.meta, properties=properties)
    table.insert("d1", {1: 1, 2: 2})
    table.insert("d2", {3: None, 4: 4})
    return table


@pytest.mark.parametrize(
    "output",
    [
        {1: 1, 2: 2, 3: None},  # dropped
        {1: 1, 2: 2, 3: None, 4: 4, 5: 4},  # doubled, under another id
        {1: 1, 2: 2, 3: None, 4: 5},  # changed
        {1: 1, 2: 2, 4: 4},  # the tombstone lost
        {1: 1, 2: 2, 3: 3, 4: 4},  # the tombstone filled
        {1: 2, 2: 1, 3: None, 4: 4},  # two ids swapped
    ],
)
def test_a_compaction_whose_rows_differ_is_refused(output: dict[int, int | None]) -> None:
    table = two_deltas()
    digests = {"input_digest": digest_of(INPUT), "output_digest": digest_of(output)}
    with pytest.raises(MetaError) as refused:
        table.decide(compaction_of(table, output, **digests, input_rows=len(INPUT), output_rows=len(output)))
    assert refused.value.reason == "COMPACTION_DIGEST_MISMATCH"
    assert (refused.value.facts["partition"], refused.value.facts["bucket"]) == (ONE, "0")
    assert refused.value.facts["rows"] == str(len(output))
    assert table.live() == {"d1": 1, "d2": 2}


@pytest.mark.parametrize("said", [{"input_rows": 5}, {"output_rows": 5}, {"input_rows": 5, "output_rows": 5}])
def test_a_compaction_whose_counts_are_not_those_of_its_files_is_refused(said: dict[str, int]) -> None:
    table = two_deltas()
    with pytest.raises(MetaError) as refused:
        table.decide(compaction_of(table, INPUT, **said))
    assert refused.value.reason == "COMPACTION_DIGEST_MISMATCH"


def test_equal_digests_pass_and_half_a_pair_is_refused() -> None:
    table = two_deltas()
    same = digest_of(INPUT)
    with pytest.raises(MetaError) as refused:
        table.decide(compaction_of(table, INPUT, input_digest=same))
    assert refused.value.reason == "COMPACTION_DIGEST_MISSING"
    table.expect_win(compaction_of(table, INPUT, input_digest=same, output_digest=same, input_rows=4, output_rows=4))


@pytest.mark.parametrize(("verify", "stands"), [(None, True), ("false", True), ("true", False)])
def test_digests_are_asked_for_where_the_property_is_set(verify: str | None, stands: bool) -> None:
    table = two_deltas(**({} if verify is None else {"compaction.verify": verify}))
    change = compaction_of(table, INPUT)
    if stands:
        table.expect_win(change)
        return
    with pytest.raises(MetaError) as refused:
        table.decide(change)
    assert refused.value.reason == "COMPACTION_DIGEST_MISSING"


def test_a_group_without_outputs_is_compared_too() -> None:
    """A job that lost every row can't say that there were none."""
    table = two_deltas()
    change = table.change(Operation.MAJOR_COMPACT)
    change.groups = (Group(ONE, 0, ("d1", "d2"), (), input_rows=3, output_rows=0),)
    with pytest.raises(MetaError) as refused:
        table.decide(change)
    assert refused.value.reason == "COMPACTION_DIGEST_MISMATCH"
