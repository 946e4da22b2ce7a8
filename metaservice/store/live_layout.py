"""Live entries in the form that the planning of table services needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from metaservice.core.compaction.early_exit import NEVER, Counts
from metaservice.core.compaction.plans import Bucket, PlanFile, PlanSet
from metaservice.core.table.model import Entry, FileKind, Live
from metaservice.store import entry_keys, keys
from metaservice.store.port import StoreCursor, prefix_end
from metaservice.store.records.plans import StoredEntry, decode_stored
from protos.laketx.v1 import common_pb2

DELTA: Final = int(FileKind.DELTA)


def row_order_of(entry: Entry) -> str:
    """The order of rows that a staged file declares."""
    return row_order_in(entry.payload)


def row_order_in(payload: bytes) -> str:
    return common_pb2.DataFile.FromString(payload).row_order


def read_bucket(cursor: StoreCursor, table: bytes, partition: str, bucket: int, row_order: str, version: int) -> Bucket:
    """Return the live entries of a bucket (append table: a partition), without entries added after a version."""
    prefix = entry_keys.live_prefix(table, partition, bucket)
    entries = (decode_stored(raw) for _, raw in cursor.scan(prefix, prefix_end(prefix)))
    return bucket_of(partition, bucket, entries, row_order, version)


def bucket_of_live(partition: str, bucket: int, entries: Iterable[Live], row_order: str) -> Bucket:
    """Build a bucket from entries that the decider has."""
    listed = list(entries)
    files = [
        PlanFile(
            live.entry.path,
            live.entry.kind is FileKind.DELTA,
            live.entry.rows,
            live.entry.size_bytes,
            live.data_version,
            live.added,
            not row_order or row_order_of(live.entry) == row_order,
            live.entry.inlined,
        )
        for live in listed
        if not live.entry.is_delete_set
    ]
    sets = [
        PlanSet(live.entry.rows, live.data_version, live.added, live.entry.touches)
        for live in listed
        if live.entry.is_delete_set
    ]
    return Bucket(partition, bucket, files, sets)


def bucket_of(partition: str, bucket: int, entries: Iterable[StoredEntry], row_order: str, version: int) -> Bucket:
    files: list[PlanFile] = []
    sets: list[PlanSet] = []
    for entry in entries:
        if entry.added > version:
            continue
        if entry.is_delete_set:
            sets.append(PlanSet(entry.rows, entry.data_version, entry.added, tuple(entry.touches)))
            continue
        ordered = not row_order or row_order_in(entry.payload) == row_order
        is_delta = entry.kind == DELTA
        file = PlanFile(entry.path, is_delta, entry.rows, entry.bytes, entry.data_version, entry.added, ordered)
        files.append(file._replace(inlined=True) if entry.inlined else file)
    return Bucket(partition, bucket, files, sets)


def count_entries(raws: Iterable[bytes], file_bytes: int, row_order: str, version: int) -> Counts:
    files = small = size = 0
    oldest, inlined_oldest, last, has_deltas, is_plain = NEVER, NEVER, -1, False, True
    delta, half = DELTA, (file_bytes + 1) // 2
    for entry in map(decode_stored, raws):
        added = entry.added
        if added > version:
            continue
        if entry.is_delete_set:
            is_plain = False
            continue
        if row_order and is_plain:
            is_plain = row_order_in(entry.payload) == row_order
        files += 1
        if added > last:
            last = added
        if entry.inlined and added < inlined_oldest:
            inlined_oldest = added
        entry_bytes = entry.bytes
        if entry.kind == delta:
            has_deltas = True
        elif entry_bytes >= half:
            continue
        small += 1
        size += entry_bytes
        if added < oldest:
            oldest = added
    return Counts(
        files=files,
        small=small,
        small_bytes=size,
        small_oldest=oldest,
        has_deltas=has_deltas,
        last_added=last,
        is_plain=is_plain,
        inlined_oldest=inlined_oldest,
    )


def scan_counts(
    cursor: StoreCursor, table: bytes, file_bytes: int, row_order: str, version: int
) -> Iterator[tuple[str, list[Counts]]]:
    """Counts of the buckets of each partition; without a wanted order and inlined files, only those with two entries in
    a bucket.

    Most partitions need no examination: an entry that is alone in its bucket isn't even parsed.
    """
    every = bool(row_order) or cursor.get(keys.inlined_count_key(table)) is not None
    for start, held in _scan(cursor, table, every=every):
        counts = [count_entries(raws, file_bytes, row_order, version) for _, raws in held]
        yield entry_keys.partition_of(start), counts


def _scan(
    cursor: StoreCursor, table: bytes, *, partition: str | None = None, every: bool = False
) -> Iterator[tuple[bytes, list[tuple[int, list[bytes]]]]]:
    """Stored entries by partition and bucket; without `every` only partitions in which a bucket has two."""
    prefix = entry_keys.live_prefix(table, partition)
    place, start, path_at = b"", b"", 0
    held: list[tuple[int, list[bytes]]] = []
    raws: list[bytes] = []
    many = every
    for key, raw in cursor.scan(prefix, prefix_end(prefix)):
        if raws and len(key) > path_at and key.startswith(place):
            raws.append(raw)
            many = True
            continue
        place = entry_keys.place_of(key)
        path_at = len(place)
        if not (start and path_at == len(start) + 4 and place.startswith(start)):
            if held and many:
                yield start, held
            start, held, many = place[:-4], [], every
        raws = [raw]
        held.append((int.from_bytes(place[-4:], "big"), raws))
    if held and many:
        yield start, held


def scan_partitions(
    cursor: StoreCursor, table: bytes, row_order: str, version: int, *, partition: str | None = None
) -> Iterator[list[Bucket]]:
    """The buckets of each partition, one partition after the other."""
    for start, held in _scan(cursor, table, partition=partition, every=True):
        name = entry_keys.partition_of(start)
        yield [bucket_of(name, bucket, map(decode_stored, raws), row_order, version) for bucket, raws in held]
