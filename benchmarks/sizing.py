"""What a service needs: memory and disk by files, tables, open transactions and commits. `make bench-sizing`.

The tables are loaded by the service's own code in this process; what is measured is a service of its own on their
folder. Memory is what the system counts for its process, and grows in steps: the figures are shares of a large number.
docs/production.md turns them into a size.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks.frame import Benchmark, scaled, scratch
from benchmarks.load import data_file as small_file
from benchmarks.plan_tables import LAKE_FILES, load_deep, load_lake, load_wide, loader
from benchmarks.serving import PEAK, memory, server
from benchmarks.sizing_bucket import add_lake_in_bucket
from benchmarks.words import chosen
from metaservice.client import MetaClient, Transaction, uuid7
from metaservice.client.conditions import parse_condition
from protos.laketx.v1 import catalog_pb2, common_pb2, transaction_pb2

FILES = 1_000_000
PARTITIONS = 2_000  # of 100 files, each in a commit of its own
TABLES = 2_000
LAKE_PLANNED = 1_000  # tables
LAKE_STARTS = 3
TRANSACTIONS = 5_000
STAGED = 500_000
STAGED_A_CALL = 10_000
COMMITS = 20_000
COMMITS_A_BATCH = 500
HISTORY_FLAGS = ("--schedule-ms", "0", "--purge-delay-ms", "3600000")  # nothing else grows meanwhile


def disk(folder: Path) -> int:
    """Bytes that the files of a store take."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def open_transaction(client: MetaClient, table_id: str) -> Transaction:
    return client.begin([transaction_pb2.TableIntent(table_id=table_id, operation=common_pb2.OPERATION_INSERT)])


def new_table(client: MetaClient, name: str) -> str:
    columns = [catalog_pb2.Column(name="id", type="bigint"), catalog_pb2.Column(name="amount", type="double")]
    return client.create_table(catalog_pb2.Table(name=name, columns=columns)).table_id


