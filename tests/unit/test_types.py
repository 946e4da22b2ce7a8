"""Types: what is parsed, how it is written, what may be widened to what."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaservice.core.errors import MetaError
from metaservice.core.table.types import may_widen, nested_ids, parse_type, with_ids
from metaservice.shared.column_types import ATOMIC, Array, Atomic, Decimal, Field, Map, Struct, Type, type_text

names = st.text("abcXYZ_09", min_size=1, max_size=8)
decimals = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: Decimal(p, s)))
atoms: st.SearchStrategy[Type] = st.sampled_from(sorted(ATOMIC)).map(Atomic) | decimals


def structs(kinds: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    fields = st.builds(Field, names, kinds, st.booleans())
    return st.lists(fields, min_size=1, max_size=4, unique_by=lambda one: one.name.lower()).map(
        lambda found: Struct(tuple(found))
    )


types = st.recursive(
    atoms, lambda kinds: kinds.map(Array) | st.builds(Map, kinds, kinds) | structs(kinds), max_leaves=8
)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("bigint", "bigint"),
        ("  timestamp_ntz ", "timestamp_ntz"),
        ("decimal", "decimal(10,0)"),
        ("decimal(7)", "decimal(7,0)"),
        ("decimal( 38 , 38 )", "decimal(38,38)"),
        ("array< int >", "array<int>"),
        ("map<string, array<decimal(4,2)>>", "map<string,array<decimal(4,2)>>"),
        ("struct<a: int not null, b:struct<c:string>>", "struct<a:int not null,b:struct<c:string>>"),
        ("struct<array:int,not:int>", "struct<array:int,not:int>"),
    ],
)
def test_what_is_a_type(text: str, canonical: str) -> None:
    assert type_text(parse_type(text)) == canonical


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "TYPE_UNKNOWN"),
        ("decimalxyz", "TYPE_UNKNOWN"),
        ("decimal(", "TYPE_UNKNOWN"),
        ("decimal(1,2,3)", "TYPE_UNKNOWN"),
        ("decimal(-1)", "TYPE_UNKNOWN"),
        ("decimal(x)", "TYPE_UNKNOWN"),
        ("decimal(0)", "DECIMAL_INVALID"),
        ("decimal(39)", "DECIMAL_INVALID"),
        ("decimal(3,4)", "DECIMAL_INVALID"),
        ("decimal(٣)", "TYPE_UNKNOWN"),
        ("int(4)", "TYPE_UNKNOWN"),
        ("INT", "TYPE_UNKNOWN"),
        ("integer", "TYPE_UNKNOWN"),
        ("int int", "TYPE_UNKNOWN"),
        ("array", "TYPE_UNKNOWN"),
        ("array<int", "TYPE_UNKNOWN"),
        ("array<int>>", "TYPE_UNKNOWN"),
        ("array<int,int>", "TYPE_UNKNOWN"),
        ("map<int>", "TYPE_UNKNOWN"),
        ("struct<>", "TYPE_UNKNOWN"),
        ("struct<a>", "TYPE_UNKNOWN"),
        ("struct<a:int,>", "TYPE_UNKNOWN"),
        ("struct<a:int not>", "TYPE_UNKNOWN"),
        ("struct<a-b:int>", "TYPE_UNKNOWN"),
        ("struct<a:int,A:int>", "COLUMN_TWICE"),
        ("struct<>:int>", "TYPE_UNKNOWN"),
        (f"struct<{'a' * 129}:int>", "NAME_INVALID"),
        ("array<" * 33 + "int" + ">" * 33, "TYPE_TOO_DEEP"),
        ("array<" * 5_000 + "int" + ">" * 5_000, "TYPE_TOO_DEEP"),
        ("x" * 70_000, "TYPE_TOO_LONG"),
        ("int\x00", "TYPE_UNKNOWN"),
    ],
)
def test_what_is_none(text: str, reason: str) -> None:
    with pytest.raises(MetaError) as refused:
        parse_type(text)
    assert refused.value.reason == reason


def test_a_near_miss_is_named() -> None:
    with pytest.raises(MetaError) as refused:
        parse_type("bigintt")
    assert refused.value.facts["did_you_mean"] == "bigint"


@given(types)
def test_a_type_is_what_its_text_says(kind: Type) -> None:
    assert parse_type(type_text(kind)) == kind


@given(st.text("abdeimnprstuc<>(),: 0123456789_", max_size=40))
def test_any_text_is_a_type_or_refused(text: str) -> None:
    try:
        kind = parse_type(text)
    except MetaError:
        return
    assert parse_type(type_text(kind)) == kind


@given(types)
def test_ids_go_by_path(kind: Type) -> None:
    paths = [path for path, _ in nested_ids(kind)]
    ids = {path: number for number, path in enumerate(paths, start=5)}
    assert len(ids) == len(paths)
    assert dict(nested_ids(with_ids(kind, ids))) == ids
    assert type_text(with_ids(kind, ids)) == type_text(kind)


@pytest.mark.parametrize(
    ("before", "after", "allowed"),
    [
        ("tinyint", "smallint", True),
        ("tinyint", "bigint", True),
        ("int", "bigint", True),
        ("bigint", "int", False),
        ("int", "int", False),
        ("int", "double", True),
        ("bigint", "double", False),
        ("int", "float", False),
        ("float", "double", True),
        ("double", "float", False),
        ("date", "timestamp_ntz", True),
        ("date", "timestamp", False),
        ("timestamp", "timestamp_ntz", False),
        ("int", "string", False),
        ("int", "decimal(10,0)", False),
        ("decimal(10,2)", "decimal(12,2)", True),
        ("decimal(10,2)", "decimal(12,4)", True),
        ("decimal(10,2)", "decimal(11,4)", False),
        ("decimal(10,2)", "decimal(10,2)", False),
        ("decimal(10,2)", "decimal(12,1)", False),
        ("array<int>", "array<bigint>", False),
    ],
)
def test_what_may_be_widened(before: str, after: str, *, allowed: bool) -> None:
    assert may_widen(parse_type(before), parse_type(after)) is allowed


@given(decimals, decimals)
def test_a_wider_decimal_holds_every_value_of_the_narrow_one(narrow: Decimal, wide: Decimal) -> None:
    largest = Fraction(10**narrow.precision - 1, 10**narrow.scale)
    smallest = Fraction(1, 10**narrow.scale)
    holds = largest < 10 ** (wide.precision - wide.scale) and smallest >= Fraction(1, 10**wide.scale)
    assert may_widen(narrow, wide) is (holds and narrow != wide)
