"""What is kept, what dies, and what the traps are."""

from collections.abc import Callable

import pytest

from metaservice.core import limits
from metaservice.core.commit.transaction import TxnState
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.retention.kept import is_held, retain_us
from metaservice.core.table.meta import Alteration
from metaservice.core.table.model import Operation
from metaservice.core.table.properties import check_property
from metaservice.service.commit.requests import Begin, CommitRequest, Intent
from metaservice.service.decider.decider import Answer
from metaservice.service.read.timeline import VersionFilter
from metaservice.service.retention.housekeeping import Keeping
from metaservice.service.retention.pins import PinRequest
from metaservice.shared.log import CLOCKS_AGREE, CLOCKS_DISAGREE
from metaservice.store import keys
from metaservice.store.port import StoreFailed
from tests.retention.rig import GRACE_MS, HOUR_MS, LEASE_MS, WHO, Rig

DAY_MS = 24 * HOUR_MS


def check_refused(call: Callable[[], object], kind: ErrorKind, reason: str) -> dict[str, str]:
    with pytest.raises(MetaError) as caught:
        call()
    assert (caught.value.kind, caught.value.reason) == (kind, reason)
    return caught.value.facts


@pytest.mark.parametrize(
    ("added", "removed", "horizon", "held", "answer"),
    [
        (1, 5, 7, [3], True),
        (4, 6, 7, [3], False),
        (4, 8, 7, [3], True),
        (1, 3, 7, [3], False),
        (3, 4, 7, [3], True),
        (5, 7, 7, [], False),
        (1, 7, 7, [0, 7, 9], False),
        (1, 7, 7, [0, 6, 9], True),
    ],
)
def test_what_holds_an_interval(added: int, removed: int, horizon: int, held: list[int], answer: bool) -> None:
    assert is_held(added, removed, horizon, held) is answer
    kept = {*range(horizon, horizon + 5), *held}
    assert answer is any(added <= version < removed for version in kept)


@pytest.mark.parametrize(
    ("value", "hours"), [("", 168), ("0", 0), ("48", 48), ("x", 168), ("-1", 168), ("1.5", 168), ("9" * 8, 168)]
)
def test_retention_is_a_number_of_hours(value: str, hours: int) -> None:
    assert retain_us({"data.retain.hours": value}) == hours * 3_600_000_000
    if value and hours == 168:
        check_refused(lambda: check_property("data.retain.hours", value), ErrorKind.INVALID, "PROPERTY_INVALID")


def test_a_removed_file_dies_when_no_kept_version_holds_it() -> None:
    rig = Rig()
    (first,) = rig.insert("a")
    rig.pass_time(30 * HOUR_MS)
    (second,) = rig.overwrite("b")
    rig.pass_time(23 * HOUR_MS)
    assert rig.purgeable() == set(), "retention is counted from the removal, not from the file's birth"
    assert rig.list_files(1) == {first}
    rig.pass_time(2 * HOUR_MS)
    assert rig.oldest == rig.head == 2
    assert rig.purgeable() == {first}
    assert rig.list_files(2) == {second}
    facts = check_refused(lambda: rig.list_files(1), ErrorKind.GONE, "VERSION_RETIRED")
    assert facts["oldest"] == "2"


def test_a_version_stays_as_long_as_it_was_current_inside_retention() -> None:
    rig = Rig()
    rig.insert("a")
    rig.insert("b")
    rig.pass_time(100 * HOUR_MS)
    assert rig.oldest == 2, "the head was current ever since"
    rig.insert("c")
    rig.pass_time(23 * HOUR_MS)
    assert len(rig.list_files(2)) == 2
    rig.pass_time(2 * HOUR_MS)
    assert rig.oldest == 3


def test_with_no_retention_the_head_alone_is_kept() -> None:
    rig = Rig(retain_hours=0)
    (first,) = rig.insert("a")
    rig.overwrite("b")
    rig.pass_time(0)
    assert (rig.oldest, rig.purgeable()) == (2, {first})


def test_a_longer_retention_brings_nothing_back_and_keeps_what_is_there() -> None:
    rig = Rig(retain_hours=0)
    rig.insert("a")
    rig.insert("b")
    rig.pass_time(0)
    txn_id = rig.begin(Operation.ALTER)
    longer = Alteration(set_properties={"data.retain.hours": "5"})
    rig.commit(txn_id, rig.change(Operation.ALTER, alteration=longer))
    rig.insert("c")
    rig.pass_time(4 * HOUR_MS)
    assert rig.oldest == 2
    rig.pass_time(2 * HOUR_MS)
    assert rig.oldest == 4


