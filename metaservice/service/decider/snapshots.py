"""A table as the decider knows it, and its past in the form that core needs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from metaservice.core import limits
from metaservice.core.commit.winner_blocks import WinnerBlocks
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.table.inlined import Inlined
from metaservice.core.table.meta import TableMeta
from metaservice.core.table.model import Entry, Footprint, Idle, Live
from metaservice.core.table.rows import UNKNOWN_WRITTEN, Payloads, Written, written_by
from metaservice.service.decider.views import TableView
from metaservice.store import entry_keys, external_files, keys
from metaservice.store.port import Readable, StoreCursor, prefix_end
from metaservice.store.records.branches import Fork
from metaservice.store.records.plans import StoredEntry, decode_stored
from metaservice.store.records.row_facts import load_rows
from metaservice.store.records.tables import added_chunks, decode_commit, decode_live, live_from


class WinnerFilesCache:
    """The files that winners wrote, read from the log for judging by rows, and cached within a limit.

    Each state has one; a rebuilt state begins with an empty one.
    """

    def __init__(self, store: Readable, payloads: Payloads) -> None:
        self.payloads = payloads
        self._store = store
        self._kept: OrderedDict[tuple[bytes, int], tuple[Written, int]] = OrderedDict()
        self._bytes = 0

    def get(self, raw_id: bytes, version: int) -> Written:
        """Returns the files of a commit. Earlier decisions have been flushed."""
        cached = self._kept.get((raw_id, version))
        if cached is not None:
            self._kept.move_to_end((raw_id, version))
            return cached[0]
        rows = load_rows(self._store.cursor(), raw_id, version, limits.ROW_FILES_JUDGED_MAX)
        if rows is None:
            return UNKNOWN_WRITTEN
        entries, key_sets, size = rows
        written = written_by(entries, key_sets, self.payloads)
        self._kept[raw_id, version] = (written, size)
        self._bytes += size
        while self._bytes > limits.WRITTEN_BYTES_KEPT and len(self._kept) > 1:
            _, (_, freed) = self._kept.popitem(last=False)
            self._bytes -= freed
        return written


@dataclass(slots=True)
class TableState:
    """A table as the decider sees it; readers have a `TableView`.

    `oldest` is the horizon: lower versions are kept only if something holds them. There are no commits below `trimmed`;
    None: that has not been looked up since the start. `fork`: what it has of another table.
    """

    raw_id: bytes
    meta: TableMeta
    head: int
    last_time_us: int
    next_row_id: int = 1
    dropped: bool = False
    footprints: OrderedDict[int, Footprint] = field(default_factory=OrderedDict)
    blocks: WinnerBlocks = field(default_factory=WinnerBlocks)
    last_metadata_version: int = 0
    oldest: int = 0
    trimmed: int | None = 0
    idle: Idle = field(default_factory=Idle)
    inlined: Inlined = field(default_factory=Inlined)
    fork: Fork | None = None

    def view(self) -> TableView:
        """The view for readers, who see it once it is durable; a job's answer can contain it."""
        return TableView(self.raw_id, self.meta, self.head, self.last_time_us, self.oldest, self.trimmed, self.fork)


def stored_entries(
    cursor: StoreCursor, raw_id: bytes, version: int, partition: str | None = None, bucket: int | None = None
) -> Iterator[StoredEntry]:
    """The live entries of a version: entries of the index that are old enough, and those removed only later."""
    prefix = entry_keys.live_prefix(raw_id, partition, bucket)
    for _, raw in cursor.scan(prefix, prefix_end(prefix)):
        entry = decode_stored(raw)
        if entry.added <= version:
            yield entry
    for entry in taken_out_since(cursor, raw_id, version):
        if (partition is None or entry.partition == partition) and (bucket is None or entry.bucket == bucket):
            yield entry


def taken_out_since(cursor: StoreCursor, raw_id: bytes, version: int) -> Iterator[StoredEntry]:
    """Entries that were live at a version and no longer are."""
    for _, raw in cursor.scan(entry_keys.past_from(raw_id, version + 1), prefix_end(entry_keys.past_prefix(raw_id))):
        entry = decode_stored(raw)
        if entry.added <= version < entry.removed:
            yield entry


@dataclass(slots=True)
class StoreSnapshots:
    """Core's view of one table, over the current store, for the decider.

    The entries removed since a version are read once for all places, until the head advances.
    """

    store: Readable
    flush: Callable[[], None]
    written: WinnerFilesCache
    table: TableState
    _gone: dict[int, dict[tuple[str, int], list[Live]]] = field(default_factory=dict)
    _gone_by: int = -1

    @property
    def raw_id(self) -> bytes:
        return self.table.raw_id

    def live(self, version: int, partition: str | None = None, bucket: int | None = None) -> Iterable[Live]:
        self.flush()
        cursor = self.store.cursor()
        if partition is None or bucket is None:
            return [live_from(entry) for entry in stored_entries(cursor, self.raw_id, version, partition, bucket)]
        prefix = entry_keys.live_prefix(self.raw_id, partition, bucket)
        entries = (decode_live(raw)[0] for _, raw in cursor.scan(prefix, prefix_end(prefix)))
        present = [live for live in entries if live.added <= version]
        return present + self._taken_out(cursor, version).get((partition, bucket), [])

    def _taken_out(self, cursor: StoreCursor, version: int) -> dict[tuple[str, int], list[Live]]:
        if self._gone_by != self.table.head:
            self._gone, self._gone_by = {}, self.table.head
        taken_out = self._gone.get(version)
        if taken_out is None:
            taken_out = self._gone[version] = {}
            for entry in taken_out_since(cursor, self.raw_id, version):
                taken_out.setdefault((entry.partition, entry.bucket), []).append(live_from(entry))
        return taken_out

    def find(self, version: int, partition: str, bucket: int, path: str) -> Live | None:
        self.flush()
        raw = self.store.get(entry_keys.live_key(self.raw_id, partition, bucket, path))
        if raw is not None:
            live, _ = decode_live(raw)
            if live.added <= version:
                return live
        gone = self._taken_out(self.store.cursor(), version).get((partition, bucket), [])
        return next((live for live in gone if live.entry.path == path), None)

    def find_imports(self, path: str) -> Iterable[Live]:
        self.flush()
        return external_files.find_imports(self.store, self.raw_id, path)

    def wrote(self, version: int) -> Written:
        self.flush()
        return self.written.get(self.raw_id, version)

    @property
    def payloads(self) -> Payloads:
        return self.written.payloads


def rows_of(entries: Iterable[Entry]) -> int:
    """The rows of data files; a delete set's rows are counted with the files that contain them."""
    rows = 0
    for entry in entries:
        if not entry.is_delete_set:
            rows += entry.rows
    return rows


def load_commit_footprint(cursor: StoreCursor, raw_id: bytes, version: int) -> Footprint:
    raw = cursor.get(keys.commit_key(raw_id, version))
    if raw is None:
        raise MetaError(ErrorKind.CORRUPT, "RECORD_MISSING", version=version)
    chunks = []
    for chunk in range(added_chunks(raw)):
        chunk_bytes = cursor.get(keys.chunk_key(raw_id, version, chunk))
        if chunk_bytes is None:
            raise MetaError(ErrorKind.CORRUPT, "RECORD_MISSING", version=version, chunk=chunk)
        chunks.append(chunk_bytes)
    return decode_commit(raw, chunks).footprint
