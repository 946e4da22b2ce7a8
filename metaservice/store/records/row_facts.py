"""Additional facts of commits for the profile row_level: the keys written, and whether the transaction had one table.

The fields come after the others of a CommitRecord: in this format that is the same record.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.table.model import Entry, KeySet
from metaservice.store import keys
from metaservice.store.port import StoreCursor
from metaservice.store.records.tables import decode_chunk, entry_from
from protos.laketx.storage.v1 import records_pb2 as pb


def encode_rows(key_sets: Sequence[KeySet] | None, *, shared: bool) -> bytes:
    if not key_sets and not shared:
        return b""
    record = pb.CommitRecord(shared=shared)
    for key_set in key_sets or ():
        record.key_sets.add(partition=key_set.partition, bucket=key_set.bucket, hashes=key_set.hashes)
    return record.SerializeToString()


def load_rows(
    cursor: StoreCursor, raw_id: bytes, version: int, most: int
) -> tuple[list[Entry], list[KeySet], int] | None:
    """Return a commit's added entries, its key sets, and their approximate size; None for more than `most` entries."""
    raw = cursor.get(keys.commit_key(raw_id, version))
    if raw is None:
        raise MetaError(ErrorKind.CORRUPT, "RECORD_MISSING", version=version)
    record, size = pb.CommitRecord.FromString(raw), len(raw)
    if record.files_added + record.sets_added > most:
        return None
    entries = [entry_from(added) for added in record.added]
    for chunk in range(record.added_chunks):
        chunk_bytes = cursor.get(keys.chunk_key(raw_id, version, chunk))
        if chunk_bytes is None:
            raise MetaError(ErrorKind.CORRUPT, "RECORD_MISSING", version=version, chunk=chunk)
        entries += decode_chunk(chunk_bytes)
        size += len(chunk_bytes)
    key_sets = [KeySet(key_set.partition, key_set.bucket, array("q", key_set.hashes)) for key_set in record.key_sets]
    return entries, key_sets, size
