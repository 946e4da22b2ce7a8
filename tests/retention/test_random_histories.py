"""Random commits, pins, clocks and crashes beside an oracle: a dict of versions, each a set of paths.

After every step each version that must be kept shows exactly what the oracle says, whatever else is asked is shown
right or refused, and no path is lost: each one is recorded, on the purge list, or confirmed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from metaservice.core import limits
from metaservice.core.commit.transaction import TxnState
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.table.model import Entry, FileKind, Operation
from metaservice.service.retention.housekeeping import Keeping
from metaservice.store import keys
from tests.retention.rig import GRACE_MS, HOUR_MS, LEASE_MS, Rig, is_inlined

HISTORIES = 80
CURSOR_KEEP_MS = HOUR_MS // 2
STEPS = 60


@dataclass
class Oracle:
    """What was committed, when, and what must be readable."""

    snapshots: list[set[str]] = field(default_factory=lambda: [set()])
    times_us: list[int] = field(default_factory=list)
    ever: set[str] = field(default_factory=set)
    confirmed: set[str] = field(default_factory=set)

    def current_since(self, since_us: int) -> set[int]:
        """Versions that were current at or after a moment."""
        head = len(self.snapshots) - 1
        return {v for v in range(head + 1) if v == head or self.times_us[v + 1] > since_us}


class Borrower:
    """Another table, which took in files out of the first one's folder when that was not refused yet."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.table_id = rig.create("borrower", 1)
        self.live: set[str] = set()
        self.snapshots: list[set[str]] = [set()]

    def take(self, path: str) -> None:
        entry = Entry(f"/lake//{self.rig.table_id}/{path}", "day=1", 0, FileKind.APPEND, 3, 10, b"", external=True)
        self._write(Operation.INSERT, [entry], self.live | {path})

    def overwrite(self) -> None:
        self._write(Operation.OVERWRITE, [], set())

    def _write(self, operation: Operation, adds: list[Entry], after: set[str]) -> None:
        lender, self.rig.table_id = self.rig.table_id, self.table_id
        try:
            txn_id = self.rig.begin(operation)
            assert self.rig.commit(txn_id, self.rig.change(operation, adds)).state is TxnState.COMMITTED
        finally:
            self.rig.table_id = lender
        self.live = after
        self.snapshots.append(after)

    def kept(self) -> set[str]:
        """What its kept versions name."""
        return set().union(*self.snapshots[self.rig.decider.state.oldest(self.table_id) :])

    def held(self, indexed: set[str]) -> set[str]:
        """What its entries name, those that are no longer kept too, until they are swept."""
        start = f"/lake//{self.rig.table_id}/"
        return {path.removeprefix(start) for path in indexed if path.startswith(start)}


