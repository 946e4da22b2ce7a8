"""What a MERGE does: its clauses, in their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Settings = Mapping[str, Any]  # SQL, a Column, or a value


@dataclass(frozen=True)
class Clause:
    """The action for rows of one kind ("matched", "not_matched", "by_source") for which the condition is true."""

    when: str
    action: str
    settings: Settings | None
    condition: str | None


def only_deletes_matched(clauses: Sequence[Clause]) -> bool:
    """Whether every matched row is deleted: then it doesn't matter how many source rows match it."""
    matched = [(clause.action, clause.condition) for clause in clauses if clause.when == "matched"]
    return matched == [("delete", None)]


def are_upserts(clauses: Sequence[Clause]) -> bool:
    """Whether every matched row becomes its source row, and every other source row is inserted."""
    given = [(clause.when, clause.action, clause.settings, clause.condition) for clause in clauses]
    wanted = [("matched", "update", None, None), ("not_matched", "insert", None, None)]
    return given in (wanted, wanted[::-1])
