"""A table's stored log, commit by commit with all added entries, for a check to replay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from metaservice.core.table.model import Entry, Live, Removed
from metaservice.store.records.tables import decode_chunk, decode_commit, entry_from
from protos.laketx.storage.v1 import records_pb2 as pb


@dataclass(frozen=True, slots=True)
class LoggedCommit:
    """A commit record; `list_added` returns the entries in the record itself, `chunks` counts those beside it."""

    version: int
    time_us: int
    txn_id: str
    files_inline: int
    chunks: int
    removed: tuple[Removed, ...]
    files_added: int
    files_removed: int
    app_ids: tuple[str, ...]
    altered: bool
    logical: bool
    _added: Sequence[pb.EntryRecord]

    def list_added(self) -> Iterator[Live]:
        for record in self._added:
            yield Live(entry_from(record), record.data_version, record.added)


def decode_logged(raw: bytes) -> LoggedCommit:
    """Raises ValueError if the bytes are not a commit."""
    try:
        record = pb.CommitRecord.FromString(raw)
        added = list(record.added)
        record.ClearField("added")
        footprint = decode_commit(record.SerializeToString()).footprint
    except Exception as error:
        raise ValueError(f"no commit record: {error}") from error
    return LoggedCommit(
        version=record.version,
        time_us=record.time_us,
        txn_id=record.txn_id,
        files_inline=sum(not entry.is_delete_set for entry in added),
        chunks=record.added_chunks,
        removed=footprint.removed,
        files_added=record.files_added,
        files_removed=record.files_removed,
        app_ids=footprint.app_ids,
        altered=footprint.altered,
        logical=record.logical,
        _added=added,
    )


def entries_of(raw: bytes) -> Iterator[Entry]:
    """The entries of a chunk. Raises ValueError if the bytes are not one."""
    try:
        yield from decode_chunk(raw)
    except Exception as error:
        raise ValueError(f"no chunk of entries: {error}") from error
