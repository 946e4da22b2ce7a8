"""The index of forks answers as a look at all of them would."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from metaservice.service.decider.fork_book import ForkBook
from metaservice.store.records.branches import Fork

TABLES = [bytes([number]) * 16 for number in range(1, 5)]
BRANCHES = ["", "b"]
IDS = st.sampled_from(TABLES)
FORKS = st.builds(
    Fork,
    raw_id=IDS,
    base=IDS,
    version=st.just(1),
    time_us=st.just(1),
    schema_version=st.just(0),
    root=IDS,
    branch=st.sampled_from(BRANCHES),
    is_dropped=st.booleans(),
    is_gone=st.booleans(),
    successor=st.one_of(st.just(b""), IDS),
    is_detached=st.booleans(),
)


def is_needed(forks: dict[bytes, Fork], raw_id: bytes) -> bool:
    return any(
        raw_id == fork.successor or (raw_id in (fork.base, fork.root) and not fork.is_detached)
        for fork in forks.values()
        if not fork.is_gone
    )


FIRST, DROPPED = (Fork(TABLES[0], TABLES[1], 1, 1, 0, TABLES[1], "b", is_dropped=gone) for gone in (False, True))


@example([FIRST, DROPPED, FIRST])
@example([FIRST, replace(DROPPED, successor=TABLES[2])])
@given(st.lists(st.one_of(FORKS, IDS), min_size=8, max_size=20))
def test_the_book_is_what_the_forks_say(steps: list[Fork | bytes]) -> None:
    book, forks = ForkBook(), dict[bytes, Fork]()
    for step in steps:  # a fork that is put, or the id of one that goes
        if isinstance(step, Fork):
            book[step.raw_id] = forks[step.raw_id] = step
        elif forks.pop(step, None) is not None:
            del book[step]
        assert book == forks
        living = [fork for fork in forks.values() if not fork.is_gone]
        assert set(book.living) == {fork.raw_id for fork in living}
        for raw_id in TABLES:
            assert book.needs(raw_id) == is_needed(forks, raw_id)
            assert set(book.of_root(raw_id)) == {fork.raw_id for fork in living if fork.root == raw_id}
        for branch in BRANCHES:
            dropped = {fork.raw_id for fork in forks.values() if fork.is_dropped and fork.branch == branch}
            assert {fork.raw_id for fork in book.dropped_on(branch)} == dropped
