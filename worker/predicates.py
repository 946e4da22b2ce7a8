"""Conditions as SQL text become predicates of the wire, for pruning and for judging conflicts; no job is started.

    id = 7 AND upper(name) = 'X' AND (day < '2026-11-01' OR day IS NULL)
    -> all_of(id = 7, any_of(day < "2026-11-01", day IS NULL))

A top-level conjunct that can't be expressed is left out, which is TRUE, as a whole. When in doubt it can't be: what is
taken over means in MetaService exactly what it means in Spark.
The structure alone (AND, OR, NOT, parentheses, BETWEEN, CASE) is parsed; everything else is taken over where it has
one of a few forms: column OP literal, IN, BETWEEN, LIKE 'prefix%', IS NULL, a boolean column, TRUE and FALSE.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from math import isfinite
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyspark.sql import SparkSession

from protos.laketx.v1 import catalog_pb2, common_pb2

NODES_MAX: Final = 5_000
DEPTH_MAX: Final = 30
TEXT_CHARS_MAX: Final = 1_000
EPOCH_DAY: Final = date(1970, 1, 1)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+)
    |(?P<string>'(?:[^'\\]|\\.)*')
    |(?P<double>"(?:[^"\\]|\\.)*")
    |(?P<quoted>`(?:[^`]|``)*`)
    |(?P<number>(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?[A-Za-z_0-9]*)
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<op><=>|<>|!=|==|<=|>=|[=<>!()\[\],.+*/%&|^~?:-])""",
    re.VERBOSE | re.DOTALL,
)
_STRUCTURE: Final = frozenset(
    ("and", "or", "not", "between", "in", "is", "null", "like", "case", "end", "true", "false")
)
_COMPARISONS: Final = {
    "=": common_pb2.COMPARISON_EQUAL,
    "==": common_pb2.COMPARISON_EQUAL,
    "<>": common_pb2.COMPARISON_NOT_EQUAL,
    "!=": common_pb2.COMPARISON_NOT_EQUAL,
    "<": common_pb2.COMPARISON_LESS,
    "<=": common_pb2.COMPARISON_LESS_OR_EQUAL,
    ">": common_pb2.COMPARISON_GREATER,
    ">=": common_pb2.COMPARISON_GREATER_OR_EQUAL,
}
_FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?)?\Z")
_OFFSET: Final = re.compile(r"(?:GMT|UTC|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?\Z")

Predicate = common_pb2.Predicate


def to_wire(condition: str, meta: catalog_pb2.Table, spark: SparkSession | None) -> Predicate:
    """What a condition on a table's rows says in the wire's words; at its weakest TRUE."""
    types = {column.name: column.type for column in meta.columns}
    zone = session_zone(spark) if any(kind == "timestamp" for kind in types.values()) else None
    return parse_condition(condition, types, zone)


def session_zone(spark: SparkSession | None) -> tzinfo | None:
    """The session's time zone, None where Python doesn't know it."""
    return find_zone(spark.conf.get("spark.sql.session.timeZone") or "") if spark is not None else None


def find_zone(name: str) -> tzinfo | None:
    if name in ("Z", "UTC", "GMT"):
        return UTC
    offset = _OFFSET.match(name)
    if offset is not None:
        away = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        return timezone(-away if offset[1] == "-" else away)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def parse_condition(condition: str, types: Mapping[str, str], zone: tzinfo | None) -> Predicate:
    """As `to_wire`, from the types of the columns and the session's time zone."""
    tokens = _tokens(condition)
    if tokens is None or any(name.lower() in _STRUCTURE for name in types):
        return Predicate(literal=True)
    tree = _Parser(tokens, _Leaves(types, zone)).parse()
    parts = [part for part in _conjuncts(tree) if part is not None]
    if not parts:
        return Predicate(literal=True)
    if len(parts) == 1:
        return parts[0]
    return Predicate(all_of=common_pb2.PredicateList(operands=parts))


def renamed(predicate: Predicate, names: Mapping[str, str]) -> Predicate:
    """The same condition under other names of the columns; conjuncts with a column that has none are TRUE."""
    if predicate.WhichOneof("kind") == "all_of":
        kept = [_renamed(part, names) for part in predicate.all_of.operands]
    else:
        kept = [_renamed(predicate, names)]
    parts = [part for part in kept if part is not None]
    if not parts:
        return Predicate(literal=True)
    return parts[0] if len(parts) == 1 else Predicate(all_of=common_pb2.PredicateList(operands=parts))


