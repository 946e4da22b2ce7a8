"""Rows of `make bench-turns` that are commits: requests to the service, without files of data."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from benchmarks.load import PARTITIONS, Tally, append, batch, contended, data_file, transaction, two_empty_calls
from benchmarks.trees.work import Place, Row, Work, repeated
from metaservice.client import Transaction, uuid7
from metaservice.client.meta_client import MetaClient
from protos.laketx.v1 import catalog_pb2, common_pb2, transaction_pb2

FILES = 3_000  # of a large transaction
OVERTAKEN = 400  # commits behind the begin of each that is open
OPEN = 3
HISTORY = 20_000
WIDE = 300  # partitions
CONTENT = bytes(1 << 18)
Call = Callable[[MetaClient, str, Tally], None]


def make_table(client: MetaClient, profile: str = "delta_write_serializable", *, keyed: bool = False) -> str:
    table = catalog_pb2.Table(name=f"t_{uuid7().replace('-', '_')}", profile=profile)
    table.columns.add(name="id", type="bigint")
    if keyed:
        table.columns.add(name="p", type="int")
        table.partition_columns.append("p")
        table.primary_key.append("id")
        table.buckets = 1
        table.properties["key.scope"] = "partition"
    return client.create_table(table).table_id


def alone(call: Call, times: int, profile: str = "delta_write_serializable") -> Callable[[Place], Work]:
    """So many calls, one after the other."""

    def make(place: Place) -> Work:
        table_id = make_table(place.client, profile)
        return Work(repeated(times, lambda: call(place.client, table_id, Tally())))

    return make


def together(
    call: Call, threads: int, times: int, profile: str = "delta_write_serializable", *, keyed: bool = False
) -> Callable[[Place], Work]:
    """So many threads with so many calls each."""

    def make(place: Place) -> Work:
        table_id, executor = make_table(place.client, profile, keyed=keyed), ThreadPoolExecutor(threads)
        calls = repeated(times, lambda: call(place.client, table_id, Tally()))

        def unit() -> None:
            for done in [executor.submit(calls) for _ in range(threads)]:
                done.result()

        return Work(unit, lambda: random.seed(1))

    return make


def large(place: Place) -> Work:
    table_id = make_table(place.client)

    def unit() -> None:
        txn = place.client.begin(
            [transaction_pb2.TableIntent(table_id=table_id, operation=common_pb2.OPERATION_INSERT)]
        )
        txn.register(table_id, [data_file(txn.txn_id, number) for number in range(FILES)])
        txn.commit([common_pb2.Change(table_id=table_id)])

    return Work(unit)


def with_rows(place: Place) -> Work:
    """Appends whose rows the service keeps, to tables that are dropped again."""
    client = place.client

    def unit() -> None:
        table_id = make_table(client, "maxcompute")
        for _ in range(16):
            txn_id = uuid7()
            file = data_file(txn_id, 0)
            file.kind, file.bytes, file.content = common_pb2.FILE_KIND_INLINED, len(CONTENT), CONTENT
            client.append(table_id, [file], txn_id=txn_id)
        client.drop_table(table_id)

    return Work(unit)


def overtake(client: MetaClient, table_id: str, commits: int, *, partitioned: bool = True) -> None:
    """So many appends of others, to all partitions but the last."""
    requests = []
    for number in range(commits):
        txn_id = uuid7()
        file = data_file(txn_id, 0, number % (PARTITIONS - 1) if partitioned else None)
        requests.append(transaction_pb2.AppendRequest(txn_id=txn_id, table_id=table_id, files=[file]))
    if not all(isinstance(outcome, common_pb2.Committed) for outcome in client.commit_batch(requests)):
        raise RuntimeError("an append of a batch was refused")


def overtaken(profile: str) -> Callable[[Place], Work]:
    """Updates of a partition each that were open while others appended to other partitions."""

    def make(place: Place) -> Work:
        client, table_id = place.client, make_table(place.client, profile, keyed=True)
        opened: list[tuple[Transaction, common_pb2.Change]] = []

        def before() -> None:
            opened.clear()
            for number in range(OPEN):
                file = data_file(uuid7(), 0, PARTITIONS + number)
                reads = [common_pb2.Read(partitions=[file.partition])]
                declared = reads if profile != "maxcompute" else ()
                intent = transaction_pb2.TableIntent(
                    table_id=table_id, operation=common_pb2.OPERATION_UPDATE, reads=declared
                )
                txn = client.begin([intent])
                file.path = data_file(txn.txn_id, 0).path
                change = common_pb2.Change(table_id=table_id, reads=reads, files=[file])
                if profile == "row_level":
                    change.key_sets.add(partition=file.partition, hashes=range(1_000))
                opened.append((txn, change))
                overtake(client, table_id, OVERTAKEN)

        def unit() -> None:
            for txn, change in opened:
                txn.commit([change])

        return Work(unit, before)

    return make


def judged_long(place: Place) -> Work:
    """A condition of many comparisons over the partitions of a commit that came first."""
    client = place.client
    table = catalog_pb2.Table(name=f"t_{uuid7().replace('-', '_')}", partition_columns=["day"])
    table.columns.add(name="day", type="int")
    table_id, txn_id = client.create_table(table).table_id, uuid7()
    files = [data_file(txn_id, number) for number in range(WIDE)]
    for number, file in enumerate(files):
        file.partition.values.add(column="day", value=common_pb2.Value(integer=number))
    client.append(table_id, files, txn_id=txn_id)
    predicate = common_pb2.Predicate()
    for number in range(300):
        compare = predicate.any_of.operands.add().compare
        compare.column, compare.comparison, compare.value.integer = "day", common_pb2.COMPARISON_LESS, -1 - number
    reads = [common_pb2.Read(predicate=predicate)]
    intent = transaction_pb2.TableIntent(
        table_id=table_id, operation=common_pb2.OPERATION_DELETE, read_version=0, reads=reads
    )

    def unit() -> None:
        client.begin([intent]).commit([common_pb2.Change(table_id=table_id, reads=reads)])

    return Work(unit)


def behind_history(place: Place) -> Work:
    table_id = make_table(place.client, "maxcompute")
    for _ in range(HISTORY // 500):
        overtake(place.client, table_id, 500, partitioned=False)
    return Work(repeated(25, lambda: append(place.client, table_id, Tally())))


def listing(place: Place) -> Work:
    """The files of a table of many commits, and its log."""
    table_id = make_table(place.client, "maxcompute")
    for _ in range(4):
        overtake(place.client, table_id, 500, partitioned=False)

    def unit() -> None:
        if (
            len(list(place.client.list_files(table_id))) != 2_000
            or len(list(place.client.list_versions(table_id))) < 2_000
        ):
            raise RuntimeError("not all files and versions were listed")

    return Work(unit)


ROWS = {
    "append": Row("25 one-call appends of one writer", alone(append, 25)),
    "frame": Row(
        "25 times begin, register and commit in one frame, one writer", alone(partial(transaction, at_once=False), 25)
    ),
    "begin": Row("15 times begin, then commit, one writer", alone(partial(transaction, queued=False), 15)),
    "empty": Row("100 empty calls of one client", alone(two_empty_calls, 50)),
    "appends": Row("16 writers: 4 one-call appends each", together(append, 16, 4)),
    "frames": Row(
        "16 writers: 4 times begin, register and commit in one frame",
        together(partial(transaction, at_once=False), 16, 4),
    ),
    "transactions": Row("16 writers: 4 times begin; then register and commit", together(transaction, 16, 4)),
    "batches": Row("4 writers: 2 batches of 100 appends each", together(batch, 4, 2, "maxcompute")),
    "contended": Row(
        "16 contended writers of mixed classes: 4 decisions each", together(contended, 16, 4, "maxcompute", keyed=True)
    ),
    "large": Row(f"a transaction of {FILES:,} files", large),
    "inlined": Row("16 appends with 256 KiB of rows each", with_rows),
    "overtaken": Row(
        f"maxcompute: updates that were open while {OVERTAKEN} to {OPEN * OVERTAKEN:,} others appended",
        overtaken("maxcompute"),
    ),
    "overtaken-rows": Row(
        f"row_level: updates that were open while {OVERTAKEN} to {OPEN * OVERTAKEN:,} others appended",
        overtaken("row_level"),
    ),
    "judged": Row("a commit that is judged by 90,000 comparisons", judged_long),
    "history": Row(f"25 one-call appends behind {HISTORY:,} commits", behind_history),
    "listing": Row("2,000 files and 2,000 versions listed", listing),
}
