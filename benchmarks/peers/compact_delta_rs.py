"""deltalake on the work of `benchmarks/compact.py`: OPTIMIZE of many small files, and deletes that cross it.

`python -m benchmarks.peers.compact_delta_rs FOLDER RUNS ROUNDS`, in the peers' environment; FOLDER/small has the small
files. Seconds, bytes written and refusals as JSON on stdout. All of it runs on the machine's own cores.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
from deltalake import DeltaTable, WriterProperties, write_deltalake  # type: ignore[import-not-found, unused-ignore]
from deltalake.exceptions import DeltaError  # type: ignore[import-not-found, unused-ignore]

ZSTD = WriterProperties(compression="ZSTD", compression_level=3)


def main() -> None:
    folder, runs, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    small = sorted((folder / "small").glob("*.parquet"))
    table, copy = folder / "delta-rs", str(folder / "delta-rs-copy")
    for path in small:
        append(str(table), path)
    seconds, written = [], 0
    for run in range(-1, runs):
        shutil.copytree(table, copy)
        start = time.perf_counter()
        found = DeltaTable(copy).optimize.compact(writer_properties=ZSTD)
        if run >= 0:
            seconds.append(time.perf_counter() - start)
        written = json.loads(found["filesAdded"])["totalSize"]
        shutil.rmtree(copy)
    print(json.dumps({"seconds": seconds, "bytes": [written], **crossings(str(table), small, rounds)}))


def append(table: str, path: Path) -> None:
    write_deltalake(table, pq.read_table(path), mode="append", writer_properties=ZSTD)


def crossings(table: str, small: list[Path], rounds: int) -> dict[str, list[int]]:
    """Refused of as many deletes of a row, and of as many OPTIMIZEs, that began before the other ended."""
    user = optimize = 0
    for number in range(rounds):
        append(table, small[number])
        stale, fresh = DeltaTable(table), DeltaTable(table)
        fresh.optimize.compact(writer_properties=ZSTD)
        user += is_refused(partial(stale.delete, f"id = {number}"))
        append(table, small[number])
        stale, fresh = DeltaTable(table), DeltaTable(table)
        fresh.delete(f"id = {rounds + number}")
        optimize += is_refused(partial(stale.optimize.compact, writer_properties=ZSTD))
    return {"user refused": [user], "optimize refused": [optimize]}


def is_refused(work: Callable[[], object]) -> bool:
    try:
        work()
    except DeltaError:
        return True
    return False


if __name__ == "__main__":
    main()
