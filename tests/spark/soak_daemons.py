"""Two workers of table services in processes of their own, killed at random and started again.

They use the Spark of the soak through Spark Connect, which goes on with what a dead worker has begun; or one each.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
COUNT: Final = 2
LOOK_EVERY_S: Final = 0.1
LOOKS_MAX: Final = 60
SUBMIT: Final = (
    "--master local[1] --driver-memory 512m --conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1"
    " --conf spark.driver.bindAddress=127.0.0.1 --conf spark.sql.shuffle.partitions=2"
    " --conf spark.sql.session.timeZone=UTC pyspark-shell"
)


class Daemons:
    def __init__(self, address: str, warehouse: str, folder: Path, chance: random.Random, remote: str) -> None:
        own = {"PYSPARK_SUBMIT_ARGS": SUBMIT}
        self._environment = {"PYSPARK_PYTHON": sys.executable, **({"SPARK_REMOTE": remote} if remote else own)}
        self._command = [
            sys.executable,
            "-m",
            "laketx.commands.worker",
            "--server",
            address,
            "--warehouse",
            warehouse,
            "--idle",
            "0.2",
        ]
        self._log = folder / "daemons.log"
        self._chance = chance
        self._lock = threading.Lock()
        self._is_over = False
        self._processes: list[subprocess.Popen[bytes]] = []
        self.kills = 0

    def run(self, over: threading.Event, is_busy: Callable[[], bool]) -> None:
        """Until it is over. A kill waits until one of them is ready and, mostly, until some task is being worked on."""
        self._start_missing()
        while not over.wait(self._chance.uniform(0.5, 4.0)):
            victim = self._chance.randrange(COUNT)
            self._wait_ready(victim, over)
            looks = LOOKS_MAX if self._chance.random() < 0.8 else 0
            while looks and not is_busy() and not over.wait(LOOK_EVERY_S):
                looks -= 1
            if over.wait(self._chance.random()):
                return
            self._kill(self._processes[victim])
            self.kills += 1
            del self._processes[victim]
            self._start_missing()

    def kill_all(self) -> None:
        with self._lock:
            self._is_over = True
            while self._processes:
                self._kill(self._processes.pop())

    def _start_missing(self) -> None:
        with self._lock, self._log.open("ab") as log:
            while len(self._processes) < COUNT and not self._is_over:
                process = subprocess.Popen(
                    self._command,
                    cwd=ROOT,
                    env=self._clean_environment(),
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                )
                self._processes.append(process)

    def _clean_environment(self) -> dict[str, str]:
        """Without what this process has told its own Spark."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        return kept | self._environment

    def _wait_ready(self, number: int, over: threading.Event) -> None:
        """Its first line says so; it comes once."""
        process = self._processes[number]
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        while not process.stdout.read() and not over.wait(LOOK_EVERY_S):
            if process.poll() is not None:
                raise AssertionError(f"a worker ended with {process.poll()}: {self._log.read_text()[-3000:]}")

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        """With its Spark."""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
