"""The command as a person runs it: in a pipe, or on a terminal of some width where someone types."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.server import ROOT
from tests.forked_programs import run_forked

LAKETX = [sys.executable, "-m", "metaservice.cli"]
DEADLINE_S = 60.0
STYLE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@dataclass
class Ended:
    """A command that ran to its end."""

    code: int
    out: str
    err: str = ""

    def lines(self) -> list[str]:
        """Of a terminal, too: styles left out, line ends made equal."""
        return STYLE.sub("", self.out).replace("\r\n", "\n").rstrip("\n").split("\n")


@dataclass
class Shell:
    """Where a command runs: the service that it talks to by default."""

    server: str
    user: str = "ana"

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        mine = {"LAKETX_SERVER": self.server, "LAKETX_USER": self.user, "TERM": "xterm", "PYTHONPATH": str(ROOT)}
        return {**kept, **mine, **more}

    def run(self, *words: str, stdin: str = "", environment: Mapping[str, str] | None = None) -> Ended:
        """In a pipe."""
        known = self.environment(**(environment or {}))
        done = run_forked("metaservice.cli", *words, stdin=stdin, env=known, timeout=DEADLINE_S)
        return Ended(done.returncode, done.stdout, done.stderr)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """In a pipe, not waited for."""
        return subprocess.Popen(
            [*LAKETX, *words],
            cwd=ROOT,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def terminal(
        self, *words: str, width: int = 80, types: Sequence[tuple[str, str]] = (), command: Sequence[str] = LAKETX
    ) -> Ended:
        """On a terminal; `types`: after a text has been shown, what is typed."""
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        process = subprocess.Popen(
            [*command, *words],
            cwd=ROOT,
            env=self.environment(),
            stdin=follower,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
            preexec_fn=become_foreground,  # noqa: PLW1509 - it makes one system call
        )
        os.close(follower)
        try:
            shown = converse(leader, list(types))
            return Ended(process.wait(DEADLINE_S), shown)
        finally:
            os.close(leader)
            if process.poll() is None:
                process.kill()
                process.wait()


def become_foreground() -> None:
    """So that ^C becomes a signal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def converse(leader: int, types: list[tuple[str, str]]) -> str:
    """Reads to the end, and answers what is waited for in its order."""
    shown, seen = b"", 0
    deadline_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline_s:
        if types and types[0][0].encode() in shown[seen:]:
            seen = len(shown)
            os.write(leader, types.pop(0)[1].encode())
        ready, _, _ = select.select([leader], [], [], deadline_s - time.monotonic())
        if not ready:
            break
        try:
            part = os.read(leader, 1 << 16)
        except OSError:  # the other side has closed
            return shown.decode(errors="replace")
        if not part:
            return shown.decode(errors="replace")
        shown += part
    raise AssertionError(f"the command went on for too long; it said {shown.decode(errors='replace')!r}")


def interrupt(process: subprocess.Popen[str]) -> Ended:
    """As Ctrl-C does it."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=DEADLINE_S)
    return Ended(process.returncode, out, err)


def in_one_process(*lines: str) -> list[str]:
    """Several commands, one after another, up to the first that fails; as `laketx` runs each, but more patient."""
    program = "import os, sys; os.environ['GRPC_VERBOSITY'] = 'NONE'\n"  # gRPC's words are not ours
    program += "from metaservice.cli import command_line\nfor line in sys.argv[1:]:\n"
    program += f"    code = command_line.run([*line.split(), '--timeout', '{DEADLINE_S:.0f}'])\n"
    program += "    if code: sys.exit(code)"
    return [sys.executable, "-c", program, *lines]


def install(folder: Path) -> Path:
    """A `laketx` to be found on the PATH, in a folder of its own."""
    folder.mkdir()
    command = folder / "laketx"
    command.write_text(f'#!/bin/sh\nexec {LAKETX[0]} -m {LAKETX[2]} "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    return folder
