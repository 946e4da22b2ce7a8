"""Typed expressions on rows in Arrow, with the types and the meaning that Spark gives them.

Arithmetic is that of Spark where Arrow does it exactly as Spark does. Spark orders NaN above every number and takes it
for equal to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from worker.base.errors import InputError

DIGITS_MAX: Final = 38
DIGITS: Final = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}  # as Spark's decimals count them


@dataclass(frozen=True)
class Expression:
    """A typed expression. `compute` takes rows and answers with an array or a scalar."""

    kind: pa.DataType
    compute: Callable[[pa.Table], Any]
    literal: Any = None
    column: str | None = None
    columns: frozenset[str] = frozenset()
    conjuncts: tuple[Expression, ...] = ()  # the parts of an AND
    equal: tuple[Expression, Expression] | None = None  # the sides of an equality
    null_safe: bool = False  # NULL equals NULL in it
    text: str = field(default="", compare=False)

    def over(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return a value for each row."""
        try:
            values = self.compute(rows)
        except pa.ArrowInvalid as error:
            raise InputError("VALUE_INVALID", f"{self.text} can't be computed for every row: {error}") from error
        if isinstance(values, pa.Scalar):
            values = pa.repeat(values, len(rows))
        return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values], self.kind)

    def parts(self) -> tuple[Expression, ...]:
        """Return the conditions that must all be true."""
        return self.conjuncts or (self,)


def made(kind: pa.DataType, parts: Sequence[Expression], compute: Callable[..., Any]) -> Expression:
    """Return an expression that is computed from the values of its parts."""

    def run(rows: pa.Table) -> Any:
        return compute(*[part.compute(rows) for part in parts])

    return Expression(kind, run, columns=frozenset[str]().union(*(part.columns for part in parts)))


def literal(kind: pa.DataType, value: Any) -> Expression:
    scalar = pa.scalar(value, kind)
    return Expression(kind, lambda _: scalar, literal=value, text=repr(value))


def number(value: float | Decimal) -> Expression:
    """Return a number as a literal in the type that Spark gives it: 5 is an int, 5.0 a decimal, 5e0 a double."""
    if isinstance(value, int):
        for kind in (pa.int32(), pa.int64()):
            if -(1 << kind.bit_width - 1) <= value < 1 << kind.bit_width - 1:
                return literal(kind, value)
    elif isinstance(value, float):
        return literal(pa.float64(), value)
    return literal(pa.decimal128(*digits_of(Decimal(value))), Decimal(value))


def digits_of(value: Decimal) -> tuple[int, int]:
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    return max(len(digits) + max(exponent, 0), scale, 1), scale


def digits(value: Expression) -> tuple[int, int]:
    """Return precision and scale of a decimal or an integer, as Spark counts them."""
    if isinstance(value.literal, (int, Decimal)):
        return digits_of(Decimal(value.literal))
    if pa.types.is_decimal(value.kind):
        return value.kind.precision, value.kind.scale
    return DIGITS[value.kind], 0


def cast(value: Expression, kind: pa.DataType) -> Expression:
    if value.kind == kind:
        return value
    if value.literal is not None:
        given = float(value.literal) if pa.types.is_floating(kind) else value.literal
        given = Decimal(given) if pa.types.is_decimal(kind) else given
        return replace(literal(kind, given), text=value.text)
    if pa.types.is_null(value.kind):
        return literal(kind, None)

    def widened(values: Any) -> Any:
        is_whole = pa.types.is_integer(value.kind) and pa.types.is_decimal(kind)
        return values.cast(pa.decimal128(DIGITS_MAX, 0)).cast(kind) if is_whole else values.cast(kind, safe=False)

    return replace(made(kind, [value], widened), text=value.text)


def is_number(kind: pa.DataType) -> bool:
    return bool(kind in DIGITS or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def widest(kinds: Sequence[pa.DataType]) -> pa.DataType:
    return max(kinds, key=lambda kind: kind.bit_width)


def comparable(left: Expression, right: Expression) -> pa.DataType | None:
    """Return the type in which both are compared exactly; None if there is none."""
    kinds = [left.kind, right.kind]
    if any(map(pa.types.is_nested, kinds)):
        return None
    for kind, other in (kinds, kinds[::-1]):
        if pa.types.is_null(kind):
            return pa.bool_() if pa.types.is_null(other) else other
    if not all(map(is_number, kinds)):
        return kinds[0] if kinds[0] == kinds[1] else None
    if all(map(pa.types.is_integer, kinds)):
        return pa.int64()
    if any(map(pa.types.is_floating, kinds)):
        is_exact = all(pa.types.is_decimal(side.kind) <= (side.literal is not None) for side in (left, right))
        return pa.float64() if is_exact else None
    (p1, s1), (p2, s2) = digits(left), digits(right)
    scale = max(s1, s2)
    precision = max(p1 - s1, p2 - s2) + scale
    return pa.decimal128(precision, scale) if precision <= DIGITS_MAX else pa.decimal256(precision, scale)


def wider(kind: pa.DataType, value: Expression) -> pa.DataType | None:
    """Return the type that Spark gives to a choice between values of both types, if both fit exactly."""
    if kind == value.kind:
        return kind
    if not (is_number(kind) and is_number(value.kind)):
        return None
    if pa.types.is_integer(kind) and pa.types.is_integer(value.kind):
        return widest([kind, value.kind])
    if pa.types.is_floating(kind) or pa.types.is_floating(value.kind):
        is_double = kind == pa.float64() and not (pa.types.is_decimal(value.kind) and value.literal is None)
        return pa.float64() if is_double else None
    whole = [digits(value), (kind.precision, kind.scale) if pa.types.is_decimal(kind) else (DIGITS[kind], 0)]
    scale = max(pair[1] for pair in whole)
    precision = max(pair[0] - pair[1] for pair in whole) + scale
    return pa.decimal128(precision, scale) if precision <= DIGITS_MAX else None


def null_safe(left: Any, right: Any) -> Any:
    equal = compared_floats("=", left, right) if pa.types.is_floating(left.type) else pc.equal(left, right)
    return pc.coalesce(equal, pc.and_(pc.is_null(left), pc.is_null(right)))


def compared_floats(sign: str, left: Any, right: Any) -> Any:
    """NaN equals itself, and is above every number."""
    low, high = (right, left) if sign in (">", ">=") else (left, right)
    nan_low, nan_high = pc.is_nan(low), pc.is_nan(high)
    both = pc.and_kleene(nan_low, nan_high)
    if sign in ("=", "==", "<>", "!="):
        equal = pc.or_kleene(pc.equal(low, high), both)
        return equal if sign in ("=", "==") else pc.invert(equal)
    less = pc.or_kleene(pc.less(low, high), pc.and_kleene(pc.invert(nan_low), nan_high))
    return pc.or_kleene(less, pc.or_kleene(pc.equal(low, high), both)) if sign in ("<=", ">=") else less
