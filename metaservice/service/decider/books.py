"""What a state holds beside its tables: pins, tags and cursors, events of branches, grants and service tokens.

The decider's thread changes it; any thread can read it.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Final

from metaservice.core import limits
from metaservice.core.access import Grants, Place, Token
from metaservice.core.retention.kept import Pin
from metaservice.core.retention.marks import Cursor, Tag
from metaservice.core.table.branches import BranchEvent
from metaservice.store import keys
from metaservice.store.port import Batch, StoreCursor, prefix_end
from metaservice.store.records.access import decode_grant, decode_token
from metaservice.store.records.branches import decode_branch_event, encode_branch_event
from metaservice.store.records.retention import decode_cursor, decode_pin, decode_tag

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


class MarkBook:
    """Tags and cursors by table and name."""

    def __init__(self, store: StoreCursor) -> None:
        self.tags: dict[tuple[str, str], Tag] = {}
        self.cursors: dict[tuple[str, str], Cursor] = {}
        self._tags_of: dict[str, dict[str, int]] = {}
        self._cursors_of: dict[str, dict[str, Cursor]] = {}
        self._holding: dict[str, dict[tuple[str, str], Cursor]] = {}  # on branches, by the table that they hold
        for key, raw in store.scan(keys.TAGS, prefix_end(keys.TAGS)):
            self.put_tag(decode_tag(key, raw))
        for key, raw in store.scan(keys.CURSORS, prefix_end(keys.CURSORS)):
            self.put_cursor(decode_cursor(key, raw))

    def put_tag(self, tag: Tag) -> None:
        self.tags[tag.table_id, tag.name] = tag
        self._tags_of.setdefault(tag.table_id, {})[tag.name] = tag.version

    def drop_tag(self, table_id: str, name: str) -> None:
        del self.tags[table_id, name]
        del self._tags_of[table_id][name]

    def put_cursor(self, cursor: Cursor) -> None:
        self.cursors[cursor.table_id, cursor.name] = cursor
        self._cursors_of.setdefault(cursor.table_id, {})[cursor.name] = cursor
        if cursor.holds:
            self._holding.setdefault(cursor.holds, {})[cursor.table_id, cursor.name] = cursor

    def drop_cursor(self, table_id: str, name: str) -> None:
        self._let_go(self.cursors.pop((table_id, name)))
        del self._cursors_of[table_id][name]

    def _let_go(self, cursor: Cursor) -> None:
        held = self._holding.get(cursor.holds, {})
        held.pop((cursor.table_id, cursor.name), None)
        if cursor.holds and not held:
            self._holding.pop(cursor.holds, None)

    def count_tags(self, table_id: str) -> int:
        return len(self._tags_of.get(table_id, ()))

    def count_cursors(self, table_id: str) -> int:
        return len(self._cursors_of.get(table_id, ()))

    def has_any(self, table_id: str) -> bool:
        """False: a table has neither tags nor cursors of its own."""
        return table_id in self._tags_of or table_id in self._cursors_of

    def names_of_tags(self, table_id: str) -> list[str]:
        return list(self._tags_of.get(table_id, ()))

    def own_cursors(self, table_id: str) -> list[Cursor]:
        """The cursors that were made on a table, or used on it."""
        return list(self._cursors_of.get(table_id, {}).values())

    def tagged(self, table_id: str) -> set[int]:
        """Versions that tags hold."""
        return set(self._tags_of.get(table_id, {}).values())

    def held_from(self, table_id: str, now_us: int, epoch: str) -> int | None:
        """The first version that a cursor needs; it needs all later ones too."""
        cursors = [*self._cursors_of.get(table_id, {}).values(), *self._holding.get(table_id, {}).values()]
        needed = [cursor.version for cursor in cursors if cursor.epoch == epoch and cursor.left_ms(now_us)]
        return min(needed, default=None)

    def forget(self, table_id: str) -> None:
        """Removes a table that is permanently gone."""
        for name in list(self._tags_of.pop(table_id, ())):
            del self.tags[table_id, name]
        for name in list(self._cursors_of.pop(table_id, ())):
            self._let_go(self.cursors.pop((table_id, name)))


class BranchEventBook:
    """What happened to branches, numbered one after the other. The newest are kept; none is in memory."""

    def __init__(self, cursor: StoreCursor) -> None:
        last = next(iter(cursor.scan_back(keys.BRANCH_EVENTS, prefix_end(keys.BRANCH_EVENTS))), None)
        self.newest = 0 if last is None else keys.decode_version(last[0][-8:])

    def add(self, event: BranchEvent, batch: Batch) -> None:
        self.newest += 1
        batch.put(keys.branch_event_key(self.newest), encode_branch_event(event))
        if self.newest > limits.BRANCH_EVENTS_KEPT:
            batch.delete(keys.branch_event_key(self.newest - limits.BRANCH_EVENTS_KEPT))

    def list_after(self, cursor: StoreCursor, number: int, count: int) -> list[tuple[int, BranchEvent]]:
        """The next ones, oldest first. Earlier decisions have been flushed."""
        start, end = keys.branch_event_key(number + 1), prefix_end(keys.BRANCH_EVENTS)
        records = islice(cursor.scan(start, end), count)
        return [(keys.decode_version(key[-8:]), decode_branch_event(raw)) for key, raw in records]


class AccessBook:
    """Who has which role, and the tokens by id."""

    def __init__(self, store: StoreCursor) -> None:
        grants = store.scan(keys.GRANTS, prefix_end(keys.GRANTS))
        self.grants = Grants(decode_grant(key, raw) for key, raw in grants)
        kept = store.scan(keys.TOKENS, prefix_end(keys.TOKENS))
        self.tokens: dict[str, Token] = {
            token.token_id: token for token in (decode_token(key, raw) for key, raw in kept)
        }

    def forget(self, place: Place, batch: Batch) -> None:
        """Drops the grants on what is gone: something else may get its name."""
        for grant in self.grants.at(place):
            self.grants.drop(place, grant.grantee)
            batch.delete(keys.grant_key(place.key, grant.grantee))
