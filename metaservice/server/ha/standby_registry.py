"""Who stands by: each standby writes a note beside the lease again and again, the leader looks which of them change.

It is for operators alone: who leads next does not depend on it. Nobody compares two machines' clocks.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from metaservice.core.lease import NOTE_MS, NoteSeen, see_notes
from metaservice.service.decider.clocks import Clocks
from metaservice.service.operate.operators import StandbyView

if TYPE_CHECKING:
    from metaservice.store.lease.standby_notes import StandbyNotes  # its library is optional


class StandbyRegistry:
    """A thread looks; any thread may ask."""

    def __init__(
        self, notes: StandbyNotes, clocks: Clocks, leads: Callable[[], bool], failed: Callable[[OSError], None]
    ) -> None:
        """`failed` is told when the bucket doesn't answer."""
        self.address = ""
        self._failed = failed
        self._notes = notes
        self._clocks = clocks
        self._leads = leads
        self._number = 0
        self._is_noted = False
        self._seen: Mapping[str, NoteSeen] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look_always, name="standbys", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Nobody waits for the bucket here: a note that stays is gone soon."""
        self._ended.set()
        if self._is_noted:
            with contextlib.suppress(OSError):
                self._notes.remove(self.address)

    def look(self) -> None:
        """One round: a standby writes its note, the leader looks at the others'."""
        try:
            if not self._leads():
                self._number += 1
                self._notes.write(self.address, self._number)
                self._is_noted = True
                return
            if self._is_noted:
                self._notes.remove(self.address)
                self._is_noted = False
            self._look_at_others()
        except OSError as error:
            self._failed(error)

    def view(self) -> Sequence[StandbyView]:
        """The standbys that the leader has seen, by address."""
        now_ms = self._clocks.mono_ms()
        return [
            StandbyView(address, now_ms - seen.first_ms, seen.is_alive(now_ms))
            for address, seen in sorted(self._seen.items())
        ]

    def _look_at_others(self) -> None:
        now_ms = self._clocks.mono_ms()
        tags = {address: tag for address, tag in self._notes.list_tags().items() if address != self.address}
        seen = see_notes(self._seen, tags, now_ms)
        forgotten = [address for address, note in seen.items() if note.is_forgotten(now_ms)]
        for address in forgotten:
            self._notes.remove(address)
            del seen[address]
        self._seen = seen

    def _look_always(self) -> None:
        self.look()
        while not self._ended.wait(NOTE_MS / 1000):
            self.look()
