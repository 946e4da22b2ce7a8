"""`laketx worker`: the worker of table services in the foreground, until SIGTERM or Ctrl-C.

The first signal lets running tasks end, for as long as `--drain` allows; a second one gives them back at once.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Final

from metaservice.client import LakeTXError
from metaservice.client.credentials import with_scheme
from metaservice.shared.terminal import LineFormatter, printable

try:
    from laketx.companions import companions_of
    from laketx.connection import connect
    from laketx.lake import Lake
    from worker.services.compaction.compaction import on_spark
    from worker.services.compaction.daemon import DRAIN_S, IDLE_S, TASKS_AT_ONCE, Daemon
    from worker.services.compaction.processes import Processes
    from worker.spark.java import keep_spark_quiet
except ModuleNotFoundError as missing:
    sys.exit(f"laketx worker: a worker needs Arrow ({missing.name}): pip install 'laketx[arrow]'")

if TYPE_CHECKING:
    from worker.services.compaction.jobs import Runner

SERVER: Final = "127.0.0.1:7070"
TASKS_MAX: Final = 64
DRAINED: Final = b"\0"


def main(arguments: list[str] | None = None) -> int:
    options = parser()
    given = options.parse_args(arguments)
    if given.server and given.folder:
        options.error("--server or --folder, not both")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    keep_spark_quiet()
    try:
        with _lake(given) as lake:
            runner = on_spark(lake) if given.spark else Processes()  # a session starts before a claim waits for it
            serve(lake, given, runner)
    except LakeTXError as error:
        sys.stderr.write(f"laketx worker: {printable(str(error))}\n")
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    worker_parser = argparse.ArgumentParser(
        prog="laketx worker",
        description="Runs compactions that MetaService plans, keeps deletion vectors of primary-key tables, refreshes "
        "materialized views by their schedules, and runs periodic tasks.",
        epilog="Example: laketx worker --server meta:7070 --warehouse s3://bucket/lake",
    )
    worker_parser.add_argument(
        "--server", metavar="ADDR", help=f"Address of the service (LAKETX_SERVER; default {SERVER})."
    )
    worker_parser.add_argument(
        "--folder", metavar="PATH", help="An embedded folder instead of a server (LAKETX_FOLDER)."
    )
    worker_parser.add_argument(
        "--warehouse", metavar="PATH", help="Folder or URI that contains the data files (default: --folder)."
    )
    worker_parser.add_argument(
        "--tasks",
        type=_tasks,
        default=TASKS_AT_ONCE,
        metavar="N",
        help="Number of tasks that run at a time (default 2).",
    )
    worker_parser.add_argument(
        "--idle", type=_seconds, default=IDLE_S, metavar="S", help="Seconds between two checks for work (default 5)."
    )
    worker_parser.add_argument(
        "--drain",
        type=_seconds,
        default=DRAIN_S,
        metavar="S",
        help="Seconds that a stop waits for running tasks (default 300).",
    )
    worker_parser.add_argument(
        "--spark",
        action="store_true",
        help="Run on the executors of a Spark session, configured by spark-defaults.conf, and run periodic tasks in "
        "Spark's SQL, too; needs laketx[spark] and Java. Without it, in processes of this machine.",
    )
    worker_parser.add_argument(
        "--no-vectors",
        action="store_true",
        help="Keep no deletion vectors of primary-key tables: readers then find hidden rows themselves.",
    )
    worker_parser.add_argument(
        "--no-key-index",
        action="store_true",
        help="Keep no index of keys that are unique across partitions, and check none that shall be.",
    )
    worker_parser.add_argument(
        "--no-views",
        action="store_true",
        help="Refresh no materialized views. Refreshes need laketx[views].",
    )
    worker_parser.add_argument(
        "--no-periodic-tasks",
        action="store_true",
        help="Run no periodic tasks. They need laketx[views].",
    )
    worker_parser.add_argument("--user", default="laketx-worker", metavar="NAME", help="Name that the history shows.")
    return worker_parser


def serve(lake: Lake, given: argparse.Namespace, runner: Runner) -> None:
    """Run the daemon until a signal; a second signal cuts the drain short."""
    companions = companions_of(
        lake,
        vectors=not given.no_vectors,
        key_index=not given.no_key_index,
        views=not given.no_views,
        periodic=not given.no_periodic_tasks,
        spark=given.spark,
        idle_s=given.idle,
    )
    daemon = Daemon(lake, tasks_at_once=given.tasks, idle_s=given.idle, runner=runner, companions=companions)
    heard, waker = socket.socketpair()

    def drain() -> None:
        daemon.drain(given.drain)
        with suppress(OSError):  # nobody waits for it any more
            waker.send(DRAINED)

    with heard, waker:
        waker.setblocking(False)
        before = signal.set_wakeup_fd(waker.fileno())  # a handler alone waits until this thread wakes
        handlers = {number: signal.signal(number, _note) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            daemon.start()
            sys.stdout.write("worker: ready\n")
            sys.stdout.flush()
            heard.recv(1)
            daemon.ask_to_stop()
            threading.Thread(target=drain, name="laketx-drain", daemon=True).start()
            heard.recv(1)
            daemon.stop(0.0)
        finally:
            signal.set_wakeup_fd(before)
            for number, handler in handlers.items():
                signal.signal(number, handler)


def _note(number: int, frame: FrameType | None) -> None:
    """The byte in the socket says it all."""


def _lake(given: argparse.Namespace) -> Lake:
    folder = given.folder or (None if given.server else os.environ.get("LAKETX_FOLDER"))
    if folder:
        return connect(folder, user=given.user, warehouse=given.warehouse)
    server = given.server or os.environ.get("LAKETX_SERVER") or SERVER
    return connect(with_scheme(server), user=given.user, warehouse=given.warehouse)


def _tasks(text: str) -> int:
    tasks = int(text)
    if not 1 <= tasks <= TASKS_MAX:
        raise argparse.ArgumentTypeError(f"1 to {TASKS_MAX}")
    return tasks


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds <= 86_400:
        raise argparse.ArgumentTypeError("0 to 86400")
    return seconds


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)  # a slot that did not listen is still in native code, on which a finalizing interpreter aborts
