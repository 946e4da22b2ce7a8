"""One process's part in who leads: it looks at the lease, takes it, renews it, gives it back.

A thread renews. Whoever answers a caller asks `refusal` first: an answer counts only while the last renewal that
arrived was sent less than `VALID_MS` ago, by a clock that doesn't stop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.lease import (
    GIVE_UP_MS,
    RENEW_MS,
    STORE_GIVE_UP_MS,
    STORE_SILENT_MS,
    VALID_MS,
    Lease,
    Sighting,
    may_take,
    see,
    taken,
)
from metaservice.metrics import (
    LEADER_IS,
    LEASE_AGE_SECONDS,
    LEASE_FAILURES,
    STANDBYS_ALIVE,
    TAKE_OVERS,
    Metric,
    Reading,
)
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.service.operate.operators import Leads, LeadView, StandbyView
from metaservice.shared.log import LEASE_RELEASED, LEASE_TAKEN, LEASE_UNREACHABLE, STORE_ANSWERS, STORE_SILENT, event

if TYPE_CHECKING:
    from metaservice.store.lease.lease_object import LeaseObject  # its library is optional

LEAVE_S: Final = 0.3  # for calls under way; streams go on when the lease is given back
STORE_S: Final = 10.0  # for the store to take what was decided
LEADER, STANDBY = "leader", "standby"
LOOK, RENEWAL, STANDBYS = "look", "renewal", "standbys"  # requests that are counted when they fail


class Leadership(Leads):
    """Threads may share it; one renews."""

    def __init__(
        self,
        at: LeaseObject,
        holder: str,
        clocks: Clocks,
        lost: Callable[[str], None],
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        """`lost` is called when this process can lead no more, and ends it; `stop` begins to stop it."""
        self.address = ""
        self.unanswered = ""  # why the last look at the lease had no answer
        self.is_stepping_down = False
        self._stop = stop
        self._at = at
        self._holder = holder
        self._clocks = clocks
        self._lost = lost
        self._seen: Sighting | None = None
        self._lease: Lease | None = None
        self._tag = ""
        self._valid_until_ms = 0
        self._taken_ms = self._took_ms = 0
        self._before = ""
        self._failures = {LOOK: 0, RENEWAL: 0, STANDBYS: 0}
        self.watch: Callable[[], None] = lambda: None  # called before each renewal
        self.list_standbys: Callable[[], Sequence[StandbyView]] = tuple
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew_always, name="lease", daemon=True)

    def try_take(self) -> bool:
        """Looks once, and takes the lease where it may be taken."""
        self.unanswered = ""
        try:
            return self._try_take()
        except OSError as error:
            self.unanswered = str(error)
            self.failed(LOOK, error)
            return False

    def _try_take(self) -> bool:
        state = self._at.read()
        now_ms = self._clocks.mono_ms()
        self._seen = see(self._seen, *state, now_ms) if state is not None else None
        took = self._seen is not None and self._seen.lease.holder == self._holder  # and the answer was lost
        if not took and not may_take(self._seen, now_ms):
            return False
        lease = taken(self._seen, self._holder, self.address, self._clocks.now_us())
        tag = self._at.write(lease, self._seen.tag if self._seen is not None else None)
        if tag is None:
            return False
        self._lease, self._tag, self._valid_until_ms = lease, tag, now_ms + VALID_MS
        self._taken_ms = now_ms
        self._before = self._seen.lease.address if self._seen is not None else ""
        event(LEASE_TAKEN, epoch=lease.epoch, before=self._before)
        return True

    def start(self) -> None:
        """Renews from now on."""
        self._thread.start()

    @property
    def leads(self) -> bool:
        """Whether this process has the lease, valid or not."""
        return self._lease is not None

    def took_over(self) -> None:
        """Notes that calls are taken from now on."""
        self._took_ms = self._clocks.mono_ms() - self._taken_ms

    def release(self) -> None:
        """Stops renewing, and lets the next process lead at once."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        lease, self._lease = self._lease, None
        self._valid_until_ms = 0
        if lease is None:
            return
        try:
            if self._at.write(lease.free(self._clocks.now_us()), self._tag) is not None:
                event(LEASE_RELEASED, epoch=lease.epoch)
        except OSError as error:
            event(LEASE_UNREACHABLE, error=repr(error))  # it runs out

    def refusal(self) -> MetaError | None:
        """Why this process may not answer; None: it may."""
        return None if self._left_ms() > 0 else not_leader(self.leader)

    @property
    def leader(self) -> str:
        """The address of the leader, if known; empty: nobody leads."""
        own, seen = self._lease, self._seen
        if own is not None:
            return own.address if self._left_ms() > 0 else ""
        if seen is None or may_take(seen, self._clocks.mono_ms()):
            return ""
        return seen.lease.address

    def step_down(self) -> None:
        self.is_stepping_down = True
        self._stop()

    def view(self) -> LeadView:
        own, seen = self._lease, self._seen
        lease = own or (seen.lease if seen is not None else None)
        return LeadView(
            role=LEADER if own is not None else STANDBY,
            leader=self.leader,
            lease_epoch=lease.epoch if lease is not None else 0,
            lease_left_ms=max(self._left_ms(), 0),
            take_over_time_us=lease.taken_us if lease is not None else 0,
            standbys=self.list_standbys() if own is not None else (),
            lease_age_ms=self._age_ms(),
            leader_before=self._before,
            take_over_ms=self._took_ms,
        )

    def failed(self, request: str, error: OSError) -> None:
        """Counts a request that the bucket didn't answer."""
        self._failures[request] += 1
        event(LEASE_UNREACHABLE, request=request, error=repr(error))

    def readings(self) -> dict[Metric, Callable[[], Reading]]:
        """Its metrics, whether it leads or not."""
        return {
            LEADER_IS: lambda: int(self.leads),
            LEASE_AGE_SECONDS: lambda: self._age_ms() / 1000,
            LEASE_FAILURES: lambda: self._failures,
            TAKE_OVERS: lambda: self.view().lease_epoch,
            STANDBYS_ALIVE: lambda: sum(standby.alive for standby in self.list_standbys()) if self.leads else {},
        }

    def _age_ms(self) -> int:
        """Since the last renewal, as this process knows: it sent it, or saw it first."""
        if self._lease is not None:
            return VALID_MS - self._left_ms()
        return self._clocks.mono_ms() - self._seen.first_ms if self._seen is not None else 0

    def _left_ms(self) -> int:
        return self._valid_until_ms - self._clocks.mono_ms()

    def _renew_always(self) -> None:
        while not self._ended.wait(RENEW_MS / 1000):
            self.watch()
            if not self.renew():
                return

    def renew(self) -> bool:
        """Renews once; False: this process leads no more, and was told so."""
        assert self._lease is not None
        sent_ms, following = self._clocks.mono_ms(), self._lease.renewed(self._clocks.now_us())
        try:
            tag = self._at.write(following, self._tag)
            if tag is None:
                return self._adopt()
        except OSError as error:
            self.failed(RENEWAL, error)
            if -self._left_ms() < GIVE_UP_MS - VALID_MS:
                return True
            self._lost(f"the lease could not be renewed for {GIVE_UP_MS / 1000:g} s")
            return False
        self._lease, self._tag, self._valid_until_ms = following, tag, sent_ms + VALID_MS
        return True

    def _adopt(self) -> bool:
        """Take over a changed lease: ours, if the answer to an earlier write was lost; otherwise another holder's."""
        state = self._at.read()
        if state is not None and state[0].holder == self._holder and not state[0].released:
            self._lease, self._tag = state
            return True
        self._lost(f"{state[0].address if state is not None else 'nobody'} holds the lease")
        return False


