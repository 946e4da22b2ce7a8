"""The tour without Spark: `python -m examples.demo metadata`.

Starts a real service in a temporary folder and lets two clients race for the same rows. No data file is written: the
service decides on metadata alone, and so does this tour.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from hashlib import sha256
from typing import Final

from rich.table import Table
from rich.text import Text

from examples.telling import chapter, console, say
from metaservice.cli.txn import with_typed_partition
from metaservice.cli.values import when, word
from metaservice.cli.why import explained
from metaservice.client import ConflictError, MetaClient, Transaction
from protos.laketx.v1 import catalog_pb2, common_pb2, transaction_pb2

READY: Final = "listening on "
FIRST_DAY: Final = date(2026, 11, 1)
DAYS_FROM_EPOCH: Final = (FIRST_DAY - date(1970, 1, 1)).days

INSERT: Final = common_pb2.OPERATION_INSERT
OVERWRITE: Final = common_pb2.OPERATION_OVERWRITE
UPDATE: Final = common_pb2.OPERATION_UPDATE
MINOR: Final = common_pb2.OPERATION_MINOR_COMPACT
MAJOR: Final = common_pb2.OPERATION_MAJOR_COMPACT

Answer = common_pb2.Committed | common_pb2.Conflict


@dataclass(frozen=True)
class Race:
    """Two transactions begin; the earlier commits, then the later."""

    earlier: common_pb2.Operation.ValueType
    later: common_pb2.Operation.ValueType
    later_stands: bool
    because: str


RACES: Final = (
    Race(INSERT, INSERT, False, "both may hold the same key: who would be the newer one?"),
    Race(INSERT, UPDATE, False, "the update never saw the rows inserted"),
    Race(INSERT, OVERWRITE, True, "an overwrite replaces whatever is there"),
    Race(OVERWRITE, INSERT, False, "the partition it wrote to was replaced"),
    Race(INSERT, MINOR, True, "a minor compaction merges its own inputs alone"),
    Race(INSERT, MAJOR, False, "a major compaction must take every file"),
    Race(MINOR, INSERT, True, "no row changed: the insert moves on top"),
    Race(MINOR, MAJOR, True, "the minor's output came from the major's inputs"),
    Race(MAJOR, UPDATE, True, "no row changed: the update moves on top"),
    Race(MAJOR, MINOR, False, "the minor's inputs are gone"),
)


@dataclass
class Lake:
    """One table, two clients, and a fresh day for every scene."""

    table: catalog_pb2.Table
    ana: MetaClient
    bo: MetaClient
    days: Iterator[int] = field(default_factory=itertools.count)
    files: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def begin(self, client: MetaClient, operation: common_pb2.Operation.ValueType, message: str = "") -> Transaction:
        intent = transaction_pb2.TableIntent(table_id=self.table.table_id, operation=operation)
        return client.begin([intent], commit_message=message)

    def commit(
        self, txn: Transaction, operation: common_pb2.Operation.ValueType, day: int, inputs: Sequence[str]
    ) -> Answer:
        """Hands in one file for the day, and commits what the operation does with it."""
        file = self.file(txn, operation, day)
        txn.register(self.table.table_id, [file])
        change = common_pb2.Change(table_id=self.table.table_id)
        if operation == OVERWRITE:
            change.scope.named.partitions.append(partition(day))
        elif operation == UPDATE:
            is_day = change.reads.add().predicate.compare
            is_day.column = "day"
            is_day.comparison = common_pb2.COMPARISON_EQUAL
            is_day.value.date = DAYS_FROM_EPOCH + day
        elif operation in (MINOR, MAJOR):
            # A worker takes the digest of the rows that it read and of those that it wrote: they must be the same.
            rows = sha256(" ".join(inputs).encode()).digest()
            change.groups.add(
                partition=partition(day), inputs=inputs, outputs=[file.path], input_digest=rows, output_digest=rows
            )
        try:
            return txn.commit([change])
        except ConflictError as lost:
            return lost.conflict

    def file(self, txn: Transaction, operation: common_pb2.Operation.ValueType, day: int) -> common_pb2.DataFile:
        folder = txn.tables[self.table.table_id].staging_folder.rstrip("/")
        is_base = operation in (OVERWRITE, MAJOR)
        kind = common_pb2.FILE_KIND_BASE if is_base else common_pb2.FILE_KIND_DELTA
        path = f"{folder}/{'base' if is_base else 'delta'}-{next(self.files)}.parquet"
        return common_pb2.DataFile(path=path, partition=partition(day), kind=kind, rows=100, bytes=4_096)

    def insert(self, day: int) -> None:
        committed(self.commit(self.begin(self.ana, INSERT, "load"), INSERT, day, ()))

    def live(self, day: int) -> list[str]:
        found = (entry.file for entry in self.ana.list_files(self.table.table_id))
        return [file.path for file in found if file.partition.values[0].value.date == DAYS_FROM_EPOCH + day]


def tell() -> None:
    with tempfile.TemporaryDirectory(prefix="laketx-demo-") as folder, running_service(folder) as address:
        say(f"A service runs on {address}. Two clients, Ana and Bo, connect to it.")
        with MetaClient(address, principal="ana", client_name="demo") as ana, connected(address, "bo") as bo:
            lake = Lake(make_table(ana), ana, bo)
            lost = show_races(lake)
            show_conflict(lost, lake.table)
            show_late_overwrite(lake)
            show_minor_then_major(lake)
            show_timeline(lake)
    say("The service is stopped and its folder is gone. `laketx --help` shows the same things of a service of yours.")


def connected(address: str, principal: str) -> MetaClient:
    return MetaClient(address, principal=principal, client_name="demo")


def make_table(client: MetaClient) -> catalog_pb2.Table:
    chapter("A table with a key")
    table = create(client)
    say(
        f"Table {table.name}: key day and order_id, partitioned by day, one bucket. The key contains the partition "
        "column, so it is unique in the table: no order moves to another day. Inserts upsert by key: each adds a small "
        "delta file that hides older rows of its keys. Compactions merge such files and change no row."
    )
    say(f"Its profile is {table.profile}: the set of rules that judges its races.")
    return table


def create(client: MetaClient) -> catalog_pb2.Table:
    return client.create_table(
        catalog_pb2.Table(
            name="orders",
            columns=[
                catalog_pb2.Column(name="order_id", type="bigint", nullable=False),
                catalog_pb2.Column(name="status", type="string", nullable=True),
                catalog_pb2.Column(name="day", type="date", nullable=False),
            ],
            partition_columns=["day"],
            primary_key=["day", "order_id"],
            buckets=1,
        )
    )


def show_races(lake: Lake) -> common_pb2.Conflict:
    chapter("Races")
    say(
        "In each line two transactions begin at the same version, on two threads, for the same day. One commits, then "
        "the other asks. Whether the later one stands depends on what both do; a rule table says so, cell by cell."
    )
    first_lost = show_table_of_races(lake, RACES)
    say("“Rebased” means: only metadata was decided anew. No file was read or written again, so it costs nothing.")
    assert first_lost is not None
    return first_lost


def show_table_of_races(lake: Lake, races: Sequence[Race]) -> common_pb2.Conflict | None:
    """The first conflict among them."""
    shown = Table("earlier commits", "later asks", "answer to the later", "because", header_style="bold")
    first_lost: common_pb2.Conflict | None = None
    for race in races:
        answer = run_race(lake, race)
        stands = isinstance(answer, common_pb2.Committed)
        if stands != race.later_stands:
            raise SystemExit(f"{name_of(race.earlier)}, {name_of(race.later)}: not what the outcome table says")
        shown.add_row(name_of(race.earlier), name_of(race.later), described(answer), race.because)
        if first_lost is None and isinstance(answer, common_pb2.Conflict):
            first_lost = answer
    console.print(shown)
    return first_lost


def run_race(lake: Lake, race: Race) -> Answer:
    day = next(lake.days)
    lake.insert(day)
    lake.insert(day)
    inputs = lake.live(day)
    both_began = threading.Barrier(2, timeout=10)
    earlier_committed = threading.Event()

    def earlier() -> Answer:
        txn = lake.begin(lake.ana, race.earlier)
        both_began.wait()
        try:
            return lake.commit(txn, race.earlier, day, inputs)
        finally:
            earlier_committed.set()

    def later() -> Answer:
        txn = lake.begin(lake.bo, race.later)
        both_began.wait()
        earlier_committed.wait(10)
        return lake.commit(txn, race.later, day, inputs)

    with ThreadPoolExecutor(2) as threads:
        first, second = (running.result() for running in [threads.submit(earlier), threads.submit(later)])
    committed(first)
    return second


def show_conflict(conflict: common_pb2.Conflict, table: catalog_pb2.Table) -> None:
    chapter("Why did the first of them lose?")
    say("A lost race is an answer, not an error. It names the winner, the partition, the rule and the next step.")
    console.print(explained(with_typed_partition(conflict, table), table.name))
    say("`laketx why TRANSACTION` shows this for any transaction of the last days.")


def show_late_overwrite(lake: Lake) -> None:
    chapter("A late overwrite wins")
    day = next(lake.days)
    lake.insert(day)
    txn = lake.begin(lake.bo, OVERWRITE, "nightly rebuild")
    say(f"Bo begins to rebuild a day that has {len(lake.live(day))} file. While he computes, Ana inserts twice.")
    lake.insert(day)
    lake.insert(day)
    before = len(lake.live(day))
    answer = committed(lake.commit(txn, OVERWRITE, day, ()))
    say(
        f"Bo commits: {described(answer)}. The day had {before} files and has {len(lake.live(day))}: what an overwrite "
        "removes is worked out when it commits, so nothing that came meanwhile survives by accident."
    )


def show_minor_then_major(lake: Lake) -> None:
    chapter("Minor, then major")
    day = next(lake.days)
    for _ in range(4):
        lake.insert(day)
    files = lake.live(day)
    major = lake.begin(lake.bo, MAJOR)
    say(f"A day has {len(files)} delta files. Bo starts a major compaction of all of them: a long job.")
    minor = lake.commit(lake.begin(lake.ana, MINOR), MINOR, day, files)
    say(f"Ana's quick minor compaction of the same files comes first: {described(minor)}.")
    answer = lake.commit(major, MAJOR, day, files)
    say(
        f"Bo's inputs are gone, yet his answer is: {described(answer)}. Their rows live on in the minor's "
        f"output alone, so the major replaces that. The day has {len(lake.live(day))} file; no work was wasted."
    )
    committed(answer)


def show_timeline(lake: Lake) -> None:
    chapter("The timeline")
    say(
        "Every commit has an ID version. Those that change data for a user also have a time version; compactions have "
        "none, so a reader of changes by time never meets them. The newest commits, newest first:"
    )
    shown = Table("version", "time version (UTC)", "operation", "who", "files", "rebased over", header_style="bold")
    for version in itertools.islice(lake.ana.list_versions(lake.table.table_id), 16):
        shown.add_row(
            str(version.version),
            when(version.time_version_us) if version.HasField("time_version_us") else "—",
            name_of(version.operation),
            version.principal.name,
            f"+{version.files_added} -{version.files_removed}",
            str(version.rebased_over or ""),
        )
    console.print(shown)


@contextmanager
def running_service(folder: str) -> Iterator[str]:
    """A service on a free port, as a process of its own; its address."""
    command = [sys.executable, "-m", "metaservice", "--listen", "127.0.0.1:0", "--data", folder]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline().strip()
            if not line.startswith(READY):
                log.seek(0)
                raise SystemExit(f"the service did not start:\n{log.read()}")
            yield line.removeprefix(READY)
        finally:
            stop(process)


def stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def partition(day: int) -> common_pb2.Partition:
    value = common_pb2.PartitionValue(column="day", value=common_pb2.Value(date=DAYS_FROM_EPOCH + day))
    return common_pb2.Partition(values=[value])


def committed(answer: Answer) -> common_pb2.Committed:
    if isinstance(answer, common_pb2.Conflict):
        raise SystemExit(f"this should have committed: {answer.message}")
    return answer


def described(answer: Answer) -> Text:
    if isinstance(answer, common_pb2.Conflict):
        return Text(f"conflict with version {answer.winner_version}", style="red")
    table = answer.tables[0]
    rebased = f", rebased over {table.rebased_over}" if table.rebased_over else ""
    return Text(f"committed as version {table.version}{rebased}", style="green")


def name_of(operation: common_pb2.Operation.ValueType) -> str:
    return word(common_pb2.Operation.Name, operation)
