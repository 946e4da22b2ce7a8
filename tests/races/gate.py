"""A way to MetaService that holds one call of a statement until another statement has run.

It passes bytes on, so every client goes through it: Java's, Python's, the Iceberg catalog's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from concurrent import futures
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Self

import grpc

from protos.laketx.v1 import transaction_pb2

SERVICE: Final = "/laketx.v1."
SESSION: Final = f"{SERVICE}TransactionService/Session"
WAIT_S: Final = 120.0
FOREVER_S: Final = 1_000_000.0  # what gRPC says where there is no deadline
THREADS: Final = 64
OWN_METADATA: Final = ("grpc-", ":", "user-agent", "te", "content-type")


class Boundary(Enum):
    """Where a statement waits: before a call is passed on, or before its answer is."""

    ANALYSIS = "analysis"  # it knows the table, and nothing else
    SCAN = "scan"  # it knows the files that it reads
    BEGIN = "first task"  # it has planned, and begins
    REGISTER = "last task"  # its files are written
    COMMIT = "commit"


_METHODS: Final = {
    Boundary.ANALYSIS: {"GetTable"},
    Boundary.SCAN: {"PlanScan", "ListFiles"},
    Boundary.BEGIN: {"BeginTransaction", "begin", "Append", "append", "CommitBatch"},
    Boundary.REGISTER: {"RegisterFiles", "register"},
    Boundary.COMMIT: {"CommitTransaction", "commit"},
}
_AFTER: Final = (Boundary.ANALYSIS, Boundary.SCAN)  # the answer waits


@dataclass
class Hold:
    """One call that waits: the first of its kind."""

    boundary: Boundary
    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    _taken: threading.Lock = field(default_factory=threading.Lock)

    def takes(self, method: str, *, is_answered: bool) -> bool:
        """Whether a call waits here; only the first one does."""
        fits = method in _METHODS[self.boundary] and is_answered == (self.boundary in _AFTER)
        return fits and self._taken.acquire(blocking=False)

    def wait(self) -> None:
        self.reached.set()
        if not self.released.wait(WAIT_S):
            raise TimeoutError(f"nothing released the call that waits at {self.boundary.value}")


class Gate:
    """A server that passes every call on to a service."""

    def __init__(self, target: str) -> None:
        self._hold: Hold | None = None
        self._channel = grpc.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)])
        self._server = grpc.server(
            futures.ThreadPoolExecutor(THREADS),
        )
        self._server.add_generic_rpc_handlers((_Everything(self),))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None)
        self._channel.close()

    def hold(self, boundary: Boundary) -> Hold:
        """The first such call from now on waits; other calls pass."""
        self._hold = Hold(boundary)
        return self._hold

    def open(self) -> None:
        """Releases what waits; nothing waits any more."""
        held, self._hold = self._hold, None
        if held is not None:
            held.released.set()

    def pause(self, method: str, *, is_answered: bool) -> None:
        held = self._hold
        if held is not None and held.takes(method, is_answered=is_answered):
            held.wait()

    def call(self, path: str, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        method = path.rpartition("/")[2]
        if path == SESSION:
            requests = self._session_calls(requests)
        else:
            self.pause(method, is_answered=False)
        metadata = [(key, value) for key, value in context.invocation_metadata() if not key.startswith(OWN_METADATA)]
        left_s = context.time_remaining()
        method_of_service: Any = self._channel.stream_stream(path)
        going = method_of_service(requests, metadata=metadata, timeout=left_s if left_s < FOREVER_S else None)
        context.add_callback(going.cancel)
        try:
            for answer in going:
                self.pause(method, is_answered=True)
                yield answer
        except grpc.RpcError:
            context.set_trailing_metadata(tuple(one for one in going.trailing_metadata() or () if _is_status(one[0])))
            context.abort(going.code(), going.details() or "")

    def _session_calls(self, requests: Iterable[bytes]) -> Iterator[bytes]:
        for request in requests:
            for call in transaction_pb2.SessionRequest.FromString(request).calls:
                self.pause(call.WhichOneof("call") or "", is_answered=False)
            yield request


def _is_status(key: str) -> bool:
    return key == "grpc-status-details-bin" or not key.startswith(OWN_METADATA)


class _Everything(grpc.GenericRpcHandler):
    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        path = handler_call_details.method

        def passed(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            return self._gate.call(path, requests, context)

        return grpc.stream_stream_rpc_method_handler(passed)
