"""The log's records of a commit. A merge encodes its commits before their time is known, and has little to do later."""

from __future__ import annotations

from typing import Final

from metaservice.core import limits
from metaservice.core.commit.transaction import Txn
from metaservice.core.table.model import TableCommit
from metaservice.core.varint import varint
from metaservice.store.records.row_facts import encode_rows
from metaservice.store.records.tables import encode_added, encode_logged, join_chunk

_TIME: Final = b"\x10"  # tag of CommitRecord.time_us


# a commit's record, the entries that it added, and chunks of them that are records of their own
EncodedCommit = tuple[bytes, list[bytes], list[bytes]]  # each append makes one: a class takes 2 % of a batch's time


def encode_commit(commit: TableCommit, txn: Txn, *, timed: bool = True) -> EncodedCommit:
    """A commit by a transaction, `timed` if its time is known. Many added entries are in chunks."""
    added, most = encode_added(commit), limits.INLINE_ENTRIES_MAX
    chunks = []
    if len(added) > most:
        chunks = [join_chunk(added[start : start + most]) for start in range(0, len(added), most)]
    record = encode_logged(commit, txn, () if chunks else added, len(chunks), timed=timed)
    return record + encode_rows(commit.change.key_sets, shared=commit.footprint.shared), added, chunks


def with_time(record: bytes, time_us: int) -> bytes:
    """Adds the time to the record of a commit that was encoded without it."""
    return record + _TIME + varint(time_us)
