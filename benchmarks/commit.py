"""How fast MetaService commits, beside deltalake and pyiceberg on the same work. `make bench-commit`.

ARGS="open" measures only transactions that stay open while many others commit, and needs no peers.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

from benchmarks.frame import ROOT, Benchmark, scale, scaled, scratch
from benchmarks.load import PARTITIONS, data_file
from benchmarks.peers import measure
from benchmarks.serving import server
from benchmarks.words import chosen
from metaservice.client import uuid7
from metaservice.client.meta_client import MetaClient
from protos.laketx.v1 import catalog_pb2, common_pb2, transaction_pb2

PROCESSES = 2
HISTORY = 100_000
LARGE = 100_000
WIDE = 3_000  # partitions
COMPARISONS = 950_000  # the limit is 1,000,000
NODES = 9_999  # of one condition; the limit is 10,000
CONTENT = bytes(1 << 20)  # of an inlined file; the limit
APPENDS_WITH_ROWS = 32
OVERTAKEN = (10_000, 50_000)  # commits while a transaction is open
OPEN_TARGETS_S = (0.1, 0.5)
BATCH = 500
OPEN_PROFILES = ("maxcompute", "row_level", "delta_write_serializable")

Costly = Callable[[MetaClient, str, int], None]


class Decision(NamedTuple):
    """A transaction of the contended load: what it did where, and its end; `won` or `lost_to` is a version."""

    kind: str
    partition: int
    read: int
    won: int
    lost_to: int


@dataclass(frozen=True)
class Load:
    """What a load did: rate, latency and what was acknowledged."""

    per_s: float
    conflicts_per_s: float
    p50_ms: float
    p99_ms: float
    acked: list[tuple[str, int]]
    decisions: list[Decision]


def put_load(address: str, kind: str, threads: int, seconds: float, table_id: str, processes: int = PROCESSES) -> Load:
    start_at = time.time() + 1.5
    commands = [sys.executable, "-m", "benchmarks.load", address, kind, str(threads // processes)]
    commands += [str(start_at), str(seconds), table_id]
    running = [subprocess.Popen(commands, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    reports = []
    for one in running:
        said, _ = one.communicate(timeout=seconds + 120)
        if one.returncode:
            raise RuntimeError(f"a load process ended with {one.returncode}")
        reports.append(json.loads(said))
    latencies = sorted(ms for report in reports for ms in report["latencies_ms"])
    return Load(
        sum(report["commits"] for report in reports) / seconds,
        sum(report["conflicts"] for report in reports) / seconds,
        statistics.median(latencies),
        latencies[int(len(latencies) * 0.99)],
        [(txn, version) for report in reports for txn, version in report["acked"]],
        [Decision(*one) for report in reports for one in report["decisions"]],
    )


def check_decisions(decisions: list[Decision]) -> None:
    """By brute force: an overwrite always wins; others lose to the first commit in their partition since they read."""
    partition_of = {one.won: one.partition for one in decisions if one.won}
    for one in decisions:
        until = one.won or max(partition_of) + 1
        rivals = (v for v in range(one.read + 1, until) if partition_of[v] == one.partition)
        first = 0 if one.kind == "OPERATION_OVERWRITE" else next(rivals, 0)
        if first != one.lost_to:
            raise RuntimeError(f"{one} should have lost to {first}")


def check_none_lost(client: MetaClient, table_id: str, load: Load) -> None:
    """Every acknowledged commit stands in the log under the version that was acknowledged."""
    log = {one.txn_id: one.version for one in client.list_versions(table_id)}
    lost = [txn for txn, version in load.acked if log.get(txn) != version]
    if lost:
        raise RuntimeError(f"{len(lost)} acknowledged commits are not in the log, for example {lost[0]}")


def make_table(client: MetaClient, profile: str, *, keyed: bool = False) -> str:
    table = catalog_pb2.Table(name=f"t_{uuid7().replace('-', '_')}", profile=profile)
    table.columns.add(name="id", type="bigint")
    if keyed:
        table.columns.add(name="p", type="int")
        table.partition_columns.append("p")
        table.primary_key.append("id")
        table.buckets = 1
        table.properties["key.scope"] = "partition"
    return client.create_table(table).table_id


def time_large_commit(client: MetaClient, address: str, table_id: str) -> tuple[float, float, float]:
    """Seconds to register and commit many files; p99 of others alone, and meanwhile."""
    other = make_table(client, "delta_write_serializable")
    alone = put_load(address, "append", 4, 3, other, 1).p99_ms
    meanwhile: list[float] = []
    beside = threading.Thread(target=lambda: meanwhile.append(put_load(address, "append", 4, 5, other, 1).p99_ms))
    beside.start()
    time.sleep(2.0)
    txn = client.begin([transaction_pb2.TableIntent(table_id=table_id, operation=common_pb2.OPERATION_INSERT)])
    files = [data_file(txn.txn_id, number) for number in range(scaled(LARGE))]
    start = time.perf_counter()
    txn.register(table_id, files)
    txn.commit([common_pb2.Change(table_id=table_id)])
    seconds = time.perf_counter() - start
    beside.join()
    return seconds, alone, meanwhile[0]


@cache  # what making it costs is not measured
def below_one_of(comparisons: int) -> common_pb2.Predicate:
    """A condition of which no index helps: true nowhere, after so many comparisons."""
    found = common_pb2.Predicate()
    for number in range(comparisons):
        compare = found.any_of.operands.add().compare
        compare.column, compare.comparison, compare.value.integer = "day", common_pb2.COMPARISON_LESS, -1 - number
    return found


def make_wide_table(client: MetaClient) -> tuple[str, int]:
    """Many partitions, changed by one commit behind the version that comes with the table."""
    table = catalog_pb2.Table(name=f"t_{uuid7().replace('-', '_')}", partition_columns=["day"])
    table.columns.add(name="day", type="int")
    table_id = client.create_table(table).table_id
    txn_id = uuid7()
    files = [data_file(txn_id, number) for number in range(WIDE)]
    for number, file in enumerate(files):
        file.partition.values.add(column="day", value=common_pb2.Value(integer=number))
    client.append(table_id, files, txn_id=txn_id)
    return table_id, 0


def commit_what_costs(client: MetaClient, table_id: str, read_version: int) -> None:
    """Judged as long as anything may be: by almost as many comparisons as are allowed."""
    reads = [common_pb2.Read(predicate=below_one_of(COMPARISONS // WIDE))]
    intent = transaction_pb2.TableIntent(
        table_id=table_id, operation=common_pb2.OPERATION_DELETE, read_version=read_version, reads=reads
    )
    txn = client.begin([intent])
    txn.commit([common_pb2.Change(table_id=table_id, reads=reads)])


def begin_with_much(client: MetaClient, table_id: str, read_version: int) -> None:
    """The largest condition, declared, looked at by a renewal, and given up."""
    reads = [common_pb2.Read(predicate=below_one_of(NODES))]
    intent = transaction_pb2.TableIntent(table_id=table_id, operation=common_pb2.OPERATION_DELETE, reads=reads)
    txn = client.begin([intent])
    commit_what_costs(client, table_id, read_version)
    txn.abort("measured")


def append_with_rows(client: MetaClient, _table_id: str, _read_version: int) -> None:
    """Appends whose rows the service keeps, as many bytes as one may have, to a table of its own."""
    table_id = make_table(client, "maxcompute")
    for _ in range(APPENDS_WITH_ROWS):
        txn_id = uuid7()
        file = data_file(txn_id, 0)
        file.kind, file.bytes, file.content = common_pb2.FILE_KIND_INLINED, len(CONTENT), CONTENT
        client.append(table_id, [file], txn_id=txn_id)
    client.drop_table(table_id)


def time_beside_costly(client: MetaClient, address: str, work: Costly) -> tuple[float, float]:
    """The p99 of others' appends alone, and beside one client that does nothing but this."""
    other = make_table(client, "delta_write_serializable")
    table_id, read_version = make_wide_table(client)
    alone = put_load(address, "append", 4, 4, other, 1).p99_ms
    ended = threading.Event()

    def repeat() -> None:
        while not ended.is_set():
            work(client, table_id, read_version)

    beside = threading.Thread(target=repeat)
    beside.start()
    meanwhile = put_load(address, "append", 4, 4, other, 1).p99_ms
    ended.set()
    beside.join()
    return alone, meanwhile


