"""deltalake on the work of `benchmarks/write.py`, without Spark: append, MERGE of updates by key, delete by condition.

`python -m benchmarks.peers.write_delta_rs FOLDER RUNS`, in the peers' environment; FOLDER has the rows and the updates
as Parquet. The seconds of each work and run as JSON on stdout. All of it runs on the machine's own cores.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset as ds
from deltalake import DeltaTable, WriterProperties, write_deltalake  # type: ignore[import-not-found, unused-ignore]

ZSTD = WriterProperties(compression="ZSTD", compression_level=3)


def main() -> None:
    folder, runs = Path(sys.argv[1]), int(sys.argv[2])
    table = str(folder / "delta-rs")
    source, updates = (ds.dataset(str(folder / name), format="parquet") for name in ("rows", "updates"))

    def insert() -> None:
        shutil.rmtree(table, ignore_errors=True)
        batches = source.scanner(batch_size=1 << 16).to_reader()
        write_deltalake(table, batches, writer_properties=ZSTD)

    def merge() -> None:
        merger = DeltaTable(table).merge(
            updates.to_table(), "target.id = source.id", source_alias="source", target_alias="target"
        )
        merger.when_matched_update_all().when_not_matched_insert_all().execute()

    def delete() -> None:
        DeltaTable(table).delete("amount < 10")

    found = {"insert": [timed(insert) for _ in range(runs)]}
    for name, work in (("merge", merge), ("delete", delete)):
        found[name] = []
        for _ in range(runs):
            found[name].append(timed(work))
            DeltaTable(table).restore(0)
    print(json.dumps(found))


def timed(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
