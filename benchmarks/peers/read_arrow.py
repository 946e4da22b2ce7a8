"""deltalake and pyiceberg on the work of `benchmarks/arrow.py`, in the peers' environment.

`python -m benchmarks.peers.read_arrow FOLDER RUNS FILE…` writes the rows of the Parquet files as tables of the peers,
and prints the seconds of a whole read to Arrow over those of pyarrow on the files that the peer wrote.
`python -m benchmarks.peers.read_arrow commits FOLDER SECONDS` prints commits of ten rows per second by 16 writers.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, WriterProperties, write_deltalake  # type: ignore[import-not-found, unused-ignore]
from deltalake.exceptions import CommitFailedError  # type: ignore[import-not-found, unused-ignore]
from pyiceberg.catalog.sql import SqlCatalog  # type: ignore[import-not-found, unused-ignore]

from benchmarks.turns import interleaved, over

ZSTD = WriterProperties(compression="ZSTD", compression_level=3)
WRITERS = 16
FEW = 10


def main() -> None:
    if sys.argv[1] == "commits":
        print(json.dumps({"deltalake": commits(Path(sys.argv[2]), float(sys.argv[3]))}))
        return
    folder, runs, files = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    folder.mkdir(parents=True)
    rows = pq.ParquetDataset(files).read()
    print(json.dumps({"deltalake": delta(folder, rows, runs), "pyiceberg": iceberg(folder, rows, runs)}))


def delta(folder: Path, rows: pa.Table, runs: int) -> list[float]:
    path = folder / "delta"
    write_deltalake(str(path), rows, writer_properties=ZSTD)
    written = sorted(map(str, path.glob("*.parquet")))
    ways = {
        "peer": lambda: DeltaTable(str(path)).to_pyarrow_table(),
        "pyarrow": lambda: pq.ParquetDataset(written).read(),
    }
    times = interleaved(ways, runs=runs, warm_ups=1)
    return over(times["peer"], times["pyarrow"])


def iceberg(folder: Path, rows: pa.Table, runs: int) -> list[float]:
    path = folder / "iceberg"
    path.mkdir()
    catalog = SqlCatalog("bench", uri=f"sqlite:///{path}/catalog.db", warehouse=f"file://{path}")
    catalog.create_namespace("bench")
    table = catalog.create_table("bench.rows", schema=rows.schema)
    table.append(rows)
    written = sorted(map(str, path.rglob("*.parquet")))
    ways: dict[str, Any] = {
        "peer": lambda: catalog.load_table("bench.rows").scan().to_arrow(),
        "pyarrow": lambda: pq.ParquetDataset(written).read(),
    }
    times = interleaved(ways, runs=runs, warm_ups=1)
    return over(times["peer"], times["pyarrow"])


def commits(folder: Path, seconds: float) -> list[float]:
    found = []
    for run in range(2):
        path = str(folder / str(run))
        write_deltalake(path, few())
        with multiprocessing.get_context("spawn").Pool(WRITERS) as pool:
            pool.starmap(commit_for, [(path, 0.1)] * WRITERS, chunksize=1)
            counts = pool.starmap(commit_for, [(path, seconds)] * WRITERS, chunksize=1)
        found.append(sum(count / took for count, took in counts))
    return found[1:]


def few() -> pa.Table:
    return pa.table({"id": range(FEW), "v": ["some text"] * FEW, "amount": [1.5] * FEW})


def commit_for(path: str, seconds: float) -> tuple[int, float]:
    batch, done, begin = few(), 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        try:
            write_deltalake(path, batch, mode="append")
        except CommitFailedError:
            continue
        done += 1
    return done, time.perf_counter() - begin


if __name__ == "__main__":
    main()
