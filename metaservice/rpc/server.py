"""The gRPC server: its services, its threads, its start and its graceful stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from metaservice.core import quotas
from metaservice.core.access import Policy
from metaservice.core.errors import MetaError
from metaservice.core.quotas import Quota
from metaservice.rpc.auth.authentication import Identities
from metaservice.rpc.auth.authorization import Authorizer
from metaservice.rpc.observe.call_metrics import CallMetricsInterceptor
from metaservice.rpc.observe.call_records import Recorder
from metaservice.rpc.pipeline.activity import Activity
from metaservice.rpc.pipeline.epochs import Epochs
from metaservice.rpc.pipeline.interceptor import CallInterceptor, Lanes
from metaservice.rpc.pipeline.listening import listen_on
from metaservice.rpc.pipeline.open_streams import StreamLimits, Streams
from metaservice.rpc.pipeline.rate_limits import Rates
from metaservice.rpc.services.access import AccessServicer, NewSecret, no_secret
from metaservice.rpc.services.admin import AdminServicer
from metaservice.rpc.services.calls import UseCases
from metaservice.rpc.services.catalog import CatalogServicer
from metaservice.rpc.services.health import Health
from metaservice.rpc.services.servicers import (
    MaintenanceServicer,
    ReadServicer,
    TransactionServicer,
)
from metaservice.rpc.services.session import Sessions
from metaservice.rpc.services.watching import Watches
from metaservice.service.decider.liveness import Liveness
from metaservice.service.operate.operators import Operators
from protos.laketx.v1 import (
    access_pb2,
    access_pb2_grpc,
    admin_pb2,
    admin_pb2_grpc,
    catalog_pb2,
    catalog_pb2_grpc,
    maintenance_pb2,
    maintenance_pb2_grpc,
    read_pb2,
    read_pb2_grpc,
    transaction_pb2,
    transaction_pb2_grpc,
)

if TYPE_CHECKING:
    from metaservice.rpc.auth.storage_tokens import StorageTokens  # its library is optional

SERVICES = [
    transaction_pb2.DESCRIPTOR.services_by_name["TransactionService"].full_name,
    catalog_pb2.DESCRIPTOR.services_by_name["CatalogService"].full_name,
    read_pb2.DESCRIPTOR.services_by_name["ReadService"].full_name,
    maintenance_pb2.DESCRIPTOR.services_by_name["MaintenanceService"].full_name,
    admin_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name,
    access_pb2.DESCRIPTOR.services_by_name["AccessService"].full_name,
]

SENT_BYTES_MAX = 64 << 20  # what clients take: an older release may have stored items beyond today's bounds


CANCEL_S: Final = 10.0  # for calls that were cancelled to end


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The limits of the edge."""

    listen: str
    threads: int = 64
    quotas: Mapping[str, Quota] = field(default_factory=lambda: quotas.DEFAULTS)
    patience: StreamLimits = field(default_factory=StreamLimits)
    reflection: bool = False
    connections_max: int = 10_000
    message_bytes_max: int = 16 * 1024 * 1024
    owner_socket: Path | None = None  # on which the service's owner needs no token


@dataclass(frozen=True, slots=True)
class Callers:
    """How callers are known, and who decides what they may do. As it is: everybody may do everything, without TLS."""

    identities: Identities | None = None
    new_secret: NewSecret = no_secret
    policy: Policy | None = None  # decides instead of the grants
    credentials: grpc.ServerCredentials | None = None
    storage_tokens: StorageTokens | None = None


