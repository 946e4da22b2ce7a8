"""Renews the open transactions of one client, from one thread."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import Final, Protocol

from metaservice.client.errors import ErrorKind, LakeTXError, MetaServiceError
from metaservice.client.threads import start_thread
from protos.laketx.v1 import transaction_pb2 as wire

RENEWALS_PER_LEASE: Final = 3
LOOKS_PER_LEASE: Final = 12


class Leased(Protocol):
    """A transaction as the heartbeat sees it."""

    txn_id: str
    lease_s: float
    renew_at_s: float

    def renewed(self, answer: wire.RenewTransactionResponse) -> None: ...
    def lease_lost(self, error: MetaServiceError) -> None: ...


class Heartbeat:
    """Renews each transaction after a third of its lease.

    A transaction that the program no longer references is dropped.
    """

    def __init__(self, renew: Callable[[str], wire.RenewTransactionResponse]) -> None:
        self._renew = renew
        self._leased: weakref.WeakValueDictionary[str, Leased] = weakref.WeakValueDictionary()
        self._shortest_lease_s = float("inf")
        self._changed = threading.Event()
        self._stopped = False
        self._start_lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, leased: Leased) -> None:
        leased.renew_at_s = time.monotonic() + leased.lease_s / RENEWALS_PER_LEASE
        self._leased[leased.txn_id] = leased
        if leased.lease_s < self._shortest_lease_s:
            self._shortest_lease_s = leased.lease_s
            self._changed.set()
        if self._thread is None:
            self._start()

    def remove(self, txn_id: str) -> None:
        self._leased.pop(txn_id, None)

    def stop(self) -> None:
        self._stopped = True
        self._changed.set()

    def _start(self) -> None:
        with self._start_lock:
            if self._thread is None:
                self._thread = start_thread(self._beat, "laketx-heartbeat", self.stop)

    def _beat(self) -> None:
        while not self._stopped:
            self._changed.wait(self._shortest_lease_s / LOOKS_PER_LEASE)
            self._changed.clear()
            self._renew_due(time.monotonic())

    def _renew_due(self, now_s: float) -> None:
        for reference in self._leased.valuerefs():
            leased = reference()
            if self._stopped:
                return
            if leased is not None and leased.renew_at_s <= now_s and not self._renew_one(leased):
                return

    def _renew_one(self, leased: Leased) -> bool:
        """Renews one; False if the service is away: then the others wait for the next round too."""
        try:
            answer = self._renew(leased.txn_id)
        except MetaServiceError as error:
            if error.kind in (ErrorKind.UNAVAILABLE, ErrorKind.EXHAUSTED, ErrorKind.DENIED):
                return False  # the lease goes on: a token may come that is taken
            # Ended on purpose while the renewal was under way: nothing was lost.
            if self._leased.pop(leased.txn_id, None) is not None:
                leased.lease_lost(error)
            return True
        except LakeTXError:
            return False
        leased.renewed(answer)
        leased.renew_at_s = time.monotonic() + leased.lease_s / RENEWALS_PER_LEASE
        return True
