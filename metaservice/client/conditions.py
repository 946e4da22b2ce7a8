"""Conditions as people write them, as predicates of the wire: typed by a table's columns, with errors that point.

    parse_condition("day >= '2026-11-01' AND (shop IN (3, 4) OR note LIKE 'late%')", table.columns)

    condition   :=  conjunction (OR conjunction)*
    conjunction :=  term (AND term)*
    term        :=  NOT term  |  ( condition )  |  TRUE  |  FALSE  |  value OP column  |  column test
                 |  a boolean column
    test        :=  OP value  |  IS [NOT] NULL  |  [NOT] IN ( value, … )  |  [NOT] BETWEEN value AND value
                 |  [NOT] LIKE 'prefix%'  |  STARTS WITH 'prefix'

OP is one of = <> != < <= > >=. Values are numbers, 'text' (a quote in it is doubled), TRUE, FALSE and X'00ff'; dates
and times are text, such as '2026-11-21' and '2026-11-21 15:04:05Z', with or without DATE or TIMESTAMP before it. A
timestamp says its zone (Z is UTC, or +01:00), since no session knows one here; a timestamp_ntz has none. NULL may stand
in a list. Words and columns are found whatever their case; a column that is called like a word, or has
signs in its name, stands in `backticks`.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Final, NoReturn

from protos.laketx.v1 import catalog_pb2, common_pb2

NESTED_MAX: Final = 20  # the wire and Protocol Buffers bound it too
INTEGER_BITS: Final = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
OPERATORS: Final[Mapping[str, common_pb2.Comparison.ValueType]] = {
    "=": common_pb2.COMPARISON_EQUAL,
    "<>": common_pb2.COMPARISON_NOT_EQUAL,
    "!=": common_pb2.COMPARISON_NOT_EQUAL,
    "<": common_pb2.COMPARISON_LESS,
    "<=": common_pb2.COMPARISON_LESS_OR_EQUAL,
    ">": common_pb2.COMPARISON_GREATER,
    ">=": common_pb2.COMPARISON_GREATER_OR_EQUAL,
}
TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
NEVER_COLUMNS: Final = frozenset(["AND", "OR", "NOT", "IN", "IS", "NULL", "TRUE", "FALSE", "LIKE", "BETWEEN"])
WORDS: Final = NEVER_COLUMNS | {"STARTS", "WITH", "DATE", "TIMESTAMP"}
TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
      | (?P<hex>[xX]'[^']*')
      | (?P<text>'(?:[^']|'')*')
      | (?P<quoted>`(?:[^`]|``)+`)
      | (?P<word>\w+)
      | (?P<sign><>|!=|<=|>=|=|<|>|\(|\)|,)
      | (?P<end>\Z)
    )""",
    re.VERBOSE,
)


class ConditionError(ValueError):
    """The condition can't be parsed: the problem, and the character where it begins."""

    def __init__(self, message: str, text: str, position: int) -> None:
        super().__init__(message)
        self.message = message
        self.text = text
        self.position = position

    def pointed(self) -> str:
        """Two lines: the condition, and below it a ^ at the place. Line ends and tabs are shown as spaces."""
        line = "".join(each if each.isprintable() else " " for each in self.text)
        return f"{line}\n{' ' * self.position}^"


def parse_condition(text: str, columns: Sequence[catalog_pb2.Column]) -> common_pb2.Predicate:
    """Parse a condition. Raises ConditionError."""
    parser = _Parser(text, columns)
    condition = parser.condition(0)
    if parser.now.kind != "end":
        parser.refuse(f"expected AND, OR or the end, not {parser.now}")
    return condition


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int

    @property
    def word(self) -> str:
        """The word in upper case if it is a word of the language; otherwise empty."""
        upper = self.text.upper()
        return upper if self.kind == "word" and upper in WORDS else ""

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else f"`{self.text}`"


