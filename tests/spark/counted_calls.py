"""A service behind a proxy that counts the calls of a statement."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from pyspark.sql import SparkSession

from tests.integration.service import Service, service
from worker.spark.catalog_jar import catalog_settings

BACKGROUND = {"RenewPin", "Unpin"}  # of pins; a transaction that its statement renews is counted


class Counted(grpc.GenericRpcHandler):
    """Passes calls on to a service, and counts them; those that are refused the service doesn't know."""

    def __init__(self, address: str, *refused: str) -> None:
        self._refused = refused
        self._channel = grpc.insecure_channel(address)
        self._lock = threading.Lock()
        self._calls: list[str] = []

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        method = handler_call_details.method
        with self._lock:
            self._calls.append(method.rpartition("/")[2])

        def forward(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            if method.rpartition("/")[2] in self._refused:
                context.abort(grpc.StatusCode.UNIMPLEMENTED, "not known")
            call: Any = self._channel.stream_stream(method)
            own = tuple((key, value) for key, value in context.invocation_metadata() if key.startswith("x-"))
            answers = call(requests, timeout=context.time_remaining(), metadata=own)
            try:
                yield from answers
            except grpc.RpcError:
                context.set_trailing_metadata(answers.trailing_metadata())
                context.abort(answers.code(), answers.details())

        return grpc.stream_stream_rpc_method_handler(forward)

    def taken(self) -> list[str]:
        """Those since the last time, but what goes on in the background."""
        with self._lock:
            found, self._calls = self._calls, []
        return [call for call in found if call not in BACKGROUND]


@contextmanager
def counted_service(folder: Path, *refused: str) -> Iterator[tuple[Counted, str, Service]]:
    """With the proxy's address."""
    with service(folder) as (running, _):
        calls = Counted(running.address, *refused)
        server = grpc.server(ThreadPoolExecutor(16))
        server.add_generic_rpc_handlers((calls,))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield calls, f"127.0.0.1:{port}", running
        finally:
            server.stop(None).wait()


def session_on(spark: SparkSession, catalog: str, address: str, files: Path) -> SparkSession:
    """A session whose catalog is a service's lake."""
    session = spark.newSession()
    for key, value in catalog_settings(catalog, f"laketx://{address}", str(files)).items():
        session.conf.set(key, value)
    return session
