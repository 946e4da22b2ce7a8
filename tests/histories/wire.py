"""Tables of one service as their clients know them: what files hold is remembered here, no byte is written."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import grpc
from pyroaring import BitMap64

from protos.laketx.v1 import catalog_pb2, common_pb2
from tests.conformance.play import new_uuid7
from tests.histories.history import Image, Row, Search
from tests.integration.service import PRINCIPAL, TIMEOUT_S, Stubs, code_of

PARTITIONS = ("1", "2")
BUCKETS = 2
RETRY_S = 120.0
AGAIN = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED}
VALUE_ID = 2  # of the column

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stored:
    """A row in a file; without an id of its own it has one of the file's range. No image: a tombstone."""

    identity: str
    image: Image | None
    row_id: int | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """A visible row, and where it lies."""

    image: Image
    row_id: int
    path: str


@dataclass(slots=True)
class Table:
    """A table, and what is in the files that clients staged for it."""

    name: str
    table_id: str
    keyed: bool
    profile: str
    contents: dict[str, list[Stored]] = field(default_factory=dict)


class Told:
    """Numbers that nobody else gets."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def next(self) -> int:
        with self._lock:
            self._last += 1
            return self._last


def persist(call: Callable[[], T]) -> T:
    """Asks until there is an answer: the service may be killed at any moment."""
    deadline = time.monotonic() + RETRY_S
    while True:
        try:
            return call()
        except grpc.RpcError as error:
            if code_of(error) not in AGAIN or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def create(stubs: Stubs, name: str, profile: str, *, keyed: bool) -> Table:
    columns = [("id", "bigint"), ("v", "bigint"), ("p", "string")]
    table = catalog_pb2.Table(
        name=name,
        columns=[catalog_pb2.Column(name=column, type=kind) for column, kind in columns],
        partition_columns=["p"],
        profile=profile,
    )
    if keyed:
        table.primary_key.extend(["p", "id"])
        table.buckets = BUCKETS
    request = catalog_pb2.CreateTableRequest(request_id=new_uuid7(), table=table, principal=PRINCIPAL)
    created = persist(lambda: stubs.catalog.CreateTable(request, timeout=TIMEOUT_S))
    return Table(name, created.table.table_id, keyed, profile)


# -- reading -----------------------------------------------------------------------------------------------------------


def list_entries(stubs: Stubs, table: Table, version: int) -> list[common_pb2.LiveEntry]:
    return persist(lambda: stubs.list_files(table.table_id, version))


def visible(table: Table, entries: Iterable[common_pb2.LiveEntry]) -> dict[Row, Seen]:
    """By the rule of visibility alone: what has a higher data version hides, in its partition and bucket."""
    files = sorted((one for one in entries if one.HasField("file")), key=lambda one: one.data_version)
    sets = [one for one in entries if one.HasField("delete_set")]
    hidden = [
        (name_of(one.delete_set.partition), one.data_version, BitMap64.deserialize(one.delete_set.bitmap))
        for one in sets
    ]
    found: dict[Row, Seen] = {}
    for live in files:
        file, partition = live.file, name_of(live.file.partition)
        for place, stored in enumerate(table.contents[file.path]):
            row = partition, stored.identity
            row_id = file.first_row_id + place if stored.row_id is None else stored.row_id
            if table.keyed:
                found.pop(row, None)
            elif any(p == partition and version > live.data_version and row_id in ids for p, version, ids in hidden):
                continue
            if row in found:
                raise AssertionError(f"{table.name} shows {row} twice")
            if stored.image is not None:
                found[row] = Seen(stored.image, row_id, file.path)
    return found


# -- writing -----------------------------------------------------------------------------------------------------------


def partition_of(name: str) -> common_pb2.Partition:
    return common_pb2.Partition(values=[common_pb2.PartitionValue(column="p", value=common_pb2.Value(text=name))])


def name_of(partition: common_pb2.Partition) -> str:
    return partition.values[0].value.text


def bucket_of(table: Table, identity: str) -> int:
    return int(identity) % BUCKETS if table.keyed else 0


def data_file(
    table: Table, path: str, place: tuple[str, int], rows: Sequence[Stored], kind: common_pb2.FileKind.ValueType
) -> common_pb2.DataFile:
    table.contents[path] = list(rows)
    file = common_pb2.DataFile(
        path=path, partition=partition_of(place[0]), bucket=place[1], kind=kind, rows=len(rows), bytes=100
    )
    values = [stored.image[1] for stored in rows if stored.image is not None]
    if values:
        low, high = (common_pb2.Value(integer=one) for one in (min(values), max(values)))
        file.stats.add(column_id=VALUE_ID, min=low, max=high, nulls=len(rows) - len(values))
    file.carries_row_ids = any(stored.row_id is not None for stored in rows)
    if kind == common_pb2.FILE_KIND_DELTA:
        file.tombstones = len(rows) - len(values)
    return file


def predicate(search: Search) -> common_pb2.Predicate:
    def compare(column: str, comparison: common_pb2.Comparison.ValueType, value: common_pb2.Value) -> None:
        parts.add(compare=common_pb2.Compare(column=column, comparison=comparison, value=value))

    found = common_pb2.Predicate()
    parts = found.all_of.operands
    compare("v", common_pb2.COMPARISON_GREATER_OR_EQUAL, common_pb2.Value(integer=search.low))
    compare("v", common_pb2.COMPARISON_LESS_OR_EQUAL, common_pb2.Value(integer=search.high))
    if search.partition is not None:
        compare("p", common_pb2.COMPARISON_EQUAL, common_pb2.Value(text=search.partition))
    return found
