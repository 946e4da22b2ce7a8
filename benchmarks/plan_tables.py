"""The tables that plans are measured on, loaded by the service itself, in this process and many commits to a group.

wide      partitions of 100 files, one commit each
deep      one partition, its files in commits of 10,000
history   one partition of 100 files; each later commit replaces one of them, as a compaction does
lake      ten thousand tables of 1,000 files, one commit each
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.frame import scaled
from metaservice.client import uuid7
from metaservice.core.commit.transaction import Txn
from metaservice.core.table.model import Change, Footprint, Live, Operation, Principal, TableCommit
from metaservice.rpc.convert import wire
from metaservice.rpc.convert.wire_catalog import new_table
from metaservice.server.process import RealClocks
from metaservice.server.settings import read_settings
from metaservice.server.store_opening import OpenState
from metaservice.server.wiring import Service, build_service
from metaservice.service.commit.outcomes import Outcomes
from protos.laketx.v1 import catalog_pb2, common_pb2, transaction_pb2

PROFILE = "delta_write_serializable"
FILES_A_PARTITION = 100
ROWS = 1_000
GROUP = 1_000
LAKE_TABLES, LAKE_FILES = 10_000, 1_000  # files of each table
COLUMNS = (("id", "bigint"), ("day", "int"), ("price", "double"), ("name", "string"), ("at", "timestamp"))


class Loader:
    """Commits in groups, by the calls that the wire makes."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._calls = service.calls
        self._decider = service.decider

    def create(self, name: str, properties: Mapping[str, str] | None = None, *, keyed: bool = False) -> str:
        table = catalog_pb2.Table(name=name, profile=PROFILE, partition_columns=["day"], properties=properties or {})
        if keyed:
            table.primary_key.extend(["id", "day"])
            table.buckets = 1
        for column, kind in COLUMNS:
            table.columns.add(name=column, type=kind)
        meta = new_table(catalog_pb2.CreateTableRequest(request_id=uuid7(), table=table))
        who = wire.principal(common_pb2.Principal(name="bench"))
        self._decider.call(lambda: self._calls.catalog.create(meta, who))
        return meta.table_id

    def append(self, table_id: str, parts: list[list[common_pb2.DataFile]]) -> None:
        """One commit for each part, all in one group."""
        requests = []
        for files in parts:
            txn_id = uuid7()
            for number, file in enumerate(files):
                file.path = f"{txn_id}/{number}.parquet"
            requests.append(transaction_pb2.AppendRequest(txn_id=txn_id, table_id=table_id, files=files))
        self._decider.call(lambda: [self._calls.prepared_append(request)() for request in requests])

    def replace(self, table_id: str, count: int) -> None:
        """So many commits, each of which puts a file in the place of one, oldest first; in groups, undecided."""
        for start in range(0, count, GROUP):
            self._decider.call(lambda: self._replace(table_id, min(GROUP, count - start)))  # noqa: B023 - waits for it

    def _replace(self, table_id: str, count: int) -> None:
        state, outcomes = self._decider.state, Outcomes(self._decider, RealClocks())
        table = state.get_table(table_id)
        live = deque(state.snapshots(table).live(table.head))
        for _ in range(count):
            old, txn_id, version, time_us = live.popleft(), uuid7(), table.head + 1, table.last_time_us + 1
            entry = replace(old.entry, path=f"{txn_id}/0.parquet")
            footprint = Footprint(version, time_us, txn_id, Operation.CLUSTER, Principal("bench"))
            change = Change(table_id, Operation.CLUSTER, table.head, adds=[entry])
            new = Live(entry, old.data_version, version)
            commit = TableCommit(version, time_us, change, 0, footprint, [new], [old])
            txn = Txn(txn_id, {}, footprint.principal, "", {}, time_us, b"")
            outcomes.advance(commit)  # what a decision does, without the deciding
            outcomes.write_commit(txn, commit)
            live.append(new)


@contextmanager
def loader(folder: Path) -> Iterator[Loader]:
    settings = read_settings(["--data", str(folder)])
    service = build_service(OpenState(settings), RealClocks(), settings)
    service.decider.start()
    try:
        yield Loader(service)
    finally:
        service.decider.stop()
        service.decider.state.store.close()


def data_file(
    day: int, number: int, kind: common_pb2.FileKind.ValueType = common_pb2.FILE_KIND_UNSPECIFIED
) -> common_pb2.DataFile:
    """File `number` holds the ids from number * ROWS on."""
    file = common_pb2.DataFile(rows=ROWS, bytes=1 << 20, kind=kind)
    file.partition.values.add(column="day", value=common_pb2.Value(integer=day))
    first = number * ROWS
    integer, real, text = common_pb2.Value(integer=first), common_pb2.Value(real=0.5), common_pb2.Value(text="aardvark")
    file.stats.add(column_id=1, min=integer, max=common_pb2.Value(integer=first + ROWS - 1), nulls=0)
    file.stats.add(column_id=3, min=real, max=common_pb2.Value(real=99.5 + number), nulls=number % 7)
    file.stats.add(column_id=4, min=text, max=common_pb2.Value(text="zymurgy"), nulls=0, truncated=True)
    at = common_pb2.Value(timestamp_us=1_700_000_000_000_000 + number)
    file.stats.add(column_id=5, min=at, max=at, nulls=0)
    return file


def load_wide(load: Loader, partitions: int) -> str:
    table_id = load.create(f"wide_{partitions}")
    for start in range(0, partitions, 100):
        days = range(start, min(start + 100, partitions))
        load.append(table_id, [[data_file(day, n) for n in range(FILES_A_PARTITION)] for day in days])
    return table_id


def load_deep(load: Loader, files: int) -> str:
    table_id = load.create(f"deep_{files}")
    for start in range(0, files, 10_000):
        load.append(table_id, [[data_file(0, n) for n in range(start, min(start + 10_000, files))]])
    return table_id


def load_history(load: Loader, commits: int) -> str:
    table_id = load.create(f"history_{commits}")
    load.append(table_id, [[data_file(0, n) for n in range(FILES_A_PARTITION)]])
    load.replace(table_id, commits - 1)
    return table_id


def load_lake(folder: Path) -> list[str]:
    """A data folder with ten million files; the ids of its tables."""
    with loader(folder) as loaded:
        ids = [loaded.create(f"t{number}") for number in range(scaled(LAKE_TABLES))]
        for table_id in ids:
            loaded.append(table_id, [[data_file(0, number) for number in range(LAKE_FILES)]])
    return ids
