"""Programs of ours that start at once: each is forked from a process that has imported their modules before.

The service's imports take most of a second, and the tests start more than a thousand programs. A forked program has its
own pid, environment, folder and streams; it ends, and is killed, as any other process. One that becomes another program
of ours, as `laketx backup list` does, goes on with the imported modules.
"""

from __future__ import annotations

import atexit
import os
import runpy
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO, Any, Final, NoReturn

ROOT: Final = Path(__file__).resolve().parent.parent
MODULES: Final = [  # that the programs import
    "metaservice.server.process",
    "metaservice.server.settings",
    "metaservice.server.wiring",
    "metaservice.cli.command_line",
    "metaservice.offline.command",
    "metaservice.store.engines.slate",
    "metaservice.store.lease.lease_object",
]
STREAMS: Final = ("stdin", "stdout", "stderr")

_context = get_context("forkserver")
_context.set_forkserver_preload(MODULES)


class ForkedProgram(subprocess.Popen[str]):
    """`python -m MODULE WORD…` in the project's folder, as `subprocess.Popen` with text would run it."""

    def __init__(  # the real one's would start the process
        self,
        module: str,
        words: Sequence[str],
        *,
        stdin: int = subprocess.DEVNULL,
        stdout: int | IO[Any] = subprocess.PIPE,
        stderr: int | IO[Any] = subprocess.PIPE,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        umask: int | None = None,
        start_new_session: bool = False,
    ) -> None:
        self.args = [module, *words]
        self.stdin = self.stdout = self.stderr = None  # those that are pipes follow
        self.returncode: int | None = None
        self._communication_started = False
        self._input = None
        self.encoding, self.errors, self.text_mode = "utf-8", None, True
        self._polls = threading.Lock()
        ends = [self._end_of(*each) for each in zip(STREAMS, (stdin, stdout, stderr), strict=True)]
        passed = [Connection(os.dup(one)) for one in pass_fds]
        known = dict(os.environ if env is None else env)
        own = (known, _umask() if umask is None else umask, start_new_session)
        given = (module, list(words), *own, ends, passed)
        self._process = _context.Process(target=_run_module, args=given, daemon=True)
        self._process.start()
        self._child_created = True
        self.pid = int(self._process.pid or 0)
        for end in (*ends, *passed):
            end.close()

    def _end_of(self, name: str, wanted: int | IO[Any]) -> Connection:
        """The process's end of a stream; ours, if it is a pipe, is the attribute of that name."""
        if wanted == subprocess.DEVNULL:
            return Connection(os.open(os.devnull, os.O_RDWR))
        if wanted != subprocess.PIPE:
            return Connection(os.dup(wanted if isinstance(wanted, int) else wanted.fileno()))
        theirs, ours = os.pipe()
        if name != "stdin":
            theirs, ours = ours, theirs
        setattr(self, name, os.fdopen(ours, "w" if name == "stdin" else "r", encoding="utf-8"))
        return Connection(theirs)

    def poll(self) -> int | None:
        with self._polls:
            if self.returncode is None:
                self.returncode = self._process.exitcode
        return self.returncode

    def _internal_poll(self, _deadstate: int | None = None) -> int | None:
        return self.poll()

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            wait([self._process.sentinel], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code


def run_forked(
    module: str, *words: str, stdin: str = "", env: Mapping[str, str] | None = None, timeout: float
) -> subprocess.CompletedProcess[str]:
    """To its end, as `subprocess.run` would."""
    process = ForkedProgram(module, words, stdin=subprocess.PIPE, env=env)
    try:
        out, err = process.communicate(stdin, timeout=timeout)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return subprocess.CompletedProcess(process.args, process.wait(), out, err)


def _umask() -> int:
    """This process's."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("Umask:")[2].split(maxsplit=1)[0], base=8)


def start_folder_server(words: list[str], output: IO[bytes], lock: int) -> subprocess.Popen[str]:
    """As `metaservice.client.folder_service` starts it."""
    return ForkedProgram(
        "metaservice", words, stdout=output, stderr=output, pass_fds=[lock], umask=0o077, start_new_session=True
    )


def _run_module(
    module: str,
    words: list[str],
    known: dict[str, str],
    umask: int,
    start_new_session: bool,
    ends: list[Connection],
    passed: list[Connection],
) -> None:
    """In the process that was forked, which keeps open what was passed to it."""
    if start_new_session:
        os.setsid()
    for number, end in enumerate(ends):
        os.dup2(end.fileno(), number)
        end.close()
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(known)
    os.umask(umask)
    os.chdir(ROOT)
    setattr(os, "execv", _become)  # noqa: B010 - it takes what ours gives it
    try:
        while True:
            sys.argv = [module, *words]
            try:
                runpy.run_module(module, run_name="__main__", alter_sys=True)
                return
            except _BecomingError as other:
                module, words = other.module, other.words
    finally:
        atexit._run_exitfuncs()


class _BecomingError(BaseException):
    """The process is to run another module from now on."""

    def __init__(self, module: str, words: list[str]) -> None:
        super().__init__(module)
        self.module = module
        self.words = words


def _become(program: str, words: list[str]) -> NoReturn:
    """For `os.execv`, after which Python would import everything again."""
    assert words[:2] == [program, "-m"] == [sys.executable, "-m"], f"only a module of ours, not {words}"
    raise _BecomingError(words[2], words[3:])
