"""How fast MetaService commits, beside deltalake and pyiceberg on the same work. `make bench-commit`."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks.frame import Benchmark, scale, scaled, scratch
from benchmarks.load import data_file
from benchmarks.peers import measure
from metaservice.client.ids import uuid7
from metaservice.client.meta_client import MetaClient
from protos.laketx.v1 import catalog_pb2, common_pb2, transaction_pb2

ROOT = Path(__file__).resolve().parents[1]
PROCESSES = 2
HISTORY = 100_000
LARGE = 100_000


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


@contextmanager
def server(folder: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "metaservice", "--listen", "127.0.0.1:0", "--data", str(folder)]
    with (
        (folder.parent / f"{folder.name}.log").open("wb") as errors,
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True) as running,
    ):
        assert running.stdout is not None
        try:
            yield running.stdout.readline().removeprefix("listening on ").strip()
        finally:
            running.terminate()
            running.wait(60)


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


def main() -> int:
    bench = Benchmark("commit", "Commits a second: LakeTX beside deltalake and pyiceberg", ["grpcio", "rocksdict"])
    seconds = max(2.0, 6.0 * scale())
    with scratch() as folder:
        peers = measure(folder, seconds=max(2.0, 5 * scale()), writers=(1, 16), runs=max(1, round(3 * scale())))
        if not all(figure.verified for figure in peers.values()):
            raise RuntimeError("a peer lost or invented commits")
        at16 = {peer: figure.commits_per_s for (peer, writers), figure in peers.items() if writers == 16}
        notes = "\n".join(figure.note for (_, writers), figure in peers.items() if writers == 16)
        with server(folder / "db") as address, MetaClient(address, principal="bench") as client:
            ours(bench, client, address, seconds, at16, notes)
    return 0 if bench.finish() else 1


def ours(
    bench: Benchmark, client: MetaClient, address: str, seconds: float, at16: dict[str, float], notes: str
) -> None:
    def rate(kind: str, threads: int, profile: str) -> float:
        table_id = make_table(client, profile)
        load = put_load(address, kind, threads, seconds, table_id)
        if load.acked:
            check_none_lost(client, table_id, load)
        return load.per_s

    full = bench.measure(
        "32 writers: begin, register 1 file, commit",
        lambda: rate("transaction", 32, "delta_write_serializable"),
        unit="commits/s",
        at_least=1500,
        peers=at16,
        note=notes,
    )
    empty = bench.measure(
        "32 writers: three empty calls in the same session",
        lambda: rate("three_empty_calls", 32, "delta_write_serializable"),
        unit="commits/s",
    )
    shares = [100 * one / empty.figure for one in full.runs]
    bench.add("share of what empty calls reach", shares, unit="%", at_least=60)
    for peer, times in (("deltalake", 30), ("pyiceberg", 100)):
        ratios = [one / at16[peer] for one in full.runs]
        bench.add(f"times {peer} at 16 writers", ratios, unit="times", at_least=times)
    append = bench.measure(
        "one-call append, 32 writers",
        lambda: rate("append", 32, "maxcompute"),
        unit="commits/s",
        at_least=2500,
    )
    bench.measure(
        "batches of 100 appends",
        lambda: rate("batch", 4, "maxcompute"),
        unit="commits/s",
        at_least=15000,
    )
    bench.measure(
        "one writer: begin, commit (median)",
        lambda: (
            put_load(address, "begin_and_commit", 1, seconds, make_table(client, "delta_write_serializable"), 1).p50_ms
        ),
        unit="ms",
        at_most=2,
    )
    bench.measure(
        "one writer: two empty calls (median)",
        lambda: (
            put_load(address, "two_empty_calls", 1, seconds, make_table(client, "delta_write_serializable"), 1).p50_ms
        ),
        unit="ms",
    )
    wasted: list[float] = []

    def contended() -> float:
        load = put_load(address, "contended", 16, seconds, make_table(client, "maxcompute", keyed=True))
        check_decisions(load.decisions)
        decisions = load.per_s + load.conflicts_per_s
        wasted.append(100 * load.conflicts_per_s / decisions)
        return decisions

    bench.measure("contended, 16 writers, 8 partitions", contended, unit="decisions/s", at_least=1000, peers=at16)
    bench.add("contended: lost races", wasted[1:], unit="%")
    large = [
        time_large_commit(client, address, make_table(client, "delta_write_serializable"))
        for _ in range(max(1, round(3 * scale())))
    ]
    bench.add(f"a transaction of {scaled(LARGE)} files", [one[0] for one in large], unit="s", at_most=3)
    bench.add("others meanwhile: p99 over p99 alone", [one[2] / one[1] for one in large], unit="times", at_most=5)
    history = make_table(client, "maxcompute")
    done = 0
    while done < scaled(HISTORY):
        done += round(put_load(address, "batch", 4, 4, history).per_s * 4)
    behind = [put_load(address, "append", 32, seconds, history).per_s for _ in range(3)]
    slower = [append.figure / one for one in behind]
    bench.add(f"append with {done} commits behind: fresh rate over it", slower, unit="times", at_most=1.2)


if __name__ == "__main__":
    sys.exit(main())
