"""Builds the service from real parts: the one place that reads the real clock and makes real randomness."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
import traceback
import uuid
from dataclasses import dataclass

from metaservice.config import Settings
from metaservice.observe import BROKEN, STARTED, STOPPED, event, set_up_logging
from metaservice.rpc.calls import Calls
from metaservice.rpc.server import Server, ServerSettings
from metaservice.service.catalog import Catalog
from metaservice.service.clocks import Clocks
from metaservice.service.decider import Decider
from metaservice.service.planning import Planning
from metaservice.service.reads import Reads
from metaservice.service.state import State
from metaservice.service.transactions import Transactions
from metaservice.store.port import Store, StoreFailed, StoreUnusable
from metaservice.store.rocks import RocksStore

EXIT_BROKEN = 70
EXIT_UNUSABLE = 74
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
REOPEN_TRIES_MAX = 600


class RealClocks:
    """The machine's clocks."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def mono_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


def fail_stop(error: BaseException) -> None:
    """The service contradicts itself: end at once; the next start reads the log, which is the truth."""
    event(BROKEN, error=repr(error), where=traceback.format_exception(error)[-3:])
    sys.stderr.flush()
    os._exit(EXIT_BROKEN)


@dataclass(frozen=True, slots=True)
class Service:
    """The use cases over one store."""

    decider: Decider
    calls: Calls


def build_service(open_state: OpenState, clocks: Clocks, settings: Settings) -> Service:
    decider = Decider(open_state.again, lambda: transactions.tick(), fail_stop)  # noqa: PLW0108 - made below
    transactions = Transactions(decider, clocks, settings.lease_ms, settings.outcome_keep_ms, settings.reserve_bytes)
    catalog = Catalog(decider, transactions, clocks)
    reads = Reads(decider, clocks)
    return Service(decider, Calls(decider, transactions, catalog, reads, Planning(decider, reads)))


class OpenState:
    """Opens the store and builds the state; after a failure it closes the old store and tries until there is room."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._store: Store | None = None

    def again(self) -> State:
        if self._store is None:
            return self._open()
        self._store.close()
        for _ in range(REOPEN_TRIES_MAX):
            try:
                return self._open()
            except (StoreFailed, StoreUnusable, OSError) as error:
                event("store_reopen_failed", error=repr(error))
                time.sleep(0.5)
        raise RuntimeError("the store can't be opened again")

    def _open(self) -> State:
        most = self._settings.store_bytes_max
        self._store = RocksStore(self._settings.data, bytes_max=most or None)
        return State(self._store)


def serve(settings: Settings) -> int:
    """Run until SIGTERM or SIGINT."""
    set_up_logging()
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # before any thread: only sigwait below takes them
    gc.set_threshold(100_000, 20, 50)  # short-lived messages by the thousand; what lives long is no garbage
    try:
        service = build_service(OpenState(settings), RealClocks(), settings)
    except StoreUnusable as error:
        sys.stderr.write(f"laketx: {error}\n")
        return EXIT_UNUSABLE
    edge = ServerSettings(settings.listen, settings.threads, settings.sessions_max)
    server = Server(service.calls, edge, lambda: uuid.uuid4().hex, fail_stop)
    service.decider.start()
    server.start()
    host = settings.listen.rsplit(":", 1)[0]
    sys.stdout.write(f"listening on {host}:{server.port}\n")
    sys.stdout.flush()
    event(STARTED, listen=f"{host}:{server.port}", data=settings.data)
    signal.sigwait(STOP_SIGNALS)
    server.stop(settings.grace_s)
    service.decider.stop()
    event(STOPPED)
    return 0
