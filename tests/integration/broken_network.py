"""A way to an address that a test can break: it is cut, slow, answers 503 itself, or loses answers."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

from tests.integration.service import TIMEOUT_S

_BUSY: Final = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_LOOK_S: Final = 0.02
_LOST: Final = 0.3  # of answers to PUTs
_CHUNK: Final = 1 << 16


class Network:
    """A thread that carries what goes over ways."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="network", daemon=True)
        self._thread.start()

    def run(self, what: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self.loop).result(TIMEOUT_S)

    def close(self) -> None:
        self.run(self._end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(TIMEOUT_S)
        self.loop.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class Way:
    """Carries connections to a target; what is sent while it is cut comes when it is mended, as over TCP."""

    def __init__(self, network: Network, target: str) -> None:
        self.is_cut = False
        self.delay_s = 0.0
        self.is_busy = False  # of requests of HTTP
        self.loses = False  # likewise: answers to PUTs
        self.lost = 0
        self.holds = b""  # likewise: PUTs whose path has it wait
        self.has_held = False
        self.mutes = b""  # a request with it goes through, and from then on no answer comes
        self.is_muted = False
        self._target = target
        server = network.run(asyncio.start_server(self._accept, "127.0.0.1", 0))
        host, port = server.sockets[0].getsockname()
        self.address = f"{host}:{port}"

    def mend(self) -> None:
        self.is_cut = self.is_busy = self.loses = False
        self.holds, self.has_held = b"", False
        self.mutes, self.is_muted = b"", False
        self.delay_s = 0.0

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._while_cut()
        await self._while_muted()
        host, _, port = self._target.rpartition(":")
        try:
            there, back = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        last = [b""]
        both = [self._send(reader, back, writer, last), self._answer(there, writer, last)]
        tasks = [asyncio.create_task(one) for one in both]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            for one in (writer, back):
                one.close()

    async def _send(
        self,
        reader: asyncio.StreamReader,
        to: asyncio.StreamWriter,
        answers: asyncio.StreamWriter,
        last: list[bytes],
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                await self._while_cut()
                await asyncio.sleep(self.delay_s)
                if self.is_busy:
                    answers.write(_BUSY)
                    await answers.drain()
                    return
                while self.holds and self.holds in data.partition(b"\r\n")[0]:
                    self.has_held = True
                    await asyncio.sleep(_LOOK_S)
                if data[:4] in (b"PUT ", b"GET ", b"HEAD", b"POST", b"DELE"):
                    last[0] = data[:3]
                self.is_muted = self.is_muted or bool(self.mutes and self.mutes in data)
                to.write(data)
                await to.drain()

    async def _answer(self, reader: asyncio.StreamReader, to: asyncio.StreamWriter, last: list[bytes]) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                await self._while_cut()
                await asyncio.sleep(self.delay_s)
                if self.loses and last[0] == b"PUT" and random.random() < _LOST:
                    self.lost += 1
                    return
                if self.is_muted:
                    await self._while_muted()
                    return
                to.write(data)
                await to.drain()

    async def _while_muted(self) -> None:
        while self.is_muted:  # noqa: ASYNC110 - likewise
            await asyncio.sleep(_LOOK_S)

    async def _while_cut(self) -> None:
        while self.is_cut:  # noqa: ASYNC110 - another thread mends it
            await asyncio.sleep(_LOOK_S)
