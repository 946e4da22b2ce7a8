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
    """The condition, typed by the table's columns; times say their zone."""
    try:
        return conditions.parse_condition(text, meta.columns)
    except conditions.ConditionError as error:
        raise InputError("CONDITION_INVALID", f"{error.message}\n{error.pointed()}") from error


def can_be_listed(rows: pa.Table) -> bool:
    """Whether a condition can name the values of all of these rows: these are not too many, and none is too long."""
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
    """Whether the condition is one of these, and doesn't need Spark."""
    try:
        conditions.parse_condition(text, meta.columns)
    except conditions.ConditionError:
        return False
    return True


def conjuncts(predicate: Predicate) -> Iterator[Predicate]:
    """The parts that must all be true."""
    if predicate.WhichOneof("kind") == "all_of":
        for one in predicate.all_of.operands:
            yield from conjuncts(one)
    else:
        yield predicate


def columns_in(predicate: Predicate) -> set[str]:
    kind = predicate.WhichOneof("kind")
    if kind == "negation":
        return columns_in(predicate.negation)
    if kind in ("all_of", "any_of"):
        return {name for one in getattr(predicate, kind).operands for name in columns_in(one)}
    return set() if kind == "literal" else {getattr(predicate, kind or "").column}


def expression(predicate: Predicate, schema: pa.Schema) -> Any:
    """The condition as an expression on rows of the schema."""
    match predicate.WhichOneof("kind"):
        case "literal":
            return pc.scalar(predicate.literal)
        case "compare":
            one = predicate.compare
            return _compared(one.column, one.comparison, value_of(one.value, schema.field(one.column).type), schema)
        case "in_list":
            return _among(predicate.in_list, schema)
        case "is_null":
            return pc.field(predicate.is_null.column).is_null()
        case "starts_with":
            return pc.starts_with(pc.field(predicate.starts_with.column), predicate.starts_with.prefix)
        case "negation":
            return ~expression(predicate.negation, schema)
        case "all_of":
            return reduce(and_, (expression(one, schema) for one in predicate.all_of.operands), pc.scalar(True))
        case "any_of":
            return reduce(or_, (expression(one, schema) for one in predicate.any_of.operands), pc.scalar(False))
        case kind:
            raise AssertionError(f"a condition of kind {kind}")


def value_of(value: common_pb2.Value, kind: pa.DataType) -> Any:
    """The wire's value for a column of that type, as Python has it; times and dates as numbers."""
    match value.WhichOneof("kind"):
        case "null" | None:
            return None
        case "decimal":
            return Decimal(value.decimal)
        case "integer" if pa.types.is_floating(kind):
            return float(value.integer)
        case "integer" if pa.types.is_decimal(kind):
            return Decimal(value.integer)
        case found:
            return getattr(value, found)


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
    """Integers as the widest: a literal may lie outside of the column's type."""
    return pa.scalar(value, pa.int64() if pa.types.is_integer(kind) else kind)


def _compared_floats(field: Any, compare: Callable[[Any, Any], Any], value: float) -> Any:
    is_nan = pc.is_nan(field)
    if math.isnan(value):
        never = is_nan & ~is_nan  # NULL stays NULL
        return {eq: is_nan, ne: ~is_nan, lt: ~is_nan, le: ~never, gt: never, ge: is_nan}[compare]
    found = compare(field, pc.scalar(pa.scalar(value, pa.float64())))
    return found | is_nan if compare in (gt, ge) else found


def _decimals(field: Any, kind: pa.DataType, value: Decimal) -> tuple[Any, Any]:
    """Both sides in a type that holds both exactly."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(kind.scale, -exponent, 0)
    whole = max(kind.precision - kind.scale, len(digits) + exponent, 1)
    if whole + scale <= DIGITS_MAX:
        return field, pc.scalar(pa.scalar(value, pa.decimal128(whole + scale, scale)))
    wide = pa.decimal256(min(whole + scale, 76), scale)
    return field.cast(wide), pc.scalar(pa.scalar(value, wide))


def _among(found: common_pb2.InList, schema: pa.Schema) -> Any:
    kind = schema.field(found.column).type
    values = [value_of(one, kind) for one in found.values]
    known = [one for one in values if one is not None]
    null = pc.scalar(pa.scalar(None, pa.bool_()))
    by_hash = len(known) > ORS_MAX and not (pa.types.is_floating(kind) or pa.types.is_decimal(kind))
    if by_hash:
        if pa.types.is_integer(kind):
            bound = 1 << kind.bit_width - 1
            known = [one for one in known if -bound <= one < bound]
        field = pc.field(found.column)
        among = pc.if_else(field.is_valid(), pc.is_in(field, value_set=pa.array(known, kind)), null)
    else:
        equal = [_compared(found.column, common_pb2.COMPARISON_EQUAL, one, schema) for one in known]
        among = reduce(or_, equal, pc.scalar(False))
    if len(known) < len(values) and None in values:
        among = among | null
    return among
