"""A merge that is judged in turns, while others commit, is what it would be in one go at its last turn."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from metaservice.core import limits
from metaservice.core.errors import MetaError
from metaservice.core.table.meta import Alteration
from metaservice.core.table.model import Operation
from metaservice.service.branch.branch_replay import Merged
from metaservice.service.branch.merging import MergeRequest
from metaservice.service.branch.refreshing import RefreshRequest
from metaservice.service.commit.requests import Begin, CommitRequest, Intent
from metaservice.service.decider.decider import Answer
from tests.branches.rig import BranchRig
from tests.retention.rig import FORKS, WHO

TABLES = ("one", "two", "three")
WRITES = (Operation.INSERT, Operation.INSERT, Operation.UPDATE, Operation.DELETE, Operation.OVERWRITE, Operation.ALTER)
COMPARED = b"LKTWNIPUARXJfbh"  # families of keys: what housekeeping adds in its own time is left out


@dataclass
class Told:
    """How a merge ended, and what was there then."""

    position: int
    answer: list[object]
    records: dict[bytes, bytes] = field(default_factory=dict)
    tries: int = 0
    looks_up: bool = False
    is_within: bool = False  # a step was in the group of its last turn, after it


class Story:
    """Commits to a lake and a branch, one group of the decider for each step; somewhere in them a merge or refresh."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.rig = BranchRig(seed)
        self.txn_id = self.rig.uuid()
        self.refreshes = seed % 3 == 0
        self.open: list[tuple[str, str, Operation]] = []
        self.said = 0
        self.looks_up = False  # the last step looked a table of the branch up
        for name in TABLES:
            self.rig.create(name, None)
            self.commit_to(name, Operation.INSERT)
        self.rig.branch("b")
        for name in TABLES:
            self.rig.on(f"{name}@b")
        for _ in range(self.chance.randrange(2, 9)):
            self.commit_to(f"{self.chance.choice(TABLES)}@b", self.chance.choice(WRITES))
            self.commit_to(self.chance.choice(TABLES), self.chance.choice(WRITES))

    def commit_to(self, name: str, operation: Operation) -> None:
        self.begin(name, operation)
        self.commit()

    def begin(self, name: str, operation: Operation) -> None:
        self.looks_up = name.endswith("@b")
        txn_id = self.rig.on(name).begin(operation)
        self.open.append((name, txn_id, operation))

    def commit(self) -> None:
        name, txn_id, operation = self.open.pop(self.chance.randrange(len(self.open)))
        self.said += 1
        alteration = Alteration(set_properties={f"user.p{self.said % 3}": str(self.said)})
        is_alter = operation is Operation.ALTER
        adds = [] if is_alter else self.rig.on(name).files(txn_id, f"{self.said}")
        self.rig.on(name)
        self.rig.commit(txn_id, self.rig.change(operation, adds, alteration=alteration if is_alter else None))

    def step(self) -> None:
        """One group; refused where the branch has ended in it."""
        self.looks_up = False
        with suppress(MetaError):
            self.begin_or_commit()

    def begin_or_commit(self) -> None:
        if self.chance.random() < 0.15:
            self.insert_at_once(f"{self.chance.choice(TABLES)}@b")
        elif self.open and self.chance.random() < 0.6:
            self.commit()
        else:
            line = "@b" if self.chance.random() < 0.15 else ""
            self.begin(f"{self.chance.choice(TABLES)}{line}", self.chance.choice(WRITES))

    def insert_at_once(self, name: str) -> None:
        """The branch is not in use between two groups."""
        self.looks_up = True
        table_id, txn_id = self.rig.on(name).table_id, self.rig.uuid()
        begin = Begin(txn_id, (Intent(table_id, Operation.INSERT),), WHO, "", b"begin", "", features=FORKS)
        change = self.rig.change(Operation.INSERT, self.rig.files(txn_id, "at_once"))
        commit = CommitRequest(txn_id, (change,), ((None, None),), b"commit")
        self.rig.ask(lambda: (self.rig.transactions.begin(begin), self.rig.transactions.commit(commit)))

    def merge(self) -> MergeRequest | RefreshRequest:
        kind = RefreshRequest if self.refreshes else MergeRequest
        return kind(self.txn_id, "b", WHO, b"merge")

    def run(self, request: MergeRequest | RefreshRequest) -> Merged:
        if isinstance(request, RefreshRequest):
            return self.rig.refreshing.refresh(request)
        return self.rig.merging.merge(request)

    def records(self) -> dict[bytes, bytes]:
        return {key: value for key, value in self.rig.store._entries.items() if key[0] in COMPARED}


