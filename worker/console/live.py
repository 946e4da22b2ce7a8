"""Server-sent events: a page learns within a second that what it shows has changed, or that nobody can tell.

The pages of a table share one watch of the service for each caller; it ends some seconds after the last page. Pages of
the whole service are told when the service has made something durable.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from metaservice.client import LakeTXError, MetaClient
from worker.console.visits import is_gone
from worker.web.callers import Callers, Connect

STREAMS_MAX: Final = 200  # pages that listen at one time
WATCHES_MAX: Final = 50
LOOK_S: Final = 0.5
REPEAT_S: Final = 1.0
LINGER_S: Final = 5.0  # a page that is loaded anew finds its watch
BEAT_S: Final = 10.0
BEAT: Final = "event: beat\ndata: 1\n\n"
LOST: Final = "lost"
GONE: Final = "gone"

_log = logging.getLogger("laketx.console")


@dataclass(slots=True, eq=False)
class Listener:
    """A page that listens: what it has not been told yet."""

    news: dict[str, str] = field(default_factory=dict)  # the latest of each kind
    bell: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, kind: str, text: str) -> None:
        self.news[kind] = text
        self.bell.set()


class Watch:
    """The commits of one table for the pages of one caller."""

    def __init__(self, connect: Callable[[], MetaClient], table_id: str, loop: asyncio.AbstractEventLoop) -> None:
        self.listeners: set[Listener] = set()
        self.last: tuple[str, str] | None = None
        self._connect, self._table_id, self._loop = connect, table_id, loop
        self._client: MetaClient | None = None
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="laketx-console-watch", daemon=True).start()

    def end(self) -> None:
        """The thread ends with its connection."""
        self._ended.set()
        client = self._client
        if client is not None:
            threading.Thread(target=client.close, name="laketx-console-close", daemon=True).start()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                with self._connect() as client:
                    self._client = client
                    if self._ended.is_set():  # it was ended while it connected
                        return
                    head = client.get_table(table_id=self._table_id).head_version
                    self._tell("version", str(head))
                    for version in client.watch(self._table_id, after_version=head):
                        self._tell("version", str(version.version))
            except LakeTXError as error:
                if is_gone(error):
                    self._tell("state", GONE)
                    return
                _log.info("watch_lost: %s", error)
                self._tell("state", LOST)
            self._ended.wait(REPEAT_S)

    def _tell(self, kind: str, text: str) -> None:
        if not self._ended.is_set():
            self._loop.call_soon_threadsafe(self._tell_all, kind, text)

    def _tell_all(self, kind: str, text: str) -> None:
        self.last = (kind, text)
        for listener in self.listeners:
            listener.tell(kind, text)


class LiveEvents:
    """All pages that listen."""

    def __init__(self, connect: Connect, callers: Callers) -> None:
        self._connect, self._callers = connect, callers
        self._watches: dict[tuple[str, str], Watch] = {}
        self._streams = 0

    async def stream(self, token: str, table_id: str, is_in: Callable[[], bool]) -> Response:
        """The events of a table, or of the service; they end with the session."""
        is_full = table_id and (token, table_id) not in self._watches and len(self._watches) >= WATCHES_MAX
        if is_full or self._streams >= STREAMS_MAX:
            return PlainTextResponse("Too many pages listen: load this one again to see changes.\n", 503)
        events = self._of_table(token, table_id) if table_id else self._of_service(token)
        return StreamingResponse(self._counted(events, is_in), media_type="text/event-stream")

    async def _counted(self, events: AsyncIterator[str], is_in: Callable[[], bool]) -> AsyncIterator[str]:
        self._streams += 1
        try:
            yield "retry: 1000\n\n"
            async for event in events:
                if not is_in():
                    return
                yield event
        finally:
            self._streams -= 1

    async def _of_table(self, token: str, table_id: str) -> AsyncIterator[str]:
        key, listener = (token, table_id), Listener()
        watch = self._watches.get(key)
        if watch is None:
            watch = Watch(lambda: self._connect(token), table_id, asyncio.get_running_loop())
            self._watches[key] = watch
        watch.listeners.add(listener)
        if watch.last is not None:
            listener.tell(*watch.last)
        try:
            while True:
                try:
                    async with asyncio.timeout(BEAT_S):
                        await listener.bell.wait()
                except TimeoutError:
                    yield BEAT
                    continue
                listener.bell.clear()
                news, listener.news = listener.news, {}
                for kind, text in news.items():
                    yield f"event: {kind}\ndata: {text}\n\n"
        finally:
            watch.listeners.discard(listener)
            asyncio.get_running_loop().call_later(LINGER_S, self._end_unheard, key)

    def _end_unheard(self, key: tuple[str, str]) -> None:
        watch = self._watches.get(key)
        if watch is not None and not watch.listeners:
            del self._watches[key]
            watch.end()

    async def _of_service(self, token: str) -> AsyncIterator[str]:
        """Groups of jobs that were made durable: every change is in one."""
        last, unsaid_s = "", 0.0
        while True:
            try:
                client = (await run_in_threadpool(self._callers.lake, f"Bearer {token}" if token else "")).client
                status = await run_in_threadpool(client.get_status)
                kind, text = "version", f"{status.groups} {status.tasks_queued} {status.leader} {status.workers}"
            except LakeTXError:
                kind, text = "state", LOST
            if text != last:
                yield f"event: {kind}\ndata: {text}\n\n"
                last, unsaid_s = text, 0.0
            elif unsaid_s >= BEAT_S:
                yield BEAT
                unsaid_s = 0.0
            unsaid_s += LOOK_S
            await asyncio.sleep(LOOK_S)

    def close(self) -> None:
        for watch in self._watches.values():
            watch.end()
        self._watches.clear()
