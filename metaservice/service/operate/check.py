"""A check of the store: the replayed log must equal the index, and every reference must have its target.

It reads one cursor, so commits can go on. Its memory doesn't grow with the history: log and index are compared by sums
of digests, and only the parts of sums that differ are compared entry by entry. For each file of a table it stores only
the range of row ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from metaservice.core import limits
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.table.meta import TableMeta
from metaservice.service.operate import record_checks
from metaservice.service.operate.record_checks import Beside, Ranges
from metaservice.service.operate.replay import (
    NOT_KNOWN,
    Happening,
    Indexed,
    Kept,
    Sums,
    group_of,
    happenings_in_index,
    happenings_in_log,
    list_commits,
    list_indexed,
)
from metaservice.service.operate.transaction_checks import TransactionChecks, text_of
from metaservice.store import entry_keys, keys
from metaservice.store.commit_log import LoggedCommit
from metaservice.store.external_files import IMPORTS
from metaservice.store.forks import ForkedCursor, list_ended, list_forks
from metaservice.store.index_migrations import PAST
from metaservice.store.port import StoreCursor, prefix_end
from metaservice.store.records.tables import decode_table

STEP_ENTRIES = 64
STEPS_PER_PROGRESS = 256


@dataclass(slots=True)
class CheckProgress:
    """The progress of a check, and its findings since the last report."""

    tables: int = 0
    entries: int = 0
    problems: list[str] = field(default_factory=list)
    done: bool = False


class StoreCheck:
    """One run. `pause` is called every few hundred entries, to yield the processor."""

    def __init__(self, cursor: StoreCursor, pause: Callable[[], None]) -> None:
        self._forks = list_forks(cursor)
        self._cursor = ForkedCursor(cursor, self._forks)
        self._pause = pause
        self._spans_kept = cursor.get(keys.upkeep_key(PAST)) is not None  # else it was never opened by this release
        self._imports_kept = cursor.get(keys.upkeep_key(IMPORTS)) is not None
        self._progress = CheckProgress()
        self._problem_count = 0
        self._steps = 0
        self._txns = TransactionChecks(self._cursor, self._problem, self._count)

    def run(self, table_id: str = "") -> Iterator[CheckProgress]:
        """Checks the whole store, or one table; the last progress is done."""
        chosen = [keys.uuid_bytes(table_id)] if table_id else _list_tables(self._cursor, keys.TABLES)
        for raw_id in chosen:
            if table_id and not _any(self._cursor, keys.table_prefix(raw_id)):
                raise MetaError(ErrorKind.NOT_FOUND, "TABLE_UNKNOWN", table_id=table_id)
            yield from self._part(lambda: self._table(raw_id))  # noqa: B023 - run before the next turn
            self._progress.tables += 1
        if not table_id:
            for part in (self._names, *self._txns.parts, self._marks, self._foreign_uses):
                yield from self._part(part)
        self._progress.done = True
        yield self._take_progress()

    def _part(self, part: Callable[[], Iterator[None]]) -> Iterator[CheckProgress]:
        """The steps of a part as progress, not too often."""
        self._problem_count = 0
        for _ in part():
            self._pause()
            self._steps += 1
            if self._steps % STEPS_PER_PROGRESS == 0 or self._progress.problems:
                yield self._take_progress()
        if self._progress.problems:
            yield self._take_progress()

    def _take_progress(self) -> CheckProgress:
        now = self._progress
        progress = CheckProgress(now.tables, now.entries, now.problems, now.done)
        now.problems = []
        return progress

    def _problem(self, what: str, **facts: object) -> None:
        self._problem_count += 1
        if self._problem_count <= limits.CHECK_FINDINGS_MAX:
            self._progress.problems.append(" ".join([what, *(f"{name}={fact}" for name, fact in facts.items())]))
        elif self._problem_count == limits.CHECK_FINDINGS_MAX + 1:
            self._progress.problems.append(f"MORE_OF_THE_SAME after={limits.CHECK_FINDINGS_MAX}")

    def _count(self) -> bool:
        """Whether a step is over."""
        self._progress.entries += 1
        return self._progress.entries % STEP_ENTRIES == 0

    def _scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._cursor.scan(prefix, prefix_end(prefix))

    # -- a table -------------------------------------------------------------------------------------------------

    def _table(self, raw_id: bytes) -> Iterator[None]:
        if self._cursor.get(keys.drop_begun_key(raw_id)) is not None:
            return  # its records go, one after the other
        name = text_of(raw_id)
        meta, changed = self._metadata(raw_id, name)
        kept = Kept(horizon=self._horizon(raw_id))
        yield from self._log(raw_id, name, kept)
        if changed > kept.head:
            self._problem("METADATA_WITHOUT_COMMIT", table=name, version=changed, head=kept.head)
        sums, ranges = Sums(), Ranges()
        for happening in happenings_in_log(self._cursor, raw_id, kept):
            sums.add(happening, 1)
            if self._count():
                yield
        for indexed in list_indexed(self._cursor, raw_id):
            if isinstance(indexed, ValueError):
                self._problem("RECORD_UNREADABLE", table=name, record="index entry", error=indexed)
                continue
            self._indexed(raw_id, indexed, name, kept)
            if meta is not None and not meta.keyed and not indexed.entry.is_delete_set:
                ranges.add(indexed.entry, live=indexed.removed == 0)
            for happening in happenings_in_index(indexed, kept):
                sums.add(happening, -1)
            if self._count():
                yield
        differing = sums.differing()
        if differing:
            yield from self._differences(raw_id, name, kept, differing)
        self._row_ids(raw_id, name, ranges)
        yield from self._other_indexes(raw_id, name)

    def _other_indexes(self, raw_id: bytes, name: str) -> Iterator[None]:
        """The additional indexes, if the table has them: each was added by a release."""
        if self._spans_kept:
            yield from self._spans(raw_id, name)
        if self._imports_kept:
            yield from record_checks.check_imports(self._cursor, raw_id, self._problem, self._count)
        own_from = self._own_from(raw_id)
        yield from record_checks.check_inlined(self._cursor, raw_id, own_from, self._problem, self._count)

    def _spans(self, raw_id: bytes, name: str) -> Iterator[None]:
        """Checks that removed entries are indexed by the versions that held them, and nothing else is."""
        spanned = 0
        for indexed in list_indexed(self._cursor, raw_id):
            if isinstance(indexed, Indexed) and indexed.removed:
                spanned += self._is_spanned(raw_id, name, indexed)
            if self._count():
                yield
        for _ in self._scan(entry_keys.spans_prefix(raw_id)):
            spanned -= 1
            if self._count():
                yield
        if spanned < 0:
            self._problem("SPAN_WITHOUT_ENTRY", table=name, count=-spanned)

    def _is_spanned(self, raw_id: bytes, name: str, indexed: Indexed) -> bool:
        entry = indexed.entry
        span = entry_keys.span_key(raw_id, indexed.added, indexed.removed, entry.partition, entry.bucket, entry.path)
        if self._cursor.get(span) is not None:
            return True
        self._problem("SPAN_MISSING", table=name, path=entry.path, added=indexed.added, removed=indexed.removed)
        return False

    def _horizon(self, raw_id: bytes) -> int:
        raw = self._cursor.get(keys.oldest_key(raw_id))
        return keys.decode_version(raw) if raw is not None else 0

    def _metadata(self, raw_id: bytes, name: str) -> tuple[TableMeta | None, int]:
        """The latest readable metadata, and the version of the latest."""
        meta, changed = None, NOT_KNOWN
        for key, raw in self._scan(keys.table_prefix(raw_id)):
            _, changed = keys.split_versioned(key)
            try:
                meta = decode_table(raw)
            except Exception as error:  # noqa: BLE001 - bytes can be wrong in any way
                self._problem("RECORD_UNREADABLE", table=name, record="metadata", version=changed, error=error)
                continue
            if meta.table_id != name and changed >= self._own_from(raw_id):
                self._problem("METADATA_OF_ANOTHER_TABLE", table=name, version=changed, found=meta.table_id)
        return meta, changed

    def _own_from(self, raw_id: bytes) -> int:
        """The version from which a table's records are its own: those below a fork's base are another table's."""
        fork = self._forks.get(raw_id)
        return 0 if fork is None else fork.version

    def _log(self, raw_id: bytes, name: str, kept: Kept) -> Iterator[None]:
        """Checks that versions have no gaps, times increase, chunks are complete and counters correct."""
        times = Beside(
            (keys.split_versioned(key)[1], keys.decode_version(raw))
            for key, raw in self._scan(keys.times_prefix(raw_id))
        )
        chunks = Beside(keys.split_chunk(key) for key, _ in self._scan(keys.chunks_prefix(raw_id)))
        last_us, last_txn = NOT_KNOWN, ""  # a merge makes several commits at one time
        for version, commit in list_commits(self._cursor, raw_id):
            if self._count():
                yield
            first = kept.oldest == NOT_KNOWN
            if first:
                kept.oldest = version
            elif version != kept.head + 1:
                self._problem("VERSIONS_MISSING", table=name, after=kept.head, before=version)
            kept.head = version
            if isinstance(commit, ValueError):
                self._problem("RECORD_UNREADABLE", table=name, record="commit", version=version, error=commit)
                continue
            self._commit(raw_id, name, version, commit)
            if commit.time_us <= last_us and not (commit.time_us == last_us and commit.txn_id == last_txn):
                self._problem("TIME_GOES_BACK", table=name, version=version, time_us=commit.time_us, last_us=last_us)
            last_us, last_txn = max(last_us, commit.time_us), commit.txn_id
            self._beside(raw_id, version, commit, times, chunks, first=first)
            kept.bury(version, commit.removed)
            if commit.chunks:
                kept.chunked.add(version)
        if kept.oldest == NOT_KNOWN:
            self._problem("LOG_MISSING", table=name)
        elif times.skip_to(limits.INTEGER_MAX) or chunks.skip_to(limits.INTEGER_MAX):
            self._problem("LOG_CUT_SHORT", table=name, head=kept.head)

    def _beside(
        self, raw_id: bytes, version: int, commit: LoggedCommit, times: Beside, chunks: Beside, *, first: bool
    ) -> None:
        """Checks the records that belong to a commit: its time, and its entries if they are many."""
        name = text_of(raw_id)
        first = first and version > 0  # only then there may be something older
        if times.skip_to(commit.time_us) and not first:
            self._problem("TIME_WITHOUT_COMMIT", table=name, before_version=version)
        times.take(commit.time_us)
        timed = self._cursor.get(keys.time_key(raw_id, commit.time_us))  # of commits of one time it has the last one
        if timed is None or keys.decode_version(timed) < version:
            self._problem("TIME_NOT_FOUND", table=name, version=version, time_us=commit.time_us)
        if chunks.skip_to(version) and not first:
            self._problem("CHUNKS_WITHOUT_COMMIT", table=name, before_version=version)
        if (present := chunks.take(version)) != list(range(commit.chunks)):
            self._problem("CHUNKS_WRONG", table=name, version=version, expected=commit.chunks, found=present[:10])

    def _commit(self, raw_id: bytes, name: str, version: int, commit: LoggedCommit) -> None:
        if commit.version != version:
            self._problem("COMMIT_OF_ANOTHER_VERSION", table=name, version=version, found=commit.version)
        counted = commit.files_inline
        if not commit.chunks and counted != commit.files_added:
            self._problem("COUNTER_WRONG", table=name, version=version, files_added=commit.files_added, found=counted)
        gone = sum(not removed.is_delete_set for removed in commit.removed)
        if gone != commit.files_removed:
            self._problem("COUNTER_WRONG", table=name, version=version, files_removed=commit.files_removed, found=gone)
        marked = self._cursor.get(keys.idle_key(raw_id, version)) is not None
        if self._spans_kept and marked == commit.logical:
            self._problem("IDLE_MARK_WRONG", table=name, version=version, logical=commit.logical)
        if (commit.altered or version == 0) and self._cursor.get(keys.table_key(raw_id, version)) is None:
            self._problem("METADATA_MISSING", table=name, version=version)
        for app_id in commit.app_ids:
            if self._cursor.get(keys.app_key(raw_id, app_id)) is None:
                self._problem("APPLICATION_ID_MISSING", table=name, version=version, app_id=app_id)
        txn = self._txns.find(commit.txn_id) if version > self._own_from(raw_id) or not version else None
        if txn is not None and (name, version) not in {(outcome.table_id, outcome.version) for outcome in txn.outcomes}:
            self._problem("TRANSACTION_DISAGREES", table=name, version=version, txn_id=commit.txn_id)

    def _indexed(self, raw_id: bytes, indexed: Indexed, name: str, kept: Kept) -> None:
        path = indexed.entry.path
        if indexed.entry.external and self._imports_kept:
            record_checks.check_entry(self._cursor, raw_id, indexed, self._problem)
        if indexed.misplaced:
            self._problem("INDEX_ENTRY_MISPLACED", table=name, path=path, added=indexed.added, removed=indexed.removed)
        if max(indexed.added, indexed.removed, indexed.data_version) > kept.head:
            self._problem(
                "INDEX_ENTRY_FROM_THE_FUTURE",
                table=name,
                path=path,
                added=indexed.added,
                removed=indexed.removed,
                data_version=indexed.data_version,
                head=kept.head,
            )

    def _differences(self, raw_id: bytes, name: str, kept: Kept, groups: set[int]) -> Iterator[None]:
        left: Counter[Happening] = Counter()
        for happening in happenings_in_log(self._cursor, raw_id, kept):
            if group_of(happening) in groups:
                left[happening] += 1
            if self._count():
                yield
        for indexed in list_indexed(self._cursor, raw_id):
            if isinstance(indexed, ValueError):
                continue
            for happening in happenings_in_index(indexed, kept):
                if group_of(happening) in groups:
                    left[happening] -= 1
            if self._count():
                yield
        for (kind, _), count in sorted(left.items()):
            if count:
                self._problem("LOG_AND_INDEX_DIFFER", table=name, only_in="log" if count > 0 else "index", told=kind)

    def _row_ids(self, raw_id: bytes, name: str, ranges: Ranges) -> None:
        raw = self._cursor.get(keys.row_id_key(raw_id))
        following = keys.decode_version(raw) if raw is not None else 1
        if ranges.highest >= following:
            self._problem("ROW_IDS_BEYOND_THE_NEXT", table=name, highest=ranges.highest, next=following)
        for first, second in ranges.overlaps():
            self._problem("ROW_IDS_OVERLAP", table=name, first=first, second=second)

    # -- what belongs to no table --------------------------------------------------------------------------------

    def _names(self) -> Iterator[None]:
        """Checks that every live table has a name, and every name a table."""
        named = {ended.raw_id for _, _, ended in list_ended(self._cursor)}  # a fork to come may have the name
        for key, raw_id in self._scan(keys.NAMES):
            name = key[len(keys.NAMES) :].decode(errors="replace")
            prefix = keys.table_prefix(raw_id)
            latest = next(iter(self._cursor.scan_back(prefix, prefix_end(prefix))), None)
            if latest is None:
                self._problem("NAME_WITHOUT_TABLE", name=name, table=raw_id.hex())
            elif _name(latest[1]) not in (name, ""):
                self._problem("NAME_OF_ANOTHER_TABLE", name=name, found=_name(latest[1]))
            if self._cursor.get(keys.dropped_key(raw_id)) is not None:
                self._problem("NAME_OF_A_DROPPED_TABLE", name=name, table=raw_id.hex())
            named.add(raw_id)
            if self._count():
                yield
        for raw_id in _list_tables(self._cursor, keys.COMMITS):
            if not _any(self._cursor, keys.table_prefix(raw_id)):
                self._problem("LOG_WITHOUT_TABLE", table=text_of(raw_id))
        for raw_id in _list_tables(self._cursor, keys.TABLES):
            if raw_id not in named and self._cursor.get(keys.dropped_key(raw_id)) is None:
                self._problem("TABLE_WITHOUT_NAME", table=text_of(raw_id))
            if self._count():
                yield

    def _marks(self) -> Iterator[None]:
        return record_checks.check_marks(self._cursor, self._problem, self._count)

    def _foreign_uses(self) -> Iterator[None]:
        if self._spans_kept and self._imports_kept:
            yield from record_checks.check_foreign_uses(self._cursor, self._problem, self._count)


def _list_tables(cursor: StoreCursor, kind: bytes) -> Iterator[bytes]:
    """Yield the tables with keys of a kind, by seeking from table to table."""
    start, end = kind, prefix_end(kind)
    while (first := next(iter(cursor.scan(start, end)), None)) is not None:
        raw_id, _ = keys.split_versioned(first[0])
        yield raw_id
        start = prefix_end(kind + raw_id)


def _any(cursor: StoreCursor, prefix: bytes) -> bool:
    return next(iter(cursor.scan(prefix, prefix_end(prefix))), None) is not None


def _name(raw: bytes) -> str:
    try:
        return decode_table(raw).name
    except Exception:  # noqa: BLE001 - that it can't be read is told by the table's own check
        return ""
