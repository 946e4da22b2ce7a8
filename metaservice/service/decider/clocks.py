"""The service's time: its clocks, whether the wall clock is trusted, and whether the service stood still."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from metaservice.core import limits
from metaservice.core.clock import Instant, clock_jump_ms
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.state import State
from metaservice.shared.log import CLOCK_CONFIRMED, CLOCKS_AGREE, CLOCKS_DISAGREE, COMMIT_TIMES_AHEAD, LEASES_RENEWED
from metaservice.store import keys
from metaservice.store.records.clocks import ClockState, decode_clock, encode_clock

Uptime = Callable[[], tuple[str, int]]
_THIS_RUN = "this run"


class Clocks(Protocol):
    """`now_us` may jump either way; `mono_ms` never goes back. Wiring passes the real clocks, tests their own."""

    def now_us(self) -> int: ...

    def mono_ms(self) -> int: ...


def unknown_uptime() -> tuple[str, int]:
    return "", 0


@dataclass(frozen=True, slots=True)
class ClockHold:
    """Why nothing is forgotten, retired or purged, and for how long at most."""

    reason: str = ""
    off_ms: int = 0
    left_ms: int = 0


class ClockGuard:
    """Decides whether the wall clock is trusted. While it isn't, nothing is forgotten, retired or purged.

    The clock is compared with its last trusted value: within a run by the monotonic clock, across a restart of the
    service by the time since the machine's boot. If the machine was booted in between, the time it was off is unknown:
    more than a day, or a negative time, counts as a jump.

        held     from the jump until the clocks agree again, an operator confirms the clock, or the service has run for
                 a day (of running time: a pause doesn't count); survives restarts
        ahead    commit times that are ahead of the clock, because they never go back: an alarm of its own

    Ticks on the decider's thread; any thread can read it.
    """

    def __init__(
        self, decider: Decider, clocks: Clocks, tolerance_ms: int, report: Callable[..., None], uptime: Uptime
    ) -> None:
        """`uptime` returns the machine's boot and the milliseconds since; without a name the boot is unknown."""
        self._decider = decider
        self._clocks = clocks
        self._tolerance_ms = tolerance_ms
        self._report = report
        self._boot, self._up_ms = uptime()
        self._start_ms = self._last_ms = clocks.mono_ms()
        self._record_ms = self.due_ms = self._last_ms
        self._ran_ms = self._remind_ms = self._remind_ahead_ms = 0
        self.held = False
        self.off_ms = 0
        self._held_ms = 0
        now = self._instant(clocks.now_us(), self._last_ms)
        self._believed = self._seen = now
        self._compare_with_last_run(decider.state, now)

    def _compare_with_last_run(self, state: State, now: Instant) -> None:
        raw = state.store.get(keys.CLOCK)
        if raw is None:  # of an earlier release, or fresh
            newest = Instant(state.newest_us) if state.newest_us else now
            last = ClockState(newest, newest)
        else:
            last = decode_clock(raw)
        jump_ms = clock_jump_ms(last.believed, now, limits.CLOCK_GAP_MS)
        if abs(jump_ms) <= self._tolerance_ms:
            if last.held:
                self._report(CLOCKS_AGREE, off_ms=jump_ms)
            return
        jumped_again = abs(clock_jump_ms(last.seen, now, limits.CLOCK_GAP_MS)) > self._tolerance_ms
        self._believed = last.believed
        self._held_ms = last.held_ms if last.held and not jumped_again else 0
        self._hold(jump_ms)

    # -- on the decider's thread ---------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Costs next to nothing when nothing is due."""
        if now_ms >= self.due_ms:
            self.look(self._clocks.now_us(), now_ms)

    def look(self, now_us: int, now_ms: int) -> bool:
        """Whether these times are trusted."""
        self.due_ms = now_ms + limits.HOUSEKEEPING_ROUND_MS
        now = self._instant(now_us, now_ms)
        ran_ms, self._last_ms = min(now_ms - self._last_ms, limits.CLOCK_RECORD_MS), now_ms
        self._ran_ms += ran_ms
        before, off_ms = self.held, clock_jump_ms(self._believed, now, limits.CLOCK_GAP_MS)
        if abs(off_ms) <= self._tolerance_ms:
            if self.held:
                self._believe(now)
                self._report(CLOCKS_AGREE, off_ms=off_ms)
        elif not self.held:
            self._hold(off_ms)
        else:
            again = abs(clock_jump_ms(self._seen, now, limits.CLOCK_GAP_MS)) > self._tolerance_ms
            self._held_ms = 0 if again else self._held_ms + ran_ms
            if self._held_ms >= limits.CLOCK_HOLD_MS:
                self._report(CLOCK_CONFIRMED, by="a day of running time", off_ms=self.off_ms)
                self._believe(now)
            elif again:
                self._hold(off_ms)
            elif self._ran_ms >= self._remind_ms:
                self._hold(self.off_ms)
        self._seen = now
        if not self.held:  # else that is what is said
            self._look_ahead(now_us)
        if self.held is not before or now_ms >= self._record_ms:
            self._record(now, now_ms)
        return not self.held

    def confirm(self, *, validate_only: bool) -> ClockHold:
        """Records an operator's confirmation of the clock; returns what was held until then."""
        now_us, now_ms = self._clocks.now_us(), self._clocks.mono_ms()
        self.look(now_us, now_ms)
        before = self.hold()
        if self.held and not validate_only:
            now = self._instant(now_us, now_ms)
            self._believe(now)
            self._report(CLOCK_CONFIRMED, by="an operator", off_ms=before.off_ms)
            self._record(now, now_ms)
        return before

    def _hold(self, off_ms: int) -> None:
        self.held, self.off_ms = True, off_ms
        self._remind_ms = self._ran_ms + limits.CLOCK_REMIND_MS
        self._report(CLOCKS_DISAGREE, off_ms=off_ms, left_ms=limits.CLOCK_HOLD_MS - self._held_ms)

    def _believe(self, now: Instant) -> None:
        """Records the clock, for later comparisons."""
        self.held, self._held_ms, self.off_ms, self._believed = False, 0, 0, now

    def _look_ahead(self, now_us: int) -> None:
        ahead_ms = self._ahead_ms(now_us)
        if ahead_ms > self._tolerance_ms and self._ran_ms >= self._remind_ahead_ms:
            self._remind_ahead_ms = self._ran_ms + limits.CLOCK_REMIND_MS
            self._report(COMMIT_TIMES_AHEAD, ahead_ms=ahead_ms)

    def _record(self, now: Instant, now_ms: int) -> None:
        self._record_ms = now_ms + limits.CLOCK_RECORD_MS
        believed = self._believed if self.held else now
        record = ClockState(self._named(believed), self._named(now), self.held, self._held_ms)
        self._decider.state.batch.put(keys.CLOCK, encode_clock(record))

    def _instant(self, now_us: int, now_ms: int) -> Instant:
        return Instant(now_us, self._boot or _THIS_RUN, self._up_ms + now_ms - self._start_ms)

    def _named(self, instant: Instant) -> Instant:
        """The instant in the form that the next run can compare."""
        return Instant(instant.time_us) if instant.boot == _THIS_RUN else instant

    # -- on any thread -------------------------------------------------------------------------------------------------

    def hold(self) -> ClockHold:
        """The hold; empty while the clock is trusted."""
        if not self.held:
            return ClockHold()
        off_ms, left_ms = self.off_ms, max(limits.CLOCK_HOLD_MS - self._held_ms, 0)
        jumped = f"the wall clock jumped by {off_ms / 1000:+,.0f} s: nothing is forgotten, retired or purged"
        return ClockHold(f"{jumped} until it is back, or `laketx clock confirm`", off_ms, left_ms)

    def ahead_ms(self) -> int:
        """How far commit times are ahead of the wall clock."""
        return max(self._ahead_ms(self._clocks.now_us()), 0)

    def _ahead_ms(self, now_us: int) -> int:
        state = self._decider.state
        return (max(state.newest_us, state.answered_us) - now_us) // 1000


class StallDetector:
    """Detects that the service stood still: a stopped process, a suspended machine, a step that took too long.

    No client could renew a lease meanwhile, so none expires because of it: as after a restart, transactions, pins and
    tasks get full leases before anything expires. Ticks on the decider's thread, before everything else that does, and
    compares the times of two consecutive ticks; an idle service ticks five times a second.
    """

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
