"""Opens the store of a service, on a disk or in a bucket, and builds the state from it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path

from metaservice.core.table.meta import TableMeta
from metaservice.rpc.convert.payloads import WirePayloads
from metaservice.server.settings import Settings
from metaservice.service.decider.state import State
from metaservice.shared.log import REOPEN_FAILED, event
from metaservice.store.backups.folders import PARTIAL
from metaservice.store.engines.rocks import RocksStore
from metaservice.store.history import ensure_history
from metaservice.store.object_location import LogPlace, ObjectPlace
from metaservice.store.port import STORE_IS_BACKUP, Store, StoreFailed, StoreFenced, StoreUnusable
from metaservice.store.records.tables import decode_table

REOPEN_TRIES_MAX = 600


def fresh_history_id() -> str:
    """An id that distinguishes one history, or one log, from every other one."""
    return uuid.uuid4().hex[:12]


class OpenState:
    """Opens the store and builds the state; after a failure it closes the old store and retries."""

    def __init__(
        self,
        settings: Settings,
        open_placed: Callable[[ObjectPlace, LogPlace, int | None], Store] | None = None,
        decode: Callable[[bytes], TableMeta] = decode_table,
    ) -> None:
        """`open_placed` opens a store in a bucket, `decode` the metadata of a table."""
        self._settings = settings
        self._open_placed = open_placed or open_in_bucket
        self._decode = decode
        self._store: RocksStore | None = None
        self._is_opened = False
        self._opening_since_s = 0.0

    def opening_s(self) -> float:
        """For how long the bucket has not answered the opening of the store; 0: it isn't being opened."""
        since_s = self._opening_since_s
        return time.monotonic() - since_s if since_s else 0.0

    def again(self) -> State:
        """Raises StoreGone where a folder that was opened before isn't there any more: another one is not made."""
        if self._settings.place is not None:
            return self._open_once(self._settings.place)
        if self._store is None:
            return self._open()
        self._store.refuse_if_gone()
        self._store.close()
        for _ in range(REOPEN_TRIES_MAX):
            try:
                return self._open(must_exist=True)
            except (StoreFailed, StoreUnusable, OSError) as error:
                event(REOPEN_FAILED, error=repr(error))
                time.sleep(0.5)
        raise RuntimeError("the store can't be opened again")

    def _open_once(self, place: ObjectPlace) -> State:
        """To open it again would fence a successor, so a failed store ends the process."""
        if self._is_opened:
            raise StoreFenced(f"the store {place} failed: this process ends, and the next one to lead opens it")
        self._is_opened = True
        self._settings.data.mkdir(parents=True, exist_ok=True)
        self._opening_since_s = time.monotonic()
        try:
            store = self._open_placed(place, self._settings.log_place, self._settings.store_bytes_max or None)
        finally:
            self._opening_since_s = 0.0
        return self._state(store)

    def _open(self, *, must_exist: bool = False) -> State:
        most = self._settings.store_bytes_max
        refuse_unfinished(self._settings.data)
        self._store = RocksStore(self._settings.data, bytes_max=most or None, must_exist=must_exist)
        return self._state(self._store)

    def _state(self, store: Store) -> State:
        try:
            ensure_history(store, fresh_history_id())
            settings = self._settings
            return State(store, WirePayloads(), settings.task_backoff_ms, settings.store_format, self._decode)
        except BaseException:
            store.close()
            raise


def open_in_bucket(place: ObjectPlace, log: LogPlace, bytes_max: int | None = None) -> Store:
    """Opens the store, which fences whoever has it."""
    from metaservice.store.engines.slate import SlateStore  # noqa: PLC0415 - its library is optional

    return SlateStore(place, bytes_max=bytes_max, log=log, log_id=fresh_history_id())


def refuse_unfinished(data: Path) -> None:
    """Refuses an interrupted backup or restore, which is incomplete."""
    if data.name.endswith(PARTIAL) and (data / "CURRENT").exists():
        raise StoreUnusable(STORE_IS_BACKUP, path=str(data), found="what an unfinished backup or restore left")