def test_everything_below_the_horizon_is_refused_with_the_oldest() -> None:
    rig = Rig(retain_hours=0)
    early_us = rig.clock.us
    rig.insert("a")
    rig.pass_time(0)
    rig.overwrite("b")
    rig.insert("c")
    rig.pass_time(0)
    table = rig.reads.get_table(table_id=rig.table_id)
    gone: list[Callable[[], object]] = [
        lambda: rig.reads.check_version(table, 1),
        lambda: rig.reads.resolve_version(table, 2),
        lambda: rig.reads.list_files(table, 1),
        lambda: rig.timeline.list_versions(table, VersionFilter(), 2, 10),
        lambda: rig.ask(lambda: rig.reads.resolve_time(table, early_us)),
        lambda: rig.begin(Operation.INSERT, read_version=2),
        lambda: rig.restore(1),
        lambda: rig.pin(2),
    ]
    for call in gone:
        assert check_refused(call, ErrorKind.GONE, "VERSION_RETIRED")["oldest"] == "3"
    assert [one.footprint.version for one in rig.timeline.list_versions(table, VersionFilter(), None, 10).items] == [3]
    assert rig.timeline.list_versions(table, VersionFilter(), 3, 10).items == []
    assert rig.ask(lambda: rig.reads.resolve_time(table, rig.clock.us)).version == 3


def test_a_held_version_below_the_horizon_is_told_when_it_is_asked_for() -> None:
    rig = Rig(retain_hours=0)
    for name in "abcd":
        rig.insert(name)
        if name == "b":
            rig.tag("kept", 2)
    rig.pass_time(0)
    table = rig.reads.get_table(table_id=rig.table_id)
    assert rig.oldest == 4

    def told(first: int, last: int) -> list[int]:
        wanted = VersionFilter(from_version=first, to_version=last)
        return [one.footprint.version for one in rig.timeline.list_versions(table, wanted, None, 10).items]

    assert [told(2, 2), told(1, 1), told(3, 3), told(1, 4)] == [[2], [], [], [4]]


def test_a_pin_in_the_middle_holds_its_own_files_alone() -> None:
    rig = Rig(retain_hours=0)
    (one,) = rig.overwrite("a")
    (two,) = rig.overwrite("b")
    pin_id = rig.pin(2, lease_ms=3_600_000)
    (three,) = rig.overwrite("c")
    (four,) = rig.overwrite("d")
    rig.pass_time(0)
    assert rig.purgeable() == {one, three}
    assert rig.list_files(2) == {two}
    assert rig.begin(Operation.INSERT, read_version=2), "a job may go on from what its pin holds"
    check_refused(lambda: rig.list_files(3), ErrorKind.GONE, "VERSION_RETIRED")
    rig.ask(lambda: rig.pins.unpin(pin_id))
    rig.pass_time(LEASE_MS + 1)
    assert rig.purgeable() == {one, two, three}
    assert rig.list_files(4) == {four}


def test_a_pin_that_runs_out_holds_nothing() -> None:
    rig = Rig(retain_hours=0)
    (first,) = rig.insert("a")
    pin_id = rig.pin(lease_ms=LEASE_MS)
    rig.overwrite("b")
    for _ in range(3):
        rig.pass_time(0, looks=40)
        assert rig.ask(lambda: rig.pins.renew(pin_id, 0)) == LEASE_MS
    assert rig.purgeable() == set()
    rig.pass_time(LEASE_MS)
    assert rig.purgeable() == {first}
    check_refused(lambda: rig.ask(lambda: rig.pins.renew(pin_id, 0)), ErrorKind.NOT_FOUND, "PIN_UNKNOWN")
    rig.ask(lambda: rig.pins.unpin(pin_id))


def test_pins_outlive_a_crash_and_their_leases_start_anew() -> None:
    rig = Rig(retain_hours=0)
    (first,) = rig.insert("a")
    rig.pin(lease_ms=LEASE_MS)
    rig.overwrite("b")
    rig.pass_time(0, looks=50)
    rig.crash()
    rig.pass_time(0, looks=50)
    assert rig.list_files(1) == {first}
    rig.pass_time(0, looks=80)
    assert rig.purgeable() == {first}
    assert rig.count(keys.PINS) == 0


