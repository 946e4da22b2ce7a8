"""Whether the decider answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Final

from metaservice.core import limits
from metaservice.core.errors import MetaError
from metaservice.service.decider.decider import Answer, Decider

BOUND_S: Final = limits.LIVENESS_MS / 1000


class _Probe:
    """A job that does nothing."""

    def __init__(self) -> None:
        self.begun_s = time.monotonic()
        self.answered = threading.Event()
        self.is_refused = False

    def put(self, given: Sequence[Answer]) -> None:
        self.is_refused = isinstance(given[0][1], MetaError)
        self.answered.set()


class Liveness:
    """Sends the decider an empty job, one at a time, however many callers ask."""

    def __init__(self, decider: Decider, bound_s: float = BOUND_S) -> None:
        self._decider = decider
        self._bound_s = bound_s
        self._mutex = threading.Lock()
        self._probe: _Probe | None = None

    def answers(self) -> bool:
        """Whether the decider answers in time; at once False if the last job has waited for longer."""
        with self._mutex:
            probe = self._probe
            if probe is None or probe.answered.is_set():
                probe = self._probe = _Probe()
                self._decider.submit([(probe.put, None, lambda: None)])
        left_s = probe.begun_s + self._bound_s - time.monotonic()
        return probe.answered.wait(max(left_s, 0.0)) and not probe.is_refused
