"""The service's parts over a store in memory, with clocks that a test moves and an append table to play on."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar
from uuid import UUID

from metaservice.core.commit.transaction import Txn, TxnState
from metaservice.core.errors import MetaError
from metaservice.core.retention.marks import CursorMove
from metaservice.core.table.meta import Alteration, Profile, TableMeta
from metaservice.core.table.model import Change, Entry, FileKind, Operation, Principal, Scope
from metaservice.core.table.partitions import Partitioning
from metaservice.core.table.schema import Column
from metaservice.service.commit.requests import Begin, CommitRequest, Intent
from metaservice.service.commit.transactions import Transactions
from metaservice.service.decider.decider import Answer, Decider
from metaservice.service.decider.state import State
from metaservice.service.read.reads import Reads
from metaservice.service.read.timeline import Timeline
from metaservice.service.retention.housekeeping import Housekeeping, Keeping
from metaservice.service.retention.marks import MarkRequest, Marks
from metaservice.service.retention.pins import PinRequest, Pins
from metaservice.service.retention.purge import PurgeList
from metaservice.service.table.catalog import Catalog
from metaservice.store import keys
from metaservice.store.engines.memory import MemoryStore
from metaservice.store.port import prefix_end
from metaservice.store.records.tables import decode_chunk, decode_live

T = TypeVar("T")
LEASE_MS = 60_000
FORKS = frozenset({"forks"})
HOUR_MS = 3_600_000
GRACE_MS = 2 * HOUR_MS
WHO = Principal("ann", "tests")


class Clock:
    def __init__(self) -> None:
        self.us = 1_800_000_000_000_000
        self.ms = 1_000

    def now_us(self) -> int:
        return self.us

    def mono_ms(self) -> int:
        return self.ms

    def advance(self, ms: int) -> None:
        self.ms += ms
        self.us += ms * 1000


class Rig:
    """One table, `days`; every call is a group of its own."""

    make_store: Callable[[], MemoryStore] = MemoryStore

    def __init__(self, seed: int = 0, *, retain_hours: int | None = 24, keeping: Keeping | None = None) -> None:
        self.rng = random.Random(seed)
        self.clock = Clock()
        self.store = type(self).make_store()
        self.events: list[str] = []
        self.boot = ""
        self.keeping = keeping or Keeping(adopt_grace_ms=GRACE_MS, delay_ms=0)
        self.start()
        self.create("before", None)  # a round comes to it first
        self.table_id = self.create("days", retain_hours)

    def start(self) -> None:
        """All parts anew, as a new process builds them."""
        self.decider = Decider(self.reopen, self.tick, _never)
        self.transactions = Transactions(self.decider, self.clock, LEASE_MS, self.keeping.outcome_keep_ms, 0)
        self.catalog = Catalog(self.decider, self.transactions, self.clock)
        self.reads = Reads(self.decider, self.clock)
        self.timeline = Timeline(self.decider)
        self.pins = Pins(self.decider, self.clock, LEASE_MS, self.transactions.check_room)
        self.marks = Marks(self.decider, self.clock, self.transactions.check_room)
        self.purge = PurgeList(self.decider)
        uptime = lambda: (self.boot, self.clock.ms)  # noqa: E731
        self.housekeeping = Housekeeping(self.decider, self.pins, self.clock, self.keeping, self._report, uptime)

    def reopen(self) -> State:
        """After a failure as found after a power cut, with some of what was not synced."""
        if self.store._failure is not None:
            self.store = self.store.crash(self.rng.randint(0, self.store.unsynced_batches))
        return State(self.store)

    def _report(self, name: str, **facts: object) -> None:
        self.events.append(name)

    def crash(self, survivors: int = 0) -> None:
        self.store = self.store.crash(survivors)
        self.start()

    def tick(self) -> None:
        self.transactions.tick()
        self.housekeeping.tick()

    def ask(self, job: Callable[[], T]) -> T:
        """One group of one job."""
        answers: list[Answer] = []
        self.decider._group([(answers.extend, None, job)])
        while not answers:  # it goes on in the next group
            self.decider._group([])
        result = answers[0][1]
        if isinstance(result, MetaError):
            raise result
        return result  # type: ignore[return-value]

    def pass_time(self, ms: int, looks: int = 70) -> None:
        """Time goes by, then there is leisure for whole rounds, those that trim too."""
        self.clock.advance(ms)
        for _ in range(looks):
            self.decider._group([])
            self.clock.advance(1_000)

    # -- what clients do -----------------------------------------------------------------------------------------------

    def uuid(self) -> str:
        tail = self.rng.getrandbits(74)
        number = (self.clock.us // 1000) << 80 | 7 << 76 | (tail >> 62) << 64 | 2 << 62 | tail & (1 << 62) - 1
        return str(UUID(int=number))

    def create(self, name: str, retain_hours: int | None) -> str:
        meta = self.meta(name, retain_hours)
        self.ask(lambda: self.catalog.create(meta, WHO))
        return meta.table_id

    def meta(self, name: str, retain_hours: int | None = None) -> TableMeta:
        """A new table's, with a new id."""
        properties = {} if retain_hours is None else {"data.retain.hours": str(retain_hours)}
        columns = (Column("id", "bigint", True, "", 1), Column("day", "string", True, "", 2))
        parts, table_id = Partitioning((("day", "string"),)), self.uuid()
        return TableMeta(
            table_id, name, parts, (), 0, Profile.MAXCOMPUTE, 1, properties, frozenset(), "", columns, 0, name
        )

    def begin(self, operation: Operation, adopt_from: str = "", read_version: int | None = None) -> str:
        txn_id = self.uuid()
        intent = Intent(self.table_id, operation, read_version=read_version)
        self.ask(
            lambda: self.transactions.begin(Begin(txn_id, (intent,), WHO, "", b"begin", adopt_from, features=FORKS))
        )
        return txn_id

    def try_begin(self, operation: Operation, adopt_from: str = "", read_version: int | None = None) -> str | MetaError:
        try:
            return self.begin(operation, adopt_from, read_version)
        except MetaError as refusal:
            return refusal

    def files(self, txn_id: str, *names: str, external: bool = False) -> list[Entry]:
        """Those with names that begin with i are inlined."""
        found = []
        for name in names:
            path = f"{txn_id}/{name}"
            entry = Entry(path, "day=1", 0, FileKind.APPEND, 3, 10, path.encode(), external=external)
            if is_inlined(path):
                entry.inlined, entry.content = True, b"0123456789"
            found.append(entry)
        return found

    def register(self, txn_id: str, *names: str) -> list[str]:
        found = self.files(txn_id, *names)
        self.ask(lambda: self.transactions.register(txn_id, self.table_id, found))
        return [entry.path for entry in found]

    def commit(self, txn_id: str, change: Change) -> Txn:
        return self.ask(lambda: self.transactions.commit(CommitRequest(txn_id, (change,), ((None, None),), b"commit")))

    def change(
        self,
        operation: Operation,
        adds: Sequence[Entry] = (),
        restore_version: int = 0,
        alteration: Alteration | None = None,
    ) -> Change:
        scoped = operation in (Operation.OVERWRITE, Operation.TRUNCATE, Operation.RESTORE)
        return Change(
            self.table_id,
            operation,
            0,
            adds=list(adds),
            scope=Scope(None) if scoped else None,
            restore_version=restore_version,
            alteration=alteration,
        )

    def write(self, operation: Operation, *names: str, external: bool = False) -> list[str]:
        """Begin and commit; the paths."""
        txn_id = self.begin(operation)
        adds = self.files(txn_id, *names, external=external)
        assert self.commit(txn_id, self.change(operation, adds)).state is TxnState.COMMITTED
        return [entry.path for entry in adds]

    def insert(self, *names: str) -> list[str]:
        return self.write(Operation.INSERT, *names)

    def overwrite(self, *names: str) -> list[str]:
        return self.write(Operation.OVERWRITE, *names)

    def restore(self, version: int) -> None:
        txn_id = self.begin(Operation.RESTORE)
        assert self.commit(txn_id, self.change(Operation.RESTORE, restore_version=version)).state is TxnState.COMMITTED

    def lose(self, *names: str) -> tuple[str, list[str]]:
        """An INSERT that loses to an OVERWRITE."""
        txn_id = self.begin(Operation.INSERT)
        paths = self.register(txn_id, *names)
        self.overwrite("winner")
        assert self.commit(txn_id, self.change(Operation.INSERT)).state is TxnState.CONFLICT
        return txn_id, paths

    def pin(self, version: int | None = None, lease_ms: int = 0) -> str:
        request = PinRequest(self.uuid(), ((self.table_id, version),), WHO, lease_ms, b"pin")
        self.ask(lambda: self.pins.pin(request))
        return request.pin_id

    def tag(self, name: str, version: int | None = None, *, move: bool = True) -> int:
        request = MarkRequest(self.table_id, name, version, WHO)
        return self.ask(lambda: self.marks.create_tag(request, move=move)).version

    def untag(self, name: str) -> bool:
        return self.ask(lambda: self.marks.drop_tag(self.table_id, name))

    def cursor(self, name: str, version: int | None = None, keep_ms: int = 0) -> int:
        request = MarkRequest(self.table_id, name, version, WHO, keep_ms=keep_ms)
        return self.ask(lambda: self.marks.create_cursor(request, must_exist=False))[0].version

    def advance(self, name: str, expected: int, version: int, request_id: str = "") -> int:
        move = CursorMove(self.table_id, name, expected, version, request_id)
        return self.ask(lambda: self.marks.advance(move)).version

    # -- what they see -------------------------------------------------------------------------------------------------

    @property
    def head(self) -> int:
        return self.decider.state.tables[self.table_id].head

    @property
    def oldest(self) -> int:
        return self.decider.state.oldest(self.table_id)

    def list_files(self, version: int) -> set[str]:
        table = self.reads.get_table(table_id=self.table_id)
        self.reads.check_version(table, version)
        found = [entry.path for entry in self.reads.list_files(table, version)]
        assert len(found) == len(set(found))
        return set(found)

    def purgeable(self, table_id: str = "") -> set[str]:
        return set(self.ask(lambda: self.purge.list_paths(table_id or self.table_id, "", 10_000)))

    def count(self, family: bytes) -> int:
        return len(list(self.store.cursor().scan(family, prefix_end(family))))

    def count_own(self, family: bytes) -> int:
        """Records of the table that is played on."""
        return self.count(family + keys.uuid_bytes(self.table_id))

    def indexed(self) -> set[str]:
        """Paths that are live, or were."""
        cursor, found = self.store.cursor(), set[str]()
        for family in (b"I", b"P"):
            found |= {decode_live(raw)[0].entry.path for _, raw in cursor.scan(family, prefix_end(family))}
        return found

    def contents(self) -> set[str]:
        """Inlined files whose rows are in the store."""
        prefix = keys.inlined_prefix(keys.uuid_bytes(self.table_id))
        return {keys.path_of_inlined(key) for key, _ in self.store.cursor().scan(prefix, prefix_end(prefix))}

    def staged(self, family: bytes) -> set[str]:
        chunks = [decode_chunk(raw) for _, raw in self.store.cursor().scan(family, prefix_end(family))]
        return {entry.path for chunk in chunks for entry in chunk}


def is_inlined(path: str) -> bool:
    return path.partition("/")[2].startswith("i")


def _never(error: BaseException) -> None:
    raise error
