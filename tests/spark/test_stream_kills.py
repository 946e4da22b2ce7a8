"""Streaming queries that are killed with -9, under compactions and a purge: each row once in its target."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from laketx import Lake, connect
from tests.integration.service import Service
from tests.spark.processes import ROOT, WAIT_S
from tests.spark.sql import catalog_of
from tests.spark.streams import KINDS, copy
from worker.services.purge import Purge

FLAGS = ("--lease-ms", "6000", "--purge-delay-ms", "0", "--adopt-grace-ms", "1000")
PROPERTIES = {"data.retain.hours": "0"}
ROWS, AGAIN = 20, 5
COMMITS_A_ROUND = 3


class Copied:
    """A table that grows, of one kind, and its copy."""

    def __init__(self, lake: Lake, kind: str) -> None:
        self.kind = kind
        self.keyed = kind == "keyed"
        self.wanted: dict[int, int] = {}
        self.commits = 0
        for name in (self.source, self.target):
            lake.create_table(
                name,
                "id bigint, number bigint",
                primary_key=["id"] if self.keyed else [],
                buckets=2 if self.keyed else None,
                properties=PROPERTIES,
            )

    @property
    def source(self) -> str:
        return f"source.{self.kind}"

    @property
    def target(self) -> str:
        return f"target.{self.kind}"

    def grow(self, lake: Lake) -> None:
        """New rows, and in a table with a key some of the old ones once more."""
        self.commits += 1
        first = len(self.wanted) - (AGAIN if self.keyed and self.wanted else 0)
        last = len(self.wanted) + ROWS
        rows = lake.spark.range(first, last, 1, 1).selectExpr("id", f"{self.commits}L as number")
        lake.table(self.source).insert(rows)
        self.wanted |= dict.fromkeys(range(first, last), self.commits)

    def head(self, lake: Lake) -> int:
        return int(lake.client.resolve_version(lake.table(self.target).table_id).version)


class Story:
    """A service, tables of both kinds, and a process that copies them until it is killed."""

    def __init__(self, spark: SparkSession, folder: Path, seed: int) -> None:
        self.spark = spark
        self.folder = folder
        self.chance = random.Random(seed)
        self.service = Service(folder / "store", *FLAGS)
        self.service.start()
        self.purged = 0
        with self.lake() as lake:
            self.copies = [Copied(lake, kind) for kind in KINDS]

    @property
    def warehouse(self) -> str:
        return str(self.folder / "files")

    @contextmanager
    def lake(self) -> Iterator[Lake]:
        """What a lake holds for lazy DataFrames it gives back when it closes."""
        with connect(f"laketx://{self.service.address}", self.spark, warehouse=self.warehouse) as lake:
            yield lake

    def tidy(self) -> None:
        """Nothing older than now is kept, but for what the queries have not read."""
        with self.lake() as lake:
            for one in self.copies:
                lake.table(one.source).compact()
            report = Purge(lake.client, self.warehouse).run()
            assert not report.failed, report.failures
            self.purged += report.files - report.missing

    def play_round(self) -> None:
        with self.lake() as lake:
            before = [one.head(lake) for one in self.copies]
            queries = self.start()
            try:
                for _ in range(COMMITS_A_ROUND):
                    for one in self.copies:
                        one.grow(lake)
                self.tidy()
                end = time.monotonic() + WAIT_S
                while any(one.head(lake) == head for one, head in zip(self.copies, before, strict=True)):
                    assert queries.poll() is None, f"the queries ended: {self.said()}"
                    assert time.monotonic() < end, f"the queries do nothing: {self.said()}"
                    time.sleep(0.02)
                time.sleep(self.chance.random() / 2)
            finally:
                os.killpg(queries.pid, signal.SIGKILL)
                queries.wait()
            for one in self.copies:  # which nobody reads before it is compacted, and the old files are gone
                one.grow(lake)
        self.tidy()

    def start(self, *kinds: str) -> subprocess.Popen[bytes]:
        """Copies the tables of some kinds, or of all."""
        arguments = [f"laketx://{self.service.address}", self.warehouse, str(self.folder), *kinds]
        with (self.folder / "queries.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.spark.streams", *arguments],
                cwd=ROOT,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def said(self) -> str:
        return (self.folder / "queries.log").read_text(errors="replace")[-4000:]

    def check(self) -> None:
        """The rest is copied in this process."""
        with self.lake() as lake:
            name = catalog_of(lake)
            for one in self.copies:
                copy(self.spark, name, one.kind, self.folder, until_now=True).awaitTermination()
                found = lake.table(one.target).read().collect()
                assert sorted((row["id"], row["number"]) for row in found) == sorted(one.wanted.items()), one.kind


def check_copies(spark: SparkSession, folder: Path, rounds: int) -> None:
    story = Story(spark, folder, seed=rounds)
    try:
        for _ in range(rounds):
            story.play_round()
        story.check()
        story.check()  # a run first confirms what the one before it read last: now nothing of that is kept
        end = time.monotonic() + WAIT_S
        while not story.purged:
            assert time.monotonic() < end, "nothing is purged"
            story.tidy()
            time.sleep(0.1)
    finally:
        story.service.kill()


def test_a_query_that_is_killed_once(spark: SparkSession, tmp_path: Path) -> None:
    check_copies(spark, tmp_path, rounds=1)


@pytest.mark.long
def test_a_query_that_is_killed_twenty_times(spark: SparkSession, tmp_path: Path) -> None:
    check_copies(spark, tmp_path, rounds=20)


@pytest.mark.long
def test_of_two_processes_with_one_checkpoint_one_ends(spark: SparkSession, tmp_path: Path) -> None:
    story = Story(spark, tmp_path, seed=2)
    one = story.copies[0]
    running = [story.start(one.kind), story.start(one.kind)]
    try:
        with story.lake() as lake:
            end = time.monotonic() + WAIT_S
            while all(process.poll() is None for process in running):
                assert time.monotonic() < end, f"both go on: {story.said()}"
                one.grow(lake)
            assert any(words in story.said() for words in ("CHECKPOINT_SHARED", "CONCURRENT_STREAM_LOG_UPDATE"))
            (left,) = [process for process in running if process.poll() is None]
            before = one.head(lake)
            one.grow(lake)
            while one.head(lake) == before:
                assert left.poll() is None, f"the other one ended, too: {story.said()}"
                assert time.monotonic() < end, f"the other one does nothing: {story.said()}"
                time.sleep(0.02)
    finally:
        for process in running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    try:
        story.check()
    finally:
        story.service.kill()
