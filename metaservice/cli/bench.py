"""`laketx bench`: a load on a service, on a table of its own that it drops afterwards. No data file is written."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict, Unpack

import click
from rich.text import Text

from metaservice.cli.command import command, group
from metaservice.cli.kinds import seconds, whole
from metaservice.cli.output import Session
from metaservice.cli.parameters import PROFILES, PROFILES_TEXT, Run
from metaservice.cli.values import word
from metaservice.client import ConflictError, LakeTXError, MetaClient, MetaServiceError, uuid7
from protos.laketx.v1 import catalog_pb2, common_pb2, transaction_pb2

DETAILS: Final = """The load makes a separate table and drops it at the end. No data file is written.
The writers share one connection, as threads of a job do."""
PARTITIONS_PER_WRITER: Final = 4
STRIPES_PER_DOUBLING: Final = 2
BAR_WIDTH: Final = 30
JOIN_S: Final = 30.0
Act = Callable[["Writer", int], int]


@dataclass
class Writer:
    """One thread of the load, and what it measured."""

    number: int
    client: MetaClient
    table_id: str
    partitions: int
    batch: int
    took_s: list[float] = field(default_factory=list)
    commits: int = 0
    conflicts: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)

    def work(self, act: Act, stop: threading.Event) -> None:
        turn = self.number
        while not stop.is_set():
            turn += 1
            began_s = time.monotonic()
            try:
                self.commits += act(self, turn)
            except ConflictError as lost:
                self.conflicts[word(common_pb2.ConflictRule.Name, lost.conflict.rule)] += 1
            except MetaServiceError as error:
                self.refusals[error.reason] += 1
            except LakeTXError as error:
                self.refusals[type(error).__name__] += 1
            self.took_s.append(time.monotonic() - began_s)

    def append(self, turn: int) -> int:
        if self.batch == 1:
            txn_id = uuid7()
            self.client.append(self.table_id, [self.file(txn_id, turn)], txn_id=txn_id)
            return 1
        appends = []
        for number in range(self.batch):
            txn_id = uuid7()
            file = self.file(txn_id, turn + number)
            appends.append(transaction_pb2.AppendRequest(txn_id=txn_id, table_id=self.table_id, files=[file]))
        committed = 0
        for outcome in self.client.commit_batch(appends):
            match outcome:
                case ConflictError(conflict=conflict):
                    self.conflicts[word(common_pb2.ConflictRule.Name, conflict.rule)] += 1
                case MetaServiceError(reason=reason):
                    self.refusals[reason] += 1
                case _:
                    committed += 1
        return committed

    def change(self, operation: common_pb2.Operation.ValueType, turn: int) -> int:
        """Begin, register, commit: what a job does."""
        intent = transaction_pb2.TableIntent(table_id=self.table_id, operation=operation)
        with self.client.begin([intent]) as txn:
            file = self.file(txn.txn_id, turn)
            txn.register(self.table_id, [file])
            change = common_pb2.Change(table_id=self.table_id)
            if operation == common_pb2.OPERATION_OVERWRITE:
                change.scope.named.partitions.append(file.partition)
            txn.commit([change])
        return 1

    def file(self, txn_id: str, turn: int) -> common_pb2.DataFile:
        value = common_pb2.PartitionValue(column="part", value=common_pb2.Value(integer=turn % self.partitions))
        return common_pb2.DataFile(
            path=f"{txn_id}/{turn}.parquet",
            partition=common_pb2.Partition(values=[value]),
            rows=1_000,
            bytes=1 << 20,
        )


def act_appends(writer: Writer, turn: int) -> int:
    return writer.append(turn)


def act_mixed(writer: Writer, turn: int) -> int:
    if turn % 10 < 8:
        return writer.append(turn)
    # A stride of its own for each writer, so that they meet by and by and not in step.
    return writer.change(common_pb2.OPERATION_OVERWRITE, turn * (2 * writer.number + 1))


def act_contended(writer: Writer, turn: int) -> int:
    inserts = writer.number % 2 == 1
    return writer.change(common_pb2.OPERATION_INSERT if inserts else common_pb2.OPERATION_OVERWRITE, turn)


class Load(TypedDict):
    """Options of every load."""

    writers: int
    lasts_s: float
    profile: str | None
    table: str | None


def load_options(run: Run) -> Run:
    run = click.option("--table", metavar="NAME", help="Name of the new table to make (default bench_…).")(run)
    run = click.option("--profile", type=PROFILES, metavar="NAME", help=f"Conflict rules: {PROFILES_TEXT}.")(run)
    run = click.option("--seconds", "lasts_s", type=seconds(0.1, 86_400), default=5.0, help="Seconds (default 5).")(run)
    return click.option("--writers", type=whole(1, 1_000), default=8, help="Number of writer threads (default 8).")(run)


def about(kind: str, text: str) -> str:
    """The help of a load."""
    return f"{text}\n\nlaketx bench {kind} --writers 8\n\n{DETAILS}"


GROUP = group("bench", f"Put a load on the service and measure it.\n\n{DETAILS}")


@command(
    "appends",
    GROUP,
    text=about("appends", "Every writer appends to partitions in turn: no commit loses a race."),
)
@load_options
@click.option("--batch", type=whole(1, 1_000), default=1, help="Appends in one call (default 1).")
def run_appends(session: Session, batch: int, **options: Unpack[Load]) -> None:
    run_load(session, "appends", act_appends, options, batch=batch)


@command(
    "mixed",
    GROUP,
    text=about("mixed", "Eight of ten changes append, two overwrite one of many partitions."),
)
@load_options
def run_mixed(session: Session, **options: Unpack[Load]) -> None:
    run_load(session, "mixed", act_mixed, options)


@command(
    "contended",
    GROUP,
    text=about("contended", "All writers change one partition: half of them insert, half overwrite."),
)
@load_options
def run_contended(session: Session, **options: Unpack[Load]) -> None:
    run_load(session, "contended", act_contended, options, partitions=1)


def run_load(session: Session, kind: str, act: Act, options: Load, *, partitions: int = 0, batch: int = 1) -> None:
    count, lasts_s = options["writers"], options["lasts_s"]
    with (
        session.connect(use_session=True) as client,
        bench_table(client, options["table"], options["profile"] or "") as table,
    ):
        session.note(f"{kind}: {count} writers for {lasts_s:g} s on {table.name} …")
        among = partitions or count * PARTITIONS_PER_WRITER
        writers = [Writer(number, client, table.table_id, among, batch) for number in range(count)]
        elapsed_s = load(writers, act, lasts_s)
    report = summary(kind, writers, elapsed_s)
    if session.as_json:
        session.show_json(report)
    else:
        show(session, report)


@contextmanager
def bench_table(client: MetaClient, name: str | None, profile: str) -> Iterator[catalog_pb2.Table]:
    """Create a table for the run, and drop it at the end, even after an error or Ctrl-C."""
    definition = catalog_pb2.Table(
        name=name or f"bench_{uuid7().replace('-', '')}",
        columns=[catalog_pb2.Column(name="part", type="int"), catalog_pb2.Column(name="value", type="string")],
        partition_columns=["part"],
        profile=profile,
        comment="made by laketx bench",
    )
    table = client.create_table(definition)
    try:
        yield table
    finally:
        client.drop_table(table.table_id)


def load(writers: Sequence[Writer], act: Act, lasts_s: float) -> float:
    """How long it really took."""
    stop = threading.Event()
    threads = [threading.Thread(target=writer.work, args=(act, stop), daemon=True) for writer in writers]
    began_s = time.monotonic()
    try:
        for thread in threads:
            thread.start()
        stop.wait(lasts_s)
    finally:
        stop.set()
        for thread in threads:
            if thread.ident is not None:  # Ctrl-C may come before all have started
                thread.join(JOIN_S)
    return time.monotonic() - began_s


def summary(kind: str, writers: Sequence[Writer], elapsed_s: float) -> dict[str, Any]:
    took_ms = sorted(took_s * 1_000 for writer in writers for took_s in writer.took_s)
    commits = sum(writer.commits for writer in writers)
    conflicts: Counter[str] = sum((writer.conflicts for writer in writers), Counter())
    refusals: Counter[str] = sum((writer.refusals for writer in writers), Counter())
    attempts = commits + conflicts.total() + refusals.total()
    return {
        "kind": kind,
        "writers": len(writers),
        "seconds": round(elapsed_s, 3),
        "commits": commits,
        "commits_per_second": round(commits / elapsed_s, 1),
        "conflicts": dict(conflicts.most_common()),
        "conflict_share": round(conflicts.total() / attempts, 4) if attempts else 0.0,
        "refusals": dict(refusals.most_common()),
        "latency_ms": {
            name: round(percentile(took_ms, share), 3)
            for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("max", 1.0))
        },
        "histogram": histogram(took_ms),
    }


def percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def histogram(took_ms: Sequence[float]) -> list[dict[str, float]]:
    """Calls by how long they took, in steps that grow: √2 each. None between the first and the last is left out."""
    steps = Counter(math.ceil(STRIPES_PER_DOUBLING * math.log2(max(each, 0.001))) for each in took_ms)
    if not steps:
        return []
    return [
        {"up_to_ms": round(2 ** (step / STRIPES_PER_DOUBLING), 3), "calls": steps[step]}
        for step in range(min(steps), max(steps) + 1)
    ]


def show(session: Session, report: dict[str, Any]) -> None:
    latency = report["latency_ms"]
    session.show_pairs(
        [
            ("load", f"{report['kind']}, {report['writers']} writers, {report['seconds']:.1f} s"),
            ("commits", f"{report['commits']} ({report['commits_per_second']:.0f} a second)"),
            ("latency", ", ".join(f"{name} {value:.2f}" for name, value in latency.items()) + " ms"),
            ("conflicts", counted(report["conflicts"], report["conflict_share"])),
            ("refused", ", ".join(f"{count} {reason}" for reason, count in report["refusals"].items())),
        ]
    )
    session.say("")
    most = max((each["calls"] for each in report["histogram"]), default=1)
    for each in report["histogram"]:
        bar = "█" * math.ceil(BAR_WIDTH * each["calls"] / most)
        session.show(Text(f"{each['up_to_ms']:>10.2f} ms {each['calls']:>9} {bar}"))


def counted(conflicts: dict[str, int], share: float) -> str:
    if not conflicts:
        return "none"
    rules = ", ".join(f"{count} {rule}" for rule, count in conflicts.items())
    return f"{share:.1%}: {rules}"
