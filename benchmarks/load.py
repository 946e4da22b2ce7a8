"""A client process that puts load on a server: so many threads, one client, for so long; reports as JSON on stdout."""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial

from metaservice.client import uuid7
from metaservice.client.errors import ConflictError
from metaservice.client.meta_client import MetaClient
from protos.laketx.v1 import common_pb2, transaction_pb2

ROWS, BYTES, BATCH = 1_000, 65_536, 100
PARTITIONS = 8


@dataclass
class Tally:
    """What the threads of one process did."""

    commits: int = 0
    conflicts: int = 0
    latencies_ms: list[float] = field(default_factory=list)
    acked: list[tuple[str, int]] = field(default_factory=list)
    decisions: list[tuple[str, int, int, int, int]] = field(
        default_factory=list
    )  # class, partition, read, won, lost to


def data_file(txn_id: str, number: int, partition: int | None = None) -> common_pb2.DataFile:
    found = common_pb2.DataFile(path=f"{txn_id}/{number}.parquet", rows=ROWS, bytes=BYTES)
    if partition is not None:
        found.kind = common_pb2.FILE_KIND_DELTA
        found.partition.values.add(column="p", value=common_pb2.Value(integer=partition))
    return found


def transaction(client: MetaClient, table_id: str, tally: Tally, *, at_once: bool = True, queued: bool = True) -> None:
    """A blind insert of a file: it begins at once or with its commit, and is registered before it or in it."""
    intent = transaction_pb2.TableIntent(table_id=table_id, operation=common_pb2.OPERATION_INSERT)
    txn = client.begin([intent], at_once=at_once)
    change = common_pb2.Change(table_id=table_id)
    if queued:
        txn.queue(table_id, [data_file(txn.txn_id, 0)])
    else:
        change.files.add().CopyFrom(data_file(txn.txn_id, 0))
    committed = txn.commit([change])
    tally.acked.append((txn.txn_id, committed.tables[0].version))
    tally.commits += 1


def three_empty_calls(client: MetaClient, _table_id: str, tally: Tally) -> None:
    for _ in range(3):
        client.ping(b"x" * 100)
    tally.commits += 1


def two_empty_calls(client: MetaClient, _table_id: str, tally: Tally) -> None:
    for _ in range(2):
        client.ping(b"x" * 100)
    tally.commits += 1


def append(client: MetaClient, table_id: str, tally: Tally) -> None:
    txn_id = uuid7()
    committed = client.append(table_id, [data_file(txn_id, 0)], txn_id=txn_id)
    tally.acked.append((txn_id, committed.tables[0].version))
    tally.commits += 1


def batch(client: MetaClient, table_id: str, tally: Tally) -> None:
    requests = []
    for _ in range(BATCH):
        txn_id = uuid7()
        requests.append(transaction_pb2.AppendRequest(txn_id=txn_id, table_id=table_id, files=[data_file(txn_id, 0)]))
    for request, outcome in zip(requests, client.commit_batch(requests), strict=True):
        if not isinstance(outcome, common_pb2.Committed):
            raise RuntimeError(f"an append of a batch was refused: {outcome}")
        tally.acked.append((request.txn_id, outcome.tables[0].version))
        tally.commits += 1


def contended(client: MetaClient, table_id: str, tally: Tally) -> None:
    """A write of a random class on one of the partitions; a lost race counts, and is not tried again."""
    place = random.randrange(PARTITIONS)
    operation = random.choice(
        [common_pb2.OPERATION_INSERT] * 3 + [common_pb2.OPERATION_UPDATE, common_pb2.OPERATION_OVERWRITE]
    )
    txn = client.begin([transaction_pb2.TableIntent(table_id=table_id, operation=operation)])
    read = txn.tables[table_id].read_version
    change = common_pb2.Change(table_id=table_id, files=[data_file(txn.txn_id, 0, place)])
    partition = change.files[0].partition
    if operation == common_pb2.OPERATION_UPDATE:
        change.reads.add(partitions=[partition])
    if operation == common_pb2.OPERATION_OVERWRITE:
        change.scope.named.partitions.add().CopyFrom(partition)
    kind = common_pb2.Operation.Name(operation)
    try:
        committed = txn.commit([change])
    except ConflictError as lost:
        tally.conflicts += 1
        tally.decisions.append((kind, place, read, 0, lost.conflict.winner_version))
        return
    version = committed.tables[0].version
    tally.decisions.append((kind, place, read, version, 0))
    tally.acked.append((txn.txn_id, version))
    tally.commits += 1


KINDS: dict[str, Callable[[MetaClient, str, Tally], None]] = {
    "transaction": transaction,
    "pipelined": partial(transaction, at_once=False),
    "begin_and_commit": partial(transaction, queued=False),
    "begin_with_commit": partial(transaction, at_once=False, queued=False),
    "three_empty_calls": three_empty_calls,
    "two_empty_calls": two_empty_calls,
    "append": append,
    "batch": batch,
    "contended": contended,
}


def main() -> None:
    address, kind, threads, start_at, seconds, table_id = sys.argv[1:7]
    work, tallies = KINDS[kind], [Tally() for _ in range(int(threads))]
    begin, end = float(start_at), float(start_at) + float(seconds)
    with MetaClient(address, principal="bench") as client:
        client.ping()

        def run(tally: Tally) -> None:
            time.sleep(max(0.0, begin - time.time()))
            while (before := time.time()) < end:
                work(client, table_id, tally)
                tally.latencies_ms.append((time.time() - before) * 1000)

        workers = [threading.Thread(target=run, args=(tally,)) for tally in tallies]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    whole = Tally()
    for tally in tallies:
        whole.commits += tally.commits
        whole.conflicts += tally.conflicts
        whole.latencies_ms += tally.latencies_ms
        whole.acked += tally.acked
        whole.decisions += tally.decisions
    sys.stdout.write(json.dumps(asdict(whole)))


if __name__ == "__main__":
    main()
