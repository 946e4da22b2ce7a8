"""Chunks in processes of this machine, without Spark and Java.

Little work is done in this process. Other work gets child processes, as many at once as there are cores and memory for,
whichever compactions they belong to. A child answers chunk by chunk and ends when its input does, so none outlives the
process that started it, however that ends.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from worker.files.storage import has_opener
from worker.services.compaction.chunks import Chunk, Result, Settings, run_chunk
from worker.services.compaction.jobs import Job, ProcessKilledError, bytes_of

LITTLE_BYTES: Final = 16 << 20  # of inputs, for which no process is started
PROCESS_BYTES: Final = 1 << 30  # the memory of a child
CGROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")
ROOT: Final = Path(__file__).parents[2]  # where these packages are, whatever the caller's path


def processes_max() -> int:
    """The number of children that this machine has cores and memory for."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):
        memory = min(memory, int(CGROUP_LIMIT.read_text(encoding="ascii")))
    return max(1, min(len(os.sched_getaffinity(0)), memory // PROCESS_BYTES))


_slots = threading.BoundedSemaphore(processes_max())  # of all compactions of this process


class Processes:
    """The runner of this machine."""

    def __init__(self, little_bytes: int = LITTLE_BYTES) -> None:
        self._little_bytes = little_bytes

    def run(self, settings: Settings, chunks: Sequence[Chunk], job: Job) -> list[Result]:
        job.begins(chunks)
        if sum(map(bytes_of, chunks)) <= self._little_bytes or has_opener(settings.table_folder):
            return [_run_here(settings, chunk, job) for chunk in chunks]
        return _Children(settings, chunks, job).run()


def _run_here(settings: Settings, chunk: Chunk, job: Job) -> Result:
    job.check()
    result = run_chunk(settings, chunk, check=job.check)
    job.did(chunk)
    return result


class _Children:
    """The children of one job. The first error stops all of them."""

    def __init__(self, settings: Settings, chunks: Sequence[Chunk], job: Job) -> None:
        self._settings = settings
        self._job = job
        self._lock = threading.Lock()
        self._waiting = deque(enumerate(chunks))
        self._running: list[_Child] = []
        self._results: dict[int, Result] = {}
        self._error: BaseException | None = None
        self._count = min(len(chunks), processes_max())

    def run(self) -> list[Result]:
        with ThreadPoolExecutor(self._count, thread_name_prefix="laketx-compact") as pool:
            for _ in range(self._count):
                pool.submit(self._serve)
        self._job.check()
        if self._error is not None:
            raise self._error
        return [self._results[at] for at in sorted(self._results)]

    def _serve(self) -> None:
        """Works with a child of its own until nothing waits."""
        try:
            while not _slots.acquire(timeout=0.1):
                self._job.check()
            try:
                with _Child(self._count) as child, self._job.stopped_by(child.kill):
                    self._running.append(child)
                    while (work := self._next()) is not None:
                        at, chunk = work
                        self._results[at] = child.run(self._settings, chunk)
                        self._job.did(chunk)
            finally:
                _slots.release()
        except BaseException as error:  # noqa: BLE001 - raised where the job runs
            with self._lock:
                self._error = self._error or error
                self._waiting.clear()
                for child in self._running:
                    child.kill()

    def _next(self) -> tuple[int, Chunk] | None:
        with self._lock:
            return self._waiting.popleft() if self._waiting else None


class _Child:
    """A process that runs chunks, see `worker.services.compaction.chunk_process`."""

    def __init__(self, siblings: int) -> None:
        threads = str(max(1, len(os.sched_getaffinity(0)) // siblings))
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "worker.services.compaction.chunk_process"],  # no module of the current folder
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
                "POLARS_MAX_THREADS": threads,
                "OMP_NUM_THREADS": threads,  # of Arrow
            },
            start_new_session=True,  # a terminal's Ctrl-C is for the worker, which lets its tasks end
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is not None:
            self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                stream.close()  # type: ignore[union-attr] # it ends with its input
        self._process.wait()

    def kill(self) -> None:
        self._process.kill()

    def run(self, settings: Settings, chunk: Chunk) -> Result:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            pickle.dump((settings, chunk), stdin)
            stdin.flush()
            answer: Any = pickle.load(stdout)  # noqa: S301 - of a process of this one
        except (OSError, EOFError, pickle.UnpicklingError):
            self.kill()
            raise ProcessKilledError(_end_of(self._process)) from None
        if isinstance(answer, BaseException):
            raise answer
        assert isinstance(answer, Result)
        return answer


def _end_of(process: subprocess.Popen[bytes]) -> str:
    code = process.wait()
    how = f"was ended by signal {-code}" if code < 0 else f"ended with {code}"
    return f"process {process.pid} of the compaction {how}: nothing was committed; is there too little memory?"
