"""A process whose store is in a bucket: it listens, stands by until it leads, and lets another one lead."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial

import grpc

from metaservice.core.lease import LOOK_MS
from metaservice.rpc.server import Server
from metaservice.rpc.services.standby import Standby, StandbyAnswers
from metaservice.server.ha.leadership import STANDBY, STANDBYS, STORE_S, Leadership, StoreWatch, leave, not_leader
from metaservice.server.ha.prefetch import Prefetch
from metaservice.server.ha.standby_registry import StandbyRegistry
from metaservice.server.process import (
    STOP_SIGNALS,
    RealClocks,
    end_process,
    lost_the_lease,
    product_version,
    say_listening,
)
from metaservice.server.settings import Settings
from metaservice.service.compaction.scheduling import Scheduler
from metaservice.service.decider.decider import Decider
from metaservice.shared.log import STANDING_BY, STOPPED, STORE_SILENT, event
from metaservice.store.object_location import LogPlace, ObjectPlace
from metaservice.store.port import STORE_UNREACHABLE, Store, StoreFailed, StoreGone, StoreUnusable
from protos.laketx.v1 import admin_pb2

OPENING_LOOK_S = 0.02
WRITE_OUT_S = CLOSE_S = 2.0  # for a store in a bucket
EVERY_ADDRESS = ("", "0.0.0.0", "[::]")  # noqa: S104 - to tell them from one


@dataclass(frozen=True, slots=True)
class StandbyProcess:
    """A process that listens, and waits until it leads."""

    leads: Leadership
    server: Standby
    standbys: StandbyRegistry
    ahead: Prefetch

    def wait(self) -> bool:
        """Whether it leads; else it was told to stop."""
        self.standbys.start()
        with self.ahead.running():
            while not self.leads.try_take():
                if signal.sigtimedwait(STOP_SIGNALS, LOOK_MS / 1000) is not None:
                    self.server.stop()
                    self.standbys.stop()
                    event(STOPPED)
                    return False
        self.leads.start()
        return True

    def took_over(self, decider: Decider) -> None:
        """It answers calls. The log that it has read is shortened, so that the next one doesn't read it again."""
        self.leads.took_over()
        self.leads.watch = StoreWatch(decider.syncing_s, lost_the_lease).look
        _within(0.0, decider.state.store.write_out)

    def leave(self, decider: Decider, scheduler: Scheduler, server: Server, grace_s: float) -> bool:
        """Lets another process lead; False: the store doesn't take what was decided."""
        if not leave(server, decider, self.leads, grace_s, partial(_write_out, decider.state.store)):
            event(STORE_SILENT, silent_s=STORE_S)
            return False
        scheduler.stop()
        self.standbys.stop()
        _within(CLOSE_S, decider.state.store.close)
        return True

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """A stop while the store is opened, which may take long, ends the process at once.

        A process that stood still since it took the lease doesn't open the store: that would fence its successor.
        """
        if self.leads.refusal() is not None:
            lost_the_lease("it ran out before the store was opened")
        opened = threading.Event()

        def listen() -> None:
            while not opened.is_set():
                if signal.sigtimedwait(STOP_SIGNALS, OPENING_LOOK_S) is None:
                    continue
                if opened.is_set():
                    os.kill(os.getpid(), signal.SIGTERM)
                    return
                self.leads.release()
                event(STOPPED)
                end_process(0)

        listening = threading.Thread(target=listen, name="stop", daemon=True)
        listening.start()
        try:
            yield
        finally:
            opened.set()
            listening.join()
            self.ahead.decoded.keep(())


def _write_out(store: Store) -> None:
    _within(WRITE_OUT_S, store.write_out)


def _within(most_s: float, work: Callable[[], None]) -> None:
    """Of use, and not needed: a bucket that doesn't answer keeps nobody waiting, and one that fails is no matter."""

    def run() -> None:
        with contextlib.suppress(StoreFailed, StoreGone, OSError):
            work()

    running = threading.Thread(target=run, name=work.__name__, daemon=True)
    running.start()
    running.join(most_s)


def stand_by(
    settings: Settings, credentials: Callable[[], grpc.ServerCredentials | None], connections_max: int
) -> StandbyProcess | None:
    """Listens as a standby, if others may lead. Raises StoreUnusable, and RuntimeError for an address in use."""
    if settings.place is None:
        return None
    leads = lead_store(settings.place, lambda: os.kill(os.getpid(), signal.SIGTERM))
    _check_log(settings.place, settings.log_place)
    standbys = _standbys(settings.place, leads)
    answers = StandbyAnswers(
        lambda: not_leader(leads.leader),
        lambda: admin_pb2.GetStatusResponse(
            version=product_version(),
            **asdict(replace(leads.view(), role=STANDBY)),  # also while it opens the store
        ),
    )
    server = Standby(settings.listen, answers, credentials(), connections_max)
    port = server.address.rpartition(":")[2]
    leads.address = standbys.address = settings.advertise or _reachable(settings.listen, port)
    server.start()
    say_listening(server.address)
    event(STANDING_BY, listen=server.address, advertise=leads.address, store=settings.store)
    return StandbyProcess(leads, server, standbys, Prefetch(settings.place, settings.store_cache_bytes))


def _check_log(place: ObjectPlace, log: LogPlace) -> None:
    """Whoever could not open the store's log does not stand by. Raises StoreUnusable."""
    from metaservice.store.lease.log_record import find_log  # noqa: PLC0415 - its library is optional

    try:
        find_log(place, log)
    except StoreUnusable as error:
        if error.reason != STORE_UNREACHABLE:  # a standby waits for the store's own bucket
            raise


def _standbys(place: ObjectPlace, leads: Leadership) -> StandbyRegistry:
    from metaservice.store.lease.standby_notes import NotesInBucket  # noqa: PLC0415 - its library is optional

    registry = StandbyRegistry(NotesInBucket(place), RealClocks(), lambda: leads.leads, partial(leads.failed, STANDBYS))
    leads.list_standbys = registry.view
    return registry


def lead_store(place: ObjectPlace, stop: Callable[[], None] = lambda: None) -> Leadership:
    """Returns this process's leadership of the store in a bucket. Raises StoreUnusable."""
    try:
        from metaservice.store.engines import slate  # noqa: F401, PLC0415 - its library is optional, and missed now, not later
        from metaservice.store.lease.lease_object import LeaseInBucket  # noqa: PLC0415 - likewise
    except ImportError as error:
        missing = "a store in a bucket needs more packages: pip install 'laketx[s3]'"
        raise StoreUnusable(STORE_UNREACHABLE, path=str(place), found=missing) from error
    try:
        at = LeaseInBucket(place)
    except OSError as error:
        raise StoreUnusable(STORE_UNREACHABLE, path=str(place), found=str(error)) from error
    return Leadership(at, uuid.uuid4().hex, RealClocks(), lost_the_lease, stop)


def _reachable(listen: str, port: str) -> str:
    """The address that others find: every address of this machine is none of them."""
    host = listen.rpartition(":")[0]
    return f"{socket.getfqdn() if host in EVERY_ADDRESS else host}:{port}"
