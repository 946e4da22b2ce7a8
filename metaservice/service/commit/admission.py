"""Whether a transaction may begin: its id, the room on the disk, and what its client knows."""

from __future__ import annotations

from typing import Final

from metaservice.core.commit.transaction import Txn, check_txn_age
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.table.model import COMPACTIONS, ROW_CHANGES, Operation
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.snapshots import TableState

COLUMN_DEFAULTS: Final = "column_defaults"
FORKS: Final = "forks"
KEY_LOOKUPS: Final = "key_lookups"
PARTIAL_IMAGES: Final = "partial_images"
ADDS_ROWS: Final = frozenset({Operation.INSERT, Operation.OVERWRITE, Operation.MERGE, Operation.CUSTOM})
WRITES_KEYS: Final = ADDS_ROWS | ROW_CHANGES
NEEDS_IMAGES: Final = WRITES_KEYS | COMPACTIONS


class Admission:
    """Checks of every new transaction, on the decider's thread."""

    def __init__(self, decider: Decider, clocks: Clocks, keep_ms: int, reserve_bytes: int) -> None:
        self._decider = decider
        self._clocks = clocks
        self._keep_ms = keep_ms
        self._reserve_bytes = reserve_bytes
        self._room_checked_ms = -1
        self._room = True

    def repeated(self, txn_id: str, digest: bytes) -> Txn | None:
        """Returns the transaction that a call repeats. Refuses an id that is too old or was used for other content."""
        state = self._decider.state
        txn = state.find_txn(txn_id)
        if txn is None:
            check_txn_age(txn_id, self._clocks.now_us() // 1000, self._keep_ms, state.forgotten_ms)
        elif txn.begin_digest != digest:
            raise invalid("TRANSACTION_ID_REUSED", txn_id=txn_id)
        return txn

    def check_room(self) -> None:
        """Refuses new work before the disk is too full to store decisions."""
        now_ms = self._clocks.mono_ms()
        if self._room_checked_ms < 0 or now_ms - self._room_checked_ms >= 100:
            self._room_checked_ms = now_ms
            self._room = self._decider.state.store.free_bytes() > self._reserve_bytes
        if not self._room:
            raise MetaError(ErrorKind.EXHAUSTED, "DISK_FULL", "the store's disk is nearly full: make room")


def check_features(table: TableState, operation: Operation, client_features: frozenset[str]) -> None:
    """Refuses a client that doesn't know a feature of the table, or would write NULL in place of defaults."""
    meta = table.meta
    lacking = {name for name in meta.features - client_features if not name.startswith("test_")}
    if meta.has_defaults and operation in ADDS_ROWS and COLUMN_DEFAULTS not in client_features:
        lacking.add(COLUMN_DEFAULTS)
    if table.fork is not None and operation is not Operation.ALTER and FORKS not in client_features:
        lacking.add(FORKS)
    if lacking:
        raise MetaError(ErrorKind.BLOCKED, "CLIENT_TOO_OLD", lacks=", ".join(sorted(lacking)))
    if meta.key_spans_partitions and operation in WRITES_KEYS and KEY_LOOKUPS not in client_features:
        raise keys_not_looked_up(table)
    if meta.is_partial and operation in NEEDS_IMAGES and PARTIAL_IMAGES not in client_features:
        raise MetaError(ErrorKind.BLOCKED, "PARTIAL_IMAGES", table=meta.name)


def keys_not_looked_up(table: TableState) -> MetaError:
    """A writer has not said that it looks its keys up in all partitions, or did so at another version."""
    return MetaError(ErrorKind.BLOCKED, "KEYS_NOT_LOOKED_UP", table=table.meta.name)