def overtake(client: MetaClient, table_id: str, commits: int, *, partitioned: bool) -> None:
    """So many appends of others, to all partitions but the last."""
    done = 0
    while done < commits:
        requests = []
        for number in range(min(BATCH, commits - done)):
            txn_id = uuid7()
            file = data_file(txn_id, 0, number % (PARTITIONS - 1) if partitioned else None)
            requests.append(transaction_pb2.AppendRequest(txn_id=txn_id, table_id=table_id, files=[file]))
        if not all(isinstance(outcome, common_pb2.Committed) for outcome in client.commit_batch(requests)):
            raise RuntimeError("an append of a batch was refused")
        done += len(requests)


def time_open_commit(client: MetaClient, profile: str, commits: int) -> float:
    """Seconds to commit an update of one partition that was open while others appended to the other partitions."""
    table_id = make_table(client, profile, keyed=True)
    place = data_file(uuid7(), 0, PARTITIONS - 1).partition
    reads = [common_pb2.Read(partitions=[place])]
    intent = transaction_pb2.TableIntent(
        table_id=table_id, operation=common_pb2.OPERATION_UPDATE, reads=reads if profile != "maxcompute" else ()
    )
    txn = client.begin([intent])
    overtake(client, table_id, commits, partitioned=True)
    change = common_pb2.Change(table_id=table_id, reads=reads, files=[data_file(txn.txn_id, 0, PARTITIONS - 1)])
    if profile == "row_level":
        change.key_sets.add(partition=place, hashes=range(1_000))
    start = time.perf_counter()
    txn.commit([change])
    return time.perf_counter() - start


