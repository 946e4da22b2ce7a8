"""Stored entries for plans: parsed as rarely as possible, with the wire's own bytes passed on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from metaservice.core.errors import ErrorKind, MetaError
from metaservice.store import keys
from metaservice.store.port import StoreCursor
from protos.laketx.storage.v1 import records_pb2 as pb

StoredEntry = pb.EntryRecord

decode_stored: Final[Callable[[bytes], StoredEntry]] = pb.EntryRecord.FromString


def decode_added(raw: bytes) -> tuple[list[StoredEntry], int]:
    """The entries in the record of a commit, and the number of further chunks."""
    record = pb.CommitRecord.FromString(raw)
    return [complete(entry, record.version) for entry in record.added], record.added_chunks


def decode_added_chunk(raw: bytes, version: int) -> list[StoredEntry]:
    return [complete(entry, version) for entry in pb.ChunkRecord.FromString(raw).entries]


def removed_of(raw: bytes, partition: str) -> list[tuple[int, str]]:
    """Bucket and path of the entries that a commit removed from a partition."""
    return [(ref.bucket, ref.path) for ref in pb.CommitRecord.FromString(raw).removed if ref.partition == partition]


def decode_few_added(raw: bytes) -> list[StoredEntry] | None:
    """The entries of a commit that only added some, no more than its record has room for; None of any other."""
    record = pb.CommitRecord.FromString(raw)
    if record.removed or record.added_chunks:
        return None
    return [complete(entry, record.version) for entry in record.added]


def complete(entry: StoredEntry, version: int) -> StoredEntry:
    """Fills in versions: the first release stored none in chunks; both are the commit's."""
    entry.data_version = entry.data_version or version
    entry.added = entry.added or version
    return entry


def inlined_content(cursor: StoreCursor, raw_id: bytes, path: str, table: str) -> bytes:
    """The rows of an inlined file of a table."""
    content = cursor.get(keys.inlined_key(raw_id, path))
    if content is None:
        raise MetaError(ErrorKind.GONE, "INLINED_GONE", table=table, path=path)
    return content


def decode_idle(raw: bytes) -> bool:
    """Whether the commit has no time version."""
    return not pb.CommitRecord.FromString(raw).logical
