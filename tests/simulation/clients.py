"""What clients do: a play yields requests and is given answers."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence

from metaservice.core.errors import MetaError
from metaservice.core.table.meta import Alteration
from metaservice.core.table.model import Change, Conflict, Entry, FileKind, Group, Operation, Principal, Read, Scope
from metaservice.core.table.predicates import Literal
from metaservice.core.table.schema_changes import Add
from metaservice.service.commit.requests import Append, Begin, CommitRequest, Intent
from metaservice.service.decider.decider import Apart
from metaservice.service.decider.state import State
from metaservice.store.records.plans import StoredEntry
from protos.laketx.v1 import common_pb2
from tests.simulation.checks import Expected
from tests.simulation.logs import Rows, Spec
from tests.simulation.world import BUCKETS, PARTITIONS, Play, Request, World, operation_of, outcome

WHO = Principal("sim", "simulation")
ON_BRANCHES = 0.85
NOBODYS_ID = 1 << 40
FEATURES = frozenset({"forks"})
COMPACTIONS = (Operation.MINOR_COMPACT, Operation.MAJOR_COMPACT)


class Writer:
    """One transaction's files and requests."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng
        self.txn_id = world.uuid()
        self.meant = world.checker.expected.setdefault(self.txn_id, Expected())
        self._files = 0
        self._calls = 0

    def file(self, spec: Spec, partition: str, bucket: int, rows: Rows, kind: FileKind) -> Entry:
        self._files += 1
        path = f"{self.txn_id}/{self._files}"
        self.world.checker.rows[path] = rows
        self.meant.paths.setdefault(spec.table_id, set()).add(path)
        carries = not spec.keyed and kind is FileKind.BASE
        kind = kind if spec.keyed else FileKind.APPEND
        payload = path.encode()
        return Entry(path, partition, bucket, kind, len(rows), 10, payload, carries_row_ids=carries)

    def delete_set(self, spec: Spec, partition: str) -> Entry:
        """Hides rows that nobody has; mostly it names no files that they might be in."""
        entry = self.file(spec, partition, 0, {}, FileKind.APPEND)
        self.world.checker.sets.add(entry.path)
        entry.is_delete_set, entry.rows, entry.row_id_min, entry.row_id_max = True, 1, NOBODYS_ID, NOBODYS_ID
        return entry

    def fresh_files(self, spec: Spec, places: Sequence[tuple[str, int]], kind: FileKind) -> list[Entry]:
        found = []
        for partition, bucket in places:
            count = self.rng.randint(1, 3)
            mine = [self.rng.randrange(6) if spec.keyed else (self.txn_id, self._files, n) for n in range(count)]
            found.append(self.file(spec, partition, bucket, dict.fromkeys(mine, self.txn_id), kind))
        return found

    def begin(self, intents: Sequence[Intent], adopt_from: str = "") -> Request:
        for intent in intents:
            self.meant.paths.setdefault(intent.table_id, set())
        begin = Begin(self.txn_id, tuple(intents), WHO, "", b"begin", adopt_from, features=FEATURES)

        def run() -> object:
            txn = self.world.transactions.begin(begin)
            return {table_id: mine.read_version for table_id, mine in txn.tables.items()}

        tables = None if adopt_from else [intent.table_id for intent in intents]
        return Request("begin", self.txn_id, Apart(run, lambda _: tables))

    def register(self, spec: Spec, entries: list[Entry]) -> Request:
        self._calls += 1
        run = lambda: self.world.transactions.register(self.txn_id, spec.table_id, copy.deepcopy(entries))  # noqa: E731
        return Request(f"register{self._calls}", self.txn_id, Apart(run, self._tables))

    def _tables(self, state: State) -> Iterable[str] | None:
        """What the transaction is about, if it is known."""
        txn = state.open.get(self.txn_id)
        return None if txn is None else txn.tables

    def renew(self) -> Request:
        return Request("renew", self.txn_id, lambda: self.world.transactions.renew(self.txn_id).doomed)

    def abort(self) -> Request:
        return Request("abort", self.txn_id, lambda: self.world.transactions.abort(self.txn_id, "sim"))

    def _commit(self, changes: Sequence[Change]) -> CommitRequest:
        fresh = tuple(copy.deepcopy(list(changes)))
        return CommitRequest(self.txn_id, fresh, tuple((None, None) for _ in changes), b"commit")

    def commit(self, changes: Sequence[Change]) -> Request:
        def run() -> object:
            return outcome(self.world.transactions.commit(self._commit(changes)))

        is_apart = all(change.alteration is None for change in changes)
        return Request("commit", self.txn_id, Apart(run, self._tables) if is_apart else run)

    def explain(self, changes: Sequence[Change]) -> Request:
        def run() -> object:
            return isinstance(self.world.transactions.explain(self._commit(changes)), Conflict)

        return Request("explain", self.txn_id, run)


