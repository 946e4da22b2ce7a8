"""A wall clock that jumped, between two runs or in one: nothing is forgotten, retired or purged under it unasked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from metaservice.core import limits
from metaservice.core.clock import Instant, clock_jump_ms
from metaservice.core.commit.transaction import Txn, TxnState
from metaservice.core.errors import MetaError
from metaservice.core.table.model import Entry, FileKind, Operation
from metaservice.service.commit.requests import Append
from metaservice.service.retention.housekeeping import Keeping
from metaservice.service.retention.sweeping import Sweeping
from metaservice.shared.log import CLOCK_CONFIRMED, CLOCKS_AGREE, CLOCKS_DISAGREE, COMMIT_TIMES_AHEAD
from metaservice.store import keys
from tests.retention.rig import GRACE_MS, WHO, Rig

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MONTH_MS = 30 * DAY_MS


def start_again(rig: Rig, jump_ms: int = 0, off_ms: int = 0) -> None:
    """A restart after the service was off for a while, under a clock that jumped."""
    rig.clock.advance(off_ms)
    rig.clock.us += jump_ms * 1000
    rig.crash(rig.store.unsynced_batches)


def run(rig: Rig, ms: int, step_ms: int = 60_000) -> None:
    """The service runs."""
    for _ in range(ms // step_ms):
        rig.clock.advance(step_ms)
        rig.decider._group([])


def append(rig: Rig, txn_id: str, *names: str) -> Txn:
    entries = [Entry(f"{txn_id}/{name}", "day=1", 0, FileKind.APPEND, 3, 10, b"") for name in names]
    request = Append(txn_id, rig.table_id, 0, WHO, "", b"append", entries)
    return rig.ask(lambda: rig.transactions.appends.append(request))


def is_halted(rig: Rig) -> bool:
    return rig.housekeeping.halted


def reason_of(call: Callable[[], object]) -> str:
    with pytest.raises(MetaError) as refused:
        call()
    return refused.value.reason


def running_rig() -> Rig:
    rig = Rig(retain_hours=1, keeping=Keeping(adopt_grace_ms=GRACE_MS, delay_ms=60_000))
    run(rig, 3 * 60_000)
    return rig


# ------------------------------------------------------------------------------------------------------ what a jump is


@pytest.mark.parametrize(
    ("before", "now", "jump_ms"),
    [
        (Instant(0, "b", 0), Instant(5_000_000, "b", 5_000), 0),
        (Instant(0, "b", 0), Instant(MONTH_MS * 1000, "b", MONTH_MS), 0),  # off for a month, and the machine knows it
        (Instant(0, "b", 0), Instant(MONTH_MS * 1000, "b", 5_000), MONTH_MS - 5_000),
        (Instant(DAY_MS * 1000, "b", 0), Instant(0, "b", 5_000), -DAY_MS - 5_000),
        (Instant(0, "b", 9_000), Instant(HOUR_MS * 1000, "c", 1_000), 0),
        (Instant(0, "b", 9_000), Instant(MONTH_MS * 1000, "c", 1_000), MONTH_MS),
        (Instant(0, "b", 9_000), Instant(HOUR_MS * 1000, "b", 1_000), 0),  # a container's count began anew
        (Instant(0, "", 0), Instant(MONTH_MS * 1000, "", MONTH_MS), MONTH_MS),
        (Instant(HOUR_MS * 1000, "b", 0), Instant(0, "c", 0), -HOUR_MS),
    ],
)
def test_what_a_jump_is(before: Instant, now: Instant, jump_ms: int) -> None:
    assert clock_jump_ms(before, now, limits.CLOCK_GAP_MS) == jump_ms


# ------------------------------------------------------------------------------------------------- between two runs


def test_under_a_clock_a_month_ahead_at_the_start_nothing_is_forgotten_or_retired() -> None:
    rig = running_rig()
    txn_id = rig.uuid()
    first = append(rig, txn_id, "a")
    rig.overwrite("b")
    start_again(rig, MONTH_MS)
    assert rig.events == [CLOCKS_DISAGREE]
    run(rig, 2 * HOUR_MS, 1_000 * 60)
    rig.pass_time(66_000)
    assert (rig.oldest, rig.count(keys.PURGEABLE)) == (0, 0)
    assert rig.decider.state.find_txn(txn_id) is not None
    again = append(rig, txn_id, "a")
    assert (again.state, again.outcomes) == (TxnState.COMMITTED, first.outcomes), "a repeat gets the first answer"
    assert rig.head == 2
    assert rig.housekeeping.guard.hold().off_ms == pytest.approx(MONTH_MS, abs=1_000)
    assert "laketx clock confirm" in rig.housekeeping.guard.hold().reason


def test_an_id_that_was_forgotten_is_refused_whatever_the_clock_says() -> None:
    rig = running_rig()
    txn_id = rig.uuid()
    append(rig, txn_id, "a")
    start_again(rig, MONTH_MS)
    rig.ask(lambda: rig.housekeeping.guard.confirm(validate_only=False))
    run(rig, 4 * 60_000)
    assert rig.decider.state.find_txn(txn_id) is None, "the operator has said that the clock is right"
    start_again(rig, -MONTH_MS)
    assert reason_of(lambda: append(rig, txn_id, "a")) == "TRANSACTION_ID_TOO_OLD"
    assert reason_of(lambda: append(rig, txn_id, "other")) == "TRANSACTION_ID_TOO_OLD"
    assert append(rig, rig.uuid(), "c").state is TxnState.COMMITTED, "younger ids are taken"
    assert len(rig.list_files(rig.head)) == 2


def test_a_service_that_was_off_for_a_month_holds_too_unless_its_machine_was_up() -> None:
    for boot, held in (("one boot", False), ("", True)):
        rig = Rig(keeping=Keeping(delay_ms=0))
        rig.boot = boot
        start_again(rig)
        run(rig, 3 * 60_000)
        start_again(rig, off_ms=MONTH_MS)
        assert is_halted(rig) is held, boot
    rig = Rig(keeping=Keeping(delay_ms=0))
    rig.boot = "one boot"
    start_again(rig)
    run(rig, 3 * 60_000)
    rig.boot = "another"
    start_again(rig, off_ms=DAY_MS - HOUR_MS)
    assert not is_halted(rig), "a night's rest is none"


def test_a_folder_of_an_earlier_release_is_compared_with_its_last_commit() -> None:
    rig = Rig(keeping=Keeping(delay_ms=0))
    rig.insert("a")
    assert rig.store.get(keys.CLOCK) is not None
    rig.decider.state.batch.delete(keys.CLOCK)
    rig.decider.state.make_durable()
    start_again(rig, MONTH_MS)
    assert is_halted(rig)


def test_a_hold_outlives_restarts_and_ends_with_the_clock_that_is_back() -> None:
    rig = running_rig()
    rig.boot = "boot"
    start_again(rig)
    run(rig, 3 * 60_000)
    start_again(rig, MONTH_MS)
    run(rig, 3 * 60_000)
    start_again(rig)
    assert is_halted(rig)
    start_again(rig, -MONTH_MS)
    assert not is_halted(rig)
    assert rig.events == [CLOCKS_DISAGREE, CLOCKS_DISAGREE, CLOCKS_AGREE]
    run(rig, 3 * 60_000)
    start_again(rig)
    assert not is_halted(rig)


def test_a_day_of_running_time_ends_a_hold_and_a_pause_is_none() -> None:
    rig = running_rig()
    start_again(rig, MONTH_MS)
    run(rig, 13 * HOUR_MS)
    start_again(rig)
    rig.clock.advance(3 * DAY_MS)
    run(rig, 10 * HOUR_MS)
    assert is_halted(rig)
    left_ms = rig.housekeeping.guard.hold().left_ms
    assert left_ms == pytest.approx(HOUR_MS, abs=10 * 60_000)
    run(rig, left_ms + 60_000)
    assert not is_halted(rig)
    assert rig.events[-1] == CLOCK_CONFIRMED
    start_again(rig)
    assert not is_halted(rig), "it is durable"


def test_a_clock_that_jumps_again_while_it_is_held_begins_the_day_anew() -> None:
    rig = running_rig()
    start_again(rig, MONTH_MS)
    run(rig, 23 * HOUR_MS)
    rig.clock.us += DAY_MS * 1000
    run(rig, 2 * HOUR_MS)
    assert is_halted(rig)
    assert rig.housekeeping.guard.hold().left_ms >= 22 * HOUR_MS


# ------------------------------------------------------------------------------------------------------------ in a run


@pytest.mark.parametrize("jump_ms", [MONTH_MS, -MONTH_MS])
def test_a_jump_in_a_run_is_held_until_it_is_confirmed(jump_ms: int) -> None:
    rig = running_rig()
    rig.clock.us += jump_ms * 1000
    run(rig, 2 * 60_000)
    assert rig.events[:1] == [CLOCKS_DISAGREE]
    looked = rig.ask(lambda: rig.housekeeping.guard.confirm(validate_only=True))
    assert looked.off_ms == jump_ms
    assert is_halted(rig)
    rig.ask(lambda: rig.housekeeping.guard.confirm(validate_only=False))
    assert not is_halted(rig)
    start_again(rig)
    assert not is_halted(rig)
    assert rig.ask(lambda: rig.housekeeping.guard.confirm(validate_only=False)).reason == ""


def test_it_is_said_every_hour() -> None:
    rig = running_rig()
    rig.clock.us += MONTH_MS * 1000
    run(rig, 5 * HOUR_MS)
    assert rig.events.count(CLOCKS_DISAGREE) in (5, 6)


def test_commit_times_that_lie_ahead_are_said() -> None:
    rig = running_rig()
    rig.clock.us += MONTH_MS * 1000
    rig.insert("a")
    rig.clock.us -= MONTH_MS * 1000
    run(rig, 3 * HOUR_MS)
    assert rig.events.count(COMMIT_TIMES_AHEAD) in (3, 4)
    assert rig.housekeeping.guard.ahead_ms() == pytest.approx(MONTH_MS - 3 * HOUR_MS, abs=60_000)
    start_again(rig)
    run(rig, 60_000)
    assert rig.events[-1] == COMMIT_TIMES_AHEAD


# ------------------------------------------------------------------------------------------- what is behind the guard


def forget(rig: Rig, txn_id: str) -> None:
    """As an earlier release did, which kept no watermark."""
    rig.decider.state.batch.delete(keys.txn_key(keys.uuid_bytes(txn_id)))
    rig.decider.state.make_durable()
    rig.crash()


def test_a_file_that_is_live_is_refused_in_every_way_in() -> None:
    rig = running_rig()
    txn_id = rig.uuid()
    append(rig, txn_id, "a", "b")
    forget(rig, txn_id)
    assert reason_of(lambda: append(rig, txn_id, "a", "b")) == "PATH_LIVE"
    twice = rig.files(txn_id, "b")
    late = rig.begin(Operation.INSERT)
    assert reason_of(lambda: rig.ask(lambda: rig.transactions.register(late, rig.table_id, twice))) == "PATH_LIVE"
    assert reason_of(lambda: rig.commit(late, rig.change(Operation.INSERT, twice))) == "PATH_LIVE"
    assert rig.head == 1
    assert rig.commit(late, rig.change(Operation.INSERT, rig.files(late, "c"))).state is TxnState.COMMITTED


def test_an_id_whose_folder_was_called_free_may_not_begin_under_a_clock_that_goes_back() -> None:
    rig = running_rig()
    late = rig.uuid()
    rig.clock.advance(9 * DAY_MS)
    run(rig, 60_000)
    sweeping = Sweeping(rig.decider, rig.clock, rig.keeping, lambda: False)
    cut = rig.ask(lambda: sweeping._held_by_transactions([f"{late}/a"]))
    assert cut == set()
    rig.clock.us -= 9 * DAY_MS * 1000
    assert reason_of(lambda: append(rig, late, "a")) == "TRANSACTION_ID_TOO_OLD"


def test_a_table_dropped_under_a_clock_that_went_back_keeps_its_retention() -> None:
    rig = running_rig()
    rig.insert("a")
    rig.clock.us -= MONTH_MS * 1000
    rig.ask(lambda: rig.catalog.drop(rig.table_id, validate_only=False))
    rig.clock.us += MONTH_MS * 1000
    rig.pass_time(0)
    assert rig.ask(lambda: rig.catalog.undrop(rig.table_id)).head == 1


# ---------------------------------------------------------------------------------------------------- random histories

JUMPS_MS = (0, MONTH_MS, 9 * DAY_MS, -9 * DAY_MS, HOUR_MS)


class ClockHistory:
    """Appends, repeats of any of them, restarts and jumps; the operator sometimes believes a clock that is wrong."""

    def __init__(self, seed: int) -> None:
        self.rig = Rig(seed, retain_hours=1, keeping=Keeping(adopt_grace_ms=GRACE_MS, delay_ms=0))
        self.rng = self.rig.rng
        self.acked: dict[str, object] = {}
        self.asked: list[str] = []
        self.repeated = self.off_ms = 0
        self.refused = Counter[str]()

    def step(self) -> None:
        moves = (
            [self.append] * 3 + [self.repeat] * 4 + [self.restart] * 2 + [self.jump, self.wait, self.wait, self.confirm]
        )
        self.rng.choice(moves)()
        run(self.rig, 2 * 60_000, 10_000)
        files = [path.partition("/")[0] for path in self.rig.list_files(self.rig.head)]
        assert sorted(files) == sorted(self.acked), "each append that was acknowledged is there once, and no other"

    def append(self) -> None:
        self.asked.append(self.rig.uuid())
        self.ask(self.asked[-1])

    def repeat(self) -> None:
        if self.asked:
            self.ask(self.rng.choice(self.asked[-3:]))

    def ask(self, txn_id: str) -> None:
        try:
            txn = append(self.rig, txn_id, "f")
        except MetaError as refusal:
            self.refused[refusal.reason] += 1
            return
        self.repeated += txn_id in self.acked
        assert self.acked.setdefault(txn_id, txn.outcomes) == txn.outcomes, "a repeat gets the first answer"

    def restart(self) -> None:
        start_again(self.rig, self.next_jump_ms(), self.rng.choice((0, HOUR_MS, 3 * DAY_MS)))

    def jump(self) -> None:
        self.rig.clock.us += self.next_jump_ms() * 1000

    def next_jump_ms(self) -> int:
        """Often the one that makes the clock right again."""
        jump_ms = -self.off_ms if self.off_ms and self.rng.random() < 0.6 else self.rng.choice(JUMPS_MS)
        self.off_ms += jump_ms
        return jump_ms

    def wait(self) -> None:
        self.rig.clock.advance(self.rng.choice((HOUR_MS, DAY_MS, 9 * DAY_MS)))

    def confirm(self) -> None:
        self.rig.ask(lambda: self.rig.housekeeping.guard.confirm(validate_only=False))


def test_whatever_the_clock_does_nothing_is_committed_twice() -> None:
    repeated, forgotten, refused = 0, 0, Counter[str]()
    for seed in range(30):
        history = ClockHistory(seed)
        for _ in range(40):
            history.step()
        repeated, refused = repeated + history.repeated, refused + history.refused
        assert history.refused.keys() <= {"TRANSACTION_ID_TOO_OLD", "TRANSACTION_ID_IN_FUTURE"}
        forgotten += history.rig.decider.state.forgotten_ms > 0
    assert min(repeated, refused.total()) > 30
    assert forgotten > 5