class _Parser:
    def __init__(self, text: str, columns: Sequence[catalog_pb2.Column]) -> None:
        self._text = text
        self._columns = {column.name.lower(): column for column in columns}
        self._tokens = list(_split(text))
        self._at = 0

    @property
    def now(self) -> _Token:
        return self._tokens[self._at]

    def refuse(self, message: str, token: _Token | None = None) -> NoReturn:
        raise ConditionError(message, self._text, (token or self.now).position)

    # ------------------------------------------------------------------------------------------------------ connectives

    def condition(self, depth: int) -> common_pb2.Predicate:
        parts = [self._conjunction(depth)]
        while self._skip("OR"):
            parts.append(self._conjunction(depth))
        return parts[0] if len(parts) == 1 else _any_of(parts)

    def _conjunction(self, depth: int) -> common_pb2.Predicate:
        parts = [self._term(depth)]
        while self._skip("AND"):
            parts.append(self._term(depth))
        return parts[0] if len(parts) == 1 else _all_of(parts)

    def _term(self, depth: int) -> common_pb2.Predicate:
        if depth >= NESTED_MAX:
            self.refuse(f"nested deeper than {NESTED_MAX}")
        if self._skip("NOT"):
            return _not(self._term(depth + 1))
        if self._skip_sign("("):
            condition = self.condition(depth + 1)
            self._expect_sign(")", "AND, OR or )")
            return condition
        if self.now.word in ("TRUE", "FALSE") and self._peek().text not in OPERATORS:
            return common_pb2.Predicate(literal=self._take().word == "TRUE")
        if self._begins_value():
            return self._turned()
        return self._test(self._column())

    # ------------------------------------------------------------------------------------------------------------ tests

    def _test(self, column: catalog_pb2.Column) -> common_pb2.Predicate:
        if self._skip("IS"):
            negated = self._skip("NOT")
            self._expect("NULL")
            condition = common_pb2.Predicate(is_null=common_pb2.IsNull(column=column.name))
            return _not(condition) if negated else condition
        if self.now.text in OPERATORS:
            operator = self._take()
            return _compare(column, OPERATORS[operator.text], self._operand(column))
        negated = self._skip("NOT")
        tests: Mapping[str, Callable[[catalog_pb2.Column], common_pb2.Predicate]] = {
            "IN": self._in,
            "BETWEEN": self._between,
            "LIKE": self._like,
            "STARTS": self._starts_with,
        }
        test = tests.get(self.now.word)
        if test is None and not negated and column.type == "boolean":
            return _compare(column, common_pb2.COMPARISON_EQUAL, common_pb2.Value(boolean=True))
        if test is None:
            self.refuse(f"expected a comparison, IN, BETWEEN, LIKE or IS after `{column.name}`, not {self.now}")
        self._take()
        condition = test(column)
        return _not(condition) if negated else condition

    def _in(self, column: catalog_pb2.Column) -> common_pb2.Predicate:
        self._expect_sign("(", "( and the values")
        values = [self._value(column)]
        while self._skip_sign(","):
            values.append(self._value(column))
        self._expect_sign(")", ", or )")
        return common_pb2.Predicate(in_list=common_pb2.InList(column=column.name, values=values))

    def _between(self, column: catalog_pb2.Column) -> common_pb2.Predicate:
        low = self._operand(column)
        self._expect("AND")
        high = self._operand(column)
        return _all_of(
            [
                _compare(column, common_pb2.COMPARISON_GREATER_OR_EQUAL, low),
                _compare(column, common_pb2.COMPARISON_LESS_OR_EQUAL, high),
            ]
        )

    def _like(self, column: catalog_pb2.Column) -> common_pb2.Predicate:
        token = self.now
        pattern = self._prefix(column)
        prefix = pattern.removesuffix("%")
        if any(each in prefix for each in "%_\\"):
            self.refuse("LIKE takes a beginning and one % at its end, such as 'late%'", token)
        if prefix == pattern:
            return _compare(column, common_pb2.COMPARISON_EQUAL, common_pb2.Value(text=pattern))
        return common_pb2.Predicate(starts_with=common_pb2.StartsWith(column=column.name, prefix=prefix))

    def _starts_with(self, column: catalog_pb2.Column) -> common_pb2.Predicate:
        self._expect("WITH")
        return common_pb2.Predicate(starts_with=common_pb2.StartsWith(column=column.name, prefix=self._prefix(column)))

    def _turned(self) -> common_pb2.Predicate:
        """A value before its column: 5 < id."""
        at = self._at
        if self._take().word in ("DATE", "TIMESTAMP"):
            self._take()
        if self.now.text not in OPERATORS:
            self.refuse(f"expected a comparison, not {self.now}")
        operator = self._take().text
        column = self._column()
        after, self._at = self._at, at
        value = self._operand(column)
        self._at = after
        return _compare(column, OPERATORS[TURNED.get(operator, operator)], value)

    # -------------------------------------------------------------------------------------------------- columns, values

    def _column(self) -> catalog_pb2.Column:
        token = self.now
        if token.kind not in ("word", "quoted") or token.word in NEVER_COLUMNS:
            self.refuse(f"expected a column, not {token}")
        name = token.text[1:-1].replace("``", "`") if token.kind == "quoted" else token.text
        column = self._columns.get(name.lower())
        if column is None:
            near = difflib.get_close_matches(name.lower(), self._columns, n=1)
            hint = f"; did you mean `{self._columns[near[0]].name}`?" if near else ""
            self.refuse(f"there is no column `{name}`{hint}")
        self._take()
        return column

    def _begins_value(self) -> bool:
        if self.now.word in ("DATE", "TIMESTAMP"):
            return self._peek().kind == "text"
        return self.now.kind in ("number", "text", "hex") or self.now.word in ("NULL", "TRUE", "FALSE")

    def _operand(self, column: catalog_pb2.Column) -> common_pb2.Value:
        if self.now.word == "NULL":
            self.refuse(f"nothing compares with NULL: write `{column.name} IS NULL`")
        return self._value(column)

    def _value(self, column: catalog_pb2.Column) -> common_pb2.Value:
        if self._skip("NULL"):
            return common_pb2.Value(null=common_pb2.NULL_VALUE_UNSPECIFIED)
        if self.now.word in ("DATE", "TIMESTAMP") and self._peek().kind == "text":
            self._take()
        token = self.now
        if not self._begins_value():
            self.refuse(f"expected a value, not {token}")
        try:
            value = _read_value(token, column.type)
        except (ValueError, ArithmeticError) as error:
            why = f": {error.args[0]}" if isinstance(error, _UnfitError) else ""
            self.refuse(f"{token} is no {column.type}, which `{column.name}` is{why}", token)
        self._take()
        return value

    def _prefix(self, column: catalog_pb2.Column) -> str:
        if column.type != "string":
            self.refuse(f"only text begins with something; `{column.name}` is {column.type}")
        if self.now.kind != "text":
            self.refuse(f"expected 'text', not {self.now}")
        return _unquoted(self._take().text)

    # ----------------------------------------------------------------------------------------------------------- tokens

    def _take(self) -> _Token:
        token = self.now
        if token.kind != "end":
            self._at += 1
        return token

    def _peek(self) -> _Token:
        return self._tokens[min(self._at + 1, len(self._tokens) - 1)]

    def _skip(self, word: str) -> bool:
        if self.now.word != word:
            return False
        self._at += 1
        return True

    def _skip_sign(self, sign: str) -> bool:
        if self.now.kind != "sign" or self.now.text != sign:
            return False
        self._at += 1
        return True

    def _expect(self, word: str) -> None:
        if not self._skip(word):
            self.refuse(f"expected {word}, not {self.now}")

    def _expect_sign(self, sign: str, expected: str) -> None:
        if not self._skip_sign(sign):
            self.refuse(f"expected {expected}, not {self.now}")


