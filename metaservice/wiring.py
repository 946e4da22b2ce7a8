"""Builds the service from real parts: the only place with the real clock and real randomness."""

from __future__ import annotations

import contextlib
import gc
import getpass
import logging
import os
import resource
import secrets
import signal
import socket
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import grpc

from metaservice import telemetry
from metaservice.config import Settings
from metaservice.core.access import Policy
from metaservice.core.lease import LOOK_MS
from metaservice.ids import uuid7
from metaservice.leadership import STANDBY, STANDBYS, STORE_S, Leadership, StoreWatch, leave, not_leader
from metaservice.observe import (
    BROKEN,
    CERTIFICATE_LEFT_SECONDS,
    FENCED,
    IDLE,
    LEASE_LOST,
    METRICS_LISTEN,
    OTEL_FAILED,
    OTEL_MISSING,
    OWNER_SOCKET_LEFT_OUT,
    REOPEN_FAILED,
    SOCKET_GONE,
    STANDING_BY,
    STARTED,
    STOPPED,
    STORE_SILENT,
    Metric,
    Metrics,
    Reading,
    Readings,
    event,
    set_up_logging,
)
from metaservice.rpc.access import no_secret
from metaservice.rpc.audit import Audit
from metaservice.rpc.calls import Calls
from metaservice.rpc.identity import Identities, admins_named
from metaservice.rpc.payloads import WirePayloads
from metaservice.rpc.records import Recorder, Sinks
from metaservice.rpc.server import Server, ServerSettings
from metaservice.rpc.standby import Standby, StandbyAnswers
from metaservice.service.commit.importing import Imports
from metaservice.service.commit.transactions import Transactions
from metaservice.service.compaction.compactions import Compactions
from metaservice.service.compaction.layouts import Layouts
from metaservice.service.compaction.maintenance import Maintenance
from metaservice.service.compaction.scheduling import Scheduler
from metaservice.service.decider.clockguard import Uptime, unknown_uptime
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.pauses import Pauses
from metaservice.service.decider.state import State
from metaservice.service.operate.access import Access
from metaservice.service.operate.backup import BackupPlace
from metaservice.service.operate.backup_schedule import BackupSchedule
from metaservice.service.operate.operators import Operators
from metaservice.service.operate.warehouse import Warehouses
from metaservice.service.read.planning import Planning
from metaservice.service.read.reads import Reads
from metaservice.service.read.timeline import Timeline
from metaservice.service.retention.housekeeping import Housekeeping
from metaservice.service.retention.marks import Marks
from metaservice.service.retention.pins import Pins
from metaservice.service.retention.purge import PurgeList
from metaservice.service.retention.sweeping import Sweeping
from metaservice.service.table.catalog import Catalog
from metaservice.service.table.waiting import Bells
from metaservice.standbys import Standbys
from metaservice.store.folders import PARTIAL
from metaservice.store.history import ensure_history
from metaservice.store.object_place import ObjectPlace
from metaservice.store.port import (
    STORE_IS_BACKUP,
    STORE_UNREACHABLE,
    Store,
    StoreFailed,
    StoreFenced,
    StoreGone,
    StoreUnusable,
)
from metaservice.store.rocks import RocksStore
from metaservice.terminal import printable
from metaservice.verifying import VerifyingProcess
from protos.laketx.v1 import admin_pb2

if TYPE_CHECKING:
    from metaservice.rpc.exporter import Exporter
    from metaservice.rpc.exports import Exports
    from metaservice.rpc.storage_tokens import StorageTokens

EXIT_BROKEN = 70
EXIT_UNUSABLE = 74
EXIT_LEADS_NO_MORE = 75  # to be started again: it stands by then
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
SOCKET_LOOK_S = 1.0
OPENING_LOOK_S = 0.02
CLOSE_S = 2.0  # for a store in a bucket
EVERY_ADDRESS = ("", "0.0.0.0", "[::]")  # noqa: S104 - to tell them from one
REOPEN_TRIES_MAX = 600
CONNECTIONS_MAX = 10_000
DESCRIPTORS_MAX = 65_536
CHECK_PAUSE_S = 0.002
VERIFY_SCRATCH = "backup.verify"
OWNER_SOCKET = "owner.sock"
SOCKET_PATH_BYTES_MAX = 100  # the kernel takes 107
_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class RealClocks:
    """The machine's clocks; the monotonic one counts sleep too, where the machine has one that does."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def mono_ms(self) -> int:
        return time.clock_gettime_ns(_MONOTONIC) // 1_000_000


def read_uptime() -> tuple[str, int]:
    """The machine's boot and the milliseconds since; without a name if the system doesn't report it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return boot, int(float(Path("/proc/uptime").read_text(encoding="ascii").split()[0]) * 1000)
    except (OSError, ValueError, IndexError):
        return "", 0


