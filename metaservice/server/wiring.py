"""Builds the service from real parts: the only place with the real clock and real randomness."""

from __future__ import annotations

import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from metaservice.metrics import Metric, Reading
from metaservice.rpc.convert.wire import kept_reads
from metaservice.rpc.observe.call_records import Recorder
from metaservice.rpc.server import Server, ServerSettings
from metaservice.rpc.services.calls import UseCases
from metaservice.server.console_process import ConsoleProcess
from metaservice.server.ha.leadership import Leadership, StoreWatch
from metaservice.server.ha.standby import StandbyProcess, stand_by
from metaservice.server.identity import known_callers, own_credentials, owner_socket
from metaservice.server.process import (
    EXIT_LEADS_NO_MORE,
    EXIT_UNUSABLE,
    STOP_SIGNALS,
    RealClocks,
    VerifyingProcess,
    end_on_lost_thread,
    fail_stop,
    keep_files_private,
    lost_the_lease,
    make_private,
    product_version,
    raise_descriptor_limit,
    read_uptime,
    say_listening,
    tune_interpreter,
)
from metaservice.server.settings import Settings
from metaservice.server.store_opening import OpenState
from metaservice.server.telemetry import serve_metrics, set_up_observers
from metaservice.service.branch.branches import Branches
from metaservice.service.branch.merging import Merging
from metaservice.service.branch.refreshing import Refreshing
from metaservice.service.commit.importing import Imports
from metaservice.service.commit.transactions import Transactions
from metaservice.service.compaction.compactions import Compactions
from metaservice.service.compaction.layouts import Layouts
from metaservice.service.compaction.maintenance import Maintenance
from metaservice.service.compaction.scheduling import Scheduler
from metaservice.service.decider.clocks import Clocks, StallDetector, Uptime, unknown_uptime
from metaservice.service.decider.decider import Decider
from metaservice.service.operate.access import Access
from metaservice.service.operate.backup import BackupPlace
from metaservice.service.operate.backup_schedule import BackupSchedule
from metaservice.service.operate.operators import Operators
from metaservice.service.operate.warehouse import Warehouses
from metaservice.service.read.planning import Planning
from metaservice.service.read.reads import Reads
from metaservice.service.read.scan_counts import ScanCounts
from metaservice.service.read.timeline import Timeline
from metaservice.service.retention.housekeeping import Housekeeping
from metaservice.service.retention.marks import Marks
from metaservice.service.retention.pins import Pins
from metaservice.service.retention.purge import PurgeList
from metaservice.service.retention.sweeping import Sweeping
from metaservice.service.table.catalog import Catalog
from metaservice.service.table.commit_notifier import CommitNotifier
from metaservice.service.table.periodic_tasks import PeriodicTasks
from metaservice.shared.ids import uuid7
from metaservice.shared.log import (
    IDLE,
    SOCKET_GONE,
    STARTED,
    STOPPED,
    event,
    set_up_logging,
)
from metaservice.shared.terminal import printable
from metaservice.store.port import (
    Store,
    StoreFailed,
    StoreFenced,
    StoreUnusable,
)

SOCKET_LOOK_S = 1.0
CONNECTIONS_MAX = 10_000
CHECK_PAUSE_S = 0.002
VERIFY_SCRATCH = "backup.verify"


