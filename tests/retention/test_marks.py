"""Tags and cursors hold what they name; what they no longer name goes."""

import pytest

from metaservice.core import limits
from metaservice.core.commit.transaction import TxnState
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.retention.marks import CursorMove
from metaservice.core.table.model import Operation
from metaservice.service.commit.requests import CommitRequest
from metaservice.service.operate.check import StoreCheck
from metaservice.service.operate.restoring import begin_history
from metaservice.store import keys
from metaservice.store.port import Batch
from tests.retention.rig import HOUR_MS, Rig

DAY_MS = 24 * HOUR_MS


def history(*, versions: int = 6, retain_hours: int = 1) -> tuple[Rig, list[str]]:
    """A table whose every version is one file that the next one takes out; index: version."""
    rig = Rig(retain_hours=retain_hours)
    paths = [""]
    for number in range(versions):
        rig.clock.advance(1_000)
        paths += rig.overwrite(f"f{number + 1}")
    return rig, paths


def reason_of(call: object) -> tuple[ErrorKind, str]:
    with pytest.raises(MetaError) as caught:
        call()  # type: ignore[operator]
    return caught.value.kind, caught.value.reason


def test_a_tagged_version_stays_whole_and_its_neighbours_go() -> None:
    rig, paths = history()
    assert rig.tag("2026-11", 3) == 3
    rig.pass_time(HOUR_MS)
    assert rig.oldest == 6
    assert rig.purgeable() == {paths[1], paths[2], paths[4], paths[5]}
    assert rig.list_files(3) == {paths[3]}
    assert reason_of(lambda: rig.list_files(4)) == (ErrorKind.GONE, "VERSION_RETIRED")
    assert rig.untag("2026-11")
    rig.pass_time(HOUR_MS)
    assert paths[3] in rig.purgeable()
    assert not rig.untag("2026-11")


def test_a_tag_outlives_restarts_and_may_move() -> None:
    rig, paths = history()
    rig.tag("a", 2)
    rig.crash()
    assert rig.ask(lambda: rig.marks.tagged_version(rig.table_id, "a")) == 2
    assert reason_of(lambda: rig.tag("a", 3, move=False)) == (ErrorKind.ALREADY_EXISTS, "TAG_EXISTS")
    assert rig.tag("a", 2, move=False) == 2  # the same again
    assert rig.tag("a", 3) == 3
    rig.pass_time(HOUR_MS)
    assert paths[2] in rig.purgeable()
    assert rig.list_files(3) == {paths[3]}
    assert reason_of(lambda: rig.tag("b", 2)) == (ErrorKind.GONE, "VERSION_RETIRED")
    assert reason_of(lambda: rig.tag("b", 7)) == (ErrorKind.INVALID, "VERSION_IN_FUTURE")
    assert rig.tag("b", 3) == 3  # a tag holds it: another may name it too


def test_a_tagged_version_below_the_horizon_can_be_pinned_read_and_restored() -> None:
    rig, paths = history()
    rig.tag("a", 3)
    rig.pass_time(HOUR_MS)
    pin_id = rig.pin(3)
    rig.untag("a")
    rig.clock.advance(1_000)
    rig.decider._group([])
    assert rig.list_files(3) == {paths[3]}
    rig.restore(3)
    assert rig.list_files(rig.head) == {paths[3]}
    rig.ask(lambda: rig.pins.unpin(pin_id))
    rig.pass_time(HOUR_MS)
    assert paths[3] not in rig.purgeable()


def test_what_comes_after_a_cursor_stays() -> None:
    rig, paths = history()
    assert rig.cursor("etl", 3) == 3
    rig.pass_time(HOUR_MS)
    assert rig.oldest == 3
    assert rig.purgeable() == {paths[1], paths[2]}
    assert rig.advance("etl", 3, 5) == 5
    rig.pass_time(HOUR_MS)
    assert rig.oldest == 5
    assert rig.purgeable() == set(paths[1:5])
    assert rig.cursor("etl", 1) == 5, "one that is there is as it is"


def test_the_horizon_follows_a_cursor_under_a_long_retention_too() -> None:
    rig, _ = history(retain_hours=2)
    rig.cursor("etl", 1, keep_ms=100 * DAY_MS)
    rig.pass_time(3 * HOUR_MS)
    assert rig.oldest == 1
    rig.advance("etl", 1, 6)
    rig.pass_time(2_000)
    assert rig.oldest == 6


def test_a_cursor_moves_by_compare_and_set() -> None:
    rig, _ = history()
    rig.cursor("etl", 2)
    assert rig.advance("etl", 2, 4, "one") == 4
    assert rig.advance("etl", 2, 4, "one") == 4, "a repeat"
    assert reason_of(lambda: rig.advance("etl", 2, 4, "two")) == (ErrorKind.STALE, "CURSOR_MOVED")
    assert reason_of(lambda: rig.advance("etl", 4, 3)) == (ErrorKind.INVALID, "RANGE_INVALID")
    assert reason_of(lambda: rig.advance("etl", 4, 7)) == (ErrorKind.INVALID, "VERSION_IN_FUTURE")
    assert reason_of(lambda: rig.advance("other", 4, 5)) == (ErrorKind.NOT_FOUND, "CURSOR_UNKNOWN")
    rig.crash()
    assert rig.advance("etl", 4, 5) == 5


