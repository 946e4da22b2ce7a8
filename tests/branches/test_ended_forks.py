"""Forks that a merge or refresh ended, before and after their records say so: crashes in between change nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import pytest

from metaservice.core import limits
from metaservice.core.errors import MetaError
from metaservice.service.branch.branch_replay import Merged
from metaservice.service.operate.check import StoreCheck
from metaservice.store import keys
from tests.branches.rig import DAY_MS, BranchRig, purge

TABLES = ("one", "two", "three", "four")
FAMILIES = (keys.NAMES, keys.DROPPED, keys.FORKS, keys.BRANCHES, keys.ENDED_FORKS)
ENDS: Final[Mapping[str, Callable[..., Merged]]] = {
    "merge": BranchRig.merge,
    "merge, the branch stays": partial(BranchRig.merge, keep=True),
    "refresh": BranchRig.refresh,
}


def before_the_end() -> tuple[BranchRig, dict[str, str]]:
    """A lake, a branch with commits to most of its tables, and the ids of its forks."""
    rig = BranchRig(1)
    for name in TABLES:
        rig.create(name, None)
        rig.on(name).insert("a")
    rig.branch("b")
    for name in TABLES[1:]:
        rig.on(f"{name}@b").insert("b")
    return rig, {name: rig.reads_table(f"{name}@b") for name in TABLES}


def problems(rig: BranchRig) -> list[str]:
    check = StoreCheck(rig.store.cursor(), lambda: None)
    return [problem for progress in check.run() for problem in progress.problems]


def stored(rig: BranchRig) -> dict[bytes, bytes]:
    return {key: value for key, value in rig.store._entries.items() if key[:1] in FAMILIES}


def waiting(rig: BranchRig) -> int:
    return len(rig.decider.state.ended_forks)


@pytest.mark.parametrize("end", list(ENDS))
@pytest.mark.parametrize("groups", [0, 1, 2, 3])
def test_a_crash_before_their_records_leaves_them_ended(monkeypatch: pytest.MonkeyPatch, end: str, groups: int) -> None:
    at_once, _ = before_the_end()
    assert ENDS[end](at_once, "b").is_done
    assert waiting(at_once) == len(TABLES)  # the group that ends them wrote enough
    at_once.decider._group([])
    assert waiting(at_once) == 0
    monkeypatch.setattr(limits, "ENDED_FORKS_WRITTEN", 1)
    rig, forks = before_the_end()
    assert ENDS[end](rig, "b").is_done
    for _ in range(groups):
        rig.decider._group([])
    assert waiting(rig) == len(TABLES) - groups
    assert problems(rig) == []
    assert not any(map(rig.decider.state.views.find, forks.values()))
    rig.crash()
    state = rig.decider.state
    assert waiting(rig) == len(TABLES) - groups
    assert not state.tables.keys() & set(forks.values())
    assert all(state.forks[keys.uuid_bytes(fork_id)].is_merged for fork_id in forks.values())
    for fork_id in forks.values():
        with pytest.raises(MetaError, match="TABLE_DROPPED" if end == "merge" else "TABLE_ID_OUTDATED"):
            state.get_table(fork_id)
        assert state.views.find(fork_id) is None
    while waiting(rig):
        rig.decider._group([])
    assert stored(rig) == stored(at_once)
    assert problems(rig) == []


def test_a_branch_of_the_same_name_keeps_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ENDED_FORKS_WRITTEN", 1)
    rig, ended = before_the_end()
    rig.merge("b")
    with monkeypatch.context() as none:
        none.setattr(limits, "ENDED_FORKS_WRITTEN", 0)
        rig.branch("b")
        (own,) = rig.on("four@b").insert("c")
        fork_id = rig.table_id
    assert fork_id != ended["four"]
    while waiting(rig):
        rig.decider._group([])
    rig.crash()
    assert rig.reads_table("four@b") == fork_id
    assert own in rig.on("four@b").list_files(rig.head)
    assert problems(rig) == []


def test_one_that_waits_cannot_be_brought_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ENDED_FORKS_WRITTEN", 1)
    rig, forks = before_the_end()
    rig.merge("b")
    with pytest.raises(MetaError, match="BRANCH_UNKNOWN"):
        rig.ask(lambda: rig.catalog.undrop(forks["four"]))


def test_their_files_are_the_parents_and_no_more_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ENDED_FORKS_WRITTEN", 1)
    rig, _ = before_the_end()
    rig.merge("b")
    rig.crash()
    rig.pass_time(5 * DAY_MS)
    for name in TABLES:
        assert purge(rig, rig.reads_table(name)) == set()
    assert all(fork.is_gone for fork in rig.decider.state.forks.values())
    assert problems(rig) == []
