"""What a key across partitions costs beside one within a partition. `make bench-keys`; SCALE as elsewhere.

100,000 rows lie in 50 partitions. Upserts have random keys, half of which move rows, or new ones above all others.
"""

from __future__ import annotations

import time
from typing import Final, Literal

import numpy as np
import pyarrow as pa

from benchmarks.frame import Benchmark, scaled, scratch
from benchmarks.words import chosen
from laketx import Lake, Table, connect

ROWS: Final = 100_000
PARTITIONS: Final = 50
COUNTS: Final = (1, 1_000, 10_000)
RUNS: Final = 2
SCOPES: Final[tuple[Literal["table", "partition"], ...]] = ("table", "partition")


def batch(rng: np.random.Generator, keys: np.ndarray, moved: np.ndarray | int = 0) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(keys, pa.int64()),
            "day": pa.array((keys + moved) % PARTITIONS, pa.int32()),
            "amount": rng.random(len(keys)),
        }
    )


def filled(lake: Lake, scope: Literal["table", "partition"], rng: np.random.Generator) -> Table:
    table = lake.create_table(
        f"shop.by_{scope}",
        "id bigint, day int, amount double",
        primary_key=["id"],
        partition_by=["day"],
        key_scope=scope,
        buckets=2,
    )
    table.upsert(batch(rng, rng.permutation(scaled(ROWS))))
    return table


def upserted(table: Table, rows: pa.Table) -> float:
    begin = time.perf_counter()
    table.upsert(rows)
    return time.perf_counter() - begin


def measure(bench: Benchmark, lake: Lake, rng: np.random.Generator) -> None:
    across, within = (filled(lake, scope, rng) for scope in SCOPES)
    rows, added = scaled(ROWS), 0
    for count in COUNTS:
        random: tuple[list[float], list[float]] = ([], [])
        new: tuple[list[float], list[float]] = ([], [])
        for _ in range(RUNS):
            keys = rng.choice(rows, min(count, rows), replace=False)
            random[0].append(upserted(across, batch(rng, keys, rng.integers(0, 2, len(keys)))))
            random[1].append(upserted(within, batch(rng, keys)))
            fresh = batch(rng, np.arange(rows + added, rows + added + count))
            new[0].append(upserted(across, fresh))
            new[1].append(upserted(within, fresh))
            added += count
        bench.add(f"upsert {count:,} random keys", random[0], unit="s", peers={"within a partition": random[1]})
        bench.add(f"upsert {count:,} new keys", new[0], unit="s", peers={"within a partition": new[1]})
    looked_up = []
    for key in rng.choice(rows, 10 * RUNS):
        begin = time.perf_counter()
        assert len(across.get([int(key)])) == 1
        looked_up.append(time.perf_counter() - begin)
    bench.add("get one key", looked_up, unit="s")
    assert across.count() == rows + added


def main() -> None:
    chosen(__doc__)
    bench = Benchmark("keys", "Keys across partitions", packages=["pyarrow", "polars"])
    with scratch() as folder, connect(folder / "lake") as lake:
        measure(bench, lake, np.random.default_rng(1))
    raise SystemExit(0 if bench.finish() else 1)


if __name__ == "__main__":
    main()
