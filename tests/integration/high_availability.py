"""Processes of one service on a bucket, writers and readers beside them, and what they may have seen."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from metaservice.client import CommitOutcomeUnknownError, LakeTXError, MetaClient
from protos.laketx.v1 import common_pb2
from tests.conformance.play import new_uuid7
from tests.conformance.server import wait_for_address
from tests.forked_programs import ForkedProgram
from tests.integration.broken_network import Network, Way
from tests.integration.bucket import BUCKET, bucket, known_to
from tests.integration.service import TIMEOUT_S, Stubs, data_file, free_address

STORE: Final = f"s3://{BUCKET}/lake/meta"
LEADS_NO_MORE: Final = 75
PATIENCE_S: Final = 60.0  # until commits go on, on a machine that is busy
BETWEEN_S: Final = 0.02  # two calls of a thread: there is load at each moment, and the machine does other things too


class Process:
    """One of them; whoever watches it starts it again."""

    def __init__(
        self, folder: Path, name: str, known: dict[str, str], network: Network | None = None, store: str = STORE
    ) -> None:
        """With a network its ways to the bucket and to the clients can be broken."""
        self.address = self._listen = free_address()
        self.to_bucket: Way | None = None
        self.to_clients: Way | None = None
        if network is not None:
            self.to_bucket = Way(network, known["AWS_ENDPOINT_URL"].removeprefix("http://"))
            known = {**known, "AWS_ENDPOINT_URL": f"http://{self.to_bucket.address}"}
            self.to_clients = Way(network, self._listen)
            self.address = self.to_clients.address
        self._store = store
        self.errors = folder / f"{name}.stderr.txt"
        self.known = known
        self.data = folder / name
        self.metrics = free_address()
        self.running: subprocess.Popen[str] | None = None
        self.codes: list[int] = []

    def start(self) -> None:
        words = ["--store", self._store, "--data", str(self.data)]
        words += ["--listen", self._listen, "--advertise", self.address, "--metrics-listen", self.metrics]
        with self.errors.open("ab") as stderr:
            self.running = ForkedProgram("metaservice", words, stderr=stderr, env=self.known)
        wait_for_address(self.running, self.errors)

    def send(self, number: signal.Signals) -> None:
        assert self.running is not None
        self.running.send_signal(number)

    def wait(self) -> int:
        assert self.running is not None
        self.codes.append(self.running.wait(TIMEOUT_S))
        return self.codes[-1]

    def revive(self) -> None:
        """Starts it again, if it has led and leads no more."""
        assert self.running is not None
        if self.running.poll() is not None:
            assert self.wait() == LEADS_NO_MORE, self.said()[-2000:]
            self.start()

    def stop(self) -> None:
        if self.running is not None and self.running.poll() is None:
            self.running.send_signal(signal.SIGCONT)
            self.running.terminate()
            try:
                self.running.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.running.kill()
                self.running.wait()

    def said(self) -> str:
        return self.errors.read_text(encoding="utf-8", errors="replace")


@dataclass
class Pair:
    """All processes; mostly two."""

    processes: Sequence[Process]
    known: dict[str, str]

    @property
    def address(self) -> str:
        return ",".join(each.address for each in self.processes)

    def leader(self) -> Process:
        """The one that leads; waits until one does."""
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            for each in self.processes:
                with MetaClient(each.address, retry_budget_s=0.5) as client:
                    try:
                        if client.get_status().role == "leader":
                            return each
                    except LakeTXError:
                        continue
            time.sleep(0.05)
        raise AssertionError("nobody leads")

    def other(self, one: Process) -> Process:
        return next(each for each in self.processes if each is not one)


@contextmanager
def pair(folder: Path, names: Sequence[str] = ("one", "two")) -> Iterator[Pair]:
    with bucket(folder) as variables:
        known = known_to(variables)
        with running(Pair([Process(folder, name, known) for name in names], known)) as both:
            yield both


@contextmanager
def running(both: Pair) -> Iterator[Pair]:
    try:
        for each in both.processes:
            each.start()
        yield both
    finally:
        for each in both.processes:
            each.stop()


@dataclass(frozen=True, slots=True)
class Append:
    """An append that was answered: its version, and when it was asked for and answered."""

    txn_id: str
    version: int
    asked_s: float
    answered_s: float


@dataclass(frozen=True, slots=True)
class Reading:
    """The newest version that a reader was told."""

    version: int
    asked_s: float
    answered_s: float


@dataclass
class Load:
    """Writers and readers of one table, and what they were told."""

    address: str
    table_id: str
    between_s: float = BETWEEN_S
    appends: list[Append] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    broken: list[Exception] = field(default_factory=list)
    _done: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self, writers: int, readers: int) -> None:
        for work in [self._write] * writers + [self._read] * readers:
            self._threads.append(threading.Thread(target=self._run, args=(work,)))
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()

    def wait_for_more(self, more: int = 20) -> None:
        """Waits until so many appends were asked for from now on and answered."""
        begun_s = time.monotonic()
        until_s = begun_s + PATIENCE_S
        while time.monotonic() < until_s:
            later = [each for each in list(self.appends) if each.asked_s >= begun_s]
            if len(later) >= more:
                return
            time.sleep(0.02)
        raise AssertionError(f"commits don't go on: {self.broken}")

    def longest_gap_s(self, since_s: float) -> float:
        """The longest time without an answer."""
        answered = [since_s, *sorted(each.answered_s for each in list(self.appends) if each.answered_s > since_s)]
        return max(after - before for before, after in pairwise(answered))

    def _run(self, work: Callable[[MetaClient], None]) -> None:
        with MetaClient(self.address) as client:
            while not self._done.is_set():
                try:
                    work(client)
                except Exception as error:  # noqa: BLE001 - the test shows it
                    self.broken.append(error)
                    return
                time.sleep(self.between_s)

    def _write(self, client: MetaClient) -> None:
        txn_id = new_uuid7()
        asked_s = time.monotonic()
        try:
            done = client.append(self.table_id, [data_file(txn_id)], txn_id=txn_id)
        except CommitOutcomeUnknownError:
            self.unknown.append(txn_id)
            return
        self.appends.append(Append(txn_id, version_of(done), asked_s, time.monotonic()))

    def _read(self, client: MetaClient) -> None:
        asked_s = time.monotonic()
        version = client.resolve_version(self.table_id).version
        self.readings.append(Reading(version, asked_s, time.monotonic()))
        time.sleep(0.005)


def create_table(both: Pair, profile: str = "maxcompute", name: str = "t") -> str:
    stubs = Stubs(both.leader().address)
    try:
        return stubs.create(name, profile=profile)
    finally:
        stubs.channel.close()


def version_of(done: common_pb2.Committed) -> int:
    (outcome,) = done.tables
    return outcome.version


def check_history(load: Load, versions: dict[str, int]) -> None:
    """Nothing that was answered is lost or twice, and each answer holds what was answered before it was asked for."""
    assert not load.broken, load.broken
    for each in load.appends:
        assert versions.get(each.txn_id) == each.version, f"{each} was lost"
    known = {each.txn_id for each in load.appends} | set(load.unknown)
    assert versions.keys() <= known, "a commit that nobody has asked for"
    _check_order([(each.asked_s, each.answered_s, each.version) for each in load.appends], strictly=True)
    answered = sorted((each.answered_s, each.version) for each in load.appends)
    newest, at = 0, 0
    for reading in sorted(load.readings, key=lambda each: each.asked_s):
        while at < len(answered) and answered[at][0] < reading.asked_s:
            newest = max(newest, answered[at][1])
            at += 1
        assert reading.version >= newest, f"{reading} was stale: {newest} was answered before"
    _check_order([(each.asked_s, each.answered_s, each.version) for each in load.readings], strictly=False)


def _check_order(calls: list[tuple[float, float, int]], *, strictly: bool) -> None:
    answered = sorted((end_s, version) for _, end_s, version in calls)
    newest, at = -1, 0
    for asked_s, _, version in sorted(calls):
        while at < len(answered) and answered[at][0] < asked_s:
            newest = max(newest, answered[at][1])
            at += 1
        assert version > newest or (not strictly and version == newest), "an answer goes back in time"


def list_committed(address: str, table_id: str) -> dict[str, int]:
    """The versions by transaction; each transaction is there once."""
    stubs = Stubs(address)
    try:
        versions = stubs.list_versions(table_id)
    finally:
        stubs.channel.close()
    found = [(each.txn_id, each.version) for each in versions if each.files_added]
    assert len({txn_id for txn_id, _ in found}) == len(found), "a transaction has committed twice"
    return dict(found)
