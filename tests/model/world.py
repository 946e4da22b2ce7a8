"""Core played on tables whose files hold a few rows each, beside a plain dict of rows."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from metaservice.core.commit.judge import Judging
from metaservice.core.commit.judged_change import JudgedChange
from metaservice.core.commit.rebase import Author, commit_on_top, decide
from metaservice.core.commit.winner_blocks import WinnerBlocks, meet_block
from metaservice.core.table.meta import Profile, TableMeta
from metaservice.core.table.model import (
    Change,
    Conflict,
    Entry,
    FileKind,
    Footprint,
    Group,
    Live,
    Operation,
    Principal,
    Read,
    Scope,
    TableCommit,
)
from metaservice.core.table.partitions import Partitioning
from metaservice.core.table.predicates import TRUE
from metaservice.core.table.pruning import UNKNOWN, Row, bounds
from metaservice.core.table.rows import NOTHING_KNOWN, Payloads, Written, written_by
from metaservice.core.table.schema import Column

PARTITIONS = ("p=1", "p=2")
BUCKETS = 2
KEYS = range(6)
KEY_ID, VALUE_ID = 1, 2  # of columns
NAN = 9  # stands for NaN where values are doubles: above every number, and no bound says that it is there

Rows = dict[tuple[str, int], int]  # (partition, key or row id) -> value; no value is used twice


@dataclass
class Content:
    """What a file holds: identity -> value, None is a tombstone; of a delete set, the ids.

    `sets` and `no_new_rows`: what it says of images that set single columns.
    """

    rows: dict[int, int | None]
    sets: frozenset[int] = frozenset()
    no_new_rows: bool = False


class SomeIds:
    """The ids of a delete set."""

    def __init__(self, ids: Iterable[int]) -> None:
        self._ids = frozenset(ids)

    def common(self, other: "SomeIds", most: int) -> tuple[int, ...]:
        return tuple(sorted(self._ids & other._ids)[:most])

    def meets(self, span: tuple[int, int]) -> bool:
        return any(span[0] <= one <= span[1] for one in self._ids)


@dataclass
class ContentPayloads:
    """A payload is the path; what the file holds says the rest."""

    contents: dict[str, Content]
    kept_in_files: set[str] = field(default_factory=set)

    def bounds(self, payload: bytes, columns: Sequence[tuple[int, str]]) -> Row:
        rows = self.contents[payload.decode()].rows if payload else {}
        columns_of_rows = {KEY_ID: list(rows), VALUE_ID: [one for one in rows.values() if one is not None]}
        found = []
        for number, kind in columns:
            values = columns_of_rows[number]
            nulls = len(rows) - len(values)
            numbers = [one for one in values if kind != "double" or one != NAN]
            low, high = min(numbers, default=None), max(numbers, default=None)
            found.append(bounds(low, high, nulls, len(rows)) if rows else UNKNOWN)
        return tuple(found)

    def only_tombstones(self, payload: bytes) -> bool:
        rows = self.contents[payload.decode()].rows if payload else {}
        return bool(rows) and not any(value is not None for value in rows.values())

    def set_columns(self, payload: bytes) -> frozenset[int]:
        return self.contents[payload.decode()].sets if payload else frozenset()

    def no_new_rows(self, payload: bytes) -> bool:
        return bool(payload) and self.contents[payload.decode()].no_new_rows

    def schema_version(self, payload: bytes) -> int:
        return 0

    def under_schema(self, payload: bytes, version: int) -> bytes:
        return payload

    def row_ids(self, payload: bytes) -> SomeIds | None:
        path = payload.decode()
        return None if not path or path in self.kept_in_files else SomeIds(self.contents[path].rows)

    def ranges(self, payload: bytes) -> tuple[tuple[int, int], ...]:
        return tuple((one, one) for one in sorted(self.contents[payload.decode()].rows)) if payload else ()


@dataclass
class MemorySnapshots:
    """Every version's live entries."""

    versions: list[dict[str, Live]] = field(default_factory=lambda: [{}])
    payloads: Payloads = NOTHING_KNOWN
    written: dict[int, Written] = field(default_factory=dict)

    def live(self, version: int, partition: str | None = None, bucket: int | None = None) -> Iterator[Live]:
        for live in self.versions[version].values():
            if partition in (None, live.entry.partition) and bucket in (None, live.entry.bucket):
                yield live

    def find(self, version: int, partition: str, bucket: int, path: str) -> Live | None:
        live = self.versions[version].get(path)
        here = live is not None and (live.entry.partition, live.entry.bucket) == (partition, bucket)
        return live if here else None

    def find_imports(self, path: str) -> Iterator[Live]:
        live = self.versions[-1].get(path)
        if live is not None:
            yield live

    def wrote(self, version: int) -> Written:
        return self.written[version]

    def advance(self, commit: TableCommit) -> None:
        after = dict(self.versions[-1])
        for live in commit.removed:
            del after[live.entry.path]
        for live in commit.added:
            assert live.entry.path not in after
            after[live.entry.path] = live
        entries = [live.entry for live in commit.added]
        self.written[commit.version] = written_by(entries, commit.change.key_sets or (), self.payloads)
        self.versions.append(after)


