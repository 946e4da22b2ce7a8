"""Live entries as the planning of table services takes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from metaservice.core.model import Entry, FileKind, Live
from metaservice.core.plans import Bucket, PlanFile, PlanSet
from metaservice.store import keys
from metaservice.store.plan_records import StoredEntry, decode_stored
from metaservice.store.port import Cursor, prefix_end
from protos.laketx.v1 import common_pb2


def row_order_of(entry: Entry) -> str:
    """How a staged file says that its rows are ordered."""
    return common_pb2.DataFile.FromString(entry.payload).row_order


def read_bucket(cursor: Cursor, table: bytes, partition: str, bucket: int, row_order: str, version: int) -> Bucket:
    """What is live there; entries that came after a version are passed over. An append table's is its partition."""
    prefix = keys.live_prefix(table, partition, bucket)
    found = (decode_stored(raw) for _, raw in cursor.scan(prefix, prefix_end(prefix)))
    return bucket_of(partition, bucket, found, row_order, version)


def bucket_of_live(partition: str, bucket: int, entries: Iterable[Live], row_order: str) -> Bucket:
    """Of entries as the decider has them."""
    found = list(entries)
    files = [
        PlanFile(
            live.entry.path,
            live.entry.kind is FileKind.DELTA,
            live.entry.rows,
            live.entry.size_bytes,
            live.data_version,
            live.added,
            not row_order or row_order_of(live.entry) == row_order,
        )
        for live in found
        if not live.entry.is_delete_set
    ]
    sets = [
        PlanSet(live.entry.rows, live.data_version, live.added, live.entry.touches)
        for live in found
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
        ordered = not row_order or common_pb2.DataFile.FromString(entry.payload).row_order == row_order
        is_delta = entry.kind == FileKind.DELTA
        files.append(PlanFile(entry.path, is_delta, entry.rows, entry.bytes, entry.data_version, entry.added, ordered))
    return Bucket(partition, bucket, files, sets)


def scan_partitions(
    cursor: Cursor, table: bytes, row_order: str, version: int, *, partition: str | None = None, every: bool = False
) -> Iterator[list[Bucket]]:
    """The buckets of each partition, one partition after the other; without `every` only where one has two entries.

    Most partitions hold little that is worth a look: what is alone in its bucket isn't even parsed.
    """
    prefix = keys.live_prefix(table, partition)
    place, start = b"", b""
    held: list[bytes] = []
    raws: list[list[bytes]] = []
    many = every
    for key, raw in cursor.scan(prefix, prefix_end(prefix)):
        if place and key.startswith(place) and len(key) > len(place):
            raws[-1].append(raw)
            many = True
            continue
        place = keys.place_of(key)
        if not (start and place.startswith(start)):
            if raws and many:
                yield _buckets(held, raws, row_order, version)
            start, held, raws, many = place[:-4], [], [], every
        held.append(place)
        raws.append([raw])
    if raws and many:
        yield _buckets(held, raws, row_order, version)


def _buckets(held: list[bytes], raws: list[list[bytes]], row_order: str, version: int) -> list[Bucket]:
    partition, _ = keys.bucket_of(held[0])
    return [
        bucket_of(partition, keys.bucket_of(place)[1], map(decode_stored, raw_entries), row_order, version)
        for place, raw_entries in zip(held, raws, strict=True)
    ]
