"""Fills in docs/errors.md what the code knows of each reason: its kinds, and who raises it. `--check` compares instead.

A call whose reason the source doesn't tell is a failure: the page would lack it.

The page's own are the columns with the meaning and the next step. A reason has one row, or several where those who
raise it mean different things: then each row names its own.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from metaservice.core.errors import ErrorKind
from tools.generated import wants_check, write_or_check
from tools.reasons import INPUT_MAKERS, KINDS, Reasons, collect, collect_java
from tools.wire import ROOT

DOCUMENT: Final = "docs/errors.md"
HEAD: Final = "| reason | kind | raised by | what it means | what to do |\n| --- | --- | --- | --- | --- |\n"
TABLE: Final = re.compile(rf"(?<={re.escape(HEAD)})(?:\| .*\n)*")
ROW: Final = re.compile(r"\| `([A-Z0-9_]+)…?` \| ([^|]*) \| ([^|]*) \| ([^|]+) \| ([^|]+) \|")
PREFIX: Final = "RPC_"  # a status code follows: one row has them all
RAISERS: Final[Mapping[str, str]] = {  # by folder; the first that fits
    "metaservice/cli/": "",  # it shows what others raise
    "metaservice/client/": "client",
    "metaservice/": "service",
    "worker/spark_catalog/": "Spark SQL",
    "worker/iceberg/": "Iceberg",
    "worker/imports/": "import",
    "worker/": "Python",
    "laketx/": "Python",
}
OTHERS: Final = ("worker/iceberg/", "worker/imports/")  # what they raise is answered as Iceberg's, or has no kind
ORDER: Final = ("service", "client", "Python", "Spark SQL", "Iceberg", "import")
NO_KIND: Final = "none"
NOT_WRITTEN: Final = "…"

Raised = Mapping[str, Mapping[str, frozenset[str]]]  # the kinds, by reason and who raises it


@dataclass(frozen=True)
class Row:
    """A row of the table: what the code knows, and the page's own words."""

    reason: str
    kinds: frozenset[str]
    raisers: tuple[str, ...]
    meaning: str
    advice: str

    def __str__(self) -> str:
        reason = f"{self.reason}…" if self.reason == PREFIX else self.reason
        kinds = ", ".join(kind.name for kind in ErrorKind if kind.name in self.kinds) or NO_KIND
        return f"| `{reason}` | {kinds} | {', '.join(self.raisers)} | {self.meaning} | {self.advice} |\n"


def rows_of(page: str) -> list[Row]:
    """Return the rows of a page; a line that is none is a ValueError."""
    table = TABLE.search(page)
    if table is None:
        raise ValueError(f"{DOCUMENT} has no table with the head {HEAD}")
    return [_row(line) for line in table[0].splitlines()]


def _row(line: str) -> Row:
    match = ROW.fullmatch(line)
    if match is None:
        raise ValueError(f"a row is | `REASON` | KIND | raised by | what it means | what to do |, and not {line}")
    reason, kinds, raisers, meaning, advice = match.groups()
    return Row(reason, frozenset(kinds.split(", ")) & KINDS, tuple(raisers.split(", ")), meaning, advice)


@cache
def reasons_of_code(root: Path = ROOT) -> tuple[Reasons, Reasons, Reasons]:
    """Return the reasons of refusals with a kind, of Python's own refusals, and of Java's."""
    own = sources_of(root, "metaservice/", "worker/", "laketx/")
    refusals = collect({name: text for name, text in own.items() if not name.startswith(OTHERS)})
    inputs = collect(sources_of(root, "worker/", "laketx/"), INPUT_MAKERS)
    return refusals, inputs, collect_java(sources_of(root, "worker/", ending=".java"))


def sources_of(root: Path, *folders: str, ending: str = ".py") -> dict[str, str]:
    """Return the texts of modules by their path, without those that a build left."""
    paths = (path for folder in folders for path in sorted((root / folder).rglob(f"*{ending}")))
    names = {path.relative_to(root).as_posix(): path for path in paths if "target" not in path.parts}
    return {name: path.read_text(encoding="utf-8") for name, path in names.items()}


def raised_by_code(code: Iterable[Reasons]) -> Raised:
    """Return who raises which reason, with which kinds; all kinds mean that the source doesn't tell."""
    raised: dict[str, dict[str, frozenset[str]]] = {}
    for reasons in code:
        for reason, raiser, kinds in _by_raiser(reasons):
            raisers = raised.setdefault(PREFIX if reason.startswith(PREFIX) else reason, {})
            raisers[raiser] = raisers.get(raiser, frozenset()) | kinds
    return raised


def _by_raiser(reasons: Reasons) -> Iterator[tuple[str, str, frozenset[str]]]:
    for reason, modules in reasons.by_module.items():
        for module, kinds in modules.items():
            raiser = next(name for folder, name in RAISERS.items() if module.startswith(folder))
            if raiser:
                yield reason, raiser, frozenset(kinds)


def fresh_rows(rows: Sequence[Row], raised: Raised) -> list[Row]:
    """Return the rows as the code has them: none for a reason that nobody raises, an unwritten one for a new reason."""
    fresh = []
    for reason in sorted(raised):
        known = [row for row in rows if row.reason == reason]
        if len(known) <= 1:
            words = (known[0].meaning, known[0].advice) if known else (NOT_WRITTEN, NOT_WRITTEN)
            fresh.append(_fresh_row(reason, raised[reason], known, *words))
            continue
        left = dict(raised[reason])
        for row in known:
            own = {raiser: left.pop(raiser) for raiser in row.raisers if raiser in left}
            if own:
                fresh.append(_fresh_row(reason, own, [row], row.meaning, row.advice))
        if left:
            fresh.append(_fresh_row(reason, left, [], NOT_WRITTEN, NOT_WRITTEN))
    return fresh


def _fresh_row(
    reason: str, raisers: Mapping[str, frozenset[str]], known: Sequence[Row], meaning: str, advice: str
) -> Row:
    kinds = frozenset[str]().union(*raisers.values())
    if kinds == KINDS and known:
        kinds = known[0].kinds  # the source doesn't tell
    return Row(reason, kinds, tuple(name for name in ORDER if name in raisers), meaning, advice)


def document(page: str, raised: Raised) -> str:
    rows = "".join(map(str, fresh_rows(rows_of(page), raised)))
    return TABLE.sub(lambda _: rows, page, count=1)


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    check = wants_check(arguments, __doc__)
    page = (root / DOCUMENT).read_text(encoding="utf-8")
    code = reasons_of_code(root)
    unclear = [text for reasons in code for text in reasons.unclear]
    for text in unclear:
        print(f"the source doesn't tell this reason: give a word or a constant: {text}", file=sys.stderr)
    return write_or_check({DOCUMENT: document(page, raised_by_code(code))}, root, check=check) or int(bool(unclear))


if __name__ == "__main__":
    sys.exit(main())
