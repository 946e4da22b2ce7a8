"""Asks the standard health service whether MetaService takes calls."""

from __future__ import annotations

from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from metaservice.client.calling import open_channel
from metaservice.client.credentials import Address, Credentials
from metaservice.client.errors import LakeTXError, decode_rpc_error

SERVING: Final = "SERVING"


def ask_health(address: str, timeout_s: float, *, wait: bool = False, credentials: Credentials | None = None) -> str:
    """The health status: SERVING, NOT_SERVING, … With `wait`, a service that is not there yet can appear within the
    time. It asks for no token. Of several addresses, each is asked until one is SERVING.
    """
    where = Address.of(address)
    health = ""
    for target in where.targets:
        try:
            health = _ask(Address(target, where.has_tls), timeout_s, credentials, wait=wait)
        except LakeTXError:
            if target == where.targets[-1] and not health:
                raise
        if health == SERVING:
            break
    return health


def _ask(address: Address, timeout_s: float, credentials: Credentials | None, *, wait: bool) -> str:
    shown = Credentials.from_environment() if credentials is None else credentials
    with open_channel(address, shown, [("grpc.max_reconnect_backoff_ms", 500)]) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout_s, wait_for_ready=wait)
        except grpc.RpcError as error:
            raise decode_rpc_error(error) from error
    return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
