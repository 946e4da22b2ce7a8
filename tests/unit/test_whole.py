"""Tables of one transaction are judged one by one, and each with an eye on what the whole transaction does."""

import pytest

from metaservice.core.commit import transaction_facts
from metaservice.core.table.meta import Alteration, Profile
from metaservice.core.table.model import Advice, Change, Conflict, Operation, Read, Rule, Scope, TableCommit
from metaservice.core.table.predicates import TRUE
from tests.unit.by_hand import Table, lost

DELTA = [Profile.DELTA_SERIALIZABLE, Profile.DELTA_WRITE_SERIALIZABLE]
READING = [Profile.DELTA_SERIALIZABLE, Profile.DELTA_WRITE_SERIALIZABLE, Profile.ROW_LEVEL]
ALL = (Read(TRUE),)


class Tables:
    """Two tables, a and b, with a row in each."""

    def __init__(self, profile: Profile) -> None:
        self.a, self.b = Table(profile, keyed=False), Table(profile, keyed=False)
        for table in (self.a, self.b):
            table.insert("first", {1: 1})

    def commit(self, a: Change, b: Change) -> list[TableCommit | Conflict]:
        """Of one transaction; where the first loses the second isn't decided."""
        transaction_facts.tell([a, b])
        answers: list[TableCommit | Conflict] = []
        for table, change in ((self.a, a), (self.b, b)):
            answers.append(table.decide(change))
            if isinstance(answers[-1], Conflict):
                break
            answers[-1].footprint.shared = True
        return answers

    def insert(self, table: Table, path: str = "new") -> Change:
        return table.change(Operation.INSERT, adds=[table.file(path, {5: 5})])


@pytest.mark.parametrize("profile", READING)
@pytest.mark.parametrize("operation", [Operation.INSERT, Operation.UPDATE])
def test_of_two_that_read_what_the_other_one_writes_one_loses(profile: Profile, operation: Operation) -> None:
    """The reading side changes nothing in its table; that makes it no less of a reader."""
    tables = Tables(profile)
    mine = tables.a.change(operation, reads=ALL), tables.insert(tables.b, "mine")
    theirs = tables.insert(tables.a, "theirs"), tables.b.change(operation, reads=ALL)
    assert all(isinstance(answer, TableCommit) for answer in tables.commit(*theirs))
    assert lost(tables.commit(*mine)[0]) is Rule.CONCURRENT_APPEND


def test_an_empty_change_of_a_transaction_that_changes_no_data_is_checked_at_snapshot_level() -> None:
    tables = Tables(Profile.DELTA_SERIALIZABLE)
    mine = tables.a.change(Operation.UPDATE, reads=ALL), tables.b.change(Operation.UPDATE, reads=ALL)
    tables.a.insert("theirs", {7: 7})
    assert all(isinstance(answer, TableCommit) for answer in tables.commit(*mine))


@pytest.mark.parametrize("flag", [True, False])
def test_an_empty_update_is_at_the_tables_level_whatever_it_says(flag: bool) -> None:
    """Under delta_write_serializable only a CUSTOM says whether it changes data."""
    table = Table(Profile.DELTA_WRITE_SERIALIZABLE, keyed=False)
    mine = table.change(Operation.UPDATE, reads=ALL)
    mine.changes_data = flag
    theirs = table.change(Operation.INSERT, reads=ALL, adds=[table.file("theirs", {7: 7})])
    table.expect_win(theirs)
    assert lost(table.decide(mine)) is Rule.CONCURRENT_APPEND


@pytest.mark.parametrize("profile", [Profile.DELTA_WRITE_SERIALIZABLE, Profile.ROW_LEVEL])
@pytest.mark.parametrize("beside", [Operation.RESTORE, Operation.UPDATE])
def test_an_insert_beside_a_restore_or_a_read_is_no_blind_append(profile: Profile, beside: Operation) -> None:
    tables = Tables(profile)
    mine = tables.a.change(Operation.UPDATE, reads=ALL, adds=[tables.a.file("image", {1: 2})])
    other = tables.b.change(beside, reads=() if beside is Operation.RESTORE else ALL)
    if beside is Operation.RESTORE:
        other.scope = Scope(None)
    answers = tables.commit(tables.insert(tables.a, "theirs"), other)
    assert isinstance(answers[0], TableCommit)
    assert not answers[0].footprint.blind
    assert lost(tables.a.decide(mine)) is Rule.CONCURRENT_APPEND


def test_inserts_into_two_tables_are_blind() -> None:
    tables = Tables(Profile.DELTA_WRITE_SERIALIZABLE)
    mine = tables.a.change(Operation.UPDATE, reads=ALL, adds=[tables.a.file("image", {1: 2})])
    answers = tables.commit(tables.insert(tables.a), tables.insert(tables.b))
    assert [answer.footprint.blind for answer in answers if isinstance(answer, TableCommit)] == [True, True]
    tables.a.expect_win(mine)


@pytest.mark.parametrize(
    ("beside", "advice"),
    [
        (Operation.INSERT, Advice.RESUBMIT),
        (Operation.RESTORE, Advice.RERUN),
        (Operation.ALTER, Advice.RERUN),
        (Operation.UPDATE, Advice.RERUN),
    ],
)
def test_only_inserts_beside_inserts_are_advised_to_be_resubmitted(beside: Operation, advice: Advice) -> None:
    tables = Tables(Profile.MAXCOMPUTE)
    other = tables.b.change(beside)
    if beside is Operation.RESTORE:
        other.scope = Scope(None)
    if beside is Operation.ALTER:
        other.alteration = Alteration(comment="counted")
    mine = tables.insert(tables.a), other
    tables.a.insert("theirs", {7: 7})
    answer = tables.commit(*mine)[0]
    assert isinstance(answer, Conflict)
    assert answer.advice is advice


def test_an_alter_that_says_what_it_read_loses_to_new_rows_under_row_level() -> None:
    table = Table(Profile.ROW_LEVEL, keyed=False)
    mine = table.change(Operation.ALTER, reads=ALL)
    blind = table.change(Operation.ALTER)
    mine.alteration = blind.alteration = Alteration(comment="counted")
    table.expect_win(table.change(Operation.INSERT, reads=ALL, adds=[table.file("theirs", {7: 7})]))
    assert lost(table.decide(mine)) is Rule.CONCURRENT_APPEND
    table.expect_win(blind)
