"""deltalake on the work of `benchmarks/s3.py`: it does what each line of stdin names, and answers with the seconds.

`python -m benchmarks.peers.s3_delta_rs URI FILES ROWS`, in the peers' environment; the server of S3 is named by AWS's
variables. Each commit is a conditional PUT, which is deltalake's own default and its best.
"""

from __future__ import annotations

import sys
import time

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake  # type: ignore[import-not-found, unused-ignore]

OPTIONS = {"allow_http": "true", "conditional_put": "etag"}


def main() -> None:
    uri, files, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rows = pa.table({"id": pa.array(range(count), pa.int64()), "v": ["x"] * count})
    for name in ("written", "read"):
        for _ in range(files if name == "read" else 1):
            write_deltalake(f"{uri}/{name}", rows, mode="append", storage_options=OPTIONS)
    print("ready", flush=True)
    for line in sys.stdin:
        print(timed(uri, line.strip(), rows), flush=True)


def timed(uri: str, name: str, rows: pa.Table) -> float:
    """Each opens the table anew, as a program that begins does."""
    begun_s = time.perf_counter()
    if name == "insert":
        write_deltalake(f"{uri}/written", rows, mode="append", storage_options=OPTIONS)
        return time.perf_counter() - begun_s
    table = DeltaTable(f"{uri}/read", storage_options=OPTIONS)
    version = table.version()
    match name:
        case "read":
            table.to_pyarrow_table()
        case "read_one":
            table.to_pyarrow_table(filters=[("id", "=", 5)])
        case _:
            table.delete("id = 7")
    seconds = time.perf_counter() - begun_s
    if name == "delete":
        table.restore(version)
    return seconds


if __name__ == "__main__":
    main()
