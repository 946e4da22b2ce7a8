"""The history of a store, the location of its warehouse, and the flag that holds the purge."""

from __future__ import annotations

from dataclasses import dataclass

from metaservice.store import keys
from metaservice.store.port import Batch, Store
from protos.laketx.storage.v1 import records_pb2 as pb


@dataclass(frozen=True, slots=True)
class History:
    """An epoch: `counter` counts restores, `ident` distinguishes two stores restored from one backup."""

    counter: int = 1
    ident: str = "0"
    since_us: int = 0
    first: str = ""

    @property
    def epoch(self) -> str:
        """The epoch for clients: opaque, and equal only for the same history."""
        return f"{self.counter}-{self.ident}"

    @property
    def service_id(self) -> str:
        """The service's id through all restores."""
        return self.first or self.ident


@dataclass(frozen=True, slots=True)
class Warehouse:
    """The location of the warehouse's mark, set or planned; empty: none yet."""

    location: str = ""
    marked: bool = False


def read_history(store: Store) -> History:
    """The history; a store without a record is in its first."""
    raw = store.get(keys.EPOCH)
    if raw is None:
        return History()
    record = pb.HistoryRecord.FromString(raw)
    return History(record.counter, record.id, record.since_us, record.service_id)


def put_history(batch: Batch, history: History) -> None:
    record = pb.HistoryRecord(
        counter=history.counter, id=history.ident, since_us=history.since_us, service_id=history.first
    )
    batch.put(keys.EPOCH, record.SerializeToString())


def ensure_history(store: Store, ident: str) -> History:
    """Records the first history of a store that has none."""
    if store.get(keys.EPOCH) is None:
        batch = Batch()
        put_history(batch, History(1, ident))
        store.write(batch)
        store.sync()
    return read_history(store)


def read_purge_hold(store: Store) -> str:
    """Why nothing may be purged; empty: it may be."""
    return (store.get(keys.PURGE_HOLD) or b"").decode()


def put_purge_hold(batch: Batch, reason: str) -> None:
    """Sets the hold; an empty reason ends it."""
    if reason:
        batch.put(keys.PURGE_HOLD, reason.encode())
    else:
        batch.delete(keys.PURGE_HOLD)


def read_warehouse(store: Store) -> Warehouse:
    record = pb.WarehouseRecord.FromString(store.get(keys.WAREHOUSE) or b"")
    return Warehouse(record.location, record.marked)


def put_warehouse(batch: Batch, warehouse: Warehouse) -> None:
    record = pb.WarehouseRecord(location=warehouse.location, marked=warehouse.marked)
    batch.put(keys.WAREHOUSE, record.SerializeToString())
