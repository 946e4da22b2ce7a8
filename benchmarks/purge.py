"""How fast dead files leave a local disk, and in how much memory. `make bench-purge`.

A run of `laketx purge run`, its start included, beside one thread that unlinks as many files and asks nobody.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.frame import ROOT, Benchmark, scaled, scratch
from benchmarks.serving import server
from benchmarks.words import chosen
from metaservice.client import MetaClient
from protos.laketx.v1 import catalog_pb2, common_pb2, transaction_pb2

FILES = 100_000
FILES_FEW = 10_000
FOLDER_FILES = 1_000
FILE_BYTES = 1_024
RUNS = 2
WAIT_S = 120.0


def write_files(folder: Path, count: int) -> list[str]:
    """Paths below the folder."""
    content = b"x" * FILE_BYTES
    paths = [f"{number // FOLDER_FILES}/{number}.parquet" for number in range(count)]
    for at in range(0, count, FOLDER_FILES):
        (folder / paths[at]).parent.mkdir(parents=True)
    for path in paths:
        (folder / path).write_bytes(content)
    return paths


def make_dead_files(client: MetaClient, warehouse: Path, name: str, count: int) -> str:
    """A table with so many files on its purge list."""
    columns = [catalog_pb2.Column(name="id", type="bigint")]
    table = catalog_pb2.Table(name=name, columns=columns, properties={"data.retain.hours": "0"})
    table_id = client.create_table(table).table_id
    txn = client.begin([intent(table_id, common_pb2.OPERATION_INSERT)])
    paths = write_files(warehouse / table_id / txn.txn_id, count)
    txn.register(
        table_id,
        [common_pb2.DataFile(path=f"{txn.txn_id}/{path}", rows=1, bytes=FILE_BYTES) for path in paths],
    )
    txn.commit([common_pb2.Change(table_id=table_id)])
    change = common_pb2.Change(table_id=table_id)
    change.scope.all = True
    client.begin([intent(table_id, common_pb2.OPERATION_TRUNCATE)]).commit([change])
    deadline = time.monotonic() + WAIT_S
    while sum(1 for _ in client.list_purgeable(table_id, page_size=1_000)) < count:
        for _ in range(500):
            client.ping()
        if time.monotonic() > deadline:
            raise RuntimeError("the files did not come to the purge list")
    return table_id


def intent(table_id: str, operation: common_pb2.Operation.ValueType) -> transaction_pb2.TableIntent:
    return transaction_pb2.TableIntent(table_id=table_id, operation=operation)


def purge(address: str, warehouse: Path, table_id: str, count: int) -> tuple[float, float]:
    """Files a second, and the most memory in MiB."""
    command = [sys.executable, "-m", "metaservice.cli", "--server", address, "-o", "json", "purge", "run", table_id]
    start = time.perf_counter()
    running = subprocess.Popen(
        [*command, "--warehouse", str(warehouse), "--yes"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    said = running.stdout.read()
    _, status, used = os.wait4(running.pid, 0)
    taken_s = time.perf_counter() - start
    running.returncode = os.waitstatus_to_exitcode(status)
    if running.returncode or json.loads(said)["files"] != count or any((warehouse / table_id).rglob("*.parquet")):
        raise RuntimeError(f"not everything was purged: {said}")
    return count / taken_s, used.ru_maxrss / 1_024


def unlink(folder: Path, count: int) -> float:
    """Files a second, by one thread."""
    paths = write_files(folder, count)
    start = time.perf_counter()
    for path in paths:
        (folder / path).unlink()
    return count / (time.perf_counter() - start)


def main() -> int:
    chosen(__doc__)
    bench = Benchmark("purge", "Purge of dead files on a local disk", ["pyarrow", "grpcio"])
    count, few = scaled(FILES), scaled(FILES_FEW)
    with (
        scratch() as folder,
        server(folder / "db", "--purge-delay-ms", "0") as (address, _),
        MetaClient(address, principal="bench") as client,
    ):
        warehouse = folder / "lake"
        runs = []
        for run in range(RUNS):
            table_id = make_dead_files(client, warehouse, f"dead_{run}", count)
            runs.append(purge(address, warehouse, table_id, count))
        rates, memory = [rate for rate, _ in runs], [most for _, most in runs]
        bench.add(f"purge of {count} dead files", rates, unit="files/s", at_least=2_000)
        plain = [unlink(folder / f"plain-{run}", count) for run in range(RUNS)]
        bench.add(f"unlink of {count} files, one thread", plain, unit="files/s")
        _, small = purge(address, warehouse, make_dead_files(client, warehouse, "few", few), few)
        bench.add(f"most memory with {count} files", memory, unit="MiB")
        bench.add(f"over that with {few}", [most / small for most in memory], unit="times", at_most=1.2)
    return 0 if bench.finish() else 1


if __name__ == "__main__":
    sys.exit(main())
