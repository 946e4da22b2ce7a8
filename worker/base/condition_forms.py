"""The forms of a condition that mean the same in MetaService and in Spark, with their literals.

column OP literal, IN, BETWEEN, LIKE 'prefix%', IS NULL, a boolean column, TRUE and FALSE
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from decimal import Decimal
from math import isfinite
from typing import Any, Final

from protos.laketx.v1 import common_pb2
from worker.base.values import EPOCH, MICROSECOND

TEXT_CHARS_MAX: Final = common_pb2.LIMIT_CONDITION_TEXT_CHARS
_EPOCH_DAY: Final = EPOCH.date()
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

Predicate = common_pb2.Predicate


def all_of(parts: Sequence[Predicate]) -> Predicate:
    """The conjunction; TRUE if there is no part."""
    if len(parts) == 1:
        return parts[0]
    return Predicate(all_of=common_pb2.PredicateList(operands=parts)) if parts else Predicate(literal=True)


def equality(column: str, value: common_pb2.Value) -> Predicate:
    """The condition that the column has the value, which may be NULL."""
    if value.WhichOneof("kind") == "null":
        return Predicate(is_null=common_pb2.IsNull(column=column))
    compare = common_pb2.Compare(column=column, comparison=common_pb2.COMPARISON_EQUAL, value=value)
    return Predicate(compare=compare)


# -- tokens ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str

    @property
    def word(self) -> str:
        return self.text.lower() if self.kind == "word" else ""


def tokens_of(text: str) -> list[Token] | None:
    """Return the tokens; None if the text needs Spark's own lexer: a comment, a raw string, an unusual character."""
    tokens: list[Token] = []
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
            tokens.append(Token(kind, match[0]))
    return tokens


# -- forms -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SparkLiteral:
    kind: str
    value: Any = None


class Forms:
    """Turns the tokens of one form into a predicate, if their meaning is known."""

    def __init__(self, types: Mapping[str, str], zone: tzinfo | None) -> None:
        self._types = types
        self._names = {name.lower(): name for name in types}
        self._zone = zone

    def find(self, tokens: list[Token]) -> Predicate | None:
        if len(tokens) == 1 and tokens[0].word in ("true", "false"):
            return Predicate(literal=tokens[0].word == "true")
        column = self._column(tokens[0]) if tokens else None
        if column is None:
            return self._flipped(tokens)
        rest = tokens[1:]
        if not rest:
            is_flag = self._types[column] == "boolean"
            return self._compare(column, "=", SparkLiteral("boolean", True)) if is_flag else None
        words = [token.word for token in rest]
        if words == ["is", "null"]:
            return Predicate(is_null=common_pb2.IsNull(column=column))
        if words == ["is", "not", "null"]:
            return Predicate(negation=Predicate(is_null=common_pb2.IsNull(column=column)))
        if words[0] != "not":
            return self._with_operator(column, rest)
        test = self._with_operator(column, rest[1:]) if words[1:2] in (["in"], ["between"], ["like"]) else None
        return None if test is None else Predicate(negation=test)

    def _column(self, token: Token) -> str | None:
        if token.kind == "quoted":
            return self._names.get(token.text[1:-1].replace("``", "`").lower())
        return self._names.get(token.word)

    def _flipped(self, tokens: list[Token]) -> Predicate | None:
        """literal OP column."""
        if len(tokens) < 3 or tokens[-2].kind != "op":
            return None
        column, literal = self._column(tokens[-1]), _literal(tokens[:-2])
        operator = tokens[-2].text
        if column is None or literal is None:
            return None
        return self._compare(column, _FLIPPED.get(operator, operator), literal)

    def _with_operator(self, column: str, tokens: list[Token]) -> Predicate | None:
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

    def _compare(self, column: str, operator: str, literal: SparkLiteral) -> Predicate | None:
        value = self._value(column, literal)
        if value is None:
            return None
        if operator == "<=>":
            is_null = Predicate(is_null=common_pb2.IsNull(column=column))
            if literal.kind == "null":
                return is_null
            equal = common_pb2.Compare(column=column, comparison=common_pb2.COMPARISON_EQUAL, value=value)
            return all_of([Predicate(compare=equal), Predicate(negation=is_null)])
        comparison = _COMPARISONS.get(operator)
        if comparison is None:
            return None
        return Predicate(compare=common_pb2.Compare(column=column, comparison=comparison, value=value))

    def _in_list(self, column: str, tokens: list[Token]) -> Predicate | None:
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

    def _listable(self, column: str, literal: SparkLiteral) -> bool:
        """Spark compares all values of a list as one type, so one value can change what the others mean."""
        kind = self._types[column]
        if kind.startswith("timestamp"):
            return literal.kind != "string"
        return not kind.startswith("decimal") or literal.kind in ("integer", "null")

    def _between(self, column: str, tokens: list[Token]) -> Predicate | None:
        middle = [at for at, token in enumerate(tokens) if token.word == "and"]
        if len(middle) != 1:
            return None
        low, high = _literal(tokens[: middle[0]]), _literal(tokens[middle[0] + 1 :])
        if low is None or high is None:
            return None
        both = [self._compare(column, ">=", low), self._compare(column, "<=", high)]
        parts = [part for part in both if part is not None]
        return all_of(parts) if len(parts) == 2 else None

    def _like(self, column: str, pattern: str | None) -> Predicate | None:
        if pattern is None or "_" in pattern or "%" in pattern[:-1] or len(pattern) > TEXT_CHARS_MAX:
            return None
        if pattern.endswith("%"):
            return Predicate(starts_with=common_pb2.StartsWith(column=column, prefix=pattern[:-1]))
        return self._compare(column, "=", SparkLiteral("string", pattern))

    def _value(self, column: str, literal: SparkLiteral) -> common_pb2.Value | None:
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
    """Whether the wire has values of the column's type."""
    return not kind.startswith(("array", "map", "struct"))


