"""Who leads: taking, renewing, losing and giving back the lease, with clocks that a test moves."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from metaservice.core.lease import (
    GIVE_UP_MS,
    STORE_GIVE_UP_MS,
    STORE_SILENT_MS,
    TAKE_MS,
    VALID_MS,
    Lease,
    may_take,
    see,
    taken,
)
from metaservice.server.ha.leadership import Leadership, StoreWatch
from metaservice.store.lease.lease_object import LeaseObject, decode_lease, encode_lease

LEASE = Lease("one", "a:7070", 3, 7, 1, 2)


@dataclass
class Clock:
    ms: int = 1_000

    def now_us(self) -> int:
        return self.ms * 1_000

    def mono_ms(self) -> int:
        return self.ms


@dataclass
class LeaseInMemory(LeaseObject):
    """A bucket that answers, doesn't, or does what it is told and its answer is lost."""

    state: Lease | None = None
    tag: int = 0
    answers: bool = True
    loses_answer: bool = False

    def read(self) -> tuple[Lease, str] | None:
        if not self.answers:
            raise OSError("no answer")
        return (self.state, str(self.tag)) if self.state is not None else None

    def write(self, lease: Lease, over: str | None) -> str | None:
        if not self.answers:
            raise OSError("no answer")
        if over != (str(self.tag) if self.state is not None else None):
            return None
        self.state, self.tag = lease, self.tag + 1
        if self.loses_answer:
            self.loses_answer = False
            raise OSError("the answer was lost")
        return str(self.tag)


@dataclass
class Scene:
    """Two processes and a bucket; each process has a clock."""

    bucket: LeaseInMemory = field(default_factory=LeaseInMemory)
    clocks: tuple[Clock, Clock] = field(default_factory=lambda: (Clock(), Clock(9_000_000)))
    lost: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.one, self.two = (
            Leadership(self.bucket, name, clock, self.lost.append)
            for name, clock in zip(("one", "two"), self.clocks, strict=True)
        )
        self.one.address, self.two.address = "a:7070", "b:7070"

    def passes(self, ms: int) -> None:
        for clock in self.clocks:
            clock.ms += ms


@pytest.fixture
def scene() -> Scene:
    found = Scene()
    assert found.one.try_take()
    assert not found.two.try_take()
    return found


def test_a_lease_is_the_same_after_it_was_written() -> None:
    assert decode_lease(encode_lease(LEASE)) == LEASE


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b'{"holder": "x"}'])
def test_what_is_no_lease_is_said(raw: bytes) -> None:
    with pytest.raises(OSError, match="can't be read"):
        decode_lease(raw)


def test_a_lease_that_does_not_change_may_be_taken_after_a_while() -> None:
    first = see(None, LEASE, "x", 100)
    again = see(first, LEASE, "x", 100 + TAKE_MS)
    assert not may_take(first, 100 + TAKE_MS - 1)
    assert may_take(again, 100 + TAKE_MS)
    assert not may_take(see(again, LEASE.renewed(5), "y", 100 + TAKE_MS), 100 + TAKE_MS)
    assert may_take(see(again, LEASE.free(5), "y", 100 + TAKE_MS), 100 + TAKE_MS)
    assert may_take(None, 0)
    assert taken(again, "two", "b:7070", 9).epoch == LEASE.epoch + 1


def test_nobody_takes_it_while_it_is_valid() -> None:
    assert TAKE_MS > VALID_MS


def test_one_leads_while_it_renews(scene: Scene) -> None:
    for _ in range(10):
        scene.passes(1_000)
        assert scene.one.renew()
        assert not scene.two.try_take()
        assert scene.one.refusal() is None
    refusal = scene.two.refusal()
    assert refusal is not None
    assert (refusal.reason, refusal.facts) == ("NOT_LEADER", {"leader": "a:7070"})
    assert scene.one.view().role == "leader"
    assert scene.two.view().role == "standby"


def test_who_leads_can_be_asked_while_the_lease_is_given_back(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def released_meanwhile() -> int:
        monkeypatch.undo()
        scene.one.release()
        return scene.clocks[0].ms

    monkeypatch.setattr(scene.clocks[0], "mono_ms", released_meanwhile)
    assert scene.one.leader in {"a:7070", ""}
    assert scene.one.leader == ""


def test_a_leader_that_stood_still_answers_nothing_and_ends(scene: Scene) -> None:
    scene.passes(TAKE_MS)
    assert scene.one.refusal() is not None
    assert scene.two.try_take()
    assert not scene.one.renew()
    assert scene.lost == ["b:7070 holds the lease"]
    assert scene.one.refusal() is not None
    assert scene.two.refusal() is None


def test_a_standby_whose_clock_stood_still_takes_nothing(scene: Scene) -> None:
    scene.clocks[0].ms += 60_000
    assert not scene.two.try_take()


def test_a_lease_that_is_given_back_is_taken_at_once(scene: Scene) -> None:
    scene.one.release()
    assert scene.one.refusal() is not None
    assert scene.two.try_take()
    assert scene.two.view().lease_epoch == 2


def test_only_one_of_two_takes_it(scene: Scene) -> None:
    scene.one.release()
    scene.bucket.loses_answer = True
    assert not scene.two.try_take()  # it has it, and doesn't know
    assert not scene.one.try_take()
    assert scene.two.refusal() is not None
    scene.passes(TAKE_MS)
    assert scene.one.try_take()
    assert not scene.two.try_take()


def test_a_lease_that_was_taken_without_an_answer_is_found(scene: Scene) -> None:
    scene.one.release()
    scene.bucket.loses_answer = True
    assert not scene.two.try_take()
    assert scene.two.refusal() is not None
    assert scene.two.try_take()
    assert scene.two.refusal() is None
    assert not scene.one.try_take()


def test_a_renewal_whose_answer_was_lost_is_found(scene: Scene) -> None:
    scene.passes(1_000)
    scene.bucket.loses_answer = True
    assert scene.one.renew()
    assert scene.one.renew()
    assert scene.one.renew()
    assert scene.one.refusal() is None
    assert scene.lost == []


def test_a_bucket_that_comes_back_soon_changes_no_leader(scene: Scene) -> None:
    scene.bucket.answers = False
    scene.passes(VALID_MS)
    assert scene.one.renew()
    assert scene.one.refusal() is not None
    assert not scene.two.try_take()
    scene.bucket.answers = True
    assert scene.one.renew()
    assert scene.one.refusal() is None
    assert not scene.two.try_take()


def test_a_leader_without_a_bucket_ends_after_a_while(scene: Scene) -> None:
    scene.bucket.answers = False
    scene.passes(GIVE_UP_MS)
    assert not scene.one.renew()
    assert len(scene.lost) == 1


def test_a_store_that_is_silent_is_said_once_and_ends_the_leader_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    lost: list[str] = []
    monkeypatch.setattr("metaservice.server.ha.leadership.event", lambda name, **_: said.append(name))
    waited_ms = [0]
    watch = StoreWatch(lambda: waited_ms[0] / 1000, lost.append)
    for waited_ms[0] in (0, STORE_SILENT_MS - 1, STORE_SILENT_MS, STORE_GIVE_UP_MS - 1, 0, 0, STORE_SILENT_MS):
        watch.look()
    assert said == ["store_silent", "store_answers", "store_silent"]
    assert lost == []
    waited_ms[0] = STORE_GIVE_UP_MS
    watch.look()
    assert len(lost) == 1
