"""The pins of a state: which versions are held, and until when.

The decider's thread changes it; any thread can read it.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from metaservice.core import limits
from metaservice.core.retention.kept import Pin
from metaservice.store import keys
from metaservice.store.port import StoreCursor, prefix_end
from metaservice.store.records.pins import decode_pin

NEVER_MS: Final = 2**62


class PinBook:
    """Pins by id; `due_ms` is never later than the end of the first lease."""

    def __init__(self, cursor: StoreCursor) -> None:
        self.pins: dict[str, Pin] = {}
        self.due_ms = NEVER_MS
        self._deadlines: dict[str, int] = {}
        self._versions: dict[str, Counter[int]] = {}
        for _, raw in cursor.scan(keys.PINS, prefix_end(keys.PINS)):
            self.add(decode_pin(raw))
            self.due_ms = 0  # leases start anew at the first look

    def add(self, pin: Pin) -> None:
        self.pins[pin.pin_id] = pin
        for table_id, version in pin.versions:
            self._versions.setdefault(table_id, Counter())[version] += 1

    def drop(self, pin_id: str) -> None:
        self._deadlines.pop(pin_id, None)
        for table_id, version in self.pins.pop(pin_id).versions:
            held = self._versions[table_id]
            held[version] -= 1
            if not held[version]:
                del held[version]
            if not held:
                del self._versions[table_id]

    def holds(self, table_id: str, version: int) -> bool:
        return version in self._versions.get(table_id, ())

    def held(self, table_id: str) -> set[int]:
        return set(self._versions.get(table_id, ()))

    def lease(self, pin_id: str, until_ms: int) -> None:
        self._deadlines[pin_id] = until_ms
        self.due_ms = min(self.due_ms, until_ms)

    def start_leases(self) -> None:
        """Restarts all leases at the next tick."""
        self._deadlines.clear()
        self.due_ms = 0

    def until_ms(self, pin_id: str, now_ms: int) -> int:
        """The end of its lease; a lease without an end begins now."""
        return self._deadlines.setdefault(pin_id, now_ms + self.pins[pin_id].lease_ms)

    def ran_out(self, now_ms: int) -> list[str]:
        """Expired pins, a bounded number; sets the time of the next check."""
        over = sorted(pin_id for pin_id in self.pins if self.until_ms(pin_id, now_ms) <= now_ms)
        left = [until for until in self._deadlines.values() if until > now_ms]
        first_ms = now_ms if len(over) > limits.TICK_ITEMS_MAX else min(left, default=NEVER_MS)
        self.due_ms = max(first_ms, now_ms + limits.PIN_LOOK_MS)
        return over[: limits.TICK_ITEMS_MAX]
