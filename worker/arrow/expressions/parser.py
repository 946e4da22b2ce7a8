"""Plain SQL expressions on rows in Arrow: literals, columns, exact arithmetic, comparisons. They mean what Spark's do.

    amount + 1        note || '!'        coalesce(target.n, 0) + source.n        id IN (1, 2) AND note IS NOT NULL

An expression is typed when it is parsed. What isn't plain is refused with the reason: a function, a division, a mix of
types whose result depends on the session.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import reduce
from math import isfinite
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from worker.arrow.expressions.evaluation import (
    Expression,
    cast,
    comparable,
    compared_floats,
    digits,
    is_number,
    literal,
    made,
    null_safe,
    number,
    wider,
    widest,
)
from worker.arrow.expressions.tokens import Token, TokenError, tokens_of
from worker.base.errors import InputError, NotPlainError
from worker.base.values import wire_value

DIGITS_MAX: Final = 38
DEPTH_MAX: Final = 20
CHAIN_MAX: Final = 50  # operators in a row
COMPARISONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "=": pc.equal,
    "==": pc.equal,
    "<>": pc.not_equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
CHECKED: Final = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}
UNCHECKED: Final = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
NEVER_COLUMNS: Final = frozenset(["AND", "OR", "NOT", "IN", "IS", "NULL", "TRUE", "FALSE", "LIKE", "BETWEEN"])
TYPED: Final = {
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_LTZ": "timestamp",
    "TIMESTAMP_NTZ": "timestamp_ntz",
}
KINDS: Final = {"date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us")}

Columns = Mapping[tuple[str, ...], tuple[str, pa.DataType]]  # by name or side and name, in lower case


def parse_value(text: str, columns: Columns) -> Expression:
    """Parse a value of any type. Raises NotPlainError."""
    return _Parser(text, columns, is_condition=False).whole()


def parse_truth(text: str, columns: Columns) -> Expression:
    """Parse a condition. Raises NotPlainError."""
    parser = _Parser(text, columns, is_condition=True)
    condition = parser.whole()
    if pa.types.is_null(condition.kind):
        return cast(condition, pa.bool_())
    if not pa.types.is_boolean(condition.kind):
        parser.refuse(f"a condition is true or false, and this is {condition.kind}", 0)
    return condition


class _Parser:
    def __init__(self, text: str, columns: Columns, *, is_condition: bool) -> None:
        self._text = text
        self._columns = columns
        self._is_condition = is_condition
        self._at = 0
        try:
            self._tokens = tokens_of(text)
        except TokenError as error:
            self._tokens = [Token("end", "", error.place, error.place)]
            self.refuse(f"`{text[error.place]}` needs Spark here")

    def refuse(self, message: str, begin: int | None = None) -> NoReturn:
        line = "".join(each if each.isprintable() else " " for each in self._text)
        place = self._now.begin if begin is None else begin
        pointed = f"{message}\n{line}\n{' ' * place}^"
        raise (
            NotPlainError("CONDITION_INVALID", pointed)
            if self._is_condition
            else NotPlainError("VALUE_INVALID", pointed)
        )

    def whole(self) -> Expression:
        expression = self._any(0)
        if self._now.kind != "end":
            self.refuse(f"expected an operator or the end, not {self._now}")
        return expression

    # ------------------------------------------------------------------------------------------------------ connectives

    def _any(self, depth: int) -> Expression:
        self._check(depth)
        begin = self._now.begin
        parts = [self._all(depth)]
        while self._skip("OR"):
            parts.append(self._all(depth))
        if len(parts) == 1:
            return parts[0]
        joined = made(pa.bool_(), list(map(self._truth, parts)), lambda *values: reduce(pc.or_kleene, values))
        return self._with_text(joined, begin)

    def _all(self, depth: int) -> Expression:
        begin = self._now.begin
        parts = [self._negation(depth)]
        while self._skip("AND"):
            parts.append(self._negation(depth))
        if len(parts) == 1:
            return parts[0]
        truths = list(map(self._truth, parts))
        flat = tuple(part for truth in truths for part in truth.parts())
        joined = made(pa.bool_(), truths, lambda *values: reduce(pc.and_kleene, values))
        return replace(self._with_text(joined, begin), conjuncts=flat)

    def _negation(self, depth: int) -> Expression:
        self._check(depth)
        begin = self._now.begin
        if self._skip("NOT"):
            return self._with_text(made(pa.bool_(), [self._truth(self._negation(depth + 1))], pc.invert), begin)
        return self._test(depth)

    def _check(self, depth: int) -> None:
        if depth >= DEPTH_MAX:
            self.refuse(f"nested deeper than {DEPTH_MAX}")

    def _truth(self, value: Expression) -> Expression:
        if pa.types.is_null(value.kind):
            return cast(value, pa.bool_())
        if not pa.types.is_boolean(value.kind):
            self.refuse(f"expected a condition, not a value of type {value.kind}")
        return value

    # ------------------------------------------------------------------------------------------------------------ tests

    def _test(self, depth: int) -> Expression:
        begin = self._now.begin
        left = self._sum(depth)
        test = self._tested(left, depth)
        return test if test is left else self._with_text(test, begin)

    def _tested(self, left: Expression, depth: int) -> Expression:
        if self._skip("IS"):
            negated = self._skip("NOT")
            self._expect("NULL")
            return made(pa.bool_(), [left], pc.is_valid if negated else pc.is_null)
        sign = self._sign()
        if sign in COMPARISONS or sign == "<=>":
            self._at += 1
            return self._compared(sign, left, self._sum(depth))
        negated = self._skip("NOT")
        if self._skip("IN"):
            self._expect_sign("(")
            options = [self._compared("=", left, self._sum(depth))]
            while self._skip_sign(","):
                options.append(self._compared("=", left, self._sum(depth)))
            self._expect_sign(")")
            test = made(pa.bool_(), options, lambda *values: reduce(pc.or_kleene, values))
        elif self._skip("BETWEEN"):
            low = self._compared(">=", left, self._sum(depth))
            self._expect("AND")
            high = self._compared("<=", left, self._sum(depth))
            test = made(pa.bool_(), [low, high], pc.and_kleene)
        elif self._skip("LIKE"):
            test = self._like(left)
        elif negated:
            self.refuse(f"expected IN, BETWEEN or LIKE, not {self._now}")
        else:
            return left
        return made(pa.bool_(), [test], pc.invert) if negated else test

    def _like(self, left: Expression) -> Expression:
        token = self._now
        if token.kind != "text" or not pa.types.is_string(left.kind):
            self.refuse("LIKE compares a text with a 'text'")
        self._at += 1
        pattern = token.unquoted
        prefix = pattern.removesuffix("%")
        if "%" in prefix or "_" in prefix:
            self.refuse("LIKE takes a beginning and one % at its end, such as 'late%'", token.begin)
        if prefix == pattern:
            return self._compared("=", left, literal(pa.string(), pattern))
        return made(pa.bool_(), [left], lambda value: pc.starts_with(value, pattern=prefix))

    def _compared(self, sign: str, left: Expression, right: Expression) -> Expression:
        left, right = self._dated(left, right), self._dated(right, left)
        kind = comparable(left, right)
        if kind is None:
            self.refuse(f"{left.kind} and {right.kind} are not compared without Spark")
        both = [cast(left, kind), cast(right, kind)]
        if sign == "<=>":
            return replace(made(pa.bool_(), both, null_safe), equal=(left, right), null_safe=True)
        compare = COMPARISONS[sign]
        if pa.types.is_floating(kind):
            compared = made(pa.bool_(), both, lambda a, b: compared_floats(sign, a, b))
        else:
            compared = made(pa.bool_(), both, compare)
        return replace(compared, equal=(left, right) if compare is pc.equal else None)

    def _dated(self, value: Expression, other: Expression) -> Expression:
        """Return a text that is compared with a date or time as a value of that type."""
        names = [name for name, kind in KINDS.items() if other.kind == kind]
        if not names or not isinstance(value.literal, str):
            return value
        return self._of_text(value.literal, names[0])

    def _of_text(self, text: str, type_name: str) -> Expression:
        try:
            value = wire_value(text, type_name)
        except InputError as error:
            self.refuse(str(error))
        number = value.date if type_name == "date" else value.timestamp_us
        return literal(KINDS[type_name], number)

    # ------------------------------------------------------------------------------------------------------- arithmetic

    def _sum(self, depth: int) -> Expression:
        begin = self._now.begin
        left = self._product(depth)
        count = 0
        while (sign := self._sign()) in ("+", "-", "||"):
            count = self._counted(count)
            right = self._product(depth)
            left = self._concatenated(left, right) if sign == "||" else self._computed(sign, left, right)
            left = self._with_text(left, begin)
        return left

    def _product(self, depth: int) -> Expression:
        left = self._signed(depth)
        count = 0
        while (sign := self._sign()) in ("*", "/", "%"):
            if sign != "*":
                self.refuse("a division is not exact, so that Spark has to do it")
            count = self._counted(count)
            left = self._computed("*", left, self._signed(depth))
        return left

    def _counted(self, count: int) -> int:
        if count == CHAIN_MAX:
            self.refuse(f"more than {CHAIN_MAX} operators in a row")
        self._at += 1
        return count + 1

    def _sign(self) -> str:
        return self._now.text if self._now.kind == "sign" else ""

    def _with_text(self, value: Expression, begin: int) -> Expression:
        return replace(value, text=self._text[begin : self._tokens[self._at - 1].end])

    def _signed(self, depth: int) -> Expression:
        self._check(depth)
        if self._skip_sign("+"):
            return self._checked(self._signed(depth + 1))
        if not self._skip_sign("-"):
            return self._primary(depth)
        value = self._checked(self._signed(depth + 1))
        if isinstance(value.literal, (int, float, Decimal)):
            negative = value.literal.copy_negate() if isinstance(value.literal, Decimal) else -value.literal
            return number(negative)
        if pa.types.is_floating(value.kind):
            return made(value.kind, [value], pc.negate)
        return made(value.kind, [value], pc.negate_checked)

    def _checked(self, value: Expression) -> Expression:
        if not is_number(value.kind):
            self.refuse(f"expected a number, not a value of type {value.kind}")
        return value

    def _concatenated(self, left: Expression, right: Expression) -> Expression:
        if not all(pa.types.is_string(side.kind) or pa.types.is_null(side.kind) for side in (left, right)):
            self.refuse("|| joins two texts")
        both = [cast(left, pa.string()), cast(right, pa.string())]
        return made(pa.string(), both, lambda a, b: pc.binary_join_element_wise(a, b, "", null_handling="emit_null"))

    def _computed(self, sign: str, left: Expression, right: Expression) -> Expression:
        both = [self._checked(left), self._checked(right)]
        kinds = [side.kind for side in both]
        if all(pa.types.is_integer(kind) for kind in kinds):
            kind = widest(kinds)
            wide = [cast(side, pa.int64()) for side in both]
            return made(kind, wide, lambda a, b: CHECKED[sign](a, b).cast(kind))
        if any(pa.types.is_floating(kind) for kind in kinds):
            kind = self._float_kind(both)
            return made(kind, [cast(side, kind) for side in both], UNCHECKED[sign])
        (p1, s1), (p2, s2) = map(digits, both)
        scale = s1 + s2 if sign == "*" else max(s1, s2)
        precision = p1 + p2 + 1 if sign == "*" else max(p1 - s1, p2 - s2) + scale + 1
        if precision > DIGITS_MAX:
            self.refuse(f"{kinds[0]} {sign} {kinds[1]} may have more than {DIGITS_MAX} digits")
        kind = pa.decimal128(precision, scale)
        decimals = [cast(side, pa.decimal128(*digits(side))) for side in both]
        return made(kind, decimals, lambda a, b: UNCHECKED[sign](a, b).cast(kind))

    def _float_kind(self, both: Sequence[Expression]) -> pa.DataType:
        if all(side.kind == pa.float32() for side in both):
            return pa.float32()
        if any(side.kind == pa.float32() for side in both) and not all(
            pa.types.is_floating(side.kind) for side in both
        ):
            self.refuse("a float with a number of another type depends on the session")
        if any(pa.types.is_decimal(side.kind) and side.literal is None for side in both):
            self.refuse("a decimal with a double is not exact, so that Spark has to do it")
        return pa.float64()

    # -------------------------------------------------------------------------------------------------- columns, values

    def _primary(self, depth: int) -> Expression:
        token = self._now
        if self._skip_sign("("):
            expression = self._any(depth + 1)
            self._expect_sign(")")
            return expression
        following = self._tokens[min(self._at + 1, len(self._tokens) - 1)]
        if token.word in TYPED and following.kind == "text":
            self._at += 2
            return self._of_text(following.unquoted, TYPED[token.word])
        if token.word in ("NULL", "TRUE", "FALSE"):
            self._at += 1
            return literal(pa.null(), None) if token.word == "NULL" else literal(pa.bool_(), token.word == "TRUE")
        if token.word == "COALESCE" and following.text == "(":
            self._at += 2
            return self._coalesced(depth)
        if token.kind in ("number", "text", "hex"):
            self._at += 1
            return self._constant(token)
        return self._column()

    def _constant(self, token: Token) -> Expression:
        if token.kind == "text":
            return literal(pa.string(), token.unquoted)
        if token.kind == "hex":
            try:
                return literal(pa.binary(), bytes.fromhex(token.text[2:-1]))
            except ValueError:
                self.refuse("expected bytes like X'00ff'", token.begin)
        if "e" in token.text.lower():
            if not isfinite(float(token.text)):
                self.refuse("this number is too large", token.begin)
            return number(float(token.text))
        value = Decimal(token.text) if "." in token.text else int(token.text)
        if len(token.text) > DIGITS_MAX:
            self.refuse(f"a number of more than {DIGITS_MAX} digits", token.begin)
        return number(value)

    def _coalesced(self, depth: int) -> Expression:
        values = [self._any(depth + 1)]
        while self._skip_sign(","):
            values.append(self._any(depth + 1))
        self._expect_sign(")")
        typed = [value for value in values if not pa.types.is_null(value.kind)]
        kind = typed[0].kind if typed else pa.null()
        for value in typed[1:]:
            common = wider(kind, value)
            if common is None:
                self.refuse(f"coalesce of {kind} and {value.kind} needs Spark")
            kind = common
        return made(kind, [cast(value, kind) for value in typed], pc.coalesce) if typed else values[0]

    def _column(self) -> Expression:
        begin = self._now
        names: list[str] = []
        while True:
            token = self._now
            if token.kind not in ("word", "quoted") or token.word in NEVER_COLUMNS:
                self.refuse(f"expected a column or a value, not {token}")
            names.append(token.unquoted)
            self._at += 1
            if not self._skip_sign("."):
                break
        if self._now.text == "(" and self._now.kind == "sign":
            self.refuse(f"the function `{'.'.join(names)}` needs Spark", begin.begin)
        column = self._columns.get(tuple(name.lower() for name in names))
        if column is None:
            self._refuse_column(names, begin.begin)
        name, kind = column
        return Expression(kind, lambda rows: rows.column(name), column=name, columns=frozenset([name]), text=name)

    def _refuse_column(self, names: list[str], begin: int) -> NoReturn:
        shown = ".".join(names)
        if any(tuple(name.lower() for name in names[:at]) in self._columns for at in range(1, len(names))):
            self.refuse(f"the field `{shown}` of a struct needs Spark", begin)
        columns = [".".join(path) for path in self._columns]
        near = difflib.get_close_matches(shown.lower(), columns, n=1) or [
            name for name in columns if name.endswith(f".{shown}")
        ]
        self.refuse(f"there is no column `{shown}`" + (f"; did you mean `{near[0]}`?" if near else ""), begin)

    # ----------------------------------------------------------------------------------------------------------- tokens

    @property
    def _now(self) -> Token:
        return self._tokens[self._at]

    def _skip(self, word: str) -> bool:
        if self._now.word != word:
            return False
        self._at += 1
        return True

    def _skip_sign(self, sign: str) -> bool:
        if self._now.kind != "sign" or self._now.text != sign:
            return False
        self._at += 1
        return True

    def _expect(self, word: str) -> None:
        if not self._skip(word):
            self.refuse(f"expected {word}, not {self._now}")

    def _expect_sign(self, sign: str) -> None:
        if not self._skip_sign(sign):
            self.refuse(f"expected {sign}, not {self._now}")
