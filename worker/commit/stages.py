"""What a transaction stages: files under its folder, and their entries.

<warehouse>/<table id>/<transaction id>/0/…
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.files.storage import remove_folder


@dataclass
class Staged:
    """The entries staged for one table of a transaction."""

    files: list[common_pb2.DataFile] = field(default_factory=list)
    delete_sets: list[common_pb2.DeleteSet] = field(default_factory=list)
    key_sets: list[common_pb2.KeySet] = field(default_factory=list)
    reads: Sequence[common_pb2.Read] | None = None  # what was read after all; None: what its plan said
    looked_at: list[common_pb2.Read] = field(default_factory=list)  # beside that

    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def add(self, other: Staged) -> None:
        self.files += other.files
        self.delete_sets += other.delete_sets
        self.key_sets += other.key_sets
        self.looked_at += other.looked_at


class Stage:
    """The folder of one transaction in one table, as its writer sees it."""

    def __init__(
        self,
        meta: catalog_pb2.Table,
        table_folder: str,
        txn_id: str,
        read_version: int,
        may_inline: Callable[[], bool] = lambda: True,
    ) -> None:
        """`may_inline`: whether the service can keep rows itself."""
        self.may_inline = may_inline
        self.meta = meta
        self.table_folder = table_folder
        self.txn_id = txn_id
        self.read_version = read_version
        self.staged = Staged()
        self._numbers = count()

    def remove(self) -> None:
        remove_folder(f"{self.table_folder}/{self.txn_id}")

    def next_name(self) -> str:
        """The next file name, relative to the table's folder."""
        return f"{self.txn_id}/{next(self._numbers)}"
