"""The web console beside the service: a process of its own, which ends with the service, and whose end ends nothing.

It holds the reading end of a pipe, and ends when the service's end is closed, however the service ended.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Final

from metaservice.server.settings import Settings
from metaservice.shared.log import CONSOLE_ENDED, CONSOLE_LOG, CONSOLE_STARTED, event

AGAIN_S, AGAIN_S_MAX = 1.0, 60.0  # until it is started again, twice as long each time
STEADY_S: Final = 60.0  # one that ran for so long begins with the first of them
STOP_S: Final = 5.0
LINE_CHARS_MAX: Final = 2_000
EVERY_ADDRESS: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - to tell them from one


class ConsoleProcess:
    """Starts the console, and starts it again when it ended. Without an address for it, it does nothing."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._running: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None

    def stand_by(self, address: str) -> None:
        """Starts it at a standby, if it was told the other processes, of which one answers it."""
        if self._settings.console_server:
            self.start(address)

    def start(self, address: str) -> None:
        """`address`: where the service listens."""
        if not self._settings.console or self._thread is not None:
            return
        command = console_command(self._settings, address)
        self._thread = threading.Thread(target=self._run, args=(command,), name="console", daemon=True)
        self._thread.start()

    def _run(self, command: list[str]) -> None:
        again_s = AGAIN_S
        while not self._stopping.is_set():
            began_s = time.monotonic()
            outcome: dict[str, object]
            try:
                outcome = {"exit_code": self._play(command)}
            except OSError as error:  # the system gives no process
                outcome = {"error": str(error)}
            if time.monotonic() - began_s > STEADY_S:
                again_s = AGAIN_S
            if self._stopping.is_set():
                return
            event(CONSOLE_ENDED, **outcome, again_s=again_s)
            self._stopping.wait(again_s)
            again_s = min(2 * again_s, AGAIN_S_MAX)

    def _play(self, command: list[str]) -> int:
        """Its exit code."""
        with self._lock:
            if self._stopping.is_set():
                return 0
            running = subprocess.Popen(  # noqa: S603 - this Python, no shell
                command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
            )
            self._running = running
        event(CONSOLE_STARTED, listen=self._settings.console, pid=running.pid)
        assert running.stderr is not None
        while line := running.stderr.readline(LINE_CHARS_MAX):
            if line.strip():
                event(CONSOLE_LOG, text=line.rstrip())
        code = running.wait()
        with suppress(OSError):
            assert running.stdin is not None
            running.stdin.close()
        running.stderr.close()
        return code

    def stop(self) -> None:
        """Ends it; pages that listen for events get no more."""
        with self._lock:
            self._stopping.set()
            running = self._running
        if running is not None:
            with suppress(OSError):
                assert running.stdin is not None
                running.stdin.close()
            try:
                running.wait(STOP_S)
            except subprocess.TimeoutExpired:
                running.kill()
        if self._thread is not None:
            self._thread.join(STOP_S)


def console_command(settings: Settings, address: str) -> list[str]:
    """`laketx console` with the settings of the service; the rest it reads from the environment, as it does alone."""
    words = ["--server", settings.console_server or own_address(settings, address)]
    words += ["console", "--beside-service", "--listen", settings.console]
    named = {
        "--tls-cert": settings.tls_cert,
        "--tls-key": settings.tls_key,
        "--oidc-issuer": settings.oidc_issuer,
        "--oidc-ca": settings.oidc_ca,
    }
    words += [word for option, value in named.items() if value for word in (option, value)]
    return [sys.executable, "-m", "metaservice.cli", *words]


def own_address(settings: Settings, address: str) -> str:
    """Return the address at which a client on this machine reaches the service."""
    if address.startswith("unix"):
        return address
    host, _, port = (settings.advertise or address).rpartition(":")
    return f"laketx{'s' if settings.tls_cert else ''}://{EVERY_ADDRESS.get(host, host)}:{port}"
