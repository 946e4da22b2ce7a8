"""Whoever makes or deletes backups in a bucket is killed with -9 at any moment: no half backup is taken for whole.

Each round kills the service, which backs up and deletes each second, and every second round a command beside
it. What is listed then can be restored; at the end it shows the commits of one moment. The quick run plays two rounds
with a store in a folder, which kill the service twice and a command once; the rounds of a store in a bucket are long.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from metaservice.client import MetaClient, MetaServiceError
from metaservice.offline.restore import RepositoryBackup, restore
from metaservice.store.backups.repository import STALE_S, Repository, open_repository
from tests.conformance.server import ROOT
from tests.integration.backup_oracle import Oracle
from tests.integration.broken_network import Network, Way
from tests.integration.bucket import BUCKET, bucket, known_to
from tests.integration.high_availability import STORE
from tests.integration.repositories import PATIENCE_S, leads, wait_until
from tests.integration.service import Service, free_address, service

REPOSITORY = f"s3://{BUCKET}/backups"
SCHEDULE = ("--backup-to", REPOSITORY, "--backup-every-s", "1", "--backup-keep", "3", "--backup-verify-every-s", "0")
DELAY_S = 0.02  # of each way of a request to the bucket: more moments in which a kill hits one
WITHIN_S = 2.0
WORK_S = 0.3  # about what an upload takes
WRITERS = 2


@dataclass
class Play:
    """A service with writers, its repository, and what a seed does to them."""

    running: Service
    repository: Repository
    marks: Path
    rng: random.Random
    folder: Path
    oracles: list[Oracle] = field(default_factory=list)
    restored: set[str] = field(default_factory=set)

    def start(self) -> None:
        self.running.start()
        wait_until(lambda: leads(self.running), "it leads")
        self.oracles.append(Oracle(self.running.address, WRITERS, f"r{len(self.oracles)}_"))

    def kill_service(self) -> None:
        """While it makes a scheduled backup, or one that it is asked for."""
        asks = self.rng.random() < 0.5
        command = self._command("backup", "make", REPOSITORY) if asks else None
        self._wait_for_a_moment()
        self.running.kill()
        self.oracles[-1].end()
        if command is not None:
            command.wait(PATIENCE_S)
        self.restore_all()
        self.start()

    def kill_command(self) -> None:
        words = self.rng.choice((("make", REPOSITORY), ("prune", REPOSITORY, "--keep", "1")))
        command = self._command("backup", *words)
        self._wait_for_a_moment()
        command.kill()
        command.wait(PATIENCE_S)

    def _command(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "metaservice.cli", "--server", self.running.address, *words]
        quiet = subprocess.DEVNULL
        return subprocess.Popen(command, cwd=ROOT, stdin=quiet, stdout=quiet, stderr=quiet)

    def _wait_for_a_moment(self) -> None:
        """Any, or one while something is uploaded or deleted."""
        if self.rng.random() < 0.3:
            time.sleep(self.rng.uniform(0, WITHIN_S))
            return
        before, until_s = set(self._marks()), time.monotonic() + 5 * WITHIN_S
        while time.monotonic() < until_s and not set(self._marks()) - before:
            time.sleep(0.002)
        time.sleep(self.rng.uniform(0, WORK_S))

    def _marks(self) -> list[str]:
        return [path.name for path in self.marks.iterdir()] if self.marks.exists() else []

    def restore_all(self) -> None:
        """Every backup that is there has all its bytes, is sound, and has the heads that it names."""
        for stored in self.repository.read_all():
            if stored.backup_id not in self.restored:
                folder = self.folder / stored.backup_id
                restore(RepositoryBackup(self.repository, stored, _quietly), folder, "aa", 1)
                self.restored.add(stored.backup_id)

    def check(self) -> None:
        """What is there at last can be restored, and the newest has the commits of one moment."""
        ended = sorted(self.restored)
        self.restored.clear()
        for backup_id in ended:
            shutil.rmtree(self.folder / backup_id)
        self.restore_all()
        newest = self.repository.find()
        manifest = newest.manifest
        heads = {head.table_id: head.version for head in manifest.heads}
        with service(self.folder / newest.backup_id) as (_, restored):
            for oracle in self.oracles:
                if oracle.acknowledged.keys() <= heads.keys():
                    found = oracle.compare(restored, manifest.begin_us)
                    assert found.items() <= heads.items(), "the heads that the backup names"
                else:
                    assert oracle.made_us > manifest.begin_us, "its tables were there when the backup began"

    def back_up(self) -> str:
        """The next backup; a prune that was killed may stand in its way, until its mark is old."""
        with MetaClient(self.running.address) as client:
            until_s = time.monotonic() + PATIENCE_S
            while time.monotonic() < until_s:
                try:
                    return client.backup(REPOSITORY).backup_id
                except MetaServiceError as refused:
                    if refused.reason != "BACKUP_RUNNING":
                        raise
                self._age_marks()
                time.sleep(0.2)
        raise AssertionError("no backup can be made")

    def _age_marks(self) -> None:
        """As if the time had gone by that the mark of a dead prune counts."""
        for path in self.marks.glob("prune-*"):
            with suppress(FileNotFoundError):
                when_s = path.stat().st_mtime - STALE_S
                os.utime(path, (when_s, when_s))


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A bucket that this process reaches directly; the variables of a process that reaches it by a slow way."""
    network = Network()
    with bucket(tmp_path / "s3") as known, pytest.MonkeyPatch.context() as patch:
        for name, value in known.items():
            patch.setenv(name, value)
        way = Way(network, known["AWS_ENDPOINT_URL"].removeprefix("http://"))
        way.delay_s = DELAY_S
        yield {**known, "AWS_ENDPOINT_URL": f"http://{way.address}"}
        network.close()  # first: the server of S3 waits for connections to end


@pytest.mark.parametrize(
    ("flags", "rounds", "seed"),
    [
        pytest.param((), 2, 1, id="folder", marks=pytest.mark.long),
        *(pytest.param((), 20, seed, id=f"folder-{seed}", marks=pytest.mark.long) for seed in range(3, 6)),
        *(
            pytest.param(("--store", STORE), 20, seed, id=f"bucket-{seed}", marks=pytest.mark.long)
            for seed in range(6, 9)
        ),
    ],
)
def test_kills_leave_no_half_backup(
    slow: dict[str, str], tmp_path: Path, flags: tuple[str, ...], rounds: int, seed: int
) -> None:
    environment = known_to(slow)
    running = Service(tmp_path / "live", *SCHEDULE, *flags, listen=free_address(), environment=environment)
    marks = tmp_path / "s3" / "objects" / BUCKET / "backups" / "running"
    play = Play(running, open_repository(REPOSITORY), marks, random.Random(seed), tmp_path)
    try:
        play.start()
        for number in range(rounds):
            if number % 2:
                play.kill_command()
            play.kill_service()
        made = play.back_up()
    finally:
        play.oracles[-1].end()
        if running.process is not None and running.process.poll() is None:
            running.kill()
    assert made in play.repository.list_ids()
    play.check()


def _quietly(done: int, total: int) -> None:
    """Says nothing of a download."""
