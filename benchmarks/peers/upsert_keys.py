"""deltalake and pyiceberg on the work of `benchmarks/keys.py`: rows that are upserted by a key, in their environment.

`python -m benchmarks.peers.upsert_keys FOLDER BASE PART…` makes tables of the rows in the Parquet file BASE, and prints
the seconds of the upsert of each PART. pyiceberg gets a tenth of the first one alone.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake  # type: ignore[import-not-found, unused-ignore]
from pyiceberg.catalog.sql import SqlCatalog  # type: ignore[import-not-found, unused-ignore]

FEWER = 10


def timed(parts: Sequence[pa.Table], upsert: Callable[[pa.Table], object]) -> list[float]:
    found = []
    for part in parts:
        begin = time.perf_counter()
        upsert(part)
        found.append(time.perf_counter() - begin)
    return found


def delta(folder: Path, rows: pa.Table, parts: Sequence[pa.Table]) -> list[float]:
    path = str(folder / "delta")
    write_deltalake(path, rows, partition_by=["day"])

    def upsert(part: pa.Table) -> None:
        merge = DeltaTable(path).merge(part, "t.id = given.id", source_alias="given", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    found = timed(parts, upsert)
    assert DeltaTable(path).to_pyarrow_table(columns=["id"]).num_rows == len(rows)
    return found


def iceberg(folder: Path, rows: pa.Table, parts: Sequence[pa.Table]) -> list[float]:
    path = folder / "iceberg"
    path.mkdir()
    catalog = SqlCatalog("bench", uri=f"sqlite:///{path}/catalog.db", warehouse=f"file://{path}")
    catalog.create_namespace("bench")
    table = catalog.create_table("bench.rows", schema=rows.schema)
    with table.update_spec() as spec:
        spec.add_identity("day")
    table.append(rows)
    found = timed(parts, lambda part: table.upsert(part, join_cols=["id"]))
    assert len(table.scan(selected_fields=("id",)).to_arrow()) == len(rows)
    return found


def main() -> None:
    folder = Path(sys.argv[1])
    rows, *parts = map(pq.read_table, sys.argv[2:])
    found = {"deltalake MERGE": delta(folder, rows, parts)}
    tenth = parts[0].slice(0, len(parts[0]) // FEWER)
    found["pyiceberg upsert, a tenth of the keys"] = iceberg(folder, rows, [tenth])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
