"""A program that ends without `close`, while threads of its client are at work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

PROGRAM = """
import atexit, threading
atexit.register(lambda: print(sorted(thread.name for thread in threading.enumerate() if "laketx-" in thread.name)))

import laketx
from protos.laketx.v1 import transaction_pb2

lake = laketx.connect("./warehouse")
table = lake.create_table("shop.orders", "id bigint, amount double", primary_key=["id"])
table.upsert([{"id": 1, "amount": 10.0}])
table.to_arrow()
writer = table.writer(flush_ms=60_000)
writer.write({"id": 2, "amount": 20.0})
intent = transaction_pb2.TableIntent(table_id=table.meta.table_id, operation="OPERATION_INSERT")
txn = table.lake.client.begin([intent])
txn.register(table.meta.table_id, [])
running = {thread.name for thread in threading.enumerate()}
assert running >= {"laketx-session", "laketx-heartbeat", "laketx-pins", "laketx-writer"}, running
"""


def test_no_thread_of_a_client_outlives_the_program(tmp_path: Path) -> None:
    """One that does, and is inside gRPC's C++, aborts the process now and then."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['laketx-server-end']\n"  # it waits for the service, in C


FORKED = """
import os
import laketx

lake = laketx.connect("./warehouse")
lake.create_table("shop.orders", "id bigint")
begun = os.fork()
if not begun:
    raise SystemExit(3)  # with all that runs at an end
assert os.waitstatus_to_exitcode(os.waitpid(begun, 0)[1]) == 3
assert lake.tables() == ["shop.orders"]
"""


def test_the_end_of_a_forked_process_leaves_its_parents_client_alone(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
