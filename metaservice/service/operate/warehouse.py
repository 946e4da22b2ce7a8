"""The warehouse: the folder above the data files. The service never opens it; workers report its location.

If nothing is recorded, a worker proves that the location is right, records it, sets the mark there, and records that
too. From then on a location without the mark is another location, or an unmounted file system, and only an operator can
set the mark again. A restore from a backup begins a history that the mark doesn't name: both may be in use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from metaservice.service.decider.decider import Decider
from metaservice.store import keys
from metaservice.store.history import Warehouse, put_warehouse, read_warehouse
from metaservice.store.port import prefix_end

FILES: Final = (b"I", b"P", keys.STAGED, keys.DYING, keys.PURGEABLE, keys.DROPPED)  # families that speak of files


@dataclass(frozen=True, slots=True)
class WarehouseFacts:
    """The facts with which a worker compares the warehouse's mark."""

    service_id: str
    epoch: str
    warehouse: Warehouse
    unused: bool


class Warehouses:
    """Runs on the decider's thread."""

    def __init__(self, decider: Decider) -> None:
        self._decider = decider

    def get(self) -> WarehouseFacts:
        state = self._decider.state
        state.flush()
        cursor = state.store.cursor()
        written = any(next(iter(cursor.scan(family, prefix_end(family))), None) is not None for family in FILES)
        history = state.history
        unused = not written and not state.open
        return WarehouseFacts(history.service_id, history.epoch, read_warehouse(state.store), unused)

    def location(self) -> str:
        """Empty: nobody has reported it yet."""
        self._decider.state.flush()
        return read_warehouse(self._decider.state.store).location

    def put(self, location: str, *, marked: bool, replace: bool) -> WarehouseFacts:
        """Records a location. Without `replace` the first location stays, and a set mark stays set."""
        state = self._decider.state
        state.flush()
        noted = read_warehouse(state.store)
        if replace or not noted.location or (noted.location == location and not noted.marked):
            put_warehouse(state.batch, Warehouse(location, marked))
        return self.get()
