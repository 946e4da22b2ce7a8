"""pyiceberg on the play of `benchmarks/branches.py`, in its environment: an append on a branch, and one beside it.

`python -m benchmarks.peers.branch_appends FOLDER` prints how many of three rows a reader of the table finds when `main`
has become the branch. pyiceberg has no merge, and Iceberg's procedure `fast_forward` needs a `main` that did not move:
what is left is to make the branch's snapshot the current one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog  # type: ignore[import-not-found, unused-ignore]


def main(folder: Path) -> None:
    catalog = SqlCatalog("play", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.orders", schema=pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1]}))
    left_at = table.metadata.current_snapshot_id
    assert left_at is not None
    table.manage_snapshots().create_branch(left_at, "etl").commit()
    table.append(pa.table({"id": [2]}), branch="etl")
    table.append(pa.table({"id": [3]}))
    table.manage_snapshots().set_current_snapshot(ref_name="etl").commit()
    print(json.dumps({"rows": [table.scan().to_arrow().num_rows]}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
