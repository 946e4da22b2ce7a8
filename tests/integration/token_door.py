"""A door in front of a service that takes calls with a token of its list, and passes them on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

FOREVER_S = 1e6  # what gRPC says of a call without a deadline
HEALTH = "/grpc.health.v1.Health/Check"


class Door(grpc.GenericRpcHandler):
    """Which tokens it takes can change; calls under way with one that it takes no longer end."""

    def __init__(self, service: str, *tokens: str) -> None:
        self._channel = grpc.insecure_channel(service, options=[("grpc.use_local_subchannel_pool", 1)])
        self._lock = threading.Lock()
        self._under_way: list[tuple[str, Any]] = []
        self.taken = set(tokens)
        self.seen: list[tuple[str, str]] = []  # the method and the token of each call
        self.address = ""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        method = handler_call_details.method

        def forward(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            given = dict(context.invocation_metadata())
            token = str(given.get("authorization", "")).removeprefix("Bearer ")
            with self._lock:
                if method != HEALTH:
                    self.seen.append((method.rpartition("/")[2], token))
                if method != HEALTH and token not in self.taken:
                    refuse(context)
                call: Any = self._channel.stream_stream(method)
                own = tuple((key, value) for key, value in given.items() if key.startswith("x-"))
                left_s = float(context.time_remaining())
                answers = call(requests, timeout=left_s if left_s < FOREVER_S else None, metadata=own)
                self._under_way.append((token, answers))
            context.add_callback(answers.cancel)
            try:
                yield from answers
            except grpc.RpcError:
                if method != HEALTH and token not in self.taken:
                    refuse(context)
                context.set_trailing_metadata(answers.trailing_metadata())
                context.abort(answers.code(), answers.details())

        return grpc.stream_stream_rpc_method_handler(forward)

    def expire(self, token: str, *others: str) -> None:
        """Takes the others from now on."""
        with self._lock:
            self.taken = {*self.taken, *others} - {token}
            ended = [answers for used, answers in self._under_way if used == token]
        for answers in ended:
            answers.cancel()

    def methods(self, token: str) -> list[str]:
        return [method for method, used in self.seen if used == token]


def refuse(context: grpc.ServicerContext) -> None:
    info = error_details_pb2.ErrorInfo(reason="TOKEN_EXPIRED", domain="laketx", metadata={"kind": "UNAUTHENTICATED"})
    detail = any_pb2.Any()
    detail.Pack(info)
    status = status_pb2.Status(code=code_pb2.UNAUTHENTICATED, message="TOKEN_EXPIRED: get another", details=[detail])
    context.abort_with_status(rpc_status.to_status(status))


@contextmanager
def door(service: str, *tokens: str, credentials: grpc.ServerCredentials | None = None) -> Iterator[Door]:
    found = Door(service, *tokens)
    server = grpc.server(ThreadPoolExecutor(32))
    server.add_generic_rpc_handlers((found,))
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    found.address = f"127.0.0.1:{port}"
    server.start()
    try:
        yield found
    finally:
        server.stop(None).wait()