@dataclass
class Job:
    """A transaction: its change, and the same said of plain rows."""

    change: Change
    puts: Rows = field(default_factory=dict)
    hides: Rows = field(default_factory=dict)  # the rows, as read, that it hides
    base: Rows = field(default_factory=dict)  # of a scoped job, the rows read in its scope
    covers: frozenset[str] = frozenset()  # its scope, by the words of the outcome table


@dataclass
class Done:
    """A commit as the judges of the tests need it."""

    version: int
    job: Job
    partitions: frozenset[str]


def new_meta(profile: Profile, *, keyed: bool) -> TableMeta:
    key = ("id",) if keyed else ()
    partitioning = Partitioning((("p", "int"),))
    columns = (Column("id", "bigint", True, "", KEY_ID), Column("v", "bigint", True, "", VALUE_ID))
    buckets = BUCKETS if keyed else 1
    return TableMeta("t", "t", partitioning, key, buckets, profile, 1, {}, frozenset(), "", columns, 0)


class World:
    """One table, its rows and its oracle."""

    def __init__(self, profile: Profile, *, keyed: bool, seed: int) -> None:
        self.meta = new_meta(profile, keyed=keyed)
        self.keyed = keyed
        self.random = random.Random(seed)
        self.snapshots = MemorySnapshots()
        self.oracle: list[Rows] = [{}]
        self.contents: dict[str, Content] = {}
        self.payloads = ContentPayloads(self.contents)
        self.snapshots.payloads = self.payloads
        self.footprints: list[Footprint] = []
        self.done: list[Done] = []
        self.blocks = WinnerBlocks(2 + seed % 4, 0)
        self._in_blocks = 0
        self._paths = 0
        self._values = 0
        self._row_ids = 1

    @property
    def head(self) -> int:
        return len(self.footprints)

    # ------------------------------------------------------------------------------------------------------ reading

    def visible(self, version: int, partition: str, bucket: int) -> Iterator[tuple[Live, int, int]]:
        """Every visible row of a bucket, by section 1's rule: file, identity, value."""
        live = list(self.snapshots.live(version, partition, bucket))
        for one in live:
            if one.entry.is_delete_set:
                continue
            hiders = [x for x in live if x.data_version > one.data_version and (self.keyed or x.entry.is_delete_set)]
            for identity, value in self.contents[one.entry.path].rows.items():
                if value is not None and not any(identity in self.contents[x.entry.path].rows for x in hiders):
                    yield one, identity, value

    def read(self, version: int) -> Rows:
        rows: Rows = {}
        for partition in PARTITIONS:
            for bucket in range(self.meta.buckets):
                for live, identity, value in self.visible(version, partition, bucket):
                    assert (partition, identity) not in rows, f"{live.entry.path} shows row {identity} again"
                    rows[partition, identity] = value
        return rows

    # ------------------------------------------------------------------------------------------------------ writing

    def commit(self, job: Job) -> TableCommit | Conflict:
        answer = self.answer_to(job)
        if isinstance(answer, TableCommit):
            self.accept(job, answer)
        return answer

    def answer_to(self, job: Job) -> TableCommit | Conflict:
        version = self.head + 1
        winners = self.footprints[job.change.read_version :]
        author = Author(f"txn-{version}", Principal())
        answer = decide(job.change, self.meta, winners, self.snapshots, author, self.head, version)
        assert self.answer_by_blocks(job.change, author) == answer, "judging block by block answers otherwise"
        return answer

    def answer_by_blocks(self, change: Change, author: Author) -> TableCommit | Conflict:
        """The same answer, from judging in turns against as many winners at once as possible."""
        for footprint, done in list(zip(self.footprints, self.done, strict=True))[self._in_blocks :]:
            self.blocks.add(footprint, done.job.change.key_sets, self.meta)
        self._in_blocks = self.head
        mine = JudgedChange(change, self.meta, self.snapshots)
        judging = Judging(mine, lambda version: self.footprints[version - 1])
        conflict = None
        while conflict is None and judging.met < self.head:
            version = judging.met + 1
            block = self.blocks.covering(version)
            if block is not None:
                conflict = meet_block(judging, block)
            if conflict is None and judging.met < version:
                conflict = judging.meet(self.footprints[version - 1])
        conflict = conflict or judging.end()
        if conflict is not None:
            return conflict
        return commit_on_top(change, self.meta, judging.near, self.snapshots, author, self.head, self.head + 1)

    def accept(self, job: Job, commit: TableCommit) -> None:
        self.snapshots.advance(commit)
        self.footprints.append(commit.footprint)
        self.oracle.append(self.expected(job))
        places = frozenset(live.entry.partition for live in [*commit.added, *commit.removed])
        self.done.append(Done(commit.version, job, places))

    def expected(self, job: Job) -> Rows:
        """The oracle's next state."""
        change, rows = job.change, dict(self.oracle[-1])
        for row, value in job.hides.items():
            assert rows.get(row) == value, f"{change.operation.name} read a row that has changed since: {row}"
            del rows[row]
        if change.scope is not None:
            recomputed = not self.meta.profile.is_delta
            for row in [row for row in rows if change.scope.touches(row[0])]:
                if recomputed or job.base.get(row) == rows[row]:
                    del rows[row]
        return rows | job.puts

    def new_file(self, partition: str, bucket: int, rows: dict[int, int | None], kind: FileKind) -> Entry:
        self._paths += 1
        path = f"f{self._paths}"
        self.contents[path] = Content(dict(rows))
        low, high = (min(rows), max(rows)) if rows and not self.keyed else (-1, -1)
        return Entry(path, partition, bucket, kind, len(rows), 100, path.encode(), row_id_min=low, row_id_max=high)

    def new_value(self) -> int:
        self._values += 1
        return self._values

    def new_row_id(self) -> int:
        self._row_ids += 1
        return self._row_ids

    def write(self, puts: Rows, tombstones: Iterable[tuple[str, int]], kind: FileKind) -> list[Entry]:
        """Rows (and tombstones) as files, one for each bucket."""
        places: dict[tuple[str, int], dict[int, int | None]] = {}
        for row, value in [*((row, None) for row in tombstones), *puts.items()]:
            partition, identity = row
            bucket = identity % BUCKETS if self.keyed else 0
            places.setdefault((partition, bucket), {})[identity] = value
        return [self.new_file(*place, rows, kind) for place, rows in places.items()]


