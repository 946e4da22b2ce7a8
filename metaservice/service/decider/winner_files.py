"""The files that winners wrote, read from the log for judging by rows, and cached within a limit."""

from __future__ import annotations

from collections import OrderedDict

from metaservice.core import limits
from metaservice.core.table.rows import UNKNOWN_WRITTEN, Payloads, Written, written_by
from metaservice.store.port import Store
from metaservice.store.records.row_facts import load_rows


class WinnerFilesCache:
    """The cache of one state; a rebuilt state begins with an empty one."""

    def __init__(self, store: Store, payloads: Payloads) -> None:
        self.payloads = payloads
        self._store = store
        self._kept: OrderedDict[tuple[bytes, int], tuple[Written, int]] = OrderedDict()
        self._bytes = 0

    def get(self, raw_id: bytes, version: int) -> Written:
        """The files of a commit. Earlier decisions have been flushed."""
        known = self._kept.get((raw_id, version))
        if known is not None:
            self._kept.move_to_end((raw_id, version))
            return known[0]
        found = load_rows(self._store.cursor(), raw_id, version, limits.ROW_FILES_JUDGED_MAX)
        if found is None:
            return UNKNOWN_WRITTEN
        entries, key_sets, size = found
        written = written_by(entries, key_sets, self.payloads)
        self._kept[raw_id, version] = (written, size)
        self._bytes += size
        while self._bytes > limits.WRITTEN_BYTES_KEPT and len(self._kept) > 1:
            _, (_, freed) = self._kept.popitem(last=False)
            self._bytes -= freed
        return written
