"""Judging against many winners at once answers as judging against one after the other."""

import random
from dataclasses import replace

import pytest

from metaservice.core import limits
from metaservice.core.commit.judge import Judging, judge
from metaservice.core.commit.judged_change import JudgedChange
from metaservice.core.commit.matching import Paused, Work
from metaservice.core.commit.winner_blocks import WinnerBlock, WinnerBlocks, meet_block
from metaservice.core.table.meta import Profile, TableMeta
from metaservice.core.table.model import (
    Change,
    Conflict,
    Entry,
    FileKind,
    Footprint,
    KeySet,
    Operation,
    Read,
    Ref,
    Rule,
    Scope,
)
from metaservice.core.table.predicates import AnyOf, Compare, Not, Predicate
from tests.model import world
from tests.model.programs import play
from tests.unit.footprints import APPEND, KEYED, PLACES, WHO, Empty, footprint

OTHER_PLACES = [*PLACES, "p=3", "p=4"]
OPERATIONS = [one for one in Operation if one not in (Operation.CREATE, Operation.RESTORE)]


class Answer:
    """A judgement in turns, by blocks of a table's commits."""

    def __init__(self, change: Change, meta: TableMeta, winners: list[Footprint], blocks: WinnerBlocks) -> None:
        self.at_once = 0
        self._winners = {winner.version: winner for winner in winners}
        self._blocks = blocks
        self._judging = Judging(JudgedChange(change, meta, Empty()), self._winners.__getitem__)

    def find(self, rng: random.Random) -> Conflict | None:
        judging, head = self._judging, max(self._winners, default=0)
        while True:
            judging.judged.work.begin_turn(rng.choice([1, 20, 300]))
            try:
                while judging.met < head:
                    conflict = self._next(judging)
                    if conflict is not None:
                        return conflict
                return judging.end()
            except Paused:
                continue

    def _next(self, judging: Judging) -> Conflict | None:
        version = judging.met + 1
        block = self._blocks.covering(version)
        if block is not None:
            conflict = meet_block(judging, block)
            if conflict is not None or judging.met >= version:
                self.at_once += 1
                return conflict
        return judging.meet(self._winners[version])


def random_change(rng: random.Random, meta: TableMeta) -> Change:
    test = Compare("p", rng.choice(["<", ">", "=", "<>"]), rng.randrange(6))
    conditions: list[Predicate] = [test, Not(test), AnyOf((test, Compare("p", "=", rng.randrange(6))))]
    reads = tuple(Read(rng.choice(conditions), None, rng.random() < 0.5) for _ in range(rng.choice([0, 0, 1, 2])))
    change = Change("t", rng.choice(OPERATIONS), 1, reads)
    place = rng.choice(OTHER_PLACES)
    if rng.random() < 0.6:
        change.adds = [Entry("mine", place, rng.randrange(2), FileKind.APPEND, 2, 100, b"")]
    if rng.random() < 0.2 and not meta.keyed:
        change.adds = [*change.adds, Entry("hides", place, 0, FileKind.APPEND, 2, 100, b"", is_delete_set=True)]
    if rng.random() < 0.1:
        change.removes = (Ref(f"{place}/0", place, 0),)
    if change.operation in (Operation.OVERWRITE, Operation.TRUNCATE):
        change.scope = Scope(frozenset({place}))
    change.app_ids_read = ("b",) if rng.random() < 0.2 else ()
    change.app_versions = (("b", 1),) if rng.random() < 0.1 else ()
    change.others_blind = rng.random() < 0.8
    return change


def random_winner(rng: random.Random, version: int, places: list[str], *, plain: bool) -> Footprint:
    found = footprint(rng, version)
    place = rng.choice(places)
    if plain:
        return Footprint(
            version, version, found.txn_id, Operation.INSERT, WHO, frozenset({place}), ((f"x/{version}", place, 0),)
        )
    found.partitions = frozenset({place})
    found.added = tuple((path, place, bucket) for path, _, bucket in found.added)
    found.removed = tuple(replace(gone, path=f"{place}/0", partition=place) for gone in found.removed)
    found.metadata_changed = found.metadata_changed and rng.random() < 0.2
    found.shared = rng.random() < 0.1
    found.app_ids = ("b",) if rng.random() < 0.05 else ()
    return found


def test_judging_by_blocks_answers_as_judging_one_by_one() -> None:
    rng = random.Random(17)
    conflicts = passed = at_once = 0
    for _ in range(6_000):
        meta = replace(rng.choice([APPEND, KEYED]), profile=rng.choice(list(Profile)))
        places, plain = rng.sample(OTHER_PLACES, rng.choice([1, 2, 2, 4])), rng.random() < 0.6
        winners = [
            random_winner(rng, version, places, plain=plain or rng.random() < 0.5)
            for version in range(2, 2 + rng.randrange(20))
        ]
        blocks = WinnerBlocks(rng.choice([2, 4, 8]), 0)
        for winner in winners:
            blocks.add(winner, None, meta)
        change = random_change(rng, meta)
        expected = judge(change, meta, winners, Empty())
        answer = Answer(change, meta, winners, blocks)
        assert answer.find(rng) == expected, (change, meta.profile)
        conflicts += expected is not None
        passed += expected is None
        at_once += answer.at_once
    assert min(conflicts, passed, at_once) > 1_000, (conflicts, passed, at_once)


