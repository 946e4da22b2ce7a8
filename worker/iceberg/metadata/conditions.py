"""Filters of Iceberg's readers as conditions of LakeTX.

A condition here is true for every row that any reader could keep, so skipped files contain no such row. Readers
differ: for some NULL <> 1 is true, -0.0 is less than 0.0, NaN is the largest number, or literals become floats first.
NOT is pushed down to single tests; then a test that can't be expressed is TRUE.

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
NEGATED: Final[Mapping[str, str]] = OPPOSITE | {opposite: test for test, opposite in OPPOSITE.items()}
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
    """A column with its name and type at the planned version."""

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
        """`named` are the columns by the names that filters use, `planned` the columns of the version."""
        self._fold: Callable[[str], str] = str if case_sensitive else str.casefold
        self._ids: dict[str, list[int]] = {}
        self._names: dict[int, str] = {}
        for column in named:
            self._ids.setdefault(self._fold(column.name), []).append(column.column_id)
            self._names[column.column_id] = column.name
        self._planned = {column.column_id: _Column(column.name, read_type(column.type)) for column in planned}

    def condition(self, tree: Any) -> Predicate:
        """Return the condition of a filter. A very large one keeps only the parts that fit."""
        parts = [self._translated(operand, 1, is_negated=False) for operand in _operands(tree, "and")]
        kept, nodes = [], 0
        for part in parts:
            more = _nodes(part)
            if nodes + more <= NODES_MAX:
                kept.append(part)
                nodes += more
        return _all_of(kept)

    def column_id(self, name: str) -> int | None:
        """Return the id of a column by its name; None for a part of a column. Refuse unknown names."""
        ids = self._ids.get(self._fold(name), ())
        if len(ids) == 1:
            return ids[0]
        if ids:
            raise _invalid(f"{name} can be {' or '.join(self._names[number] for number in ids)}")
        if any(self._fold(name).startswith(f"{column_name}.") for column_name in self._ids):
            return None
        raise _invalid(f"there is no column {name}")

    def _translated(self, tree: Any, depth: int, *, is_negated: bool) -> Predicate:
        if depth > DEPTH_MAX:
            raise _invalid(f"it nests more than {DEPTH_MAX} levels of AND, OR and NOT")
        if isinstance(tree, bool):
            return TRUE if tree is not is_negated else FALSE
        word = _word(tree)
        match word:
            case "true" | "false":
                return TRUE if (word == "true") is not is_negated else FALSE
            case "literal":
                return self._translated(bool(_part(tree, "value")), depth, is_negated=is_negated)
            case "not":
                return self._translated(_part(tree, "child"), depth + 1, is_negated=not is_negated)
            case "and" | "or":
                parts = [
                    self._translated(operand, depth + 1, is_negated=is_negated) for operand in _operands(tree, word)
                ]
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
                predicate = _listed(column, _values(tree))
            case "not-in":
                predicate = _all_of([_passing(column, "not-eq", excluded) for excluded in _values(tree)])
            case _:
                predicate = _passing(column, word, literal)
        keeps_null = bool(turned) or word.startswith("not-")  # some negate a test that NULL fails
        return _any_of([predicate, is_null]) if keeps_null else predicate

    def _column(self, subject: Any) -> _Column | None:
        """Return the column of a test at the version; None if no condition can use it."""
        if isinstance(subject, str):
            number = self.column_id(subject)
        elif isinstance(subject, dict) and subject.get("type") == "reference":
            number = self.column_id(subject["name"]) if isinstance(subject.get("name"), str) else subject.get("id")
        else:
            return None
        column = self._planned.get(number) if isinstance(number, int) else None
        return column if column is not None and isinstance(column.kind, Atomic | Decimal) else None


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
    """Return the operands of AND or OR, in order: readers nest them two by two."""
    operands, waiting = [], [tree]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, bool) and _word(node) == word:
            waiting += [_part(node, "right"), _part(node, "left")]
        else:
            operands.append(node)
    return operands


def _sides(tree: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the subject and the literal of a test; either is None if it is missing."""
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
    kept = [part for part in parts if part != TRUE]
    if len(kept) < 2:
        return kept[0] if kept else TRUE
    return Predicate(all_of=common_pb2.PredicateList(operands=kept))


def _any_of(parts: Sequence[Predicate]) -> Predicate:
    if TRUE in parts:
        return TRUE
    kept = [part for part in parts if part != FALSE]
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
    """Return the condition for values that pass a test with a literal."""
    if word.endswith("starts-with"):
        return _starting(column, word, literal)
    literal_range = range_of(column.kind, literal)
    if literal_range is None:
        return TRUE
    kind = literal_range.low.WhichOneof("kind")
    match word:
        case "eq" if literal_range.is_one:
            return _compare(column, common_pb2.COMPARISON_EQUAL, literal_range.low)
        case "eq":
            return _all_of([_passing(column, "gt-eq", literal), _passing(column, "lt-eq", literal)])
        case "not-eq" if kind != "real":
            return _compare(column, common_pb2.COMPARISON_NOT_EQUAL, literal_range.low)
        case "lt" | "lt-eq" if kind == "real":  # a zero is less than the other to some
            return _compare(column, common_pb2.COMPARISON_LESS_OR_EQUAL, literal_range.high)
        case "gt" | "gt-eq" if kind == "real":
            return _compare(column, common_pb2.COMPARISON_GREATER_OR_EQUAL, literal_range.low)
        case "lt" | "lt-eq" | "gt" | "gt-eq" if kind != "boolean":
            return _compare(column, COMPARISONS[word], literal_range.low)
        case _:
            return TRUE


def _listed(column: _Column, literals: Sequence[Any]) -> Predicate:
    ranges = [range_of(column.kind, literal) for literal in literals]
    values = [
        value_range.low
        for value_range in ranges
        if value_range is not None and value_range.is_one and value_range.low.WhichOneof("kind") != "real"
    ]
    if len(values) < 2 or len(values) < len(ranges):
        return _any_of([_passing(column, "eq", literal) for literal in literals])
    return Predicate(in_list=common_pb2.InList(column=column.name, values=values))


def _starting(column: _Column, word: str, literal: Any) -> Predicate:
    text = plain_of_literal(literal)
    if column.kind != Atomic("string") or not isinstance(text, str) or not text or len(text) > TEXT_CHARS_MAX:
        return TRUE
    predicate = Predicate(starts_with=common_pb2.StartsWith(column=column.name, prefix=text))
    return predicate if word == "starts-with" else Predicate(negation=predicate)