# ------------------------------------------------------------------------------------------------------------ the jobs


class Jobs:
    """Makes transactions that begin at the head."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = world.random

    def any(self, operations: Sequence[Operation]) -> Job | None:
        return self.make(self.random.choice(operations))

    def make(self, operation: Operation) -> Job | None:
        """None where there is nothing to compact."""
        match operation:
            case Operation.INSERT:
                return self.insert()
            case Operation.UPDATE | Operation.DELETE:
                return self.change_rows(operation)
            case Operation.OVERWRITE | Operation.TRUNCATE | Operation.RESTORE:
                return self.scoped(operation)
            case _:
                return self.compact(operation)

    def change(self, operation: Operation) -> Change:
        return Change("t", operation, self.world.head)

    def some_partitions(self) -> frozenset[str]:
        count = 2 if self.random.random() < 0.25 else 1
        return frozenset(self.random.sample(PARTITIONS, count))

    def new_rows(self, partitions: Iterable[str]) -> Rows:
        world, rows = self.world, Rows()
        for partition in sorted(partitions):
            for key in self.random.sample(KEYS, self.random.randint(1, 3)):
                rows[partition, key if world.keyed else world.new_row_id()] = world.new_value()
        return rows

    def insert(self) -> Job:
        change = self.change(Operation.INSERT)
        puts = self.new_rows(self.some_partitions())
        change.adds = self.world.write(puts, (), FileKind.DELTA if self.world.keyed else FileKind.APPEND)
        return Job(change, puts, covers=frozenset(e.partition for e in change.adds))

    def change_rows(self, operation: Operation) -> Job:
        world, change = self.world, self.change(operation)
        read = self.some_partitions()
        named = read if len(read) == 1 or self.random.random() < 0.5 else None
        change.reads = (Read(TRUE, named),)
        mine = {row: value for row, value in world.oracle[-1].items() if row[0] in read}
        hides = {row: mine[row] for row in self.random.sample(sorted(mine), min(len(mine), self.random.randint(0, 3)))}
        puts: Rows = {}
        if operation is Operation.UPDATE:
            for partition, identity in hides:
                place, row_id = partition, identity
                if self.random.random() < 0.2:
                    place = self.random.choice(PARTITIONS)
                if place != partition and world.keyed and (place, identity) in hides | puts:
                    place = partition
                if place != partition and not world.keyed:
                    row_id = world.new_row_id()
                puts[place, row_id] = world.new_value()
        if world.keyed:
            change.adds = world.write(puts, hides.keys(), FileKind.DELTA)
        else:
            change.adds = world.write(puts, (), FileKind.APPEND) + self.delete_sets(hides)
        written = frozenset(e.partition for e in change.adds)
        return Job(change, puts, hides, covers=read | written)

    def delete_sets(self, hides: Rows) -> list[Entry]:
        world, found = self.world, []
        for partition in sorted({row[0] for row in hides}):
            ids = {identity: None for place, identity in hides if place == partition}
            entry = world.new_file(partition, 0, dict(ids), FileKind.APPEND)
            entry.is_delete_set = True
            seen = world.visible(world.head, partition, 0)
            if self.random.random() < 0.6:  # else it says nothing
                entry.touches = tuple(sorted({live.entry.path for live, identity, _ in seen if identity in ids}))
            found.append(entry)
        return found

    def scoped(self, operation: Operation) -> Job:
        world, change = self.world, self.change(operation)
        named = None if self.random.random() < 0.3 else self.some_partitions()
        puts: Rows = {}
        if operation is Operation.OVERWRITE:
            into = named or self.some_partitions()
            puts = self.new_rows(into)
            change.adds = world.write(puts, (), FileKind.BASE if world.keyed else FileKind.APPEND)
            if named is not None and self.random.random() < 0.4:
                change.scope = Scope(named, written=True)
        change.scope = change.scope or Scope(named)
        if operation is Operation.RESTORE:
            change.restore_version = self.random.randint(0, world.head)
            puts = {r: v for r, v in world.oracle[change.restore_version].items() if change.scope.touches(r[0])}
        base = {row: value for row, value in world.oracle[-1].items() if change.scope.touches(row[0])}
        return Job(change, puts, base=base, covers=frozenset(PARTITIONS if named is None else named))

    def compact(self, operation: Operation) -> Job | None:
        change = self.change(operation)
        places = [(partition, bucket) for partition in PARTITIONS for bucket in range(self.world.meta.buckets)]
        groups = []
        for place in self.random.sample(places, self.random.choice((1, 1, 2))):
            found = self.group(operation, *place)
            if found is not None:
                groups.append(found[0])
                change.adds += found[1]
        change.groups = tuple(groups)
        return Job(change, covers=frozenset(g.partition for g in groups)) if groups else None

    def group(self, operation: Operation, partition: str, bucket: int) -> tuple[Group, list[Entry]] | None:
        world = self.world
        live = [one for one in world.snapshots.live(world.head, partition, bucket) if not one.entry.is_delete_set]
        if not live:
            return None
        inputs = live if operation is Operation.MAJOR_COMPACT else self.some_inputs(live)
        paths = {one.entry.path for one in inputs}
        kind = FileKind.APPEND
        rows: dict[int, int | None] = {}
        if world.keyed and operation is not Operation.MAJOR_COMPACT:
            for one in sorted(inputs, key=lambda one: one.data_version):
                rows |= world.contents[one.entry.path].rows
            only_base = all(one.entry.kind is FileKind.BASE for one in inputs)
            kind = FileKind.BASE if only_base else FileKind.DELTA
        else:
            seen = world.visible(world.head, partition, bucket)
            rows = {identity: value for one, identity, value in seen if one.entry.path in paths}
            kind = FileKind.BASE if world.keyed else FileKind.APPEND
        outputs = self.split(partition, bucket, rows, kind)
        return Group(partition, bucket, tuple(sorted(paths)), tuple(e.path for e in outputs)), outputs

    def some_inputs(self, live: list[Live]) -> list[Live]:
        some = self.random.sample(live, self.random.randint(1, len(live)))
        if not self.world.keyed:
            return some
        versions = [one.data_version for one in some]
        return [one for one in live if min(versions) <= one.data_version <= max(versions)]

    def split(self, partition: str, bucket: int, rows: dict[int, int | None], kind: FileKind) -> list[Entry]:
        halves = [rows]
        if len(rows) > 1 and self.random.random() < 0.3:
            middle = sorted(rows)[len(rows) // 2]
            halves = [{i: v for i, v in rows.items() if (i < middle) is low} for low in (True, False)]
        return [self.world.new_file(partition, bucket, half, kind) for half in halves if half]