class Ends(Protocol):
    """An event."""

    def wait(self, timeout: float | None = None) -> bool: ...


E = TypeVar("E", bound=Ends)


class Stopping(Protocol[E]):
    """A server."""

    def begin_stop(self, grace_s: float) -> E:
        """Takes no more calls; it is set when those under way have ended."""

    def end_stop(self, ended: E, grace_s: float) -> None: ...


def leave(
    server: Stopping[E], decider: Decider, leads: Leadership, grace_s: float, write_out: Callable[[], None]
) -> bool:
    """Ends leading in order: another process goes on at once. False: the store didn't take what was decided in time.

    `write_out` shortens the log, which the next leader reads; calls are answered meanwhile. The lease is given back as
    soon as everything that will be answered is durable. Reads under way have been admitted before, so they may take
    longer.
    """
    write_out()
    ended = server.begin_stop(grace_s)
    ended.wait(min(LEAVE_S, grace_s))
    is_durable = decider.stop(STORE_S)
    leads.release()
    if is_durable:
        server.end_stop(ended, grace_s)
    return is_durable


class StoreWatch:
    """Says that the store doesn't answer; ends a leader whose store has been silent for too long."""

    def __init__(self, waiting_s: Callable[[], float], lost: Callable[[str], None]) -> None:
        """`waiting_s`: for how long a write, or the opening, has waited."""
        self._waiting_s = waiting_s
        self._lost = lost
        self._is_silent = False

    def look(self) -> None:
        silent_ms = self._waiting_s() * 1000
        if silent_ms >= STORE_GIVE_UP_MS:
            self._lost(f"the store has not answered for {STORE_GIVE_UP_MS / 1000:g} s")
        is_silent = silent_ms >= STORE_SILENT_MS
        if is_silent and not self._is_silent:
            event(STORE_SILENT, silent_s=round(silent_ms / 1000, 1))
        if self._is_silent and not is_silent:
            event(STORE_ANSWERS)
        self._is_silent = is_silent


def not_leader(leader: str) -> MetaError:
    return MetaError(ErrorKind.UNAVAILABLE, "NOT_LEADER", leader=leader)