def test_a_pin_is_repeated_under_its_id_and_refused_with_other_content() -> None:
    rig = Rig()
    rig.insert("a")
    request = PinRequest(rig.uuid(), ((rig.table_id, None),), WHO, 0, b"x")
    first, granted_ms = rig.ask(lambda: rig.pins.pin(request))
    rig.insert("b")
    assert rig.ask(lambda: rig.pins.pin(request)) == (first, granted_ms)
    assert first.versions == ((rig.table_id, 1),)
    other = PinRequest(request.pin_id, request.tables, WHO, 0, b"y")
    check_refused(lambda: rig.ask(lambda: rig.pins.pin(other)), ErrorKind.INVALID, "PIN_ID_REUSED")
    ahead = PinRequest(rig.uuid(), ((rig.table_id, 3),), WHO, 0, b"z")
    check_refused(lambda: rig.ask(lambda: rig.pins.pin(ahead)), ErrorKind.INVALID, "VERSION_IN_FUTURE")


def test_pins_are_listed_in_pages_with_their_age() -> None:
    rig = Rig()
    other = rig.create("other", None)
    ids = []
    for _ in range(3):
        rig.clock.advance(1_000)
        ids.append(rig.uuid())
        request = PinRequest(ids[-1], ((rig.table_id, 0), (other, None)), WHO, 0, b"x")
        rig.ask(lambda request=request: rig.pins.pin(request))  # type: ignore[misc]
    found, place = [], ("", -1)
    while page := rig.ask(lambda: rig.pins.list_held(place, 4)):  # noqa: B023 - asked at once
        found += page
        place = page[-1].pin.pin_id, page[-1].row
    assert [(one.pin.pin_id, one.version[0]) for one in found] == [(i, t) for i in ids for t in (rig.table_id, other)]
    assert [one.age_ms for one in found] == [2_000, 2_000, 1_000, 1_000, 0, 0]


def test_an_open_transaction_holds_what_it_read() -> None:
    rig = Rig(retain_hours=0)
    (first,) = rig.insert("a")
    txn_id = rig.begin(Operation.INSERT)
    rig.register(txn_id, "x")
    rig.insert("b")
    rig.overwrite("c")
    for _ in range(3):
        rig.pass_time(0, looks=50)
        assert rig.ask(lambda: rig.transactions.renew(txn_id)).doomed is not None
    assert first not in rig.purgeable()
    assert rig.list_files(1) == {first}
    assert rig.commit(txn_id, rig.change(Operation.INSERT)).state is TxnState.CONFLICT
    rig.pass_time(GRACE_MS)
    assert first in rig.purgeable()


def test_an_open_restore_keeps_all_that_it_could_name() -> None:
    rig = Rig(retain_hours=1)
    (first,) = rig.insert("a")
    rig.overwrite("b")
    txn_id = rig.begin(Operation.RESTORE)
    for _ in range(100):
        rig.pass_time(50_000, looks=3)
        rig.ask(lambda: rig.transactions.renew(txn_id))
    assert rig.oldest == 0
    rig.commit(txn_id, rig.change(Operation.RESTORE, restore_version=1))
    assert rig.list_files(3) == {first}


def test_a_file_that_was_restored_is_not_purged_by_its_old_removal() -> None:
    rig = Rig(retain_hours=1)
    (first,) = rig.overwrite("a")  # version 1
    (second,) = rig.overwrite("b")
    rig.restore(1)  # version 3: the first is back
    rig.pass_time(2 * HOUR_MS)
    assert (rig.oldest, rig.purgeable()) == (3, {second})
    assert rig.list_files(3) == {first}
    (third,) = rig.overwrite("c")  # version 4: it has two removals in the past
    rig.pass_time(2 * HOUR_MS)
    assert rig.purgeable() == {first, second}
    assert rig.list_files(4) == {third}
    assert rig.count(b"B") == rig.count(b"P") == 0


def test_a_file_that_was_restored_and_removed_again_waits_for_its_last_removal() -> None:
    rig = Rig(retain_hours=1)
    (first,) = rig.overwrite("a")
    (second,) = rig.overwrite("b")
    rig.restore(1)
    rig.pass_time(HOUR_MS - 200_000)
    rig.overwrite("c")  # ends the second life shortly before the first is past retention
    rig.pass_time(300_000)
    assert rig.oldest == 3
    assert rig.purgeable() == {second}
    assert rig.list_files(3) == {first}


