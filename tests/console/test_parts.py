"""The console's pure parts: checks, geometry, local paths, sessions."""

from __future__ import annotations

from typing import Any

import pytest

from protos.laketx.v1 import admin_pb2, common_pb2, read_pb2, transaction_pb2
from worker.console.charts import heat, nice_top, paired_bars, scaled, stacked_bars
from worker.console.checks import Work, check_all, score
from worker.console.guard import local_path
from worker.console.home import COMMITTED, LOST, MINUTE_US, last_hour
from worker.console.race_rules import rules_of
from worker.console.races import HOUR_US, HOURS, Waste, bars_of, heat_map, wasted
from worker.console.sessions import SESSIONS_MAX, UNUSED_S, WHOLE_S, OwnerKey, Sessions
from worker.console.snippets import shell_word
from worker.console.timeline import lanes_of

NOW_US = 1_800_000_000_000_000
HOUR_MS = 3_600_000


def healthy() -> admin_pb2.GetStatusResponse:
    return admin_pb2.GetStatusResponse(free_bytes=10, reserve_bytes=1, workers=0)


def failing(status: admin_pb2.GetStatusResponse, **work: int) -> list[str]:
    facts = {"failed_tasks": 0, "oldest_pin_ms": 0, "oldest_cursor_ms": 0, "ended": 0, "lost": 0} | work
    return [check.name for check in check_all(status, Work(**facts), NOW_US) if not check.is_good]


def test_a_service_without_work_is_well() -> None:
    assert failing(healthy()) == []
    assert score(check_all(healthy(), Work(0, 0, 0, 0, 0), NOW_US)) == 100


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"read_only_reason": "the disk is full"}, "Takes work"),
        ({"free_bytes": 2}, "Has room"),
        ({"clock_hold_reason": "it jumped"}, "Trusts the clock"),
        ({"commit_times_ahead_ms": 61_000}, "Commit times are right"),
        ({"purge_hold_reason": "restored"}, "Purge may run"),
        ({"oldest_open_begin_time_us": NOW_US - 7 * HOUR_MS * 1_000}, "No transaction is open for long"),
        ({"tasks_queued": 1}, "Tasks have a worker"),
        ({"quotas": [admin_pb2.QuotaUse(quota="pins", used=91, limit=100)]}, "Quotas have room"),
        ({"backup": admin_pb2.BackupStatus(repository="s3://b", failures=1, error="no")}, "Backups are made"),
        ({"backup": admin_pb2.BackupStatus(repository="s3://b", verify_problem="torn")}, "Backups can be restored"),
    ],
)
def test_each_condition_fails_its_check(fields: dict[str, Any], name: str) -> None:
    status = healthy()
    status.MergeFrom(admin_pb2.GetStatusResponse(**fields))
    assert failing(status) == [name]


@pytest.mark.parametrize(
    ("work", "name"),
    [
        ({"failed_tasks": 1}, "Tasks succeed"),
        ({"oldest_pin_ms": 25 * HOUR_MS}, "No pin is held for long"),
        ({"oldest_cursor_ms": 73 * HOUR_MS}, "No cursor is forgotten"),
        ({"ended": 10, "lost": 6}, "Few races are lost"),
    ],
)
def test_work_that_waits_fails_its_check(work: dict[str, int], name: str) -> None:
    assert failing(healthy(), **work) == [name]


def test_a_service_of_several_needs_a_leader_and_a_standby() -> None:
    status = healthy()
    status.role, status.leader = "leader", "a:7070"
    assert failing(status) == ["Has a standby"]
    status.standbys.add(address="b:7070", alive=True)
    assert failing(status) == []
    status.lease_age_ms = 5_000
    assert failing(status) == ["Has a leader"]