def play(world: World) -> Play:
    """One transaction of some kind."""
    dice = world.rng.random()
    branched = [specs for line, specs in world.lines.items() if line and specs]
    specs = world.rng.choice(branched) if branched and world.rng.random() < ON_BRANCHES else world.specs
    spec = world.rng.choice(specs)
    if dice < 0.15:
        yield from play_append(world, spec)
    elif dice < 0.25:
        yield from play_times(world, spec)
    else:
        yield from play_long(world, spec, specs)


def places_of(world: World, spec: Spec) -> list[tuple[str, int]]:
    every = [(partition, bucket) for partition in PARTITIONS for bucket in range(BUCKETS if spec.keyed else 1)]
    return world.rng.sample(every, world.rng.randint(1, 2))


def read_of(partitions: Sequence[str]) -> Read:
    """All rows of partitions; a branch keeps what the wire had of it."""
    values = [common_pb2.Value(integer=int(partition.removeprefix("p="))) for partition in partitions]
    named = [common_pb2.PartitionValue(column="p", value=value) for value in values]
    wire = common_pb2.Read(partitions=[common_pb2.Partition(values=[one]) for one in named])
    return Read(Literal(True), frozenset(partitions), wire=wire)


def play_times(world: World, spec: Spec) -> Play:
    """Ask for a time, often one ahead."""
    time_us = world.clock.us + world.rng.choice((-10, 0, 0, 5_000, 10_000_000))
    answer: list[tuple[int, int]] = []

    def run() -> object:
        table = world.reads.get_table(table_id=spec.table_id)
        try:
            found = world.reads.resolve_time(table, time_us)
        except MetaError as error:
            if error.reason == "VERSION_RETIRED":
                return None
            raise
        assert found.time_read_us is not None
        return (found.time_read_us, found.version)

    got = yield Request("time", "", run)
    if isinstance(got, tuple):
        answer.append(got)
        world.checker.hear_time(spec.table_id, *got)


def play_append(world: World, spec: Spec) -> Play:
    writer = Writer(world)
    entries = writer.fresh_files(spec, places_of(world, spec), FileKind.DELTA)
    apps = ((f"app{world.rng.randrange(2)}", world.rng.randrange(8)),) if world.rng.random() < 0.4 else ()

    def run() -> object:
        adds = list(copy.deepcopy(entries))
        request = Append(writer.txn_id, spec.table_id, 0, WHO, "", b"append", adds, apps, features=FEATURES)
        return outcome(world.transactions.appends.append(request))

    yield Request("append", writer.txn_id, run)
    if world.rng.random() < 0.3:
        yield Request("append", writer.txn_id, run)


def play_long(world: World, spec: Spec, together: Sequence[Spec]) -> Play:
    """begin, perhaps register, renew, explain or abort, then commit; a lost blind insert is adopted."""
    rng = world.rng
    operation = operation_of(rng, spec.keyed)
    specs = list(together) if operation is Operation.INSERT and rng.random() < 0.25 else [spec]
    places = places_of(world, spec)
    reads: tuple[Read, ...] = ()
    if operation is Operation.UPDATE or (operation is Operation.INSERT and rng.random() < (0.2, 0.6)[len(specs) > 1]):
        reads = (read_of(sorted({partition for partition, _ in places})),)
    writer = Writer(world)
    writer.meant.reads = {spec.table_id: {partition for partition, _ in places}} if reads else {}
    only_reads = len(specs) > 1 and bool(reads) and rng.random() < 0.7
    begun = yield writer.begin([Intent(one.table_id, operation, reads=reads if one is spec else ()) for one in specs])
    if not isinstance(begun, dict):
        return
    changes = []
    for one in specs:
        version = begun[one.table_id]
        change = plan(world, writer, one, operation, version, reads if one is spec else (), places)
        if change is None:
            yield writer.abort()
            return
        if only_reads and one is spec:
            change.adds = []
            writer.meant.paths[spec.table_id] = set()
        changes.append(change)
    yield from play_work(writer, specs, changes)
    yield from play_end(writer, specs, changes)


