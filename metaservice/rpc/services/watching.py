"""Watches: streams of a table's commits, in order, without gaps or repeats.

Each commit is read and encoded once, whatever the number of watchers: a frame is the joined bytes of its versions,
because protobuf merges repeated fields of consecutive messages. After a frame a watcher pauses, the longer the more
watchers there are, and commits during the pause go into its next frame. So all watchers together cost a bounded number
of frames per second. An idle watcher costs only its thread.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import grpc
from cachetools import LRUCache

from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.table.model import CommitSummary
from metaservice.rpc.convert import answers, wire
from metaservice.rpc.pipeline.open_streams import Streams
from metaservice.rpc.services.calls import UseCases
from metaservice.service.decider.views import TableView
from metaservice.service.table.commit_notifier import Waiter
from protos.laketx.v1 import read_pb2

FRAME_VERSIONS_MAX: Final = 500
FRAME_BYTES_MAX: Final = 256 << 10
CACHE_VERSIONS_MAX: Final = 2_000
CACHE_BYTES_MAX: Final = 1 << 20
TABLES_CACHED_MAX: Final = 64
REST_S_PER_WATCHER: Final = 0.0006
REST_S_MAX: Final = 0.25
SPREAD: Final = 0.618  # so that watchers who were woken together don't stay together


@dataclass(slots=True)
class Encoded:
    """The newest versions of a table, each as the bytes of an answer that contains only it."""

    frames: OrderedDict[int, bytes] = field(default_factory=OrderedDict)
    size_bytes: int = 0
    mutex: threading.Lock = field(default_factory=threading.Lock)

    def put(self, version: int, frame: bytes) -> None:
        """Adds versions. Older versions than the present ones are not kept: a slow watcher must not displace them."""
        if version <= next(reversed(self.frames), -1):
            return
        self.frames[version] = frame
        self.size_bytes += len(frame)
        while len(self.frames) > CACHE_VERSIONS_MAX or (self.size_bytes > CACHE_BYTES_MAX and len(self.frames) > 1):
            self.size_bytes -= len(self.frames.popitem(last=False)[1])


class Watches:
    """Opens watches."""

    def __init__(self, calls: UseCases, streams: Streams) -> None:
        self._calls = calls
        self._streams = streams
        self._mutex = threading.Lock()
        self._open = 0
        self._opened = 0
        self._encoded: LRUCache[str, Encoded] = LRUCache(TABLES_CACHED_MAX)

    def stop(self) -> None:
        """Ends all watches and refuses new ones."""
        self._calls.bells.stop()

    def open(self, request: read_pb2.WatchRequest, context: grpc.ServicerContext) -> Iterator[bytes]:
        table_id, after = wire.table_id(request.table_id), request.after_version
        table = self._calls.reads.get_table(table_id=table_id)
        if after < -1:
            raise invalid("VERSION_INVALID", what="after_version", value=after)
        if after > table.head:
            raise invalid("VERSION_IN_FUTURE", version=after, head=table.head)
        self._calls.timeline.check_kept(table, after + 1)
        with self._mutex:
            self._open += 1
            self._opened += 1
            number = self._opened
        try:
            yield b""
            yield from self._watch(table, after, 0.75 + SPREAD * number % 1 / 2, context)
        finally:
            with self._mutex:
                self._open -= 1

    def _watch(self, table: TableView, after: int, pace: float, context: grpc.ServicerContext) -> Iterator[bytes]:
        waiter, bells, table_id = Waiter(), self._calls.bells, table.meta.table_id
        context.add_callback(waiter.wake)
        stream = self._streams.of(context)
        stream.ring = waiter.wake
        while context.is_active() and not stream.over:
            if bells.stopping:
                raise MetaError(ErrorKind.UNAVAILABLE, "STOPPING")
            present = self._calls.decider.state.views.find(table_id)
            table = present if present is not None else self._last(table)
            to = table.head
            rests = after < to
            while after < to and context.is_active():
                frame, after = self._frame(table, after, to)
                yield frame
            if present is None:
                raise MetaError(ErrorKind.BLOCKED, "TABLE_DROPPED", table_id=table_id)
            if rests:  # and then look again at all that may have woken it
                is_rung = waiter.sleep(pace * min(REST_S_MAX, REST_S_PER_WATCHER * self._open))
            else:
                bells.wait(waiter, table_id, after)
                is_rung = not bells.is_due(table_id, after)
            if is_rung:
                yield b""  # whoever sends this looks whether the caller may go on

    def _last(self, table: TableView) -> TableView:
        """A dropped table with all its commits: the last ones may have come with the drop."""
        return self._calls.decider.call(lambda: self._calls.catalog.tables.find_last(table))

    def _frame(self, table: TableView, after: int, to: int) -> tuple[bytes, int]:
        """The next commits, and the last of them."""
        if to - after > FRAME_VERSIONS_MAX:
            return self._join(table, after, to, Encoded())
        with self._mutex:
            encoded = self._encoded.setdefault(table.meta.table_id, Encoded())
        with encoded.mutex:
            return self._join(table, after, to, encoded)

    def _join(self, table: TableView, after: int, to: int, encoded: Encoded) -> tuple[bytes, int]:
        frames: list[bytes] = []
        size_bytes = 0
        source: Iterator[CommitSummary] | None = None
        for version in range(after + 1, min(to, after + FRAME_VERSIONS_MAX) + 1):
            frame = encoded.frames.get(version)
            if frame is not None:
                source = None
            else:
                source = source or self._calls.timeline.follow(table, version - 1, to)
                frame = read_pb2.WatchResponse(versions=[answers.version(next(source))]).SerializeToString()
                encoded.put(version, frame)
            frames.append(frame)
            size_bytes += len(frame)
            if size_bytes >= FRAME_BYTES_MAX:
                break
        return b"".join(frames), after + len(frames)