def _split(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while not tokens or tokens[-1].kind != "end":
        match = TOKEN.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            unclosed = text[at] in "'`" or text[at : at + 2].lower() == "x'"
            what = "this quote is not closed" if unclosed else f"`{text[at]}` means nothing here"
            raise ConditionError(what, text, at)
        kind = match.lastgroup or "end"
        tokens.append(_Token(kind, match[kind], match.start(kind)))
        at = match.end()
    return tokens


# -- values ------------------------------------------------------------------------------------------------------------


class _UnfitError(ValueError):
    """A value that doesn't fit; the message says why."""


def _read_value(token: _Token, type_name: str) -> common_pb2.Value:
    """Raises ValueError, ArithmeticError."""
    kind = type_name.partition("(")[0]
    if kind in INTEGER_BITS:
        return common_pb2.Value(integer=_integer(_of("number", token), INTEGER_BITS[kind]))
    match kind:
        case "float" | "double":
            real = float(_of("number", token))
            if not math.isfinite(real):
                raise _UnfitError("it is too large")
            return common_pb2.Value(real=real)
        case "decimal":
            return common_pb2.Value(decimal=_decimal(_of("number", token)))
        case "string":
            return common_pb2.Value(text=_unquoted(_of("text", token)))
        case "binary":
            return common_pb2.Value(binary=bytes.fromhex(_of("hex", token)[2:-1]))
        case "boolean":
            return common_pb2.Value(boolean=_boolean(token))
        case "date":
            days = (date.fromisoformat(_unquoted(_of("text", token))) - EPOCH.date()).days
            return common_pb2.Value(date=days)
        case "timestamp" | "timestamp_ntz":
            return common_pb2.Value(timestamp_us=_time_us(_unquoted(_of("text", token)), kind))
        case _:
            raise _UnfitError("a nested type is only asked whether it IS NULL")


def _of(kind: str, token: _Token) -> str:
    if token.kind != kind:
        hints = {"number": "write a number", "text": "write it in 'quotes'", "hex": "write it like X'00ff'"}
        raise _UnfitError(hints[kind])
    return token.text


def _integer(text: str, bits: int) -> int:
    number = Decimal(text)
    if number != number.to_integral_value():
        raise _UnfitError("it is not whole")
    if not -(1 << bits) <= number < 1 << bits:
        raise _UnfitError("it is out of range")
    return int(number)


def _decimal(text: str) -> str:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise _UnfitError("write a number") from None
    if not number.is_finite() or abs(number.adjusted()) > 76:
        raise _UnfitError("it is out of range")
    return f"{number:f}"


def _boolean(token: _Token) -> bool:
    if token.word not in ("TRUE", "FALSE"):
        raise _UnfitError("write TRUE or FALSE")
    return token.word == "TRUE"


def _time_us(text: str, kind: str) -> int:
    time = datetime.fromisoformat(text)
    if time.tzinfo is not None and kind == "timestamp_ntz":
        raise _UnfitError("it takes no time zone")
    if time.tzinfo is None and kind == "timestamp":
        raise _UnfitError(f"it says no time zone; {text}Z is UTC")
    time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return (time - EPOCH) // timedelta(microseconds=1)


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


# -- predicates --------------------------------------------------------------------------------------------------------


def _compare(
    column: catalog_pb2.Column, comparison: common_pb2.Comparison.ValueType, value: common_pb2.Value
) -> common_pb2.Predicate:
    return common_pb2.Predicate(compare=common_pb2.Compare(column=column.name, comparison=comparison, value=value))


def _all_of(parts: Sequence[common_pb2.Predicate]) -> common_pb2.Predicate:
    return common_pb2.Predicate(all_of=common_pb2.PredicateList(operands=parts))


def _any_of(parts: Sequence[common_pb2.Predicate]) -> common_pb2.Predicate:
    return common_pb2.Predicate(any_of=common_pb2.PredicateList(operands=parts))


def _not(part: common_pb2.Predicate) -> common_pb2.Predicate:
    return common_pb2.Predicate(negation=part)