def add_files(bench: Benchmark, folder: Path) -> None:
    """A million files in one table, and a table of partitions: on disk, at the start, and when they are planned."""
    files, partitions = scaled(FILES), scaled(PARTITIONS)
    data = folder / "files"
    with loader(data) as loaded:
        deep = load_deep(loaded, files)
        wide = load_wide(loaded, partitions)
    bench.add(
        f"disk for a live file, four columns with bounds ({files:,} files)",
        [disk(data) / (files + 100 * partitions)],
        unit="bytes",
    )
    empty_at = folder / "empty"
    with server(empty_at, *HISTORY_FLAGS) as empty, MetaClient(empty.address) as client:
        client.ping()
        bench.add("memory of an empty service", [memory(empty)], unit="MiB")
    start_s = time.perf_counter()
    with server(data, *HISTORY_FLAGS) as service, MetaClient(service.address) as client:
        client.ping()
        bench.add(f"start with {files:,} files", [time.perf_counter() - start_s], unit="s")
        bench.add(f"memory after a start with {files:,} files", [memory(service)], unit="MiB")
        (columns,) = (one.columns for one in client.list_tables() if one.table_id == wide)
        for count in (max(1, partitions // 10), partitions):
            condition = parse_condition(f"day < {count}", columns)
            planned = sum(len(part.entries) for part in client.plan_scan(wide, predicate=condition))
            assert planned == 100 * count
            bench.add(f"peak memory, a plan of {planned:,} files", [memory(service, PEAK)], unit="MiB")
        listed = sum(len(part.entries) for part in client.plan_scan(deep))
        assert listed == files
        bench.add(f"peak memory, a plan of {listed:,} files", [memory(service, PEAK)], unit="MiB")


def add_lake(bench: Benchmark, folder: Path) -> None:
    """Ten thousand tables with ten million files: what a start takes, and the memory that it and plans leave."""
    data = folder / "lake"
    ids = load_lake(data)
    tables = len(ids)
    told = f"{tables * LAKE_FILES:,} files in {tables:,} tables"
    bench.add(f"disk, {told}", [disk(data) / (1 << 20)], unit="MiB")
    starts, memories, peaks = [], [], []
    for _ in range(LAKE_STARTS):
        start_s = time.perf_counter()
        with server(data, *HISTORY_FLAGS) as service, MetaClient(service.address) as client:
            client.ping()
            starts.append(time.perf_counter() - start_s)
            memories.append(memory(service))
            for table_id in ids[:LAKE_PLANNED]:
                assert sum(len(part.entries) for part in client.plan_scan(table_id)) == LAKE_FILES
            peaks.append(memory(service, PEAK))
    bench.add(f"start, {told}", starts, unit="s", at_most=5)
    bench.add(f"memory after the start, {told}", memories, unit="MiB", at_most=1024)
    bench.add(f"peak memory after plans of {min(tables, LAKE_PLANNED):,} tables", peaks, unit="MiB", at_most=1024)


def add_tables(bench: Benchmark, folder: Path) -> None:
    tables = scaled(TABLES)
    with server(folder / "tables", *HISTORY_FLAGS) as service, MetaClient(service.address, principal="bench") as client:
        new_table(client, "first")
        before = memory(service)
        for number in range(tables):
            new_table(client, f"t{number}")
        bench.add(f"memory for a table ({tables:,})", [1024 * (memory(service) - before) / tables], unit="KiB")


def add_transactions(bench: Benchmark, folder: Path) -> None:
    count, staged = scaled(TRANSACTIONS), scaled(STAGED)
    flags = (*HISTORY_FLAGS, "--lease-ms", "3600000")
    with server(folder / "open", *flags) as service, MetaClient(service.address, principal="bench") as client:
        table_id = new_table(client, "first")
        before = memory(service)
        for _ in range(count):
            open_transaction(client, table_id)
        bench.add(
            f"memory for an open transaction ({count:,})", [1024 * (memory(service) - before) / count], unit="KiB"
        )
        transaction, before = open_transaction(client, table_id), memory(service)
        for start in range(0, staged, STAGED_A_CALL):
            files = [small_file(transaction.txn_id, number) for number in range(start, start + STAGED_A_CALL)]
            transaction.register(table_id, files)
        said = client.get_status()
        grown = 1024 * 1024 * (memory(service) - before)
        bench.add(f"memory for a staged file ({staged:,})", [grown / staged], unit="bytes")
        (quota,) = (one for one in said.quotas if one.quota == "staged_bytes")
        bench.add("the same as its quota counts it", [quota.used / staged], unit="bytes")


def add_commits(bench: Benchmark, folder: Path) -> None:
    """Commits of one file each; what is in the write-ahead log is not compact yet, and is written out by a start."""
    commits, data = scaled(COMMITS, COMMITS_A_BATCH), folder / "commits"
    with server(data, *HISTORY_FLAGS) as service, MetaClient(service.address, principal="bench") as client:
        table_id = new_table(client, "first")
        before_disk, before = disk(data), memory(service)
        for _ in range(commits // COMMITS_A_BATCH):
            client.commit_batch(list(appends(table_id, COMMITS_A_BATCH)))
        done = commits // COMMITS_A_BATCH * COMMITS_A_BATCH
        logged = (disk(data) - before_disk) / done
        bench.add(f"disk for a commit of one file, in the log ({done:,})", [logged], unit="bytes")
        bench.add(f"memory for a recent commit ({done:,})", [1024 * (memory(service) - before) / done], unit="KiB")
    with server(data, *HISTORY_FLAGS) as service, MetaClient(service.address) as client:
        client.ping()
    bench.add("the same after a start", [disk(data) / done], unit="bytes")


def appends(table_id: str, count: int) -> Iterator[transaction_pb2.AppendRequest]:
    for _ in range(count):
        txn_id = uuid7()
        yield transaction_pb2.AppendRequest(txn_id=txn_id, table_id=table_id, files=[small_file(txn_id, 0)])


PARTS: Mapping[str, Callable[[Benchmark, Path], None]] = {
    "files": add_files,
    "tables": add_tables,
    "transactions": add_transactions,
    "commits": add_commits,
    "lake": add_lake,
    "bucket": add_lake_in_bucket,
}


def main() -> int:
    names = chosen(__doc__, PARTS)
    bench = Benchmark("sizing", "What a service needs", ["grpcio", "rocksdict", "protobuf", "slatedb"])
    for part in [PARTS[name] for name in names] or PARTS.values():
        with scratch() as folder:
            part(bench, folder)
    return 0 if bench.finish() else 1


if __name__ == "__main__":
    sys.exit(main())
