"""A merge or refresh that changes its tables in turns: others' commits go on between, and nobody sees a part of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import pytest

from metaservice.core import limits
from metaservice.core.commit.transaction import Txn, TxnState
from metaservice.core.table.model import Operation
from metaservice.service.branch.merging import MergeRequest
from metaservice.service.branch.refreshing import RefreshRequest
from metaservice.service.commit.requests import Append, Begin, CommitRequest, Intent
from metaservice.service.decider.decider import Answer, Apart
from metaservice.service.operate.check import StoreCheck
from metaservice.store import keys
from tests.branches.rig import BranchRig
from tests.retention.rig import FORKS, WHO

TABLES: Final = ("one", "two", "three", "four")
KINDS: Final = ("merge", "merge, the branch stays", "refresh")


class Held:
    """A lake with a table that has nothing to do with the branch, and a merge or refresh that is begun."""

    def __init__(self, kind: str) -> None:
        rig = self.rig = BranchRig(1)
        for name in TABLES:
            rig.create(name, None)
            rig.on(name).insert("a")
        rig.branch("b")
        for name in TABLES:
            rig.on(f"{name}@b").insert("b")
        rig.on("two").insert("c")
        self.apart = rig.create("apart", None)
        self.parents = {name: rig.reads_table(name) for name in TABLES}
        self.forks = {name: rig.reads_table(f"{name}@b") for name in TABLES}
        self.clone = rig.clone(self.apart, "clone")
        rig.crash()  # and start: nothing waits
        self.kind, self.txn_id = kind, rig.uuid()
        self.before = self.heads()
        self.answers: list[Answer] = []

    def begin(self) -> None:
        request: Any = (
            RefreshRequest(self.txn_id, "b", WHO, b"same")
            if self.kind == "refresh"
            else MergeRequest(self.txn_id, "b", WHO, b"same", keep="stays" in self.kind)
        )
        run = self.rig.refreshing.refresh if self.kind == "refresh" else self.rig.merging.merge
        self.rig.decider._group([(self.answers.extend, "merge", lambda: run(request))])

    def begin_to_change(self) -> None:
        """Judged, and one step further."""
        self.begin()
        while not self.rig.decider.state.held:
            self.rig.decider._group([])
        assert not self.answers

    def groups(self) -> Iterator[int]:
        """One number before each further group."""
        number = 0
        while not self.answers:
            yield number
            number += 1

    def finish(self) -> None:
        for _ in self.groups():
            self.rig.decider._group([])

    def ask(self, job: Callable[[], object], *tables: str) -> list[Answer]:
        """One group with this job; `tables`: it is apart with these."""
        answers: list[Answer] = []
        run = Apart(job, lambda _: tables) if tables else job
        self.rig.decider._group([(answers.extend, None, run)])
        return answers

    def append(self, table_id: str) -> Append:
        self.rig.table_id, txn_id = table_id, self.rig.uuid()
        return Append(txn_id, table_id, 0, WHO, "", b"append", self.rig.files(txn_id, "x"), features=FORKS)

    def do_append(self, table_id: str) -> list[Answer]:
        append = self.append(table_id)
        return self.ask(lambda: self.rig.transactions.appends.append(append), table_id)

    def heads(self) -> dict[str, int]:
        """Of the branch's tables and their parents, as readers see them."""
        views = self.rig.decider.state.views
        lines = {**{f"{name}@b": self.forks[name] for name in TABLES}, **self.parents}
        return {line: -1 if (view := views.find(table_id)) is None else view.head for line, table_id in lines.items()}

    def decided(self) -> list[int]:
        """The parents' heads, to jobs."""
        return [self.rig.decider.state.tables[table_id].head for table_id in self.parents.values()]

    def files(self) -> list[set[str]]:
        """Of the parents' newest versions."""
        rig = self.rig
        return [rig.on(name).list_files(rig.on(name).head) for name in TABLES]

    def records(self) -> dict[bytes, bytes]:
        """What the store has of them."""
        raw_ids = [keys.uuid_bytes(each) for each in (*self.forks.values(), *self.parents.values())]
        named = [name.encode() for name in TABLES]
        return {
            key: value
            for key, value in self.rig.store._entries.items()
            if any(raw_id in key for raw_id in raw_ids) or any(name in key for name in named)
        }

    def problems(self) -> list[str]:
        check = StoreCheck(self.rig.store.cursor(), lambda: None)
        return [problem for progress in check.run() for problem in progress.problems]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MERGE_WRITTEN", 1)


@pytest.mark.parametrize("kind", KINDS)
def test_others_commit_between_its_turns_and_see_nothing_of_it(kind: str) -> None:
    held = Held(kind)
    held.begin_to_change()
    records, waiting = held.records(), list[Answer]()
    held.rig.decider._group([(waiting.extend, None, held.decided)])
    appended = 0
    for number in held.groups():
        assert (held.heads(), held.records(), waiting) == (held.before, records, []), number
        (answer,) = held.do_append(held.apart)
        assert isinstance(answer[1], Txn), answer
        appended += 1
        assert held.rig.on("apart").table.head == appended
        assert held.rig.decider.state.views.find(held.apart).head == appended  # type: ignore[union-attr]
    assert appended > len(TABLES)
    assert held.problems() == []
    after = held.heads()
    assert after != held.before
    held.rig.decider._group([])
    assert waiting == [(None, [after[name] for name in TABLES])]
    held.rig.crash()
    assert held.heads() == after
    assert held.rig.on("apart").table.head == appended
    assert held.problems() == []