class History:
    """One table's."""

    def __init__(self, seed: int) -> None:
        self.hours = seed % 3
        self.marks = seed % 2 == 1
        keeping = Keeping(adopt_grace_ms=GRACE_MS, delay_ms=0)
        self.rig = Rig(seed, retain_hours=self.hours, keeping=keeping)
        self.rng = self.rig.rng
        self.oracle = Oracle()
        self.oracle.times_us.append(self.rig.decider.state.tables[self.rig.table_id].last_time_us)
        self.pins: dict[str, int] = {}
        self.open: dict[str, int] = {}
        self.lost: list[str] = []
        self.names = 0
        self.borrower = Borrower(self.rig)
        self.tags: dict[str, int] = {}
        self.cursors: dict[str, tuple[int, int]] = {}  # place, last use

    # -- moves ------------------------------------------------------------------------------------------------

    def step(self, patch: pytest.MonkeyPatch) -> None:
        moves: list[Callable[[], None]] = [self.insert] * 3 + [self.overwrite] * 3 + [self.restore] * 2
        moves += [self.begin, self.finish, self.finish, self.resubmit, self.pin, self.pin, self.unpin]
        moves += [self.wait, self.wait, self.wait, self.crash, self.fail, self.confirm]
        moves += [self.borrow, self.borrower.overwrite]
        if self.marks:
            moves += [self.tag, self.untag, self.cursor, self.advance, self.forget_cursor]
        self.rng.choice(moves)()
        patch.setattr(limits, "TICK_ITEMS_MAX", self.rng.choice((1, 2, 5, 200)))
        for _ in range(self.rng.choice((0, 1, 3, 20))):
            self.rig.clock.advance(self.rng.choice((10, 1_000)))
            self.rig.decider._group([])
        self.check()

    def name(self) -> str:
        self.names += 1
        return f"{'i' if self.names % 3 == 0 else 'f'}{self.names}"

    def committed(self, after: set[str]) -> None:
        self.oracle.snapshots.append(after)
        self.oracle.times_us.append(self.rig.decider.state.tables[self.rig.table_id].last_time_us)
        self.oracle.ever |= after
        assert len(self.oracle.snapshots) - 1 == self.rig.head

    def insert(self) -> None:
        self.committed(self.oracle.snapshots[-1] | set(self.rig.insert(self.name(), self.name())))

    def overwrite(self) -> None:
        self.committed(set(self.rig.overwrite(self.name())))

    def restore(self) -> None:
        target = self.rng.choice(sorted(self.must_keep()))
        self.rig.restore(target)
        self.committed(set(self.oracle.snapshots[target]))

    def borrow(self) -> None:
        live = sorted(self.oracle.snapshots[-1] - self.borrower.live - self.inlined())
        if live:
            self.borrower.take(self.rng.choice(live))

    def begin(self) -> None:
        read = self.any_kept()
        txn_id = self.rig.begin(Operation.INSERT, read_version=read)
        self.oracle.ever |= set(self.rig.register(txn_id, self.name(), self.name()))
        self.open[txn_id] = read

    def finish(self) -> None:
        if not self.open:
            return
        txn_id = self.rng.choice(sorted(self.open))
        del self.open[txn_id]
        txn = self.rig.decider.state.find_txn(txn_id)
        assert txn is not None
        if txn.state is not TxnState.OPEN:  # its lease ran out: its folder is swept another way
            self.oracle.ever -= {path for path in self.oracle.ever if path.startswith(txn_id)}
            return
        paths = set(txn.tables[self.rig.table_id].staged)
        if self.rig.commit(txn_id, self.rig.change(Operation.INSERT)).state is TxnState.COMMITTED:
            self.committed(self.oracle.snapshots[-1] | paths)
        else:
            self.lost.append(txn_id)

    def resubmit(self) -> None:
        if not self.lost:
            return
        lost = self.lost.pop(self.rng.randrange(len(self.lost)))
        mine = self.rig.try_begin(Operation.INSERT, lost)
        if isinstance(mine, MetaError):
            assert mine.reason == "PURGE_HAS_BEGUN"
        else:
            self.open[mine] = self.rig.head

    def pin(self) -> None:
        version = self.any_kept()
        self.pins[self.rig.pin(version, lease_ms=3_600_000)] = version

    def unpin(self) -> None:
        if self.pins:
            pin_id = self.rng.choice(sorted(self.pins))
            del self.pins[pin_id]
            self.rig.ask(lambda: self.rig.pins.unpin(pin_id))

    def tag(self) -> None:
        """Also one that is held by another tag alone."""
        name, version = self.rng.choice("ab"), self.rng.choice([self.any_kept(), *self.tags.values()])
        self.tags[name] = self.rig.tag(name, version)
        assert self.tags[name] == version

    def untag(self) -> None:
        name = self.rng.choice("ab")
        assert self.rig.untag(name) == (self.tags.pop(name, None) is not None)

    def cursor(self) -> None:
        name = self.rng.choice("cd")
        if name not in self.cursors:
            self.cursors[name] = (self.rig.cursor(name, self.any_kept(), keep_ms=CURSOR_KEEP_MS), self.rig.clock.us)

    def advance(self) -> None:
        if not self.cursors:
            return
        name = self.rng.choice(sorted(self.cursors))
        place = self.cursors[name][0]
        version = self.rng.randint(max(place, self.rig.oldest), self.rig.head)
        self.cursors[name] = (self.rig.advance(name, place, version), self.rig.clock.us)
        with pytest.raises(MetaError, match=r"CURSOR_MOVED|RANGE_INVALID"):
            self.rig.advance(name, place - 1, version)

    def forget_cursor(self) -> None:
        name = self.rng.choice("cd")
        dropped = self.rig.ask(lambda: self.rig.marks.drop_cursor(self.rig.table_id, name))
        assert dropped == (self.cursors.pop(name, None) is not None)

    def wait(self) -> None:
        self.rig.clock.advance(self.rng.choice((1, 1_000, LEASE_MS // 2, LEASE_MS + 1, HOUR_MS // 3, HOUR_MS)))

    def crash(self) -> None:
        self.rig.crash(self.rng.randint(0, self.rig.store.unsynced_batches))

    def fail(self) -> None:
        """Power goes while a tick is made durable."""
        store = self.rig.store
        store.fail_writes_after = self.rng.choice((None, 0, 1, 2))
        store.fail_syncs_after = self.rng.choice((None, 0))
        for _ in range(4):
            self.rig.clock.advance(1_000)
            self.rig.decider._group([])
        self.rig.store.fail_writes_after = self.rig.store.fail_syncs_after = None

    def confirm(self) -> None:
        listed = sorted(self.rig.purgeable())
        some = self.rng.sample(listed, self.rng.randint(0, len(listed)))
        self.rig.ask(lambda: self.rig.purge.confirm(self.rig.table_id, some))
        self.oracle.confirmed |= set(some)

    # -- what must hold ---------------------------------------------------------------------------------------

    def any_kept(self) -> int:
        """Also one that is about to be retired."""
        return self.rng.randint(self.rig.oldest, self.rig.head)

    def retained(self) -> set[int]:
        return self.oracle.current_since(self.rig.clock.us - self.hours * HOUR_MS * 1000)

    def must_keep(self) -> set[int]:
        state = self.rig.decider.state
        pins = {version for pin_id, version in self.pins.items() if pin_id in state.pins.pins}
        now_us, head = self.rig.clock.us, self.rig.head
        alive = [place for place, used_us in self.cursors.values() if now_us - used_us < CURSOR_KEEP_MS * 1000]
        marked = {*self.tags.values(), *range(min(alive, default=head), head + 1)}
        return self.retained() | pins | marked | {read for txn_id, read in self.open.items() if txn_id in state.open}

    def check(self) -> None:
        needed: set[str] = set()
        must = self.must_keep()
        for version, expected in enumerate(self.oracle.snapshots):
            found = self.show(version)
            if isinstance(found, MetaError):
                assert (found.kind, found.reason) == (ErrorKind.GONE, "VERSION_RETIRED")
                assert version not in must, f"version {version} must be kept"
                assert int(found.facts["oldest"]) > version
            else:
                assert found == expected, f"version {version}"
                needed |= expected
        indexed = self.rig.indexed()  # before the tick of the next question
        staged = self.rig.staged(keys.STAGED) | self.rig.staged(keys.DYING)
        listed = self.rig.purgeable()
        assert not needed & (listed | self.oracle.confirmed), "nothing dead is referenced"
        assert not listed & indexed
        assert not self.borrower.kept() & (listed | self.oracle.confirmed), "what another table reads is not purged"
        inlined = self.inlined()
        left = self.oracle.ever - self.gone() - self.borrower.held(indexed) - inlined
        assert left <= listed | indexed | staged | self.oracle.confirmed, "no path is lost"
        assert not inlined & listed, "there is no file to purge"
        contents = self.rig.contents()
        assert needed & inlined <= contents, "the rows of an inlined file are kept as long as its entry"
        assert contents <= indexed | staged, "and no longer"
        state = self.rig.decider.state
        rows = 3 * len(self.oracle.snapshots[-1] & inlined)
        assert state.tables[self.rig.table_id].inlined.rows == rows
        assert state.inlined_bytes == sum(table.inlined.size_bytes for table in state.tables.values())

    def inlined(self) -> set[str]:
        return {path for path in self.oracle.ever if is_inlined(path)}

    def show(self, version: int) -> set[str] | MetaError:
        try:
            return self.rig.list_files(version)
        except MetaError as refusal:
            return refusal

    def gone(self) -> set[str]:
        """Registered by transactions that ended without an outcome."""
        ended = {each for each in self.open if each not in self.rig.decider.state.open}
        return {path for path in self.oracle.ever if path.split("/")[0] in ended}

    def end(self) -> None:
        """All leases run out, all retention is over: what is left is the head."""
        for name in list(self.tags):
            self.tags.pop(name)
            assert self.rig.untag(name)
        self.borrower.overwrite()
        for _ in range(3):
            self.rig.pass_time(GRACE_MS + 3 * HOUR_MS, looks=300)
        self.check()
        rig, head = self.rig, self.oracle.snapshots[-1]
        assert rig.oldest == rig.head
        inlined = self.inlined()
        assert rig.purgeable() | self.oracle.confirmed | head >= self.oracle.ever - self.gone() - inlined
        assert rig.contents() == head & inlined
        assert rig.purgeable() & head == set()
        assert rig.count(b"e") == rig.count(b"x") == 0, "nothing is lent any more"
        assert rig.count(b"P") == rig.count(keys.STAGED) == rig.count(keys.DYING) == rig.count(keys.PINS) == 0
        assert rig.count_own(b"L") == rig.count_own(b"W") == 1


@pytest.mark.parametrize("block", range(4))
def test_kept_snapshots_stay_whole_and_no_path_is_lost(block: int) -> None:
    lived = 0
    for seed in range(block * HISTORIES // 4, (block + 1) * HISTORIES // 4):
        history = History(seed)
        with pytest.MonkeyPatch.context() as patch:
            for _ in range(STEPS):
                history.step(patch)
        history.end()
        lived += bool(history.oracle.confirmed)
    assert lived > HISTORIES // 20, "histories in which nothing dies test nothing"
