"""Conditions of the wire on rows in Arrow, with the meaning that Spark SQL gives them.

Spark orders NaN above every number and takes it for equal to itself; Arrow doesn't. NULL IN (…) is NULL; for Arrow it
is false.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.base.errors import InputError
from worker.base.lazy_modules import LazyModule

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from metaservice.client import conditions
else:
    pc = LazyModule("pyarrow.compute")
    conditions = LazyModule("metaservice.client.conditions")

DIGITS_MAX: Final = 38  # of decimal128
COMPARED: Final[Mapping[common_pb2.Comparison.ValueType, Callable[[Any, Any], Any]]] = {
    common_pb2.COMPARISON_EQUAL: eq,
    common_pb2.COMPARISON_NOT_EQUAL: ne,
    common_pb2.COMPARISON_LESS: lt,
    common_pb2.COMPARISON_LESS_OR_EQUAL: le,
    common_pb2.COMPARISON_GREATER: gt,
    common_pb2.COMPARISON_GREATER_OR_EQUAL: ge,
}
NODES_MAX: Final = common_pb2.LIMIT_CONDITION_NODES
TEXT_MAX: Final = common_pb2.LIMIT_CONDITION_TEXT_CHARS  # bytes, which are no fewer than characters
ORS_MAX: Final = 16  # a longer list of values is looked up

Predicate = common_pb2.Predicate


def parsed(text: str, meta: catalog_pb2.Table) -> Predicate:
    """Return the condition with values of the columns' types; times include their zone."""
    try:
        return conditions.parse_condition(text, meta.columns)
    except conditions.ConditionError as error:
        raise InputError("CONDITION_INVALID", f"{error.message}\n{error.pointed()}") from error


def can_be_listed(rows: pa.Table) -> bool:
    """Return whether a condition can name the values of all these rows: they are few, and no text is too long."""
    if len(rows) * (1 + rows.num_columns) >= NODES_MAX:
        return False
    texts = [values for values in rows.columns if _is_text(values.type)]
    return all((pc.max(pc.binary_length(values)).as_py() or 0) <= TEXT_MAX for values in texts)


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def is_plain(text: str, meta: catalog_pb2.Table) -> bool:
    """Return whether the condition can be evaluated without Spark."""
    try:
        conditions.parse_condition(text, meta.columns)
    except conditions.ConditionError:
        return False
    return True


def conjuncts(predicate: Predicate) -> Iterator[Predicate]:
    """Yield the parts that must all be true."""
    if predicate.WhichOneof("kind") == "all_of":
        for operand in predicate.all_of.operands:
            yield from conjuncts(operand)
    else:
        yield predicate


def columns_in(predicate: Predicate) -> set[str]:
    kind = predicate.WhichOneof("kind")
    if kind == "negation":
        return columns_in(predicate.negation)
    if kind in ("all_of", "any_of"):
        return {name for operand in getattr(predicate, kind).operands for name in columns_in(operand)}
    return set() if kind == "literal" else {getattr(predicate, kind or "").column}


def expression(predicate: Predicate, schema: pa.Schema) -> Any:
    """Return the condition as an expression on rows of the schema."""
    match predicate.WhichOneof("kind"):
        case "literal":
            return pc.scalar(predicate.literal)
        case "compare":
            compare = predicate.compare
            return _compared(
                compare.column, compare.comparison, value_of(compare.value, schema.field(compare.column).type), schema
            )
        case "in_list":
            return _among(predicate.in_list, schema)
        case "is_null":
            return pc.field(predicate.is_null.column).is_null()
        case "starts_with":
            return pc.starts_with(pc.field(predicate.starts_with.column), predicate.starts_with.prefix)
        case "negation":
            return ~expression(predicate.negation, schema)
        case "all_of":
            return reduce(and_, (expression(operand, schema) for operand in predicate.all_of.operands), pc.scalar(True))
        case "any_of":
            return reduce(or_, (expression(operand, schema) for operand in predicate.any_of.operands), pc.scalar(False))
        case kind:
            raise AssertionError(f"a condition of kind {kind}")


def value_of(value: common_pb2.Value, kind: pa.DataType) -> Any:
    """Return the wire's value for a column of that type as a Python value; times and dates are numbers."""
    match value.WhichOneof("kind"):
        case "null" | None:
            return None
        case "decimal":
            return Decimal(value.decimal)
        case "integer" if pa.types.is_floating(kind):
            return float(value.integer)
        case "integer" if pa.types.is_decimal(kind):
            return Decimal(value.integer)
        case name:
            return getattr(value, name)


def _compared(column: str, op: common_pb2.Comparison.ValueType, value: Any, schema: pa.Schema) -> Any:
    kind = schema.field(column).type
    field = pc.field(column)
    if value is None:
        return pc.scalar(pa.scalar(None, pa.bool_()))
    if pa.types.is_floating(kind):
        return _compared_floats(field, COMPARED[op], value)
    if pa.types.is_decimal(kind):
        return COMPARED[op](*_decimals(field, kind, value))
    return COMPARED[op](field, pc.scalar(_scalar(value, kind)))


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """Return a value as a scalar. Integers have 64 bits: a literal may lie outside of the column's type."""
    return pa.scalar(value, pa.int64() if pa.types.is_integer(kind) else kind)


def _compared_floats(field: Any, compare: Callable[[Any, Any], Any], value: float) -> Any:
    is_nan = pc.is_nan(field)
    if math.isnan(value):
        never = is_nan & ~is_nan  # NULL stays NULL
        return {eq: is_nan, ne: ~is_nan, lt: ~is_nan, le: ~never, gt: never, ge: is_nan}[compare]
    compared = compare(field, pc.scalar(pa.scalar(value, pa.float64())))
    return compared | is_nan if compare in (gt, ge) else compared


def _decimals(field: Any, kind: pa.DataType, value: Decimal) -> tuple[Any, Any]:
    """Return both sides in a type that holds both exactly."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(kind.scale, -exponent, 0)
    whole = max(kind.precision - kind.scale, len(digits) + exponent, 1)
    if whole + scale <= DIGITS_MAX:
        return field, pc.scalar(pa.scalar(value, pa.decimal128(whole + scale, scale)))
    wide = pa.decimal256(min(whole + scale, 76), scale)
    return field.cast(wide), pc.scalar(pa.scalar(value, wide))


def _among(in_list: common_pb2.InList, schema: pa.Schema) -> Any:
    kind = schema.field(in_list.column).type
    values = [value_of(value, kind) for value in in_list.values]
    present = [value for value in values if value is not None]
    null = pc.scalar(pa.scalar(None, pa.bool_()))
    by_hash = len(present) > ORS_MAX and not (pa.types.is_floating(kind) or pa.types.is_decimal(kind))
    if by_hash:
        if pa.types.is_integer(kind):
            bound = 1 << kind.bit_width - 1
            present = [value for value in present if -bound <= value < bound]
        field = pc.field(in_list.column)
        among = pc.if_else(field.is_valid(), pc.is_in(field, value_set=pa.array(present, kind)), null)
    else:
        equal = [_compared(in_list.column, common_pb2.COMPARISON_EQUAL, value, schema) for value in present]
        among = reduce(or_, equal, pc.scalar(False))
    if len(present) < len(values) and None in values:
        among = among | null
    return among
