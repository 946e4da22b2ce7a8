"""Histories made by hand: the checker finds what is wrong, and nothing in what is right."""

import pytest

from tests.histories.checker import violations
from tests.histories.history import (
    INSERT,
    OVERWRITE,
    ROWS,
    Answer,
    History,
    Image,
    Logged,
    Looked,
    Part,
    Row,
    Search,
    Txn,
)
from tests.histories.serial import Edge, cycles

SERIAL = ("delta_serializable", "delta_write_serializable", "row_level")
X, Y = ("1", "x"), ("2", "y")
ALL = (Search(),)


class Story:
    """Tables a and b; version 1 of each holds x."""

    def __init__(self, profile: str = "delta_serializable") -> None:
        self.history = History(profile, logs={"a": [Logged(0, "", 1)], "b": [Logged(0, "", 1)]})
        self.time_us = 1
        self.commit("t0", insert("a", {X: ("t0", 1)}), insert("b", {X: ("t0", 1)}))

    def commit(self, txn_id: str, *parts: Part) -> Txn:
        self.time_us += 1
        txn = self.history.txns[txn_id] = Txn(txn_id, {part.table: part for part in parts})
        versions = []
        for part in parts:
            log = self.history.logs[part.table]
            versions.append((part.table, len(log)))
            log.append(Logged(len(log), txn_id, self.time_us))
        txn.answers.append(Answer(True, tuple(versions), self.time_us))
        txn.told_s = float(self.time_us)
        for part in parts:
            part.asked_s = part.asked_s or -1.0
        return txn

    def found(self) -> str:
        return "; ".join(violations(self.history))


def insert(table: str, puts: dict[Row, Image], read: int = 0, searches: tuple[Search, ...] = ()) -> Part:
    return Part(table, INSERT, read, searches, puts=puts)


def update(table: str, hides: dict[Row, Image], puts: dict[Row, Image], searches: tuple[Search, ...] = ALL) -> Part:
    return Part(table, ROWS, 1, searches, hides, puts)


def only_reads(table: str, searches: tuple[Search, ...] = ALL) -> Part:
    return Part(table, ROWS, 1, searches)


@pytest.mark.parametrize("profile", [*SERIAL, "maxcompute"])
def test_one_after_the_other_is_right(profile: str) -> None:
    story = Story(profile)
    story.commit("t1", update("a", {X: ("t0", 1)}, {X: ("t1", 2)}))
    late = update("a", {X: ("t1", 2)}, {X: ("t2", 3)})
    late.read_version = 2
    story.commit("t2", late)
    assert story.found() == ""


@pytest.mark.parametrize("profile", [*SERIAL, "maxcompute"])
@pytest.mark.parametrize("puts", [{}, {X: ("t2", 3)}])
def test_a_lost_update_is_found(profile: str, puts: dict[Row, Image]) -> None:
    """Also where both only delete."""
    story = Story(profile)
    story.commit("t1", update("a", {X: ("t0", 1)}, {X: ("t1", 2)} if puts else {}))
    story.commit("t2", update("a", {X: ("t0", 1)}, puts))
    assert ("lost update" if profile == "maxcompute" else "no serial order") in story.found()


@pytest.mark.parametrize("profile", SERIAL)
def test_write_skew_over_two_tables_is_found(profile: str) -> None:
    story = Story(profile)
    story.commit("t1", only_reads("a"), update("b", {X: ("t0", 1)}, {X: ("t1", 2)}))
    story.commit("t2", update("a", {X: ("t0", 1)}, {X: ("t2", 2)}), only_reads("b"))
    assert "rw a 1/x" in story.found()
    assert "rw b 1/x" in story.found()


@pytest.mark.parametrize("profile", SERIAL)
def test_phantoms_are_found_where_searches_may_see_them(profile: str) -> None:
    for searches, wrong in ((ALL, True), ((Search("1", 0, 9),), False), ((Search(None, 5, 9),), False)):
        story = Story(profile)
        story.commit("t1", insert("a", {Y: ("t1", 2)}, 1, searches))
        story.commit("t2", insert("a", {("2", "z"): ("t2", 2)}, 1, searches))
        assert ("no serial order" in story.found()) == wrong


