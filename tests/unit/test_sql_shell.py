"""What `laketx sql` does without Spark: cutting text into statements, and telling of refusals."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laketx.commands.result_rows import distinct
from laketx.commands.sql import failure_of, state_folder
from laketx.commands.sql import given as given_statements
from laketx.commands.sql_text import UnendedError, is_complete, split
from metaservice.cli.failures import CommandError, Exit
from worker.formats.text_values import csv_line

PIECES = [
    "SELECT",
    " ",
    "\n",
    "1",
    ";",
    "'a;b'",
    '"a;b"',
    "`a;b`",
    "'it\\'s;'",
    "r'\\'",
    "-- a;b'\n",
    "/* a;b' /* ; */ */",
]


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("", []),
        (" ;; \n;", []),
        ("-- nothing", []),
        ("/* nothing; */ -- here", []),
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1; SELECT 2 ;", ["SELECT 1", "SELECT 2"]),
        ("SELECT ';', \"a;b\", `c;d`; SELECT 2", ["SELECT ';', \"a;b\", `c;d`", "SELECT 2"]),
        (r"SELECT 'it\'s; one'; SELECT 2", [r"SELECT 'it\'s; one'", "SELECT 2"]),
        ("SELECT 'it''s; one'", ["SELECT 'it''s; one'"]),
        (r"SELECT r'C:\'; SELECT 2", [r"SELECT r'C:\'", "SELECT 2"]),
        ("SELECT 1 -- one; two\n; SELECT 2", ["SELECT 1 -- one; two", "SELECT 2"]),
        ("SELECT /* a; /* b; */ c; */ 1; SELECT 2", ["SELECT /* a; /* b; */ c; */ 1", "SELECT 2"]),
        ("SELECT number'1'", ["SELECT number'1'"]),
    ],
)
def test_text_is_cut_where_a_statement_ends(text: str, statements: list[str]) -> None:
    assert split(text) == statements


@pytest.mark.parametrize("text", ["SELECT 'a", 'SELECT "a', "SELECT `a", "SELECT 1 /* a", "SELECT /* /* */ 1;"])
def test_what_does_not_end_is_refused(text: str) -> None:
    assert not is_complete(text)
    with pytest.raises(UnendedError):
        split(text)
    with pytest.raises(CommandError, match="STATEMENT_UNENDED"):
        given_statements((text,), None)


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        ("-- note", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1; SELECT", False),
        ("SELECT 1; -- end", True),
    ],
)
def test_a_line_runs_when_it_is_complete(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


@given(st.lists(st.sampled_from(PIECES)))
def test_nothing_is_lost_and_each_statement_stays_one(pieces: list[str]) -> None:
    text = " ".join(pieces)
    statements = split(text)
    assert all(split(one) == [one] for one in statements)
    assert split("\n;".join(statements)) == statements
    assert is_complete("".join(f"{one}\n;" for one in statements))
    at = 0
    for one in statements:
        at = text.index(one, at) + len(one)


def test_cells_of_csv_tell_null_from_an_empty_text() -> None:
    assert csv_line(["a", None, "", 'say "so", twice', "two\nlines"]) == 'a,,"","say ""so"", twice","two\nlines"\n'


def test_a_name_that_comes_again_gets_a_number() -> None:
    assert distinct(["a", "A", "a", "a_2", "b"]) == ["a", "A_3", "a_4", "a_2", "b"]


def test_a_refusal_of_spark_has_its_reason_and_no_page_of_java() -> None:
    text = (
        "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 't'. SQLSTATE: 42601 (line 1, pos 14)\n\n"
        "== SQL ==\nSELECT * FORM t\n---^^^\n"
    )
    found = failure_of(text)
    assert (found.reason, found.message) == ("PARSE_SYNTAX_ERROR", "Syntax error at or near 't'. (line 1, pos 14)")
    assert failure_of("KEY_TWICE: the key id=7 stands twice").reason == "KEY_TWICE"
    assert failure_of("something else\n\nJVM stacktrace:\nat x").message == "something else"


def test_a_lost_race_names_the_winner_and_the_way_on() -> None:
    text = (
        "LOST_RACE: UPDATE on shop.orders lost a race\n  winner: DELETE by ana, version 7\n"
        "  rule:   OUTCOME TABLE\n  advice: run it again"
    )
    found = failure_of(text)
    assert found.code is Exit.CONFLICT
    assert found.message == "UPDATE on shop.orders lost a race"
    assert found.facts == {"winner": "DELETE by ana, version 7", "rule": "OUTCOME TABLE"}
    assert found.next_step == "run it again"


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="FILE_UNREADABLE"):
        given_statements((), str(tmp_path / "none.sql"))


def test_history_and_log_are_their_owner_s_alone(tmp_path: Path) -> None:
    folder = state_folder({"XDG_STATE_HOME": str(tmp_path)})
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        "sql_history": 0o600,
        "spark.log": 0o600,
    }
