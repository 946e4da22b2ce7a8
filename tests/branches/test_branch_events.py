"""What happened to branches: numbered without a gap over crashes, refused and repeated calls; the newest are kept."""

from __future__ import annotations

import pytest

from metaservice.core import limits
from metaservice.core.table.model import Operation
from metaservice.service.decider import names
from tests.branches.rig import DAY_MS, BranchRig


def events(rig: BranchRig, after: int = 0) -> list[tuple[int, str, str]]:
    listed, newest = rig.ask(lambda: rig.branches.list_events(after, 100))
    assert newest == (listed[-1][0] if listed else after)
    return [(number, event.kind.value, event.branch) for number, event in listed]


def test_an_event_is_there_if_and_only_if_it_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = BranchRig()
    assert events(rig) == []
    for name in ("a", "b", "c"):
        rig.branch(name, keep_ms=DAY_MS)
    rig.on("days@a").write(Operation.INSERT, "x")
    rig.on("days").write(Operation.INSERT, "y")
    assert not rig.drop("none")
    assert rig.merge("a", validate_only=True).is_done
    assert rig.refresh("a", validate_only=True).is_done
    txn_id = rig.uuid()
    assert rig.merge("a", txn_id=txn_id).is_done
    rig.crash()
    assert rig.merge("a", txn_id=txn_id).is_done
    rig.drop("b")
    rig.pass_time(2 * DAY_MS, looks=2)
    happened = [*((number, "created", name) for number, name in enumerate("abc", 1)), (4, "merged", "a")]
    happened += [(5, "dropped", "b"), (6, "expired", "c")]
    assert events(rig) == happened
    assert events(rig, after=4) == happened[4:]
    monkeypatch.setattr(limits, "BRANCH_EVENTS_KEPT", 6)
    rig.branch("d")
    rig.crash()
    rig.branch("e")
    assert [number for number, _, _ in events(rig)] == [3, 4, 5, 6, 7, 8]


def test_branches_end_by_their_times_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "ENDS_MIN", 3)
    rig = BranchRig()
    rig.insert("a")
    for count in range(8):
        rig.branch(f"b{count}", keep_ms=DAY_MS * (1 + count % 2))
    for _ in range(4):
        rig.ask(lambda: rig.branches.extend("b6", 3 * DAY_MS))
    rig.on("days@b4")
    rig.drop("b7")
    rig.clock.advance(DAY_MS - 1_000)
    rig.on("days@b0").begin(Operation.INSERT)
    rig.pass_time(1_000, looks=4)
    assert set(rig.decider.state.branches) == {"b0", "b1", "b3", "b5", "b6"}, "one in each group, none that is in use"
    rig.crash()
    rig.pass_time(DAY_MS)
    assert set(rig.decider.state.branches) == {"b6"}