def _renamed(predicate: Predicate, names: Mapping[str, str]) -> Predicate | None:
    found = Predicate()
    found.CopyFrom(predicate)
    return found if _rename(found, names) else None


def _rename(predicate: Predicate, names: Mapping[str, str]) -> bool:
    kind = predicate.WhichOneof("kind")
    if kind == "negation":
        return _rename(predicate.negation, names)
    if kind in ("all_of", "any_of"):
        return all(_rename(operand, names) for operand in getattr(predicate, kind).operands)
    if kind is None or kind == "literal":
        return True
    leaf = getattr(predicate, kind)
    name = names.get(leaf.column)
    if name is not None:
        leaf.column = name
    return name is not None


# -- structure ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str

    @property
    def word(self) -> str:
        return self.text.lower() if self.kind == "word" else ""


@dataclass(frozen=True, slots=True)
class _All:
    operands: tuple[_Tree, ...]


_Tree = _All | Predicate | None  # None: can't be expressed


def _conjuncts(tree: _Tree) -> Iterator[Predicate | None]:
    """The top-level parts; one that is too large is dropped."""
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


def _tokens(text: str) -> list[_Token] | None:
    """None where the text has something that would need Spark's own lexer: a comment, a raw string, an odd letter."""
    found: list[_Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or text.startswith(("--", "/*"), at):
            return None
        kind = str(match.lastgroup)
        if kind in ("string", "double") and re.search(r"(?:^|[^A-Za-z0-9_])[rR]$", text[:at]):
            return None
        at = match.end()
        if kind != "space":
            found.append(_Token(kind, match[0]))
    return found


class _Parser:
    """or := and (OR and)*; and := not (AND not)*; not := NOT not | (or) | a form."""

    def __init__(self, tokens: Sequence[_Token], leaves: _Leaves) -> None:
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
        known = [_joined(part) for part in parts]
        if any(part is None for part in known):
            return None
        return Predicate(any_of=common_pb2.PredicateList(operands=[part for part in known if part is not None]))

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

    def _form(self) -> list[_Token]:
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
        """Behind the token, and behind all of a group that it opens."""
        closing = self._closing or {}
        return closing.get(at, at) + 1

    def _is_end(self, at: int) -> bool:
        return at >= len(self._tokens) or self._tokens[at].text == ")" or self._tokens[at].word in ("and", "or")

    def _word(self) -> str:
        return self._tokens[self._at].word if self._at < len(self._tokens) else ""

    def _text(self) -> str:
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        return token.text if token is not None and token.kind == "op" else ""


def _closing(tokens: Sequence[_Token]) -> dict[int, int] | None:
    """Where each group ends; None where they don't match."""
    found: dict[int, int] = {}
    opened: list[int] = []
    for at, token in enumerate(tokens):
        if token.kind == "op" and token.text in "([":
            opened.append(at)
        elif token.kind == "op" and token.text in ")]":
            if not opened or tokens[opened[-1]].text + token.text not in ("()", "[]"):
                return None
            found[opened.pop()] = at
    return None if opened else found


def _joined(tree: _Tree) -> Predicate | None:
    if not isinstance(tree, _All):
        return tree
    parts = [_joined(operand) for operand in tree.operands]
    if any(part is None for part in parts):
        return None
    return Predicate(all_of=common_pb2.PredicateList(operands=[part for part in parts if part is not None]))


# -- forms -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Literal:
    kind: str
    value: Any = None


class _Leaves:
    """From the tokens of one form to a predicate, where it is known what they mean."""

    def __init__(self, types: Mapping[str, str], zone: tzinfo | None) -> None:
        self._types = types
        self._names = {name.lower(): name for name in types}
        self._zone = zone

    def find(self, tokens: list[_Token]) -> Predicate | None:
        if len(tokens) == 1 and tokens[0].word in ("true", "false"):
            return Predicate(literal=tokens[0].word == "true")
        column = self._column(tokens[0]) if tokens else None
        if column is None:
            return self._flipped(tokens)
        rest = tokens[1:]
        if not rest:
            is_flag = self._types[column] == "boolean"
            return self._compare(column, "=", _Literal("boolean", True)) if is_flag else None
        words = [token.word for token in rest]
        if words == ["is", "null"]:
            return Predicate(is_null=common_pb2.IsNull(column=column))
        if words == ["is", "not", "null"]:
            return Predicate(negation=Predicate(is_null=common_pb2.IsNull(column=column)))
        if words[0] != "not":
            return self._with_operator(column, rest)
        found = self._with_operator(column, rest[1:]) if words[1:2] in (["in"], ["between"], ["like"]) else None
        return None if found is None else Predicate(negation=found)

    def _column(self, token: _Token) -> str | None:
        if token.kind == "quoted":
            return self._names.get(token.text[1:-1].replace("``", "`").lower())
        return self._names.get(token.word)

    def _flipped(self, tokens: list[_Token]) -> Predicate | None:
        """literal OP column."""
        if len(tokens) < 3 or tokens[-2].kind != "op":
            return None
        column, literal = self._column(tokens[-1]), _literal(tokens[:-2])
        operator = tokens[-2].text
        if column is None or literal is None:
            return None
        return self._compare(column, _FLIPPED.get(operator, operator), literal)

    def _with_operator(self, column: str, tokens: list[_Token]) -> Predicate | None:
        operator = tokens[0]
        if operator.kind == "op":
            literal = _literal(tokens[1:])
            return None if literal is None else self._compare(column, operator.text, literal)
        match operator.word:
            case "in":
                return self._in_list(column, tokens[1:])
            case "between":
                return self._between(column, tokens[1:])
            case "like" if len(tokens) == 2 and tokens[1].kind == "string" and self._types[column] == "string":
                return self._like(column, _text(tokens[1]))
            case _:
                return None

    def _compare(self, column: str, operator: str, literal: _Literal) -> Predicate | None:
        value = self._value(column, literal)
        if value is None:
            return None
        if operator == "<=>":
            is_null = Predicate(is_null=common_pb2.IsNull(column=column))
            if literal.kind == "null":
                return is_null
            equal = common_pb2.Compare(column=column, comparison=common_pb2.COMPARISON_EQUAL, value=value)
            both = [Predicate(compare=equal), Predicate(negation=is_null)]
            return Predicate(all_of=common_pb2.PredicateList(operands=both))
        comparison = _COMPARISONS.get(operator)
        if comparison is None:
            return None
        return Predicate(compare=common_pb2.Compare(column=column, comparison=comparison, value=value))

    def _in_list(self, column: str, tokens: list[_Token]) -> Predicate | None:
        if len(tokens) < 3 or tokens[0].text != "(" or tokens[-1].text != ")":
            return None
        values = []
        for part in _split(tokens[1:-1]):
            literal = _literal(part)
            value = None if literal is None or not self._listable(column, literal) else self._value(column, literal)
            if value is None:
                return None
            values.append(value)
        return Predicate(in_list=common_pb2.InList(column=column, values=values))

    def _listable(self, column: str, literal: _Literal) -> bool:
        """Spark compares all of a list as one type, so that one value may change what the others mean."""
        kind = self._types[column]
        if kind.startswith("timestamp"):
            return literal.kind != "string"
        return not kind.startswith("decimal") or literal.kind in ("integer", "null")

    def _between(self, column: str, tokens: list[_Token]) -> Predicate | None:
        middle = [at for at, token in enumerate(tokens) if token.word == "and"]
        if len(middle) != 1:
            return None
        low, high = _literal(tokens[: middle[0]]), _literal(tokens[middle[0] + 1 :])
        if low is None or high is None:
            return None
        both = [self._compare(column, ">=", low), self._compare(column, "<=", high)]
        parts = [part for part in both if part is not None]
        return Predicate(all_of=common_pb2.PredicateList(operands=parts)) if len(parts) == 2 else None

    def _like(self, column: str, pattern: str | None) -> Predicate | None:
        if pattern is None or "_" in pattern or "%" in pattern[:-1] or len(pattern) > TEXT_CHARS_MAX:
            return None
        if pattern.endswith("%"):
            return Predicate(starts_with=common_pb2.StartsWith(column=column, prefix=pattern[:-1]))
        return self._compare(column, "=", _Literal("string", pattern))

    def _value(self, column: str, literal: _Literal) -> common_pb2.Value | None:
        kind = self._types[column]
        if literal.kind == "null":
            return common_pb2.Value(null=common_pb2.NULL_VALUE_UNSPECIFIED) if is_ordered(kind) else None
        match kind:
            case "tinyint" | "smallint" | "int" | "bigint":
                return common_pb2.Value(integer=literal.value) if literal.kind == "integer" else None
            case "float" | "double":
                return _real(literal, exact_below=1 << (24 if kind == "float" else 53))
            case "string":
                return common_pb2.Value(text=literal.value) if literal.kind == "string" else None
            case "boolean":
                return common_pb2.Value(boolean=literal.value) if literal.kind == "boolean" else None
            case "binary":
                return common_pb2.Value(binary=literal.value) if literal.kind == "binary" else None
            case "date":
                return _date(literal)
            case "timestamp":
                return _timestamp(literal, ("string", "timestamp_ltz"), self._zone)
            case "timestamp_ntz":
                return _timestamp(literal, ("string", "timestamp_ntz"), UTC)
            case _:
                return _decimal(kind, literal)


def is_ordered(kind: str) -> bool:
    """Whether the wire has values of a column's type."""
    return not kind.startswith(("array", "map", "struct"))


def _split(tokens: list[_Token]) -> list[list[_Token]]:
    parts: list[list[_Token]] = [[]]
    for token in tokens:
        if token.text == "," and token.kind == "op":
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _literal(tokens: list[_Token]) -> _Literal | None:
    if len(tokens) == 1:
        return _plain(tokens[0])
    if len(tokens) != 2:
        return None
    first, second = tokens
    if first.text == "-" and second.kind == "number":
        number = _number(second.text)
        return None if number is None else _Literal(number.kind, _negated(number.value))
    text = _text(second) if second.kind == "string" else None
    if text is None or first.word not in ("date", "timestamp_ltz", "timestamp_ntz", "x"):
        return None  # TIMESTAMP '…' is of either type, as the session says
    if first.word != "x":
        return _Literal(first.word, text)
    try:
        return _Literal("binary", bytes.fromhex(text)) if text.isalnum() else None
    except ValueError:
        return None


def _negated(number: float | Decimal) -> float | Decimal:
    return number.copy_negate() if isinstance(number, Decimal) else -number  # a minus would round


def _plain(token: _Token) -> _Literal | None:
    if token.kind == "number":
        return _number(token.text)
    if token.kind == "string":
        text = _text(token)
        return None if text is None else _Literal("string", text)
    if token.word in ("true", "false"):
        return _Literal("boolean", token.word == "true")
    return _Literal("null") if token.word == "null" else None


def _text(token: _Token) -> str | None:
    """A string without escapes, whose meaning hangs on the session."""
    text = token.text[1:-1]
    return None if "\\" in text or len(text) > TEXT_CHARS_MAX else text


def _number(text: str) -> _Literal | None:
    """Spark's types: 5 is an integer, 5.0 a decimal, 5e0 a double; Python's own words for the same are alike."""
    plain = re.fullmatch(r"([0-9]+)[lL]?", text)
    if plain is not None:
        number = int(plain[1])
        return _Literal("integer", number) if number < 1 << 63 else None
    if re.fullmatch(r"[0-9]*\.?[0-9]*", text):
        return _Literal("decimal", Decimal(text)) if len(text) <= 38 else None
    if re.fullmatch(r"[0-9.]+[eE][+-]?[0-9]+|[0-9.]+[dD]", text):
        double = float(text.rstrip("dD"))
        return _Literal("double", double) if isfinite(double) else None
    return None


def _real(literal: _Literal, exact_below: int) -> common_pb2.Value | None:
    if literal.kind == "integer":
        return common_pb2.Value(real=float(literal.value)) if abs(literal.value) <= exact_below else None
    if literal.kind in ("decimal", "double"):
        return common_pb2.Value(real=float(literal.value))
    return None


def _decimal(kind: str, literal: _Literal) -> common_pb2.Value | None:
    """Exact where both fit into one decimal of 38 digits."""
    found = re.fullmatch(r"decimal\(([0-9]+),([0-9]+)\)", kind)
    if found is None or literal.kind not in ("integer", "decimal"):
        return None
    number = Decimal(literal.value)
    scale = max(0, -int(number.as_tuple().exponent))
    whole = max(int(found[1]) - int(found[2]), number.adjusted() + 1, 19)
    if whole + max(scale, int(found[2])) > 38:
        return None
    return common_pb2.Value(decimal=f"{number:f}")


def _date(literal: _Literal) -> common_pb2.Value | None:
    if literal.kind not in ("string", "date") or not _DAY.match(literal.value):
        return None
    try:
        return common_pb2.Value(date=(date.fromisoformat(literal.value) - EPOCH_DAY).days)
    except ValueError:
        return None


def _timestamp(literal: _Literal, kinds: tuple[str, ...], zone: tzinfo | None) -> common_pb2.Value | None:
    if literal.kind not in kinds or zone is None or not _TIME.match(literal.value):
        return None
    try:
        local = datetime.fromisoformat(literal.value)
    except ValueError:
        return None
    if not 1900 < local.year < 9999:
        return None  # zones were not whole minutes then, and tables of them differ
    return common_pb2.Value(timestamp_us=(local.replace(tzinfo=zone) - EPOCH) // MICROSECOND)
