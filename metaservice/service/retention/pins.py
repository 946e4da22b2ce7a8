"""Pins: leases on versions. Every method runs on the decider's thread, unless it says otherwise.

A pin keeps its versions readable, even when the horizon passes them. Only a version at or above the horizon, or one
that a tag holds, can be pinned. Pins are durable, their leases are not: leases restart with the service.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from metaservice.core import limits, quotas
from metaservice.core.commit.transaction import HISTORY_CHANGED, txn_time_ms
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.quotas import Quota
from metaservice.core.retention.kept import Pin
from metaservice.core.table.model import Principal
from metaservice.service.decider.branch_marks import tagged
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.state import State
from metaservice.store import keys
from metaservice.store.records.retention import encode_pin


@dataclass(frozen=True, slots=True)
class PinRequest:
    """A request for a pin; a version that is None is the head."""

    pin_id: str
    tables: tuple[tuple[str, int | None], ...]
    principal: Principal
    lease_ms: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Held:
    """A version that a pin holds, for operators."""

    pin: Pin
    row: int
    age_ms: int
    lease_left_ms: int

    @property
    def version(self) -> tuple[str, int]:
        return self.pin.versions[self.row]


class Pins:
    """The use cases of pins."""

    def __init__(
        self,
        decider: Decider,
        clocks: Clocks,
        lease_ms: int,
        check_room: Callable[[], None],
        limits_given: Mapping[str, Quota] = quotas.DEFAULTS,
    ) -> None:
        self._quotas = limits_given
        self._decider = decider
        self._clocks = clocks
        self._lease_ms = lease_ms
        self._check_room = check_room

    @property
    def _state(self) -> State:
        return self._decider.state

    def knows(self, pin_id: str) -> bool:
        return pin_id in self._state.pins.pins

    def pin(self, request: PinRequest) -> tuple[Pin, int]:
        """Creates a pin; returns it with the granted lease. A repeat renews it."""
        state = self._state
        present = state.pins.pins.get(request.pin_id)
        if present is not None:
            if present.digest != request.digest:
                raise invalid("PIN_ID_REUSED", pin_id=request.pin_id)
            return present, self.renew(request.pin_id, request.lease_ms)
        self._check_room()
        state.usage.check(self._quotas, quotas.PINS, request.principal.name)
        versions = tuple((table_id, self._version(table_id, version)) for table_id, version in request.tables)
        lease_ms = self._granted(request.lease_ms, self._lease_ms)
        pin = Pin(request.pin_id, versions, request.principal, self._clocks.now_us(), lease_ms, request.digest)
        state.batch.put(keys.pin_key(keys.uuid_bytes(pin.pin_id)), encode_pin(pin))
        state.pins.add(pin)
        state.usage.pin(request.principal.name)
        state.pins.lease(pin.pin_id, self._clocks.mono_ms() + lease_ms)
        return pin, lease_ms

    def _version(self, table_id: str, version: int | None) -> int:
        table = self._state.get_table(table_id)
        if version is None:
            return table.head
        if version > table.head:
            raise invalid("VERSION_IN_FUTURE", table_id=table_id, version=version, head=table.head)
        if version < table.oldest and version not in tagged(self._state, table_id):
            raise MetaError(ErrorKind.GONE, "VERSION_RETIRED", table_id=table_id, version=version, oldest=table.oldest)
        return version

    def _granted(self, requested_ms: int, otherwise_ms: int) -> int:
        lease_ms = requested_ms or otherwise_ms
        return min(max(lease_ms, limits.PIN_LEASE_MS_MIN), limits.PIN_LEASE_MS_MAX)

    def renew(self, pin_id: str, lease_ms: int) -> int:
        """Renews a pin; returns the new lease."""
        pin = self._state.pins.pins.get(pin_id)
        if pin is None:
            history = self._state.history
            if txn_time_ms(pin_id) * 1000 < history.since_us:
                raise MetaError(
                    ErrorKind.STALE, HISTORY_CHANGED, "the pin belongs to another history: pin again", pin_id=pin_id
                )
            raise MetaError(ErrorKind.NOT_FOUND, "PIN_UNKNOWN", pin_id=pin_id)
        granted_ms = self._granted(lease_ms, pin.lease_ms)
        self._state.pins.lease(pin_id, self._clocks.mono_ms() + granted_ms)
        return granted_ms

    def unpin(self, pin_id: str) -> None:
        """Ends a pin; a missing pin has ended already."""
        if pin_id in self._state.pins.pins:
            self._end(pin_id)

    def _end(self, pin_id: str) -> None:
        state = self._state
        state.usage.pin(state.pins.pins[pin_id].principal.name, -1)
        state.pins.drop(pin_id)
        state.batch.delete(keys.pin_key(keys.uuid_bytes(pin_id)))

    def list_held(self, after: tuple[str, int], count: int) -> list[Held]:
        """Lists held versions by pin id, which is the order of the holders' clocks."""
        pins, now_us, now_ms = self._state.pins, self._clocks.now_us(), self._clocks.mono_ms()
        held: list[Held] = []
        for pin_id in sorted(each for each in pins.pins if each >= after[0]):
            pin = pins.pins[pin_id]
            age_ms = max(now_us - pin.begin_us, 0) // 1000
            left_ms = max(pins.until_ms(pin_id, now_ms) - now_ms, 0)
            rows = range(len(pin.versions))
            held += [Held(pin, row, age_ms, left_ms) for row in rows if (pin_id, row) > after]
            if len(held) >= count:
                break
        return held[:count]

    def tick(self, now_ms: int) -> None:
        """Ends expired pins."""
        for pin_id in self._state.pins.ran_out(now_ms):
            self._end(pin_id)
