"""Hidden rows of an append table: the row ids in delete sets that are newer than the row's file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from pyroaring import BitMap64

from protos.laketx.v1 import common_pb2
from worker.arrow.scan.plans import ScannedFile, has_one_id, row_ids
from worker.base.values import PartitionKey, partition_key
from worker.connection.table_view import TableView
from worker.files.position_blocks import within
from worker.files.storage import storage


def with_hidden_ids(
    table: TableView, files: Iterable[ScannedFile], sets: Iterable[common_pb2.LiveEntry]
) -> Iterator[ScannedFile]:
    """Yield the files with the ids of their hidden rows; a file without visible rows is left out."""
    by_partition: dict[PartitionKey, list[common_pb2.LiveEntry]] = defaultdict(list)
    for entry in sets:
        by_partition[partition_key(entry.delete_set.partition)].append(entry)
    hiding: dict[PartitionKey, list[ScannedFile]] = defaultdict(list)
    for scanned in files:
        key = partition_key(scanned.file.partition) if by_partition else ()
        if key in by_partition:
            hiding[key].append(scanned)
        else:
            yield scanned
    for key, listed in hiding.items():
        yield from _hide(table, listed, by_partition[key])


def _hide(
    table: TableView, files: Sequence[ScannedFile], sets: Sequence[common_pb2.LiveEntry]
) -> Iterator[ScannedFile]:
    files = sorted(files, key=lambda scanned: -scanned.data_version)
    hidden = hidden_ids(table, [(scanned.file, scanned.data_version) for scanned in files], sets)
    for scanned, ids in zip(files, hidden, strict=True):
        if len(ids) < scanned.file.rows or (scanned.file.carries_row_ids and not has_one_id(scanned.file)):
            yield scanned._replace(hidden=ids or None)


def hidden_ids(
    table: TableView,
    newest_first: Iterable[tuple[common_pb2.DataFile, int]],
    sets: Iterable[common_pb2.LiveEntry],
) -> Iterator[BitMap64]:
    """Yield the ids that delete sets hide in each file.

    Files come by descending data version, so each file is hidden by at least the sets of the previous file.
    """
    waiting = sorted(sets, key=lambda entry: entry.data_version)
    hidden = BitMap64()
    for file, version in newest_first:
        while waiting and waiting[-1].data_version > version:
            hidden |= bitmap_of(table, waiting.pop().delete_set)
        yield within(hidden, *row_ids(file))


def bitmap_of(table: TableView, delete_set: common_pb2.DeleteSet) -> BitMap64:
    """Return the row ids in a delete set."""
    payload = delete_set.bitmap
    if not payload:
        files, path = storage(table.path(delete_set.path))
        with files.open_input_stream(path) as stream:
            payload = stream.read()
    return BitMap64.deserialize(payload)
