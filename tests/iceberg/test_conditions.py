"""Filters of Iceberg's readers as conditions: no row that a reader would keep is ruled out."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laketx import InputError
from metaservice.core.table.pruning import MAY_BE_TRUE, Columns, compile_judge, exactly
from metaservice.rpc.convert.wire import predicate
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.iceberg.metadata.conditions import DEPTH_MAX, Filters

pytest.importorskip("pyiceberg", reason="pyiceberg is not installed")
from pyiceberg import expressions as ice
from pyiceberg import types as t
from pyiceberg.catalog.rest.scan_planning import PlanTableScanRequest
from pyiceberg.expressions.visitors import bind, expression_evaluator
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

TYPES: Final[Mapping[str, tuple[str, Any, st.SearchStrategy[Any]]]] = {  # here, there, values that meet often
    "flag": ("boolean", t.BooleanType(), st.booleans()),
    "small": ("int", t.IntegerType(), st.integers(-2, 2) | st.sampled_from([-(1 << 31), (1 << 31) - 1])),
    "big": ("bigint", t.LongType(), st.integers(-2, 2) | st.sampled_from([-(1 << 63), (1 << 63) - 1])),
    "narrow": ("float", t.FloatType(), st.sampled_from([0.0, -0.0, 0.5, math.inf, math.nan, 0.10000000149011612])),
    "real": ("double", t.DoubleType(), st.sampled_from([0.0, -0.0, 0.1, -1.5, math.nan, -math.inf])),
    "text": ("string", t.StringType(), st.text("ab\U0001f600", max_size=3)),
    "day": ("date", t.DateType(), st.integers(-1, 1).map(lambda days: date(1970, 1, 1) + timedelta(days))),
    "at": (
        "timestamp",
        t.TimestamptzType(),
        st.integers(-1, 1).map(lambda us: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)),
    ),
    "price": ("decimal(4,2)", t.DecimalType(4, 2), st.integers(-2, 2).map(lambda cents: Decimal(cents).scaleb(-2))),
    "raw": ("binary", t.BinaryType(), st.binary(max_size=1)),
}
COLUMNS: Final = [
    catalog_pb2.Column(name=name, type=kind, column_id=at) for at, (name, (kind, _, _)) in enumerate(TYPES.items(), 1)
]
SCHEMA: Final = Schema(*(t.NestedField(at, name, kind) for at, (name, (_, kind, _)) in enumerate(TYPES.items(), 1)))
REAL: Final = frozenset({"narrow", "real"})
ORDERED: Final = [
    ice.EqualTo,
    ice.NotEqualTo,
    ice.LessThan,
    ice.LessThanOrEqual,
    ice.GreaterThan,
    ice.GreaterThanOrEqual,
]


@st.composite
def single_tests(draw: st.DrawFn) -> Any:
    name = draw(st.sampled_from(list(TYPES)))
    literals = TYPES[name][2].filter(lambda value: value == value and value not in (math.inf, -math.inf))
    shapes: list[Any] = ["ordered", "in", "null"]
    if name == "text":
        shapes.append("starts")
    if name in REAL:
        shapes.append("nan")
    match draw(st.sampled_from(shapes)):
        case "ordered":
            return draw(st.sampled_from(ORDERED))(name, draw(literals))
        case "in":
            return draw(st.sampled_from([ice.In, ice.NotIn]))(name, draw(st.lists(literals, min_size=1, max_size=3)))
        case "null":
            return draw(st.sampled_from([ice.IsNull, ice.NotNull]))(name)
        case "nan":
            return draw(st.sampled_from([ice.IsNaN, ice.NotNaN]))(name)
        case _:
            return draw(st.sampled_from([ice.StartsWith, ice.NotStartsWith]))(name, draw(literals))


FILTERS: Final = st.recursive(
    single_tests(),
    lambda inner: st.one_of(
        st.builds(ice.And, inner, inner), st.builds(ice.Or, inner, inner), st.builds(ice.Not, inner)
    ),
    max_leaves=8,
)
ROWS: Final = st.fixed_dictionaries({name: st.none() | values for name, (_, _, values) in TYPES.items()})


def may_keep(condition: common_pb2.Predicate, row: Mapping[str, Any]) -> bool:
    """Whether the service would keep a file of this one row."""
    table: Any = SimpleNamespace(columns=COLUMNS)
    judge = compile_judge(predicate(condition, table), Columns({name: at for at, name in enumerate(TYPES)}, REAL))
    bounds = [
        (None, None, False, True) if isinstance(value, float) and math.isnan(value) else exactly(_core(value))
        for value in map(row.__getitem__, TYPES)
    ]
    return bool(judge(tuple(bounds)) & MAY_BE_TRUE)


def _core(value: Any) -> Any:
    """A value as the service has it: days and microseconds."""
    match value:
        case datetime():
            since = value - datetime(1970, 1, 1, tzinfo=UTC)
            return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        case date():
            return value.toordinal() - date(1970, 1, 1).toordinal()
        case _:
            return value


def as_sent(expression: Any) -> Any:
    sent = PlanTableScanRequest(filter=expression).model_dump_json(by_alias=True, exclude_none=True)
    return json.loads(sent)["filter"]


@settings(max_examples=300, deadline=None)
@given(expression=FILTERS, row=ROWS)
def test_a_row_that_pyiceberg_keeps_is_never_ruled_out(expression: Any, row: dict[str, Any]) -> None:
    try:
        keeps = expression_evaluator(SCHEMA, expression, case_sensitive=True)(
            Record(*(_core(row[name]) for name in TYPES))
        )
    except TypeError:  # it compares nothing with NULL
        return
    condition = Filters(COLUMNS, COLUMNS).condition(as_sent(expression))
    assert not keeps or may_keep(condition, row)
    assert bind(SCHEMA, expression, case_sensitive=True) is not None


def condition(tree: Any, **options: Any) -> common_pb2.Predicate:
    return Filters(COLUMNS, COLUMNS, **options).condition(tree)


TRUE = common_pb2.Predicate(literal=True)
A = {"type": "eq", "term": "small", "value": 1}


@pytest.mark.parametrize(
    "tree",
    [
        {"type": "is-nan", "term": "real"},
        {"type": "eq", "term": "raw", "value": "FF"},
        {"type": "eq", "term": "small", "value": 1 << 31},
        {"type": "eq", "term": "small", "value": 1.5},
        {"type": "eq", "term": "price", "value": "0.001"},
        {"type": "eq", "term": "day", "value": "1970-01-01T00:00:00"},
        {"type": "eq", "term": "at", "value": "1970-01-01T00:00:00.000000001"},
        {"type": "eq", "term": "real", "value": "NaN"},
        {"type": "not-eq", "term": "real", "value": 0.0},
        {"type": "not", "child": {"type": "eq", "term": "real", "value": 0.0}},
        {"type": "lt", "term": {"type": "transform", "transform": "day", "term": "at"}, "value": 1},
        {"type": "lt", "left": {"type": "apply", "function": "f", "arguments": []}, "right": 1},
        {"type": "lt", "left": {"type": "reference", "name": "small"}, "right": {"type": "reference", "name": "big"}},
        {"type": "or", "left": A, "right": {"type": "is-nan", "term": "real"}},
        {"type": "not", "child": {"type": "and", "left": A, "right": {"type": "not-nan", "term": "real"}}},
    ],
)
def test_what_cannot_be_said_is_true(tree: Any) -> None:
    assert condition(tree) == TRUE
    assert condition({"type": "and", "left": tree, "right": A}) == condition(A)


@pytest.mark.parametrize(
    "tree",
    [
        {"type": "eq", "left": {"type": "reference", "name": "small"}, "right": {"type": "literal", "value": 1}},
        {"type": "eq", "left": 1, "right": {"type": "reference", "id": 2}},
        {"type": "not", "child": {"type": "not", "child": A}},
        {"type": "in", "child": {"type": "reference", "id": 2}, "values": {"type": "literals", "values": [1]}},
        {"type": "eq", "term": "small", "value": "1"},
        {"type": "and", "left": True, "right": A},
        {"type": "or", "left": {"type": "false"}, "right": A},
    ],
)
def test_all_forms_of_a_test_mean_the_same(tree: Any) -> None:
    assert condition(tree) == condition(A)
    assert condition(A).compare.value.integer == 1


def test_a_float_that_is_made_narrower_keeps_both_neighbours() -> None:
    found = condition({"type": "eq", "term": "narrow", "value": 0.1})
    ends = [one.compare.value.real for one in found.all_of.operands]
    assert ends == [0.1, 0.10000000149011612]


def test_both_zeros_are_kept() -> None:
    for word in ("lt", "gt"):
        found = condition({"type": word, "term": "real", "value": 0.0})
        for zero in (0.0, -0.0):
            assert may_keep(found, dict.fromkeys(TYPES) | {"real": zero})


def test_names_are_those_of_the_filter_and_become_those_of_the_version() -> None:
    older = [catalog_pb2.Column(name="n", type="int", column_id=2)]
    assert Filters(COLUMNS, older).condition(A).compare.column == "n"
    assert Filters(COLUMNS, older).condition({"type": "is-null", "term": "big"}) == TRUE
    assert condition({"type": "eq", "term": "SMALL", "value": 1}, case_sensitive=False) == condition(A)
    with pytest.raises(InputError):
        condition({"type": "eq", "term": "SMALL", "value": 1})


@pytest.mark.parametrize(
    "tree",
    [
        1,
        {},
        {"type": "eq"} | {"term": "nowhere", "value": 1},
        {"type": "like", "term": "text", "value": "a"},
        {"type": "and", "left": A},
        {"type": "in", "term": "small", "values": 1},
        {"type": "in", "term": "small"},
        {"type": "is-null"},
        {"type": "is-null", "child": {"name": "small"}},
    ],
)
def test_what_is_no_filter_is_refused(tree: Any) -> None:
    with pytest.raises(InputError) as caught:
        condition(tree)
    assert caught.value.reason == "ICEBERG_FILTER"


def test_long_filters_fit_and_deep_ones_are_refused() -> None:
    tree: Any = A
    for at in range(3_000):
        tree = {"type": "or" if at < 1_500 else "and", "left": tree, "right": A}
    assert condition(tree) != TRUE
    for _ in range(DEPTH_MAX + 1):
        tree = {"type": "not", "child": tree}
    with pytest.raises(InputError):
        condition(tree)
    many = {"type": "in", "term": "small", "values": list(range(10_000))}
    assert condition({"type": "and", "left": many, "right": A}) == condition(A)
