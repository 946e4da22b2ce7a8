"""A service with short leases, and drivers in processes of their own that can be told, watched and killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark

from tests.integration.service import Service

ROOT = Path(__file__).parents[2]
LEASE_MS = 6_000
WAIT_S = 600.0  # only what never comes takes as long


class Place:
    """A service, and where its tables lie."""

    def __init__(self, folder: Path) -> None:
        self.warehouse = str(folder / "files")
        self.service = Service(folder / "store", "--lease-ms", str(LEASE_MS))
        self.address = self.service.start()


class Driver:
    """Another process with a Spark of its own, in a process group that can be killed."""

    def __init__(self, place: Place, *master: str) -> None:
        command = [sys.executable, "-m", "tests.spark.driver", place.address, place.warehouse, *master]
        self.log = Path(place.warehouse + f"-{time.monotonic_ns()}.log")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as errors:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
            )
        self._answers: dict[int, dict[str, Any]] = {}
        self._changed = threading.Condition()
        self._ids = iter(range(1, 1_000))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answer = json.loads(line)
            with self._changed:
                self._answers[answer["id"]] = answer
                self._changed.notify_all()

    def tell(self, do: str, **command: Any) -> int:
        number = next(self._ids)
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"id": number, "do": do, **command}).encode() + b"\n")
        self.process.stdin.flush()
        return number

    def answer(self, number: int) -> dict[str, Any]:
        with self._changed:
            self._changed.wait_for(lambda: number in self._answers or not self._reader.is_alive(), WAIT_S)
            assert number in self._answers, self.silent()
            found = self._answers[number]
        assert "error" not in found, found["error"]
        return found

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    def silent(self) -> str:
        """Why it never answered: how it ended, or what its threads and those of its Spark wait for."""
        if self.process.poll() is not None:
            return f"ended with {self.process.returncode}: {self.said()}"
        os.killpg(self.process.pid, signal.SIGQUIT)
        time.sleep(2.0)
        return f"still at work: {self.log.read_text(errors='replace')[-30_000:]}"

    def kill(self) -> None:
        """With its Spark: nothing of it gets to say goodbye."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(WAIT_S)


class Cluster:
    """A standalone Spark with executors on two loopback addresses: a task is only copied to another host."""

    HOSTS = ("127.0.0.1", "127.0.0.2")

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            self.address = self._start("deploy.master.Master", self.HOSTS[0], "Starting Spark master at ")
            for host in self.HOSTS:
                size = ["--cores", "2", "--memory", "1g", "--work-dir", str(folder / f"work-{host}")]
                self._start("deploy.worker.Worker", host, "Successfully registered with master ", *size, self.address)
        except BaseException:
            self.kill()
            raise

    def _start(self, what: str, host: str, sign: str, *more: str) -> str:
        """What its log says after the sign that it stands."""
        command = [str(Path(pyspark.__file__).parent / "bin/spark-class"), f"org.apache.spark.{what}"]
        command += ["--host", host, "--port", "0", "--webui-port", "0", *more]
        own = {"SPARK_LOCAL_IP": host, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
        log = self._folder / f"{what}-{host}.log"
        with log.open("wb") as out:
            one = subprocess.Popen(command, env=os.environ | own, stdout=out, stderr=out, start_new_session=True)
        self._processes.append(one)
        wait_until(lambda: sign in log.read_text() or one.poll() is not None)
        assert sign in log.read_text(), log.read_text()[-3000:]
        return log.read_text().split(sign)[1].split()[0]

    def kill(self) -> None:
        for one in self._processes:
            os.killpg(one.pid, signal.SIGKILL)
            one.wait(WAIT_S)


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)
