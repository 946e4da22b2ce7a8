"""Writes the tables of docs/iceberg.md about readers from the results of the last `make iceberg-matrix`.

`--check` compares instead of writing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.iceberg.engines.environment import ICEBERG
from tests.iceberg.matrix.results import Tried, saved
from tests.iceberg.matrix.tables import KINDS, STATES
from tools.generated import fill, table, wants_check, write_or_check
from tools.wire import ROOT

DOCUMENT: Final = "docs/iceberg.md"
NAMES: Final[Mapping[str, str]] = {
    "pyiceberg": "pyiceberg {}",
    "polars": "polars {}",
    "duckdb": "DuckDB {} with its extension `iceberg`",
    "spark": f"Spark {{}} with Iceberg {ICEBERG}",
    "daft": "daft {}",
    "chdb": "chdb {}, over exports",
}
TABLES: Final[Mapping[str, str]] = {"append": "append tables", "keyed": "primary-key tables"}


def readers() -> str:
    """What each engine read."""
    found = {(one.engine, one.form): one for one in saved()}
    engines = list(dict.fromkeys(engine for engine, _ in found))
    rows = [
        (NAMES[one].format(found[one, 3].version), *(right(found[one, form]) for form in (3, 2))) for one in engines
    ]
    return table(("reader", "format 3", "format 2"), rows)


def right(one: Tried) -> str:
    return "all right" if not one.failures else f"{one.reads - len(one.failures)} of {one.reads} right"


def failures() -> str:
    """What each engine can't read, and what it says."""
    rows = []
    for one in saved():
        by_words: dict[str, set[tuple[str, str]]] = {}
        for each in one.failures:
            by_words.setdefault(each.wrong, set()).add((each.kind, each.state))
        rows += [
            (f"{one.engine}, format {one.form}", tables_of(where), f"`{plain(words)}`")
            for words, where in sorted(by_words.items())
        ]
    return table(("reader", "tables", "it says"), rows)


def plain(words: str) -> str:
    """Within a cell, between backticks."""
    return words.replace("`", "'").replace("|", "/")


def tables_of(where: set[tuple[str, str]]) -> str:
    parts = []
    for kind in KINDS:
        states = [state for state in STATES if (kind, state) in where]
        if states:
            parts.append(f"{TABLES[kind]}: {', '.join(states)}")
    return "; ".join(parts)


BLOCKS: Final[Mapping[str, Callable[[], str]]] = {"iceberg-readers": readers, "iceberg-failures": failures}


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    text = fill((root / DOCUMENT).read_text(encoding="utf-8"), BLOCKS)
    return write_or_check({DOCUMENT: text}, root, check=wants_check(arguments, __doc__))


if __name__ == "__main__":
    sys.exit(main())
