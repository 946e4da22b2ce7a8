"""Transactions as programs over plain rows, so that they can be run again in any serial order."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from metaservice.core.table.meta import Profile
from metaservice.core.table.model import Change, Conflict, FileKind, KeySet, Operation, Read, Scope, TableCommit
from metaservice.core.table.predicates import AllOf, Compare, Not, Predicate, partition_part
from tests.model.world import KEYS, NAN, PARTITIONS, Job, Jobs, Rows, World

VALUES = range(10)
SEARCHES = 3
MOVED = 1_000  # what is added to an id that leaves its partition


@dataclass(frozen=True)
class Search:
    """Rows whose value lies in a range, in one partition or all."""

    low: int
    high: int
    partition: str | None

    def of(self, rows: Rows) -> Rows:
        return {
            row: value
            for row, value in rows.items()
            if self.low <= value <= self.high and self.partition in (None, row[0])
        }

    def read(self, *, changes_all: bool) -> Read:
        parts: list[Predicate] = [Compare("v", ">=", self.low), Compare("v", "<=", self.high)]
        if self.high >= NAN:
            parts = [Not(Compare("v", "<", self.low))]
        if self.partition is not None:
            parts.append(Compare("p", "=", int(self.partition.removeprefix("p="))))
        condition = AllOf(tuple(parts))
        return Read(partition_part(condition, ("p",)), None, True, condition, changes_all)


@dataclass
class Effect:
    """What a program saw, and what it did about it."""

    seen: Rows = field(default_factory=dict)
    hides: Rows = field(default_factory=dict)
    puts: Rows = field(default_factory=dict)

    def on(self, rows: Rows) -> Rows:
        return {row: value for row, value in rows.items() if row not in self.hides} | self.puts


class Program(ABC):
    operation: Operation
    reads: tuple[Read, ...] = ()
    scope: Scope | None = None

    @abstractmethod
    def run(self, rows: Rows) -> Effect: ...


@dataclass
class Insert(Program):
    new: Rows
    operation = Operation.INSERT

    def run(self, rows: Rows) -> Effect:
        return Effect(puts=self.new)


class Delete(Program):
    operation = Operation.DELETE

    def __init__(self, search: Search) -> None:
        self.search = search
        self.reads = (search.read(changes_all=True),)

    def run(self, rows: Rows) -> Effect:
        found = self.search.of(rows)
        return Effect(found, found)


class Update(Program):
    """Sets values, and moves some rows to another partition."""

    operation = Operation.UPDATE

    def __init__(self, search: Search, value: int | None, moves_to: str | None) -> None:
        self.search, self.value, self.moves_to = search, value, moves_to
        self.reads = (search.read(changes_all=True),)

    def run(self, rows: Rows) -> Effect:
        found = self.search.of(rows)
        puts: Rows = {}
        for (partition, identity), value in found.items():
            moves = self.moves_to not in (None, partition)
            place = (self.moves_to or partition, identity + MOVED * moves)
            puts[place] = (value + 3) % 10 if self.value is None else self.value
        return Effect(found, found, puts)


class UpdateFromCount(Program):
    """Sets what it finds to the number of other rows that it finds: the stuff of write skew."""

    operation = Operation.UPDATE

    def __init__(self, search: Search, counted: Search) -> None:
        self.search, self.counted = search, counted
        self.reads = (search.read(changes_all=True), counted.read(changes_all=False))

    def run(self, rows: Rows) -> Effect:
        found, counted = self.search.of(rows), self.counted.of(rows)
        return Effect(found | counted, found, dict.fromkeys(found, len(counted) % 10))


class InsertCount(Program):
    """INSERT … SELECT count(*) of the table itself."""

    operation = Operation.INSERT

    def __init__(self, counted: Search, into: tuple[str, int]) -> None:
        self.counted, self.into = counted, into
        self.reads = (counted.read(changes_all=False),)

    def run(self, rows: Rows) -> Effect:
        counted = self.counted.of(rows)
        return Effect(counted, puts={self.into: len(counted) % 10})


class Overwrite(Program):
    operation = Operation.OVERWRITE

    def __init__(self, partition: str, new: Rows, counted: Search | None) -> None:
        self.partition, self.new, self.counted = partition, new, counted
        self.operation = Operation.OVERWRITE if new else Operation.TRUNCATE
        self.scope = Scope(frozenset({partition}))
        self.reads = () if counted is None else (counted.read(changes_all=False),)

    def run(self, rows: Rows) -> Effect:
        seen = self.counted.of(rows) if self.counted is not None else {}
        more = len(seen) % 10
        hides = {row: value for row, value in rows.items() if row[0] == self.partition}
        return Effect(seen, hides, {row: (value + more) % 10 for row, value in self.new.items()})


class RowWorld(World):
    """Has no oracle but the serial orders. Its values are doubles, NaN among them."""

    def __init__(self, profile: Profile, *, keyed: bool, seed: int) -> None:
        super().__init__(profile, keyed=keyed, seed=seed)
        key, value = self.meta.columns
        self.meta = replace(self.meta, columns=(key, value._replace(type="double")))

    def expected(self, job: Job) -> Rows:
        return {}


class Programs:
    """Makes programs, and changes of them."""

    def __init__(self, profile: Profile, *, keyed: bool, seed: int) -> None:
        self.world = RowWorld(profile, keyed=keyed, seed=seed)
        self.jobs = Jobs(self.world)
        self.random = self.world.random
        self.searches: list[Search] = []

    def first_files(self) -> None:
        for _ in range(3):
            rows = self.new_rows(PARTITIONS)
            assert isinstance(self.world.commit(self.job(Insert(rows))[0]), TableCommit)

    def new_rows(self, partitions: Sequence[str]) -> Rows:
        rows: Rows = {}
        for partition in partitions:
            for key in self.random.sample(KEYS, self.random.randint(1, 2)):
                rows[partition, key if self.world.keyed else self.world.new_row_id()] = self.random.choice(VALUES)
        return rows

    def search(self) -> Search:
        """Of few, so that programs meet."""
        if len(self.searches) < SEARCHES:
            low = self.random.choice(VALUES)
            partition = self.random.choice([None, *PARTITIONS])
            self.searches.append(Search(low, low + self.random.randint(0, 4), partition))
        return self.random.choice(self.searches)

    def program(self) -> Program:
        partition = self.random.choice(PARTITIONS)
        match self.random.randrange(9):
            case 0 | 1:
                return Insert(self.new_rows([partition]))
            case 2:
                return Delete(self.search())
            case 3 | 4:
                moves_to = partition if self.random.random() < 0.2 and not self.world.keyed else None
                return Update(self.search(), self.random.choice([None, 0, 5]), moves_to)
            case 5 | 6:
                return UpdateFromCount(self.search(), self.search())
            case 7:
                return InsertCount(self.search(), next(iter(self.new_rows([partition]))))
            case _:
                counted = self.search() if self.random.random() < 0.5 else None
                return Overwrite(partition, self.new_rows([partition]) if self.random.random() < 0.7 else {}, counted)

    def job(self, program: Program) -> tuple[Job, Effect]:
        """The change that begins at the head, and what it saw there."""
        world = self.world
        effect = program.run(world.read(world.head))
        change = Change("t", program.operation, world.head, program.reads, scope=program.scope)
        puts = effect.puts
        if program.scope is not None:
            kind = FileKind.BASE if world.keyed else FileKind.APPEND
            change.adds = world.write(puts, (), kind)
        elif world.keyed:
            change.adds = world.write(puts, effect.hides.keys() - puts.keys(), FileKind.DELTA)
            change.key_sets = self.key_sets(change)
        else:
            sets = self.jobs.delete_sets(effect.hides)
            world.payloads.kept_in_files |= {one.path for one in sets if self.random.random() < 0.3}
            change.adds = world.write(puts, (), FileKind.APPEND) + sets
        return Job(change), effect

    def key_sets(self, change: Change) -> tuple[KeySet, ...]:
        """Of most buckets."""
        keys: dict[tuple[str, int], list[int]] = {}
        for entry in change.adds:
            keys.setdefault((entry.partition, entry.bucket), []).extend(self.world.contents[entry.path].rows)
        return tuple(KeySet(*place, hashes) for place, hashes in keys.items() if self.random.random() < 0.7)

    def compaction(self) -> Job | None:
        operations = (Operation.MINOR_COMPACT, Operation.MAJOR_COMPACT, Operation.CLUSTER)
        return self.jobs.compact(self.random.choice(operations))


@dataclass
class Played:
    """A history: where it began, what committed and changed a row, and where it ended."""

    before: Rows
    committed: list[tuple[Program, Effect]]
    after: Rows
    lost: int
    compacted: int
    compactions_lost: int
    met: set[tuple[Operation, Operation]] = field(default_factory=set)  # loser, winner


def play(profile: Profile, *, keyed: bool, seed: int, commits: int = 5, compactions: float = 0.25) -> Played:
    """Programs begin and commit in any order, compactions among them."""
    maker = Programs(profile, keyed=keyed, seed=seed)
    world, rng = maker.world, maker.random
    maker.first_files()
    found = Played(world.read(world.head), [], {}, 0, 0, 0)
    waiting: list[tuple[Program | None, Job, Effect]] = []
    for _ in range(commits * 12):
        if len(found.committed) >= commits:
            break
        if len(waiting) < 5 and rng.random() < 0.6:
            if rng.random() < compactions:
                compaction = maker.compaction()
                waiting += [(None, compaction, Effect())] if compaction is not None else []
            else:
                program = maker.program()
                waiting.append((program, *maker.job(program)))
        elif waiting:
            program_or_none, job, effect = waiting.pop(rng.randrange(len(waiting)))
            rows = world.read(world.head)
            answer = world.commit(job)
            won = isinstance(answer, TableCommit)
            if isinstance(answer, Conflict):
                found.met.add((job.change.operation, answer.winner.operation))
            if program_or_none is None:
                found.compacted += won
                found.compactions_lost += not won
                assert world.read(world.head) == rows, "a compaction changes no row"
            elif won and (effect.hides or effect.puts or program_or_none.scope is not None):
                found.committed.append((program_or_none, effect))
            else:
                found.lost += not won
    found.after = world.read(world.head)
    return found


def serial_order(played: Played) -> list[int] | None:
    """An order in which each program sees what it saw, and that ends where the history ended; None: there is none."""

    def extend(order: list[int], rows: Rows) -> list[int] | None:
        if len(order) == len(played.committed):
            return order if rows == played.after else None
        for number, (program, effect) in enumerate(played.committed):
            if number in order:
                continue
            now = program.run(rows)
            if now.seen == effect.seen:
                found = extend([*order, number], now.on(rows))
                if found is not None:
                    return found
        return None

    return extend([], dict(played.before))
