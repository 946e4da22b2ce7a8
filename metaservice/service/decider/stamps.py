"""When a job was handed over, decided and made durable: for traces, and only where these are switched on."""

from __future__ import annotations

import time
from collections.abc import Callable

from metaservice.core.errors import MetaError


class Stamped:
    """A job that notes its times, in nanoseconds of `time.perf_counter_ns`; 0: it did not come to that."""

    __slots__ = ("asked_ns", "begun_ns", "decided_ns", "jobs", "note", "run", "sync_ns", "synced_ns", "turns")

    def __init__(self, run: Callable[[], object], note: Callable[[Stamped], object]) -> None:
        """`note` is called when it is decided, on the decider's thread."""
        self.run = run
        self.note = note
        self.asked_ns = time.perf_counter_ns()
        self.begun_ns = self.decided_ns = self.sync_ns = self.synced_ns = 0
        self.turns = 0
        self.jobs = 0  # of the group that decided it

    def __call__(self) -> object:
        self.begun_ns = self.begun_ns or time.perf_counter_ns()
        self.turns += 1
        try:
            answer = self.run()
        except MetaError:
            self._decided()
            raise
        self._decided()
        return answer

    def _decided(self) -> None:
        self.decided_ns = time.perf_counter_ns()
        self.note(self)

    def goes_on(self, run: Callable[[], object] | None) -> Stamped:
        """The same job in its next turn."""
        self.run = run or self.run
        return self
