"""The store in memory that loses power, with SlateDB's answers: what is read comes from there."""

from __future__ import annotations

from slatedb import uniffi as slatedb

from metaservice.store.engines.memory import MemoryStore
from metaservice.store.engines.slate import SlateStore
from metaservice.store.object_location import ObjectPlace
from metaservice.store.port import Batch, StoreCursor


class SlateMemory(MemoryStore):
    """Both stores get every batch; a crash opens SlateDB's again, which fences the one before."""

    def __init__(self, bucket: slatedb.ObjectStore | None = None, survivors: MemoryStore | None = None) -> None:
        """The bucket is in memory, too."""
        super().__init__(survivors._entries if survivors is not None else None)
        self._bucket = bucket if bucket is not None else slatedb.ObjectStore.resolve("memory:///")
        self._slate = SlateStore(ObjectPlace("sim", "meta"), bucket=self._bucket)
        self._slate.log_files_max = 1 << 30  # what is not synced would be written with tables

    def get(self, key: bytes) -> bytes | None:
        self.refuse_if_failed()
        return self._slate.get(key)

    def cursor(self) -> StoreCursor:  # type: ignore[override]
        self.refuse_if_failed()
        return self._slate.cursor()

    def write(self, batch: Batch) -> None:
        super().write(batch)
        self._slate.write(batch)

    def sync(self) -> None:
        super().sync()
        self._slate.sync()

    def close(self) -> None:
        super().close()
        self._slate.close()

    def crash(self, survivors: int = 0) -> SlateMemory:
        found = SlateMemory(self._bucket, super().crash(survivors))
        for ops in self._unsynced[:survivors]:
            batch = Batch()
            batch.ops = ops
            found._slate.write(batch)
        found._slate.sync()
        return found
