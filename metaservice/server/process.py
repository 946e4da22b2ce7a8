"""The process of a service: its clocks, its limits, how it ends, and the process that verifies its backups."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import traceback
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NoReturn

from metaservice.shared.log import BROKEN, FENCED, LEASE_LOST, event
from metaservice.store.backups.repository import Verification
from metaservice.store.port import StoreFenced

EXIT_BROKEN = 70
EXIT_UNUSABLE = 74
EXIT_LEADS_NO_MORE = 75  # to be started again: it stands by then
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
DESCRIPTORS_MAX = 65_536
_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class RealClocks:
    """The machine's clocks; the monotonic one counts sleep too, where the machine has one that does."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def mono_ms(self) -> int:
        return time.clock_gettime_ns(_MONOTONIC) // 1_000_000


def read_uptime() -> tuple[str, int]:
    """The machine's boot and the milliseconds since; without a name if the system doesn't report it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return boot, int(float(Path("/proc/uptime").read_text(encoding="ascii").split()[0]) * 1000)
    except (OSError, ValueError, IndexError):
        return "", 0


def product_version() -> str:
    try:
        return version("laketx")
    except PackageNotFoundError:  # run from a tree that was never installed
        return "unknown"


def fail_stop(error: BaseException) -> None:
    """Ends the process at once after a broken invariant; the next start reads the log, which is the truth."""
    if isinstance(error, StoreFenced):
        event(FENCED, why=str(error))
        _end_leading()
    event(BROKEN, error=repr(error), where=traceback.format_exception(error)[-3:])
    sys.stderr.flush()
    os._exit(EXIT_BROKEN)


def lost_the_lease(why: str) -> NoReturn:
    event(LEASE_LOST, why=why)
    _end_leading()


def _end_leading() -> NoReturn:
    """Ends the process at once, without a word to anybody who waits: another one answers by now, or will."""
    sys.stderr.flush()
    os._exit(EXIT_LEADS_NO_MORE)


def end_process(code: int) -> NoReturn:
    """Ends the process at once; everything is closed.

    A normal exit waits for native libraries, whose threads may wait for each other, and keeps the folder's lock.
    """
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def tune_interpreter() -> None:
    # A look at 2,000 young objects takes a millisecond or less, at ten times as many 8 to 35 ms, in which nobody is
    # answered. What lives long is no garbage: it is looked at after a thousand of these looks.
    gc.set_threshold(2_000, 1_000, 50)
    sys.setswitchinterval(0.001)  # how long a thread waits after a sync; by default five times as long


def raise_descriptor_limit() -> int:
    """Raises the limit as far as the system allows; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft == resource.RLIM_INFINITY or soft >= target:
        return DESCRIPTORS_MAX if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    return target


def end_on_lost_thread() -> None:
    """Ends the process if a thread, gRPC's own included, ends with an exception: it would no longer answer."""

    def lost(given: threading.ExceptHookArgs) -> None:
        if given.exc_value is not None and not isinstance(given.exc_value, SystemExit):
            fail_stop(given.exc_value)

    threading.excepthook = lost


def keep_files_private() -> int:
    """Whatever the process makes from now on is its user's alone, whoever starts it; returns the umask of before."""
    return os.umask(0o077)


def make_private(folder: Path) -> None:
    """Restrict an existing data folder to the user, if it is empty or contains a store: not a shared one like /tmp."""
    with contextlib.suppress(OSError):  # another user's, such as a volume's: its rights are that one's
        status = folder.stat()
        names = {path.name for path in folder.iterdir()}
        if status.st_uid != os.getuid() or (names and "CURRENT" not in names):
            return
        if status.st_mode & 0o077:
            folder.chmod(0o700)
        for file in folder.iterdir():
            if file.is_file() and not file.is_symlink() and file.stat().st_mode & 0o077:
                file.chmod(0o600)


def say_listening(address: str) -> None:
    sys.stdout.write(f"listening on {address}\n")
    sys.stdout.flush()


class VerifyingProcess:
    """Verifies a backup in a separate process: what a damaged one does to its reader is not done to the service.

    At most one at a time; `stop` may come from another thread.
    """

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._running: subprocess.Popen[str] | None = None

    def verify(self, repository: str, backup_id: str) -> Verification:
        """Verifies a backup in a process of its own. Raises OSError if that process fails."""
        self._scratch.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "metaservice", "backups", "verify", repository, "--backup", backup_id]
        command += ["--scratch", str(self._scratch), "--json"]
        self._running = subprocess.Popen(  # noqa: S603 - this Python, no shell
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        output, errors = self._running.communicate()
        code, self._running = self._running.returncode, None
        try:
            return Verification(**json.loads(output))
        except (ValueError, TypeError):
            raise OSError(f"the verification ended with {code}: {errors.strip()[-500:]}") from None

    def stop(self) -> None:
        running = self._running
        if running is not None:
            running.kill()