def time_open_append(client: MetaClient, profile: str, commits: int) -> float:
    """The same of an append to a table without a key."""
    table_id = make_table(client, profile)
    txn = client.begin([transaction_pb2.TableIntent(table_id=table_id, operation=common_pb2.OPERATION_INSERT)])
    overtake(client, table_id, commits, partitioned=False)
    change = common_pb2.Change(table_id=table_id, files=[data_file(txn.txn_id, 0)])
    start = time.perf_counter()
    txn.commit([change])
    return time.perf_counter() - start


def main() -> int:
    words = chosen(__doc__, ["open"])
    bench = Benchmark("commit", "Commits a second: LakeTX beside deltalake and pyiceberg", ["grpcio", "rocksdict"])
    seconds = max(2.0, 6.0 * scale())
    if words:
        with scratch() as folder, server(folder / "db") as (address, _), MetaClient(address, principal="b") as client:
            Loads(bench, client, address, seconds).overtaken()
        return 0 if bench.finish() else 1
    with scratch() as folder:
        peers = measure(folder, seconds=max(2.0, 5 * scale()), writers=(1, 16), runs=max(1, round(3 * scale())))
        if not all(figure.verified for figure in peers.values()):
            raise RuntimeError("a peer lost or invented commits")
        at16 = {peer: figure.commits_per_s for (peer, writers), figure in peers.items() if writers == 16}
        notes = "\n".join(figure.note for (_, writers), figure in peers.items() if writers == 16)
        with server(folder / "db") as (address, _), MetaClient(address, principal="bench") as client:
            loads = Loads(bench, client, address, seconds)
            loads.together(at16, notes)
            loads.alone()
            loads.contended(at16)
            loads.large()
            loads.costly()
            loads.overtaken()
            loads.long_history()
    return 0 if bench.finish() else 1