def fail_stop(error: BaseException) -> None:
    """Ends the process at once after a broken invariant; the next start reads the log, which is the truth."""
    if isinstance(error, StoreFenced):
        event(FENCED, why=str(error))
        _end_leading()
    event(BROKEN, error=repr(error), where=traceback.format_exception(error)[-3:])
    sys.stderr.flush()
    os._exit(EXIT_BROKEN)


def _lost_the_lease(why: str) -> NoReturn:
    event(LEASE_LOST, why=why)
    _end_leading()


def _end_leading() -> NoReturn:
    """Ends the process at once, without a word to anybody who waits: another one answers by now, or will."""
    sys.stderr.flush()
    os._exit(EXIT_LEADS_NO_MORE)


def end_process(code: int) -> NoReturn:
    """Ends the process at once; everything is closed.

    A normal exit waits for native libraries, whose threads may wait for each other, and keeps the folder's lock.
    """
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


@dataclass(frozen=True, slots=True)
class Service:
    """The use cases over one store."""

    decider: Decider
    calls: Calls
    operators: Operators
    scheduler: Scheduler
    backups: BackupSchedule
    verifying: VerifyingProcess


def build_service(
    open_state: OpenState,
    clocks: Clocks,
    settings: Settings,
    uptime: Uptime = unknown_uptime,
    leads: Leadership | None = None,
) -> Service:
    def tick() -> None:
        pauses.tick()
        transactions.tick()
        maintenance.tick()
        housekeeping.tick()

    bells = Bells(lambda: decider.state.views)
    decider = Decider(open_state.again, tick, fail_stop, bells.ring)
    if leads is not None:
        decider.may_not_answer = leads.refusal
    transactions = Transactions(
        decider,
        clocks,
        settings.lease_ms,
        settings.outcome_keep_ms,
        settings.reserve_bytes,
        settings.quotas,
        settings.inlined_bytes_max,
    )
    pauses = Pauses(decider, clocks, event)
    catalog = Catalog(decider, transactions, clocks)
    pins = Pins(decider, clocks, settings.lease_ms, transactions.check_room, settings.quotas)
    housekeeping = Housekeeping(decider, pins, clocks, settings.keeping, event, uptime)
    guard = housekeeping.guard
    pause = lambda: time.sleep(CHECK_PAUSE_S)  # noqa: E731 - it has no other name
    operators = Operators(decider, clocks, _place(settings), pause, guard, settings.quotas, leads)
    reads = Reads(decider, clocks)
    planning = Planning(decider, reads)
    maintenance = Maintenance(
        decider=decider,
        transactions=transactions,
        clocks=clocks,
        tasks_max=settings.tasks_max,
        keep_ms=settings.outcome_keep_ms,
        make_id=lambda: uuid7(clocks.now_us() // 1000),  # task ids are in the order in which tasks were queued
        report=event,
        halted=lambda: guard.held,
    )
    layouts = Layouts(decider, lambda: time.sleep(CHECK_PAUSE_S))
    calls = Calls(
        decider=decider,
        transactions=transactions,
        catalog=catalog,
        reads=reads,
        pins=pins,
        purge=PurgeList(decider, lambda: housekeeping.halted),
        timeline=Timeline(decider),
        bells=bells,
        planning=planning,
        marks=Marks(decider, clocks, transactions.check_room),
        sweeping=Sweeping(decider, clocks, settings.keeping, lambda: housekeeping.halted),
        maintenance=maintenance,
        compactions=Compactions(decider, layouts, maintenance.queue, clocks),
        imports=Imports(decider, settings.external_places),
        warehouses=Warehouses(decider),
        access=Access(decider, clocks, transactions.check_room),
    )
    scheduler = Scheduler(decider, maintenance.queue, layouts, clocks, settings.schedule_ms, event)
    verifying = VerifyingProcess(settings.data.resolve() / VERIFY_SCRATCH)
    backups = BackupSchedule(operators.backups, clocks, settings.rhythm, verifying.verify, event)
    operators.metrics.readings.update(backups.readings())
    operators.backup_health = lambda: backups.health
    return Service(decider, calls, operators, scheduler, backups, verifying)


def _place(settings: Settings) -> BackupPlace:
    data = settings.data.resolve()
    root = Path(settings.backup_root) if settings.backup_root else data.with_name(f"{data.name}-backups")
    return BackupPlace(data, root, product_version(), settings.reserve_bytes, settings.backup_to)


def product_version() -> str:
    try:
        return version("laketx")
    except PackageNotFoundError:  # run from a tree that was never installed
        return "unknown"


def fresh_history_id() -> str:
    """An id that distinguishes one history from every other one."""
    return uuid.uuid4().hex[:12]


class OpenState:
    """Opens the store and builds the state; after a failure it closes the old store and retries."""

    def __init__(
        self, settings: Settings, open_placed: Callable[[ObjectPlace, int | None], Store] | None = None
    ) -> None:
        """`open_placed` opens a store in a bucket."""
        self._settings = settings
        self._open_placed = open_placed or open_in_bucket
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
            store = self._open_placed(place, self._settings.store_bytes_max or None)
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
            return State(store, WirePayloads(), settings.task_backoff_ms, settings.store_format)
        except BaseException:
            store.close()
            raise


def open_in_bucket(place: ObjectPlace, bytes_max: int | None = None) -> Store:
    """Opens the store, which fences whoever has it."""
    from metaservice.store.slate import SlateStore  # noqa: PLC0415 - its library is optional

    return SlateStore(place, bytes_max=bytes_max)


def lead_store(place: ObjectPlace, stop: Callable[[], None] = lambda: None) -> Leadership:
    """This process's part in who leads. Raises StoreUnusable."""
    try:
        from metaservice.store import slate  # noqa: F401, PLC0415 - its library is optional, and missed now, not later
        from metaservice.store.lease_object import LeaseInBucket  # noqa: PLC0415 - likewise
    except ImportError as error:
        said = "a store in a bucket needs more packages: pip install 'laketx[s3]'"
        raise StoreUnusable(STORE_UNREACHABLE, path=str(place), found=said) from error
    try:
        at = LeaseInBucket(place)
    except OSError as error:
        raise StoreUnusable(STORE_UNREACHABLE, path=str(place), found=str(error)) from error
    return Leadership(at, uuid.uuid4().hex, RealClocks(), _lost_the_lease, stop)


def refuse_unfinished(data: Path) -> None:
    """Refuses an interrupted backup or restore, which is incomplete."""
    if data.name.endswith(PARTIAL) and (data / "CURRENT").exists():
        raise StoreUnusable(STORE_IS_BACKUP, path=str(data), found="what an unfinished backup or restore left")


def tune_interpreter() -> None:
    gc.set_threshold(100_000, 20, 50)  # short-lived messages by the thousand; what lives long is no garbage
    sys.setswitchinterval(0.001)  # how long a thread waits after a sync; by default five times as long


def raise_descriptor_limit() -> int:
    """Raises the limit as far as the system allows; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return DESCRIPTORS_MAX if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def end_on_lost_thread() -> None:
    """Ends the process if a thread, gRPC's own included, ends with an exception: it would no longer answer."""

    def lost(given: threading.ExceptHookArgs) -> None:
        if given.exc_value is not None and not isinstance(given.exc_value, SystemExit):
            fail_stop(given.exc_value)

    threading.excepthook = lost


def serve(settings: Settings) -> int:
    """Run until SIGTERM or SIGINT."""
    set_up_logging(settings.logging)
    end_on_lost_thread()
    connections_max = min(CONNECTIONS_MAX, raise_descriptor_limit() // 2)  # the store's files need the rest
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # before any thread: only sigwait below takes them
    tune_interpreter()
    leads, listen = None, settings.listen
    try:
        standby = _stand_by(settings, connections_max)
    except (StoreUnusable, RuntimeError) as error:  # gRPC raises nothing narrower
        sys.stderr.write(f"laketx: {printable(str(error))}\n")
        return EXIT_UNUSABLE
    exporter = _serve_metrics(settings, standby.leads.readings() if standby is not None else {})
    if standby is not None:
        leads, listen = standby.leads, standby.server.address
        if not standby.wait():
            exporter.stop()
            return 0
    service = _open_service(settings, standby)
    if service is None:
        return EXIT_UNUSABLE
    if standby is not None:
        standby.server.stop()
    edge = ServerSettings(
        listen,
        settings.threads,
        settings.quotas,
        settings.patience,
        reflection=settings.reflection,
        connections_max=connections_max,
        owner_socket=_owner_socket(settings),
    )
    observers = _observers(settings, service)
    try:
        server = Server(
            service.calls,
            service.operators,
            edge,
            lambda: uuid.uuid4().hex,
            fail_stop,
            identities=_identities(settings, service),
            new_secret=new_secret if settings.tokens else no_secret,
            recorder=observers.recorder,
            policy=_policy(settings, service),
            credentials=_credentials(settings, service.operators),
            storage_tokens=_storage_tokens(settings),
            may_not_answer=leads.refusal if leads is not None else _may_always,
        )
    except RuntimeError as error:  # gRPC raises nothing narrower
        sys.stderr.write(f"laketx: {printable(str(error))}\n")
        return EXIT_UNUSABLE
    metrics = service.operators.metrics
    if leads is not None:
        metrics.readings.update(leads.readings())
        metrics.readings.update(_bucket_readings(service.decider.state.store))
    exporter.show(metrics.readings)
    observers.start()
    service.decider.start()
    service.calls.bells.start()
    service.scheduler.start()
    service.backups.start()
    server.start()
    if leads is None:
        _say_listening(server.address)
    else:
        leads.took_over()
        leads.watch = StoreWatch(service.decider.syncing_s, _lost_the_lease).look
    event(STARTED, listen=server.address, data=settings.store or settings.data, pid=os.getpid())
    wait_for_end(service, server, settings.idle_exit_s)
    service.backups.stop()
    service.verifying.stop()
    if standby is None:
        server.stop(settings.grace_s)
        service.scheduler.stop()
        service.decider.stop()
        service.decider.state.store.close()
    elif not standby.leave(service, server, settings.grace_s):
        return EXIT_UNUSABLE
    exporter.stop()
    observers.stop()
    event(STOPPED)
    return EXIT_LEADS_NO_MORE if leads is not None and leads.is_stepping_down else 0


def _open_service(settings: Settings, standby: _StandingBy | None) -> Service | None:
    """None: the store can't be used, and that was said."""
    open_state, clocks = OpenState(settings), RealClocks()
    try:
        if standby is None:
            return build_service(open_state, clocks, settings, read_uptime)
        standby.leads.watch = StoreWatch(open_state.opening_s, _lost_the_lease).look
        with standby.opening():
            return build_service(open_state, clocks, settings, read_uptime, standby.leads)
    except (StoreUnusable, StoreFailed) as error:
        sys.stderr.write(f"laketx: {printable(str(error))}\n")
        if standby is not None:
            standby.standbys.stop()
            standby.leads.release()
        return None
    except StoreFenced as error:
        fail_stop(error)
        raise


def _say_listening(address: str) -> None:
    sys.stdout.write(f"listening on {address}\n")
    sys.stdout.flush()


def _may_always() -> None:
    """Of a service that is alone."""


@dataclass(frozen=True, slots=True)
class _StandingBy:
    """A process that listens, and waits until it leads."""

    leads: Leadership
    server: Standby
    standbys: Standbys

    def wait(self) -> bool:
        """Whether it leads; else it was told to stop."""
        self.standbys.start()
        while not self.leads.try_take():
            if signal.sigtimedwait(STOP_SIGNALS, LOOK_MS / 1000) is not None:
                self.server.stop()
                self.standbys.stop()
                event(STOPPED)
                return False
        self.leads.start()
        return True

    def leave(self, service: Service, server: Server, grace_s: float) -> bool:
        """Lets another process lead; False: the store doesn't take what was decided."""
        if not leave(server, service.decider, self.leads, grace_s):
            event(STORE_SILENT, silent_s=STORE_S)
            return False
        service.scheduler.stop()
        self.standbys.stop()
        _close_soon(service.decider.state.store)
        return True

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """A stop while the store is opened, which may take long, ends the process at once.

        A process that stood still since it took the lease doesn't open the store: that would fence its successor.
        """
        if self.leads.refusal() is not None:
            _lost_the_lease("it ran out before the store was opened")
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


def _close_soon(store: Store) -> None:
    """Everything is durable and the lease given back: a bucket that doesn't answer keeps nobody waiting."""

    def close() -> None:
        with contextlib.suppress(StoreFailed, StoreGone):
            store.close()

    closing = threading.Thread(target=close, name="close", daemon=True)
    closing.start()
    closing.join(CLOSE_S)


def _stand_by(settings: Settings, connections_max: int) -> _StandingBy | None:
    """Listens as a standby, if others may lead. Raises StoreUnusable, and RuntimeError for an address in use."""
    if settings.place is None:
        return None
    leads = lead_store(settings.place, lambda: os.kill(os.getpid(), signal.SIGTERM))
    standbys = _standbys(settings.place, leads)
    told = StandbyAnswers(
        lambda: not_leader(leads.leader),
        lambda: admin_pb2.GetStatusResponse(
            version=product_version(),
            **asdict(replace(leads.view(), role=STANDBY)),  # also while it opens the store
        ),
    )
    server = Standby(settings.listen, told, _credentials(settings), connections_max)
    port = server.address.rpartition(":")[2]
    leads.address = standbys.address = settings.advertise or _reachable(settings.listen, port)
    server.start()
    _say_listening(server.address)
    event(STANDING_BY, listen=server.address, advertise=leads.address, store=settings.store)
    return _StandingBy(leads, server, standbys)


def _standbys(place: ObjectPlace, leads: Leadership) -> Standbys:
    from metaservice.store.standby_notes import NotesInBucket  # noqa: PLC0415 - its library is optional

    found = Standbys(NotesInBucket(place), RealClocks(), lambda: leads.leads, partial(leads.failed, STANDBYS))
    leads.list_standbys = found.view
    return found


def _bucket_readings(store: Store) -> Mapping[Metric, Callable[[], Reading]]:
    from metaservice.bucket_metrics import bucket_readings  # noqa: PLC0415 - its library is optional
    from metaservice.store.slate import SlateStore  # noqa: PLC0415 - likewise

    return bucket_readings(store.requests) if isinstance(store, SlateStore) else {}


def _reachable(listen: str, port: str) -> str:
    """The address that others find: every address of this machine is none of them."""
    host = listen.rpartition(":")[0]
    return f"{socket.getfqdn() if host in EVERY_ADDRESS else host}:{port}"


def new_secret() -> tuple[str, str]:
    """The id of a service token, and its secret."""
    return secrets.token_hex(6), secrets.token_urlsafe(32)


def _identities(settings: Settings, service: Service) -> Identities | None:
    """How callers are known; None: everybody may do everything, as on the socket of a folder."""
    if not settings.has_identity:
        return None
    oidc = None
    if settings.oidc_issuer:
        try:
            from metaservice.rpc.oidc import Oidc, Provider  # noqa: PLC0415 - its library is optional
        except ImportError as error:
            raise RuntimeError("--oidc-issuer needs PyJWT: pip install 'laketx[oidc]'") from error
        claims = settings.oidc_name_claim, settings.oidc_groups_claim
        oidc = Oidc(Provider(settings.oidc_issuer, settings.oidc_audience, settings.oidc_ca, *claims))
    decider = service.decider
    return Identities(
        (lambda: decider.state.access.tokens) if settings.tokens else None,
        oidc,
        by_certificate=bool(settings.tls_client_ca),
        admins=admins_named(settings.admins),
        owner=getpass.getuser(),
        now_us=RealClocks().now_us,
    )


def _policy(settings: Settings, service: Service) -> Policy | None:
    """Who decides roles instead of the grants, if somebody does."""
    if not settings.policy_url:
        return None
    from metaservice.rpc.policy import ExternalPolicy  # noqa: PLC0415 - seldom needed

    def name_of(table_id: str) -> str:
        table = service.decider.state.views.find(table_id)
        return table.meta.name if table is not None else ""

    return ExternalPolicy(settings.policy_url, settings.policy_keep_s, name_of, time.monotonic)


def _storage_tokens(settings: Settings) -> StorageTokens | None:
    """Who gives temporary keys for tables' files, if somebody does."""
    if not settings.storage_role:
        return None
    try:
        from metaservice.rpc.storage_tokens import StorageTokens, TokenSettings  # noqa: PLC0415 - its library is optional
    except ImportError as error:
        raise RuntimeError("--storage-role needs botocore: pip install 'laketx[sts]'") from error
    told = TokenSettings(
        settings.storage_role,
        settings.storage_valid_s,
        settings.storage_sts_endpoint,
        settings.storage_endpoint,
        settings.storage_region,
    )
    return StorageTokens(told, RealClocks().now_us)


def _owner_socket(settings: Settings) -> Path | None:
    """Where the owner of the data folder is an admin without a token, such as to make the first one."""
    if not settings.has_identity or settings.listen.startswith("unix:"):
        return None
    path = settings.data.resolve() / OWNER_SOCKET
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
        event(OWNER_SOCKET_LEFT_OUT, path=path)
        return None
    path.unlink(missing_ok=True)
    return path


def wait_for_end(service: Service, server: Server, idle_exit_s: float) -> None:
    """Waits for a stop signal, for the service to be idle for long enough, or for its socket to be removed."""
    if not idle_exit_s:
        signal.sigwait(STOP_SIGNALS)
        return
    left_s = idle_exit_s
    while signal.sigtimedwait(STOP_SIGNALS, min(left_s, SOCKET_LOOK_S)) is None:
        if server.socket is not None and not server.socket.exists():
            event(SOCKET_GONE, socket=server.socket)
            return
        if left_s > SOCKET_LOOK_S:
            left_s -= SOCKET_LOOK_S
            continue
        left_s = idle_exit_s if service.decider.state.open else server.activity.close_if_idle(idle_exit_s)
        if not left_s:
            event(IDLE, idle_s=idle_exit_s)
            return


@dataclass(frozen=True, slots=True)
class Observers:
    """What looks at calls: an audit, OpenTelemetry, or nothing."""

    recorder: Recorder | None
    starts: Sequence[Callable[[], None]]
    stops: Sequence[Callable[[], None]]

    def start(self) -> None:
        for start in self.starts:
            start()

    def stop(self) -> None:
        for stop in self.stops:
            stop()


def _observers(settings: Settings, service: Service) -> Observers:
    decider, metrics = service.decider, service.operators.metrics
    exports = _exports(metrics)
    audit = None
    if settings.audit.to.file or (exports is not None and exports.has_logs):
        audit = Audit(
            settings.audit,
            lambda table_id: view.meta.name if (view := decider.state.views.find(table_id)) is not None else "",
            exports.log if exports is not None and exports.has_logs else None,
        )
        audit.measure(metrics)
    spans = exports.spans if exports is not None else None
    sinks: list[Sinks] = [each for each in (audit, spans) if each is not None]
    if exports is None and audit is None:
        return Observers(None, (), ())
    recorder = None
    if sinks:
        check = audit.check if audit is not None else _passes
        recorder = Recorder(decider, sinks, check, traces=spans is not None, now_ns=time.time_ns)
    parts = [each for each in (audit, exports) if each is not None]  # the audit's last records go to the exports
    return Observers(recorder, [each.start for each in parts], [each.stop for each in parts])


def _passes(_: str) -> None:
    """Nothing needs the record."""


def _exports(metrics: Metrics) -> Exports | None:
    """OpenTelemetry, where the environment switches it on."""
    signals = telemetry.wanted_signals()
    if not signals:
        return None
    if not telemetry.is_installed():
        event(OTEL_MISSING)
        return None
    from metaservice.rpc.exports import Exports  # noqa: PLC0415 - its libraries would slow every start

    try:
        return Exports(signals, metrics, product_version(), time.time_ns)
    except Exception as error:  # noqa: BLE001 - the packages raise many kinds for values that they can't read
        event(OTEL_FAILED, error=repr(error))
        return None


def _credentials(settings: Settings, operators: Operators | None = None) -> grpc.ServerCredentials | None:
    """The service's certificate, where it has one; raises CertificateUnusable."""
    if not settings.tls_cert:
        return None
    from metaservice.rpc.tls import Certificates, TlsFiles  # noqa: PLC0415 - its libraries would slow every start

    files = TlsFiles(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
    certificates = Certificates(files, time.time, event)
    if operators is not None:
        operators.metrics.readings[CERTIFICATE_LEFT_SECONDS] = lambda: {files.cert: certificates.left_s()}
    return certificates.credentials()


class _NoExporter:
    """Of a service whose metrics nobody scrapes."""

    def show(self, readings: Readings) -> None:
        """Nobody looks."""

    def stop(self) -> None:
        """Nothing runs."""


def _serve_metrics(settings: Settings, readings: Readings) -> Exporter | _NoExporter:
    if not settings.metrics_listen:
        return _NoExporter()
    from metaservice.rpc.exporter import Exporter  # noqa: PLC0415 - its library would slow every start

    exporter = Exporter(settings.metrics_listen)
    exporter.show(readings)
    exporter.start()
    event(METRICS_LISTEN, listen=f"{settings.metrics_listen.rpartition(':')[0]}:{exporter.port}")
    return exporter
