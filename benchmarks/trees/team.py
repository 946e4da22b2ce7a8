"""Processes of both trees, and what each unit of work takes of them: seconds by the clock, and of the processors."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.frame import ROOT, scratch
from benchmarks.serving import processor_seconds

SETTLES_S = 0.01  # what a unit leaves to threads in the background belongs to it
COMPILERS = re.compile("C[12] Compiler")
TICKS = os.sysconf("SC_CLK_TCK")


class Sample(NamedTuple):
    """What a unit took: by the clock, of the processors by all processes of its tree, and by the service among them.

    What the JVM's compiler took stands apart: it depends on how often code ran before, not on what a unit does.
    """

    wall: float
    cpu: float
    service: float
    compiler: float


def seconds_of_tree(root: int) -> dict[int, float]:
    """Of a process and of each of its descendants: their own, and those of their children that have ended."""
    children: dict[int, list[int]] = {}
    ended: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        pid = int(path.name)
        children.setdefault(int(fields[1]), []).append(pid)
        ended[pid] = (int(fields[13]) + int(fields[14])) / TICKS
    seconds: dict[int, float] = {}
    queue = [root]
    while queue:
        pid = queue.pop()
        queue += children.get(pid, ())
        try:
            seconds[pid] = processor_seconds(pid) + ended.get(pid, 0.0)
        except OSError:
            continue
    return seconds


def compiler_seconds(pids: Iterable[int]) -> float:
    """Of the threads among these processes that compile a JVM's code. None of them ends: the session says so."""
    taken = 0
    for pid in pids:
        for path in Path(f"/proc/{pid}/task").glob("*"):
            try:
                if COMPILERS.match((path / "comm").read_text(encoding="utf-8")):
                    taken += int((path / "schedstat").read_text(encoding="utf-8").split()[0])
            except OSError:  # it has ended
                continue
    return taken / 1e9


class Child:
    """A process of a tree, with its service."""

    def __init__(self, running: subprocess.Popen[str]) -> None:
        self._running = running
        self._service: int = self._answer()["service"]

    def make(self, row: str) -> None:
        self._ask("make", row)

    def run(self, row: str) -> Sample:
        self._ask("before", row)
        before = seconds_of_tree(self._running.pid)
        compiled = -compiler_seconds(before)
        wall = self._ask("run", row)["wall"]
        time.sleep(SETTLES_S)
        after = seconds_of_tree(self._running.pid)
        compiled += compiler_seconds(after)
        taken = {pid: seconds - before.get(pid, 0.0) for pid, seconds in after.items()}
        return Sample(wall, sum(taken.values()) - compiled, taken[self._service], compiled)

    def _ask(self, step: str, row: str) -> dict[str, Any]:
        assert self._running.stdin is not None
        self._running.stdin.write(f"{step} {row}\n")
        self._running.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._running.stdout is not None
        line = self._running.stdout.readline()
        if not line:
            raise RuntimeError(f"a process ended with {self._running.wait()}: its errors stand above")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def child(tree: Path, module: str) -> Iterator[Child]:
    """A process with the packages of this tree, and with the benchmarks of ours: both trees do the same work."""
    with scratch() as folder:
        (folder / "benchmarks").symlink_to(ROOT / "benchmarks")
        command = [str(tree / ".venv" / "bin" / "python"), "-m", "benchmarks.trees.child", module, str(folder)]
        env = {**os.environ, "PYTHONPATH": str(folder), "PYTHONHASHSEED": "0", "TMPDIR": tempfile.gettempdir()}
        with subprocess.Popen(
            command, cwd=folder, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as running:
            assert running.stdin is not None
            try:
                yield Child(running)
            finally:
                running.stdin.close()  # it ends when there is nothing more to read
                try:
                    running.wait(120)
                except subprocess.TimeoutExpired:
                    for pid in seconds_of_tree(running.pid):  # its service too
                        os.kill(pid, signal.SIGKILL)


def measure(children: dict[str, Child], row: str, order: Sequence[str], warm_ups: int) -> dict[str, list[Sample]]:
    """Units of the row, in this order."""
    for each in children.values():
        each.make(row)
    for _ in range(warm_ups):
        for each in children.values():
            each.run(row)
    samples: dict[str, list[Sample]] = {name: [] for name in children}
    for name in order:
        samples[name].append(children[name].run(row))
    return samples