@dataclass(frozen=True)
class Loads:
    """What is measured of one running service."""

    bench: Benchmark
    client: MetaClient
    address: str
    seconds: float

    def rate(self, kind: str, threads: int, profile: str) -> float:
        """On a table of its own; every acknowledged commit is looked for in the log."""
        table_id = make_table(self.client, profile)
        load = put_load(self.address, kind, threads, self.seconds, table_id)
        if load.acked:
            check_none_lost(self.client, table_id, load)
        return load.per_s

    def together(self, at16: dict[str, float], notes: str) -> None:
        """Many writers of blind changes."""
        bench = self.bench
        bench.measure(
            "32 writers: begin; then register 1 file and commit",
            lambda: self.rate("transaction", 32, "delta_write_serializable"),
            unit="commits/s",
            at_least=1500,
        )
        full = bench.measure(
            "32 writers: begin, register 1 file and commit in one frame",
            lambda: self.rate("pipelined", 32, "delta_write_serializable"),
            unit="commits/s",
            at_least=1500,
            peers=at16,
            note=notes,
        )
        empty = bench.measure(
            "32 writers: three empty calls in the same session",
            lambda: self.rate("three_empty_calls", 32, "delta_write_serializable"),
            unit="commits/s",
        )
        shares = [100 * one / empty.figure for one in full.runs]
        bench.add("share of what empty calls reach", shares, unit="%", at_least=60)
        for peer, times in (("deltalake", 30), ("pyiceberg", 100)):
            ratios = [one / at16[peer] for one in full.runs]
            bench.add(f"times {peer} at 16 writers", ratios, unit="times", at_least=times)
        self.batches()

    def batches(self, at_least: float = 15_000) -> None:
        """Appends in one call for many of them."""
        work = "batches of 100 appends"
        self.bench.measure(work, lambda: self.rate("batch", 4, "maxcompute"), unit="commits/s", at_least=at_least)

    def alone(self) -> None:
        """One writer, and what its calls cost without anything in them."""

        def median_ms(kind: str) -> float:
            table_id = make_table(self.client, "delta_write_serializable")
            return put_load(self.address, kind, 1, self.seconds, table_id, 1).p50_ms

        for what, kind in (("begin, then commit", "begin_and_commit"), ("begin with commit", "begin_with_commit")):
            work = f"one writer: {what} (median)"
            self.bench.measure(work, partial(median_ms, kind), unit="ms", at_most=2)
        self.bench.measure("one writer: two empty calls (median)", lambda: median_ms("two_empty_calls"), unit="ms")

    def contended(self, at16: dict[str, float], at_least: float = 1_000) -> None:
        """Writers that meet; every decision is compared with what brute force says."""
        wasted: list[float] = []

        def decisions_per_s() -> float:
            table_id = make_table(self.client, "maxcompute", keyed=True)
            load = put_load(self.address, "contended", 16, self.seconds, table_id)
            check_decisions(load.decisions)
            decisions = load.per_s + load.conflicts_per_s
            wasted.append(100 * load.conflicts_per_s / decisions)
            return decisions

        work = "contended, 16 writers, 8 partitions"
        self.bench.measure(work, decisions_per_s, unit="decisions/s", at_least=at_least, peers=at16)
        self.bench.add("contended: lost races", wasted[1:], unit="%")

    def large(self) -> None:
        """A transaction of very many files, and what others notice of it."""
        runs = [
            time_large_commit(self.client, self.address, make_table(self.client, "delta_write_serializable"))
            for _ in range(max(1, round(3 * scale())))
        ]
        self.bench.add(f"a transaction of {scaled(LARGE)} files", [one[0] for one in runs], unit="s", at_most=3)
        ratios = [one[2] / one[1] for one in runs]
        self.bench.add("others meanwhile: p99 over p99 alone", ratios, unit="times", at_most=5)

    def costly(self) -> None:
        """What the worst that is allowed costs others: conditions to judge, rows to keep."""
        works: dict[str, Costly] = {
            "commits judged longest": commit_what_costs,
            "the largest conditions": begin_with_much,
            "appends with 1 MiB of rows": append_with_rows,
        }
        for what, work in works.items():
            runs = [time_beside_costly(self.client, self.address, work) for _ in range(max(1, round(3 * scale())))]
            ratios = [meanwhile / alone for alone, meanwhile in runs]
            self.bench.add(f"others beside {what}: p99 over p99 alone", ratios, unit="times", at_most=5)

    def overtaken(self) -> None:
        """Transactions that stay open while many others commit."""
        runs = max(1, round(3 * scale()))
        for commits, target in zip(OVERTAKEN, OPEN_TARGETS_S, strict=True):
            for profile in OPEN_PROFILES:
                self.bench.measure(
                    f"{profile}: an update that was open while {scaled(commits)} others appended",
                    partial(time_open_commit, self.client, profile, scaled(commits)),
                    unit="s",
                    at_most=target,
                    runs=runs,
                    warm_ups=0,
                )
            self.bench.measure(
                f"an append that was open while {scaled(commits)} others appended",
                partial(time_open_append, self.client, OPEN_PROFILES[-1], scaled(commits)),
                unit="s",
                at_most=target,
                runs=runs,
                warm_ups=0,
            )

    def long_history(self) -> None:
        """One-call appends, fresh and with many commits behind them."""
        fresh = self.bench.measure(
            "one-call append, 32 writers",
            lambda: self.rate("append", 32, "maxcompute"),
            unit="commits/s",
            at_least=2500,
        )
        history = make_table(self.client, "maxcompute")
        done = 0
        while done < scaled(HISTORY):
            done += round(put_load(self.address, "batch", 4, 4, history).per_s * 4)
        behind = [put_load(self.address, "append", 32, self.seconds, history).per_s for _ in range(3)]
        slower = [fresh.figure / one for one in behind]
        self.bench.add(f"append with {done} commits behind: fresh rate over it", slower, unit="times", at_most=1.2)


if __name__ == "__main__":
    sys.exit(main())
