"""Detects that the service stood still: a stopped process, a suspended machine, a step that took too long.

No client could renew a lease meanwhile, so none expires because of it: as after a restart, transactions, pins and tasks
get full leases before anything expires. Ticks on the decider's thread, before everything else that does.
"""

from __future__ import annotations

from collections.abc import Callable

from metaservice.core import limits
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.shared.log import LEASES_RENEWED


class StallDetector:
    """Compares the times of two consecutive ticks; an idle service ticks five times a second."""

    def __init__(self, decider: Decider, clocks: Clocks, report: Callable[..., None]) -> None:
        self._decider = decider
        self._clocks = clocks
        self._report = report
        self._last_ms = clocks.mono_ms()

    def tick(self) -> None:
        before_ms, self._last_ms = self._last_ms, self._clocks.mono_ms()
        if self._last_ms - before_ms >= limits.PAUSE_MS:
            self._decider.state.start_leases()
            self._report(LEASES_RENEWED, stood_still_ms=self._last_ms - before_ms)
