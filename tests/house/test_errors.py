"""docs/errors.md lists what the code answers: every reason, its kinds, who raises it, and nothing else."""

import re
import textwrap
from collections import Counter
from pathlib import Path

import pytest
from google.rpc import code_pb2

from metaservice.core.errors import ErrorKind
from metaservice.rpc.convert.answers import CODES
from tests.house.tree import ROOT
from tools import gen_errors
from tools.gen_errors import NOT_WRITTEN, Row, fresh_rows, raised_by_code, reasons_of_code, rows_of, sources_of
from tools.reasons import INPUT_MAKERS, collect, collect_java

DOCUMENT = (ROOT / gen_errors.DOCUMENT).read_text(encoding="utf-8")
JAVA = sources_of(ROOT, "worker/", ending=".java")


@pytest.mark.long  # `make check`, which `make test` begins with, looks at it, too
def test_the_page_is_what_the_code_raises() -> None:
    assert gen_errors.document(DOCUMENT, raised_by_code(reasons_of_code())) == DOCUMENT, (
        "run `make docs`, and write what is new"
    )


@pytest.mark.parametrize(("code", "unclear"), [("raise invalid(words[0])", ["words[0]"]), ("raise error", [])])
def test_a_reason_that_the_source_does_not_tell_fails_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], code: str, unclear: list[str]
) -> None:
    for folder in ("docs", "worker"):
        (tmp_path / folder).mkdir()
    (tmp_path / gen_errors.DOCUMENT).write_text(gen_errors.HEAD, encoding="utf-8")
    (tmp_path / "worker" / "m.py").write_text(code, encoding="utf-8")
    assert gen_errors.main(["--check"], tmp_path) == len(unclear)
    assert re.findall(r"\bm.py:1: (.*)", capsys.readouterr().err) == unclear


def test_every_reason_has_words() -> None:
    assert [row.reason for row in rows_of(DOCUMENT) if NOT_WRITTEN in (row.meaning, row.advice)] == []


def test_rows_of_one_reason_are_of_different_raisers() -> None:
    counts = Counter((row.reason, raiser) for row in rows_of(DOCUMENT) for raiser in row.raisers)
    assert [each for each, count in counts.items() if count > 1] == []


def test_every_engine_has_reasons() -> None:
    raised = {(row.reason, raiser) for row in rows_of(DOCUMENT) for raiser in row.raisers}
    assert {
        ("TABLE_DROPPED", "service"),
        ("TLS_FAILED", "client"),
        ("KEY_TWICE", "Python"),
        ("KEY_TWICE", "Spark SQL"),
        ("LOST_RACE", "Spark SQL"),
        ("ICEBERG_TYPE", "Iceberg"),
        ("IMPORT_SCHEMA", "import"),
    } <= raised


@pytest.mark.long  # likewise
def test_reasons_can_be_told_from_the_source() -> None:
    assert [text for reasons in reasons_of_code() for text in reasons.unclear] == [], "give a word or a constant"


def test_javas_exceptions_are_all_found() -> None:
    """A word that a new helper takes as a reason would be none of those of the page."""
    words = {word for text in JAVA.values() for word in re.findall(r'throw \w[\w.]*\(\s*"([A-Z]+_[A-Z_]+)"', text)}
    assert words - collect_java(JAVA).by_module.keys() == set()


@pytest.mark.parametrize("kind", ErrorKind, ids=lambda kind: kind.name)
def test_every_kind_is_documented(kind: ErrorKind) -> None:
    status = code_pb2.Code.Name(CODES[kind])
    assert re.search(rf"^\| {kind.name} \| {status}\b.* \| {kind.value}\b", DOCUMENT, re.MULTILINE)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("raise invalid('A_WORD', 'Not this')", {"A_WORD": {"INVALID"}}),
        ("LOCKED = 'IS_LOCKED'\nraise StoreUnusable(LOCKED, x='NOT_THIS')", {"IS_LOCKED": {"CORRUPT"}}),
        (
            "raise MetaError(ErrorKind.GONE, 'OLD_ONE' if x == 'NOT_ME' else 'ELDER')",
            {"OLD_ONE": {"GONE"}, "ELDER": {"GONE"}},
        ),
        ("def f(a, reason): raise m.MetaError(ErrorKind.STALE, reason)\nf(1, 'FROM_AFAR')", {"FROM_AFAR": {"STALE"}}),
        ("class Bad(StoreUnusable): ...\nraise Bad('HEIR_LOST')", {"HEIR_LOST": {"CORRUPT"}}),
        ("def f():\n    kind = ErrorKind.GONE\n    raise MetaError(kind, reason=f'RPC_{x}')", {"RPC_": {"GONE"}}),
    ],
)
def test_what_counts_as_a_reason(code: str, expected: dict[str, set[str]]) -> None:
    assert collect({"m": textwrap.dedent(code)}).kinds == expected


def test_what_counts_as_a_reason_of_an_input_error() -> None:
    code = "def refuse(reason): raise InputError(reason, '')\nrefuse('FROM_AFAR')\nraise InputError(words[0], '')"
    reasons = collect({"m": code}, INPUT_MAKERS)
    assert reasons.kinds == {"FROM_AFAR": set()}
    assert reasons.unclear == ["m:3: words[0]"]


def test_what_counts_as_a_reason_in_java() -> None:
    code = """
      static final String WORD = "FROM_A_CONSTANT";
      throw LakeException.invalid(
          "A_WORD", "not THIS_ONE");
      files.refuse(Other.WORD, text);
      SqlTransaction.refuse("CREATE TABLE");
      throw new LakeException(ErrorKind.ERROR_KIND_BLOCKED, "A_KIND", text);
    """
    kinds = {"A_WORD": {"INVALID"}, "FROM_A_CONSTANT": {"INVALID"}, "A_KIND": {"BLOCKED"}}
    assert collect_java({"m": code}).kinds == kinds


def test_what_cannot_be_told() -> None:
    assert collect({"m": "raise invalid(words[0])"}).unclear == ["m:1: words[0]"]
    assert collect({"m": "raise MetaError(error.kind, error.reason)"}).unclear == []


def test_new_rows_gone_rows_and_rows_that_share_a_reason() -> None:
    invalid, none = frozenset({"INVALID"}), frozenset[str]()
    rows = [
        Row("GONE_NOW", invalid, ("service",), "a", "b"),
        Row("SHARED_ONE", invalid, ("service",), "c", "d"),
        Row("SHARED_ONE", none, ("Python", "import"), "e", "f"),
    ]
    shared = {"service": invalid, "Python": none, "Spark SQL": invalid}
    raised = {"A_NEW_ONE": {"client": invalid}, "SHARED_ONE": shared}
    assert [str(row) for row in fresh_rows(rows, raised)] == [
        "| `A_NEW_ONE` | INVALID | client | … | … |\n",
        "| `SHARED_ONE` | INVALID | service | c | d |\n",
        "| `SHARED_ONE` | none | Python | e | f |\n",
        "| `SHARED_ONE` | INVALID | Spark SQL | … | … |\n",
    ]