def shown(answer: object) -> list[object]:
    if isinstance(answer, MetaError):
        return [answer.reason]
    assert isinstance(answer, Merged)
    assert {commit.time_us for part in answer.tables for commit, _ in part.commits} <= {answer.time_us}
    told: list[object] = [answer.is_done, answer.time_us]
    for part in answer.tables:
        lost = part.refusal.reason if part.refusal is not None else ""
        told.append((part.name, part.count, part.version, part.is_forward, part.left_out, part.conflict, lost))
    return told


def in_turns(seed: int, begins: int, steps: int) -> Told:
    """The merge begins at a step; it ends in the group of a step, before it, or after all of them."""
    story, answers = Story(seed), list[Answer]()
    request, position = story.merge(), begins
    for number in range(steps):
        if number == begins:
            story.rig.decider._group([(answers.extend, None, lambda: story.run(request))])
        if answers:
            break
        story.step()
        position = number if answers else number + 1
    is_within = bool(answers) and position > begins
    while not answers:
        story.rig.decider._group([])
    story.rig.decider._group([])  # the records of the forks that ended
    tries = max(request.turns.tries.values(), default=0)
    return Told(position, shown(answers[0][1]), story.records(), tries, story.looks_up, is_within)


def in_one_go(seed: int, position: int, *, then_a_step: bool) -> Told:
    story, answers = Story(seed), list[Answer]()
    for _ in range(position):
        story.step()
    request = story.merge()
    story.rig.decider._group([(answers.extend, None, lambda: story.run(request))])
    if then_a_step:
        story.step()
    story.rig.decider._group([])
    return Told(position, shown(answers[0][1]), story.records())


def compare(seeds: range, patch: pytest.MonkeyPatch) -> list[Told]:
    stories = []
    for seed in seeds:
        begins = seed % 4
        with patch.context() as small:
            small.setattr(limits, "MERGE_TURN", 1)  # a commit in each turn
            small.setattr(limits, "MERGE_WRITTEN", 1)
            told = in_turns(seed, begins, begins + 4 + seed % 29)
        with patch.context() as large:
            large.setattr(limits, "MERGE_TURN", limits.JUDGE_TURN)
            alone = in_one_go(seed, told.position, then_a_step=told.is_within)
        assert told.answer == alone.answer, seed
        assert (told.is_within and told.looks_up) or told.records == alone.records, seed
        stories.append(told)
    return stories


def test_a_merge_in_turns_is_one_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    stories = compare(range(60), monkeypatch)
    assert sum(told.is_within for told in stories) > 10
    assert sum(told.tries > 1 for told in stories) > 10, "a table moved while the merge was judged"
    assert {told.answer[0] for told in stories} >= {True, False, "BRANCH_IN_USE"}


def test_a_crash_between_turns_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MERGE_TURN", 1)
    story, answers = Story(2), list[Answer]()
    before, request = story.records(), story.merge()
    story.rig.decider._group([(answers.extend, None, lambda: story.run(request))])
    story.rig.decider._group([])
    assert request.turns.tables
    story.rig.crash()
    assert (answers, story.records()) == ([], before)
    repeat, third = story.merge(), story.merge()
    first = shown(story.rig.ask(lambda: story.run(repeat)))
    story.rig.decider._group([])  # the records of the forks that ended
    again = story.records()
    story.rig.crash()
    assert shown(story.rig.ask(lambda: story.run(third)))[0] is first[0] is True
    assert story.records() == again != before


@pytest.mark.long
@pytest.mark.parametrize("first", range(1_000, 6_000, 1_000))
def test_merges_in_turns_are_merges_in_one_go_in_many_histories(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    assert sum(told.is_within for told in compare(range(first, first + 1_000), monkeypatch)) > 100
