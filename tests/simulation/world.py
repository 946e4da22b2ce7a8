"""One history: a store that loses power, clocks that jump, a decider without its thread, clients that repeat."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from metaservice.core import limits
from metaservice.core.commit.transaction import Txn
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.table.meta import Profile, TableMeta
from metaservice.core.table.model import Operation, Principal
from metaservice.core.table.partitions import Partitioning
from metaservice.core.table.schema import Column
from metaservice.rpc.convert.wire import kept_reads
from metaservice.service.branch.branches import Branches
from metaservice.service.branch.merging import Merging
from metaservice.service.branch.refreshing import Refreshing
from metaservice.service.commit.transactions import Transactions
from metaservice.service.compaction.layouts import Layouts
from metaservice.service.compaction.maintenance import Maintenance
from metaservice.service.decider.clocks import ClockGuard, StallDetector
from metaservice.service.decider.decider import Answer, Decider, Job
from metaservice.service.decider.state import State
from metaservice.service.read.reads import Reads
from metaservice.service.read.timeline import Timeline, VersionFilter
from metaservice.service.table.catalog import Catalog
from metaservice.store import keys
from metaservice.store.engines.memory import MemoryStore
from tests.simulation.checks import Checker
from tests.simulation.logs import Spec, check
from tests.simulation.task_checks import Tasks

LEASE_MS = 5_000
BACKOFF_MS = 300
KEEP_MS = 7 * 24 * 3_600_000
START_US = 1_800_000_000_000_000
DAY_US = 24 * 3_600_000_000
PARTITIONS = ("p=0", "p=1")
BUCKETS = 2
SILENCE_STEP_MS = 900
CLIENTS = 5
WORKERS = 2


@dataclass(frozen=True, slots=True)
class Request:
    """What a client sends, as often as it takes; `run` builds all of it anew each time."""

    kind: str
    txn_id: str
    run: Callable[[], object]


Play = Generator[Request, object, None]


class Clock:
    """Its wall time goes where the history pushes it."""

    def __init__(self) -> None:
        self.us = START_US
        self.ms = 1_000

    def now_us(self) -> int:
        return self.us

    def mono_ms(self) -> int:
        return self.ms


class World:
    """The service's parts over one store that crashes."""

    def __init__(self, seed: int, make_store: Callable[[], MemoryStore] = MemoryStore) -> None:
        self._make_store = make_store
        self.rng = random.Random(seed)
        self.clock = Clock()
        self.store: MemoryStore | None = None
        self.crashes = 0
        profiles = list(Profile)
        self.specs = [
            Spec(self.uuid(), True, profiles[seed % len(profiles)]),
            Spec(self.uuid(), False, profiles[seed // len(profiles) % len(profiles)]),
        ]
        self.lines: dict[str, list[Spec]] = {"": self.specs}  # by the names from the lake's branch to this one
        self.heads: dict[tuple[str, str], int] = {}  # by branch and table, when the branch was made
        self.checker = Checker(self.specs)
        self.decider = Decider(self.reopen, self._tick, _never)
        self.transactions = Transactions(self.decider, self.clock, LEASE_MS, KEEP_MS, 0)
        self.pauses = StallDetector(self.decider, self.clock, _say_nothing)
        self.guard = self.begin_to_guard()
        self.catalog = Catalog(self.decider, self.transactions, self.clock)
        self.reads = Reads(self.decider, self.clock)
        self.timeline = Timeline(self.decider)
        self.maintenance = Maintenance(
            self.decider,
            self.transactions,
            self.clock,
            4,
            KEEP_MS,
            self.uuid,
            _say_nothing,
            lambda: self.guard.held,
        )
        self.layouts = Layouts(self.decider, lambda: None)
        self.tasks = Tasks()
        self.branches = Branches(self.decider, self.transactions, self.clock)
        self.merging = Merging(self.decider, self.transactions, self.clock, KEEP_MS, kept_reads)
        self.refreshing = Refreshing(self.decider, self.transactions, self.clock, KEEP_MS, kept_reads)

    def uuid(self) -> str:
        """A UUIDv7 of now."""
        tail = self.rng.getrandbits(74)
        number = (self.clock.us // 1000) << 80 | 7 << 76 | (tail >> 62) << 64 | 2 << 62 | tail & (1 << 62) - 1
        return str(UUID(int=number))

    def reopen(self) -> State:
        """As found after a power cut, with some of what was not synced yet."""
        if self.store is None:
            self.store = self._make_store()
            return State(self.store, task_backoff_ms=BACKOFF_MS)
        self.crashes += 1
        self.store = self.store.crash(self.rng.randint(0, self.store.unsynced_batches))
        self.checker.leases.clear()
        self.checker.renewed.clear()
        state = State(self.store, task_backoff_ms=BACKOFF_MS)
        self.checker.read_again(state)
        return state

    def begin_to_guard(self) -> ClockGuard:
        return ClockGuard(
            self.decider, self.clock, limits.CLOCK_TOLERANCE_MS, _say_nothing, lambda: ("boot", self.clock.ms)
        )

    def crash(self) -> None:
        """The next run may find another wall clock."""
        if self.rng.random() < 0.2:
            self.clock.us += self.rng.choice((-1, 1)) * self.rng.choice((1, 30)) * DAY_US
        self.decider.state = self.reopen()
        self.guard = self.begin_to_guard()

    def meta(self, spec: Spec) -> TableMeta:
        name = "keyed" if spec.keyed else "plain"
        columns = (Column("id", "bigint", False, "", 1), Column("p", "int", False, "", 2))
        return TableMeta(
            spec.table_id,
            name,
            Partitioning((("p", "int"),)),
            ("id",) if spec.keyed else (),
            BUCKETS if spec.keyed else 0,
            spec.profile,
            1,
            {},
            frozenset(),
            "",
            columns,
            0,
            name,
            last_column_id=len(columns),
        )

    def create(self) -> None:
        """Both tables, once more after a power cut in the first try."""
        jobs: list[Job] = [(_ignore, None, partial(self._create, spec)) for spec in self.specs]
        for _ in range(3):
            self.store_now().fail_syncs_after = 0 if self.rng.random() < 0.3 else None
            self.decider._group(jobs)
        self.store_now().fail_syncs_after = None
        self.decider._group(jobs)
        self.checker.read_log(self.decider.state)

    def _create(self, spec: Spec) -> object:
        return self.catalog.create(self.meta(spec), Principal("sim"))

    def _tick(self) -> None:
        self.pauses.tick()
        self.transactions.tick()
        self.guard.tick(self.clock.ms)
        self.maintenance.tick()
        self.branches.tick()

    def store_now(self) -> MemoryStore:
        store = self.decider.state.store
        assert isinstance(store, MemoryStore)
        return store

    def look(self) -> object:
        """A reader in the middle of a group: it sees nothing that a power cut could take."""
        store = self.store_now()
        for spec in self.specs:
            table = self.reads.get_table(table_id=spec.table_id)
            seen = self.reads.resolve_version(table, None).version
            newest = self.timeline.list_versions(table, VersionFilter(), None, 1).items[0].footprint.version
            for version in (seen, newest):
                there = keys.commit_key(table.raw_id, version) in store._synced
                check(there, "readers see what is durable alone", version)
        return None

    def tick_clocks(self) -> None:
        rng, clock = self.rng, self.clock
        step = rng.choice((0, 1, 5, 40, 300))
        if rng.random() < 0.02:
            self.be_silent(LEASE_MS + rng.randint(-200, 200))
        if rng.random() < 0.02:
            step = rng.choice((limits.PAUSE_MS, LEASE_MS, 10 * LEASE_MS))  # the process is stopped
            self.checker.paused(clock.ms + step)
        clock.ms += step
        clock.us += step * 1000
        if rng.random() < 0.06:
            clock.us += rng.choice((-1, 1)) * rng.choice((1, 1_000, 3_000_000, 3_600_000_000))

    def be_silent(self, ms: int) -> None:
        """Time in which the service runs and no client says anything."""
        while ms > 0:
            step = min(ms, SILENCE_STEP_MS)
            ms -= step
            self.clock.ms += step
            self.clock.us += step * 1000
            self.group([])

    def plan_failure(self) -> None:
        """A power cut at one of the group's writes, or at its sync."""
        store = self.store_now()
        dice = self.rng.random()
        store.fail_writes_after = self.rng.randint(0, 4) if dice < 0.05 else None
        store.fail_syncs_after = 0 if 0.05 <= dice < 0.09 else None

    def group(self, jobs: list[Job]) -> None:
        """One group, with readers between its jobs."""
        mixed: list[Job] = []
        for job in jobs:
            mixed += [job, (_ignore, None, self.look)]
        ticked_ms = self.pauses._last_ms
        self.decider._group(mixed)
        store = self.store_now()
        check(store.unsynced_batches == 0, "a group ends with a sync")
        store.fail_writes_after = store.fail_syncs_after = None
        self.look()
        if self.pauses._last_ms - ticked_ms >= limits.PAUSE_MS:
            self.checker.paused(self.clock.ms)
        if self.pauses._last_ms == self.clock.ms:  # else a merge is changing its tables, and nothing expires
            self.checker.ran_out(self.clock.ms, LEASE_MS)
        if not self.decider.state.held:  # else the state is ahead of the log
            self.checker.read_log(self.decider.state)


class Client:
    """Plays one transaction after the other; asks again for as long as it has no answer."""

    def __init__(self, world: World, plays: Callable[[World], Play]) -> None:
        self._world = world
        self._plays = plays
        self._play = plays(world)
        self._request = next(self._play)

    def job(self) -> Job:
        return (self.hear, self._request, self._request.run)

    def hear(self, answers: Sequence[Answer]) -> None:
        world = self._world
        for request, answer in answers:
            lost = isinstance(answer, MetaError) and answer.kind is ErrorKind.UNAVAILABLE
            if lost:
                continue
            world.checker.hear(request.kind, request.txn_id, answer, world.clock.ms)
            if request.kind == "commit" and isinstance(answer, tuple) and answer[0] == "COMMITTED":
                world.tasks.check_commit(request.txn_id)
            if request is not self._request or world.rng.random() < 0.12:  # that was asked twice, or it gets lost
                continue
            try:
                self._request = self._play.send(answer)
            except StopIteration:
                self._play = self._plays(world)
                self._request = next(self._play)


def outcome(txn: Txn) -> tuple[object, ...]:
    """An ended transaction as its client is told."""
    given = tuple((one.table_id, one.version, one.already_applied) for one in txn.outcomes)
    lost = txn.conflict
    why = None if lost is None else (lost.rule, lost.winner.version, lost.winner.txn_id, lost.advice, lost.path)
    return (txn.state.name, given, txn.commit_time_us, why, txn.adoptable)


def operation_of(rng: random.Random, keyed: bool) -> Operation:
    choices = [Operation.INSERT] * 6 + [Operation.MINOR_COMPACT] * 3 + [Operation.MAJOR_COMPACT] * 2
    choices += [Operation.OVERWRITE] * 2 + [Operation.UPDATE if keyed else Operation.DELETE] * 2 + [Operation.ALTER]
    return rng.choice(choices)


def _ignore(answers: Sequence[Answer]) -> None:
    for _, answer in answers:
        if isinstance(answer, MetaError) and answer.kind is not ErrorKind.UNAVAILABLE:
            raise answer


def _say_nothing(name: str, **facts: object) -> None:
    """An event of the service."""


def _never(error: BaseException) -> None:
    raise error
