"""The log's records of a commit, encoded before its time is known: a merge has little to do then when it is written."""

from __future__ import annotations

from typing import Final

from metaservice.core import limits
from metaservice.core.commit.transaction import Txn
from metaservice.core.table.model import TableCommit
from metaservice.core.varint import varint
from metaservice.store.records.row_facts import encode_rows
from metaservice.store.records.tables import encode_added, encode_untimed, join_chunk

_TIME: Final = b"\x10"  # tag of CommitRecord.time_us


# a commit's record without its time, the entries that it added, and chunks of them that are records of their own
EncodedCommit = tuple[bytes, list[bytes], list[bytes]]  # each append makes one: a class takes 2 % of a batch's time


def encode_commit(commit: TableCommit, txn: Txn) -> EncodedCommit:
    """A commit by a transaction. Many added entries are in chunks."""
    added, most = encode_added(commit), limits.INLINE_ENTRIES_MAX
    chunks = []
    if len(added) > most:
        chunks = [join_chunk(added[start : start + most]) for start in range(0, len(added), most)]
    untimed = encode_untimed(commit, txn, () if chunks else added, len(chunks))
    return untimed + encode_rows(commit.change.key_sets, shared=commit.footprint.shared), added, chunks


def with_time(untimed: bytes, time_us: int) -> bytes:
    """The whole record of a commit."""
    return untimed + _TIME + varint(time_us)
