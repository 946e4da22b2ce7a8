"""The plan of a scan: the stored entries that a reader of a version needs.

A partition's entries are adjacent in the index, so a plan seeks from partition to partition and evaluates the condition
on partitions once each. For an older version it adds the spans that held it (`entry_keys.span_key`). The statistics of
a partition are cached with their version; the log brings them to a later one. So are the entries of a whole table with
inlined rows, as they are answered.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator

from metaservice.core import limits
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.table.predicates import TRUE, Predicate, truth
from metaservice.core.table.pruning import Pruning, Row, Test, choose, conjuncts, exactly, leading_values
from metaservice.service.decider.views import TableView
from metaservice.service.read.file_blocks import Blocks, Key, Seen
from metaservice.service.read.increments import added_by
from metaservice.service.read.key_files import AddedMemory, entries_with
from metaservice.service.read.plan_caches import NOTHING, Answered, AnswerMemory, Join, Part, SeenPartition, StatsMemory
from metaservice.service.read.row_ids import RowIds
from metaservice.service.read.scan_request import Explanation, ScanRequest
from metaservice.store import entry_keys, keys
from metaservice.store.forks import live_entries
from metaservice.store.port import StoreCursor, prefix_end
from metaservice.store.records.plans import StoredEntry, decode_few_added, decode_stored, inlined_content, removed_of

COMMITS_FOLLOWED_MAX = 100
ANSWERS_FOLLOWED_MAX = 1_000  # commits, and entries: about as fast as reading as many anew
NARROW_PARTITIONS_MAX = 100
NARROW_FILES_MAX = 10_000


class Scan:
    """A plan in progress: iterate `entries` once, in one thread; then the explanation is complete."""

    def __init__(
        self,
        table: TableView,
        cursor: StoreCursor,
        request: ScanRequest,
        memory: StatsMemory,
        answers: AnswerMemory,
        added: AddedMemory,
    ) -> None:
        self.version = request.version
        self.explanation = Explanation()
        self._raw_id = table.raw_id
        self.meta = table.meta
        self._cursor = cursor
        self._request = request
        self._memory = memory
        self._answers = answers
        self._added = added
        self._is_narrow = False
        past = entry_keys.past_from(self._raw_id, request.version + 1), prefix_end(entry_keys.past_prefix(self._raw_id))
        last = next(iter(cursor.scan_back(*past)), None)
        self._has_past = last is not None
        self._removed_max = (
            entry_keys.removed_of_past(last[0]) if last is not None else 0
        )  # of all that the cursor sees

    def entries(self) -> Iterator[StoredEntry]:
        request = self._request
        if request.explain:
            yield from self._explained()
        elif self._is_whole():
            prefix = entry_keys.live_prefix(self._raw_id)
            yield from live_entries(self._cursor, prefix, prefix_end(prefix), request.version)
        elif (few := self._of_keys()) is not None:
            yield from (entry for entry in few if self._may_match(entry))
        else:
            prefixes = self._prefixes()
            self._is_narrow = len(prefixes) <= NARROW_PARTITIONS_MAX and all(p.endswith("\x00") for p in prefixes)
            for partition in self._partitions(prefixes):
                if self._ruled_out(partition) is None:
                    yield from self._partition(partition)

    def _of_keys(self) -> list[StoredEntry] | None:
        """All that the reader of some keys needs; None if it is found by partition."""
        key_files = self._request.key_files
        if key_files is None or self._has_past:
            return None
        return entries_with(self._cursor, self._raw_id, self.version, key_files, self._added)

    def _may_match(self, entry: StoredEntry) -> bool:
        if self._ruled_out(entry.partition) is not None:
            return False
        row = self._look(entry, b"").row
        return self._request.pruning.of_keys().failed(row + self._fixed(entry.partition)) is None

    def answered(
        self,
        shown: Callable[[StoredEntry], bytes],
        form: Hashable,
        join: Join | None = None,
    ) -> Iterator[bytes]:
        """Yields the entries as `shown` returns them, one or several at once. Equal forms return equal bytes.

        The entries of a whole table with inlined rows are remembered. `join` replaces several entries by fewer; it
        returns None if it can't, and then each entry is answered as it is.
        """
        if self._request.explain or not self._is_whole() or not self._has_inlined():
            yield from map(shown, self.entries())
            return
        key = (self._raw_id, form)
        cached = self._answers.recall(key)
        if cached is not None and cached.version < self.version:
            cached = self._extended(cached, shown)
            if cached is not None:
                self._answers.keep(key, cached)
        if cached is not None and cached.version == self.version:
            yield from self._pieces(cached, join)
            return
        kept: list[bytes] = []
        size, last = 0, b""
        entries = self.entries()
        for entry in entries:
            kept.append(shown(entry))
            size += len(kept[-1])
            last = self._key(entry)
            if size > self._answers.bytes_max:
                yield from kept
                yield from map(shown, entries)
                return
        cached = NOTHING.extended(self.version, last, kept)
        self._answers.keep(key, cached)
        yield from self._pieces(cached, join)

    def _pieces(self, cached: Answered, join: Join | None) -> Iterable[bytes]:
        joined = None if join is None else self._answers.joined(cached, join)
        return cached.pieces if joined is None else joined

    def _extended(self, cached: Answered, shown: Callable[[StoredEntry], bytes]) -> Answered | None:
        """Brings an older answer up to date; None unless the commits since only added entries behind its last."""
        if self.version - cached.version > ANSWERS_FOLLOWED_MAX:
            return None
        behind: dict[bytes, StoredEntry] = {}
        for version in range(cached.version + 1, self.version + 1):
            raw = self._cursor.get(keys.commit_key(self._raw_id, version))
            added = None if raw is None else decode_few_added(raw)
            if added is None or len(behind) > ANSWERS_FOLLOWED_MAX:
                return None
            behind |= {self._key(entry): entry for entry in added}
        order = sorted(behind)
        if order and order[0] <= cached.last:
            return None
        return cached.extended(self.version, order[-1] if order else cached.last, (shown(behind[key]) for key in order))

    def _key(self, entry: StoredEntry) -> bytes:
        return entry_keys.live_key(self._raw_id, entry.partition, entry.bucket, entry.path)

    def _has_inlined(self) -> bool:
        """Whether the table has inlined rows; without them its entries are quickly read."""
        counts = self._cursor.get(keys.inlined_count_key(self._raw_id))
        return counts is not None and keys.decode_counts(counts)[0] > 0

    def content(self, path: str) -> bytes:
        """The rows of an inlined file among the entries, as the plan's cursor sees them."""
        return inlined_content(self._cursor, self._raw_id, path, self.meta.name)

    def _is_whole(self) -> bool:
        return self._request.is_whole and not self._has_past

    def _explained(self) -> Iterator[StoredEntry]:
        """Examines every partition, to count what is left out."""
        explanation, request = self.explanation, self._request
        for conjunct in conjuncts(request.on_partitions):
            explanation.blame(conjunct, by_partition=True, files=0)
        for test in request.pruning.tests:
            explanation.blame(test.conjunct, by_partition=False, files=0)
        for partition in self._partitions([""]):
            ruled_out_by = self._ruled_out(partition)
            if ruled_out_by is None:
                held = list(self._partition(partition))
                explanation.partitions += 1 if held or self._count(partition) else 0
                yield from held
                continue
            files = self._count(partition)
            if files:
                explanation.partitions += 1
                explanation.partitions_pruned += 1
            explanation.files += files
            explanation.files_pruned_by_partition += files
            if ruled_out_by != TRUE:
                explanation.blame(ruled_out_by, by_partition=True, files=files)

    def _count(self, partition: str) -> int:
        entries = (decode_stored(raw) for _, raw in self._held(partition))
        return sum(entry.added <= self.version and not entry.is_delete_set for entry in entries)

    def _ruled_out(self, partition: str) -> Predicate | None:
        """Returns the conjunct that rules a partition out; TRUE if other partitions were named."""
        request = self._request
        if request.named is not None and partition not in request.named:
            return TRUE
        if request.on_partitions == TRUE:
            return None
        values = self.meta.partitioning.decode(partition)
        for conjunct in conjuncts(request.on_partitions):
            if truth(conjunct, values) is not True:
                return conjunct
        return None

    # -- which partitions ----------------------------------------------------------------------------------------

    def _prefixes(self) -> list[str]:
        """Returns prefixes of partition texts, with a zero byte if they are complete."""
        request, partitioning = self._request, self.meta.partitioning
        if request.named is not None:
            return sorted(f"{partition}\x00" for partition in request.named)
        columns = partitioning.columns
        leading = leading_values(request.on_partitions, partitioning.names, limits.PLAN_PARTITIONS_MAX)
        return sorted({_text_start(columns, values, partitioning.encode_leading(values)) for values in leading})

    def _partitions(self, prefixes: Iterable[str]) -> Iterator[str]:
        """Partitions that have or had entries, each once, in the order of their texts."""
        spaces = [entry_keys.live_prefix(self._raw_id)]
        if self._has_past:
            spaces.append(entry_keys.spans_prefix(self._raw_id))
        for prefix in prefixes:
            if prefix.endswith("\x00"):
                yield prefix[:-1]
                continue
            start = prefix.encode()
            while (partition := self._next_partition(spaces, prefix.encode(), start)) is not None:
                yield partition
                start = partition.encode() + b"\x01"

    def _next_partition(self, spaces: Iterable[bytes], prefix: bytes, start: bytes) -> str | None:
        partitions = []
        for space in spaces:
            first = next(iter(self._cursor.scan(space + start, prefix_end(space + prefix))), None)
            if first is not None:
                partitions.append(entry_keys.partition_of(first[0]))
        return min(partitions, default=None, key=str.encode)

    # -- one partition -------------------------------------------------------------------------------------------

    def _held(self, partition: str) -> Iterator[tuple[bytes, bytes]]:
        """Entries that may be live at the version: live ones may still be too new."""
        cursor, raw_id, version = self._cursor, self._raw_id, self.version
        prefix = entry_keys.live_prefix(raw_id, partition)
        yield from cursor.scan(prefix, prefix_end(prefix))
        if not self._has_past:
            return
        partition_bytes = len(partition.encode())
        for start, end in entry_keys.span_ranges(raw_id, partition, version, self._removed_max):
            for key, _ in cursor.scan(start, end):
                removed, added, tail = entry_keys.decode_span(key, partition_bytes)
                if added <= version:
                    raw = cursor.get(entry_keys.past_of_span(raw_id, partition, removed, tail))
                    if raw is None:
                        raise MetaError(ErrorKind.CORRUPT, "RECORD_MISSING", version=removed)
                    yield key, raw

    def _partition(self, partition: str) -> Iterator[StoredEntry]:
        if not self._request.pruning.tests:
            yield from self._unpruned(partition)
        elif self.meta.keyed:
            yield from self._pruned_by_bucket(partition)
        else:
            yield from self._pruned(partition)

    def _unpruned(self, partition: str) -> Iterator[StoredEntry]:
        explanation = self.explanation
        for entry in self._remembered(partition) if self._is_narrow else self._read(partition):
            if entry.is_delete_set:
                explanation.delete_sets += 1
                explanation.delete_sets_kept += 1
            else:
                explanation.files += 1
                explanation.files_kept += 1
            yield entry

    def _read(self, partition: str) -> Iterator[StoredEntry]:
        for _, raw in self._held(partition):
            entry = decode_stored(raw)
            if entry.added <= self.version:
                yield entry

    def _remembered(self, partition: str) -> Iterator[StoredEntry]:
        """Yields the entries of a partition, cached also without statistics: one that changes often is slow to read."""
        part = self._part(partition)
        cached = self._recall(part)
        if cached is not None:
            yield from (decode_stored(seen.raw) for seen in cached.entries.values())
            return
        entries: dict[tuple[int, str], Seen] = {}
        for _, raw in self._held(partition):
            entry = decode_stored(raw)
            if entry.added <= self.version:
                if len(entries) <= NARROW_FILES_MAX:
                    entries[entry.bucket, entry.path] = self._look(entry, raw)
                yield entry
        if len(entries) <= NARROW_FILES_MAX:
            self._memory.keep(part, SeenPartition(self.version, entries))

    def _pruned(self, partition: str) -> Iterator[StoredEntry]:
        """Prunes an append table: files hide nothing; a delete set matters if it may hide rows of a remaining file."""
        failed, fixed = self._request.pruning.failed, self._fixed(partition)
        kept, sets = RowIds(), []
        for _, seen in self._to_test(partition, self._request.pruning, fixed):
            if seen.is_delete_set:
                sets.append(seen.raw)
            elif (test := failed(seen.row + fixed)) is not None:
                self._drop(test)
            else:
                entry = decode_stored(seen.raw)
                kept.add(entry)
                yield self._keep(entry)
        self.explanation.delete_sets += len(sets)
        for raw in sets:
            entry = decode_stored(raw)
            if kept.may_be_hidden_by(entry):
                self.explanation.delete_sets_kept += 1
                yield entry

    def _to_test(self, partition: str, pruning: Pruning, fixed: Row) -> Iterable[tuple[Key, Seen]]:
        """The entries that the blocks of files don't rule out; all of them where each file's reason is asked for."""
        snapshot = self._snapshot(partition)
        if self._request.explain or snapshot.blocks is None or not pruning.tests:
            return snapshot.entries.items()
        left, dropped = snapshot.blocks.split(snapshot.entries, lambda row: pruning.failed(row + fixed) is not None)
        self.explanation.files += dropped
        self.explanation.files_pruned_by_statistics += dropped
        return left

    def _pruned_by_bucket(self, partition: str) -> Iterator[StoredEntry]:
        """Prunes a keyed table: what tests of the key rule out hides nothing of what stays."""
        fixed = self._fixed(partition)
        buckets: dict[int, list[Seen]] = {}
        for (bucket, _), seen in self._to_test(partition, self._request.pruning.of_keys(), fixed):
            buckets.setdefault(bucket, []).append(seen)
        for bucket in sorted(buckets):
            files = buckets[bucket]
            tests = choose(self._request.pruning, [(file.data_version, file.row + fixed) for file in files])
            for seen, test in zip(files, tests, strict=True):
                if test is not None:
                    self._drop(test)
                else:
                    yield self._keep(decode_stored(seen.raw))

    def _keep(self, entry: StoredEntry) -> StoredEntry:
        self.explanation.files += 1
        self.explanation.files_kept += 1
        return entry

    def _drop(self, test: Test) -> None:
        self.explanation.files += 1
        self.explanation.files_pruned_by_statistics += 1
        if self._request.explain:
            self.explanation.blame(test.conjunct, by_partition=False, files=1)

    def _fixed(self, partition: str) -> Row:
        if not self._request.pruning.uses_partition:
            return ()
        values = self.meta.partitioning.decode(partition)
        return tuple(exactly(values[name]) for name in self.meta.partitioning.names)

    def _part(self, partition: str) -> Part:
        bounds = self._request.bounds
        return (self._raw_id, partition, bounds.key if bounds is not None else None)

    def _snapshot(self, partition: str) -> SeenPartition:
        """Returns the entries with their statistics: cached and brought up to date by the log, or read again."""
        part = self._part(partition)
        cached = self._recall(part)
        if cached is not None:
            return cached
        entries: dict[tuple[int, str], Seen] = {}
        for _, raw in self._held(partition):
            entry = decode_stored(raw)
            if entry.added <= self.version:
                entries[entry.bucket, entry.path] = self._look(entry, raw)
        snapshot = SeenPartition(self.version, entries)
        self._memory.keep(part, snapshot)
        return snapshot

    def _recall(self, part: Part) -> SeenPartition | None:
        cached = self._memory.recall(part)
        if cached is None:
            return None
        if cached.version == self.version:
            cached.make_blocks()
            return cached
        followed = self._followed(part[1], cached)
        if followed is not None:
            self._memory.keep(part, followed)
        return followed

    def _followed(self, partition: str, cached: SeenPartition) -> SeenPartition | None:
        """Brings a cached snapshot up to date by the log; None for too many commits, or if some aren't in the log."""
        if not 0 < self.version - cached.version <= COMMITS_FOLLOWED_MAX:
            return None
        entries, touched = dict(cached.entries), set[Key]()
        for version in range(cached.version + 1, self.version + 1):
            raw = self._cursor.get(keys.commit_key(self._raw_id, version))
            if raw is None:
                return None
            for bucket, path in removed_of(raw, partition):
                if entries.pop((bucket, path), None) is None:
                    return None
                touched.add((bucket, path))
            for entry in added_by(self._cursor, self._raw_id, version, raw):
                if entry.partition == partition:
                    entries[entry.bucket, entry.path] = self._look(entry, entry.SerializeToString())
                    touched.add((entry.bucket, entry.path))
        blocks: Blocks | None = None if cached.blocks is None else cached.blocks.after(touched, len(entries))
        return SeenPartition(self.version, entries, blocks)

    def _look(self, entry: StoredEntry, raw: bytes) -> Seen:
        bounds = self._request.bounds
        row = () if entry.is_delete_set or bounds is None else bounds.read(entry.payload)
        return Seen(raw, entry.data_version, entry.is_delete_set, row)


def _text_start(columns: tuple[tuple[str, str], ...], values: tuple[object, ...], text: str) -> str:
    if len(values) == len(columns):
        return text + "\x00"
    return text + "/" if values else ""
