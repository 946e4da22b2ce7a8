"""Actors that take turns in a time of their own: what happens next is chance's choice, the same for each seed.

An actor runs on a thread, alone, until it sleeps, waits or takes a step; then the one whose time has come goes on. So
real code that blocks can be played, as long as it blocks here. A host is what can stand still and die: its actors with
it, between any two steps.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

MS: Final = 1_000
FOREVER_MS: Final = 1 << 40


class Killed(BaseException):
    """The actor's host is dead, or the history over."""


class Host:
    """A process, say."""

    def __init__(self) -> None:
        self.is_dead = False
        self.still_until_us = 0


class Actor:
    """Something that goes on at its time."""

    __slots__ = ("ended", "host", "run", "wake_us", "worker")

    def __init__(self, run: Callable[[], None], host: Host | None, wake_us: int) -> None:
        self.run = run
        self.host = host
        self.wake_us = wake_us
        self.worker: _Worker | None = None
        self.ended = False

    def due_us(self) -> int:
        if self.host is None:
            return self.wake_us
        if self.host.is_dead:
            return 0
        return max(self.wake_us, self.host.still_until_us)


class Steps:
    """The time, and whose turn it is."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now_us = 0
        self.is_over = False
        self.turns = 0
        self._actors: list[Actor] = []
        self._current: Actor | None = None
        self._idle: list[_Worker] = []
        self._back = threading.Lock()
        self._back.acquire()
        self._failure: BaseException | None = None

    # -- for who plays the history ----------------------------------------------------------------------------------

    def spawn(self, run: Callable[[], None], host: Host | None = None) -> Actor:
        actor = Actor(run, host, self.now_us + self.rng.randrange(MS))
        self._actors.append(actor)
        return actor

    def play(self, goes_on: Callable[[], bool]) -> None:
        """Until nobody is left or it shall not go on; then everybody is killed. Raises what an actor raised."""
        while self._actors and self._failure is None and goes_on():
            self._turn(min(self._actors, key=Actor.due_us))
        self.is_over = True
        while self._actors:
            self._turn(self._actors[-1])
        for worker in self._idle:
            worker.end()
        if self._failure is not None:
            raise self._failure

    def _turn(self, actor: Actor) -> None:
        self.turns += 1
        if not self.is_over:
            self.now_us = max(self.now_us, actor.due_us())
        if actor.worker is None:
            actor.worker = self._idle.pop() if self._idle else _Worker(self)
            actor.worker.actor = actor
        self._current = actor
        actor.worker.turn.release()
        self._back.acquire()
        self._current = None
        if actor.ended:
            self._actors.remove(actor)
            self._idle.append(actor.worker)

    def give_back(self) -> None:
        self._back.release()

    def failed(self, error: BaseException) -> None:
        self._failure = self._failure or error

    # -- for actors -------------------------------------------------------------------------------------------------

    def sleep_ms(self, ms: float) -> None:
        """Others go on meanwhile. Without an actor time stands still."""
        if self._current is not None:
            self._wait_until(self._current, self.now_us + int(ms * MS))

    def step(self) -> None:
        """A moment in which anything may happen."""
        self.sleep_ms(self.rng.random() * 2)

    def _wait_until(self, actor: Actor, wake_us: int) -> None:
        self.check()
        actor.wake_us = wake_us
        worker = actor.worker
        assert worker is not None
        self._back.release()
        worker.turn.acquire()
        self.check()

    def check(self) -> None:
        """Raises Killed where this actor's host is dead."""
        host = self._current.host if self._current is not None else None
        if self.is_over or (host is not None and host.is_dead):
            raise Killed

    def wait(self, bell: Bell, ms: float) -> None:
        actor = self._current
        assert actor is not None
        bell.waiting.append(actor)
        try:
            self._wait_until(actor, self.now_us + int(ms * MS))
        finally:
            bell.waiting.remove(actor)

    @contextmanager
    def without_host(self) -> Iterator[None]:
        """What goes on although the process stands still or dies: a message that is under way."""
        actor = self._current
        host = actor.host if actor is not None else None
        if actor is not None:
            actor.host = None
        try:
            yield
        finally:
            if actor is not None:
                actor.host = host


class _Worker:
    """A thread that plays one actor after the other."""

    def __init__(self, steps: Steps) -> None:
        self.turn = threading.Lock()
        self.turn.acquire()
        self.actor: Actor | None = None
        self._steps = steps
        threading.Thread(target=self._run, daemon=True).start()

    def end(self) -> None:
        self.actor = None
        self.turn.release()

    def _run(self) -> None:
        while True:
            self.turn.acquire()
            actor = self.actor
            if actor is None:
                return
            try:
                self._steps.check()
                actor.run()
            except Killed:
                pass
            except BaseException as error:  # noqa: BLE001 - the history fails with it
                self._steps.failed(error)
            actor.ended = True
            self._steps.give_back()


class Bell:
    """Rings once for whoever waits, and stays rung until somebody has heard it."""

    def __init__(self, steps: Steps) -> None:
        self.waiting: list[Actor] = []
        self._steps = steps
        self._rung = False

    def ring(self) -> None:
        self._rung = True
        for actor in self.waiting:
            actor.wake_us = min(actor.wake_us, self._steps.now_us)

    def wait_ms(self, ms: float) -> bool:
        if not self._rung:
            self._steps.wait(self, ms)
        rung, self._rung = self._rung, False
        return rung


class Flag:
    """An event of threading."""

    def __init__(self, steps: Steps) -> None:
        self._bell = Bell(steps)
        self._steps = steps
        self._is_set = False

    def set(self) -> None:
        self._is_set = True
        self._bell.ring()

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_set:
            self._steps.wait(self._bell, FOREVER_MS if timeout is None else timeout * 1000)
        return self._is_set


class StepThread:
    """A thread of threading, whose target is an actor."""

    def __init__(self, steps: Steps, target: Callable[[], None], host: Host) -> None:
        self._steps = steps
        self._target = target
        self._host = host
        self._ended = Flag(steps)
        self._started = False

    def start(self) -> None:
        self._started = True
        self._steps.spawn(self._run, self._host)

    def is_alive(self) -> bool:
        return self._started and not self._ended.is_set()

    def join(self, timeout: float | None = None) -> None:
        self._ended.wait(timeout)

    def _run(self) -> None:
        try:
            self._target()
        finally:
            self._ended.set()
