"""Who stands by, as the leader sees it: notes that change, stay or can't be read, with clocks that a test moves."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from metaservice.core.lease import FORGET_MS, GONE_MS, NOTE_MS
from metaservice.server.ha.standby_registry import StandbyRegistry
from metaservice.store.lease.standby_notes import StandbyNotes

LEADER, OTHER = "a:7070", "b:7070"


@dataclass
class Clock:
    ms: int = 1_000

    def now_us(self) -> int:
        return self.ms * 1_000

    def mono_ms(self) -> int:
        return self.ms


@dataclass
class NotesInMemory(StandbyNotes):
    """A bucket that answers or doesn't."""

    notes: dict[str, str] = field(default_factory=dict)
    answers: bool = True

    def write(self, address: str, number: int) -> None:
        self._ask()
        self.notes[address] = str(number)

    def remove(self, address: str) -> None:
        self._ask()
        self.notes.pop(address, None)

    def list_tags(self) -> dict[str, str]:
        self._ask()
        return dict(self.notes)

    def _ask(self) -> None:
        if not self.answers:
            raise OSError("no answer")


@dataclass
class Scene:
    """A leader and a standby, whose clocks differ."""

    bucket: NotesInMemory = field(default_factory=NotesInMemory)
    clocks: tuple[Clock, Clock] = field(default_factory=lambda: (Clock(), Clock(9_000_000)))
    leads: list[bool] = field(default_factory=lambda: [True, False])

    def __post_init__(self) -> None:
        self.failures: list[OSError] = []
        self.one = StandbyRegistry(self.bucket, self.clocks[0], lambda: self.leads[0], self.failures.append)
        self.two = StandbyRegistry(self.bucket, self.clocks[1], lambda: self.leads[1], self.failures.append)
        self.one.address, self.two.address = LEADER, OTHER

    def passes(self, ms: int, *, alive: bool = True) -> list[tuple[str, int, bool]]:
        """What the leader sees after a time in which both look."""
        for _ in range(0, ms, NOTE_MS):
            for clock in self.clocks:
                clock.ms += NOTE_MS
            if alive:
                self.two.look()
            self.one.look()
        return [(one.address, one.seen_ago_ms, one.alive) for one in self.one.view()]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_standby_is_seen_for_as_long_as_its_note_changes(scene: Scene) -> None:
    assert scene.passes(NOTE_MS, alive=False) == []
    assert scene.passes(20 * NOTE_MS) == [(OTHER, 0, True)]
    assert scene.passes(GONE_MS - NOTE_MS, alive=False) == [(OTHER, GONE_MS - NOTE_MS, True)]
    assert scene.passes(NOTE_MS, alive=False) == [(OTHER, GONE_MS, False)]
    assert scene.passes(NOTE_MS) == [(OTHER, 0, True)]
    assert scene.passes(FORGET_MS, alive=False) == []
    assert scene.bucket.notes == {}


def test_a_standby_that_stops_takes_its_note_away(scene: Scene) -> None:
    scene.passes(NOTE_MS)
    scene.two.stop()
    assert scene.passes(NOTE_MS, alive=False) == []


def test_who_leads_stands_by_no_more(scene: Scene) -> None:
    scene.passes(NOTE_MS)
    scene.leads[:] = [False, True]
    scene.two.look()
    assert scene.bucket.notes == {}
    scene.one.look()
    scene.two.look()
    assert [one.address for one in scene.two.view()] == [LEADER]


def test_a_bucket_that_does_not_answer_is_counted(scene: Scene) -> None:
    scene.passes(NOTE_MS)
    scene.bucket.answers = False
    assert scene.passes(GONE_MS) == [(OTHER, GONE_MS, False)]
    assert len(scene.failures) == 2 * (GONE_MS // NOTE_MS)
    scene.two.stop()
    scene.bucket.answers = True
    assert scene.passes(NOTE_MS) == [(OTHER, 0, True)]
