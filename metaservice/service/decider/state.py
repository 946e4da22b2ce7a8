"""The decider's state: tables, open transactions, and the batch that the next sync makes durable.

Everything here belongs to the decider's thread, except what readers use: `views`, the durable tables. A restart
rebuilds the same state from the store; leases restart then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from metaservice.core import limits
from metaservice.core.commit.transaction import Txn, first_id, unknown_txn
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.table.branches import branch_of
from metaservice.core.table.inlined import Inlined
from metaservice.core.table.meta import Namespace, TableMeta, View
from metaservice.core.table.model import Footprint, Live
from metaservice.core.table.rows import NOTHING_KNOWN, Payloads
from metaservice.core.table.staged_names import is_unborn
from metaservice.service.decider.books import AccessBook, BranchEventBook, MarkBook, PinBook
from metaservice.service.decider.column_ids import ColumnIds
from metaservice.service.decider.ended_forks import EndedForks
from metaservice.service.decider.fork_book import ForkBook
from metaservice.service.decider.loading import first_commit, load_table, load_tables
from metaservice.service.decider.name_book import NAMESPACES, VIEWS, NameBook
from metaservice.service.decider.names import AnyCase, BranchNames, TableNames
from metaservice.service.decider.periodic_book import PeriodicBook
from metaservice.service.decider.snapshots import StoreSnapshots, TableState, WinnerFilesCache, load_commit_footprint
from metaservice.service.decider.taskbook import TaskBook
from metaservice.service.decider.txn_book import TxnBook
from metaservice.service.decider.unwritten import Unwritten
from metaservice.service.decider.usage import Usage
from metaservice.service.decider.views import TableView, Views
from metaservice.store import entry_keys, external_files, formats, index_migrations, keys
from metaservice.store.forks import ForkedRecords, list_forks
from metaservice.store.history import read_history
from metaservice.store.port import Batch, Store, StoreCursor, prefix_end
from metaservice.store.records.branches import Fork, decode_branch, encode_fork, moved_at
from metaservice.store.records.tables import decode_namespace, decode_table, decode_view, encode_table


class State:
    """Tables, open transactions, times."""

    def __init__(
        self,
        store: Store,
        payloads: Payloads = NOTHING_KNOWN,
        task_backoff_ms: int = limits.TASK_BACKOFF_MS,
        format_max: int = formats.NEWEST,
        decode: Callable[[bytes], TableMeta] = decode_table,
    ) -> None:
        self.store = store
        self.forks = ForkBook()
        self.ended_forks = EndedForks()
        self.records = ForkedRecords(store, self.forks)  # of tables: what forks have of others, too
        self.branches = BranchNames()
        self.format = formats.FIRST
        self._format_max = format_max
        self.batch = Batch()
        self.dirty = False
        self.tables: dict[str, TableState] = {}
        self.column_ids = ColumnIds(self.records, self.forks, self.tables, self.branches)
        self.views = Views()
        self.names = TableNames()
        self.namespaces: AnyCase[Namespace] = AnyCase()
        self.queries: AnyCase[View] = AnyCase()  # what people call views
        self.named_views = NameBook(VIEWS, self.queries, self.branches)
        self.named_spaces = NameBook(NAMESPACES, self.namespaces, self.branches)
        self.unborn: dict[str, int | None] = {}  # tables in the making, and when to look whether they still are
        self.answered_us = 0
        self.ceiling_us = 0
        self.newest_us = 0  # commit time of any table
        self.undropped: dict[bytes, int] = {}  # tables that came back, and when, if there were branches then
        self.fresh_id = ""  # ids from here on are younger than every commit that was found
        self.forgotten_ms = 0
        self.changed: set[str] = set()
        self.row_ids_given: set[str] = set()
        self.held: Collection[str] = ()  # ids of tables that a decision changes in several groups
        self._is_laid_aside = False
        self.written = WinnerFilesCache(self.records, payloads)
        self.pins = PinBook(store.cursor())
        self.marks = MarkBook(store.cursor())
        self.access = AccessBook(store.cursor())
        self.branch_events = BranchEventBook(store.cursor())
        self.tasks = TaskBook(store.cursor(), task_backoff_ms)
        self.periodic = PeriodicBook(store.cursor())
        self.usage = Usage()
        self.inlined_bytes = 0  # of all tables
        for pin in self.pins.pins.values():
            self.usage.pin(pin.principal.name)
        self.txns = TxnBook(store, self.batch, self.usage, self.tasks)
        self.open, self.ended, self.leases = self.txns.open, self.txns.ended, self.txns.leases
        self.find_txn = self.txns.find
        self._restored_now: dict[bytes, bytes] = {}  # counts that are not written yet: a merge restores several times
        self.history = read_history(store)
        self.judging_left: float = limits.JUDGE_TURN
        self._load(decode)

    def _load(self, decode: Callable[[bytes], TableMeta]) -> None:
        index_migrations.index_the_past(self.store, self.batch)
        external_files.index_imports(self.store, self.batch)
        cursor = self.store.cursor()
        self.format = formats.decode_format(cursor.get(formats.FORMAT_KEY))
        raw_ceiling = cursor.get(keys.CEILING)
        if raw_ceiling is not None:
            self.ceiling_us = self.answered_us = keys.decode_version(raw_ceiling)
        raw_forgotten = cursor.get(keys.FORGOTTEN)
        if raw_forgotten is not None:
            self.forgotten_ms = keys.decode_version(raw_forgotten)
        for raw_id, fork in list_forks(cursor).items():
            self.forks[raw_id] = fork
        self.ended_forks.load(cursor)
        self.column_ids.load()
        for _, kept in cursor.scan(keys.BRANCHES, prefix_end(keys.BRANCHES)):
            branch = decode_branch(kept)
            self.branches[branch.name] = branch
            self.usage.branch(branch.principal.name)
        records = cursor.scan(keys.NAMES, prefix_end(keys.NAMES))
        named = [(key, raw_id) for key, raw_id in records if raw_id not in self.ended_forks]
        plain = [raw_id for _, raw_id in named if raw_id not in self.forks]
        loaded = dict(zip(plain, load_tables(self.store, plain, decode), strict=True))
        for key, raw_id in named:
            table = loaded[raw_id] if raw_id in loaded else self.load_table(raw_id)
            made_us = 0 if table.fork is None else table.fork.made_us
            self.newest_us = max(self.newest_us, table.last_time_us, made_us)
            self.tables[table.meta.table_id] = table
            self.inlined_bytes += table.inlined.size_bytes
            self.views.publish(table.view())
            self.names[key[len(keys.NAMES) :].decode()] = table.meta.table_id
            if is_unborn(table.meta.name):
                self.unborn[table.meta.table_id] = None
            namespace, dot, _ = table.meta.name.partition(".")
            if dot and not branch_of(table.meta.name) and namespace not in self.namespaces:  # before they were kept
                self.namespaces[namespace] = Namespace(namespace)
        for key, raw_time in cursor.scan(keys.UNDROPPED, prefix_end(keys.UNDROPPED)):
            self.undropped[key[1:]] = keys.decode_version(raw_time)
        self.newest_us = max(self.newest_us, *self.undropped.values(), 0)
        self.fresh_id = first_id(self.newest_us // 1000 + limits.CLOCK_TOLERANCE_MS + 1)
        for _, kept in cursor.scan(keys.NAMESPACES, prefix_end(keys.NAMESPACES)):
            space = decode_namespace(kept)
            self.namespaces[space.name] = space
        for _, kept in cursor.scan(keys.VIEWS, prefix_end(keys.VIEWS)):
            view = decode_view(kept)
            self.queries[view.name] = view
        self.named_views.load(cursor)
        self.named_spaces.load(cursor)
        self._note_format(cursor)
        self.txns.load(cursor)

    def _note_format(self, cursor: StoreCursor) -> None:
        """Unreleased versions used features of the second format in stores of the first."""
        if self.format > formats.FIRST:
            return
        used = (
            bool(self.queries)
            or any(table.meta.has_defaults for table in self.tables.values())
            or next(iter(cursor.scan(keys.INLINED_COUNTS, prefix_end(keys.INLINED_COUNTS))), None) is not None
        )
        if used:
            self.format = formats.NEEDED["views"]
            self.batch.put(formats.FORMAT_KEY, formats.encode_format(self.format))

    @property
    def features(self) -> list[str]:
        """What the store's format allows, now or by being raised."""
        return [name for name, needed in formats.NEEDED.items() if max(self.format, self._format_max) >= needed]

    def need(self, feature: str) -> None:
        """Raises the store's format to one that has the feature; earlier releases no longer open the store then."""
        needed = formats.NEEDED[feature]
        if self.format < needed:
            if self._format_max < needed:
                raise MetaError(
                    ErrorKind.BLOCKED, "FEATURE_NOT_OFFERED", lacks=feature, format=self.format, needed=needed
                )
            self.batch.put(formats.FORMAT_KEY, formats.encode_format(needed))
            self.format = needed

    def load_table(self, raw_id: bytes) -> TableState:
        """A table from the store, live or dropped."""
        table = load_table(self.records.cursor(), raw_id)
        table.fork = self.forks.get(raw_id)
        return table

    def put_fork(self, fork: Fork) -> None:
        """Stores a fork, or what it has become."""
        self.forks[fork.raw_id] = fork
        self.column_ids.note_fork(fork)
        self.batch.put(keys.fork_key(fork.raw_id), encode_fork(fork))
        table = self.tables.get(keys.uuid_text(fork.raw_id))
        if table is not None:
            table.fork = fork

    def app_version(self, table_id: str, app_id: str) -> bytes | None:
        """The record of the highest version that an application wrote. Earlier decisions have been flushed.

        A fork has those of its base, as far as the base took no later one of the application.
        """
        raw_id = keys.uuid_bytes(table_id)
        own, fork = self.store.get(keys.app_key(raw_id, app_id)), self.forks.get(raw_id)
        moved = None if own is None else moved_at(own)
        if moved is None and (own is not None or fork is None or fork.is_detached):
            return own
        base_id = "" if fork is None else keys.uuid_text(fork.base)
        base = self.tables.get(base_id)
        if base is not None and fork is not None and moved is None:
            since = range(fork.version + 1, base.head + 1)
            moved = next((version for version in since if app_id in self.winner(base, version).app_ids), None)
        if moved is not None:
            facts = {"table_id": table_id, "app_id": app_id, "parent_version": moved}
            raise MetaError(ErrorKind.STALE, "APP_VERSION_MOVED", **facts)
        return self.app_version(base_id, app_id)

    def home_of(self, raw_id: bytes) -> bytes:
        """The table in whose folder a table's files lie."""
        fork = self.forks.get(raw_id)
        return raw_id if fork is None else fork.root

    def family_of(self, raw_id: bytes) -> list[bytes]:
        """The tables whose files lie in a table's folder."""
        return [raw_id, *self.forks.of_root(raw_id)]

    def rename(self, table: TableState, name: str) -> None:
        """Renames a table; the old name is free at once."""
        before = table.meta.name
        if name != before:
            self.batch.delete(keys.name_key(before))
            self.batch.put(keys.name_key(name), table.raw_id)
            del self.names[before]
            self.names[name] = table.meta.table_id

    def put_meta(self, table: TableState, meta: TableMeta, version: int) -> None:
        """Stores a table's metadata from a version on."""
        raw = encode_table(meta)
        self.batch.put(keys.table_key(table.raw_id, version), raw)
        if meta.schema_version != table.meta.schema_version:
            key = keys.schema_key(table.raw_id, meta.schema_version)
            self.batch.put(key, keys.encode_version(version) + raw)
        self.column_ids.note(table, meta, self.batch)
        table.meta = meta

    def load_staged(self, txn: Txn) -> None:
        """The staged entries of an ended transaction, for an adoption."""
        self.flush()
        self.txns.load_staged(self.store.cursor(), txn)

    def flush(self) -> None:
        """Lets reads of the store see the decisions since the last write."""
        if self._is_laid_aside:
            raise AssertionError("half of a decision would be written")
        if self.txns.unwritten:
            self.txns.write_open()
        for table_id in self.row_ids_given:
            table = self.tables.get(table_id)
            if table is not None:
                self.batch.put(keys.row_id_key(table.raw_id), keys.encode_version(table.next_row_id))
        self.row_ids_given.clear()
        if self.batch.ops:
            self.store.write(self.batch)
            self.batch.clear()
            self._restored_now.clear()
            self.dirty = True
            while len(self.ended) > limits.FOOTPRINTS_KEPT:  # only what the store can answer for by now
                self.ended.popitem(last=False)

    def exchange(self, other: Unwritten) -> None:
        """Lays aside what is not written yet, for what was laid aside before."""
        self.batch.ops, other.ops = other.ops, self.batch.ops
        self.changed, other.changed = other.changed, self.changed
        self.row_ids_given, other.row_ids_given = other.row_ids_given, self.row_ids_given
        self._restored_now, other.restored_now = other.restored_now, self._restored_now
        self._is_laid_aside = not self._is_laid_aside

    def take_back(self, other: Unwritten) -> None:
        """What was laid aside is written with the rest of this group."""
        self.batch.ops += other.ops
        self.changed |= other.changed
        self.row_ids_given |= other.row_ids_given
        self._restored_now |= other.restored_now
        self.views.lay_ahead(other.views)
        self.newest_us = max([self.newest_us, *(view.time_us for view in other.views.values())])  # for this group, too

    def are_apart(self, table_ids: Iterable[str]) -> bool:
        """Whether tables are there, none of them is held, and none is a fork, which may need one that is held."""
        tables = [self.tables.get(table_id) for table_id in table_ids]
        return all(
            table is not None and table.fork is None and table.meta.table_id not in self.held for table in tables
        )

    def make_durable(self) -> None:
        """Writes and syncs the batch; nothing is answered or shown before this returns."""
        self.flush()
        if self.dirty:
            self.store.sync()
            self.dirty = False
        self.newest_us = max(self.newest_us, self.views.follow(self.tables, self.changed))
        self.changed.clear()

    def snapshots(self, table: TableState) -> StoreSnapshots:
        return StoreSnapshots(self.records, self.flush, self.written, table)

    def get_table(self, table_id: str) -> TableState:
        table = self.tables.get(table_id)
        if table is not None:
            return table
        raise self.no_table(table_id)

    def oldest(self, table_id: str) -> int:
        """The oldest version that is kept for everyone."""
        return self.get_table(table_id).oldest

    def is_held(self, table_id: str, version: int) -> bool:
        """Whether a pin, a tag, a running task or an open transaction needs a version. Any thread."""
        if (
            self.pins.holds(table_id, version)
            or version in self.marks.tagged(table_id)
            or self.tasks.holds(table_id, version)
        ):
            return True
        tables = [txn.tables.get(table_id) for txn in list(self.open.values())]
        return any(table is not None and table.read_version == version for table in tables)

    def check_retained(self, table: TableState, version: int) -> None:
        """Refuses a version that is no longer kept."""
        self._check_retained(table.meta.table_id, version, table.oldest)

    def check_readable(self, table: TableView, version: int) -> None:
        """The same for readers, on any thread.

        A reader opens its cursor first: everything that is kept at a later moment is complete in it.
        """
        self._check_retained(table.meta.table_id, version, self.views.oldest(table))

    def _check_retained(self, table_id: str, version: int, oldest: int) -> None:
        fork = self.forks.get(keys.uuid_bytes(table_id)) if self.forks else None
        if fork is not None and version < fork.version:  # it is the base's past
            base = self.views.find(keys.uuid_text(fork.base))
            if base is not None:
                oldest = max(oldest, base.oldest)
        if version < oldest and not self.is_held(table_id, version):
            raise MetaError(ErrorKind.GONE, "VERSION_RETIRED", version=version, oldest=oldest)

    def mark_restored(self, table: TableState, added: Iterable[Live]) -> None:
        """Counts the entries that a RESTORE brought back: an entry is dead when all its lives are over, not after the
        first.

        It runs within a commit's writes, so it doesn't flush: earlier writes were flushed at the decision.
        """
        for live in added:
            entry = live.entry
            key = entry_keys.restored_key(table.raw_id, entry.partition, entry.bucket, entry.path)
            before = self._restored_now.get(key) or self.store.get(key)
            count = keys.encode_version(1 + (keys.decode_version(before) if before is not None else 0))
            self._restored_now[key] = count
            self.batch.put(key, count)

    def is_purge_begun(self, raw_id: bytes) -> bool:
        """Whether a dropped table can no longer be undropped."""
        return self.store.get(keys.drop_begun_key(raw_id)) is not None

    def is_dropped(self, raw_id: bytes) -> bool:
        """Whether a table was dropped. Earlier decisions have been flushed."""
        return raw_id in self.ended_forks or self.store.get(keys.dropped_key(raw_id)) is not None

    def no_table(self, table_id: str) -> MetaError:
        try:
            raw_id = keys.uuid_bytes(table_id)
        except ValueError:
            return MetaError(ErrorKind.NOT_FOUND, "TABLE_UNKNOWN", table_id=table_id)
        fork = self.forks.get(raw_id)
        if fork is not None and fork.is_merged and fork.branch in self.branches:
            return MetaError(ErrorKind.BLOCKED, "TABLE_ID_OUTDATED", table_id=table_id, branch=fork.branch)
        if self.is_dropped(raw_id):
            return MetaError(ErrorKind.BLOCKED, "TABLE_DROPPED", table_id=table_id)
        return MetaError(ErrorKind.NOT_FOUND, "TABLE_UNKNOWN", table_id=table_id)

    def get_txn(self, txn_id: str) -> Txn:
        txn = self.find_txn(txn_id)
        if txn is None:
            raise unknown_txn(txn_id, self.history.epoch, self.history.since_us)
        return txn

    def start_leases(self) -> None:
        """Restarts all leases at the next tick, as after a restart of the service."""
        self.leases.clear()
        self.unborn = dict.fromkeys(self.unborn)
        self.pins.start_leases()
        self.tasks.forget_leases()

    def note_forgotten(self, time_ms: int) -> None:
        """Refuses ids of that time from now on, whatever the clock says; durable with the removal of the outcome."""
        if time_ms >= self.forgotten_ms:
            self.forgotten_ms = time_ms + 1
            self.batch.put(keys.FORGOTTEN, keys.encode_version(self.forgotten_ms))

    def note_answered(self, time_us: int) -> None:
        """From now on no commit gets a time at or below this one."""
        self.answered_us = max(self.answered_us, time_us)
        if self.answered_us > self.ceiling_us:
            self.ceiling_us = self.answered_us + limits.TIME_CEILING_STEP_US
            self.batch.put(keys.CEILING, keys.encode_version(self.ceiling_us))

    def count_inlined(self, table: TableState, inlined: Inlined) -> None:
        self.inlined_bytes += inlined.size_bytes - table.inlined.size_bytes
        table.inlined = inlined
        counts = keys.encode_counts(inlined.rows, inlined.size_bytes, inlined.since_us)
        self.batch.put(keys.inlined_count_key(table.raw_id), counts)

    def alterations(self, table: TableState, after: int) -> Iterator[Footprint]:
        """The commits since a version that changed the metadata."""
        self.flush()
        prefix = keys.table_prefix(table.raw_id)
        for key, _ in self.records.cursor().scan(keys.table_key(table.raw_id, after + 1), prefix_end(prefix)):
            yield self.winner(table, keys.decode_version(key[-8:]))

    def winner(self, table: TableState, version: int) -> Footprint:
        """One commit, in the form that judging needs."""
        if version < self.trimmed(table):
            raise MetaError(ErrorKind.GONE, "VERSION_RETIRED", version=version, oldest=table.oldest)
        return table.footprints.get(version) or self._footprint(table, version)

    def trimmed(self, table: TableState) -> int:
        """The version below which the table has no commits."""
        if table.trimmed is None:
            is_apart = table.fork is not None and table.oldest > table.fork.version
            table.trimmed = first_commit((self.store if is_apart else self.records).cursor(), table.raw_id)
        return table.trimmed

    def find_footprint(self, table_id: str, version: int) -> Footprint | None:
        """A footprint in memory, if there is one. Any thread."""
        table = self.tables.get(table_id)
        return table.footprints.get(version) if table is not None else None

    def _footprint(self, table: TableState, version: int) -> Footprint:
        self.flush()
        footprint = load_commit_footprint(self.records.cursor(), table.raw_id, version)
        if len(table.footprints) < limits.FOOTPRINTS_KEPT:  # else newer ones, which more transactions need, would go
            self.remember(table, footprint)
        return footprint

    def remember(self, table: TableState, footprint: Footprint) -> None:
        table.footprints[footprint.version] = footprint
        while len(table.footprints) > limits.FOOTPRINTS_KEPT:
            table.footprints.popitem(last=False)
