"""Columns as people write them."""

import pytest

from metaservice.shared.column_definitions import ColumnWordsError, TypeMissingError, read_columns, read_type_words
from metaservice.shared.column_types import type_text


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("integer", "int"),
        ("Decimal ( 5 )", "decimal(5,0)"),
        ("array<map<long,struct<A b>>>", ""),
        (
            "array<map<long,struct<A: real, `b c` dec not null>>>",
            "array<map<bigint,struct<A:float,`b c`:decimal(10,0) not null>>>",
        ),
        ("struct<long: int>", "struct<long:int>"),
        ("string string", ""),
        ("", ""),
    ],
)
def test_types_are_read_in_every_spelling(words: str, text: str) -> None:
    if text:
        assert type_text(read_type_words(words)) == text
    else:
        with pytest.raises(ColumnWordsError):
            read_type_words(words)


def test_a_column_has_its_properties_in_any_order() -> None:
    found = read_columns(
        "id int, `a, b`: string comment 'x, ''y''' not null default concat('a,', f(1, 2)), c.`d.e` date",
        with_paths=True,
    )
    assert [(one.text, one.nullable, one.comment, one.default_sql) for one in found] == [
        ("id", True, "", ""),
        ("`a, b`", False, "x, 'y'", "concat('a,', f(1, 2))"),
        ("c.`d.e`", True, "", ""),
    ]


def test_a_path_is_no_name_of_a_new_column() -> None:
    with pytest.raises(ColumnWordsError, match=r"from `\.b int` on"):
        read_columns("a.b int")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("a text", "text is no type of a column: use string"),
        ("a varchar(9)", "use string"),
        ("a nothing", "nothing is no"),
    ],
)
def test_a_type_that_no_column_has_comes_with_the_one_to_use(words: str, said: str) -> None:
    with pytest.raises(ColumnWordsError, match=said) as caught:
        read_columns(words)
    assert isinstance(caught.value, TypeMissingError) == ("varchar" in words)


def test_nesting_is_bounded() -> None:
    with pytest.raises(ColumnWordsError, match="nests too deep"):
        read_type_words("array<" * 1000 + "int" + ">" * 1000)
