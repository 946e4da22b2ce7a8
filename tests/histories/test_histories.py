"""Concurrent clients, a service that is killed: what they were told is what each profile promises."""

from pathlib import Path

from tests.histories.checker import violations
from tests.histories.recorder import PROFILES, record


def test_what_concurrent_clients_were_told_holds(tmp_path: Path) -> None:
    world = record(tmp_path, seed=1, transactions=40, kills=1)
    assert [one for history in world.histories.values() for one in violations(history)] == []
    assert min(world.ended[what] for what in ("committed", "lost", "appended")) > 0
    assert [len(world.histories[profile].txns) > 20 for profile in PROFILES] == [True] * 4
