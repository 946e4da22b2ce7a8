"""What branches and clones keep, and what dies with them. A path on the purge list counts as deleted at once."""

from __future__ import annotations

import random

import pytest

from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.table.model import Operation
from metaservice.service.operate.check import StoreCheck
from tests.branches.rig import DAY_MS, BranchRig, purge, refused
from tests.retention.rig import HOUR_MS


def test_a_branch_keeps_what_its_parent_shows_at_the_instant() -> None:
    rig = BranchRig()
    root = rig.table_id
    (old,) = rig.insert("a")
    rig.branch("b")
    rig.overwrite("c")
    rig.pass_time(5 * DAY_MS)
    assert purge(rig, root) == set()
    assert rig.on("days@b").list_files(1) == {old}
    assert rig.drop("b")
    rig.pass_time(DAY_MS)
    assert purge(rig, root) == {old}


def test_files_of_a_dropped_branch_die_with_it_and_no_others() -> None:
    rig = BranchRig()
    root = rig.table_id
    (kept,) = rig.insert("a")
    rig.branch("b")
    rig.on("days@b")
    (lost,) = rig.insert("b")
    rig.overwrite("c")
    rig.on("days")
    rig.drop("b")
    rig.pass_time(2 * DAY_MS)
    dead = purge(rig, root)
    assert lost in dead
    assert len(dead) == 2
    assert rig.on("days").list_files(1) == {kept}


def test_files_of_a_table_that_was_dropped_on_a_branch_die_after_the_merge() -> None:
    rig = BranchRig()
    root = rig.table_id
    (old,) = rig.insert("a")
    rig.branch("b")
    rig.on("days@b")
    (own,) = rig.insert("b")
    fork_id = rig.table_id
    rig.ask(lambda: rig.catalog.drop(fork_id, validate_only=False))
    assert rig.merge("b", keep=True).is_done
    rig.pass_time(5 * DAY_MS)
    assert purge(rig, root) == {old, own}
    with pytest.raises(MetaError, match="RETENTION_OVER"):
        rig.ask(lambda: rig.catalog.undrop(fork_id))


def test_files_of_a_merged_branch_are_the_parents() -> None:
    rig = BranchRig()
    root = rig.table_id
    rig.insert("a")
    rig.branch("b")
    rig.on("days@b")
    (first,) = rig.insert("b")
    assert rig.merge("b").is_done
    rig.pass_time(3 * DAY_MS)
    assert purge(rig, root) == set()
    assert first in rig.on("days").list_files(2)
    rig.overwrite("c")
    rig.pass_time(3 * DAY_MS)
    assert first in purge(rig, root)


def test_a_dropped_table_is_on_each_branch_as_it_was_when_that_one_left() -> None:
    rig = BranchRig()
    root = rig.table_id
    for count in range(6):
        rig.on("days").insert(f"f{count // 2}")
        rig.branch(f"b{count}", "b3" if count == 5 else "")
        rig.branch(f"again{count}")
    rig.ask(lambda: rig.catalog.drop(root, validate_only=False))
    rig.crash()
    for count in range(5):
        for name in (f"days@b{count}", f"days@again{count}"):
            assert len(rig.on(name).list_files(rig.head)) == rig.head == count + 1
    assert rig.on("days@b5").head == 4


def test_a_clone_keeps_its_files_when_its_table_is_dropped() -> None:
    rig = BranchRig()
    root = rig.table_id
    (old,) = rig.insert("a")
    clone = rig.clone(root, "copy")
    rig.ask(lambda: rig.catalog.drop(root, validate_only=False))
    rig.pass_time(30 * DAY_MS)
    assert rig.purgeable(root) == set()
    rig.table_id = clone
    assert rig.list_files(1) == {old}
    rig.ask(lambda: rig.catalog.drop(clone, validate_only=False))
    rig.pass_time(30 * DAY_MS)
    assert rig.purgeable(root) == {old}


@pytest.mark.parametrize("refreshes", [False, True])
def test_a_clone_of_a_branchs_table_outlives_the_merge(*, refreshes: bool) -> None:
    rig = BranchRig()
    root = rig.table_id
    rig.insert("a")
    rig.branch("b")
    (own,) = rig.on("days@b").insert("b")
    clone = rig.clone(rig.table_id, "copy")
    if refreshes:
        rig.on("days").insert("c")
        assert rig.refresh("b").is_done
    assert rig.merge("b").is_done
    rig.on("days").overwrite("d")
    for _ in range(3):
        rig.pass_time(3 * DAY_MS)
        assert own not in purge(rig, root)
    rig.table_id = clone
    assert own in rig.list_files(2)
    rig.ask(lambda: rig.catalog.drop(clone, validate_only=False))
    for _ in range(3):
        rig.pass_time(3 * DAY_MS)
    assert own in rig.purgeable(root)


