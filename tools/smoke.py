"""What an installed LakeTX must do at least: a table in a folder, its rows, its history, by Python and by the command.

It runs where the tree is not, with the interpreter of the environment that is tried: `python -I smoke.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import laketx

SCHEMA = "id bigint, day date, amount double"


def main() -> int:
    command = str(Path(sys.executable).with_name("laketx"))
    with tempfile.TemporaryDirectory() as folder:
        with laketx.connect(folder, user="smoke") as lake:
            table = lake.create_table("shop.orders", SCHEMA, primary_key=["id"])
            table.upsert([{"id": 1, "amount": 2.5}, {"id": 2, "amount": 4.0}])
            table.upsert([{"id": 2, "amount": 8.0}])
            table.delete(keys=[1])
            found = [(row["id"], row["amount"]) for row in table.to_arrow().to_pylist()]
        if found != [(2, 8.0)]:
            print(f"the table should hold row 2 with 8.0, and holds {found}", file=sys.stderr)
            return 1
        environment = {**os.environ, "LAKETX_FOLDER": folder}
        for words in (["--version"], ["versions", "shop.orders"], ["fsck", "shop.orders"], ["purge", "run", "--yes"]):
            done = subprocess.run([command, *words], env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"laketx {' '.join(words)}: {done.stdout}{done.stderr}", file=sys.stderr)
                return 1
        counted = subprocess.run([command, "count", "shop.orders"], env=environment, capture_output=True, check=True)
    if counted.stdout.strip() != b"1":
        print(f"laketx count should say 1, and says {counted.stdout!r}", file=sys.stderr)
        return 1
    print(f"LakeTX {laketx.__version__} works: {Path(laketx.__file__).parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
