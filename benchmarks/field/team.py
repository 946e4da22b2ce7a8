"""The systems that do a work together, each in its process; one that fails or takes too long is out, and noted."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.field.postgres import Postgres
from benchmarks.field.system import LAKETX, MODULES, POSTGRES, Place
from benchmarks.frame import ROOT
from benchmarks.turns import in_turns

PATIENCE_S: Final = 600.0  # for one call
Request = tuple[str, dict[str, Any]]


class GivenUp(Exception):  # noqa: N818 - an outcome, not a fault
    """A system failed, or took too long."""


class Remote:
    """The process of one system."""

    def __init__(self, place: Place) -> None:
        command = [sys.executable, "-m", "benchmarks.field.child", place.system, str(place.folder), place.postgres]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def call(self, method: str, arguments: dict[str, Any]) -> Any:
        """Return the answer. Raises GivenUp, and after too long a wait ends the process and its writers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"method": method, "arguments": arguments}) + "\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], PATIENCE_S)[0]:
            self.kill()
            raise GivenUp(f"{method}: more than {PATIENCE_S:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise GivenUp(f"{method}: its process ended")
        answer = json.loads(line)
        if "error" in answer:
            raise GivenUp(f"{method}: {answer['error']}")
        return answer["answer"]

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()


class Team:
    """Systems by name. `out` has those that are out of the work, and why."""

    def __init__(self, remotes: dict[str, Remote]) -> None:
        self._remotes = remotes
        self.out: dict[str, str] = {}

    @property
    def names(self) -> list[str]:
        return [name for name in self._remotes if name not in self.out]

    def each(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Call every system once, one after the other; return their answers."""
        answers = {name: self._call(name, (method, arguments)) for name in self.names}
        return {name: answer for name, answer in answers.items() if name not in self.out}

    def turns(self, request: Callable[[str, int], Request], *, runs: int, warm_ups: int = 1) -> dict[str, list[Any]]:
        """Call every system in rounds. `request` has the system's name and the round's number, warm-ups included."""
        rounds = {name: iter(range(runs + warm_ups)) for name in self.names}

        def call(name: str) -> Any:
            return self._call(name, request(name, next(rounds[name])))

        answers = in_turns({name: partial(call, name) for name in rounds}, runs=runs, warm_ups=warm_ups)
        return {name: listed for name, listed in answers.items() if name not in self.out}

    def compare(self, expected: str, request: Callable[[str], dict[str, Any]]) -> dict[str, str]:
        """Compare each system's digest; return what is wrong with whose rows. Raises RuntimeError for LakeTX's."""
        wrong = {}
        for name in self.names:
            answer = self._call(name, ("digest", request(name)))
            if name not in self.out and answer != expected:
                wrong[name] = f"reads {answer} instead of {expected}"
        if LAKETX in wrong:
            raise RuntimeError(f"LakeTX {wrong[LAKETX]}")
        return wrong

    def leave_out(self, name: str, reason: str) -> None:
        if name == LAKETX:
            raise RuntimeError(f"LakeTX: {reason}")
        print(f"{name} is out: {reason}", file=sys.stderr)
        self.out[name] = reason

    def _call(self, name: str, request: Request) -> Any:
        if name in self.out:
            return None
        try:
            return self._remotes[name].call(*request)
        except GivenUp as error:
            self.leave_out(name, str(error))
            return None

    def close(self) -> None:
        for name, remote in self._remotes.items():
            if name in self.out:
                remote.kill()
            else:
                remote.close()


@contextmanager
def team(folder: Path, names: Sequence[str], server: Postgres | None) -> Iterator[Team]:
    """Start the systems' processes, each in a folder of its own."""
    remotes = {}
    for name in names:
        place = folder / str(list(MODULES).index(name))
        place.mkdir(parents=True)
        postgres = server.new_database(folder.name) if server is not None and name == POSTGRES else ""
        remotes[name] = Remote(Place(name, place, postgres))
    systems = Team(remotes)
    try:
        yield systems
    finally:
        systems.close()