def test_transactions_are_counted_by_the_minute_of_their_end() -> None:
    ends = [(NOW_US, COMMITTED), (NOW_US, LOST), (NOW_US - 59 * MINUTE_US, COMMITTED), (NOW_US - 61 * MINUTE_US, LOST)]
    txns = [transaction_pb2.Transaction(state=state, end_time_us=end_us) for end_us, state in ends]
    hour = last_hour(txns, NOW_US, is_whole=True)
    assert (hour.committed[0], hour.committed[-1], sum(hour.committed)) == (1, 1, 2)
    assert (hour.lost[-1], sum(hour.lost)) == (1, 1)


def test_axes_end_at_round_numbers() -> None:
    assert [nice_top(highest) for highest in (0, 1, 7, 9, 21, 99, 1_001)] == [1, 1, 8, 10, 30, 100, 2_000]
    assert scaled(5, 0, 10, 100) == 50
    assert scaled(5, 5, 5, 100) == 50
    assert [heat(count, 9) for count in (0, 1, 5, 9)] == [0, 1, 3, 5]


def test_bars_stand_on_each_other() -> None:
    bars, top = stacked_bars([("a", [("committed", 3), ("lost", 1)]), ("b", [("committed", 0), ("lost", 0)])])
    assert top == 4
    assert [(bar.kind, bar.y + bar.height) for bar in bars] == [("committed", 160), ("lost", 40)]


def test_input_stands_beside_output() -> None:
    bars, top = paired_bars([("first", 8, 1), ("second", 4, 0)], ("input", "output"))
    assert top == 8
    assert [(bar.kind, bar.height) for bar in bars] == [("input", 160), ("output", 20), ("input", 80), ("output", 0)]
    assert [bar.x for bar in bars] == sorted(bar.x for bar in bars)
    assert bars[0].x + bars[0].width <= bars[1].x


def test_wasted_work_is_of_the_hour_in_which_it_was_lost() -> None:
    def lost(ended_us: int, open_s: int, files: int, adopted_by: str = "") -> transaction_pb2.Transaction:
        return transaction_pb2.Transaction(
            begin_time_us=ended_us - open_s * 1_000_000,
            end_time_us=ended_us,
            registered_files=1,
            adopted_by=adopted_by,
            lost=transaction_pb2.WrittenFiles(files=files, rows=10 * files, bytes=100 * files),
        )

    ends = [(NOW_US, 90, 2, ""), (NOW_US, 10, 5, "another"), (NOW_US - 23 * HOUR_US, 1, 1, "")]
    hours = wasted([*(lost(*each) for each in ends), lost(NOW_US - 25 * HOUR_US, 9, 9)], NOW_US)
    assert len(hours) == HOURS
    assert hours[-1] == Waste(hours[-1].name, 2, 100, 2, 20, 200), "adopted files are not lost"
    assert hours[0] == Waste(hours[0].name, 1, 1, 1, 10, 100)
    assert sum(hour.count for hour in hours) == 3
    uncounted = transaction_pb2.Transaction(begin_time_us=NOW_US, end_time_us=NOW_US, registered_files=3)
    assert wasted([uncounted], NOW_US)[-1].files == 3, "it lost before the service counted what it had written"


def test_races_are_counted_by_pair() -> None:
    insert, update = common_pb2.OPERATION_INSERT, common_pb2.OPERATION_UPDATE
    pairs = [(insert, insert), (update, insert), (update, insert)]
    counts = heat_map([common_pb2.Conflict(operation=loser, winner_operation=winner) for loser, winner in pairs])
    assert [[cell.count for cell in row] for row in counts.rows] == [[1], [2]]