class Server:
    """The listening server."""

    def __init__(
        self,
        calls: UseCases,
        operators: Operators,
        settings: ServerSettings,
        next_id: Callable[[], str],
        fail_stop: Callable[[BaseException], None],
        callers: Callers = Callers(),
        recorder: Recorder | None = None,
        may_not_answer: Callable[[], MetaError | None] = lambda: None,
    ) -> None:
        """`may_not_answer` is asked before each call: why another process answers it."""
        self.activity = Activity()
        metrics = operators.metrics.calls
        self._lanes = lanes = Lanes.build(settings.threads, settings.quotas)
        rates = Rates(settings.quotas[quotas.REQUESTS])
        operators.quotas.add(
            settings.quotas, {quotas.REQUESTS: rates.use, **{name: lane.use for name, lane in lanes.streams.items()}}
        )
        gate = Authorizer(callers.identities, calls.decider, calls.access, callers.policy)
        self._streams = Streams(settings.patience, metrics.count_end)
        edge = CallInterceptor(
            next_id=next_id,
            fail_stop=fail_stop,
            activity=self.activity,
            lanes=lanes,
            streams=self._streams,
            metrics=metrics,
            rates=rates,
            gate=gate,
            recorder=recorder,
            may_not_answer=may_not_answer,
        )
        self._server = grpc.server(
            lanes.calls,
            interceptors=[edge, CallMetricsInterceptor(metrics), Epochs(operators.epoch)],
            maximum_concurrent_rpcs=lanes.most,
            options=_channel_options(settings),
        )
        most = settings.quotas[quotas.SESSIONS].most
        self._sessions = Sessions(calls, gate, self._streams, rates, metrics, most, recorder)
        self._watches = Watches(calls, self._streams)
        self._health = Health(SERVICES, Liveness(calls.decider), self._streams)
        access = AccessServicer(calls, gate, callers.new_secret, callers.storage_tokens, self._streams.ring)
        self._add_services(calls, operators, access, gate)
        if settings.reflection:
            reflection.enable_server_reflection([*SERVICES, reflection.SERVICE_NAME], self._server)
        self.address = self._listen(settings, callers.credentials)
        is_socket = settings.listen.startswith("unix:")
        self.socket = Path(settings.listen.removeprefix("unix:")) if is_socket else None

    def _add_services(self, calls: UseCases, operators: Operators, access: AccessServicer, gate: Authorizer) -> None:
        server = self._server
        transaction_pb2_grpc.add_TransactionServiceServicer_to_server(
            TransactionServicer(calls, self._sessions), server
        )
        catalog_pb2_grpc.add_CatalogServiceServicer_to_server(CatalogServicer(calls, gate), server)
        read_pb2_grpc.add_ReadServiceServicer_to_server(ReadServicer(calls, self._watches), server)
        maintenance_pb2_grpc.add_MaintenanceServiceServicer_to_server(MaintenanceServicer(calls, gate), server)
        admin_pb2_grpc.add_AdminServiceServicer_to_server(AdminServicer(calls, operators), server)
        access_pb2_grpc.add_AccessServiceServicer_to_server(access, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)

    def _listen(self, settings: ServerSettings, credentials: grpc.ServerCredentials | None) -> str:
        """The address, with the port that it got."""
        address = listen_on(self._server, settings.listen, credentials)
        if settings.owner_socket is not None:
            self._server.add_insecure_port(f"unix:{settings.owner_socket}")
            settings.owner_socket.chmod(0o600)
        return address

    def start(self) -> None:
        self._streams.start()
        self._server.start()

    def stop(self, grace_s: float) -> None:
        """Refuses new calls and lets calls under way end."""
        self.end_stop(self.begin_stop(grace_s), grace_s)

    def begin_stop(self, grace_s: float) -> threading.Event:
        """Refuses new calls from now on; it is set when those under way have ended."""
        self._sessions.stop()
        self._health.stop()
        self._watches.stop()
        self._streams.ring()
        return self._server.stop(grace_s)

    def end_stop(self, ended: threading.Event, grace_s: float) -> None:
        ended.wait(grace_s + CANCEL_S)  # gRPC may wait for a call that never ends
        self._streams.stop()
        self._lanes.stop()
        self._sessions.join()


def _channel_options(settings: ServerSettings) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", settings.message_bytes_max),
        ("grpc.max_send_message_length", SENT_BYTES_MAX),
        ("grpc.so_reuseport", 0),
        ("grpc.max_allowed_incoming_connections", settings.connections_max),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.keepalive_time_ms", 30_000),  # a watcher that vanished gives its place back
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),  # or clients that are quiet are cut off
    ]