def play_work(writer: Writer, specs: list[Spec], changes: list[Change]) -> Play:
    """Register some of the files, and what else a client does before it commits."""
    rng = writer.rng
    for spec, change in zip(specs, changes, strict=True):
        if change.adds and rng.random() < 0.5:
            count = rng.randint(1, len(change.adds))
            early, change.adds = change.adds[:count], change.adds[count:]
            for entry in early:
                yield writer.register(spec, [entry])
    for _ in range(rng.randint(0, 2)):
        if rng.random() < 0.5:
            yield writer.renew()
        else:
            yield writer.explain(changes)


def play_end(writer: Writer, specs: list[Spec], changes: list[Change]) -> Play:
    world, rng = writer.world, writer.rng
    if rng.random() < 0.06:
        yield writer.abort()
        if rng.random() < 0.5:
            yield writer.commit(changes)
        return
    ended = yield writer.commit(changes)
    if rng.random() < 0.25:
        ended = yield writer.commit(changes)
    if not (isinstance(ended, tuple) and ended[0] == "CONFLICT" and ended[4]):
        return
    heir = Writer(world)
    begun = yield heir.begin([Intent(one.table_id, Operation.INSERT) for one in specs], writer.txn_id)
    if not isinstance(begun, dict):
        return
    for one in specs:
        heir.meant.paths[one.table_id] = set(writer.meant.paths[one.table_id])
    yield heir.commit([Change(one.table_id, Operation.INSERT, 0) for one in specs])


def plan(
    world: World,
    writer: Writer,
    spec: Spec,
    operation: Operation,
    version: int,
    reads: tuple[Read, ...],
    places: list[tuple[str, int]],
) -> Change | None:
    if not spec.keyed:
        places = sorted({(partition, 0) for partition, _ in places})
    if operation in COMPACTIONS:
        return plan_compaction(world, writer, spec, operation, version)
    change = Change(spec.table_id, operation, 0, reads)
    if operation is Operation.ALTER:
        name = world.rng.choice(("write.compression", "user.note", "user.note"))
        change.alteration = Alteration({name: world.rng.choice("abc")})
        if name == "user.note" and world.rng.random() < 0.5:
            change.alteration = Alteration(schema_changes=(Add(f"column{world.rng.getrandbits(40)}", "int"),))
        return change
    if operation is Operation.DELETE:
        change.adds = [writer.delete_set(spec, partition) for partition, _ in places]
        return change
    kind = FileKind.BASE if operation is Operation.OVERWRITE and spec.keyed else FileKind.DELTA
    change.adds = writer.fresh_files(spec, places, kind)
    if operation is Operation.OVERWRITE:
        covered = frozenset(partition for partition, _ in places)
        change.scope = world.rng.choice((Scope(None), Scope(frozenset(), written=True), Scope(covered)))
        writer.meant.scopes[spec.table_id] = None if change.scope.partitions is None else set(covered)
    return change


def plan_compaction(world: World, writer: Writer, spec: Spec, operation: Operation, version: int) -> Change | None:
    """Groups of live files, with outputs that hold the rows that win among them."""
    try:
        table = world.reads.get_table(table_id=spec.table_id)
    except MetaError:  # its branch has ended
        return None
    by_place: dict[tuple[str, int], list[StoredEntry]] = {}
    for entry in world.reads.list_files(table, version):
        if entry.is_delete_set:
            continue
        by_place.setdefault((entry.partition, entry.bucket), []).append(entry)
    chosen = world.rng.sample(sorted(by_place), min(len(by_place), world.rng.randint(1, 2)))
    groups, adds = [], []
    for partition, bucket in chosen:
        files = sorted(by_place[partition, bucket], key=lambda entry: (entry.data_version, entry.path))
        if operation is Operation.MINOR_COMPACT and len(files) > 1:
            start = world.rng.randrange(len(files) - 1)
            files = files[start : world.rng.randint(start + 2, len(files))]
        rows: dict[object, object] = {}
        for entry in files:
            rows.update(world.checker.rows[entry.path])
        out = writer.file(spec, partition, bucket, rows, FileKind.BASE)
        adds.append(out)
        groups.append(Group(partition, bucket, tuple(entry.path for entry in files), (out.path,)))
    if not groups:
        return None
    return Change(spec.table_id, operation, 0, adds=adds, groups=tuple(groups))
