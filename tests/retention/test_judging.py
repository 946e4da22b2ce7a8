"""What judging takes of the decider: bounded turns, refusals where it takes too long, looks that never wait."""

from typing import Final

import pytest

from metaservice.core import limits
from metaservice.core.commit.matching import Work
from metaservice.core.commit.transaction import Txn, TxnState
from metaservice.core.errors import MetaError
from metaservice.core.table.model import Change, Entry, FileKind, Operation, Read
from metaservice.core.table.predicates import AnyOf, Compare, InList, Predicate
from metaservice.service.commit.requests import Begin, CommitRequest, Intent
from metaservice.service.decider.decider import Answer
from tests.retention.rig import WHO, Rig

WIDE: Final = 3_000


def costly(comparisons: int) -> Predicate:
    """Of which no index helps."""
    return AnyOf(tuple(Compare("day", "<", f"{number:06}") for number in range(comparisons)))


def begin(rig: Rig, condition: Predicate, read_version: int | None = None) -> str:
    txn_id = rig.uuid()
    intent = Intent(rig.table_id, Operation.DELETE, read_version=read_version, reads=(Read(condition),))
    rig.ask(lambda: rig.transactions.begin(Begin(txn_id, (intent,), WHO, "", b"begin")))
    return txn_id


def insert_widely(rig: Rig) -> None:
    txn_id = rig.begin(Operation.INSERT)
    files = [Entry(f"{txn_id}/{day}", f"day=z{day}", 0, FileKind.APPEND, 1, 10, b"") for day in range(WIDE)]
    assert rig.commit(txn_id, rig.change(Operation.INSERT, files)).state is TxnState.COMMITTED


def ask_commit(rig: Rig, txn_id: str, condition: Predicate, answers: list[Answer]) -> int:
    """The groups that it takes."""
    change = Change(rig.table_id, Operation.DELETE, 0, (Read(condition),))
    request = CommitRequest(txn_id, (change,), ((None, None),), b"commit")
    rig.decider._group([(answers.extend, "mine", lambda: rig.transactions.commit(request))])
    groups = 1
    while not answers:
        rig.decider._group([])
        groups += 1
    return groups


def ended(answers: list[Answer]) -> Txn:
    result = answers[0][1]
    assert isinstance(result, Txn)
    return result


def test_a_commit_that_takes_long_to_judge_is_decided_in_turns_and_others_go_first() -> None:
    rig = Rig()
    txn_id = begin(rig, costly(100))
    insert_widely(rig)
    change = Change(rig.table_id, Operation.DELETE, 0, (Read(costly(100)),))
    request = CommitRequest(txn_id, (change,), ((None, None),), b"commit")
    answers: list[Answer] = []
    rig.decider._group([(answers.extend, "mine", lambda: rig.transactions.commit(request))])
    assert not answers
    assert rig.decider.state.judging_left <= 0, "the whole turn was used"
    rig.insert("small")
    assert not answers, "a small commit was answered before"
    for _ in range(2 * 110 * WIDE // limits.JUDGE_TURN):
        assert rig.decider.state.judging_left > -1_000, "a turn is exceeded by one try at most"
        rig.decider._group([])
    assert ended(answers).state is TxnState.COMMITTED


def test_judging_that_takes_too_long_is_refused_and_the_transaction_stays_open() -> None:
    rig = Rig()
    txn_id = begin(rig, costly(1_000))
    insert_widely(rig)
    answers: list[Answer] = []
    groups = ask_commit(rig, txn_id, costly(1_000), answers)
    refusal = answers[0][1]
    assert isinstance(refusal, MetaError)
    assert refusal.reason == "PREDICATE_TOO_COSTLY"
    assert groups <= 2 * limits.JUDGE_COMPARISONS_MAX // limits.JUDGE_TURN
    assert txn_id in rig.decider.state.open
    days = InList("day", tuple(f"{number:06}" for number in range(9_000)))
    again = list[Answer]()
    assert ask_commit(rig, txn_id, days, again) == 1, "partitions by name are looked up"
    assert ended(again).state is TxnState.COMMITTED


def test_a_begin_is_refused_where_judging_is_known_to_take_too_long() -> None:
    rig = Rig()
    head = rig.head
    insert_widely(rig)
    with pytest.raises(MetaError, match="PREDICATE_TOO_COSTLY"):
        begin(rig, costly(1_000), read_version=head)
    txn_id = begin(rig, costly(1_000))
    assert txn_id in rig.decider.state.open, "nothing was committed since, so nothing is known to be costly"


def test_a_renewal_looks_for_a_short_while_and_goes_on_at_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    tries = list[int]()
    begin_try = Work.begin_try

    def count(self: Work, cost: int) -> None:
        begin_try(self, cost)
        tries.append(cost)

    monkeypatch.setattr(Work, "begin_try", count)
    txn_id = begin(rig, costly(100))
    for _ in range(5):
        insert_widely(rig)
    seen = []
    for _ in range(6):
        tries.clear()
        assert rig.ask(lambda: rig.transactions.renew(txn_id)).doomed is None
        assert sum(tries) <= limits.JUDGE_LOOK + 100
        seen.append(len(tries))
    assert seen[0] > 0
    assert seen[5] == 0, "every winner was looked at, or left to the commit, once"


def test_a_renewal_says_that_a_race_is_lost_each_time_it_is_asked() -> None:
    rig = Rig()
    txn_id = begin(rig, Compare("day", "=", "1"))
    rig.insert("rival")
    lost_to = rig.head
    for _ in range(3):
        doomed = rig.ask(lambda: rig.transactions.renew(txn_id)).doomed
        assert doomed is not None
        assert doomed.winner.version == lost_to
        rig.insert("another")


def test_files_registered_between_two_turns_are_part_of_the_commit() -> None:
    rig = Rig()
    txn_id = begin(rig, costly(100))
    insert_widely(rig)
    change = Change(rig.table_id, Operation.DELETE, 0, (Read(costly(100)),))
    request = CommitRequest(txn_id, (change,), ((None, None),), b"commit")
    answers: list[Answer] = []
    rig.decider._group([(answers.extend, "mine", lambda: rig.transactions.commit(request))])
    assert not answers
    (path,) = rig.register(txn_id, "late")
    while not answers:
        rig.decider._group([])
    assert ended(answers).state is TxnState.COMMITTED
    assert path in rig.list_files(rig.head)


def test_a_transaction_that_was_aborted_between_two_turns_is_not_committed() -> None:
    rig = Rig()
    txn_id = begin(rig, costly(100))
    insert_widely(rig)
    head = rig.head
    change = Change(rig.table_id, Operation.DELETE, 0, (Read(costly(100)),))
    request = CommitRequest(txn_id, (change,), ((None, None),), b"commit")
    answers: list[Answer] = []
    rig.decider._group([(answers.extend, "mine", lambda: rig.transactions.commit(request))])
    rig.ask(lambda: rig.transactions.abort(txn_id, "enough"))
    while not answers:
        rig.decider._group([])
    assert isinstance(answers[0][1], MetaError)
    assert answers[0][1].reason == "TRANSACTION_ABORTED"
    assert rig.head == head
