"""docs/python.md lists every reason of an InputError that workers, Iceberg's side and imports raise, and no other."""

import re

from tests.house.reasons import Maker, collect
from tests.house.tree import ROOT, list_files, name_of

MAKERS = {"InputError": Maker(0, frozenset())}
ROW = re.compile(r"\| `([A-Z0-9_]+)` \| [^|]+ \| [^|]+ \|")
SOURCES = [path for path in list_files(".py") if name_of(path).startswith(("worker/", "iceberg/", "imports/"))]
FOUND = collect({name_of(path): path.read_text(encoding="utf-8") for path in SOURCES}, MAKERS)


def documented() -> list[str]:
    document = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    section = document.split("\n### Reasons of InputError\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    found = [ROW.fullmatch(line) for line in rows]
    assert all(found), "a row is `| `REASON` | what it means | what to do |`"
    return [match[1] for match in found if match is not None]


def test_the_worker_has_reasons() -> None:
    assert {"ORDER_MISSING", "NULL_NOT_ALLOWED", "KEY_TWICE"} <= FOUND.kinds.keys()


def test_every_reason_is_documented_and_every_documented_one_is_raised() -> None:
    assert set(documented()) == FOUND.kinds.keys()


def test_reasons_are_in_alphabetical_order_each_once() -> None:
    assert documented() == sorted(set(documented()))


def test_reasons_can_be_told_from_the_source() -> None:
    assert FOUND.unclear == [], "give the reason as a word or a constant"


def test_a_reason_that_is_passed_on_is_found() -> None:
    code = "def refuse(reason): raise InputError(reason, '')\nrefuse('FROM_AFAR')\nraise InputError(words[0], '')"
    found = collect({"m": code}, MAKERS)
    assert found.kinds.keys() == {"FROM_AFAR"}
    assert found.unclear == ["m:3: words[0]"]
