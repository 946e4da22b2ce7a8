"""The short ways decide what the long ones decide."""

import copy
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from metaservice.core.commit.change_checks import check_change, is_blind_insert
from metaservice.core.commit.judge import Judging
from metaservice.core.commit.judged_change import JudgedChange
from metaservice.core.commit.rebase import Author, commit_any, decide
from metaservice.core.errors import MetaError
from metaservice.core.table.meta import Profile, TableMeta
from metaservice.core.table.model import Change, Conflict, Entry, FileKind, Footprint, Operation, TableCommit
from tests.unit.footprints import APPEND, KEYED, PLACES, WHO, Empty, footprint


def entries(rng: random.Random, right: FileKind) -> list[Entry]:
    """Mostly such as may be inserted."""

    def rarely() -> bool:
        return rng.random() < 0.03

    return [
        Entry(
            "ext/0" if rarely() else f"ext/{number}",
            rng.choice(PLACES),
            rng.randrange(2),
            FileKind.BASE if rarely() else right,
            rng.randrange(5),
            7,
            b"",
            is_delete_set=rarely(),
            external=rarely(),
        )
        for number in range(rng.randrange(4))
    ]


def decide_the_long_way(
    change: Change, meta: TableMeta, winners: Sequence[Footprint], snapshots: Empty, author: Author, head: int, at: int
) -> TableCommit | Conflict:
    check_change(change, meta, snapshots)
    judging = Judging(JudgedChange(change, meta, snapshots))
    judging.passes_inserts = False
    for winner in winners:
        conflict = judging.meet(winner)
        if conflict is not None:
            return conflict
    return judging.end() or commit_any(change, meta, winners, snapshots, author, head, at)


def test_a_blind_insert_is_decided_as_any_change_is() -> None:
    rng = random.Random(7)
    seen: Counter[type] = Counter()
    for _ in range(3_000):
        meta = replace(rng.choice([APPEND, KEYED]), profile=rng.choice(list(Profile)))
        winners = [footprint(rng, version) for version in range(2, 2 + rng.randrange(4))]
        right = FileKind.DELTA if meta.keyed else FileKind.APPEND
        reads = ("a",) if rng.random() < 0.3 else ()
        change = Change("t", Operation.INSERT, 1, app_ids_read=reads, adds=entries(rng, right))
        change.others_blind = rng.random() < 0.7
        assert is_blind_insert(change)
        answers: list[object] = []
        for way in (decide, decide_the_long_way):
            try:
                mine = copy.deepcopy(change)
                answers.append(way(mine, meta, winners, Empty(), Author("me", WHO), 1 + len(winners), 99))
            except MetaError as refusal:
                answers.append((refusal.reason, refusal.facts))
        assert answers[0] == answers[1]
        seen[type(answers[0])] += 1
    assert min(seen[kind] for kind in (TableCommit, Conflict, tuple)) > 100
