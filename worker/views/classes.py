"""The class of each operator of a query: what a change of the sources costs, with the reason."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from worker.views.group_totals import groups_of, when_open
from worker.views.operators import (
    Aggregate,
    Constant,
    Filter,
    Join,
    Opaque,
    Operator,
    Project,
    Scan,
    UnionAll,
    Window,
    Work,
    children_of,
    columns_of,
    quoted,
)

_COLUMN: Final = re.compile(r'"(?:[^"]|"")*"')


@dataclass(frozen=True, slots=True)
class Classified:
    """An operator as EXPLAIN shows it."""

    operator: str
    work: Work
    reason: str


def classified(operator: Operator) -> list[Classified]:
    """Classify the operators, from the sources up, in the words of the query."""
    return _Classifier(operator).of(operator)


class _Classifier:
    """Names that the builder of operators made are shown as what they stand for."""

    def __init__(self, query: Operator) -> None:
        self._groups = groups_of(query)
        self._meanings: dict[str, str] = {}

    def of(self, operator: Operator) -> list[Classified]:
        below = [step for child in children_of(operator) for step in self.of(child)]
        shown = self._shown(operator)
        self._learn(operator)
        return below if shown is None else [*below, shown]

    def _shown(self, operator: Operator) -> Classified | None:
        match operator:
            case Scan(source, columns):
                used = ", ".join(name for name, _ in columns)
                return Classified(f"{source} ({used})", Work.LINEAR, "its changed rows")
            case Constant():
                return None
            case Filter(_, condition):
                return Classified(f"filter {self._plain(condition)}", Work.LINEAR, "the changed rows, filtered")
            case Project(_, columns):
                texts = [text for text, _ in columns if not _COLUMN.fullmatch(text)]
                listed = ", ".join(map(self._plain, texts))
                return Classified(f"compute {listed}", Work.LINEAR, "row by row") if texts else None
            case UnionAll():
                return Classified("UNION ALL", Work.LINEAR, "the changes of all inputs")
            case Join("INNER", _, _, condition, _):
                reason = "the changed rows of one side, joined with the other side"
                return Classified(f"JOIN ON {self._plain(condition)}", Work.LINEAR, reason)
            case Join(kind, _, _, condition, _):
                reason = "the rows of the join keys that changed are joined again"
                return Classified(f"{kind} JOIN ON {self._plain(condition)}", Work.AFFECTED_KEYS, reason)
            case Aggregate():
                return self._shown_groups(operator)
            case Window(_, keys, calls):
                names = ", ".join(self._plain(text) for text, _ in calls)
                if not keys:
                    return Classified(names, Work.FULL, "a window over all rows has no key to restrict by")
                return Classified(names, Work.AFFECTED_KEYS, "the partitions of changed rows are computed again")
            case Opaque():
                return Classified("the query", Work.FULL, operator.reason)

    def _shown_groups(self, operator: Aggregate) -> Classified:
        if operator.has_totals:
            listed = ", ".join(self._plain(text) for text, _ in operator.aggregates)
            reason = "the changed rows are added to the totals of the refresh before"
            return Classified(f"{listed} over all rows", Work.INVERTIBLE, reason)
        if not operator.keys:
            return Classified("aggregates over all rows", Work.FULL, "there is no group to restrict by")
        words = f"{operator.words} {', '.join(self._plain(text) for text, _ in operator.keys)}"
        if self._groups is None or self._groups.aggregate is not operator:
            return Classified(words, Work.AFFECTED_KEYS, "the groups of changed rows are computed again")
        opened = " or ".join(when_open(self._groups))
        more = f"; a group that {opened} is computed again" if opened else ""
        return Classified(words, Work.INVERTIBLE, f"the changed rows are added to the groups in the view{more}")

    def _learn(self, operator: Operator) -> None:
        match operator:
            case Project(_, columns):
                self._meanings |= {quoted(name): self._plain(text) for text, name in columns}
            case Aggregate(_, keys, aggregates, _):
                self._meanings |= {quoted(name): self._plain(text) for text, name in (*keys, *aggregates)}
            case Window(_, _, calls):
                self._meanings |= {quoted(name): self._plain(text) for text, name in calls}
            case UnionAll(children):
                self._meanings |= {quoted(name): name.split(".", 2)[2] for name in columns_of(children[0])}
            case _:
                pass

    def _plain(self, text: str) -> str:
        for name, meaning in self._meanings.items():
            text = text.replace(name, meaning)
        return text.replace('"', "")
