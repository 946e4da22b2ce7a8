"""A query as operators. Each operator has columns with unique names, and expressions over those of its inputs.

A column of the relation `o` is the column "o.day": one quoted identifier, so that texts nest without qualifiers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, TypeAlias

LAKE: Final = "lake:"  # marks the lake's tables among the names of a query


class NoRule(Exception):  # noqa: N818 - never leaves this package
    """This part of a query has no rule: the query is computed as a whole."""


class Work(IntEnum):
    """What a change of the sources costs an operator, from little to much."""

    LINEAR = 1
    INVERTIBLE = 2
    AFFECTED_KEYS = 3
    FULL = 4

    @property
    def words(self) -> str:
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True, slots=True)
class Scan:
    """The columns of a source that the query uses."""

    source: str
    columns: tuple[tuple[str, str], ...]  # the source's name, the operator's name


@dataclass(frozen=True, slots=True)
class Constant:
    """Rows that the query writes out: VALUES, a SELECT without FROM, a series of numbers or days."""

    text: str
    columns: tuple[str, ...]


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
    has_totals: bool = False  # over all rows, and changed rows can be added to each of them

    @property
    def words(self) -> str:
        return "GROUP BY" if self.aggregates else "DISTINCT"


@dataclass(frozen=True, slots=True)
class Window:
    """The rows with a column for each window function, all of them over the partitions by the keys."""

    child: Operator
    keys: tuple[str, ...]
    calls: tuple[tuple[str, str], ...]  # each may use the columns of those before


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


Operator: TypeAlias = Scan | Constant | Filter | Project | Join | Aggregate | Window | UnionAll | Opaque


def columns_of(operator: Operator) -> tuple[str, ...]:
    """Return the names of the columns, in order."""
    match operator:
        case Scan(_, columns) | Project(_, columns):
            return tuple(name for _, name in columns)
        case Filter(child, _):
            return columns_of(child)
        case Join(kind, left, right, _, _):
            return columns_of(left) + (() if kind in ("SEMI", "ANTI") else columns_of(right))
        case Aggregate(_, keys, aggregates, _):
            return tuple(name for _, name in (*keys, *aggregates))
        case Window(child, _, calls):
            return (*columns_of(child), *(name for _, name in calls))
        case UnionAll(children):
            return columns_of(children[0])
        case Constant() | Opaque():
            return operator.columns


def children_of(operator: Operator) -> Sequence[Operator]:
    """Return the inputs."""
    match operator:
        case Filter(child, _) | Project(child, _) | Aggregate(child, _, _, _) | Window(child, _, _):
            return (child,)
        case Join(_, left, right, _, _):
            return (left, right)
        case UnionAll(children):
            return children
        case Scan() | Constant() | Opaque():
            return ()


def with_children(operator: Operator, children: Sequence[Operator]) -> Operator:
    """Return the operator with other inputs."""
    match operator:
        case Filter() | Project() | Aggregate() | Window():
            return replace(operator, child=children[0])
        case Join():
            return replace(operator, left=children[0], right=children[1])
        case UnionAll():
            return UnionAll(tuple(children))
        case Scan() | Constant() | Opaque():
            return operator


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
    return '"' + name.replace('"', '""') + '"'  # as sqlglot has it, in less time: a plan has hundreds
