"""Servers that share a bucket: the real service, who leads by the real rules, on machines whose clocks differ.

A process dies at any step, or stands still; its machine starts another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.lease import LOOK_MS
from metaservice.server.ha.leadership import Leadership, leave, not_leader
from metaservice.server.settings import Settings, read_settings
from metaservice.server.store_opening import OpenState
from metaservice.server.wiring import Service, build_service
from metaservice.service.decider.decider import Answer, Decider, Job, Mailbox
from metaservice.service.decider.group_commit_delay import GroupCommitDelay
from metaservice.store.lease.lease_object import decode_lease
from metaservice.store.port import Store, StoreFailed, StoreFenced, StoreGone, StoreUnusable
from tests.simulation.bucket import Bucket, LeaseInSim, Link
from tests.simulation.logs import check
from tests.simulation.steps import MS, Bell, Flag, Host, Killed, Steps, StepThread

T = TypeVar("T")

START_US: Final = 1_800_000_000_000_000
FLAGS: Final = ("--store", "s3://sim/meta", "--reserve-bytes", "0")


class MachineClock:
    """Its monotonic clock begins anywhere and runs a little fast or slow; its wall clock is somewhere and jumps."""

    def __init__(self, steps: Steps) -> None:
        rng = steps.rng
        self._steps = steps
        self._first_ms = rng.randrange(1, 1 << 30)
        self._pace = 1 + rng.uniform(-0.02, 0.02)
        self.off_us = rng.choice((0, 1, -1)) * rng.randrange(3_000_000)

    def now_us(self) -> int:
        return START_US + self._steps.now_us + self.off_us

    def mono_ms(self) -> int:
        if self._steps.rng.random() < 0.02:
            self._steps.step()
        found = self._first_ms + int(self._steps.now_us / MS * self._pace)
        if self._steps.rng.random() < 0.02:
            self._steps.step()
        return found


class SteppedMailbox(Mailbox[Job]):
    """The decider's, whose bell is one of the history's."""

    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._rung = Bell(steps)

    def ring(self) -> None:
        self._rung.ring()

    def take(self, timeout_s: float = -1) -> list[Job]:
        if timeout_s:
            self._rung.wait_ms(timeout_s * 1000)
        items, self._items = self._items, []
        return items


class _NoGathering(GroupCommitDelay):
    """It goes by the time that syncs take, which is no part of a history."""

    def left_s(self, *_: object) -> float:
        return 0.0


class Machine:
    """Starts a process whenever none runs."""

    def __init__(self, name: str, steps: Steps, bucket: Bucket, folder: Path) -> None:
        self.name = name
        self.steps = steps
        self.bucket = bucket
        self.link = Link()
        self.clock = MachineClock(steps)
        self.settings = read_settings([*FLAGS, "--data", str(folder / name)])
        self.cut_from: set[str] = set()  # clients that it doesn't hear
        self.process: Process | None = None
        self.started = 0
        self.ends: list[int] = []

    def run(self) -> None:
        while True:
            self.started += 1
            self.process = Process(self, f"{self.name}-{self.started}")
            self.steps.spawn(self.process.main, self.process)
            self.process.ended.wait()
            self.ends.append(self.process.code)
            self.steps.sleep_ms(self.steps.rng.randrange(200, 2_000))


class Process(Host):
    """One run of `laketx serve --store`."""

    def __init__(self, machine: Machine, holder: str) -> None:
        super().__init__()
        self.machine = machine
        self.steps = machine.steps
        self.ended = Flag(self.steps)
        self.stop = Flag(self.steps)
        self.code = -9
        self._has_opened = False
        self._opening = 0
        self.service: Service | None = None
        lease = LeaseInSim(machine.bucket, machine.link)
        self.leads = Leadership(lease, holder, machine.clock, self._lost, self.stop.set)
        self.leads.address = machine.name
        self.leads._ended = Flag(self.steps)  # type: ignore[assignment]
        self.leads._thread = StepThread(self.steps, self.leads._renew_always, self)  # type: ignore[assignment]

    def main(self) -> None:
        while not self.leads.try_take():
            if self.stop.wait(LOOK_MS / 1000):
                self.die(0)
        self.leads.start()
        if self.leads.refusal() is not None:
            self.die(75)
        settings: Settings = self.machine.settings
        open_state = OpenState(settings, self._open_store)
        try:
            service = build_service(open_state, self.machine.clock, settings, leads=self.leads)
        except StoreFenced:
            self.die(75)
            return
        except (StoreFailed, StoreUnusable):
            self.leads.release()
            self.die(74)
            return
        decider = service.decider
        decider._fail_stop = self._fail_stop
        decider._inbox = SteppedMailbox(self.steps)
        decider._gathering = _NoGathering()
        decider._thread = StepThread(self.steps, decider._run, self)  # type: ignore[assignment]
        decider.start()
        self.service = service
        self.stop.wait()
        self.service = None
        if not leave(_NoServer(self.steps), decider, self.leads, 10.0, partial(_write_out, decider)):
            self.die(74)
        with suppress(StoreFailed, StoreGone):
            decider.state.store.close()
        self.die(75 if self.leads.is_stepping_down else 0)

    def die(self, code: int) -> None:
        """Ends the process, from within or without."""
        if self.is_dead:
            return
        self.is_dead, self.code, self.service = True, code, None
        self.ended.set()
        self.steps.check()

    def _open_store(self, *_: object) -> Store:
        check(not self._has_opened, "a process opens its store once", self.leads._holder)
        self._has_opened = True
        store = self.machine.bucket.open_store(self.machine.link)
        self._opening = self.machine.bucket.openings
        return store

    def _lost(self, why: str) -> None:
        raw = self.machine.bucket.lease
        mine = raw is not None and decode_lease(raw).holder == self.leads._holder
        check(not mine or "could not be renewed" in why, "who holds the lease leads", why)
        self.die(75)

    def _fail_stop(self, error: BaseException) -> None:
        if isinstance(error, StoreFenced):
            self.die(75)
        raise error

    # -- what callers reach -----------------------------------------------------------------------------------------

    def read(self, run: Callable[[Service], T]) -> T:
        """A call that asks the state of the moment."""
        return run(self._entered())

    def decide(self, run: Callable[[Service], T]) -> T:
        """A call that the decider answers."""
        service = self._entered()
        bell, given = Bell(self.steps), list[object]()

        def hear(answers: Sequence[Answer]) -> None:
            given.append(answers[0][1])
            bell.ring()

        service.decider.submit([(hear, None, lambda: run(service))])
        bell.wait_ms(1 << 30)
        answer = given[0]
        if isinstance(answer, MetaError):
            raise answer
        return answer  # type: ignore[return-value]

    def _entered(self) -> Service:
        """As each call is checked when it comes."""
        came_us = self.steps.now_us
        service = self.service
        if service is None:
            if self.stop.is_set():
                raise MetaError(ErrorKind.UNAVAILABLE, "STOPPING")
            raise not_leader(self.leads.leader)
        if (refusal := self.leads.refusal()) is not None:
            raise refusal
        served = self.machine.bucket.served
        later = [opening for opening, first_us in served.items() if opening > self._opening and first_us < came_us]
        check(not later, "who led before takes no call once another one does", self.leads._holder, later)
        served.setdefault(self._opening, self.steps.now_us)
        return service


def _write_out(decider: Decider) -> None:
    with suppress(StoreFailed, StoreGone, OSError):
        decider.state.store.write_out()


class _NoServer:
    """Calls under way end when they end."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def begin_stop(self, grace_s: float) -> Flag:
        return Flag(self._steps)

    def end_stop(self, ended: Flag, grace_s: float) -> None:
        """Nothing more."""


GONE: Final = MetaError(ErrorKind.UNAVAILABLE, "NOBODY_ANSWERS")


def call(client: str, machine: Machine, ask: Callable[[Process], T], patience_ms: int = 3_000) -> T:
    """Over the network; raises GONE where no answer comes, whatever became of the call."""
    steps = machine.steps
    steps.step()
    process = machine.process
    if client in machine.cut_from or process is None or process.is_dead:
        steps.sleep_ms(20)
        raise GONE
    bell, given = Bell(steps), list[T | MetaError]()

    def serve() -> None:
        try:
            given.append(ask(process))
        except MetaError as refusal:
            given.append(refusal)
        except Killed:
            if not process.is_dead:
                raise
        finally:
            bell.ring()

    steps.spawn(serve, process)
    bell.wait_ms(patience_ms)
    steps.step()
    if not given or client in machine.cut_from:
        raise GONE
    answer = given[0]
    if isinstance(answer, MetaError):
        raise answer
    return answer
