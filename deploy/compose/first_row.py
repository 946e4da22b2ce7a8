"""Commits a row to a table and reads it back: what a new deployment is tried with.

Its addresses are in the environment: LAKETX_SERVER, LAKETX_WAREHOUSE, and for S3 the variables of AWS. Each run adds
the next row.
"""

import os
import sys
import time

import laketx

TABLE = "first.rows"
ON_STORAGE = {"write.inline.rows": "0"}  # a file on storage even for one row: the storage is tried too


def main() -> int:
    began_s = time.monotonic()
    address = f"laketx://{os.environ['LAKETX_SERVER']}"
    with laketx.connect(address, user="first-row", warehouse=os.environ["LAKETX_WAREHOUSE"]) as lake:
        table = lake.create_table(TABLE, "id bigint, said string", properties=ON_STORAGE, if_not_exists=True)
        number = table.count() + 1
        commit = table.append([{"id": number, "said": "hello"}])
        found = table.to_arrow(where=f"id = {number}").to_pylist()
    if found != [{"id": number, "said": "hello"}]:
        print(f"row {number} was committed, and this was read: {found}", file=sys.stderr)
        return 1
    took_s = time.monotonic() - began_s
    print(f"row {number} of {TABLE} is committed as version {commit.version} and read back: {took_s:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