def _split(tokens: list[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token.text == "," and token.kind == "op":
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _literal(tokens: list[Token]) -> SparkLiteral | None:
    if len(tokens) == 1:
        return _plain(tokens[0])
    if len(tokens) != 2:
        return None
    first, second = tokens
    if first.text == "-" and second.kind == "number":
        number = _number(second.text)
        return None if number is None else SparkLiteral(number.kind, _negated(number.value))
    text = _text(second) if second.kind == "string" else None
    if text is None or first.word not in ("date", "timestamp_ltz", "timestamp_ntz", "x"):
        return None  # TIMESTAMP '…' is of either type, as the session says
    if first.word != "x":
        return SparkLiteral(first.word, text)
    try:
        return SparkLiteral("binary", bytes.fromhex(text)) if text.isalnum() else None
    except ValueError:
        return None


def _negated(number: float | Decimal) -> float | Decimal:
    return number.copy_negate() if isinstance(number, Decimal) else -number  # a minus would round


def _plain(token: Token) -> SparkLiteral | None:
    if token.kind == "number":
        return _number(token.text)
    if token.kind == "string":
        text = _text(token)
        return None if text is None else SparkLiteral("string", text)
    if token.word in ("true", "false"):
        return SparkLiteral("boolean", token.word == "true")
    return SparkLiteral("null") if token.word == "null" else None


def _text(token: Token) -> str | None:
    """A string without escapes, whose meaning depends on the session."""
    text = token.text[1:-1]
    return None if "\\" in text or len(text) > TEXT_CHARS_MAX else text


def _number(text: str) -> SparkLiteral | None:
    """Spark's types: 5 is an integer, 5.0 a decimal, 5e0 a double. Python's literals have the same types."""
    plain = re.fullmatch(r"([0-9]+)[lL]?", text)
    if plain is not None:
        number = int(plain[1])
        return SparkLiteral("integer", number) if number < 1 << 63 else None
    if re.fullmatch(r"[0-9]*\.?[0-9]*", text):
        return SparkLiteral("decimal", Decimal(text)) if len(text) <= 38 else None
    if re.fullmatch(r"[0-9.]+[eE][+-]?[0-9]+|[0-9.]+[dD]", text):
        double = float(text.rstrip("dD"))
        return SparkLiteral("double", double) if isfinite(double) else None
    return None


def _real(literal: SparkLiteral, exact_below: int) -> common_pb2.Value | None:
    if literal.kind == "integer":
        return common_pb2.Value(real=float(literal.value)) if abs(literal.value) <= exact_below else None
    if literal.kind in ("decimal", "double"):
        return common_pb2.Value(real=float(literal.value))
    return None


def _decimal(kind: str, literal: SparkLiteral) -> common_pb2.Value | None:
    """Convert a number exactly; None unless literal and column fit into one decimal of 38 digits."""
    match = re.fullmatch(r"decimal\(([0-9]+),([0-9]+)\)", kind)
    if match is None or literal.kind not in ("integer", "decimal"):
        return None
    number = Decimal(literal.value)
    scale = max(0, -int(number.as_tuple().exponent))
    whole = max(int(match[1]) - int(match[2]), number.adjusted() + 1, 19)
    if whole + max(scale, int(match[2])) > 38:
        return None
    return common_pb2.Value(decimal=f"{number:f}")


def _date(literal: SparkLiteral) -> common_pb2.Value | None:
    if literal.kind not in ("string", "date") or not _DAY.match(literal.value):
        return None
    try:
        return common_pb2.Value(date=(date.fromisoformat(literal.value) - _EPOCH_DAY).days)
    except ValueError:
        return None


def _timestamp(literal: SparkLiteral, kinds: tuple[str, ...], zone: tzinfo | None) -> common_pb2.Value | None:
    if literal.kind not in kinds or zone is None or not _TIME.match(literal.value):
        return None
    try:
        local = datetime.fromisoformat(literal.value)
    except ValueError:
        return None
    if not 1900 < local.year < 9999:
        return None  # zones were not whole minutes then, and tables of them differ
    return common_pb2.Value(timestamp_us=(local.replace(tzinfo=zone) - EPOCH) // MICROSECOND)
