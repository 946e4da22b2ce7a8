"""What a standby reads before it leads: the tables, as a start reads them, so that a take-over has little left to do.

A take-over reads everything again, from the store that it has opened. What was read ahead is only nearer by then: parts
of tables are in the store's cache, and the metadata of tables is decoded.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from metaservice.server.store_opening import fresh_history_id
from metaservice.service.decider.loading import DecodedTables, read_tables
from metaservice.store import keys
from metaservice.store.object_location import LogPlace, ObjectPlace
from metaservice.store.port import Store, prefix_end

PACE_S: Final = 60.0

_log = logging.getLogger("laketx")


class Prefetch:
    """A thread reads again and again; nobody waits for it."""

    def __init__(self, place: ObjectPlace, cache_bytes: int) -> None:
        from metaservice.store.engines.slate import new_cache  # noqa: PLC0415 - its library is optional

        self.decoded = DecodedTables()
        self._place = place
        self._cache = new_cache(cache_bytes)
        self._ended = threading.Event()
        self._stop_reader: Callable[[], None] = lambda: None

    @contextmanager
    def running(self) -> Iterator[None]:
        threading.Thread(target=self._read_always, name="read ahead", daemon=True).start()
        try:
            yield
        finally:
            self._ended.set()
            self._stop_reader()

    def open_store(self, place: ObjectPlace, log: LogPlace, bytes_max: int | None) -> Store:
        """Opens the store with what was read ahead, which fences whoever has it."""
        from metaservice.store.engines.slate import SlateStore  # noqa: PLC0415 - likewise

        return SlateStore(place, bytes_max=bytes_max, log=log, log_id=fresh_history_id(), cache=self._cache)

    def read(self) -> None:
        """Once. Raises StoreFailed, as for a store that isn't there yet."""
        from metaservice.store.engines.slate_reader import SlateReader  # noqa: PLC0415 - likewise

        reader = SlateReader(self._place, self._cache)
        self._stop_reader = reader.stop
        try:
            if not self._ended.is_set():
                cursor = reader.cursor()
                raw_ids = [raw_id for _, raw_id in cursor.scan(keys.NAMES, prefix_end(keys.NAMES))]
                self.decoded.keep(read_tables(reader, raw_ids).metadata())
        finally:
            reader.close()

    def _read_always(self) -> None:
        while not self._ended.is_set():
            try:
                self.read()
            except Exception as error:  # noqa: BLE001 - such as records of a later release: nothing depends on it
                _log.debug("nothing was read ahead: %r", error)
            self._ended.wait(PACE_S)
