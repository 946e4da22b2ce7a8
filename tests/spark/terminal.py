"""A command on a terminal of its own: what is typed, and what is shown."""

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.spark.processes import ROOT

WAIT_S = 240.0  # a Spark starts
PROMPT = "lake>"


class Terminal:
    """A process on a terminal of its own."""

    def __init__(self, process: "subprocess.Popen[bytes]", keyboard: int) -> None:
        self.process = process
        self._keyboard = keyboard
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._keyboard, text.encode())

    def answers(self, text: str, *shown: str) -> None:
        """What is typed at the prompt brings this."""
        self.wait_for(PROMPT)
        self.type(text + "\r")
        for each in shown:
            self.wait_for(each)

    def wait_for(self, text: str) -> None:
        until = time.monotonic() + WAIT_S
        while text not in self.seen:
            assert time.monotonic() < until, self.seen
            if select.select([self._keyboard], [], [], 0.2)[0]:
                shown = os.read(self._keyboard, 65_536).decode(errors="replace")
                self.seen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r", "", shown)
        self.seen = self.seen.partition(text)[2]


@contextmanager
def on_a_terminal(*command: str, state: Path) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    environment = {
        **os.environ,
        "TERM": "xterm",
        "COLUMNS": "120",
        "XDG_STATE_HOME": str(state),
        "PROMPT_TOOLKIT_NO_CPR": "1",
    }
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        preexec_fn=partial(os.login_tty, theirs),  # noqa: PLW1509 - Ctrl-C reaches only a process whose terminal it is
        pass_fds=[theirs],
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
