"""A client process of `benchmarks.watch`: watchers of one table, or writers at a steady pace; reports JSON on stdout.

python -m benchmarks.watchers watch ADDRESS TABLE WATCHERS AFTER UNTIL
python -m benchmarks.watchers write ADDRESS TABLE THREADS RATE SECONDS
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import dataclass, field

from metaservice.client import uuid7
from metaservice.client.meta_client import MetaClient
from protos.laketx.v1 import common_pb2


@dataclass
class Seen:
    """What one watcher saw, and how long after each commit's time."""

    versions: list[int] = field(default_factory=list)
    delays_ms: list[float] = field(default_factory=list)


def watch(client: MetaClient, table_id: str, after: int, until: int, seen: Seen) -> None:
    for version in client.watch(table_id, after_version=after):
        seen.delays_ms.append(time.time_ns() / 1e6 - version.commit_time_us / 1e3)
        seen.versions.append(version.version)
        if version.version >= until:
            return


def watch_all(address: str, table_id: str, watchers: int, after: int, until: int) -> None:
    all_seen = [Seen() for _ in range(watchers)]
    with MetaClient(address) as client:
        threads = [threading.Thread(target=watch, args=(client, table_id, after, until, seen)) for seen in all_seen]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    expected = list(range(after + 1, until + 1))
    complete = all(seen.versions == expected for seen in all_seen)
    print(json.dumps({"complete": complete, "delays_ms": [ms for seen in all_seen for ms in seen.delays_ms]}))


def write_all(address: str, table_id: str, threads: int, rate: float, seconds: float) -> None:
    """So many commits, due at fixed times; a writer that falls behind goes on at once. Reports the rate reached."""
    due = iter(range(round(rate * seconds)))
    mutex = threading.Lock()
    start_s = time.monotonic() + 0.2

    def write(client: MetaClient) -> None:
        while True:
            with mutex:
                number = next(due, None)
            if number is None:
                return
            time.sleep(max(0.0, start_s + number / rate - time.monotonic()))
            txn_id = uuid7()
            file = common_pb2.DataFile(path=f"{txn_id}/0.parquet", rows=1_000, bytes=65_536)
            client.append(table_id, [file], txn_id=txn_id)

    with MetaClient(address, principal="bench") as client:
        client.ping()
        writers = [threading.Thread(target=write, args=(client,)) for _ in range(threads)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
    print(json.dumps({"per_s": round(rate * seconds) / (time.monotonic() - start_s)}))


if __name__ == "__main__":
    kind, at, table = sys.argv[1:4]
    if kind == "watch":
        watch_all(at, table, *(int(number) for number in sys.argv[4:7]))
    else:
        write_all(at, table, int(sys.argv[4]), float(sys.argv[5]), float(sys.argv[6]))
