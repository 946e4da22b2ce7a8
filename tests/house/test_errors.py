"""docs/errors.md lists what the code answers: every reason, with the kinds that it has there, and nothing else."""

import re
import textwrap

import pytest
from google.rpc import code_pb2

from metaservice.core.errors import ErrorKind
from metaservice.rpc.convert.answers import CODES
from tests.house.reasons import KINDS, collect
from tests.house.tree import ROOT, list_files, name_of

DOCUMENT = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
ROW = re.compile(r"\| `(?P<reason>[A-Z0-9_]+)(?P<more>…?)` \| (?P<kinds>[A-Z_, ]+) \| [^|]+ \| [^|]+ \|")
SOURCES = [path for path in list_files(".py") if name_of(path).startswith(("metaservice/", "worker/"))]
FOUND = collect({name_of(path): path.read_text(encoding="utf-8") for path in SOURCES})


def rows() -> dict[str, set[str]]:
    section = DOCUMENT.split("\n## Reasons\n")[1].split("\n## ")[0]
    found: dict[str, set[str]] = {}
    for line in section.splitlines():
        if line.startswith("| `"):
            match = ROW.fullmatch(line)
            assert match is not None, f"a row is `| `REASON` | KIND | what it means | what to do |`, and not {line}"
            assert match["reason"] not in found, f"{match['reason']} stands there twice"
            found[match["reason"]] = set(match["kinds"].split(", "))
    return found


def documented(reason: str) -> str:
    """The row that a reason has; `RPC_UNKNOWN` has that of `RPC_…`."""
    return "RPC_" if reason.startswith("RPC_") else reason


def row_to_add(reason: str, kinds: set[str]) -> str:
    kind = ", ".join(sorted(kinds)) if kinds != KINDS else "KIND"
    return f"| `{reason}` | {kind} | what it means | what to do |"


def test_every_reason_is_documented() -> None:
    known = rows()
    missing = [row_to_add(*each) for each in sorted(FOUND.kinds.items()) if documented(each[0]) not in known]
    assert missing == [], "add to docs/errors.md, in alphabetical order:\n" + "\n".join(missing)


def test_reasons_are_in_alphabetical_order() -> None:
    assert list(rows()) == sorted(rows())


def test_every_documented_reason_is_answered() -> None:
    gone = sorted(rows().keys() - FOUND.kinds.keys())
    assert gone == [], f"no code answers these: remove their rows from docs/errors.md: {gone}"


def test_documented_kinds_are_those_of_the_code() -> None:
    wrong = {reason: kinds for reason, kinds in rows().items() if not kinds <= FOUND.kinds.get(reason, KINDS)}
    assert wrong == {}, f"the code answers {[(reason, sorted(FOUND.kinds[reason])) for reason in wrong]}"


def test_reasons_can_be_told_from_the_source() -> None:
    assert FOUND.unclear == [], "give the reason as a word or a constant"


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


def test_what_cannot_be_told() -> None:
    assert collect({"m": "raise invalid(words[0])"}).unclear == ["m:1: words[0]"]
    assert collect({"m": "raise MetaError(error.kind, error.reason)"}).unclear == []
