"""Which history a store tells, where its warehouse lies, and the flag that keeps the purge waiting."""

from __future__ import annotations

from dataclasses import dataclass

from metaservice.store import keys
from metaservice.store.port import Batch, Store
from protos.laketx.storage.v1 import records_pb2 as pb


@dataclass(frozen=True, slots=True)
class History:
    """An epoch: `counter` counts restores, `ident` tells apart two stores restored from one backup."""

    counter: int = 1
    ident: str = "0"
    since_us: int = 0
    first: str = ""

    @property
    def epoch(self) -> str:
        """As clients see it: opaque, equal for one history alone."""
        return f"{self.counter}-{self.ident}"

    @property
    def service_id(self) -> str:
        """Names the service through all restores."""
        return self.first or self.ident


@dataclass(frozen=True, slots=True)
class Warehouse:
    """Where the mark of the service's warehouse lies, or is to lie; no location: nowhere yet."""

    location: str = ""
    marked: bool = False


def read_history(store: Store) -> History:
    """A store that was never told is in its first."""
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
    """Give a store that has none its first history."""
    if store.get(keys.EPOCH) is None:
        batch = Batch()
        put_history(batch, History(1, ident))
        store.write(batch)
        store.sync()
    return read_history(store)


def read_purge_hold(store: Store) -> str:
    """Why nothing may be purged; empty: it may."""
    return (store.get(keys.PURGE_HOLD) or b"").decode()


def put_purge_hold(batch: Batch, reason: str) -> None:
    """With no reason the hold ends."""
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
