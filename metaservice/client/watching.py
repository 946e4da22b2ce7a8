"""A watch for its reader: one sequence of commits, however often the underlying stream breaks.

Every stream begins after the last version delivered, so no commit is skipped or repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Protocol

import grpc

from metaservice.client.errors import ErrorKind, build_error, decode_rpc_error
from metaservice.client.retries import Patience
from protos.laketx.v1 import read_pb2


class Stream(Protocol):
    """The call object of gRPC for a stream of answers."""

    def __iter__(self) -> Iterator[read_pb2.WatchResponse]: ...

    def cancel(self) -> object: ...


def watch(
    open_stream: Callable[[read_pb2.WatchRequest], Stream],
    table_id: str,
    after_version: int,
    patience: Patience,
    is_closed: Callable[[], bool],
) -> Generator[read_pb2.Version]:
    """Ends when the client is closed; raises errors that repeating can't solve, or if nothing came for too long."""
    request = read_pb2.WatchRequest(table_id=table_id, after_version=after_version)
    while not is_closed():
        try:
            stream = open_stream(request)
        except ValueError:  # gRPC's word for a channel that was closed meanwhile
            if is_closed():
                return
            raise
        try:
            for response in stream:
                patience.rewarded()
                for version in response.versions:
                    if version.version != request.after_version + 1:
                        raise _out_of_order(request.after_version, version.version)
                    request.after_version = version.version
                    yield version
            error = build_error(ErrorKind.UNAVAILABLE, "WATCH_ENDED", "the service ended the stream")
        except grpc.RpcError as broken:
            error = decode_rpc_error(broken)
        finally:
            stream.cancel()
        if not is_closed():
            patience.pause(error)


def _out_of_order(last: int, version: int) -> Exception:
    facts = {"last": str(last), "found": str(version)}
    return build_error(ErrorKind.CORRUPT, "WATCH_OUT_OF_ORDER", "the stream is not the log", facts)
