"""Rows as frames of polars. The columns, the limit and simple conditions of a lazy query reach the scan.

polars applies its conditions to the rows itself. The scan only leaves out what can't match, so a condition of an
unknown form costs time and changes no result.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source

from protos.laketx.v1 import common_pb2
from worker.arrow.expressions.conditions import Predicate, conjuncts

COMPARED: Final = {
    "Eq": common_pb2.COMPARISON_EQUAL,
    "NotEq": common_pb2.COMPARISON_NOT_EQUAL,
    "Lt": common_pb2.COMPARISON_LESS,
    "LtEq": common_pb2.COMPARISON_LESS_OR_EQUAL,
    "Gt": common_pb2.COMPARISON_GREATER,
    "GtEq": common_pb2.COMPARISON_GREATER_OR_EQUAL,
}
VALUES_MAX: Final = 1_000
DEPTH_MAX: Final = 12  # the service takes more

Scan = Callable[[Sequence[str], Predicate | None, int | None], Iterator[pa.Table]]


def frame(rows: pa.Table) -> pl.DataFrame:
    converted = pl.from_arrow(rows)
    assert isinstance(converted, pl.DataFrame)
    return converted


def lazy(schema: pa.Schema, scan: Scan) -> pl.LazyFrame:
    shape = frame(schema.empty_table()).schema

    def read(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        del batch_size
        where = None if predicate is None else pushed(predicate, schema)
        shown = schema.names if with_columns is None else with_columns
        columns = shown or schema.names[:1]  # a count needs no column, but a scan does
        for rows in scan(columns, where, n_rows if predicate is None else None):
            part = frame(rows)
            yield part if predicate is None else part.filter(predicate)

    return register_io_source(read, schema=shape)


def pushed(predicate: pl.Expr, schema: pa.Schema) -> Predicate | None:
    """Return a condition that is true wherever polars' is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # polars may change the form: then no condition is pushed
        try:
            tree = json.loads(predicate.meta.serialize(format="json"))
        except (pl.exceptions.PolarsError, ValueError, TypeError):
            return None
    condition = _weaker(tree, schema)
    return None if condition is None or _depth(condition) > DEPTH_MAX else condition


def _depth(predicate: Predicate) -> int:
    kind = predicate.WhichOneof("kind")
    if kind in ("all_of", "any_of"):
        return 1 + max(map(_depth, getattr(predicate, kind).operands))
    return 1


def _alternatives(predicate: Predicate) -> Sequence[Predicate]:
    return predicate.any_of.operands if predicate.WhichOneof("kind") == "any_of" else [predicate]


def _weaker(tree: Any, schema: pa.Schema) -> Predicate | None:
    match tree:
        case {"BinaryExpr": {"left": left, "op": "And", "right": right}}:
            parts = [part for side in (left, right) if (weaker := _weaker(side, schema)) for part in conjuncts(weaker)]
            return Predicate(all_of=common_pb2.PredicateList(operands=parts)) if parts else None
        case {"BinaryExpr": {"left": left, "op": "Or", "right": right}}:
            either = [_weaker(side, schema) for side in (left, right)]
            alternatives = [part for condition in either if condition is not None for part in _alternatives(condition)]
            return Predicate(any_of=common_pb2.PredicateList(operands=alternatives)) if None not in either else None
        case {"BinaryExpr": {"left": {"Column": str(name)}, "op": op, "right": {"Literal": literal}}} if op in COMPARED:
            value = _value(literal, schema.field(name).type)
            if value is None:
                return None
            return Predicate(compare=common_pb2.Compare(column=name, comparison=COMPARED[op], value=value))
        case {"Function": {"input": [{"Column": str(name)}], "function": {"Boolean": "IsNull"}}}:
            return Predicate(is_null=common_pb2.IsNull(column=name))
        case {"Function": {"input": [{"Column": str(name)}], "function": {"Boolean": "IsNotNull"}}}:
            return Predicate(negation=Predicate(is_null=common_pb2.IsNull(column=name)))
        case {
            "Function": {"input": [{"Column": str(name)}, {"Literal": listed}], "function": {"Boolean": {"IsIn": _}}}
        }:
            return _among(name, listed, schema.field(name).type)
        case _:
            return None


def _among(name: str, literal: Any, kind: pa.DataType) -> Predicate | None:
    match literal:
        case {"Scalar": {"List": list(content)}}:
            try:
                [batch] = pa.ipc.open_stream(bytes(content))
                listed = batch.column(0).to_pylist()
            except (pa.ArrowException, ValueError, TypeError):
                return None
            values = [_plain_value(value, kind) for value in listed]
            present = [value for value in values if value is not None]
            if not values or len(present) < len(values) or len(values) > VALUES_MAX:
                return None
            return Predicate(in_list=common_pb2.InList(column=name, values=present))
        case _:
            return None


def _value(literal: Any, kind: pa.DataType) -> common_pb2.Value | None:
    match literal:
        case {"Dyn": {"Int": value}} | {"Dyn": {"Str": value}}:
            return _plain_value(value, kind)
        case {"Scalar": {"Date": int(days)}} if pa.types.is_date32(kind):
            return common_pb2.Value(date=days)
        case {"Scalar": {"Datetime": [int(micros), "Microseconds", _]}} if pa.types.is_timestamp(kind):
            return common_pb2.Value(timestamp_us=micros)
        case {"Scalar": dict(scalar)} if len(scalar) == 1:
            return _plain_value(next(iter(scalar.values())), kind)
        case _:
            return None


def _plain_value(value: Any, kind: pa.DataType) -> common_pb2.Value | None:
    """Return an integer, text or boolean of a column of that type; None for any other value."""
    if isinstance(value, bool):
        return common_pb2.Value(boolean=value) if pa.types.is_boolean(kind) else None
    if isinstance(value, int) and pa.types.is_integer(kind) and abs(value) < 1 << kind.bit_width - 1:
        return common_pb2.Value(integer=value)
    if isinstance(value, str) and pa.types.is_string(kind):
        return common_pb2.Value(text=value)
    return None
