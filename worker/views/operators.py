"""A query as operators. Each operator has columns with unique names, and expressions over those of its inputs.

A column of the relation `o` is the column "o.day": one quoted identifier, so that texts nest without qualifiers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

from sqlglot import exp

DIALECT: Final = "duckdb"
LAKE: Final = "lake:"  # marks the lake's tables among the names of a query
_COLUMN: Final = re.compile(r'"(?:[^"]|"")*"')


class Work(IntEnum):
    """What a change of the sources costs an operator, from little to much."""

    LINEAR = 1
    AFFECTED_KEYS = 2
    FULL = 3

    @property
    def words(self) -> str:
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True, slots=True)
class Scan:
    """The columns of a source that the query uses."""

    source: str
    columns: tuple[tuple[str, str], ...]  # the source's name, the operator's name


@dataclass(frozen=True, slots=True)
class Filter:
    """The rows for which a condition is true."""

    child: Operator
    condition: str


@dataclass(frozen=True, slots=True)
class Project:
    """Expressions over each row."""

    child: Operator
    columns: tuple[tuple[str, str], ...]  # the expression, its name


@dataclass(frozen=True, slots=True)
class Join:
    """Pairs of rows. `keys` are equal expressions of both sides; an inner join needs none."""

    kind: str  # INNER, LEFT, RIGHT, FULL, SEMI, ANTI
    left: Operator
    right: Operator
    condition: str
    keys: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A row for each group; without aggregates, the distinct rows."""

    child: Operator
    keys: tuple[tuple[str, str], ...]  # the expression, its name
    aggregates: tuple[tuple[str, str], ...]

    @property
    def words(self) -> str:
        return "GROUP BY" if self.aggregates else "DISTINCT"


@dataclass(frozen=True, slots=True)
class UnionAll:
    """The rows of all inputs, which have the same columns."""

    children: tuple[Operator, ...]


@dataclass(frozen=True, slots=True)
class Opaque:
    """A query that is only computed as a whole; the names of its sources in the text begin with LAKE."""

    text: str
    sources: tuple[str, ...]
    columns: tuple[str, ...]
    reason: str


Operator: TypeAlias = Scan | Filter | Project | Join | Aggregate | UnionAll | Opaque


@dataclass(frozen=True, slots=True)
class Classified:
    """An operator as EXPLAIN shows it."""

    operator: str
    work: Work
    reason: str


def columns_of(operator: Operator) -> tuple[str, ...]:
    """Return the names of the columns, in order."""
    match operator:
        case Scan(_, columns) | Project(_, columns):
            return tuple(name for _, name in columns)
        case Filter(child, _):
            return columns_of(child)
        case Join(kind, left, right, _, _):
            return columns_of(left) + (() if kind in ("SEMI", "ANTI") else columns_of(right))
        case Aggregate(_, keys, aggregates):
            return tuple(name for _, name in (*keys, *aggregates))
        case UnionAll(children):
            return columns_of(children[0])
        case Opaque():
            return operator.columns


def children_of(operator: Operator) -> Sequence[Operator]:
    """Return the inputs."""
    match operator:
        case Filter(child, _) | Project(child, _) | Aggregate(child, _, _):
            return (child,)
        case Join(_, left, right, _, _):
            return (left, right)
        case UnionAll(children):
            return children
        case Scan() | Opaque():
            return ()


def sources_of(operator: Operator) -> frozenset[str]:
    """Return the sources below."""
    match operator:
        case Scan(source, _):
            return frozenset({source})
        case Opaque():
            return frozenset(operator.sources)
        case _:
            return frozenset().union(*map(sources_of, children_of(operator)))


def quoted(name: str) -> str:
    """Return a name as SQL writes it."""
    return exp.to_identifier(name, quoted=True).sql(dialect=DIALECT)


def classified(operator: Operator) -> list[Classified]:
    """Classify the operators, from the sources up, in the words of the query."""
    return _Classifier().of(operator)


class _Classifier:
    """Names that the builder of operators made are shown as what they stand for."""

    def __init__(self) -> None:
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
            case Aggregate(_, keys, _) if keys:
                names = ", ".join(self._plain(text) for text, _ in keys)
                reason = "the groups of changed rows are computed again"
                return Classified(f"{operator.words} {names}", Work.AFFECTED_KEYS, reason)
            case Aggregate():
                return Classified("aggregates over all rows", Work.FULL, "there is no group to restrict by")
            case Opaque():
                return Classified("the query", Work.FULL, operator.reason)

    def _learn(self, operator: Operator) -> None:
        match operator:
            case Project(_, columns):
                self._meanings |= {quoted(name): self._plain(text) for text, name in columns}
            case Aggregate(_, keys, aggregates):
                self._meanings |= {quoted(name): self._plain(text) for text, name in (*keys, *aggregates)}
            case UnionAll(children):
                self._meanings |= {quoted(name): name.split(".", 2)[2] for name in columns_of(children[0])}
            case _:
                pass

    def _plain(self, text: str) -> str:
        for name, meaning in self._meanings.items():
            text = text.replace(name, meaning)
        return text.replace('"', "")
