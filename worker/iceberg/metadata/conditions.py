"""Filters of Iceberg's readers as conditions of LakeTX.

A condition here is true for every row that any reader could keep, so the files that it leaves out hold none. Readers
differ: for some NULL <> 1 is true, -0.0 is less than 0.0, NaN is the largest number, or literals become floats first.
NOT is moved inwards until it stands before single tests; then a test that can't be expressed is TRUE.

    not (a = 1 or is-nan(b))    ->  (a <> 1 or a is null) and TRUE
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from metaservice.shared.column_types import Atomic, Decimal, Type, read_type
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.base.errors import InputError
from worker.iceberg.metadata.literals import TEXT_CHARS_MAX, plain_of_literal, range_of

DEPTH_MAX: Final = 50  # of AND within OR, and so on
NODES_MAX: Final = 5_000
TRUE: Final = common_pb2.Predicate(literal=True)
FALSE: Final = common_pb2.Predicate(literal=False)
OPPOSITE: Final = {
    "eq": "not-eq",
    "lt": "gt-eq",
    "gt": "lt-eq",
    "in": "not-in",
    "is-null": "not-null",
    "is-nan": "not-nan",
    "starts-with": "not-starts-with",
}
NEGATED: Final[Mapping[str, str]] = OPPOSITE | {other: one for one, other in OPPOSITE.items()}
COMPARISONS: Final = {
    "lt": common_pb2.COMPARISON_LESS,
    "lt-eq": common_pb2.COMPARISON_LESS_OR_EQUAL,
    "gt": common_pb2.COMPARISON_GREATER,
    "gt-eq": common_pb2.COMPARISON_GREATER_OR_EQUAL,
}
FLIPPED: Final = {"eq": "eq", "not-eq": "not-eq", "lt": "gt", "lt-eq": "gt-eq", "gt": "lt", "gt-eq": "lt-eq"}
Predicate = common_pb2.Predicate


@dataclass(frozen=True, slots=True)
class _Column:
    """A column as it is called and typed at the version that is planned."""

    name: str
    kind: Type


class Filters:
    """Translates filters about some columns to conditions about the columns of a version."""

    def __init__(
        self,
        named: Iterable[catalog_pb2.Column],
        planned: Iterable[catalog_pb2.Column],
        *,
        case_sensitive: bool = True,
    ) -> None:
        """`named`: the columns that the filter speaks of; `planned`: those of the version."""
        self._fold: Callable[[str], str] = str if case_sensitive else str.casefold
        self._ids: dict[str, list[int]] = {}
        self._names: dict[int, str] = {}
        for one in named:
            self._ids.setdefault(self._fold(one.name), []).append(one.column_id)
            self._names[one.column_id] = one.name
        self._planned = {one.column_id: _Column(one.name, read_type(one.type)) for one in planned}

    def condition(self, tree: Any) -> Predicate:
        """The condition; one that asks too much keeps only the parts that fit."""
        parts = [self._found(one, 1, is_negated=False) for one in _operands(tree, "and")]
        found, nodes = [], 0
        for one in parts:
            more = _nodes(one)
            if nodes + more <= NODES_MAX:
                found.append(one)
                nodes += more
        return _all_of(found)

    def column_id(self, name: str) -> int | None:
        """The id of the column that a name stands for; None: a part of a column. Unknown names are refused."""
        ids = self._ids.get(self._fold(name), ())
        if len(ids) == 1:
            return ids[0]
        if ids:
            raise _invalid(f"{name} can be {' or '.join(self._names[one] for one in ids)}")
        if any(self._fold(name).startswith(f"{one}.") for one in self._ids):
            return None
        raise _invalid(f"there is no column {name}")

    def _found(self, tree: Any, depth: int, *, is_negated: bool) -> Predicate:
        if depth > DEPTH_MAX:
            raise _invalid(f"it nests more than {DEPTH_MAX} levels of AND, OR and NOT")
        if isinstance(tree, bool):
            return TRUE if tree is not is_negated else FALSE
        word = _word(tree)
        match word:
            case "true" | "false":
                return TRUE if (word == "true") is not is_negated else FALSE
            case "literal":
                return self._found(bool(_part(tree, "value")), depth, is_negated=is_negated)
            case "not":
                return self._found(_part(tree, "child"), depth + 1, is_negated=not is_negated)
            case "and" | "or":
                parts = [self._found(one, depth + 1, is_negated=is_negated) for one in _operands(tree, word)]
                return _all_of(parts) if (word == "and") is not is_negated else _any_of(parts)
            case _:
                return self._test(tree, NEGATED, word) if is_negated else self._test(tree, {}, word)

    # -- single tests

    def _test(self, tree: Mapping[str, Any], turned: Mapping[str, str], word: str) -> Predicate:
        if word not in NEGATED:
            raise _invalid(f"it has {word}, which is no test")
        subject, literal = _sides(tree)
        if _is_reference(literal) and not _is_reference(subject):
            subject, literal, word = literal, subject, FLIPPED.get(word, word)
        if not (isinstance(subject, str) or (isinstance(subject, dict) and isinstance(subject.get("type"), str))):
            raise _invalid(f"{word} does not say what it tests")
        word = turned.get(word, word)
        column = self._column(subject)
        if column is None:
            return TRUE
        is_null = Predicate(is_null=common_pb2.IsNull(column=column.name))
        match word:
            case "is-null":
                return is_null
            case "not-null":
                return Predicate(negation=is_null)
            case "in":
                found = _listed(column, _values(tree))
            case "not-in":
                found = _all_of([_passing(column, "not-eq", one) for one in _values(tree)])
            case _:
                found = _passing(column, word, literal)
        keeps_null = bool(turned) or word.startswith("not-")  # some negate a test that NULL fails
        return _any_of([found, is_null]) if keeps_null else found

    def _column(self, subject: Any) -> _Column | None:
        """The column of a test at the version; None: nothing can be said about it."""
        if isinstance(subject, str):
            number = self.column_id(subject)
        elif isinstance(subject, dict) and subject.get("type") == "reference":
            number = self.column_id(subject["name"]) if isinstance(subject.get("name"), str) else subject.get("id")
        else:
            return None
        found = self._planned.get(number) if isinstance(number, int) else None
        return found if found is not None and isinstance(found.kind, Atomic | Decimal) else None


# -- trees -------------------------------------------------------------------------------------------------------------


def _invalid(why: str) -> InputError:
    return InputError("ICEBERG_FILTER", f"the filter can't be planned: {why}")


def _word(tree: Any) -> str:
    word = tree.get("type") if isinstance(tree, dict) else None
    if not isinstance(word, str):
        raise _invalid(f"{str(tree)[:80]} is no expression")
    return word.lower().replace("_", "-")


def _part(tree: Mapping[str, Any], name: str) -> Any:
    if name not in tree:
        raise _invalid(f"{tree['type']} lacks its {name}")
    return tree[name]


def _operands(tree: Any, word: str) -> Sequence[Any]:
    """What AND or OR joins, in order: readers nest them two by two."""
    found, waiting = [], [tree]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, bool) and _word(one) == word:
            waiting += [_part(one, "right"), _part(one, "left")]
        else:
            found.append(one)
    return found


def _sides(tree: Mapping[str, Any]) -> tuple[Any, Any]:
    """What is tested, and the literal that it is tested with; either is None if it isn't there."""
    subject = next((tree[name] for name in ("term", "child", "left") if name in tree), None)
    return subject, tree["value"] if "value" in tree else tree.get("right")


