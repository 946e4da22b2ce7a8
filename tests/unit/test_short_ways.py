"""The short ways decide what the long ones decide."""

import copy
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from metaservice.core.change_checks import check_change, is_blind_insert
from metaservice.core.errors import MetaError
from metaservice.core.judge import Judging, Mine
from metaservice.core.model import (
    Change,
    Conflict,
    Entry,
    FileKind,
    Footprint,
    Live,
    Operation,
    Principal,
    Profile,
    Removed,
    TableCommit,
    TableMeta,
)
from metaservice.core.partitions import Partitioning
from metaservice.core.rebase import Author, commit_any, decide
from metaservice.core.rows import NOTHING_KNOWN, UNKNOWN_WRITTEN, Payloads, Written

WHO = Principal("tests", "")
APPEND = TableMeta("t", "t", Partitioning((("p", "int"),)), (), 0, Profile.MAXCOMPUTE, 1, {}, frozenset(), "", (), 0)
KEYED = replace(APPEND, primary_key=("id",), buckets=2)
OPERATIONS = [Operation.INSERT, *(one for one in Operation if one is not Operation.CREATE)]
PLACES = ["p=1", "p=2"]


class Empty:
    """Nothing is live but one external file."""

    def live(self, _version: int, _partition: str | None = None, _bucket: int | None = None) -> list[Live]:
        return []

    def find(self, _version: int, partition: str, bucket: int, path: str) -> Live | None:
        found = Entry(path, partition, 0, FileKind.APPEND, 10, 100, b"")
        return Live(found, 1, 1) if path == "ext/0" and not bucket else None

    def find_imports(self, path: str) -> list[Live]:
        return [live for place in PLACES if (live := self.find(1, place, 0, path)) is not None]

    def wrote(self, _version: int) -> Written:
        return UNKNOWN_WRITTEN

    @property
    def payloads(self) -> Payloads:
        return NOTHING_KNOWN


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


def footprint(rng: random.Random, version: int) -> Footprint:
    operation = rng.choice(OPERATIONS)
    place = rng.choice(PLACES)
    blind = operation in (Operation.INSERT, Operation.ALTER)
    return Footprint(
        version,
        version,
        f"w{version}",
        operation,
        WHO,
        frozenset({place}),
        ((f"x/{version}", place, rng.randrange(2)),),
        () if blind else (Removed("x/0", place, 0, 1, 1, 10, 100, False, True),),
        blind=blind,
        metadata_changed=operation is Operation.ALTER and rng.random() < 0.5,
        altered=operation is Operation.ALTER,
        app_ids=("a",) if rng.random() < 0.3 else (),
    )


def decide_the_long_way(
    change: Change, meta: TableMeta, winners: Sequence[Footprint], snapshots: Empty, author: Author, head: int, at: int
) -> TableCommit | Conflict:
    check_change(change, meta, snapshots)
    judging = Judging(Mine(change, meta, snapshots))
    judging._passes_inserts = False
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