@pytest.mark.parametrize("profile", list(Profile))
@pytest.mark.parametrize("keyed", [True, False], ids=["primary-key", "append"])
def test_the_model_compares_the_answers_of_histories(
    monkeypatch: pytest.MonkeyPatch, profile: Profile, keyed: bool
) -> None:
    """The comparison itself is in the model's `answer_to`."""
    passed = []

    def count(judging: Judging, block: WinnerBlock) -> Conflict | None:
        before = judging.met
        conflict = meet_block(judging, block)
        passed.append(judging.met > before + 1)
        return conflict

    monkeypatch.setattr(world, "meet_block", count)
    for seed in range(200):
        play(profile, keyed=keyed, seed=seed)
    assert sum(passed) > 20


def upsert(version: int, partition: str = "p=1") -> Footprint:
    added = ((f"x/{version}", partition, 0),)
    return Footprint(version, version, "w", Operation.UPDATE, WHO, frozenset({partition}), added, blind=False)


def change_of(*keys: int) -> Change:
    adds = [Entry("mine", "p=1", 0, FileKind.DELTA, len(keys), 100, b"")]
    return Change("t", Operation.UPDATE, 1, adds=adds, key_sets=(KeySet("p=1", 0, keys),))


def by_rows(blocks: WinnerBlocks, change: Change, upto: int) -> int:
    """The version up to which a change is judged by one look at a block."""
    judging = Judging(JudgedChange(change, replace(KEYED, profile=Profile.ROW_LEVEL), Empty()))
    block = blocks.covering(2)
    assert block is not None
    assert block.last == upto
    assert meet_block(judging, block) is None
    return judging.met


def test_upserts_of_other_keys_are_passed_at_once() -> None:
    meta, blocks = replace(KEYED, profile=Profile.ROW_LEVEL), WinnerBlocks(64, 0)
    for version in range(2, 20):
        blocks.add(upsert(version), [KeySet("p=1", 0, [version, -version])], meta)
    assert by_rows(blocks, change_of(100, 200), 19) == 19
    assert by_rows(blocks, change_of(100, -7), 19) == 1
    unnamed = change_of(100)
    unnamed.key_sets = ()
    assert by_rows(blocks, unnamed, 19) == 1
    blocks.add(upsert(20), (), meta)  # it doesn't name its keys
    assert by_rows(blocks, change_of(100, 200), 20) == 1


def test_too_many_keys_are_judged_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WINNER_BLOCK_KEYS_MAX", 10)
    meta, blocks = replace(KEYED, profile=Profile.ROW_LEVEL), WinnerBlocks(64, 0)
    for version in range(2, 20):
        blocks.add(upsert(version), [KeySet("p=1", 0, [version])], meta)
    assert by_rows(blocks, change_of(100), 19) == 1


def test_a_block_with_too_many_partitions_is_special() -> None:
    block = WinnerBlock(2, with_keys=False)
    for version in range(2, 2 + limits.WINNER_BLOCK_NAMES_MAX):
        block.add(upsert(version, f"p={version}"), None)
    assert len(block.partitions) == limits.WINNER_BLOCK_NAMES_MAX
    block.add(upsert(block.last + 1, "p=1"), None)
    assert block.special
    assert not block.partitions


def test_blocks_are_dropped_beyond_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WINNER_BLOCKS_BYTES_KEPT", 10_000)
    blocks = WinnerBlocks(4, 0)
    for version in range(1, 400):
        blocks.add(upsert(version), None, APPEND)
    held = [version for version in range(1, 400) if blocks.covering(version) is not None]
    assert held == list(range(held[0], 400))
    assert 60 < len(held) < 200


def test_a_costly_condition_is_not_tried_for_a_block() -> None:
    """A refusal as too costly depends on the partitions that are tried: blocks must not add to them."""
    costly = AnyOf(tuple(Compare("p", "<", -one) for one in range(limits.WINNER_BLOCK_COMPARISONS_MAX + 1)))
    meta = replace(APPEND, profile=Profile.DELTA_SERIALIZABLE)
    work = Work()
    judging = Judging(JudgedChange(Change("t", Operation.DELETE, 1, (Read(costly),)), meta, Empty(), work))
    blocks = WinnerBlocks(64, 0)
    for version in range(2, 20):
        blocks.add(upsert(version), None, meta)
    block = blocks.covering(2)
    assert block is not None
    assert meet_block(judging, block) is None
    assert judging.met == 1


def test_an_earlier_append_counts_if_a_later_block_built_on_it() -> None:
    """Under row_level blind appends are deferred; an UPDATE in a later block makes them count."""
    meta = replace(APPEND, profile=Profile.ROW_LEVEL)
    blocks = WinnerBlocks(4, 0)
    winners = [random_winner(random.Random(1), version, ["p=1"], plain=True) for version in range(4, 8)]
    winners += [upsert(version, "p=2") for version in range(8, 12)]
    for winner in winners:
        blocks.add(winner, None, meta)
    change = Change("t", Operation.DELETE, 3, (Read(Compare("p", "=", 1)),))
    assert judge(change, meta, winners[:4], Empty()) is None
    answer = Answer(change, meta, winners, blocks).find(random.Random(2))
    assert answer is not None
    assert (answer.rule, answer.winner.version) == (Rule.CONCURRENT_APPEND, 4)
    assert answer == judge(change, meta, winners, Empty())
