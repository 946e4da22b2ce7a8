"""DuckLake, deltalake and pyiceberg on the work of `benchmarks/keys.py`: rows that are upserted by a key.

`python -m benchmarks.peers.upsert_keys FOLDER ROWS PARTITIONS COUNT RUNS` prints the seconds of upserts of so many of
the rows' keys by the last two, in the peers' environment. pyiceberg gets a tenth of the keys of one upsert, in one run.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

FEWER = 10


@dataclass
class Rows:
    """The rows of a table: their keys are the numbers below `count`."""

    count: int
    partitions: int
    chance: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))

    def all(self) -> pa.Table:
        return self._of(self.chance.permutation(self.count), 0)

    def some(self, count: int, *, moves: bool) -> pa.Table:
        """So many random ones, with new values; half of them move, if they may."""
        keys = self.chance.choice(self.count, min(count, self.count), replace=False)
        return self._of(keys, self.chance.integers(0, 2, len(keys)) if moves else 0)

    def new(self, count: int, after: int) -> pa.Table:
        """So many above all, and above those that were added before."""
        return self._of(np.arange(self.count + after, self.count + after + count), 0)

    def _of(self, keys: Any, moved: Any) -> pa.Table:
        days = pa.array((keys + moved) % self.partitions, pa.int32())
        return pa.table({"id": pa.array(keys, pa.int64()), "day": days, "amount": self.chance.random(len(keys))})


def timed(rows: Rows, count: int, runs: int, upsert: Callable[[pa.Table], object]) -> list[float]:
    found = []
    for _ in range(runs):
        part = rows.some(count, moves=True)
        begin = time.perf_counter()
        upsert(part)
        found.append(time.perf_counter() - begin)
    return found


def ducklake(folder: Path, rows: Rows, count: int, runs: int) -> list[float]:
    import duckdb  # noqa: PLC0415 - the peers' environment has none

    with duckdb.connect() as lake:
        for name in ("ducklake",):
            lake.execute(f"LOAD {name}")
        lake.execute(f"ATTACH 'ducklake:{folder}/lake.ducklake' AS lake (DATA_PATH '{folder}/ducklake')")
        lake.execute("CREATE TABLE lake.t (id BIGINT, day INT, amount DOUBLE)")
        lake.execute("ALTER TABLE lake.t SET PARTITIONED BY (day)")
        lake.register("given", rows.all())
        lake.execute("INSERT INTO lake.t SELECT * FROM given")

        def upsert(part: pa.Table) -> None:
            lake.register("given", part)
            lake.execute(
                "MERGE INTO lake.t USING given ON t.id = given.id WHEN MATCHED THEN UPDATE SET day = given.day, "
                "amount = given.amount WHEN NOT MATCHED THEN INSERT VALUES (given.id, given.day, given.amount)"
            )

        found = timed(rows, count, runs, upsert)
        assert lake.execute("SELECT count(*) FROM lake.t").fetchall() == [(rows.count,)]
        return found


def delta(folder: Path, rows: Rows, count: int, runs: int) -> list[float]:
    from deltalake import DeltaTable, write_deltalake  # type: ignore[import-not-found, unused-ignore] # noqa: PLC0415

    path = str(folder / "delta")
    write_deltalake(path, rows.all(), partition_by=["day"])

    def upsert(part: pa.Table) -> None:
        merge = DeltaTable(path).merge(part, "t.id = given.id", source_alias="given", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    found = timed(rows, count, runs, upsert)
    assert DeltaTable(path).to_pyarrow_table(columns=["id"]).num_rows == rows.count
    return found


def iceberg(folder: Path, rows: Rows, count: int, runs: int) -> list[float]:
    from pyiceberg.catalog.sql import SqlCatalog  # type: ignore[import-not-found, unused-ignore] # noqa: PLC0415

    path = folder / "iceberg"
    path.mkdir()
    catalog = SqlCatalog("bench", uri=f"sqlite:///{path}/catalog.db", warehouse=f"file://{path}")
    catalog.create_namespace("bench")
    table = catalog.create_table("bench.rows", schema=rows.all().schema)
    with table.update_spec() as spec:
        spec.add_identity("day")
    table.append(rows.all())
    found = timed(rows, count, runs, lambda part: table.upsert(part, join_cols=["id"]))
    assert len(table.scan(selected_fields=("id",)).to_arrow()) == rows.count
    return found


def main() -> None:
    folder, (count, partitions, few, runs) = Path(sys.argv[1]), map(int, sys.argv[2:])
    rows = Rows(count, partitions)
    found = {"deltalake MERGE": delta(folder, rows, few, runs)}
    found["pyiceberg upsert, a tenth of the keys"] = iceberg(folder, rows, few // FEWER, 1)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