@dataclass(frozen=True, slots=True)
class Service:
    """The use cases over one store."""

    decider: Decider
    calls: UseCases
    operators: Operators
    scheduler: Scheduler
    backups: BackupSchedule
    verifying: VerifyingProcess

    def start(self) -> None:
        self.decider.start()
        self.calls.bells.start()
        self.scheduler.start()
        self.backups.start()


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
        branches.tick()

    bells = CommitNotifier(lambda: decider.state.views)
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
    pauses = StallDetector(decider, clocks, event)
    catalog = Catalog(decider, transactions, clocks)
    branches = Branches(decider, transactions, clocks, settings.quotas)
    pins = Pins(decider, clocks, settings.lease_ms, transactions.check_room, settings.quotas)
    housekeeping = Housekeeping(decider, pins, clocks, settings.keeping, event, uptime)
    guard = housekeeping.guard
    pause = lambda: time.sleep(CHECK_PAUSE_S)  # noqa: E731 - it has no other name
    operators = Operators(decider, clocks, _place(settings), pause, guard, settings.quotas, leads)
    reads = Reads(decider, clocks)
    planning = Planning(decider, reads, ScanCounts(clocks.now_us()))
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
    calls = UseCases(
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
        branches=branches,
        merging=Merging(decider, transactions, clocks, settings.outcome_keep_ms, kept_reads),
        periodic=PeriodicTasks(
            decider, clocks, settings.lease_ms, lambda: uuid7(clocks.now_us() // 1000), transactions.check_room
        ),
        refreshing=Refreshing(decider, transactions, clocks, settings.outcome_keep_ms, kept_reads),
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
    umask = keep_files_private()
    make_private(settings.data)
    set_up_logging(settings.logging)
    end_on_lost_thread()
    connections_max = min(CONNECTIONS_MAX, raise_descriptor_limit() // 2)  # the store's files need the rest
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # before any thread: only sigwait below takes them
    tune_interpreter()
    try:
        standby = stand_by(settings, lambda: own_credentials(settings), connections_max)
    except (StoreUnusable, RuntimeError) as error:  # gRPC raises nothing narrower
        return _unusable(error)
    exporter = serve_metrics(settings, standby.leads.readings() if standby is not None else {})
    console = ConsoleProcess(settings)
    if standby is not None:
        console.stand_by(standby.server.address)
    if standby is not None and not standby.wait():
        console.stop()
        exporter.stop()
        return 0
    service = _open_service(settings, standby)
    if service is None:
        return EXIT_UNUSABLE
    if standby is not None:
        standby.server.stop()
    metrics = service.operators.metrics
    observers = set_up_observers(settings, service.decider, metrics)
    try:
        server = _build_server(settings, service, standby, connections_max, observers.recorder)
    except RuntimeError as error:  # gRPC raises nothing narrower
        return _unusable(error)
    if server.socket is not None:
        server.socket.chmod(0o777 & ~umask)  # its folder says who reaches it
    if standby is not None:
        metrics.readings.update(standby.leads.readings())
        metrics.readings.update(_bucket_readings(service.decider.state.store))
    exporter.show(metrics.readings)
    observers.start()
    service.start()
    server.start()
    if standby is None:
        say_listening(server.address)
    else:
        standby.took_over(service.decider)
    event(STARTED, listen=server.address, data=settings.store or settings.data, pid=os.getpid())
    console.start(server.address)
    wait_for_end(service, server, settings.idle_exit_s)
    console.stop()
    if not _stop(service, server, standby, settings.grace_s):
        return EXIT_UNUSABLE
    exporter.stop()
    observers.stop()
    event(STOPPED)
    return EXIT_LEADS_NO_MORE if standby is not None and standby.leads.is_stepping_down else 0


def _unusable(error: Exception) -> int:
    sys.stderr.write(f"laketx: {printable(str(error))}\n")
    return EXIT_UNUSABLE


def _build_server(
    settings: Settings,
    service: Service,
    standby: StandbyProcess | None,
    connections_max: int,
    recorder: Recorder | None,
) -> Server:
    edge = ServerSettings(
        settings.listen if standby is None else standby.server.address,
        settings.threads,
        settings.quotas,
        settings.patience,
        reflection=settings.reflection,
        connections_max=connections_max,
        owner_socket=owner_socket(settings),
    )
    return Server(
        service.calls,
        service.operators,
        edge,
        lambda: uuid.uuid4().hex,
        fail_stop,
        known_callers(settings, service.decider, service.operators.metrics),
        recorder,
        standby.leads.refusal if standby is not None else _may_always,
    )


def _stop(service: Service, server: Server, standby: StandbyProcess | None, grace_s: float) -> bool:
    """False: the leader did not leave in order, and that was said."""
    service.backups.stop()
    service.verifying.stop()
    if standby is not None:
        return standby.leave(service.decider, service.scheduler, server, grace_s)
    server.stop(grace_s)
    service.scheduler.stop()
    service.decider.stop()
    service.decider.state.store.close()
    return True


def _open_service(settings: Settings, standby: StandbyProcess | None) -> Service | None:
    """None: the store can't be used, and that was said."""
    clocks = RealClocks()
    try:
        if standby is None:
            return build_service(OpenState(settings), clocks, settings, read_uptime)
        open_state = OpenState(settings, standby.ahead.open_store, standby.ahead.decoded)
        standby.leads.watch = StoreWatch(open_state.opening_s, lost_the_lease).look
        with standby.opening():
            return build_service(open_state, clocks, settings, read_uptime, standby.leads)
    except (StoreUnusable, StoreFailed) as error:
        _unusable(error)
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
    from metaservice.server.bucket_metrics import bucket_readings  # noqa: PLC0415 - its library is optional
    from metaservice.store.engines.slate import SlateStore  # noqa: PLC0415 - likewise

    return bucket_readings(store.requests) if isinstance(store, SlateStore) else {}


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
