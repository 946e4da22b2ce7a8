"""deltalake on the work of `benchmarks/plan.py`: open a table of many files, ask for those of one partition.

`python -m benchmarks.peers.plan_delta FOLDER PARTITIONS FILES RUNS`, in the peers' environment; the seconds of each run
as JSON on stdout. The table has a checkpoint at its end, which is the best that can be done for it.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, Schema  # type: ignore[import-not-found, unused-ignore]

SCHEMA = Schema.from_arrow(pa.schema([("id", pa.int64()), ("day", pa.int32())]))
PARTITIONS_A_COMMIT = 500


def main() -> None:
    folder, partitions, files, runs = sys.argv[1], *map(int, sys.argv[2:5])
    Path(folder).mkdir(parents=True)
    table = DeltaTable.create(folder, SCHEMA, partition_by=["day"])
    for version, start in enumerate(range(0, partitions, PARTITIONS_A_COMMIT), 1):
        days = range(start, min(start + PARTITIONS_A_COMMIT, partitions))
        lines = [add(day, number) for day in days for number in range(files)]
        (Path(folder) / "_delta_log" / f"{version:020}.json").write_text("".join(lines), encoding="utf-8")
    table.update_incremental()
    table.create_checkpoint()
    seconds = []
    for _ in range(runs):
        start_s = time.perf_counter()
        found = DeltaTable(folder).file_uris([("day", "=", str(partitions // 2))])
        seconds.append(time.perf_counter() - start_s)
        if len(found) != files:
            raise RuntimeError(f"{len(found)} files instead of {files}")
    print(json.dumps(seconds))


def add(day: int, number: int) -> str:
    """A line of the log: what `create_write_transaction` writes, only sooner."""
    action = {"path": f"day={day}/{number}.parquet", "partitionValues": {"day": str(day)}, "size": 1 << 20}
    action |= {"modificationTime": 0, "dataChange": True, "stats": statistics(number)}
    return json.dumps({"add": action}) + "\n"


def statistics(number: int) -> str:
    first = number * 1_000
    return json.dumps(
        {"numRecords": 1_000, "minValues": {"id": first}, "maxValues": {"id": first + 999}, "nullCount": {"id": 0}}
    )


if __name__ == "__main__":
    main()