def test_a_live_file_is_never_listed_whatever_its_past_says() -> None:
    rig = Rig(retain_hours=0)
    (first,) = rig.overwrite("a")
    pin_id = rig.pin()
    rig.overwrite("b")
    rig.restore(1)
    marks = [key for key, _ in rig.store.cursor().scan(b"B", b"C")]
    assert marks
    for key in marks:  # as written by a release that kept no count
        rig.decider.state.batch.delete(key)
    rig.ask(lambda: rig.pins.unpin(pin_id))
    rig.pass_time(0)
    assert (rig.oldest, rig.count(b"P")) == (3, 0)
    assert rig.list_files(3) == {first}
    assert first not in rig.purgeable()


def test_staged_files_of_a_lost_insert_are_swept_after_a_grace() -> None:
    rig = Rig()
    lost, paths = rig.lose("x", "y")
    rig.pass_time(GRACE_MS - 200_000)
    assert rig.purgeable() == set()
    rig.pass_time(400_000)
    assert rig.purgeable() == set(paths)
    assert rig.count(keys.STAGED) == rig.count(keys.DYING) == 0
    refused = check_refused(lambda: rig.begin(Operation.INSERT, lost), ErrorKind.BLOCKED, "PURGE_HAS_BEGUN")
    assert refused["txn_id"] == lost
    rig.crash()
    check_refused(lambda: rig.begin(Operation.INSERT, lost), ErrorKind.BLOCKED, "PURGE_HAS_BEGUN")