def test_a_branch_restores_from_before_it_began() -> None:
    rig = BranchRig()
    root = rig.table_id
    (old,) = rig.insert("a")
    rig.overwrite("b")
    rig.branch("b")
    rig.on("days@b").restore(1)
    assert rig.list_files(3) == {old}
    rig.pass_time(5 * DAY_MS)
    assert old not in purge(rig, root)
    assert rig.on("days@b").list_files(3) == {old}


def test_a_merge_that_restores_a_file_twice_counts_both_times() -> None:
    rig = BranchRig()
    root = rig.table_id
    (old,) = rig.insert("a")
    rig.overwrite("b")
    rig.branch("b")
    rig.on("days@b").restore(1)
    rig.overwrite("c")
    rig.restore(1)
    rig.overwrite("d")
    assert rig.merge("b").is_done
    rig.on("days")
    assert rig.list_files(3) == rig.list_files(5) == {old}
    rig.tag("kept", 5)
    rig.pass_time(3 * DAY_MS)
    assert old not in purge(rig, root)
    assert rig.list_files(5) == {old}


def test_a_branch_ends_when_its_time_is_over_but_not_while_it_is_used() -> None:
    rig = BranchRig()
    rig.insert("a")
    rig.branch("b", keep_ms=HOUR_MS)
    rig.on("days@b")
    txn_id = rig.begin(Operation.INSERT)
    rig.clock.advance(2 * HOUR_MS)
    rig.decider.state.leases[txn_id] = 2**60  # it is renewed
    rig.decider._group([])
    assert "b" in rig.decider.state.branches
    rig.ask(lambda: rig.transactions.abort(txn_id, "test"))
    rig.clock.advance(1_000)
    rig.decider._group([])
    assert "b" not in rig.decider.state.branches


@pytest.mark.parametrize("survivors", [0, 1])
def test_a_merge_is_whole_after_a_power_cut_or_has_not_happened(survivors: int) -> None:
    rig = BranchRig()
    rig.insert("a")
    rig.branch("b")
    for name in ("b", "c"):
        rig.on("days@b").insert(name)
    rig.on("days").insert("d")
    txn_id, head = rig.uuid(), rig.head
    rig.store.fail_syncs_after = 0
    with pytest.raises(Exception, match=r"told to fail|STATE_LOST|."):
        rig.merge("b", txn_id=txn_id)
    rig.store.fail_syncs_after = None
    rig.crash(min(survivors, rig.store.unsynced_batches))
    rig.on("days")
    merged = rig.decider.state.find_txn(txn_id) is not None
    assert rig.head == head + (2 if merged else 0)
    assert ("b" in rig.decider.state.branches) is not merged
    again = rig.merge("b", txn_id=txn_id)
    assert again.is_done
    assert [(one.count, one.version, one.is_forward) for one in again.tables] == [(2, head + 2, False)]
    assert rig.on("days").head == head + 2


def test_a_merge_is_answered_again_by_its_id() -> None:
    rig = BranchRig()
    rig.insert("a")
    rig.branch("b")
    rig.on("days@b").insert("b")
    txn_id = rig.uuid()
    first = rig.merge("b", txn_id=txn_id)
    again = rig.merge("b", txn_id=txn_id)
    assert (again.is_done, again.time_us) == (first.is_done, first.time_us) == (True, first.time_us)
    answers = [
        [(one.name, one.count, one.version, one.is_forward) for one in merged.tables] for merged in (first, again)
    ]
    assert answers[0] == answers[1] == [("days", 1, 2, True)]
    assert rig.on("days").head == 2


def test_open_transactions_and_children_hold_a_branch() -> None:
    rig = BranchRig()
    rig.insert("a")
    rig.branch("b")
    rig.branch("c", parent="b")
    with pytest.raises(MetaError) as caught:
        rig.drop("b")
    assert (caught.value.kind, caught.value.reason) == (ErrorKind.BLOCKED, "BRANCH_HAS_CHILDREN")
    rig.drop("c")
    rig.on("days@b").begin(Operation.INSERT)
    with pytest.raises(MetaError) as caught:
        rig.merge("b")
    assert caught.value.reason == "BRANCH_IN_USE"
    assert rig.drop("b")


@pytest.mark.parametrize("seed", range(12))
def test_nothing_that_is_shown_is_deleted_and_nothing_else_is_kept(seed: int) -> None:
    assert play(seed, steps=120) == set()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1_000, 1_400))
