"""A table's log as it is stored, commit by commit with everything that it added: what a check replays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from metaservice.core.model import Entry, Live, Removed
from metaservice.store.records import decode_chunk, decode_commit, decode_live
from protos.laketx.storage.v1 import records_pb2 as pb


@dataclass(frozen=True, slots=True)
class LoggedCommit:
    """A commit record; `added` is what stands in the record itself, `chunks` what stands beside it."""

    version: int
    time_us: int
    txn_id: str
    added: tuple[Live, ...]
    chunks: int
    removed: tuple[Removed, ...]
    files_added: int
    files_removed: int
    app_ids: tuple[str, ...]
    altered: bool


def decode_logged(raw: bytes) -> LoggedCommit:
    """Raises ValueError where the bytes are no commit."""
    try:
        record = pb.CommitRecord.FromString(raw)
        summary = decode_commit(raw)
    except Exception as error:
        raise ValueError(f"no commit record: {error}") from error
    return LoggedCommit(
        record.version,
        record.time_us,
        record.txn_id,
        tuple(decode_live(each.SerializeToString())[0] for each in record.added),
        record.added_chunks,
        summary.footprint.removed,
        record.files_added,
        record.files_removed,
        summary.footprint.app_ids,
        summary.footprint.altered,
    )


def entries_of(raw: bytes) -> Iterator[Entry]:
    """The entries of a chunk. Raises ValueError where the bytes are none."""
    try:
        yield from decode_chunk(raw)
    except Exception as error:
        raise ValueError(f"no chunk of entries: {error}") from error