@pytest.mark.parametrize("kind", KINDS)
def test_in_turns_it_writes_what_it_writes_in_one_go(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    written = []
    for most in (1, 3, 1_000):
        monkeypatch.setattr(limits, "MERGE_WRITTEN", most)
        held = Held(kind)
        held.begin()
        held.finish()
        written.append(held.records())
    assert written[0] == written[1] == written[2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_between_its_turns_leaves_nothing_and_the_same_request_does_it(kind: str) -> None:
    in_one_go = Held(kind)
    in_one_go.begin()
    in_one_go.finish()
    turns = 0
    while True:
        held = Held(kind)
        before = held.records()
        held.begin()
        for _ in range(turns):
            if not held.answers:
                held.do_append(held.apart)
        if held.answers:
            break
        turns += 1
        held.rig.crash(survivors=held.rig.store.unsynced_batches)
        assert (held.heads(), held.records(), held.problems()) == (held.before, before, [])
        held.begin()
        held.finish()
        assert held.heads() == in_one_go.heads()
        assert held.files() == in_one_go.files()
        assert held.problems() == []
    assert turns > 2 * len(TABLES)


@pytest.mark.parametrize("kind", KINDS)
def test_jobs_that_may_have_to_do_with_it_wait(kind: str) -> None:
    for wait in WAITING:
        held = Held(kind)
        txn_ids = [held.rig.on(name).begin(Operation.INSERT) for name in ("apart", "one")]
        held.begin_to_change()
        answers = WAITING[wait](held, txn_ids)
        assert answers == [], wait
        held.finish()
        held.rig.decider._group([])
        assert len(answers) == 1, wait
        assert held.problems() == []


def _append_to(line: str, held: Held, _: object) -> list[Answer]:
    table_id = {**held.parents, "two@b": held.forks["two"], "clone": held.clone}[line]
    return held.do_append(table_id)


def _append_to_both(held: Held, _: object) -> list[Answer]:
    appends = [held.append(held.apart), held.append(held.parents["two"])]
    return held.ask(lambda: held.rig.transactions.appends.append_many(appends), held.apart, held.parents["two"])


def _append_to_none(held: Held, _: object) -> list[Answer]:
    return held.ask(lambda: None, held.rig.uuid())


def _pin(held: Held, _: object) -> list[Answer]:
    return held.ask(held.decided)


WAITING: Final[Mapping[str, Callable[[Held, list[str]], list[Answer]]]] = {
    "an append to a parent": partial(_append_to, "two"),
    "an append to a parent whose turn comes last": partial(_append_to, "four"),
    "an append to a fork": partial(_append_to, "two@b"),
    "an append to a clone, which may need what is held": partial(_append_to, "clone"),
    "appends of which one is to a parent": _append_to_both,
    "one to a table that is not there": _append_to_none,
    "a look at several tables": _pin,
}


def test_a_transaction_on_other_tables_goes_on() -> None:
    held = Held("merge")
    held.begin_to_change()
    rig, txn_id = held.rig, held.rig.uuid()
    rig.table_id = held.apart
    begin = Begin(txn_id, (Intent(held.apart, Operation.OVERWRITE),), WHO, "", b"begin", "", features=FORKS)
    files = rig.files(txn_id, "y")
    commit = CommitRequest(txn_id, (rig.change(Operation.OVERWRITE),), ((None, None),), b"commit")
    steps: Iterable[Callable[[], object]] = (
        lambda: rig.transactions.begin(begin),
        lambda: rig.transactions.register(txn_id, held.apart, files),
        lambda: rig.transactions.commit(commit),
    )
    for step in steps:
        assert len(held.ask(step, held.apart)) == 1
    assert not held.answers
    assert rig.decider.state.find_txn(txn_id).state is TxnState.COMMITTED  # type: ignore[union-attr]


def test_jobs_of_one_caller_stay_in_order() -> None:
    held = Held("merge")
    held.begin_to_change()
    order: list[int] = []
    answers: list[Answer] = []
    about = lambda _: (held.apart,)  # noqa: E731
    jobs: list[Callable[[], object]] = [
        Apart(partial(order.append, 0), about),
        partial(order.append, 1),
        Apart(partial(order.append, 2), about),
        partial(order.append, 3),
    ]
    held.rig.decider._group([(answers.extend, number, job) for number, job in enumerate(jobs)])
    other: list[Answer] = []
    held.rig.decider._group([(other.extend, None, Apart(partial(order.append, 9), about))])
    held.rig.decider._group([(answers.extend, 4, Apart(partial(order.append, 4), about))])
    assert order == [0, 9]
    held.finish()
    held.rig.decider._group([])
    assert order == [0, 9, 1, 2, 3, 4]
    assert [token for token, _ in answers] == [0, 1, 2, 3, 4]


def test_a_store_that_fails_meanwhile_ends_it() -> None:
    held = Held("merge")
    held.begin_to_change()
    held.rig.store.fail_writes_after = 0
    (answer,) = held.do_append(held.apart)
    assert "STORE_FAILED" in str(answer[1])
    ((_, refusal),) = held.answers
    assert "STORE_FAILED" in str(refusal)
    assert held.rig.decider.state.held == ()
    assert held.heads() == held.before
    held.answers.clear()
    held.begin()
    held.finish()
    assert held.heads() != held.before


def test_the_stop_of_the_service_ends_it_first() -> None:
    held = Held("merge")
    held.begin_to_change()
    waiting: list[Answer] = []
    held.rig.decider._group([(waiting.extend, None, held.decided)])
    held.rig.decider.start()
    assert held.rig.decider.stop(10)
    assert held.answers
    assert waiting == [(None, held.decided())]
    assert held.heads() != held.before