def test_nothing_that_is_shown_is_deleted_in_many_histories(seed: int) -> None:
    assert play(seed, steps=300) == set()


class History:
    """Random calls over a table, its branches and its clones."""

    def __init__(self, seed: int) -> None:
        self.chance, self.rig = random.Random(seed), BranchRig(seed)
        self.root = self.rig.table_id
        self.made: set[str] = set()
        self.deleted: set[str] = set()
        self.clones: list[str] = []
        self.number = 0

    @property
    def branches(self) -> list[str]:
        return list(self.rig.decider.state.branches)

    def step(self) -> None:
        self.number += 1
        self.rig.on(self.chance.choice(["days", *(f"days@{branch}" for branch in self.branches), *self.clones]))
        weights = {
            self.insert: 8, self.overwrite: 3, self.restore: 2, self.branch: 3, self.merge: 3, self.refresh: 2,
            self.drop: 1, self.clone: 1, self.unclone: 1, self.time: 5, self.crash: 1,
        }  # fmt: skip
        self.chance.choices(list(weights), list(weights.values()))[0]()
        assert not self.deleted & self.rig.kept_files()

    def insert(self) -> None:
        self.made |= set(self.rig.insert(f"a{self.number}", f"i{self.number}"))

    def overwrite(self) -> None:
        self.made |= set(self.rig.overwrite(f"a{self.number}"))

    def restore(self) -> None:
        with refused("VERSION_RETIRED"):
            self.rig.restore(self.chance.randint(0, self.rig.table.head))

    def branch(self) -> None:
        if len(self.branches) < 4:
            parent = self.chance.choice(["", *self.branches])
            tables = self.chance.choice([(), (), ("days",)])
            self.rig.branch(f"b{self.number}", parent, self.chance.choice([0, 3 * DAY_MS]), tables)

    def merge(self) -> None:
        if self.branches:
            with refused("BRANCH_HAS_CHILDREN", "BRANCH_IN_USE"):
                self.rig.merge(self.chance.choice(self.branches), keep=self.chance.random() < 0.4)

    def refresh(self) -> None:
        if self.branches:
            with refused("BRANCH_HAS_CHILDREN", "BRANCH_IN_USE"):
                self.rig.refresh(self.chance.choice(self.branches))

    def drop(self) -> None:
        if self.branches:
            with refused("BRANCH_HAS_CHILDREN"):
                self.rig.drop(self.chance.choice(self.branches))

    def clone(self) -> None:
        table = self.rig.table
        if len(self.clones) < 3:
            self.clones.append(f"copy{self.number}")
            self.rig.clone(table.meta.table_id, self.clones[-1])

    def unclone(self) -> None:
        if self.clones:
            table_id = self.rig.reads_table(self.clones.pop())
            self.rig.ask(lambda: self.rig.catalog.drop(table_id, validate_only=False))

    def time(self) -> None:
        self.rig.pass_time(self.chance.choice([HOUR_MS, DAY_MS, 3 * DAY_MS]))
        self.deleted |= purge(self.rig, self.root)

    def crash(self) -> None:
        self.rig.crash()

    def end(self) -> set[str]:
        """All branches and clones go. Returns files that are kept although nothing shows them, or the other way."""
        self.rig.pass_time(10 * DAY_MS)
        while self.branches:
            for name in self.branches:
                with refused("BRANCH_HAS_CHILDREN"):
                    self.rig.drop(name)
        while self.clones:
            self.unclone()
        for _ in range(4):
            self.rig.pass_time(10 * DAY_MS)
            self.deleted |= purge(self.rig, self.root)
        files = {path for path in self.made if "/a" in path}
        self.rig.on("days")
        return files - self.deleted ^ self.rig.list_files(self.rig.head) & files


def play(seed: int, steps: int) -> set[str]:
    history = History(seed)
    for _ in range(steps):
        history.step()
    found = StoreCheck(history.rig.store.cursor(), lambda: None).run()
    assert [problem for part in found for problem in part.problems] == []
    return history.end()


def test_a_branch_keeps_a_table_that_its_parent_dropped_before_anybody_looked_at_it_there() -> None:
    rig = BranchRig()
    root = rig.table_id
    (old,) = rig.insert("a")
    rig.branch("b", keep_ms=90 * DAY_MS)
    (lost,) = rig.insert("a")
    rig.ask(lambda: rig.catalog.drop(root, validate_only=False))
    rig.pass_time(30 * DAY_MS)
    assert purge(rig, root) == set()
    rig.on("days@b")
    assert rig.list_files(1) == {old}
    assert rig.drop("b")
    rig.pass_time(30 * DAY_MS)
    rig.pass_time(30 * DAY_MS)
    assert purge(rig, root) == {old, lost}