@pytest.mark.parametrize(
    ("rule", "profile", "cell", "lit"),
    [
        ("OUTCOME_TABLE", "maxcompute", (1, 2), ["OUTCOME_TABLE"]),
        ("OUTCOME_TABLE", "row_level", (1, 2), ["OUTCOME_TABLE"]),  # its profile was changed since
        ("CONCURRENT_APPEND", "delta_serializable", None, ["CONCURRENT_APPEND"]),
        ("CONCURRENT_ROW_CHANGE", "row_level", (1, 2), ["CONCURRENT_ROW_CHANGE"]),
        ("METADATA_CHANGED", "", None, ["METADATA_CHANGED"]),
    ],
)
def test_the_rule_of_a_race_is_lit(rule: str, profile: str, cell: tuple[int, int] | None, lit: list[str]) -> None:
    conflict = common_pb2.Conflict(
        rule=common_pb2.ConflictRule.Value(f"CONFLICT_RULE_{rule}"),
        operation=common_pb2.OPERATION_UPDATE,
        winner_operation=common_pb2.OPERATION_INSERT,
    )
    rules = rules_of(conflict, profile)
    assert (rules.pairs and (rules.pairs.row, rules.pairs.column)) == cell
    assert [each.name for each in rules.rules if each.is_lit] == lit
    if rule == "OUTCOME_TABLE":
        assert rules.pairs is not None
        assert rules.pairs.outcomes[1][2] == "conflict"


def test_a_race_has_both_on_one_axis() -> None:
    conflict = common_pb2.Conflict(winner_commit_time_us=150)
    loser = transaction_pb2.Transaction(begin_time_us=100, end_time_us=200, conflict=conflict)
    lost, won = bars_of(loser, transaction_pb2.Transaction(begin_time_us=125))
    assert (lost.width, won.width) == (864, 216)
    assert bars_of(loser, None)[1].width == 3


def test_versions_are_on_the_lane_of_their_kind() -> None:
    versions = [
        read_pb2.Version(version=2, operation=common_pb2.OPERATION_MINOR_COMPACT, commit_time_us=30),
        read_pb2.Version(version=1, operation=common_pb2.OPERATION_INSERT, commit_time_us=20, time_version_us=20),
        read_pb2.Version(version=0, operation=common_pb2.OPERATION_CREATE, commit_time_us=10),
    ]
    lanes = lanes_of("t", versions)
    assert [mark.kind for mark in lanes.marks] == ["altered", "logical", "service"]
    assert (lanes.logical, lanes.services) == (1, 1)
    assert lanes_of("t", []).marks == []


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/tables?q=a&namespace=b", "/tables?q=a&namespace=b"),
        ("", "/"),
        ("tables", "/"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/\t/evil.example", "/"),
        ("https://evil.example", "/"),
        ("/\u0661", "/"),
    ],
)
def test_only_paths_of_this_server_are_gone_on_to(text: str, path: str) -> None:
    assert local_path(text) == path


def test_words_of_a_shell_are_quoted() -> None:
    assert shell_word("shop.orders@etl") == "shop.orders@etl"
    assert shell_word("a'b; rm -rf /") == "'a'\\''b; rm -rf /'"


def test_sessions_end_by_time_and_by_number() -> None:
    now_s = 0.0
    sessions = Sessions(lambda: now_s, "console", is_secure=True)
    first = sessions.begin("token", "ana")
    assert sessions.cookie == "__Host-console"
    assert "; Secure" in sessions.cookie_of(first)
    now_s = UNUSED_S - 1
    assert sessions.find(first) is not None
    now_s += UNUSED_S + 1
    assert sessions.find(first) is None
    second = sessions.begin("token", "ana")
    for _ in range(10):
        now_s += WHOLE_S / 10 + 1
        sessions.find(second)
    assert sessions.find(second) is None, "a session that is used ends, too"
    third = sessions.begin("token", "ana")
    for _ in range(SESSIONS_MAX):
        sessions.begin("token", "bob")
    assert sessions.find(third) is None


def test_the_id_of_the_login_form_opens_no_session() -> None:
    sessions = Sessions(lambda: 0.0, "console", is_secure=False)
    session_id = sessions.begin("token", "ana")
    value = sessions.form_cookie_of(session_id).partition("=")[2].partition(";")[0]
    assert sessions.read_form_id({"console_form": value}) == session_id
    assert sessions.read_id({"console": value}) == "", "each cookie is signed for its own name"


def test_the_key_of_the_owner_is_taken_once() -> None:
    key = OwnerKey()
    first = key.text
    assert [key.take(text) for text in ("", "x", first, first)] == [False, False, True, False]
    assert key.text != first
