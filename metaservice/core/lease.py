"""Who leads: of several processes with one store, the holder of the lease takes calls, the others wait.

The lease is for liveness. What keeps two processes from writing is the store, which fences the one that had it before.
So a clock that is wrong costs availability, and no commit. Nobody compares the clocks of two machines: who waits
measures by its own how long the lease has not changed.

    a renews at 0, 1, 2 s and dies      b sees the same lease from 2.3 s on, and takes it at 6.8 s
    a renews at 0, 1, 2 s and releases  b takes it when it looks
    a stands still from 2 to 60 s       b takes it at 6.8 s; a refuses what it is asked at 60 s, and ends
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

RENEW_MS: Final = 1_000
VALID_MS: Final = 4_000  # after the last renewal was sent: the holder answers
TAKE_MS: Final = 4_500  # after it was seen first: others take it; longer than valid, as clocks don't run alike
GIVE_UP_MS: Final = 10_000  # without a renewal that arrived: the holder ends, so that nobody waits for it
LOOK_MS: Final = 300
NOTE_MS: Final = 5_000  # how often a standby writes its note, and the leader looks at all of them
GONE_MS: Final = 15_000  # after its note was seen to change: the standby is gone
FORGET_MS: Final = 600_000  # likewise: its note is removed
STORE_SILENT_MS: Final = 5_000  # of a write to the store that isn't answered: the holder says so
STORE_GIVE_UP_MS: Final = 60_000  # likewise: the holder ends


@dataclass(frozen=True, slots=True)
class Lease:
    """`renewals` makes each state of it another; `holder` is a process, `address` where clients reach it."""

    holder: str
    address: str
    epoch: int
    renewals: int
    taken_us: int
    renewed_us: int
    released: bool = False

    def renewed(self, now_us: int) -> Lease:
        return replace(self, renewals=self.renewals + 1, renewed_us=now_us)

    def free(self, now_us: int) -> Lease:
        return replace(self.renewed(now_us), released=True)


@dataclass(frozen=True, slots=True)
class Sighting:
    """A lease as it was seen: `tag` is of this state, `first_ms` when it was seen first, by the monotonic clock."""

    lease: Lease
    tag: str
    first_ms: int


def see(before: Sighting | None, lease: Lease, tag: str, now_ms: int) -> Sighting:
    if before is not None and before.tag == tag:
        return before
    return Sighting(lease, tag, now_ms)


def may_take(seen: Sighting | None, now_ms: int) -> bool:
    """Whether a process that waits may try to take the lease; None: there is none yet."""
    return seen is None or seen.lease.released or now_ms - seen.first_ms >= TAKE_MS


@dataclass(frozen=True, slots=True)
class NoteSeen:
    """A standby's note as the leader saw it: `tag` is of this state, `first_ms` when it was seen first."""

    tag: str
    first_ms: int

    def is_alive(self, now_ms: int) -> bool:
        return now_ms - self.first_ms < GONE_MS

    def is_forgotten(self, now_ms: int) -> bool:
        return now_ms - self.first_ms >= FORGET_MS


def see_notes(before: Mapping[str, NoteSeen], tags: Mapping[str, str], now_ms: int) -> dict[str, NoteSeen]:
    """The notes that there are, by address; of one that has not changed, when that state was seen first."""
    return {
        address: seen if (seen := before.get(address)) is not None and seen.tag == tag else NoteSeen(tag, now_ms)
        for address, tag in tags.items()
    }


def taken(seen: Sighting | None, holder: str, address: str, now_us: int) -> Lease:
    """The lease of the next holder."""
    epoch = seen.lease.epoch + 1 if seen is not None else 1
    return Lease(holder, address, epoch, 0, now_us, now_us)
