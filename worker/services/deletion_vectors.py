"""Keeps the deletion vectors of primary-key tables soon after each commit, so that no reader must find hidden rows.

In each bucket with files that hide rows of each other it reads the keys, unless storage has the vectors already.
Nothing depends on it: see `worker/files/kept_vectors.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from protos.laketx.v1 import catalog_pb2
from worker.arrow.scan.bucket_vectors import by_bucket, hidden_rows
from worker.arrow.scan.plans import ScannedFile, WrittenSchemas
from worker.connection.lake_connection import Connection
from worker.connection.table_view import TableView
from worker.services.keepers import IDLE_S, Keeper

Bucket = frozenset[tuple[int, str]]  # its files, with their data versions


class VectorKeeper(Keeper):
    """Keeps the vectors of the newest versions."""

    WHAT = "deletion vectors"
    THREAD = "laketx-vectors"

    def __init__(
        self, lake: Connection, *, idle_s: float = IDLE_S, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(lake, idle_s=idle_s, now_s=now_s)
        self._done: dict[str, set[Bucket]] = {}  # the dirty buckets of the versions whose vectors are kept

    def wants(self, meta: catalog_pb2.Table) -> bool:
        return bool(meta.primary_key)

    def keep(self, then: TableView, version: int, files: list[ScannedFile]) -> int:  # noqa: ARG002 - files say it
        written, kept = WrittenSchemas(then), 0
        done, seen = self._done.get(then.table_id, set()), set()
        for bucket in by_bucket(files)[1]:
            if self.is_stopping:
                break
            same = frozenset((scanned.data_version, scanned.file.path) for scanned in bucket)
            if same not in done and not any(scanned.file.set_columns for scanned in bucket):
                hidden_rows(then, written, bucket, keep=True)
                kept += 1
            seen.add(same)
        self._done[then.table_id] = seen
        return kept

    def forget(self) -> None:
        self._done.clear()