def test_a_blind_append_may_be_overlooked_under_write_serializable_alone() -> None:
    for profile in SERIAL:
        story = Story(profile)
        story.commit("t1", insert("a", {Y: ("t1", 2)}, 1))
        later = update("b", {X: ("t0", 1)}, {X: ("t2", 2)}, ())
        reads = only_reads("a")
        reads.read_version = 2
        story.commit("t2", reads, later)
        again = update("b", {X: ("t2", 2)}, {X: ("t3", 2)})
        again.read_version = 2
        story.commit("t3", only_reads("a"), again)
        assert ("no serial order" in story.found()) == (profile != "delta_write_serializable"), profile


def test_readers_have_no_place_in_the_order_of_writers() -> None:
    story = Story("row_level")
    story.commit("t1", insert("a", {Y: ("t1", 2)}, 1), insert("b", {Y: ("t1", 2)}, 1))
    seen = only_reads("b")
    seen.read_version = 2
    story.commit("t2", only_reads("a"), seen)
    assert story.found() == ""


def test_under_maxcompute_an_overwrite_may_follow_anything_and_an_update_no_update() -> None:
    story = Story("maxcompute")
    story.commit("t1", update("a", {X: ("t0", 1)}, {X: ("t1", 2)}))
    story.commit("t2", Part("a", OVERWRITE, 1, ALL, scope=frozenset({"1"})))
    assert story.found() == ""
    story.commit("t3", update("a", {}, {}, (Search("1"),)))
    assert "t3 (UPDATE_DELETE) follows t1 (UPDATE_DELETE) in a ['1']" in story.found()


def test_a_stale_read_is_found() -> None:
    story = Story()
    txn = story.commit("t1", insert("a", {Y: ("t1", 2)}))
    stale = only_reads("a")
    stale.asked_s = txn.told_s + 0.1
    story.commit("t2", stale)
    assert "t2 read version 1 of a after version 2 was answered" in story.found()


def test_gaps_and_times_that_go_back_are_found() -> None:
    story = Story()
    story.history.logs["a"][1] = Logged(2, "t0", 2)
    assert "gap in the versions of a" in story.found()
    story = Story()
    story.history.logs["a"][1] = Logged(1, "t0", 1)
    assert "a version 1 is not later than the one before it" in story.found()
    assert "t0 has two times" in story.found()


def test_a_second_answer_that_differs_is_found() -> None:
    story = Story()
    story.history.txns["t0"].answers.append(Answer(False, rule="OUTCOME_TABLE"))
    assert "t0 got different answers" in story.found()


def test_who_was_refused_is_not_in_the_log_and_who_committed_is_there_whole() -> None:
    story = Story()
    story.history.txns["t0"].answers[:] = [Answer(False)]
    assert "t0 was told that it lost, and is in the log" in story.found()
    story = Story()
    story.history.logs["b"].pop()
    assert "t0 is in the log of ['a'], and changes ['a', 'b']" in story.found()
    assert "t0 was told {'a': 1, 'b': 1}, the log has {'a': 1}" in story.found()
    story = Story()
    story.history.logs["a"].append(Logged(2, "t0", 3))
    assert "t0 committed twice to a" in story.found()


def test_an_answered_time_keeps_its_version() -> None:
    story = Story()
    story.history.looks.append(Looked("a", 5, 1))
    assert story.found() == ""
    story.commit("t1", insert("a", {Y: ("t1", 2)}))
    assert "a at 5 was answered as version 1, and is 2" in story.found()


def test_files_that_show_other_rows_than_were_written_are_found() -> None:
    story = Story()
    story.history.shown["a", 1] = {X: ("t0", 1)}
    assert story.found() == ""
    story.history.shown["a", 1] = {}
    assert "a version 1 (t0) shows other rows than were written" in story.found()


def test_a_loser_names_a_winner_since_its_read_version() -> None:
    story = Story()
    lost = Txn("t1", {"a": only_reads("a")}, [Answer(False, rule="CONCURRENT_APPEND", winner=("a", 1))])
    lost.parts["a"].asked_s = -1.0
    story.history.txns["t1"] = lost
    assert "t1 lost to version 1 of a, which is none since its read version" in story.found()


def test_each_knot_gives_one_short_cycle() -> None:
    ways = [("a", "b"), ("b", "c"), ("c", "a"), ("b", "a"), ("c", "d"), ("d", "e"), ("e", "d")]
    found = list(cycles([Edge(one, other, "ww", "t", X) for one, other in ways]))
    assert sorted(sorted(edge.before for edge in cycle) for cycle in found) == [["a", "b"], ["d", "e"]]
