"""Builds the service from real parts: the only place with the real clock and real randomness."""

from __future__ import annotations

import getpass
import os
import secrets
import signal
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from metaservice import telemetry
from metaservice.config import Settings
from metaservice.core.access import Policy
from metaservice.ids import uuid7
from metaservice.leadership import Leadership, StoreWatch
from metaservice.observe import (
    CERTIFICATE_LEFT_SECONDS,
    IDLE,
    METRICS_LISTEN,
    OTEL_FAILED,
    OTEL_MISSING,
    OWNER_SOCKET_LEFT_OUT,
    SOCKET_GONE,
    STARTED,
    STOPPED,
    Metric,
    Metrics,
    Reading,
    Readings,
    event,
    set_up_logging,
)
from metaservice.opening import OpenState
from metaservice.own_process import (
    EXIT_LEADS_NO_MORE,
    EXIT_UNUSABLE,
    STOP_SIGNALS,
    RealClocks,
    end_on_lost_thread,
    fail_stop,
    lost_the_lease,
    product_version,
    raise_descriptor_limit,
    read_uptime,
    say_listening,
    tune_interpreter,
)
from metaservice.rpc.access import no_secret
from metaservice.rpc.audit import Audit
from metaservice.rpc.calls import Calls
from metaservice.rpc.identity import Identities, admins_named
from metaservice.rpc.records import Recorder, Sinks
from metaservice.rpc.server import Server, ServerSettings
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
from metaservice.standing_by import StandingBy, stand_by
from metaservice.store.port import (
    Store,
    StoreFailed,
    StoreFenced,
    StoreUnusable,
)
from metaservice.terminal import printable
from metaservice.verifying import VerifyingProcess

if TYPE_CHECKING:
    from metaservice.rpc.exporter import Exporter
    from metaservice.rpc.exports import Exports
    from metaservice.rpc.storage_tokens import StorageTokens

SOCKET_LOOK_S = 1.0
CONNECTIONS_MAX = 10_000
CHECK_PAUSE_S = 0.002
VERIFY_SCRATCH = "backup.verify"
OWNER_SOCKET = "owner.sock"
SOCKET_PATH_BYTES_MAX = 100  # the kernel takes 107


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


def serve(settings: Settings) -> int:
    """Run until SIGTERM or SIGINT."""
    set_up_logging(settings.logging)
    end_on_lost_thread()
    connections_max = min(CONNECTIONS_MAX, raise_descriptor_limit() // 2)  # the store's files need the rest
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # before any thread: only sigwait below takes them
    tune_interpreter()
    leads, listen = None, settings.listen
    try:
        standby = stand_by(settings, lambda: _credentials(settings), connections_max)
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
        say_listening(server.address)
    else:
        leads.took_over()
        leads.watch = StoreWatch(service.decider.syncing_s, lost_the_lease).look
    event(STARTED, listen=server.address, data=settings.store or settings.data, pid=os.getpid())
    wait_for_end(service, server, settings.idle_exit_s)
    service.backups.stop()
    service.verifying.stop()
    if standby is None:
        server.stop(settings.grace_s)
        service.scheduler.stop()
        service.decider.stop()
        service.decider.state.store.close()
    elif not standby.leave(service.decider, service.scheduler, server, settings.grace_s):
        return EXIT_UNUSABLE
    exporter.stop()
    observers.stop()
    event(STOPPED)
    return EXIT_LEADS_NO_MORE if leads is not None and leads.is_stepping_down else 0


def _open_service(settings: Settings, standby: StandingBy | None) -> Service | None:
    """None: the store can't be used, and that was said."""
    open_state, clocks = OpenState(settings), RealClocks()
    try:
        if standby is None:
            return build_service(open_state, clocks, settings, read_uptime)
        standby.leads.watch = StoreWatch(open_state.opening_s, lost_the_lease).look
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


def _may_always() -> None:
    """Of a service that is alone."""


def _bucket_readings(store: Store) -> Mapping[Metric, Callable[[], Reading]]:
    from metaservice.bucket_metrics import bucket_readings  # noqa: PLC0415 - its library is optional
    from metaservice.store.slate import SlateStore  # noqa: PLC0415 - likewise

    return bucket_readings(store.requests) if isinstance(store, SlateStore) else {}


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