def _is_reference(side: Any) -> bool:
    return isinstance(side, dict) and side.get("type") == "reference"


def _values(tree: Mapping[str, Any]) -> Sequence[Any]:
    values = _part(tree, "values")
    listed = values.get("values") if isinstance(values, dict) else values
    if not isinstance(listed, list):
        raise _invalid(f"{tree['type']} lacks its list of values")
    return listed


def _all_of(parts: Sequence[Predicate]) -> Predicate:
    kept = [one for one in parts if one != TRUE]
    if len(kept) < 2:
        return kept[0] if kept else TRUE
    return Predicate(all_of=common_pb2.PredicateList(operands=kept))


def _any_of(parts: Sequence[Predicate]) -> Predicate:
    if TRUE in parts:
        return TRUE
    kept = [one for one in parts if one != FALSE]
    if len(kept) < 2:
        return kept[0] if kept else FALSE
    return Predicate(any_of=common_pb2.PredicateList(operands=kept))


def _nodes(tree: Predicate) -> int:
    kind = tree.WhichOneof("kind")
    if kind == "negation":
        return 1 + _nodes(tree.negation)
    if kind in ("all_of", "any_of"):
        return 1 + sum(map(_nodes, (tree.all_of if kind == "all_of" else tree.any_of).operands))
    return 1 + len(tree.in_list.values)


# -- tests -------------------------------------------------------------------------------------------------------------


def _compare(column: _Column, comparison: common_pb2.Comparison.ValueType, value: common_pb2.Value) -> Predicate:
    return Predicate(compare=common_pb2.Compare(column=column.name, comparison=comparison, value=value))


def _passing(column: _Column, word: str, literal: Any) -> Predicate:
    """The condition for values that pass a test with a literal."""
    if word.endswith("starts-with"):
        return _starting(column, word, literal)
    found = range_of(column.kind, literal)
    if found is None:
        return TRUE
    kind = found.low.WhichOneof("kind")
    match word:
        case "eq" if found.is_one:
            return _compare(column, common_pb2.COMPARISON_EQUAL, found.low)
        case "eq":
            return _all_of([_passing(column, "gt-eq", literal), _passing(column, "lt-eq", literal)])
        case "not-eq" if kind != "real":
            return _compare(column, common_pb2.COMPARISON_NOT_EQUAL, found.low)
        case "lt" | "lt-eq" if kind == "real":  # a zero is less than the other to some
            return _compare(column, common_pb2.COMPARISON_LESS_OR_EQUAL, found.high)
        case "gt" | "gt-eq" if kind == "real":
            return _compare(column, common_pb2.COMPARISON_GREATER_OR_EQUAL, found.low)
        case "lt" | "lt-eq" | "gt" | "gt-eq" if kind != "boolean":
            return _compare(column, COMPARISONS[word], found.low)
        case _:
            return TRUE


def _listed(column: _Column, literals: Sequence[Any]) -> Predicate:
    ranges = [range_of(column.kind, one) for one in literals]
    values = [one.low for one in ranges if one is not None and one.is_one and one.low.WhichOneof("kind") != "real"]
    if len(values) < 2 or len(values) < len(ranges):
        return _any_of([_passing(column, "eq", one) for one in literals])
    return Predicate(in_list=common_pb2.InList(column=column.name, values=values))


def _starting(column: _Column, word: str, literal: Any) -> Predicate:
    text = plain_of_literal(literal)
    if column.kind != Atomic("string") or not isinstance(text, str) or not text or len(text) > TEXT_CHARS_MAX:
        return TRUE
    found = Predicate(starts_with=common_pb2.StartsWith(column=column.name, prefix=text))
    return found if word == "starts-with" else Predicate(negation=found)
