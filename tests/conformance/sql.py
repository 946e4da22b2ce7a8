"""The conditions of case files: a small part of SQL, turned into the wire's Predicate.

    or         := and (OR and)*
    and        := not (AND not)*
    not        := NOT not | "(" or ")" | TRUE | FALSE | test
    test       := operand OP operand | column [NOT] IN (literal, ...) | column IS [NOT] NULL
                | column [NOT] BETWEEN literal AND literal

One operand of a comparison is a column, the other a literal.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from protos.laketx.v1 import common_pb2

ValueOf = Callable[[str, str | None], common_pb2.Value]  # (column, literal; None: NULL)

TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>-?\d+(?:\.\d+)?)
      | (?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
      | (?P<quoted>`[^`]+`)
      | (?P<word>[A-Za-z_][A-Za-z0-9_.]*)
      | (?P<mark><>|!=|<=|>=|==|=|<|>|\(|\)|,)
    )""",
    re.VERBOSE,
)
COMPARISONS = {
    "=": common_pb2.COMPARISON_EQUAL,
    "==": common_pb2.COMPARISON_EQUAL,
    "<>": common_pb2.COMPARISON_NOT_EQUAL,
    "!=": common_pb2.COMPARISON_NOT_EQUAL,
    "<": common_pb2.COMPARISON_LESS,
    "<=": common_pb2.COMPARISON_LESS_OR_EQUAL,
    ">": common_pb2.COMPARISON_GREATER,
    ">=": common_pb2.COMPARISON_GREATER_OR_EQUAL,
}
TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
KEYWORDS = {"TRUE", "FALSE", "AND", "OR", "NOT", "IN", "IS", "NULL", "BETWEEN"}


class SqlError(ValueError):
    """A condition that this part of SQL doesn't hold."""


@dataclass(frozen=True)
class Token:
    kind: str  # number, text, column, keyword, mark, end
    text: str


def parse_where(where: str, value_of: ValueOf) -> common_pb2.Predicate:
    """The condition as the wire has it; value_of gives a literal the type of the column that it is compared with."""
    parser = Parser(tokens_of(where), value_of)
    predicate = parser.parse_or()
    parser.expect("end")
    return predicate


def tokens_of(where: str) -> list[Token]:
    tokens = []
    at = 0
    end = len(where.rstrip())
    while at < end:
        found = TOKEN.match(where, at)
        if found is None:
            raise SqlError(f"{where!r}: can't read on at {where[at:]!r}")
        tokens.append(token_of(found))
        at = found.end()
    return [*tokens, Token("end", "")]


def token_of(found: re.Match[str]) -> Token:
    kind, text = str(found.lastgroup), found.group(str(found.lastgroup))
    if kind == "text":
        return Token("text", text[1:-1].replace(text[0] * 2, text[0]))
    if kind == "quoted":
        return Token("column", text[1:-1])
    if kind == "word":
        return Token("keyword", text.upper()) if text.upper() in KEYWORDS else Token("column", text)
    return Token(kind, text)


class Parser:
    """Descends through the grammar above, one method a rule."""

    def __init__(self, tokens: list[Token], value_of: ValueOf) -> None:
        self._tokens = tokens
        self._at = 0
        self._value_of = value_of

    def parse_or(self) -> common_pb2.Predicate:
        operands = [self.parse_and()]
        while self.take("keyword", "OR"):
            operands.append(self.parse_and())
        if len(operands) == 1:
            return operands[0]
        return common_pb2.Predicate(any_of=common_pb2.PredicateList(operands=operands))

    def parse_and(self) -> common_pb2.Predicate:
        operands = [self.parse_not()]
        while self.take("keyword", "AND"):
            operands.append(self.parse_not())
        if len(operands) == 1:
            return operands[0]
        return common_pb2.Predicate(all_of=common_pb2.PredicateList(operands=operands))

    def parse_not(self) -> common_pb2.Predicate:
        if self.take("keyword", "NOT"):
            return negate(self.parse_not())
        if self.take("mark", "("):
            predicate = self.parse_or()
            self.expect("mark", ")")
            return predicate
        for word in ("TRUE", "FALSE"):
            if self.take("keyword", word):
                return common_pb2.Predicate(literal=word == "TRUE")
        return self.parse_test()

    def parse_test(self) -> common_pb2.Predicate:
        column = self.take("column")
        if column is None:
            literal = self.parse_literal()
            mark = self.expect("mark").text
            return self.compare(self.expect("column").text, TURNED.get(mark, mark), literal)
        if self.take("keyword", "IS"):
            negated = self.take("keyword", "NOT")
            self.expect("keyword", "NULL")
            is_null = common_pb2.Predicate(is_null=common_pb2.IsNull(column=column.text))
            return negate(is_null) if negated else is_null
        if self.take("keyword", "NOT"):
            return negate(self.parse_set(column.text))
        if self.peek() in {Token("keyword", "IN"), Token("keyword", "BETWEEN")}:
            return self.parse_set(column.text)
        mark = self.expect("mark").text
        return self.compare(column.text, mark, self.parse_literal())

    def parse_set(self, column: str) -> common_pb2.Predicate:
        if self.take("keyword", "BETWEEN"):
            low = self.compare(column, ">=", self.parse_literal())
            self.expect("keyword", "AND")
            high = self.compare(column, "<=", self.parse_literal())
            return common_pb2.Predicate(all_of=common_pb2.PredicateList(operands=[low, high]))
        self.expect("keyword", "IN")
        self.expect("mark", "(")
        values = [self._value_of(column, self.parse_literal())]
        while self.take("mark", ","):
            values.append(self._value_of(column, self.parse_literal()))
        self.expect("mark", ")")
        return common_pb2.Predicate(in_list=common_pb2.InList(column=column, values=values))

    def parse_literal(self) -> str | None:
        if self.take("keyword", "NULL"):
            return None
        token = self.take("number") or self.expect("text")
        return token.text

    def compare(self, column: str, mark: str, literal: str | None) -> common_pb2.Predicate:
        if mark not in COMPARISONS:
            raise SqlError(f"{mark!r} compares nothing")
        value = self._value_of(column, literal)
        return common_pb2.Predicate(
            compare=common_pb2.Compare(column=column, comparison=COMPARISONS[mark], value=value)
        )

    def peek(self) -> Token:
        return self._tokens[self._at]

    def take(self, kind: str, text: str | None = None) -> Token | None:
        token = self.peek()
        if token.kind != kind or text not in {None, token.text}:
            return None
        self._at += token.kind != "end"
        return token

    def expect(self, kind: str, text: str | None = None) -> Token:
        token = self.take(kind, text)
        if token is None:
            raise SqlError(f"expected {text or kind}, found {self.peek().text or 'the end'}")
        return token


def negate(predicate: common_pb2.Predicate) -> common_pb2.Predicate:
    return common_pb2.Predicate(negation=predicate)