def test_a_lost_insert_may_be_taken_over_when_retention_is_over_for_what_it_read() -> None:
    rig = Rig(retain_hours=0)
    lost, paths = rig.lose("x")
    for name in "abc":
        rig.insert(name)
    rig.pass_time(GRACE_MS // 2)
    rig.crash()
    assert rig.oldest == rig.head
    mine = rig.begin(Operation.INSERT, lost)
    assert rig.commit(mine, rig.change(Operation.INSERT)).state is TxnState.COMMITTED
    assert set(paths) <= rig.list_files(rig.head)


def test_a_resubmitted_file_is_not_purged_as_the_losers() -> None:
    rig = Rig(retain_hours=0)
    lost, paths = rig.lose("x")
    mine = rig.begin(Operation.INSERT, lost)
    assert rig.commit(mine, rig.change(Operation.INSERT)).state is TxnState.COMMITTED
    rig.pass_time(3 * GRACE_MS)
    assert set(paths) <= rig.list_files(rig.head)
    assert not rig.purgeable() & set(paths)
    assert rig.count(keys.STAGED) == 0


def test_files_taken_over_by_an_open_transaction_wait_and_die_with_it() -> None:
    rig = Rig(keeping=Keeping(adopt_grace_ms=0, delay_ms=0))
    lost, paths = rig.lose("x")
    mine = rig.begin(Operation.INSERT, lost)
    for _ in range(4):
        rig.pass_time(0, looks=50)
        rig.ask(lambda: rig.transactions.renew(mine))
    assert rig.purgeable() == set()
    rig.ask(lambda: rig.transactions.abort(mine, "tests"))
    rig.pass_time(0)
    rig.pass_time(0)
    assert rig.purgeable() == set(paths)


def test_files_lost_twice_are_purged_once_nobody_takes_them() -> None:
    rig = Rig()
    lost, paths = rig.lose("x")
    again = rig.begin(Operation.INSERT, lost)
    rig.overwrite("w")
    assert rig.commit(again, rig.change(Operation.INSERT)).state is TxnState.CONFLICT
    rig.pass_time(GRACE_MS - 200_000)
    last = rig.begin(Operation.INSERT, again)
    assert rig.commit(last, rig.change(Operation.INSERT)).state is TxnState.COMMITTED
    rig.pass_time(3 * GRACE_MS)
    assert not rig.purgeable() & set(paths)
    assert set(paths) <= rig.list_files(rig.head)


def test_only_a_confirmation_empties_the_purge_list() -> None:
    rig = Rig(retain_hours=0)
    paths = rig.overwrite("a", "b", "c")
    rig.overwrite("d")
    rig.pass_time(0)
    rig.pass_time(DAY_MS)
    rig.crash()
    assert rig.ask(lambda: rig.purge.list_paths(rig.table_id, "", 2)) == sorted(paths)[:2]
    assert rig.ask(lambda: rig.purge.list_paths(rig.table_id, sorted(paths)[1], 2)) == sorted(paths)[2:]
    for _ in range(2):
        rig.ask(lambda: rig.purge.confirm(rig.table_id, [paths[0], "unknown/path"]))
        assert rig.purgeable() == set(paths[1:])
    assert rig.ask(lambda: rig.purge.list_tables("", 10)) == [rig.table_id]
    rig.ask(lambda: rig.purge.confirm(rig.table_id, paths))
    assert rig.ask(lambda: rig.purge.list_tables("", 10)) == []


def test_external_files_are_never_listed() -> None:
    rig = Rig(retain_hours=0)
    rig.write(Operation.INSERT, "imported", external=True)
    (mine,) = rig.insert("a")
    rig.overwrite("b")
    rig.pass_time(0)
    assert rig.purgeable() == {mine}
    assert rig.count(b"P") == 0


def test_a_dropped_tables_files_die_after_retention_then_its_records_go() -> None:
    rig = Rig()
    paths = [*rig.overwrite("a"), *rig.overwrite("b")]
    pin_id = rig.pin(lease_ms=3_600_000)
    rig.ask(lambda: rig.catalog.drop(rig.table_id, validate_only=False))
    raw = keys.uuid_bytes(rig.table_id)
    rig.pass_time(23 * HOUR_MS)
    assert rig.purgeable() == set()
    request = PinRequest(pin_id, ((rig.table_id, None),), WHO, 0, b"pin")
    assert request.pin_id not in rig.decider.state.pins.pins, "its lease ran out"
    rig.pass_time(2 * HOUR_MS)
    assert rig.purgeable() == set(paths)
    assert rig.ask(lambda: rig.purge.list_tables("", 10)) == [rig.table_id]
    left = [key[:1] for key, _ in rig.store.cursor().scan(b"A", b"Z") if key[1:17] == raw]
    assert left == [b"D"]
    check_refused(lambda: rig.decider.state.get_table(rig.table_id), ErrorKind.BLOCKED, "TABLE_DROPPED")
    rig.pass_time(10 * DAY_MS)
    assert rig.count(keys.DROPPED) == 0
    assert rig.purgeable() == set(paths)


def test_a_pinned_table_that_was_dropped_waits_for_its_reader() -> None:
    rig = Rig(retain_hours=0)
    rig.insert("a")
    pin_id = rig.pin()
    rig.ask(lambda: rig.catalog.drop(rig.table_id, validate_only=False))
    for _ in range(3):
        rig.pass_time(0, looks=40)
        rig.ask(lambda: rig.pins.renew(pin_id, 0))
    assert rig.purgeable() == set()
    rig.pass_time(LEASE_MS)
    assert len(rig.purgeable()) == 1


def test_records_below_the_floor_go_and_those_above_stay() -> None:
    rig = Rig(retain_hours=1)
    for number in range(10):
        rig.insert(f"f{number}")
    rig.pass_time(0)
    assert rig.count_own(b"L") == rig.count_own(b"W") == 11
    rig.pass_time(2 * HOUR_MS)
    assert rig.count_own(b"L") == rig.count_own(b"W") == rig.count_own(b"T") == 1
    assert len(rig.list_files(10)) == 10
    rig.crash()
    assert (rig.oldest, rig.head) == (10, 10)
    rig.insert("more")
    assert len(rig.list_files(11)) == 11
    assert len(rig.list_files(10)) == 10


def test_metadata_of_each_schema_stays() -> None:
    rig = Rig(retain_hours=0)
    for hours in (1, 2, 0):
        txn_id = rig.begin(Operation.ALTER)
        change = Alteration(set_properties={"data.retain.hours": str(hours)})
        rig.commit(txn_id, rig.change(Operation.ALTER, alteration=change))
    rig.pass_time(0)
    assert rig.count_own(b"T") == 1
    rig.crash()
    assert rig.decider.state.tables[rig.table_id].meta.properties["data.retain.hours"] == "0"


def test_outcomes_go_when_their_ids_are_refused_by_age() -> None:
    rig = Rig(keeping=Keeping(outcome_keep_ms=HOUR_MS, delay_ms=0))
    txn_id = rig.begin(Operation.INSERT)
    rig.commit(txn_id, rig.change(Operation.INSERT, rig.files(txn_id, "a")))
    rig.transactions.lease_ms = 10 * DAY_MS
    slow = rig.begin(Operation.INSERT)
    rig.pass_time(25 * HOUR_MS - 200_000)
    assert rig.decider.state.find_txn(txn_id) is not None
    rig.pass_time(400_000)
    rig.pass_time(0)
    assert rig.decider.state.find_txn(txn_id) is None
    assert slow in rig.decider.state.open, "an open transaction is no outcome, however old its id"
    again = Begin(txn_id, (Intent(rig.table_id, Operation.INSERT),), WHO, "", b"begin")
    refused = check_refused(
        lambda: rig.ask(lambda: rig.transactions.begin(again)),
        ErrorKind.INVALID,
        "TRANSACTION_ID_TOO_OLD",
    )
    assert refused["txn_id"] == txn_id


@pytest.mark.parametrize("jump_hours", [-3, 30])
def test_a_clock_that_jumps_halts_the_horizon_until_it_is_back(jump_hours: int) -> None:
    rig = Rig()
    (first,) = rig.insert("a")
    rig.overwrite("b")
    rig.pass_time(HOUR_MS)
    rig.clock.us += jump_hours * HOUR_MS * 1000
    rig.pass_time(0)
    assert rig.housekeeping.halted
    assert rig.events == [CLOCKS_DISAGREE]
    assert rig.oldest == 0
    rig.pass_time(30 * HOUR_MS)
    assert (rig.oldest, rig.purgeable()) == (0, set())
    rig.clock.us -= jump_hours * HOUR_MS * 1000
    rig.pass_time(0)
    assert rig.events == [CLOCKS_DISAGREE, CLOCKS_AGREE]
    assert (rig.oldest, rig.purgeable()) == (2, {first})


def test_nothing_is_retired_shortly_after_a_start() -> None:
    rig = Rig(retain_hours=0, keeping=Keeping(delay_ms=60_000))
    rig.insert("a")
    rig.insert("b")
    rig.pass_time(0, looks=50)
    assert rig.oldest == 0
    rig.pass_time(0, looks=50)
    assert rig.oldest == 2


@pytest.mark.parametrize("ticks", range(8))
def test_who_comes_while_horizons_move_is_held_or_refused(ticks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(retain_hours=0)
    (first,) = rig.overwrite("a")
    (second,) = rig.overwrite("b")
    monkeypatch.setattr(limits, "TICK_ITEMS_MAX", 1)
    rig.pass_time(0, looks=ticks)
    mine = rig.try_begin(Operation.INSERT, read_version=1)
    rig.pass_time(0, looks=40)
    if isinstance(mine, MetaError):
        assert mine.reason == "VERSION_RETIRED"
        assert rig.purgeable() == {first}
    else:
        assert rig.list_files(1) == {first}
    assert rig.list_files(2) == {second}


def test_the_horizon_is_durable_before_anything_dies() -> None:
    rig = Rig(retain_hours=0)
    rig.insert("a")
    rig.overwrite("b")
    raw = keys.uuid_bytes(rig.table_id)
    seen = []
    for _ in range(20):
        rig.clock.advance(1_000)
        rig.decider._group([])
        moved = keys.oldest_key(raw) in rig.store._synced
        seen.append((moved, rig.count(b"P") == 0))
    assert (True, False) in seen, "one sync lies between the move and the first death"
    assert seen[-1] == (True, True)
    assert (False, True) not in seen


def test_a_tick_with_nothing_due_looks_at_the_clock_and_no_more() -> None:
    rig = Rig()
    rig.pass_time(0, looks=3)
    while rig.housekeeping._steps is not None:
        rig.pass_time(0, looks=1)
    rig.housekeeping.tick()
    rig.store.close()
    rig.housekeeping._due_ms = rig.clock.ms + 1
    rig.housekeeping.tick()  # a round would read the store, which fails by now
    rig.clock.advance(1)
    with pytest.raises(StoreFailed):
        rig.housekeeping.tick()


def test_row_ids_go_on_after_a_drop_in_the_same_group() -> None:
    rig = Rig()
    txn_id = rig.begin(Operation.INSERT)
    adds = rig.files(txn_id, "a", "b")
    request = CommitRequest(txn_id, (rig.change(Operation.INSERT, adds),), ((None, None),), b"commit")
    jobs: list[Callable[[], object]] = [
        lambda: rig.transactions.commit(request),
        lambda: rig.catalog.drop(rig.table_id, validate_only=False),
    ]
    answers: list[Answer] = []
    rig.decider._group([(answers.extend, None, job) for job in jobs])
    rig.ask(lambda: rig.catalog.undrop(rig.table_id))
    assert rig.decider.state.tables[rig.table_id].next_row_id == 7
