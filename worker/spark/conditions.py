"""Conditions as SQL text become predicates of the wire, for pruning and for judging conflicts; no job is started.

    id = 7 AND upper(name) = 'X' AND (day < '2026-11-01' OR day IS NULL)
    -> all_of(id = 7, any_of(day < "2026-11-01", day IS NULL))

A top-level conjunct that can't be expressed is left out as a whole, which means TRUE. When in doubt it is left out:
every part that is kept means exactly the same in MetaService and in Spark.
Only the structure (AND, OR, NOT, parentheses, BETWEEN, CASE) is parsed. Everything else is kept if it has one of a few
forms: column OP literal, IN, BETWEEN, LIKE 'prefix%', IS NULL, a boolean column, TRUE and FALSE.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final

from pyspark.sql import SparkSession

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.base.condition_forms import Forms, Token, all_of, tokens_of
from worker.spark.session import session_zone

NODES_MAX: Final = common_pb2.LIMIT_CONDITION_NODES
DEPTH_MAX: Final = common_pb2.LIMIT_CONDITION_DEPTH

_STRUCTURE: Final = frozenset(
    ("and", "or", "not", "between", "in", "is", "null", "like", "case", "end", "true", "false")
)
Predicate = common_pb2.Predicate


def to_wire(condition: str, meta: catalog_pb2.Table, spark: SparkSession | None) -> Predicate:
    """The wire's predicate for a condition on a table's rows; at the weakest TRUE."""
    types = {column.name: column.type for column in meta.columns}
    zone = session_zone(spark) if any(kind == "timestamp" for kind in types.values()) else None
    return parse_condition(condition, types, zone)


def parse_condition(condition: str, types: Mapping[str, str], zone: tzinfo | None) -> Predicate:
    """As `to_wire`, with the types of the columns and the session's time zone."""
    tokens = tokens_of(condition)
    if tokens is None or any(name.lower() in _STRUCTURE for name in types):
        return Predicate(literal=True)
    tree = _Parser(tokens, Forms(types, zone)).parse()
    return all_of([part for part in _conjuncts(tree) if part is not None])


# -- structure ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _All:
    operands: tuple[_Tree, ...]


_Tree = _All | Predicate | None  # None: can't be expressed


def _conjuncts(tree: _Tree) -> Iterator[Predicate | None]:
    """The top-level parts; a part that is too large is dropped."""
    if isinstance(tree, _All):
        for operand in tree.operands:
            yield from _conjuncts(operand)
    elif tree is not None and _size(tree) <= NODES_MAX:
        yield tree


def _size(predicate: Predicate) -> int:
    kind = predicate.WhichOneof("kind")
    if kind == "negation":
        return 1 + _size(predicate.negation)
    if kind in ("all_of", "any_of"):
        return 1 + sum(_size(operand) for operand in getattr(predicate, kind).operands)
    return 1 + len(predicate.in_list.values) if kind == "in_list" else 1


class _Parser:
    """or := and (OR and)*; and := not (AND not)*; not := NOT not | (or) | a form."""

    def __init__(self, tokens: Sequence[Token], leaves: Forms) -> None:
        self._tokens = tokens
        self._leaves = leaves
        self._at = 0
        self._closing = _closing(tokens)

    def parse(self) -> _Tree:
        if self._closing is None or not self._tokens:
            return None
        tree = self._any(0)
        return tree if self._at == len(self._tokens) else None

    def _any(self, depth: int) -> _Tree:
        parts = [self._all(depth)]
        while self._word() == "or":
            self._at += 1
            parts.append(self._all(depth))
        if len(parts) == 1:
            return parts[0]
        sound = [part for part in map(_joined, parts) if part is not None]
        return Predicate(any_of=common_pb2.PredicateList(operands=sound)) if len(sound) == len(parts) else None

    def _all(self, depth: int) -> _Tree:
        parts = [self._not(depth)]
        while self._word() == "and":
            self._at += 1
            parts.append(self._not(depth))
        return parts[0] if len(parts) == 1 else _All(tuple(parts))

    def _not(self, depth: int) -> _Tree:
        if depth > DEPTH_MAX:
            self._at = len(self._tokens) + 1  # nothing of it is known
            return None
        if self._word() == "not" or self._text() == "!":
            self._at += 1
            inner = _joined(self._not(depth + 1))
            return None if inner is None else Predicate(negation=inner)
        if self._text() == "(" and self._is_end(self._end_of_group(self._at)):
            self._at += 1
            tree = self._any(depth + 1)
            if self._text() != ")":
                self._at = len(self._tokens) + 1
                return None
            self._at += 1
            return tree
        return self._leaves.find(self._form())

    def _form(self) -> list[Token]:
        """The tokens up to the next AND, OR or end on this level."""
        begin = self._at
        betweens = cases = 0
        while self._at < len(self._tokens):
            word = self._word() if self._at == begin or self._tokens[self._at - 1].text != "." else ""
            if cases == 0 and (self._text() in (")", "]") or word == "or" or (word == "and" and not betweens)):
                break
            if word == "and" and cases == 0:
                betweens -= 1
            betweens += word == "between" and cases == 0
            cases += (word == "case") - (word == "end")
            self._at = self._end_of_group(self._at)
        return list(self._tokens[begin : self._at])

    def _end_of_group(self, at: int) -> int:
        """The position after the token, or after the whole group that it opens."""
        closing = self._closing or {}
        return closing.get(at, at) + 1

    def _is_end(self, at: int) -> bool:
        return at >= len(self._tokens) or self._tokens[at].text == ")" or self._tokens[at].word in ("and", "or")

    def _word(self) -> str:
        return self._tokens[self._at].word if self._at < len(self._tokens) else ""

    def _text(self) -> str:
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        return token.text if token is not None and token.kind == "op" else ""


def _closing(tokens: Sequence[Token]) -> dict[int, int] | None:
    """Return the end of each group of brackets; None if they don't match."""
    ends: dict[int, int] = {}
    opened: list[int] = []
    for at, token in enumerate(tokens):
        if token.kind == "op" and token.text in "([":
            opened.append(at)
        elif token.kind == "op" and token.text in ")]":
            if not opened or tokens[opened[-1]].text + token.text not in ("()", "[]"):
                return None
            ends[opened.pop()] = at
    return None if opened else ends


def _joined(tree: _Tree) -> Predicate | None:
    if not isinstance(tree, _All):
        return tree
    parts = [part for part in map(_joined, tree.operands) if part is not None]
    return all_of(parts) if len(parts) == len(tree.operands) else None
