"""The log's records of a commit, encoded before its time is known: a merge has little to do then when it is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from metaservice.core import limits
from metaservice.core.commit.transaction import Txn
from metaservice.core.table.model import TableCommit
from metaservice.core.varint import varint
from metaservice.store.records.row_facts import encode_rows
from metaservice.store.records.tables import encode_added, encode_untimed, join_chunk

_TIME: Final = b"\x10"  # tag of CommitRecord.time_us


@dataclass(frozen=True, slots=True)
class EncodedCommit:
    """A commit's record without its time, and the entries that it added.

    Many added entries are in `chunks`, which are records of their own.
    """

    untimed: bytes
    added: list[bytes]
    chunks: list[bytes]

    def record(self, time_us: int) -> bytes:
        return self.untimed + _TIME + varint(time_us)


def encode_commit(commit: TableCommit, txn: Txn) -> EncodedCommit:
    """A commit by a transaction."""
    added, most = encode_added(commit), limits.INLINE_ENTRIES_MAX
    chunks = []
    if len(added) > most:
        chunks = [join_chunk(added[start : start + most]) for start in range(0, len(added), most)]
    untimed = encode_untimed(commit, txn, () if chunks else added, len(chunks))
    return EncodedCommit(untimed + encode_rows(commit.change.key_sets, shared=commit.footprint.shared), added, chunks)
