"""Clients of several servers: what they asked for, were told, and when."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar
from uuid import UUID

from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.table.branches import on_branch
from metaservice.core.table.meta import Profile, TableMeta
from metaservice.core.table.model import Change, Entry, FileKind, Operation, Principal, Scope
from metaservice.core.table.partitions import Partitioning
from metaservice.core.table.schema import Column
from metaservice.server.wiring import Service
from metaservice.service.branch.branches import BranchRequest
from metaservice.service.branch.merging import MergeRequest
from metaservice.service.commit.requests import Append, Begin, CommitRequest, Intent
from metaservice.service.decider.forking import find_table
from tests.simulation.logs import check
from tests.simulation.servers import START_US, Machine, Process, call
from tests.simulation.steps import Steps
from tests.simulation.world import outcome

T = TypeVar("T")

WHO: Final = Principal("sim", "simulation")
BACK_OFF_MS: Final = 400
ENDED_OTHERWISE: Final = {  # a transaction that has not committed, and never will
    "TRANSACTION_EXPIRED",
    "TRANSACTION_ABORTED",
    "TRANSACTION_ID_IN_FUTURE",
    "TRANSACTION_ID_TOO_OLD",
    "TRANSACTION_UNKNOWN",
}


@dataclass(slots=True)
class Told:
    """One transaction: when it was asked for, and what was answered first."""

    asked_us: int
    told_us: int = 0
    answer: tuple[object, ...] | None = None
    differs: list[tuple[object, ...]] = field(default_factory=list)

    def version(self, table_id: str) -> int | None:
        """Of its commit."""
        if self.answer is None or self.answer[0] != "COMMITTED":
            return None
        given = self.answer[1]
        assert isinstance(given, tuple)
        found: int = next(version for table, version, _ in given if table == table_id)
        return found


@dataclass(slots=True)
class Heard:
    """A version that a reader was told; `time_us`: of which time it was asked."""

    who: str
    asked_us: int
    told_us: int
    version: int
    time_us: int | None = None


@dataclass
class Lake:
    """One table, the machines, and everything that clients were told."""

    steps: Steps
    machines: list[Machine]
    table_id: str = ""
    txns: dict[str, Told] = field(default_factory=dict)
    heard: list[Heard] = field(default_factory=list)
    merges: int = 0
    busy: int = 0
    is_ending: bool = False

    def __post_init__(self) -> None:
        self.table_id = self.new_id()

    def new_id(self) -> str:
        """A UUIDv7, by the clients' clock."""
        rng, now_ms = self.steps.rng, (START_US + self.steps.now_us) // 1000
        number = now_ms << 80 | 7 << 76 | rng.getrandbits(12) << 64 | 2 << 62 | rng.getrandbits(62)
        return str(UUID(int=number))

    def meta(self) -> TableMeta:
        columns = (Column("id", "bigint", False), Column("p", "int", False))
        parts = Partitioning((("p", "int"),))
        profile = self.steps.rng.choice(list(Profile))
        return TableMeta(self.table_id, "t", parts, (), 0, profile, 1, {}, frozenset(), "", columns, 0, "t")


