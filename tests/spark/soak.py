"""Everybody at once, for as long as you like: `python -m tests.spark.soak --minutes 5 --seed 1`.

Writers of all kinds, readers of versions that they pin, readers of increments by cursors, two workers of table services
that are killed at random, and a purge that keeps nothing: on tables with a key and without. What is read is compared
with plain dicts, at every version that is read; increments must add up; no file that a version names may be missing;
and in the end no task may be left. Ends with 1 where something is not as it must be.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from laketx import ConflictError, Lake, Table, connect
from protos.laketx.v1 import common_pb2, maintenance_pb2
from tests.integration.service import Service, free_address
from tests.spark.oracle import Oracle, Rows, ViolationError, add_up, differences, rows_of
from tests.spark.sessions import small_session
from tests.spark.soak_daemons import Daemons
from tests.spark.soak_writers import SCHEMA, Writer
from worker.services.compaction.daemon import Daemon
from worker.services.fsck import Fsck
from worker.services.purge import Purge

FLAGS: Final = (
    *("--lease-ms", "6000", "--schedule-ms", "200", "--task-backoff-ms", "50"),
    *("--purge-delay-ms", "0", "--adopt-grace-ms", "1000"),
)
PROPERTIES: Final = {
    "data.retain.hours": "0",
    "compaction.minor.files": "2",
    "compaction.major.percent": "60",
    "compaction.major.quiet.minutes": "0",
    "compaction.cluster.files": "2",
    "compaction.verify": "true",
}
KINDS: Final = ("keyed", "plain")
FOLLOWED: Final = ("changes", "log")
PROFILES: Final = ("maxcompute", "row_level")
UNENDED: Final = (
    maintenance_pb2.TASK_STATE_QUEUED,
    maintenance_pb2.TASK_STATE_CLAIMED,
    maintenance_pb2.TASK_STATE_FAILED,
)
ROUNDS_PER_LAKE: Final = 5  # what a lake has pinned for lazy DataFrames it gives back when it closes
SAY_EVERY_S: Final = 10.0
SHOWN: Final = 10  # versions before the one that is wrong
LOOK_EVERY_S: Final = 0.2
LONGER_S: Final = 60.0
END_S: Final = 150.0


class Soak:
    """One service, its tables, and all that goes on there."""

    def __init__(self, folder: Path, spark: SparkSession, seed: int, remote: str) -> None:
        self.warehouse = str(folder / "files")
        self.spark = spark
        self.seed = seed
        self.service = Service(folder / "store", *FLAGS)
        self.address = self.service.start()
        self.oracles = {name: Oracle() for name in KINDS}
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self.over = threading.Event()  # no new work
        self.quiet = threading.Event()  # nobody writes any more
        self.daemons = Daemons(self.address, self.warehouse, folder, self.random("daemons"), remote)

    def lake(self) -> Lake:
        return connect(f"laketx://{self.address}", self.spark, user="soak", warehouse=self.warehouse)

    def random(self, *names: object) -> random.Random:
        return random.Random(" ".join(map(str, (self.seed, *names))))

    # -- a run ---------------------------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        with self.lake() as lake:
            for number, name in enumerate(KINDS):
                keys = ["id"] if name == "keyed" else []
                lake.create_table(
                    name,
                    SCHEMA,
                    primary_key=keys,
                    buckets=2 if keys else None,
                    partition_by=["day"],
                    key_scope="partition" if keys else None,
                    properties=PROPERTIES,
                    profile=PROFILES[(self.seed + number) % 2],
                )
                self._thread("watch", self._watch, lake, name)
            writers = [self._thread("write", self._write, name, number) for name in KINDS for number in range(2)]
            others = [self._thread("follow", self._follow, name) for name in KINDS]
            others += [self._thread("read", self._read)]
            others += [self._thread("purge", self._purge), self._thread("daemons", self._kill)]
            self._tell_progress(seconds)
            self.over.set()
            for thread in writers:
                thread.join()
            self.quiet.set()
            for thread in others:
                thread.join()
            self.daemons.kill_all()
            if not self.violations:
                with self._judged("end"):
                    self._check_end(lake)

    def close(self) -> None:
        self.over.set()
        self.quiet.set()
        self.daemons.kill_all()
        if self.service.process is not None and self.service.process.poll() is None:
            self.service.kill()

    def _tell_progress(self, seconds: float) -> None:
        """For so long, and on a slow machine until a worker was killed."""
        begin, said = time.monotonic(), 0.0
        while not self.over.wait(LOOK_EVERY_S):
            spent = time.monotonic() - begin
            if spent >= said + SAY_EVERY_S:
                said = spent
                print(f"{spent:4.0f} s: {self.summary()}", flush=True)
            if spent >= seconds and (self.daemons.kills or spent >= seconds + LONGER_S):
                return

    def summary(self) -> str:
        self.counts["kills"] = self.daemons.kills
        self.counts["compactions"] = sum(oracle.compactions for oracle in self.oracles.values())
        return ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items()))

    def _thread(self, what: str, work: Callable[..., None], *given: object) -> threading.Thread:
        def judged() -> None:
            with self._judged(" ".join([what, *(one for one in map(str, given) if "(" not in one)])):
                work(*given)

        thread = threading.Thread(target=judged, name=f"soak-{what}", daemon=True)
        thread.start()
        return thread

    @contextmanager
    def _judged(self, who: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not be
            shown = str(error) if isinstance(error, ViolationError) else traceback.format_exc()[-6000:]
            self.violations.append(f"{who}: {shown}")
            print(f"VIOLATION {self.violations[-1]}", flush=True)
            self.over.set()

    # -- who takes part ------------------------------------------------------------------------------------------------

    def _watch(self, lake: Lake, name: str) -> None:
        for version in lake.client.watch(lake.table(name).table_id, after_version=0):
            self.oracles[name].saw(version)

    def _write(self, name: str, number: int) -> None:
        chance = self.random("write", name, number)
        while not self.over.is_set():
            with self.lake() as lake:
                writer = Writer(lake.table(name), self.oracles[name], chance)
                for _ in range(ROUNDS_PER_LAKE):
                    if self.over.is_set():
                        return
                    try:
                        self.counts[writer.write()] += 1
                    except ConflictError:
                        self.counts["conflicts"] += 1

    def _read(self) -> None:
        chance = self.random("read")
        while not self.quiet.is_set():
            with self.lake() as lake:
                name = chance.choice(KINDS)
                table = lake.table(name)
                with table.snapshot() as held:
                    for again in range(chance.randint(1, 3)):
                        self._check_read(name, table, held.version, f"read again {again}")
                        self.quiet.wait(chance.random() * 2)

    def _check_read(self, name: str, table: Table, version: int, what: str) -> None:
        rows: Rows = Counter((row["id"], row["day"], row["amount"]) for row in table.read(version=version).collect())
        self._compare(rows, name, version, what)
        self.counts["reads"] += 1

    def _compare(self, rows: Rows, name: str, version: int, what: str) -> None:
        wanted = rows_of(self.oracles[name].at(version))
        if rows != wanted:
            history = "\n    ".join(self.oracles[name].history[max(0, version - SHOWN) : version + 1])
            raise ViolationError(f"{what}: {name} at version {version}: {differences(rows, wanted)}\n    {history}")

    def _follow(self, name: str) -> None:
        """Two readers of increments, of the net changes and of each commit's; the last step is made in quiet."""
        chance = self.random("follow", name)
        copies: dict[str, Rows] = {mode: Counter() for mode in FOLLOWED}
        with self.lake() as lake:
            for mode in copies:
                lake.table(name).cursor(mode, version=0)
        is_last = False
        while not is_last:
            is_last = self.quiet.is_set()
            for mode in copies:
                with self.lake() as lake:
                    cursor = lake.table(name).cursor(mode)
                    begin = cursor.version
                    changes = cursor.changes(mode=mode).collect()
                    copies[mode] = add_up(copies[mode], changes)
                    assert cursor.read_to is not None
                    self._compare(copies[mode], name, cursor.read_to, f"{mode} since version {begin}")
                    cursor.advance()
                    self.counts["increments"] += 1
            self.quiet.wait(chance.random() * 2)

    def _purge(self) -> None:
        chance = self.random("purge")
        while not self.quiet.is_set():
            with self.lake() as lake:
                report = Purge(lake.client, self.warehouse).run()
                if report.failed:
                    raise ViolationError(f"the purge failed: {report.failures}")
                self.counts["purged"] += report.files - report.missing
                self.counts["swept"] += report.swept
                self._check_files(lake, chance.choice(KINDS))
            self.quiet.wait(chance.random() * 4)

    def _check_files(self, lake: Lake, name: str) -> None:
        """Everything that a version names is there; more may be, since writers are at work."""
        found = Fsck(lake.client, self.warehouse, lake.table(name).meta, all_versions=True).run()
        if wrong := [str(one) for one in found if one.word != "STRAY"]:
            raise ViolationError(f"{name}: {wrong}")
        self.counts["audits"] += 1

    def _kill(self) -> None:
        with self.lake() as lake:
            self.daemons.run(self.over, lambda: any(lake.client.list_tasks(states=UNENDED[1:2])))

    # -- the end -------------------------------------------------------------------------------------------------------

    def _check_end(self, lake: Lake) -> None:
        """Every task ends; what nobody needs is gone; the rest is there, and holds what it must."""
        self._end_tasks(lake)
        for name in KINDS:
            table = lake.table(name)
            lake.client.request_tasks(table.table_id, common_pb2.OPERATION_MAJOR_COMPACT)
            for mode in FOLLOWED:
                table.cursor(mode).drop()
        self._end_tasks(lake)
        for name in KINDS:
            with self.lake() as once, once.table(name).snapshot() as held:
                self._check_read(name, once.table(name), held.version, "in the end")
        self._end_purge(lake)
        if problems := [problem for part in lake.client.check() for problem in part.problems]:
            raise ViolationError(f"the store: {problems}")

    def _end_tasks(self, lake: Lake) -> None:
        daemon = Daemon(lake)
        end = time.monotonic() + END_S
        while left := list(lake.client.list_tasks(states=UNENDED)):
            if time.monotonic() > end:
                raise ViolationError(f"tasks that don't end: {left}")
            if not daemon.run_waiting():
                time.sleep(LOOK_EVERY_S)
        self.counts["tasks in the end"] += daemon.tasks_done

    def _end_purge(self, lake: Lake) -> None:
        """Until nothing is found that is not as it must be, strays among it."""
        end = time.monotonic() + END_S
        while True:
            report = Purge(lake.client, self.warehouse).run()
            self.counts["purged"] += report.files - report.missing
            self.counts["swept"] += report.swept
            tables = [lake.table(name).meta for name in KINDS]
            found = [str(one) for table in tables for one in Fsck(lake.client, self.warehouse, table).run()]
            if not found:
                return
            if time.monotonic() > end:
                raise ViolationError(f"in the end: {found}")
            time.sleep(LOOK_EVERY_S)


@contextmanager
def session(port: int) -> Iterator[SparkSession]:
    """A classic one, whose Spark serves Spark Connect too."""
    served = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.showConsoleProgress": "false",
    }
    spark = small_session(more=served)
    yield spark
    spark.stop()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--own-spark", action="store_true", help="the workers have a Spark each, killed with them")
    parser.add_argument("--json", type=Path, help="a file for what was counted")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # its workers and its service end with it
    port = int(free_address().rpartition(":")[2])
    remote = "" if given.own_spark else f"sc://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="laketx-soak-") as folder, session(port) as spark:
        soak = Soak(Path(folder), spark, given.seed, remote)
        try:
            soak.run(given.minutes * 60)
        finally:
            soak.close()
    print(f"seed {given.seed}: {soak.summary()}")
    print(f"{len(soak.violations)} violations")
    if given.json:
        given.json.write_text(json.dumps({**soak.counts, "violations": len(soak.violations)}), encoding="utf-8")
    return 1 if soak.violations else 0


if __name__ == "__main__":
    sys.exit(main())