def test_a_cursor_that_nobody_uses_holds_nothing_but_knows_its_place() -> None:
    rig, paths = history()
    rig.cursor("etl", 3, keep_ms=HOUR_MS)
    rig.pass_time(HOUR_MS // 2)
    assert rig.advance("etl", 3, 3) == 3, "kept alive"
    rig.pass_time(HOUR_MS // 2)
    assert rig.oldest == 3
    rig.pass_time(HOUR_MS)
    assert rig.oldest == 6
    assert rig.purgeable() == set(paths[1:6])
    ((cursor, left_ms),) = rig.ask(lambda: rig.marks.list_cursors("", ("", ""), 10))
    assert (cursor.version, left_ms) == (3, 0)
    assert reason_of(lambda: rig.advance("etl", 3, 4)) == (ErrorKind.GONE, "VERSION_RETIRED")
    assert rig.advance("etl", 3, 6) == 6, "its reader chose to go on from there"


def test_a_cursor_goes_on_with_a_commit_or_not_at_all() -> None:
    rig, _ = history()
    rig.cursor("etl", 2)

    def commit(txn_id: str, expected: int, version: int) -> TxnState:
        moves = (CursorMove(rig.table_id, "etl", expected, version),)
        change = rig.change(Operation.INSERT)
        digest = f"{expected}-{version}".encode()
        return rig.ask(
            lambda: rig.transactions.commit(CommitRequest(txn_id, (change,), ((None, None),), digest, moves))
        ).state

    def place() -> int:
        return rig.decider.state.marks.cursors[rig.table_id, "etl"].version

    won = rig.begin(Operation.INSERT)
    rig.register(won, "won")
    assert commit(won, 2, 4) is TxnState.COMMITTED
    assert place() == 4
    assert commit(won, 2, 4) is TxnState.COMMITTED, "a repeat gets the first answer"
    late = rig.begin(Operation.INSERT)
    rig.register(late, "late")
    head = rig.head
    assert reason_of(lambda: commit(late, 2, 5)) == (ErrorKind.STALE, "CURSOR_MOVED")
    assert (rig.head, place()) == (head, 4)
    rig.overwrite("winner")
    assert commit(late, 4, 5) is TxnState.CONFLICT
    assert place() == 4
    rig.crash()
    assert place() == 4


def test_a_restored_history_refuses_cursors_and_keeps_tags() -> None:
    rig, _ = history()
    rig.tag("a", 3)
    rig.cursor("etl", 2)
    begin_history(rig.store, "another", rig.clock.us)
    rig.start()
    assert rig.ask(lambda: rig.marks.tagged_version(rig.table_id, "a")) == 3
    for call in (lambda: rig.advance("etl", 2, 3), lambda: rig.cursor("etl")):
        assert reason_of(call) == (ErrorKind.STALE, "HISTORY_CHANGED")
    rig.pass_time(HOUR_MS)
    assert rig.oldest == 6, "it holds nothing of this history"
    assert rig.ask(lambda: rig.marks.drop_cursor(rig.table_id, "etl"))
    assert rig.cursor("etl") == 6


def test_tags_and_cursors_go_with_their_table_and_come_back_with_it() -> None:
    rig, paths = history()
    rig.tag("a", 3)
    rig.cursor("etl", 2)
    rig.ask(lambda: rig.catalog.drop(rig.table_id, validate_only=False))
    rig.ask(lambda: rig.catalog.undrop(rig.table_id))
    assert rig.list_files(3) == {paths[3]}
    assert reason_of(lambda: rig.advance("etl", 3, 4)) == (ErrorKind.STALE, "CURSOR_MOVED")
    rig.ask(lambda: rig.catalog.drop(rig.table_id, validate_only=False))
    rig.pass_time(HOUR_MS)
    assert rig.purgeable() == set(paths[1:])
    assert rig.count(keys.TAGS) == rig.count(keys.CURSORS) == 0
    assert not rig.decider.state.marks.tags
    assert not rig.decider.state.marks.cursors


def test_tags_and_cursors_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, _ = history()
    monkeypatch.setattr(limits, "TAGS_PER_TABLE_MAX", 2)
    monkeypatch.setattr(limits, "CURSORS_PER_TABLE_MAX", 1)
    rig.tag("a")
    rig.tag("b")
    rig.tag("b", 5)
    assert reason_of(lambda: rig.tag("c")) == (ErrorKind.BLOCKED, "TOO_MANY_TAGS")
    rig.cursor("c")
    assert reason_of(lambda: rig.cursor("d")) == (ErrorKind.BLOCKED, "TOO_MANY_CURSORS")
    assert [tag.name for tag in rig.ask(lambda: rig.marks.list_tags("", ("", ""), 1))] == ["a"]
    assert [tag.name for tag in rig.ask(lambda: rig.marks.list_tags("", (rig.table_id, "a"), 9))] == ["b"]


def test_a_check_knows_tags_and_cursors() -> None:
    rig, _ = history()
    rig.tag("a", 3)
    rig.cursor("etl", 2)
    rig.pass_time(HOUR_MS)

    def found() -> list[str]:
        progress = StoreCheck(rig.store.cursor(), lambda: None).run()
        return sorted(problem.partition(" ")[0] for said in progress for problem in said.problems)

    assert found() == []
    raw = keys.uuid_bytes(rig.table_id)
    tag, cursor = rig.store.get(keys.tag_key(raw, "a")), rig.store.get(keys.cursor_key(raw, "etl"))
    assert tag is not None
    assert cursor is not None
    planted = Batch()
    planted.put(keys.tag_key(b"\x01" * 16, "a"), tag)
    planted.put(keys.cursor_key(raw, "bad"), b"\xff\xff")
    planted.put(keys.cursor_key(raw, "far"), cursor.replace(b"\x10\x02", b"\x10\x63", 1))
    planted.put(keys.tag_key(raw, "gone"), tag.replace(b"\x10\x03", b"\x10\x01", 1))
    rig.store.write(planted)
    wanted = ["MARK_BEYOND_THE_HEAD", "MARK_WITHOUT_TABLE", "RECORD_UNREADABLE", "TAGGED_VERSION_MISSING"]
    assert found() == wanted