class Client:
    """Goes from server to server until it is answered."""

    def __init__(self, name: str, lake: Lake) -> None:
        self.name = name
        self.lake = lake
        self.steps = lake.steps
        self.at = self.steps.rng.randrange(len(lake.machines))

    def persist(self, ask: Callable[[Process], T]) -> T:
        machines = self.lake.machines
        while True:
            try:
                return call(self.name, machines[self.at], ask)
            except MetaError as refusal:
                if refusal.kind is not ErrorKind.UNAVAILABLE:
                    raise
                leader = refusal.facts.get("leader")
                known = [at for at, machine in enumerate(machines) if machine.name == leader]
                self.at = known[0] if known else (self.at + 1) % len(machines)
            self.steps.sleep_ms(self.steps.rng.random() * BACK_OFF_MS)

    def create(self) -> None:
        meta = self.lake.meta()

        def create(service: Service) -> None:
            service.calls.catalog.create(meta, WHO)

        self.persist(lambda process: process.decide(create))

    def run(self) -> None:
        rng = self.steps.rng
        while not self.lake.is_ending:
            self.lake.busy += 1
            dice = rng.random()
            if dice < 0.55:
                self.append()
            elif dice < 0.8:
                self.transact()
            elif dice < 0.84:
                self.branch()
            elif dice < 0.92:
                self.look()
            else:
                self.read()
            self.lake.busy -= 1
            self.steps.sleep_ms(rng.random() * 300)

    def _file(self, txn_id: str) -> Entry:
        partition = f"p={self.steps.rng.randrange(2)}"
        return Entry(f"{txn_id}/1", partition, 0, FileKind.APPEND, 1, 10, b"payload")

    def append(self) -> None:
        txn_id, table_id = self.lake.new_id(), self.lake.table_id
        entry = self._file(txn_id)

        def run(service: Service) -> tuple[object, ...]:
            request = Append(txn_id, table_id, 0, WHO, "", b"append", [copy.deepcopy(entry)])
            return outcome(service.calls.transactions.appends.append(request))

        self._end(txn_id, run)

    def transact(self) -> None:
        """begin, a while, commit: an overwrite loses to what came in between."""
        txn_id, table_id = self.lake.new_id(), self.lake.table_id
        operation = self.steps.rng.choice((Operation.INSERT, Operation.OVERWRITE))
        begin = Begin(txn_id, (Intent(table_id, operation),), WHO, "", b"begin")
        asked_us = self.steps.now_us
        try:
            version = self.persist(
                lambda process: process.decide(
                    lambda service: service.calls.transactions.begin(begin).tables[table_id].read_version
                )
            )
        except MetaError as refusal:
            self._refused(txn_id, refusal)
            return
        self.lake.heard.append(Heard(self.name, asked_us, self.steps.now_us, version))
        self.steps.sleep_ms(self.steps.rng.choice((1, 50, 400, 8_000)) * self.steps.rng.random())
        change = Change(table_id, operation, 0, adds=[self._file(txn_id)])
        if operation is Operation.OVERWRITE:
            change.scope = Scope(None)

        def run(service: Service) -> tuple[object, ...]:
            request = CommitRequest(txn_id, (copy.deepcopy(change),), ((None, None),), b"commit")
            return outcome(service.calls.transactions.commit(request))

        self._end(txn_id, run)

    def branch(self) -> None:
        """A branch, an append on it, and its merge: a commit like others, once or not at all."""
        request = BranchRequest(self.lake.new_id(), f"b{self.steps.rng.getrandbits(40)}", "", 0, "", WHO, b"branch")
        append_id, merge_id = self.lake.new_id(), self.lake.new_id()
        entry = self._file(append_id)

        def fork(service: Service) -> str:
            service.calls.branches.create(request)
            table = find_table(service.decider.state, on_branch("t", request.name))
            assert table is not None
            return table.meta.table_id

        def append(service: Service) -> tuple[object, ...]:
            adds, known = [copy.deepcopy(entry)], frozenset({"forks"})
            asked = Append(append_id, fork_id, 0, WHO, "", b"append", adds, features=known)
            return outcome(service.calls.transactions.appends.append(asked))

        def merge(service: Service) -> tuple[object, ...]:
            merged = service.calls.merging.merge(MergeRequest(merge_id, request.name, WHO, b"merge"))
            check(merged.is_done, "a blind append is merged", merged)
            return ("COMMITTED", tuple((one.table.meta.table_id, one.version, False) for one in merged.tables))

        try:
            fork_id = self.persist(lambda process: process.decide(fork))
            self.persist(lambda process: process.decide(append))
        except MetaError as refusal:
            if refusal.reason not in ENDED_OTHERWISE:
                raise
            return
        self.lake.merges += 1
        self._end(merge_id, merge)

    def _end(self, txn_id: str, run: Callable[[Service], tuple[object, ...]]) -> None:
        """Asks for the outcome, sometimes again, also of a later leader."""
        told = self.lake.txns[txn_id] = Told(self.steps.now_us)
        while True:
            try:
                answer = self.persist(lambda process: process.decide(run))
            except MetaError as refusal:
                self._refused(txn_id, refusal)
                return
            if told.answer is None:
                told.answer, told.told_us = answer, self.steps.now_us
            elif answer != told.answer:
                told.differs.append(answer)
            if self.lake.is_ending or self.steps.rng.random() < 0.8:
                return
            self.steps.sleep_ms(self.steps.rng.choice((1, 5_000)) * self.steps.rng.random())

    def _refused(self, txn_id: str, refusal: MetaError) -> None:
        if refusal.reason not in ENDED_OTHERWISE:
            raise refusal
        told = self.lake.txns.setdefault(txn_id, Told(self.steps.now_us))
        answer = ("REFUSED",)
        if told.answer is None:
            told.answer, told.told_us = answer, self.steps.now_us
        elif told.answer != answer:
            told.differs.append(answer)

    def read(self) -> None:
        asked_us = self.steps.now_us
        version = self.persist(newest(self.lake.table_id))
        self.lake.heard.append(Heard(self.name, asked_us, self.steps.now_us, version))

    def look(self) -> None:
        """The version of a time, often one ahead."""
        table_id, asked_us = self.lake.table_id, self.steps.now_us
        time_us = START_US + asked_us + self.steps.rng.choice((-500_000, 0, 5_000_000))

        def look(service: Service) -> tuple[int, int | None]:
            reads = service.calls.reads
            found = reads.resolve_time(reads.get_table(table_id=table_id), time_us)
            return found.version, found.time_read_us

        try:
            version, read_us = self.persist(lambda process: process.decide(look))
        except MetaError as refusal:
            if refusal.reason != "VERSION_RETIRED":  # a time before the table
                raise
            return
        self.lake.heard.append(Heard(self.name, asked_us, self.steps.now_us, version, read_us))


class FixedReader:
    """Asks one server alone, again and again: one that leads no more would answer it."""

    def __init__(self, name: str, lake: Lake, machine: Machine) -> None:
        self._name = name
        self._lake = lake
        self._machine = machine

    def run(self) -> None:
        steps, lake = self._lake.steps, self._lake
        while not lake.is_ending:
            asked_us = steps.now_us
            try:
                version = call(self._name, self._machine, newest(lake.table_id))
                lake.heard.append(Heard(self._name, asked_us, steps.now_us, version))
            except MetaError as refusal:
                if refusal.kind is not ErrorKind.UNAVAILABLE:
                    raise
            steps.sleep_ms(20 + steps.rng.random() * 60)


def newest(table_id: str) -> Callable[[Process], int]:
    def read(service: Service) -> int:
        reads = service.calls.reads
        return reads.resolve_version(reads.get_table(table_id=table_id), None).version

    return lambda process: process.read(read)
